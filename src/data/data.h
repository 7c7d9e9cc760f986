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
 * Every record is checked before the first is used, and every image decoded; of the bad ones the
 * first 20 are named by line or entry and field, of a tensor the first by row. Nothing is truncated
 * unless `on_long` asks for it, which a warning counts; no row has more positions than --seq or,
 * without it, than the model's limit.
 *
 * A data set is immutable after sheaf_data_open(): all functions are thread-safe, so ranks of one
 * process share one. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"
#include "base/events.h"
#include "base/hash.h"
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
    bool of_run; /* the template's name is from a run's settings, not from a flag: the tokenizer's
                    own program is meant where it still has that name */
    const char *date;  /* for chat templates, as sheaf__chat_template_set_date() takes it; none: the
                          template's own */
    const char *query; /* the question for every image of a folder; none: "CAPTCHA:" */
    sheaf_loss_on loss_on; /* of texts, as the next two */
    sheaf_on_long on_long;
    sheaf_on_bad on_bad; /* of records of every kind */
    const char *fields;  /* their fields by other names: fields.h; NULL or empty: none */
    /* Folder that caches tokenised texts (row_cache.h); NULL or empty: none given. `cache_beside`:
     * the default for large data where none is given; NULL: they stay in memory. */
    const char *cache, *cache_beside;
    bool specials;          /* special tokens written in a text are tokens, not text */
    bool pack;              /* rows will be packed (pack.c): data that cannot be are refused */
    bool by_length;         /* micro-batches of rows of like length: order.c */
    int64_t micro_batch;    /* rows of a micro-batch; decoded images of a few of them are kept */
    int threads;            /* that decode images in parallel; 0: every core of this process */
    const atomic_int *stop; /* not 0: stop checking, SHEAF_E_STOPPED; may be NULL */
    bool weights;           /* several data sets may have weights: their rows are drawn by them */
    bool prompts;           /* rows are prompts: labels may be absent, from a file of tokens too */
    bool pairs;             /* samples are pairs of a chosen and a rejected answer */
    bool judged;            /* each record says whether its answer is desirable */
    bool rollouts;          /* rows are completions with rewards (rollout.h) */
    /* Of a reward model: a row has one label, behind its last token that is not the config's `pad`;
     * and pairs may have margins. */
    bool scores;
} sheaf_data_options;

/* The scores of a completion. */
typedef struct sheaf_data_rollout {
    double reward;     /* NaN: none */
    int64_t group;     /* the same number: of one prompt */
    bool ended;        /* not truncated */
    const float *logp; /* of each of its labels, when it was sampled; NULL: not known */
} sheaf_data_rollout;

/* sheaf_data_open - `path` may name several data sets, "a.jsonl:0.7,b.jsonl:0.3" (data_sets.h).
 * Errors: SHEAF_E_IO, SHEAF_E_FORMAT (not safetensors), SHEAF_E_DATA for a bad record (line and
 * field, or tensor, row and position), SHEAF_E_UNSUPPORTED for JSON Lines with a model that needs a
 * tokenizer and has none, SHEAF_E_ARG for a --seq that no image fits into, SHEAF_E_STOPPED,
 * SHEAF_E_MEMORY. *out untouched on failure. */
sheaf_status *sheaf_data_open(sheaf_data **out, const char *path,
                              const sheaf_data_options *options);
/* sheaf_data_synthetic - rows of synthetic tokens, all with a label, and an image in each where the
 * model reads images; seq must leave room for it. Reads no file. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_synthetic(sheaf_data **out, const sheaf_config *config, int64_t rows,
                                   int64_t seq);
/* A prompt of a run that samples its completions. */
typedef struct sheaf_data_prompt {
    const int32_t *ids, *position; /* [n]; position NULL: 0, 1, ... */
    int64_t n;
    const char *answer; /* what completions are compared with; NULL: none */
    const uint8_t *embed,
        *expert; /* [n] 1 at pictures, and where visual experts are used; or NULL */
    const sheaf__picture *picture; /* sizes of its pieces; NULL: the towers' own, or none */
    int64_t pictures;
    sheaf_hash hash; /* of the pictures */
} sheaf_data_prompt;

