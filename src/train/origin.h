/* origin.h - fingerprints of a run's base model and of the adapter it started with. A checkpoint
 * stores them, so that a run is never resumed or used with another base.
 *
 *   weights         fingerprint of the base's tensors, every byte of them (models/hashed.h)
 *   config          sheaf__config_text()
 *   tokenizer       XXH3-128 of the sentencepiece file, given or in the model's folder; "" where
 *                   there is none
 *   adapter         fingerprint of all tensors of the adapter; "" without one
 *   adapter_config  what its adapter_config.json says
 *   tokens          those that the run adds to the tokenizer; absent where it adds none
 *
 * OUT/run.json has them too, with the fingerprint of each tensor, to name the one that differs, and
 * each file's device, inode, size and times: while these are the same, the files are not hashed
 * again. */
#pragma once

#include <jansson.h>

#include "models/open.h"

enum { SHEAF__ORIGIN_VERSION = 1 };

typedef struct sheaf__origin {
    const sheaf__opened *opened; /* borrowed */
    char first_and_last[33];     /* sheaf__fingerprint() */
    char weights[33];            /* "" until known */
    char tokenizer[33], adapter[33];
    char *adapter_config;
    const char *tokens; /* borrowed; "": none */
    sheaf__hashed *adapter_print;
    json_t *known; /* content of OUT/run.json; or NULL */
    char **stamp;  /* [opened->nfiles] stamps of the files before they were read */
    int64_t began; /* nanoseconds of the clock, then */
} sheaf__origin;

typedef struct sheaf__origin_from {
    const char *model;     /* folder of the base */
    const char *tokenizer; /* if not the one in that folder; else NULL or empty */
    const char *tokens;    /* that the run adds to it (train/tokenizer.h); NULL: none */
    const char *out;       /* OUT of the run; NULL: none yet */
} sheaf__origin_from;

/* sheaf__origin_begin - computes all but the weights, and these if the files have not changed since
 * they were hashed; else opened->hashed (sheaf__open_options.hashed) hashes what is read from now
 * on. Release also after a failure. */
sheaf_status *sheaf__origin_begin(sheaf__origin *out, const sheaf__opened *opened,
                                  const sheaf__origin_from *from);
/* sheaf__origin_end - sets the weights once all is hashed (sheaf__hashed_rest() on every rank, or
 * sheaf__hashed_all()). */
sheaf_status *sheaf__origin_end(sheaf__origin *origin);
void sheaf__origin_release(sheaf__origin *origin);

/* sheaf__origin_text - for a checkpoint: a JSON object. sheaf__origin_record - for run.json: the
 * same with details. */
sheaf_status *sheaf__origin_text(char **out, const sheaf__origin *origin);
sheaf_status *sheaf__origin_record(char **out, const sheaf__origin *origin);

/* sheaf__origin_weights - the fingerprint of the base's tensors in the progress of a checkpoint; ""
 * if absent. Errors: text that is not JSON. */
sheaf_status *sheaf__origin_weights(char out[33], const char *progress);

/* The words of a message: "WHAT: tensor 'x'", expected "..., BEGAN", try CURE. */
typedef struct sheaf__origin_words {
    sheaf_code code;
    const char *what, *began, *cure;
    bool base_only; /* the adapter that the run started with is not checked */
} sheaf__origin_words;

/* sheaf__origin_check - does it match the run's origin?
 *   progress  of its checkpoint; NULL: none was saved yet, run.json decides
 * Errors: words->code, naming what differs: the key of the config, the tensor if run.json lists
 * tensors; SHEAF_E_UNSUPPORTED for another version. */
sheaf_status *sheaf__origin_check(const sheaf__origin *origin, const json_t *progress,
                                  const sheaf__origin_words *words);

/* ---- comparison of two texts of lines "key: value" with unique keys ---- */

/* The first different line, and the number of others. Its texts end at a line feed or NUL. */
typedef struct sheaf__line_change {
    const char *line;     /* starts with the key */
    size_t key;           /* bytes of the key */
    const char *was, *is; /* the values; NULL: no such line */
    int64_t more;
} sheaf__line_change;

/* sheaf__lines_differ - false: equal, in any order of lines. separator: follows a key. */
bool sheaf__lines_differ(sheaf__line_change *out, const char *was, const char *is, char separator);
/* sheaf__line_size - bytes of a value; 0 of NULL. */
int sheaf__line_size(const char *value);
/* sheaf__line_value - a copy of the value, truncated if long; "none" for NULL. Returns out. */
enum { SHEAF__LINE_VALUE = 200 };
const char *sheaf__line_value(char out[SHEAF__LINE_VALUE], const char *value);
