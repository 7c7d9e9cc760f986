/* tiny_llama.h - for tests: the recorded model of tests/data, and rows for it. */
#pragma once

#include "tests/files.h"

static char model[400], data[400];

/* The set-up of a group. */
static inline int find_data(void **state)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    root = root == NULL ? "." : root;
    snprintf(model, sizeof model, "%s/tests/data/llama/tiny_llama/hf", root);
    snprintf(data, sizeof data, "%s/tests/data/llama/tiny_llama/fwd_inputs.safetensors", root);
    return make_scratch(state);
}
