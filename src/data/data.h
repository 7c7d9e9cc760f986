/* data.h - a training or evaluation data set in memory, wholly checked.
 *
 * Three forms are read:
 *   .safetensors  input_ids, labels and optionally attention_mask and position_ids,
 *                 each [rows, length], int32 or int64; labels as in Hugging Face: not
 *                 shifted, -100 is ignored. For models with images also what
 *                 data_images.h lists
 *   records       for CogVLM and CogAgent: a folder of images, JSON Lines or a JSON array
 *                 (data/records.h). Images stay files, read again when they are needed
 *   texts         JSON Lines or a JSON array, also packed by gzip or zstd, or a folder of such
 *                 files: conversations, instructions, prompts and whole texts (text_record.h). For
 *                 a model whose vocabulary is bytes tokens are bos, the bytes and eos
 * Every record is checked before the first is used, and every image decoded; of the bad ones
 * the first 20 are named by line or entry and field, of a tensor the first by row. Nothing is
 * cut off unless `on_long` says so, which a warning counts, and no row has more positions
 * than --seq or, without it, than the model was made for.
 *
 * After sheaf_data_open() nothing that can be seen changes any more: all functions may be
 * called from many threads, so ranks of one process share one data set. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"
#include "base/events.h"
#include "schema/family.h"
#include "schema/config.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

typedef struct sheaf_data sheaf_data;

typedef struct sheaf_data_options {
    const sheaf_config *config; /* vocabulary and special tokens; borrowed for the call */
    int64_t seq;                /* positions of every batch; 0: as long as the longest row */
    const sheaf_events *events; /* notes on ignored fields, progress of the check; may be NULL */
    /* Of records; texts may be NULL or empty. */
    const char *folder;          /* of the model, where tokenizer.model is looked for */
    const char *tokenizer;       /* another file (of texts: or folder) */
    const char *prompt_template; /* by name; none: the config's text_processor_version, else base;
                                    of texts: the one that the tokenizer stores */
    bool of_run;           /* a run's settings name the template, no flag does: then it is held to
                              the program that the tokenizer stores, where that is it */
    const char *date;      /* that a chat template writes, as of its set_date(); none: its own */
    const char *query;     /* asked of every image of a folder; none: "CAPTCHA:" */
    sheaf_loss_on loss_on; /* of texts, as the next two */
    sheaf_on_long on_long;
    sheaf_on_bad on_bad; /* of records of every kind */
    const char *fields;  /* their fields by other names: fields.h; NULL or empty: none */
    /* Folder in which tokenised texts are kept and found again (row_cache.h); NULL or empty: none
     * is asked for. `cache_beside`: the one for large data, where none is; NULL: they stay in
     * memory. */
    const char *cache, *cache_beside;
    bool specials;          /* special tokens written in a text are tokens, not text */
    bool pack;              /* they will be packed (pack.c): what cannot be is refused */
    bool by_length;         /* micro-batches of rows of like length: order.c */
    int64_t micro_batch;    /* rows that are used together; images are held for a few such groups */
    int threads;            /* that may decode images at once; 0: every core of this process */
    const atomic_int *stop; /* not 0: no further image is checked, SHEAF_E_STOPPED; may be NULL */
    bool prompts; /* rows are prompts: none needs a label, and no file of tokens the tensor */
} sheaf_data_options;

/* sheaf_data_open - errors: SHEAF_E_IO, SHEAF_E_FORMAT (not safetensors), SHEAF_E_DATA for
 * a bad record (line and field, or tensor, row and position), SHEAF_E_UNSUPPORTED for JSON
 * Lines with a model that needs a tokenizer and has none, SHEAF_E_ARG for a --seq that no image
 * fits into, SHEAF_E_STOPPED, SHEAF_E_MEMORY. *out untouched on failure. */
sheaf_status *sheaf_data_open(sheaf_data **out, const char *path,
                              const sheaf_data_options *options);
/* sheaf_data_synthetic - rows of made-up tokens that are all learned, with an image in each where
 * the model reads them; seq must leave room for it. Files are not touched. Errors: SHEAF_E_MEMORY.
 */
sheaf_status *sheaf_data_synthetic(sheaf_data **out, const sheaf_config *config, int64_t rows,
                                   int64_t seq);
void sheaf_data_close(sheaf_data *data);

int64_t sheaf_data_rows(const sheaf_data *data);
/* sheaf_data_memory - bytes the data set holds. */
int64_t sheaf_data_memory(const sheaf_data *data);
int64_t sheaf_data_seq(const sheaf_data *data); /* --seq, or the length of the longest row, a file's
                                                   own padding included */
/* sheaf_data_used - positions of the longest of n rows (-1: an empty one) up to the last that is
 * seen, has a label or is an image's; at least 1. What stands behind is padding and changes
 * nothing. */
