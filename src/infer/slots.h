/* slots.h - sequences that are answered side by side and join and leave between two passes, each in
 * its own place of one cache of keys and values.
 *
 * A pass reads rows of one sequence, or gives some of them one more token each. A row's bits do not
 * depend on the others (generate.h), so every answer is the one that sheaf__generate() gives, in
 * whatever company its tokens were computed. */
#pragma once

#include "infer/batch_images.h"
#include "infer/next_token.h"

/* One of them; the same for all ranks, and changed only between passes but for what the first rank
 * fills. */
typedef struct sheaf__sequence {
    const sheaf__prompt *prompt;
    const sheaf__generate_options *options; /* batch, caches, divided and stop_now are not read */
    sheaf__continuation *out;               /* the first rank's */
    int64_t place;                          /* in the cache */
    int64_t read;                           /* its first rows that are cached */
    bool over;                              /* the first rank's: the answer has ended */
    sheaf_status *failed;                   /* the first rank's: it has no next token; then over */
} sheaf__sequence;

typedef struct sheaf__slots_line sheaf__slots_line;

/* One rank's. */
typedef struct sheaf__slots {
    int64_t places, length; /* of the cache: sequences, and positions of each */
    sheaf__model *model;    /* borrowed: the one that owns the memory */
    sheaf__kv_cache kv_cache;
    sheaf__batch_rows row;
    sheaf__batch_images image;
    sheaf__chooser chooser;
    sheaf__slots_line *line; /* [lines], two of each model */
    int lines;
} sheaf__slots;

/* sheaf__slots_open - for models [lines] that share the cache of the first one: its base with
 * several adapters. Close also after a failure. */
sheaf_status *sheaf__slots_open(sheaf__slots *out, sheaf__model *const *model, int lines,
                                int64_t places, int64_t length);
void sheaf__slots_close(sheaf__slots *slots);

/* sheaf__slots_known - rows of prompt and answer so far: all but the last of an answer that has
 * begun are, or were, inputs. */
int64_t sheaf__slots_known(const sheaf__sequence *sequence);
/* sheaf__slots_rows - how many rows a pass may read of it at once, at most `most` where that is
 * possible: pictures are read together, as is everything where angles follow the length. */
int64_t sheaf__slots_rows(const sheaf_config *config, const sheaf__sequence *sequence,
                          int64_t most);
/* sheaf__slots_reads_again - does its next token change the angles of all before it, so that its
 * rows must be read again from the first? */
bool sheaf__slots_reads_again(const sheaf_config *config, const sheaf__sequence *sequence);

/* sheaf__slots_check - errors: SHEAF_E_DATA for pictures that the model does not take. */
sheaf_status *sheaf__slots_check(const sheaf__model *model, const sheaf__sequence *sequence);
/* sheaf__slots_read - collective: reads the next `rows` of a sequence with model `line`; with the
 * last that is known its next token is chosen. The caller then counts them in sequence->read. */
sheaf_status *sheaf__slots_read(sheaf__slots *slots, int line, sheaf__sequence *sequence,
                                int64_t rows);
/* sheaf__slots_next - collective: reads the last token of each of n sequences, which alone of their
 * rows are not cached, and chooses the next. The caller then counts one row in each. */
sheaf_status *sheaf__slots_next(sheaf__slots *slots, int line, sheaf__sequence *const *sequence,
                                int64_t n);
