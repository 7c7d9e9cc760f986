/* origin.h - what a run began from: all of the base model, and the adapter it started with. A
 * checkpoint holds it, so that a run never goes on, and is never used, on another base.
 *
 *   weights         fingerprint of the base's tensors, every byte of them (models/hashed.h)
 *   config          sheaf__config_text()
 *   tokenizer       XXH3-128 of the sentencepiece file, given or in the model's folder; "" where
 *                   there is none
 *   adapter         fingerprint of all tensors of the adapter; "" without one
 *   adapter_config  what its adapter_config.json says
 *
 * OUT/run.json keeps it too, beside the fingerprint of each tensor, by which the one that differs
 * can be named, and each file's device, inode, size and times: while these are the same, the files
 * are not hashed again. */
#pragma once

#include <jansson.h>

#include "models/open.h"

enum { SHEAF__ORIGIN_VERSION = 1 };

typedef struct sheaf__origin {
    const sheaf__opened *opened; /* borrowed */
    char first_and_last[33];     /* sheaf__fingerprint() */
    char weights[33];            /* "" until it is known */
    char tokenizer[33], adapter[33];
    char *adapter_config;
    sheaf__hashed *adapter_print;
    json_t *known; /* what OUT/run.json keeps; NULL */
    char **stamp;  /* [opened->nfiles] of the files before they were read */
    int64_t began; /* nanoseconds of the clock, then */
} sheaf__origin;

typedef struct sheaf__origin_from {
    const char *model;     /* folder of the base */
    const char *tokenizer; /* another than the one in it; NULL or empty: none */
    const char *out;       /* of the run; NULL: there is none yet */
} sheaf__origin_from;

/* sheaf__origin_begin - all but the weights, and these where the files are those that were hashed
 * before; else opened->hashed (sheaf__open_options.hashed) hashes what is read from here on.
 * Release also after a failure. */
sheaf_status *sheaf__origin_begin(sheaf__origin *out, const sheaf__opened *opened,
                                  const sheaf__origin_from *from);
/* sheaf__origin_end - the weights, once all is hashed (sheaf__hashed_rest() on every rank, or
 * sheaf__hashed_all()). */
sheaf_status *sheaf__origin_end(sheaf__origin *origin);
void sheaf__origin_release(sheaf__origin *origin);

/* sheaf__origin_text - for a checkpoint: a JSON object. sheaf__origin_record - for run.json: one
 * with more in it. */
sheaf_status *sheaf__origin_text(char **out, const sheaf__origin *origin);
sheaf_status *sheaf__origin_record(char **out, const sheaf__origin *origin);

/* sheaf__origin_weights - the fingerprint of the base's tensors in the progress of a checkpoint; ""
 * of one without. Errors: of text that is no JSON. */
sheaf_status *sheaf__origin_weights(char out[33], const char *progress);

/* What a message says: "WHAT: tensor 'x'", expected "..., BEGAN", try CURE. */
typedef struct sheaf__origin_words {
    sheaf_code code;
    const char *what, *began, *cure;
    bool base_only; /* the adapter that the run started with is not asked for */
} sheaf__origin_words;

/* sheaf__origin_check - is it what a run began from?
 *   progress  of its checkpoint; NULL: none was saved yet, what run.json keeps counts
 * Errors: words->code, naming what differs: the key of the config, the tensor as far as run.json
 * tells; SHEAF_E_UNSUPPORTED for a later version. */
sheaf_status *sheaf__origin_check(const sheaf__origin *origin, const json_t *progress,
                                  const sheaf__origin_words *words);

/* ---- two texts of lines "key: value", of which each key stands once: what differs? ---- */

/* The first line that differs, and how many more do. Its texts end at a line
 * feed, or with the text. */
typedef struct sheaf__line_change {
    const char *line;     /* begins with the key */
    size_t key;           /* bytes of that */
    const char *was, *is; /* the values; NULL: no such line */
    int64_t more;
} sheaf__line_change;

/* sheaf__lines_differ - false: they say the same, in whatever order. separator: behind a key. */
bool sheaf__lines_differ(sheaf__line_change *out, const char *was, const char *is, char separator);
/* sheaf__line_size - bytes of a value; 0 of NULL. */
int sheaf__line_size(const char *value);
/* sheaf__line_value - the value as a text of its own, cut where it is long; "none" for NULL.
 * Returns out. */
enum { SHEAF__LINE_VALUE = 200 };
const char *sheaf__line_value(char out[SHEAF__LINE_VALUE], const char *value);
