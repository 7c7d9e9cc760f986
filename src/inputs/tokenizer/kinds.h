/* kinds.h - private: every kind of step, for the tables of open.c, and shared helpers. */
#pragma once

#include "parts.h"
#include "pattern.h"

/* byte_level.c */
extern const sheaf__step_kind sheaf__byte_level_splitting, sheaf__byte_level_decoder,
    sheaf__byte_level_post;
/* split.c */
extern const sheaf__step_kind sheaf__split, sheaf__digits;
/* forms.c */
extern const sheaf__step_kind sheaf__nfc;
/* normalize.c */
extern const sheaf__step_kind sheaf__prepend, sheaf__replace, sheaf__metaspace;
/* decode.c */
extern const sheaf__step_kind sheaf__byte_fallback_decoder, sheaf__fuse_decoder,
    sheaf__strip_decoder, sheaf__replace_decoder;
/* post.c */
extern const sheaf__step_kind sheaf__template_post, sheaf__roberta_post, sheaf__bert_post;

/* ---- bytes as characters (byte_level.c) ---- */

/* sheaf__byte_char - the character that stands for `byte`: itself if printable, else one from
 * U+0100 on, in order. */
uint32_t sheaf__byte_char(unsigned char byte);
/* sheaf__text_lossy - appends `bytes` as Rust's from_utf8_lossy() reads them: U+FFFD for each
 * incomplete character and each other invalid byte. Unless `end`, leaves a prefix of a character at
 * the end unread. Returns the bytes read. */
size_t sheaf__text_lossy(sheaf_text *text, const char *bytes, size_t size, bool end);

/* sheaf__byte_of - the byte of a token "<0x0A>"; -1: it is none (decode.c). */
int sheaf__byte_of(const char *token, size_t size);

/* ---- decoders ---- */

/* The state of one decoder for one text (decode.c). */
struct sheaf__decoding {
    const sheaf__step_kind *kind; /* NULL: collects the text */
    const void *state;
    bool one;            /* the input is one string, in parts of whole characters */
    bool raw;            /* bytes are passed on as they are, also parts of characters */
    sheaf_text held;     /* text that later strings may still change */
    sheaf_text made;     /* scratch for its output */
    sheaf_text whole;    /* the one string, for a decoder that sees strings as a whole */
    int64_t taken;       /* characters that Strip removed at the beginning */
    size_t in, out;      /* bytes of all input (of the first decoder only) and output */
    const size_t *given; /* `in` of the first */
    bool grown;          /* output exceeds sheaf__growth() of the input */
};

/* sheaf__decoding_put - passes on a string, or the next part of the one string. */
void sheaf__decoding_put(sheaf__decoding *d, const char *bytes, size_t size);

/* ---- steps that change a text ---- */

/* sheaf__edit_prepend - inserts whole characters before a piece that is at its beginning. */
void sheaf__edit_prepend(sheaf__edit *e, const char *bytes, size_t size);

/* The state of Replace, a normalizer and a decoder; Prepend only has a content. */
typedef struct sheaf__replacing {
    char *literal, *content; /* the replacement */
    size_t literal_size, size;
} sheaf__replacing;
sheaf_status *sheaf__replacing_open(void *state, sheaf_json_reader *r, sheaf__opening *how);
void sheaf__replacing_close(void *state);
/* sheaf__replacing_next - its first occurrence; NULL: none. */
const char *sheaf__replacing_next(const sheaf__replacing *s, const char *text, size_t size);

/* sheaf__json_character - a string of one character. */
uint32_t sheaf__json_character(sheaf_json_reader *r, const char *key);

/* ---- steps that divide a text at matches of a pattern (split.c) ---- */

/* The treatment of matches, as in `tokenizers`. */
typedef enum sheaf__behavior {
    SHEAF__REMOVED,
    SHEAF__ISOLATED,
    SHEAF__MERGED_WITH_PREVIOUS,
    SHEAF__MERGED_WITH_NEXT,
    SHEAF__CONTIGUOUS,
} sheaf__behavior;

/* sheaf__divide_by - divides `piece` at the matches of `pattern`. */
sheaf_status *sheaf__divide_by(sheaf__prepared *text, const sheaf__piece *piece,
                               const sheaf__pattern *pattern, sheaf__behavior behavior,
                               bool invert);

/* sheaf__split_pattern - of a step of kind sheaf__split or sheaf__digits; NULL: its matches are not
 * kept as they are. */
const sheaf__pattern *sheaf__split_pattern(const void *state);

/* The scanner of a step that only divides by it; NULL: the step does something else. For steps of
 * kind sheaf__split, and of sheaf__byte_level_splitting with raw bytes: *nothing: it does not
 * divide. */
const sheaf__scanner *sheaf__split_scanner(const void *state);
const sheaf__scanner *sheaf__byte_level_scanner(const void *state, bool *nothing);
