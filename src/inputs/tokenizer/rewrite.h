/* rewrite.h - private: what several steps that change a text have in common. */
#pragma once

#include "parts.h"

/* sheaf__edit_prepend - puts bytes, whole characters, before a piece that is at its beginning. */
void sheaf__edit_prepend(sheaf__edit *e, const char *bytes, size_t size);

/* Of a step without options. */
sheaf_status *sheaf__open_plain(void **state, sheaf_json_reader *r, sheaf__opening *how);

/* What Replace, a normalizer and a decoder, replaces. */
typedef struct sheaf__replacing {
    char *literal, *content; /* by what */
    size_t literal_size, size;
} sheaf__replacing;
sheaf_status *sheaf__replacing_open(void **state, sheaf_json_reader *r, sheaf__opening *how);
void sheaf__replacing_close(void *state);
/* sheaf__replacing_next - where it stands first; NULL: nowhere. */
const char *sheaf__replacing_next(const sheaf__replacing *s, const char *text, size_t size);

/* sheaf__json_character - a string of one character. */
uint32_t sheaf__json_character(sheaf_json_reader *r, const char *key);
