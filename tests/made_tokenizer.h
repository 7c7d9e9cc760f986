/* made_tokenizer.h - tokenizers of the text of a tokenizer.json. */
#pragma once

#include "tests/check.h"

#include "base/text.h"
#include "inputs/tokenizer/parts.h"

static inline sheaf_status *parse_tokenizer(sheaf__tokenizer **out, const char *text)
{
    sheaf__tokenizer_file file;
    sheaf_status *st = sheaf__tokenizer_read(&file, text, strlen(text));
    TRY(st, sheaf__tokenizer_build(out, &file));
    json_decref(file.parts);
    return st;
}

static inline sheaf__tokenizer *tokenizer_of(const char *text)
{
    sheaf__tokenizer *t = NULL;
    CHECK_OK(parse_tokenizer(&t, text));
    return t;
}

/* Releases the text. */
static inline sheaf__tokenizer *tokenizer_made(sheaf_text *json)
{
    sheaf__tokenizer *t = tokenizer_of(json->at);
    sheaf__text_release(json);
    return t;
}
