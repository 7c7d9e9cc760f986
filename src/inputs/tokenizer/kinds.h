/* kinds.h - private: every kind of step, for the tables of open.c, and what several share. */
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
extern const sheaf__step_kind sheaf__template_post;

/* ---- the byte-level alphabet, and UTF-8 of any bytes (byte_level.c) ---- */

/* sheaf__byte_char - the character that stands for `byte`: itself where it can be seen, else one
 * from U+0100 on, in order. */
uint32_t sheaf__byte_char(unsigned char byte);
/* sheaf__text_lossy - appends `bytes` as Rust's from_utf8_lossy() reads them: U+FFFD for the
 * longest beginning of a character that is not gone on with, else for each byte that is no part of
 * UTF-8. Unless this is the `end`, what may yet become a character is left. The bytes read. */
size_t sheaf__text_lossy(sheaf_text *text, const char *bytes, size_t size, bool end);

/* ---- decoders ---- */

/* One at work on a text (decode.c). */
struct sheaf__decoding {
    const sheaf__step_kind *kind; /* NULL: what comes is the text */
    const void *state;
    bool one;            /* what comes are parts of one string, whole characters */
    sheaf_text held;     /* what later strings may change, as the decoder uses it */
    sheaf_text made;     /* space for what it passes on */
    sheaf_text whole;    /* the one string, for a decoder that sees strings as a whole */
    int64_t taken;       /* characters that Strip took off the beginning */
    size_t in, out;      /* bytes of all strings that came (of the first alone), and went on */
    const size_t *given; /* `in` of the first */
    bool grown;          /* more went on than sheaf__growth() of them */
};

/* sheaf__decoding_put - passes a string on, or the next part of the one string. */
void sheaf__decoding_put(sheaf__decoding *d, const char *bytes, size_t size);

/* ---- steps that change a text ---- */

/* sheaf__edit_prepend - puts bytes, whole characters, before a piece that is at its beginning. */
void sheaf__edit_prepend(sheaf__edit *e, const char *bytes, size_t size);

/* What Replace, a normalizer and a decoder, replaces; Prepend has a content alone. */
typedef struct sheaf__replacing {
    char *literal, *content; /* by what */
    size_t literal_size, size;
} sheaf__replacing;
sheaf_status *sheaf__replacing_open(void *state, sheaf_json_reader *r, sheaf__opening *how);
void sheaf__replacing_close(void *state);
/* sheaf__replacing_next - where it stands first; NULL: nowhere. */
const char *sheaf__replacing_next(const sheaf__replacing *s, const char *text, size_t size);

/* sheaf__json_character - a string of one character. */
uint32_t sheaf__json_character(sheaf_json_reader *r, const char *key);

/* ---- steps that divide it at matches of a pattern (split.c) ---- */

/* What becomes of the matches: as in `tokenizers`. */
typedef enum sheaf__behavior {
    SHEAF__REMOVED,
    SHEAF__ISOLATED,
    SHEAF__MERGED_WITH_PREVIOUS,
    SHEAF__MERGED_WITH_NEXT,
    SHEAF__CONTIGUOUS,
} sheaf__behavior;

/* sheaf__divide_by - the matches of `pattern` in `piece`, and what lies between. */
sheaf_status *sheaf__divide_by(sheaf__prepared *text, const sheaf__piece *piece,
                               const sheaf__pattern *pattern, sheaf__behavior behavior,
                               bool invert);

/* The scanner that is all that the step does with a text; NULL: it does something else. Of a step
 * of the kind sheaf__split, and of sheaf__byte_level_splitting that leaves the bytes raw:
 * *nothing says that it does not divide. */
const sheaf__scanner *sheaf__split_scanner(const void *state);
const sheaf__scanner *sheaf__byte_level_scanner(const void *state, bool *nothing);
