/* tiny_llama.h - for tests: the recorded model of tests/data, and rows for it. */
#pragma once

#include "tests/files.h"
#include "tests/sources.h"

static char model[400], data[400];

/* The set-up of a group. */
static inline int find_data(void **state)
{
    snprintf(model, sizeof model, "%s", in_sources("tests/data/llama/tiny_llama/hf"));
    snprintf(data, sizeof data, "%s",
             in_sources("tests/data/llama/tiny_llama/fwd_inputs.safetensors"));
    return make_scratch(state);
}
