/* parts.h - private: what a tokenizer is made of. A text goes through
 *
 *   added tokens > normalizer steps > added tokens > pre-tokenizer steps > model > post-processors
 *
 * and ids come back through decoder steps. Each step has a kind: a row of a table in open.c, found
 * by the "type" that tokenizer.json gives. Steps are in the order of the file; a Sequence is
 * opened into its members. */
#pragma once

#include "added.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/text.h"
#include "prepared.h"
#include "tokenizer.h"
#include "vocab.h"

/* ---- steps ---- */

/* What opening a step may look at beside its own object. */
typedef struct sheaf__opening {
    bool last;         /* no step follows in its list */
    bool raw;          /* the model takes bytes of the byte-level alphabet raw */
    bool divided;      /* in and out: a post-processor before puts texts around the text */
    bool needs_origin; /* out: the step reads sheaf__piece.origin, so alignments are kept */
} sheaf__opening;

/* A decoder at work on a text: kinds.h. */
typedef struct sheaf__decoding sheaf__decoding;

/* The ids of one text. */
typedef struct sheaf__ids_out {
    int32_t *id;
    sheaf__text_range *where; /* NULL unless `wanted` */
    int64_t count, capacity, id_capacity, where_capacity;
    bool wanted, failed;
} sheaf__ids_out;
/* sheaf__ids_insert - one id that stands for no text, before the one at `at`. */
void sheaf__ids_insert(sheaf__ids_out *ids, int64_t at, int32_t id);

/* `open` (NULL: nothing is to be read) reads the values of the object through `r` and fails as
 * r->st or by itself. `close` (NULL: nothing) frees what the state holds, also after a failure. */
typedef struct sheaf__step_kind {
    const char *name, *keys; /* of its options, with blanks between them */
    size_t size;             /* of its state, which is all zero before `open` */
    sheaf_status *(*open)(void *state, sheaf_json_reader *r, sheaf__opening *how);
    /* Of normalizers and pre-tokenizers: changes or divides a text. */
    sheaf_status *(*run)(const void *state, sheaf__prepared *text);
    void (*close)(void *state);
    /* Of decoders: takes a string (or a part of the one string, where a decoder before joins them)
     * and passes on what is certain by sheaf__decoding_put(). `end`: without one, when all have
     * come. */
    void (*decode)(const void *state, sheaf__decoding *d, const char *bytes, size_t size, bool end);
    bool joins;     /* it makes one string of all */
    bool by_string; /* it sees each string as a whole */
    /* Of post-processors (NULL: nothing): puts the ids it adds around those of the text. */
    void (*post)(const void *state, sheaf__ids_out *ids, bool add_special);
} sheaf__step_kind;

/* ---- the model ---- */

/* A tokenizer.json: its members as an object, but of the model's large ones where they lie. */
typedef struct sheaf__tokenizer_file {
    json_t *parts;                 /* owned (json_decref) */
    sheaf_json_scan vocab, merges; /* in the text; .begin NULL: not there */
} sheaf__tokenizer_file;

/* Where a model puts the ids of the piece at hand: `begin` and `end` are bytes of that piece. */
typedef struct sheaf__work sheaf__work;
void sheaf__emit(sheaf__work *work, int32_t id, size_t begin, size_t end);

typedef struct sheaf__bpe_model sheaf__bpe_model;
/* sheaf__bpe_open - fills `vocab` with every token. Errors, also as r->st.
 *   r  the options */
sheaf_status *sheaf__bpe_open(sheaf__bpe_model **out, sheaf__vocab *vocab, sheaf_json_reader *r,
                              const sheaf__tokenizer_file *file);
void sheaf__bpe_close(sheaf__bpe_model *b); /* accepts NULL */
/* sheaf__bpe_encode - a piece, never empty, with sheaf__emit(). `raw`: its bytes are those of the
 * user's text, each of which stands for its character of the byte-level alphabet. Words of few
 * bytes are remembered by the caller. */
