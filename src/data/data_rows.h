/* data_rows.h - private: the layout of a data set in memory, shared by its readers. */
#pragma once

#include "data/data.h"

enum { SHEAF__NO_LABEL = -100 }; /* Hugging Face's ignore_index, in files */

/* Several data sets as one (data_sets.h): row r of set p is row begin[p] + r of all. */
enum { SHEAF__MOST_SETS = 64 };
typedef struct sheaf__data_sets {
    int count;
    sheaf_data *set[SHEAF__MOST_SETS]; /* owned */
    char *path[SHEAF__MOST_SETS];      /* owned: what messages name it by */
    int64_t begin[SHEAF__MOST_SETS + 1];
    bool weighted;
    double end_of_share[SHEAF__MOST_SETS]; /* of an epoch's samples, ascending to 1; with weights */
} sheaf__data_sets;

/* sheaf__share_end - the same of an epoch of n samples. */
static inline int64_t sheaf__share_end(const sheaf__data_sets *sets, int set, int64_t n)
{
    return (int64_t)(sets->end_of_share[set] * (double)n + 0.5);
}

/* Of `trained`: an answer ended before this token, which the template marks by none. */
enum { SHEAF__END_HERE = 2 };

/* The positions of a row's answer. */
typedef struct sheaf__answer {
    int32_t begin, end;
} sheaf__answer;

/* Row r has tokens [begin[r], begin[r + 1]). Labels are not shifted here. */
struct sheaf_data {
    /* Not NULL: what has a place for each token, row or image is NULL here: it is that of
     * sheaf__data_set_of() */
    sheaf__data_sets *sets;
    int64_t rows, capacity; /* rows used and allocated */
    float *mark; /* [capacity] of judged answers 1: desirable; of pairs their margin; NULL: none */
    float *reference;      /* [rows] of pairs: S of their reference; NULL: the file has none */
    sheaf__answer *answer; /* [rows] of judged rows */
    sheaf_data_rollout *rollout; /* [capacity], their logps owned; NULL: none */
    bool scores;     /* see sheaf_data_options; the label 0 is that of position used[r] - 1 */
    int64_t ignored; /* of these: the id of tokens at the end that have no score; -1: none */
    bool repeats;    /* a row may come several times in an epoch */
    bool pairs;      /* rows 2 i and 2 i + 1 are the two sides of sample i */
    int64_t tokens, token_capacity;
    int64_t *begin; /* [capacity + 1] */
    int32_t *token;
    int32_t *label;         /* [tokens]; NULL: the token itself where `trained` is 1 */
    int32_t *label_after;   /* [rows] the label that the last position predicts; NULL: none */
    uint8_t *mask;          /* [tokens]; NULL: all 1 */
    bool pads_seen;         /* see sheaf_batch.whole */
    uint8_t *trained;       /* [tokens], only without `label`; NULL: 1 from trained_from[row] on */
    int32_t end;            /* the label where `trained` is SHEAF__END_HERE */
    int32_t *trained_from;  /* [capacity] */
    int32_t *labels, *seen; /* [rows] labels after the shift; positions with mask 1 */
    int32_t *used;     /* [rows] length up to the last position with mask 1, a label or an image */
    int32_t *read;     /* [rows] as sheaf_data_read_most() counts them */
    int64_t longest;   /* of `used` */
    int32_t *position; /* [tokens]; NULL: 0, 1, ... */
    bool joined; /* a row may hold several records: one begins wherever `position` does not increase
                    by one. Then `mask` is NULL */
    struct sheaf__data_images *images; /* NULL: the model reads none */
    int64_t seq;
    int64_t vocab, pad;
    char hash[33];
    const char *prompt_template; /* NULL: none was used */
    /* token and trained are read from files (row_cache.h), and `seen` and `used` are NULL: all of a
     * row. NULL: they are in memory. */
    struct sheaf__row_files *files;
    /* Rows that share one row of a batch (pack.c): [pack_begin[p], pack_begin[p + 1]) of pack_row
     * and, beside each, its place among the `members` rows that take part. packs 0: not packed, and
     * a "row" of data.h is one of these; else all other members are another data set's */
    int64_t packs, members;
    int64_t *pack_begin, *pack_row, *pack_place;
    int64_t *pack_set;          /* with weights: [count + 1] packed rows of each set; else NULL */
    int64_t group, micro_batch; /* of order.c: rows that are sorted together; 0: no sorting */
};

/* sheaf__data_set_of - the data set that a row was read into, with its number there. */
static inline const sheaf_data *sheaf__data_set_of(const sheaf_data *data, int64_t *row)
{
    const sheaf__data_sets *m = data->sets;
    int p = 0;
    if (m == NULL)
        return data;
    while (*row >= m->begin[p + 1])
        p++;
    *row -= m->begin[p];
    return m->set[p];
}