int64_t sheaf_data_used(const sheaf_data *data, const int64_t *row, int64_t n);
int64_t sheaf_data_longest(const sheaf_data *data); /* the same of all rows */
/* sheaf_data_has_token - is a token of this id anywhere where it is seen or has a label? The rows
 * may not be packed. Errors: those of reading them. */
sheaf_status *sheaf_data_has_token(bool *out, const sheaf_data *data, int64_t id);
/* sheaf_data_is_packed - do records share a row, without seeing each other and with positions that
 * restart? So it is in what sheaf_data_pack() made, where a "row" is such a packed one, and in rows
 * of a file whose position_ids restart. NULL: no. */
bool sheaf_data_is_packed(const sheaf_data *data);
/* sheaf_data_template - the prompt template that its texts were put in, given or chosen; NULL where
 * none is used. */
const char *sheaf_data_template(const sheaf_data *data);
/* sheaf_data_note_unused - notes of words that were given and change nothing: a template or a date
 * where no text is put in a template, a query where no folder of images is asked. Not errors: a
 * recipe may name both for whatever data it is used with. data   as opened; NULL where only the
 * query is at stake path   of the data; NULL: there are none words  NULL or empty: not given */
void sheaf_data_note_unused(const sheaf_data *data, const char *path, const char *prompt_template,
                            const char *date, const char *query, const sheaf_events *events);
/* sheaf_data_hash - XXH3-128 of the decoded content as 32 hex digits: the same tokens,
 * labels and masks (a file's own padding included) in the same order, whatever the file's
 * form or name. */
const char *sheaf_data_hash(const sheaf_data *data);

/* sheaf_data_sample_of - the row behind global sample number `index` (0, 1, ... over all epochs),
 * where the rows row[0..rows) take part; NULL: all. The number, not the row, is the counter of
 * dropout and of progress. Each epoch visits every row once: in file order, or permuted by (seed,
 * epoch). */
int64_t sheaf_data_sample_of(const sheaf_data *data, const int64_t *row, int64_t rows,
                             int64_t index, uint64_t seed, bool shuffle);

typedef struct sheaf_data_order {
    int64_t micro_batch,
        samples; /* samples that will be used; 0, or more than there are: an epoch */
    uint64_t seed;
    bool shuffle;
    int64_t seq;        /* positions of every row; 0: the longest of its micro-batch has */
    const int64_t *row; /* [rows] the rows that take part; NULL: all */
    int64_t rows;
} sheaf_data_order;

/* What a row has of one record: all of it, one position after the other. */
typedef struct sheaf_data_part {
    int64_t positions; /* that it uses */
    int64_t tokens;    /* of them, those with mask 1 */
    int64_t sample;    /* its number in the whole run, the counter of dropout and noise. Of a packed
                          record the one that it has, by the same seed, where nothing is packed or
                          sorted by length */
} sheaf_data_part;

/* sheaf_data_parts - the records of a row: one, or those that are packed in it. */
int64_t sheaf_data_parts(const sheaf_data *data, int64_t row);
/* sheaf_data_part_of - the i-th of them, where the row is behind global sample number `index`. */
sheaf_data_part sheaf_data_part_of(const sheaf_data *data, int64_t row, int64_t i, int64_t index,
                                   uint64_t seed, bool shuffle);

/* sheaf_data_padding - which share of the positions of micro-batches is padding, from 0 to 1. */
double sheaf_data_padding(const sheaf_data *data, const sheaf_data_order *order);

/* sheaf_data_labels - positions with a label, after the shift, in `n` rows together;
 * the divisor of a step's loss. A row of -1 counts none. */
int64_t sheaf_data_labels(const sheaf_data *data, const int64_t *row, int64_t n);
/* sheaf_data_tokens - positions with mask 1 in `n` rows together; for throughput. */
int64_t sheaf_data_tokens(const sheaf_data *data, const int64_t *row, int64_t n);

/* Dense [n, seq] arrays of the caller; any may be NULL to leave it out. */
typedef struct sheaf_batch {
    int32_t *tokens;
    int32_t *labels; /* of position t: token t + 1, or SHEAF__IGNORED */
    /* 0, 1, ... in every row, padding included, where the data say nothing else */
    int32_t *position;
    uint8_t *mask; /* 1 = may be attended to */
    /* Of models with images; "rows" are positions of the whole batch, 0 .. n * seq - 1,
     * ascending. */
    int32_t *image_row; /* [images * (patches + 2)] rows that hold BOI, patches and EOI */
    int32_t *stream[2]; /* [n * seq - image_rows], [image_rows] rows of the text and of the image
                           stream */
    sheaf__picture *picture; /* [images] of the towers' sizes; their pixels are the caller's */
    /* Of ragged towers: numbers behind the first picture's pixels, which all images share; their
     * sizes are set with the pixels. */
    int64_t room[SHEAF__MOST_TOWERS];
    /* A file's own padding at the end of a row is seen (mask 1), where the family's program masks
     * none: its logits are then as recorded. Nothing before it changes. */
    bool whole;
    int64_t seq; /* positions of each row, at least sheaf_data_used(); 0: sheaf_data_seq() */
    /* Of packed rows: *segments, and where each begins among the n * seq positions, with their end
     * [*segments + 1]; space for n * seq + 1. The padding of a row is a segment too. */
    int64_t *segment, *segments;
} sheaf_batch;