sheaf_status *sheaf__bpe_encode(const sheaf__bpe_model *b, sheaf__work *work, const char *bytes,
                                size_t size, bool raw);
/* sheaf__bpe_cut - a piece that is not raw may be encoded in parts, of which this is the first: the
 * same ids. Its bytes, at least one character. `blanks`: each blank stands for a bar, U+2581. */
size_t sheaf__bpe_cut(const sheaf__bpe_model *b, const char *bytes, size_t size, bool blanks);

/* ---- the lists of steps ---- */

enum { SHEAF__NORMALIZER, SHEAF__PRE_TOKENIZER, SHEAF__DECODER, SHEAF__POST, SHEAF__LISTS };

/* sheaf__only_keys - refuses a key of r->object that is not "type" and not in `known`, a list with
 * blanks, unless its value is null. Kept as r->st. */
void sheaf__only_keys(sheaf_json_reader *r, const char *known);

/* ---- the whole ---- */

typedef struct sheaf__step {
    const sheaf__step_kind *kind;
    void *state;
} sheaf__step;

typedef struct sheaf__steps {
    sheaf__step *step;
    int64_t count, capacity;
} sheaf__steps;
/* sheaf__steps_close - all of them; the list is then empty. */
void sheaf__steps_close(sheaf__steps *steps);

/* The last that happens to a text before the model may be that blanks become bars, U+2581, as
 * sentencepiece has it (Kudo and Richardson 2018). Then it is done word by word (pieces.h). */
typedef struct sheaf__blanks {
    bool on;
    enum {
        SHEAF__BAR_ALWAYS,
        SHEAF__BAR_UNLESS_THERE,
        SHEAF__BAR_AT_START, /* as UNLESS_THERE, where the user's text begins */
        SHEAF__BAR_NEVER,
    } prepend;           /* one more, before each text between added tokens */
    bool split;          /* no token goes over a bar, but at its beginning */
    int64_t normalizers; /* steps before it; no pre-tokenizer is before or after */
} sheaf__blanks;

struct sheaf_tokenizer {
    sheaf__vocab vocab;
    sheaf__added added;
    sheaf__steps normalizer, pre_tokenizer, decoder, post;
    sheaf__bpe_model *model;
    sheaf__blanks blanks;
    bool raw_model;    /* it takes bytes of the byte-level alphabet as they are */
    bool needs_origin; /* some step reads where its piece came from */
    bool has_decoder;
    int32_t bos, eos;          /* -1: none */
    struct sheaf__works *pool; /* of sheaf__work that no thread uses now */
};

/* The "id" of an added token that has none in its file: that of the model's token, or the next one.
 */
enum { SHEAF__ID_GIVEN = SHEAF__ID_MAX + 1 };

/* sheaf__tokenizer_read - *out borrows the text; release out->parts also after a failure.
 * sheaf__tokenizer_build - what its parts are now. Without bos and eos. sheaf__tokenizer_parse -
 * both. */
sheaf_status *sheaf__tokenizer_read(sheaf__tokenizer_file *out, const char *text, size_t size);
sheaf_status *sheaf__tokenizer_build(sheaf__tokenizer **out, const sheaf__tokenizer_file *file);
sheaf_status *sheaf__tokenizer_parse(sheaf__tokenizer **out, const char *text, size_t size);
/* sheaf__tokenizer_around - these ids (-1: none) before and behind each text, and nothing else. */
sheaf_status *sheaf__tokenizer_around(sheaf__tokenizer *t, int32_t before, int32_t behind);
/* sheaf__normalize - one text through the normalizer alone, for added tokens; *out is malloc'd. */
sheaf_status *sheaf__normalize(char **out, size_t *size, const sheaf__tokenizer *t,
                               const char *text, size_t bytes);

struct sheaf__works *sheaf__works_new(void); /* NULL: no memory */
void sheaf__works_free(struct sheaf__works *pool);