/* The tokens of a row, in memory or read from a file. */
typedef struct sheaf__data_row {
    const sheaf_data *data;
    int64_t number;
    const int32_t *token;
    const uint8_t *trained; /* NULL: from trained_from on, or as `label` says */
    void *owned;
} sheaf__data_row;

/* sheaf__data_row_open - of several data sets it is a row of its own. Release also after a failure.
 * Errors: those of sheaf__row_cache_read(); none of data in memory. */
sheaf_status *sheaf__data_row_open(sheaf__data_row *out, const sheaf_data *data, int64_t row);
void sheaf__data_row_release(sheaf__data_row *row);

static inline int32_t sheaf__data_label_at(const sheaf__data_row *row, int64_t position)
{
    const sheaf_data *data = row->data;
    if (data->label != NULL)
        return data->label[data->begin[row->number] + position];
    const uint8_t trained =
        row->trained != NULL ? row->trained[position] : position >= data->trained_from[row->number];
    return trained == SHEAF__END_HERE ? data->end
           : trained                  ? row->token[position]
                                      : SHEAF__NO_LABEL;
}

/* sheaf__data_target_at - the label that position `position` of a row predicts: that of the next
 * position. */
static inline int32_t sheaf__data_target_at(const sheaf__data_row *row, int64_t position)
{
    const sheaf_data *data = row->data;
    if (data->scores)
        return position + 1 == data->used[row->number] ? 0 : SHEAF__NO_LABEL;
    const int64_t length = data->begin[row->number + 1] - data->begin[row->number];
    if (position + 1 < length)
        return sheaf__data_label_at(row, position + 1);
    return data->label_after == NULL ? SHEAF__NO_LABEL : data->label_after[row->number];
}

static inline uint8_t sheaf__data_mask_at(const sheaf_data *data, int64_t row, int64_t position)
{
    return data->mask == NULL ? 1 : data->mask[data->begin[row] + position];
}

static inline int64_t sheaf__data_row_length(const sheaf_data *data, int64_t row)
{
    return data->begin[row + 1] - data->begin[row];
}
/* sheaf__data_used_by - used positions of a row. */
static inline int64_t sheaf__data_used_by(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->used == NULL ? data->begin[row + 1] - data->begin[row] : data->used[row];
}
/* sheaf__data_stopped - was the reader asked to stop? */
static inline bool sheaf__data_stopped(const sheaf_data_options *options)
{
    return options->stop != NULL && atomic_load(options->stop) != 0;
}
/* sheaf__data_limit - the most positions a row may have: --seq, or without it the model's limit. */
int64_t sheaf__data_limit(const sheaf_data_options *options);
/* SHEAF_E_DATA for rows beyond the limit. `unit` is "line", "entry", "record" or "row" (from 1);
 * texts: --on-long applies to them. */
sheaf_status *sheaf__data_too_long(const sheaf_data_options *options, int64_t count,
                                   const char *unit, int64_t first, int64_t first_tokens,
                                   int64_t longest, bool texts);
sheaf_status *sheaf__data_no_memory(int64_t tokens);
/* sheaf__data_reserve - room for one more row and `tokens` more tokens in begin, token and the
 * arrays that `with` names (LABEL: label_after too); of a model with images also embed and
 * expert. */
enum {
    SHEAF__WITH_LABEL = 1,
    SHEAF__WITH_TRAINED = 2,
    SHEAF__WITH_POSITION = 4,
    SHEAF__WITH_MARK = 8
};
sheaf_status *sheaf__data_reserve(sheaf_data *data, int64_t tokens, unsigned with);

/* ---- the readers, one for each form of data set ---- */

/* Each puts `path` before its own errors. */
sheaf_status *sheaf__data_read_text(sheaf_data *data, const char *path,
                                    const sheaf_data_options *options);
sheaf_status *sheaf__data_read_safetensors(sheaf_data *data, const char *path,
                                           const sheaf_data_options *options);
sheaf_status *sheaf__data_read_records(sheaf_data *data, const char *path,
                                       const sheaf_data_options *options);
/* sheaf__data_count - fills the counts of each row; refuses a data set without labels, except for
 * prompts. */
sheaf_status *sheaf__data_count(sheaf_data *data, bool prompts);

/* sheaf__data_hash - sheaf_data_hash(), of all rows. */
sheaf_status *sheaf__data_hash(sheaf_data *data);

/* ---- the order of rows (order.c) ---- */

/* An epoch visits every row once, in the order of the file or permuted by (seed, epoch). With
 * `by_length` the rows of that order are taken in groups of some tens of micro-batches; within a
 * group they are sorted, longest first (of equals the one that comes first in the data), cut into
 * micro-batches, and these are permuted by (seed, epoch, group): so a micro-batch has rows of
 * similar length, and the lengths of steps still vary at random. */
enum { SHEAF__GROUP_MOST = 1024 }; /* rows */

/* sheaf__data_group - rows that are sorted together: a multiple of the micro-batch, or 0 where the
 * micro-batch is too large. */
int64_t sheaf__data_group(int64_t micro_batch);
