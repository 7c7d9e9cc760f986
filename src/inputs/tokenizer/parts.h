/* parts.h - private: the parts of a tokenizer. A text goes through
 *
 *   added tokens > normalizer steps > added tokens > pre-tokenizer steps > model > post-processors
 *
 * and ids come back through decoder steps. Each step has a kind: a row of a table in open.c, found
 * by the "type" that tokenizer.json gives. Steps are in the order of the file; a Sequence is
 * replaced by its members. */
#pragma once

#include "added.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/text.h"
#include "prepared.h"
#include "tokenizer.h"
#include "vocab.h"

/* ---- steps ---- */

/* Inputs of a step when it is opened, beside its own object. */
typedef struct sheaf__opening {
    bool last;         /* no step follows in its list */
    bool raw;          /* the model takes raw bytes for the byte-level alphabet */
    bool divided;      /* in and out: an earlier post-processor adds tokens around the text */
    bool needs_origin; /* out: the step reads sheaf__piece.origin, so alignments are kept */
} sheaf__opening;

/* The state of a decoder: kinds.h. */
typedef struct sheaf__decoding sheaf__decoding;

/* The ids of one text. */
typedef struct sheaf__ids_out {
    int32_t *id;
    sheaf__text_range *where; /* NULL unless `wanted` */
    int64_t count, capacity, id_capacity, where_capacity;
    bool wanted, failed;
} sheaf__ids_out;
/* sheaf__ids_insert - inserts an id that stands for no text before `at`. */
void sheaf__ids_insert(sheaf__ids_out *ids, int64_t at, int32_t id);

/* `open` (NULL: no options) reads the object through `r`; failures are r->st or its status. `close`
 * (NULL: none) frees the members of the state, also after a failure. */
typedef struct sheaf__step_kind {
    const char *name, *keys; /* of its options, with blanks between them */
    size_t size;             /* of its state, which is all zero before `open` */
    sheaf_status *(*open)(void *state, sheaf_json_reader *r, sheaf__opening *how);
    /* Of normalizers and pre-tokenizers: changes or divides a text. */
    sheaf_status *(*run)(const void *state, sheaf__prepared *text);
    void (*close)(void *state);
    /* Of decoders: takes a string (or a part of the one string, after a decoder that joins them)
     * and passes on what is certain by sheaf__decoding_put(). `end`: called without a string after
     * the last one. */
    void (*decode)(const void *state, sheaf__decoding *d, const char *bytes, size_t size, bool end);
    bool joins;     /* joins all strings */
    bool by_string; /* needs each string as a whole */
    /* Of post-processors (NULL: none): adds ids around those of the text. */
    void (*post)(const void *state, sheaf__ids_out *ids, bool add_special);
} sheaf__step_kind;

/* ---- the model ---- */

/* A tokenizer.json: its members as an object, except the model's large ones, which are read in
 * place. */
typedef struct sheaf__tokenizer_file {
    json_t *parts;                 /* owned (json_decref) */
    sheaf_json_scan vocab, merges; /* in the text; .begin NULL: absent */
    /* Merges are not in it: two tokens whose join is a token are one, in the order of the ids of
     * what is joined, the shorter left part first (generate_merges() of transformers). */
    bool made;
    bool by_id;           /* or by this id alone, of equals the first in a text */
    const uint32_t *rank; /* or by the rank of the id; UINT32_MAX: neither joined nor made */
} sheaf__tokenizer_file;

/* Emits an id of the current piece: `begin` and `end` are bytes of that piece. */
typedef struct sheaf__work sheaf__work;
void sheaf__emit(sheaf__work *work, int32_t id, size_t begin, size_t end);

typedef struct sheaf__bpe_model sheaf__bpe_model;
/* sheaf__bpe_open - fills `vocab` with all tokens. Errors: also as r->st.
 *   r  the options */
sheaf_status *sheaf__bpe_open(sheaf__bpe_model **out, sheaf__vocab *vocab, sheaf_json_reader *r,
                              const sheaf__tokenizer_file *file);
void sheaf__bpe_close(sheaf__bpe_model *b); /* accepts NULL */
/* sheaf__bpe_encode - encodes a piece that is not empty, with sheaf__emit(). `raw`: each byte
 * stands for its character of the byte-level alphabet. The caller caches short words. */