/* Reads the n pictures of a prompt over the pixels of picture[]; thread-safe. */
typedef struct sheaf_data_pictures {
    sheaf_status *(*load)(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n);
    void *self;
} sheaf_data_pictures;

/* sheaf_data_prompts - rows without labels, of prompts whose pictures stay the caller's; any may
 * come again at any time. judges: what judges completions, or NULL; part of the hash, as answers
 * are.
 * sheaf_data_rollouts - completions as lines of rollout.h with token ids, `each` of
 * prompt[0..count), which are rows of `prompts`: with their pictures. Errors: SHEAF_E_DATA,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_prompts(sheaf_data **out, const sheaf_config *config,
                                 const sheaf_data_prompt *prompt, int64_t rows, const char *judges,
                                 const sheaf_data_pictures *pictures);
sheaf_status *sheaf_data_rollouts(sheaf_data **out, const sheaf_config *config, const char *text,
                                  size_t size, const sheaf_data *prompts, const int64_t *prompt,
                                  int64_t count, int64_t each);
void sheaf_data_close(sheaf_data *data);

int64_t sheaf_data_rows(const sheaf_data *data);
/* sheaf_data_sides - rows of a sample: 2 where samples are pairs, the chosen answer's row and then
 * the rejected one's, else 1. NULL: 1. */
int sheaf_data_sides(const sheaf_data *data);
/* sheaf_data_desirable - of data that were opened with `judged`: is the answer of a row desirable?
 */
bool sheaf_data_desirable(const sheaf_data *data, int64_t row);
/* sheaf_data_rollout_of - of data that were opened with `rollouts`. */
sheaf_data_rollout sheaf_data_rollout_of(const sheaf_data *data, int64_t row);
/* sheaf_data_margin - of pairs that were opened with `scores`: the margin of a side's row; else 0.
 */
double sheaf_data_margin(const sheaf_data *data, int64_t row);
/* sheaf_data_reference - of pairs: S of a row by their reference, where the file has it. */
bool sheaf_data_reference(double *out, const sheaf_data *data, int64_t row);
/* sheaf_data_mixed - positions of the longest of n judged rows with the answers of others behind
 * their prompts; sheaf_data_mixed_most: of any with any answer. */
int64_t sheaf_data_mixed(const sheaf_data *data, const int64_t *row, const int64_t *other,
                         int64_t n);
int64_t sheaf_data_mixed_most(const sheaf_data *data);
/* sheaf_data_samples - how many samples the rows are. Of a subset of a data set, and in its order,
 * a "row" is the number of a sample. */
int64_t sheaf_data_samples(const sheaf_data *data);
/* sheaf_data_side - the row of one side of a sample. */
static inline int64_t sheaf_data_side(const sheaf_data *data, int64_t sample, int side)
{
    return sample * sheaf_data_sides(data) + side;
}
/* sheaf_data_memory - bytes the data set holds. */
int64_t sheaf_data_memory(const sheaf_data *data);
int64_t sheaf_data_seq(const sheaf_data *data); /* --seq, or the length of the longest row, a file's
                                                   own padding included */
/* sheaf_data_used - length of the longest of n rows (-1: an empty row) without trailing padding,
 * that is up to the last position with mask 1, a label or an image; at least 1. */
int64_t sheaf_data_used(const sheaf_data *data, const int64_t *row, int64_t n);
int64_t sheaf_data_longest(const sheaf_data *data); /* the same over all rows */
/* sheaf_data_is_packed - do several records share a row, without attention between them and with
 * positions that restart? True of sheaf_data_pack()'s result, whose rows are packed rows, and of a
 * file whose position_ids restart. NULL: no. */
bool sheaf_data_is_packed(const sheaf_data *data);
/* sheaf_data_template - the template that its texts were rendered with, given or by default; NULL
 * where none is used. */