/* What a batch holds of images, and how long its rows are. */
typedef struct sheaf_batch_images {
    int64_t images;
    int64_t patches[SHEAF__MOST_TOWERS]; /* of all of them, by tower */
    int64_t image_rows;                  /* positions that use the visual experts */
    int64_t seq;                         /* sheaf_data_used() of its rows */
    int64_t read;                        /* sheaf_data_read_most(); 0: not asked */
} sheaf_batch_images;

/* sheaf_data_images - of rows `row[0..n)`; no images of a model without. */
sheaf_batch_images sheaf_data_images(const sheaf_data *data, const int64_t *row, int64_t n);
/* sheaf_data_announce - these rows are needed next, in this order: their images may be decoded by
 * now when sheaf_data_pixels() asks. What was announced before and is not begun is forgotten.
 * Changes no result. */
void sheaf_data_announce(const sheaf_data *data, const int64_t *row, int64_t n);
/* sheaf_data_images_range - the fewest and the most images that `n` samples one after another hold,
 * in any order of rows, as if each row with images had as many, as many patches and rows of experts
 * as the one with fewest and with most; seq that of the longest row that can be among them. */
void sheaf_data_images_range(sheaf_batch_images *fewest, sheaf_batch_images *most,
                             const sheaf_data *data, int64_t n);
enum { SHEAF_DATA_READ_UNIT = 32 };
/* sheaf_data_read_most - of a micro-batch of `n` samples, in any order of the `rows` rows that take
 * part: the most positions that lie in one unit of SHEAF_DATA_READ_UNIT positions of it with one
 * that has a label. INT64_MAX where that is not known: of packed rows, and of those in files. */
int64_t sheaf_data_read_most(const sheaf_data *data, int64_t n, int64_t rows);
/* sheaf_data_images_room - the most images and patches that n rows can hold, whichever they are;
 * data NULL: an image of the towers' own size in each. */
void sheaf_data_images_room(sheaf_batch_images *out, const sheaf_data *data,
                            const sheaf_config *config, int64_t n);
/* sheaf_data_labels_images - does any position that uses the visual experts predict a label? NULL:
 * no. */
bool sheaf_data_labels_images(const sheaf_data *data);
/* sheaf_data_pixels - the images of those rows, in order of their places, over the pixels of
 * batch->picture; reads and decodes files. Errors: SHEAF_E_ARG (room of another size), SHEAF_E_IO,
 * SHEAF_E_DATA (a file that changed since the data set was checked). */
sheaf_status *sheaf_data_pixels(const sheaf_batch *batch, const sheaf_data *data,
                                const int64_t *row, int64_t n);
/* sheaf_data_row_sizes - those of the first n images of a row, into out[0..n), without pixels. */
void sheaf_data_row_sizes(sheaf__picture *out, int64_t n, const sheaf_data *data, int64_t row);
/* sheaf_data_row_pixels - these images over the pixels of picture[0..n), which have their sizes.
 * Errors: those of sheaf_data_pixels(), SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_row_pixels(const sheaf__picture *picture, int64_t n,
                                    const sheaf_data *data, int64_t row);
/* sheaf_data_batch - all but the pixels: rows `row[0..n)`, right padded to batch->seq with the pad
 * token (or 0), mask 0 and no label. A row of -1 is all padding, to fill a last batch. Errors, of
 * data that read files alone: SHEAF_E_IO, SHEAF_E_FORMAT for a cache that was changed meanwhile,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_batch(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                               int64_t n);
/* sheaf_data_reads_files - do batches read tokens from a cache, so that a rank may fail alone?
 * NULL: no. */
bool sheaf_data_reads_files(const sheaf_data *data);

/* ---- rows that share a row of a batch (pack.c) ---- */

/* sheaf_data_pack - the rows row[0..rows) of a data set that was opened with `pack`, as packed rows
 * of at most its --seq positions: a data set that reads `of`, and is closed before it.
 *   row  ascending; NULL: all
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_pack(sheaf_data **out, const sheaf_data *of, const int64_t *row,
                              int64_t rows);