sheaf_status *sheaf__bpe_encode(const sheaf__bpe_model *b, sheaf__work *work, const char *bytes,
                                size_t size, bool raw);
/* sheaf__bpe_cut - a piece that is not raw may be encoded in parts with the same ids: returns the
 * bytes of the first part, at least one character. `blanks`: each blank stands for a bar,
 * U+2581. */
size_t sheaf__bpe_cut(const sheaf__bpe_model *b, const char *bytes, size_t size, bool blanks);

/* ---- the lists of steps ---- */

enum { SHEAF__NORMALIZER, SHEAF__PRE_TOKENIZER, SHEAF__DECODER, SHEAF__POST, SHEAF__LISTS };

/* sheaf__only_keys - refuses keys of r->object other than "type" and those in `known`, separated by
 * blanks, unless the value is null. The error is r->st. */
void sheaf__only_keys(sheaf_json_reader *r, const char *known);

/* ---- the tokenizer ---- */

typedef struct sheaf__step {
    const sheaf__step_kind *kind;
    void *state;
} sheaf__step;

typedef struct sheaf__steps {
    sheaf__step *step;
    int64_t count, capacity;
} sheaf__steps;
/* sheaf__steps_close - closes all of them and empties the list. */
void sheaf__steps_close(sheaf__steps *steps);

/* The last step before the model may replace blanks by bars, U+2581, as in sentencepiece (Kudo and
 * Richardson 2018). It is then done word by word (pieces.h). */
typedef struct sheaf__blanks {
    bool on;
    enum {
        SHEAF__BAR_ALWAYS,
        SHEAF__BAR_UNLESS_THERE,
        SHEAF__BAR_AT_START, /* as UNLESS_THERE, only at the beginning of the user's text */
        SHEAF__BAR_NEVER,
    } prepend;           /* a bar before each text between added tokens */
    bool split;          /* tokens contain a bar only at their beginning */
    int64_t normalizers; /* steps before it; no pre-tokenizer is before or after */
} sheaf__blanks;

struct sheaf_tokenizer {
    sheaf__vocab vocab;
    sheaf__added added;
    sheaf__steps normalizer, pre_tokenizer, decoder, post;
    sheaf__bpe_model *model;
    sheaf__blanks blanks;
    bool raw_model;    /* the model takes raw bytes for the byte-level alphabet */
    bool needs_origin; /* some step reads sheaf__piece.origin */
    bool has_decoder;
    int64_t
        pieces; /* of a sentencepiece file that is read as it is (spm.c); 0: another tokenizer */
    int32_t bos, eos, pad;     /* -1: none */
    struct sheaf__works *pool; /* idle sheaf__work */
};

/* The "id" of an added token without one in its file: that of the model's token, or the next
 * one. */
enum { SHEAF__ID_GIVEN = SHEAF__ID_MAX + 1 };

/* sheaf__tokenizer_read - *out borrows the text; release out->parts also after a failure.
 * sheaf__tokenizer_build - from the parts, without bos and eos. */
sheaf_status *sheaf__tokenizer_read(sheaf__tokenizer_file *out, const char *text, size_t size);
sheaf_status *sheaf__tokenizer_build(sheaf__tokenizer **out, const sheaf__tokenizer_file *file);
/* sheaf__steps_put - the one step of a list; takes its state, also after a failure. */
sheaf_status *sheaf__steps_put(sheaf__steps *steps, const sheaf__step_kind *kind, void *state);
/* sheaf__tokenizer_around - replaces the post-processors: these ids (-1: none) before and after
 * each text. */
sheaf_status *sheaf__tokenizer_around(sheaf__tokenizer *t, int32_t before, int32_t behind);
/* sheaf__normalize - applies only the normalizer, for added tokens; *out is malloc'd. */
sheaf_status *sheaf__normalize(char **out, size_t *size, const sheaf__tokenizer *t,
                               const char *text, size_t bytes);

struct sheaf__works *sheaf__works_new(void); /* NULL: no memory */
void sheaf__works_free(struct sheaf__works *pool);