const char *sheaf_data_template(const sheaf_data *data);
/* sheaf_data_note_unused - notes for settings without effect on these data: a template or a date
 * where nothing is rendered, a query where the data are no folder of images. Not errors, as a
 * recipe may set them for any data.
 *   data   as opened; NULL: only the query is checked
 *   path   of the data; NULL: there are none
 *   prompt_template, date, query   NULL or empty: not given */
void sheaf_data_note_unused(const sheaf_data *data, const char *path, const char *prompt_template,
                            const char *date, const char *query, const sheaf_events *events);
/* sheaf_data_hash - XXH3-128 of the decoded content as 32 hex digits: the same tokens,
 * labels and masks (a file's own padding included) in the same order, whatever the file's
 * form or name. */
const char *sheaf_data_hash(const sheaf_data *data);

/* sheaf_data_sample_of - the row behind global sample number `index` (0, 1, ... over all epochs),
 * among the rows row[0..rows) that take part; NULL: all. The number, not the row, is the counter of
 * dropout and of progress. Each epoch visits every row once: in file order, or permuted by (seed,
 * epoch); of data sets with weights as many samples, each set's its share: order.c. */
int64_t sheaf_data_sample_of(const sheaf_data *data, const int64_t *row, int64_t rows,
                             int64_t index, uint64_t seed, bool shuffle);

/* sheaf_data_check_shares - has each data set with a weight a row among these, and a sample of an
 * epoch? Errors: SHEAF_E_DATA. */
sheaf_status *sheaf_data_check_shares(const sheaf_data *data, const int64_t *row, int64_t rows);

typedef struct sheaf_data_order {
    int64_t micro_batch,
        samples; /* samples that will be used; 0, or more than there are: an epoch */
    uint64_t seed;
    bool shuffle;
    int64_t seq;        /* positions of every row; 0: the longest of its micro-batch has */
    const int64_t *row; /* [rows] the rows that take part; NULL: all */
    int64_t rows;
} sheaf_data_order;

/* One record of a row, at consecutive positions. */
typedef struct sheaf_data_part {
    int64_t positions; /* its length */
    int64_t tokens;    /* of them, those with mask 1 */
    int64_t sample;    /* its number in the whole run, the counter of dropout and noise. A packed
                          record has the number that it has with the same seed without packing and
                          sorting by length */
} sheaf_data_part;

/* sheaf_data_parts - the records of a row: one, or those that are packed in it. */
int64_t sheaf_data_parts(const sheaf_data *data, int64_t row);
/* sheaf_data_part_of - record i of the row that is global sample number `index`. */
sheaf_data_part sheaf_data_part_of(const sheaf_data *data, int64_t row, int64_t i, int64_t index,
                                   uint64_t seed, bool shuffle);

/* sheaf_data_padding - the share of padding among the positions of all micro-batches, from 0 to
 * 1. */
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
    /* 0, 1, ... in every row, padding included, unless the data have their own */
    int32_t *position;
    uint8_t *mask; /* 1 = may be attended to */
    /* Of models with images; "rows" are positions of the whole batch, 0 .. n * seq - 1,
     * ascending. */
    int32_t *image_row; /* [images * (patches + 2)] rows that hold BOI, patches and EOI */
    int32_t *stream[2]; /* [n * seq - image_rows], [image_rows] rows of the text and of the image
                           stream */
    sheaf__picture *picture; /* [images] of the towers' sizes; their pixels are the caller's */
    /* Of ragged towers: floats in the buffer that begins with the first picture's pixels and that
     * all images share; their sizes are set with the pixels. */
    int64_t room[SHEAF__MOST_TOWERS];
    /* A file's own padding at the end of a row gets mask 1, where the family's program masks none,
     * so that its logits equal the recorded ones. Nothing before it changes. */
    bool whole;
    int64_t seq; /* positions of each row, at least sheaf_data_used(); 0: sheaf_data_seq() */
    const int64_t *other; /* [n] rows whose answers stand behind the prompts; NULL: each its own */
    bool prompts_too;     /* prompts have labels as well, */
    uint8_t *answer;      /* and this gets 1 where the data have one */
    /* Positions with three axes are [3, axis_stride], padding 0; else 0 */
    int64_t axis_stride;
    /* Of packed rows: *segments, and where each begins among the n * seq positions, with their end
     * [*segments + 1]; space for n * seq + 1. The padding of a row is a segment too. */
    int64_t *segment, *segments;
} sheaf_batch;

/* Counts of a batch's images, and the length of its rows. */
typedef struct sheaf_batch_images {
    sheaf__picture_counts pictures;
    int64_t image_rows; /* positions that use the visual experts */
    int64_t seq;        /* sheaf_data_used() of its rows */
    int64_t read;       /* sheaf_data_read_most(); 0: not computed */
} sheaf_batch_images;

/* sheaf_data_images - of rows `row[0..n)`; no images of a model without. */
sheaf_batch_images sheaf_data_images(const sheaf_data *data, const int64_t *row, int64_t n);
/* sheaf_data_announce - these rows are needed next, in this order: their images are decoded ahead
 * of sheaf_data_pixels(). Replaces earlier announcements whose work has not begun. Changes no
 * result. */
void sheaf_data_announce(const sheaf_data *data, const int64_t *row, int64_t n);
/* sheaf_data_images_range - bounds on the images of `n` consecutive samples, whatever the order of
 * rows: as if every row with images had the images, patches and expert rows of the row with the
 * fewest or the most. seq is that of the longest row that can be among them. */
void sheaf_data_images_range(sheaf_batch_images *fewest, sheaf_batch_images *most,
                             const sheaf_data *data, int64_t n);
enum { SHEAF_DATA_READ_UNIT = 32 };
/* sheaf_data_read_most - an upper bound, whatever the order of the `rows` rows that take part, on
 * the positions of a micro-batch of `n` samples that share a unit of SHEAF_DATA_READ_UNIT positions
 * with a label. INT64_MAX where unknown: for packed rows and for rows in files. */
int64_t sheaf_data_read_most(const sheaf_data *data, int64_t n, int64_t rows);
/* sheaf_data_images_room - the most images and patches that n rows can hold, whichever they are. */
sheaf__picture_counts sheaf_data_images_room(const sheaf_data *data, const sheaf_config *config,
                                             int64_t n);
/* sheaf_data_labels_images - does any position that uses the visual experts predict a label? NULL:
 * no. */
bool sheaf_data_labels_images(const sheaf_data *data);
/* sheaf_data_pixels - the images of those rows, in order of their places, over the pixels of
 * batch->picture; reads and decodes files. Errors: SHEAF_E_ARG (room of another size), SHEAF_E_IO,
 * SHEAF_E_DATA (a file that changed since the data set was checked). */
sheaf_status *sheaf_data_pixels(const sheaf_batch *batch, const sheaf_data *data,
                                const int64_t *row, int64_t n);
/* sheaf_data_row_sizes - the sizes of the first n images of a row, without pixels. */
void sheaf_data_row_sizes(sheaf__picture *out, int64_t n, const sheaf_data *data, int64_t row);
/* sheaf_data_row_pixels - the pixels of these images into picture[0..n), whose sizes are set.
 * Errors: those of sheaf_data_pixels(), SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_row_pixels(const sheaf__picture *picture, int64_t n,
                                    const sheaf_data *data, int64_t row);
/* sheaf_data_batch - everything but the pixels: rows `row[0..n)`, right padded to batch->seq with
 * the pad token (or 0), mask 0 and no label. A row of -1 is all padding, to fill a last batch.
 * Errors, only for data in a cache: SHEAF_E_IO, SHEAF_E_FORMAT for a cache that was changed
 * meanwhile, SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_batch(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                               int64_t n);
/* sheaf_data_reads_files - do batches read tokens from a cache, so that a rank may fail alone?
 * NULL: no. */
bool sheaf_data_reads_files(const sheaf_data *data);

/* ---- rows that share a row of a batch (pack.c) ---- */

/* sheaf_data_pack - the rows row[0..rows) of a data set that was opened with `pack`, as packed rows
 * of at most its --seq positions. The result borrows `of`: close it first.
 *   row  ascending; NULL: all
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_data_pack(sheaf_data **out, const sheaf_data *of, const int64_t *row,
                              int64_t rows);
