/* data.c - see data.h. What all forms share: counts, hash, checks. */
#include "base/base.h"
#include "data/row_cache.h"
#include "data/data.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/tokenizer.h"
#include "ops/kernels.h"
#include "data/data_images.h"
#include "data/data_rows.h"
#include "data/data_sets.h"

/* The largest position in use, from 1: patches of an image share one. */
static int64_t positions_of(const sheaf_data *data, int64_t row)
{
    const int64_t used = sheaf__data_used_by(data, row);
    int64_t most = data->position == NULL ? used : 0;
    for (int64_t t = 0; t < used && data->position != NULL; t++)
        if (data->position[data->begin[row] + t] >= most)
            most = data->position[data->begin[row] + t] + (int64_t)1;
    return most;
}

/* Rotary embeddings have no limit, so an explicit --seq may exceed the model's. */
static sheaf_status *check_positions(const sheaf_data *data, const sheaf_data_options *options)
{
    const int64_t made_for =
        options->config->max_position > 0 ? options->config->max_position : INT64_MAX;
    int64_t count = 0, first = 0, longest = 0;
    for (int64_t r = 0; r < data->rows; r++) {
        const int64_t n = positions_of(data, r);
        longest = n > longest ? n : longest;
        if (n > made_for && count++ == 0)
            first = r;
    }
    if (count > 0 && options->seq == 0)
        return sheaf__data_too_long(options, count, data->images == NULL ? "row" : "record",
                                    first + 1, positions_of(data, first), longest, false);
    if (count > 0)
        sheaf_warn(options->events,
                   "rows of up to %" PRId64 " positions, more than the model's %s of %" PRId64
                   ": rotary embeddings go on beyond it, but the model was not made for that",
                   longest, sheaf_config_position_key(options->config), made_for);
    return NULL;
}

/* ---- counts of one row ---- */

static bool in_image(const sheaf_data *data, int64_t row, int64_t position)
{
    const int64_t i = data->begin[row] + position;
    return data->images != NULL && (data->images->embed[i] || data->images->expert[i]);
}

/* The rest is a file's own padding, without attention and labels. */
static int64_t used_of(const sheaf_data *data, const sheaf__data_row *row)
{
    const int64_t number = row->number;
    int64_t n = sheaf__data_row_length(data, number);
    while (data->scores && n > 1 &&
           (sheaf__data_mask_at(data, number, n - 1) == 0 || row->token[n - 1] == data->ignored))
        n--;
    if (data->scores)
        return n;
    if (data->label_after != NULL && data->label_after[number] != SHEAF__NO_LABEL)
        return n;
    while (n > 1 && sheaf__data_mask_at(data, number, n - 1) == 0 &&
           sheaf__data_label_at(row, n - 1) == SHEAF__NO_LABEL && !in_image(data, number, n - 1))
        n--;
    return n;
}

/* Upper bound on the positions in units with a label, for any start of the row within a unit of
 * SHEAF_DATA_READ_UNIT positions: each run of labels, and the rest of the units at its ends. */
static int64_t read_of(const sheaf__data_row *row)
{
    enum { BESIDE = 2 * (SHEAF_DATA_READ_UNIT - 1) };
    const int64_t length = sheaf__data_row_length(row->data, row->number);
    int64_t n = 0, last = -1;
    for (int64_t t = 0; t < length; t++) {
        if (sheaf__data_target_at(row, t) == SHEAF__NO_LABEL)
            continue;
        n += last >= 0 && t - last <= BESIDE ? t - last : 1 + BESIDE;
        last = t;
    }
    return n;
}

/* From the first label that a position predicts to the last. */
static sheaf__answer answer_of(const sheaf__data_row *row)
{
    const int64_t length = sheaf__data_row_length(row->data, row->number);
    sheaf__answer out = { (int32_t)length, (int32_t)length };
    for (int64_t t = length - 1; t > 0; t--)
        if (sheaf__data_label_at(row, t) != SHEAF__NO_LABEL) {
            out.end = out.begin == length ? (int32_t)t + 1 : out.end;
            out.begin = (int32_t)t;
        }
    return out;
}

sheaf_status *sheaf__data_count(sheaf_data *data, bool prompts)
{
    if (data->files != NULL) { /* rows have no padding, and each has a label */
        for (int64_t r = 0; r < data->rows; r++)
            if (sheaf__data_row_length(data, r) > data->longest)
                data->longest = sheaf__data_row_length(data, r);
        return NULL;
    }
    data->labels = calloc((size_t)data->rows, sizeof *data->labels);
    data->seen = calloc((size_t)data->rows, sizeof *data->seen);
    data->used = calloc((size_t)data->rows, sizeof *data->used);
    data->read = calloc((size_t)data->rows, sizeof *data->read);
    data->answer = data->mark == NULL ? NULL : calloc((size_t)data->rows, sizeof *data->answer);
    if (data->labels == NULL || data->seen == NULL || data->used == NULL || data->read == NULL ||
        (data->mark != NULL && data->answer == NULL))
        return sheaf__data_no_memory(data->tokens);
    bool any = false;
    for (int64_t r = 0; r < data->rows; r++) {
        sheaf__data_row row;
        sheaf_status_free(sheaf__data_row_open(&row, data, r)); /* in memory */
        for (int64_t t = 0; t < sheaf__data_row_length(data, r); t++) {
            const bool labelled = t > 0 && sheaf__data_label_at(&row, t) != SHEAF__NO_LABEL;
            data->labels[r] += labelled;
            if (labelled && data->images != NULL && data->images->expert[data->begin[r] + t - 1])
                data->images->labelled = true;
            data->seen[r] += sheaf__data_mask_at(data, r, t);
        }
        data->labels[r] += data->label_after != NULL && data->label_after[r] != SHEAF__NO_LABEL;
        if (data->answer != NULL)
            data->answer[r] = answer_of(&row);
        data->used[r] = (int32_t)used_of(data, &row);
        data->labels[r] = data->scores ? 1 : data->labels[r];
        data->read[r] = (int32_t)read_of(&row);
        data->longest = data->used[r] > data->longest ? data->used[r] : data->longest;
        any |= data->labels[r] > 0;
    }
    if (any || prompts)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "the data set trains nothing");
    sheaf_expected(st, "at least one label that is not -100, not counting a row's first position");
    sheaf_found(st, "none in %" PRId64 " rows", data->rows);
    return sheaf_try_this(st, "check how the labels were made: position t is trained to predict "
                              "the label of position t + 1");
}

enum { HASHED = 1024 }; /* positions handed to the hash at a time */

/* Positions and images, where there are any: the hash of plain text stays as it was. */
static void hash_images(sheaf_hasher *hasher, const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    const int64_t begin = data->begin[row], n = sheaf__data_row_length(data, row);
    if (data->position != NULL)
        sheaf__hasher_add(hasher, data->position + begin, (size_t)n * sizeof *data->position);
    if (data->images == NULL)
        return;
    sheaf__hasher_add(hasher, data->images->embed + begin, (size_t)n);
    sheaf__hasher_add(hasher, data->images->expert + begin, (size_t)n);
    const sheaf_hash image = data->images->hash[row];
    sheaf__hasher_add(hasher, (const uint64_t[2]){ image.low, image.high }, 16);
}

/* Hashes lengths, tokens, labels and masks; explicit forms, so that the two file
 * forms of the same content agree. */
static sheaf_status *hash_row(sheaf_hasher *hasher, const sheaf_data *data, int64_t row)
{
    int32_t item[HASHED][3];
    data = sheaf__data_set_of(data, &row);
    const int64_t n = sheaf__data_row_length(data, row);
    sheaf__data_row of;
    sheaf_status *st = sheaf__data_row_open(&of, data, row);
    sheaf__hasher_add(hasher, &n, sizeof n);
    for (int64_t t = 0; t < n && st == NULL; t += HASHED) {
        const int64_t some = n - t < HASHED ? n - t : HASHED;
        for (int64_t i = 0; i < some; i++) {
            item[i][0] = of.token[t + i];
            item[i][1] = sheaf__data_label_at(&of, t + i);
            item[i][2] = sheaf__data_mask_at(data, row, t + i);
        }
        sheaf__hasher_add(hasher, item, (size_t)some * sizeof *item);
    }
    if (data->label_after != NULL && data->label_after[row] != SHEAF__NO_LABEL)
        sheaf__hasher_add(hasher, data->label_after + row, sizeof *data->label_after);
    if (data->mark != NULL)
        sheaf__hasher_add(hasher, data->mark + row, sizeof *data->mark);
    if (data->reference != NULL)
        sheaf__hasher_add(hasher, data->reference + row, sizeof *data->reference);
    if (data->rollout != NULL) {
        const sheaf_data_rollout *r = &data->rollout[row];
        sheaf__hasher_add(hasher, &r->reward, sizeof r->reward);
        sheaf__hasher_add(hasher, &r->group, sizeof r->group);
        sheaf__hasher_add(hasher, &r->ended, sizeof r->ended);
        if (r->logp != NULL)
            sheaf__hasher_add(hasher, r->logp, (size_t)data->labels[row] * sizeof *r->logp);
    }
    sheaf__data_row_release(&of);
    return st;
}

sheaf_status *sheaf__data_hash(sheaf_data *data)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    if (hasher == NULL)
        return sheaf__data_no_memory(data->tokens);
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < data->rows && st == NULL; r++) {
        st = hash_row(hasher, data, r);
        hash_images(hasher, data, r);
    }
    const sheaf__data_sets *m = data->sets;
    if (m != NULL && m->weighted) { /* they are part of what a run goes through */
        sheaf__hasher_add(hasher, m->begin, (size_t)(m->count + 1) * sizeof *m->begin);
        sheaf__hasher_add(hasher, m->end_of_share, (size_t)m->count * sizeof *m->end_of_share);
    }
    sheaf__hash_text(data->hash, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return st;
}

/* Rows with pictures and rows of tensors are not cached. */
static void note_unused_cache(const sheaf_data_options *o, const char *why)
{
    if (o->cache != NULL && o->cache[0] != '\0')
        sheaf_note(o->events, "`data-cache %s` has no effect: %s", o->cache, why);
}

/* Texts with pictures, or without. */
static sheaf_status *read_texts(sheaf_data *data, const char *path,
                                const sheaf_data_options *options)
{
    if (data->images != NULL)
        note_unused_cache(options, "records with pictures are read anew by every run");
    return data->images != NULL && sheaf__pictures_of(options->config) == NULL
               ? sheaf__data_read_records(data, path, options)
               : sheaf__data_read_text(data, path, options);
}

/* An unused tokenizer: it must be valid, and a note says that it has no effect. */
static sheaf_status *check_unused_tokenizer(const sheaf_data_options *o)
{
    sheaf__tokenizer *unused = NULL;
    if (o->tokenizer == NULL || o->tokenizer[0] == '\0')
        return NULL;
    sheaf_status *st = sheaf__family_for(o->config)->towers != NULL
                           ? sheaf__choose_tokenizer(&unused, o->tokenizer, NULL, o->config->vocab)
                           : sheaf__tokenizer_open(&unused, o->tokenizer);
    if (st == NULL)
        sheaf_note(o->events, "`tokenizer %s` has no effect: these data hold token ids",
                   o->tokenizer);
    sheaf__tokenizer_close(unused);
    return st;
}

static void warn_of_unlabelled(const sheaf_data *data, const char *path,
                               const sheaf_data_options *o)
{
    int64_t count = 0, first = 0;
    for (int64_t r = 0; r < data->rows && data->labels != NULL && !o->prompts; r++)
        if (data->labels[r] == 0 && count++ == 0)
            first = r + 1;
    if (count > 0)
        sheaf_warn(o->events,
                   "%s: %" PRId64 " of %" PRId64 " rows teach nothing, row %" PRId64
                   " the first: none of their tokens has a label that another one predicts",
                   path, count, data->rows, first);
}

/* Before reading, as pictures take a while. */
static sheaf_status *check_order(const sheaf_data *data, const sheaf_data_options *o)
{
    if ((!o->pack && !o->by_length) || data->images == NULL)
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, o->pack ? "`pack`" : "`group-by-length`"),
                       "texts or token ids of a model without a vision tower");
    sheaf_found(st, "one of family %s", sheaf_family_name(o->config->family));
    return sheaf_try_this(st, "leave it out: a micro-batch is padded to its own longest row");
}

/* Completions are rows of text. */
static sheaf_status *check_rollouts(const sheaf_data *data, const char *path,
                                    const sheaf_data_options *o)
{
    const bool tensors = sheaf__ends_with(path, ".safetensors");
    if (!o->rollouts || (data->images == NULL && !tensors))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path);
    sheaf_expected(st, "completions with rewards as JSON Lines, of a model that reads text alone");
    return tensors ? sheaf_found(st, "tensors")
                   : sheaf_found(st, "a model of family %s", sheaf_family_name(o->config->family));
}

/* A data set without rows. */
static sheaf_status *empty(sheaf_data **out, const sheaf_data_options *options)
{
    sheaf_data *data = *out = calloc(1, sizeof *data);
    if (data == NULL)
        return sheaf__data_no_memory(0);
    data->vocab = options->config->vocab;
    data->pad =
        options->config->pad >= 0 && options->config->pad < data->vocab ? options->config->pad : 0;
    data->seq = options->seq;
    data->pairs = options->pairs;
    data->scores = options->scores;
    data->ignored = options->config->pad;
    data->micro_batch = options->micro_batch;
    data->group = options->by_length && options->micro_batch > 0
                      ? sheaf__data_group(options->micro_batch)
                      : 0;
    return sheaf__data_images_new(&data->images, options->config);
}

/* *out is not NULL after most failures. */
static sheaf_status *open_one(sheaf_data **out, const char *path, const sheaf_data_options *options)
{
    sheaf_status *st = empty(out, options);
    sheaf_data *data = *out;
    TRY(st, check_order(data, options));
    TRY(st, check_rollouts(data, path, options));
    if (st == NULL && sheaf__ends_with(path, ".safetensors")) {
        note_unused_cache(options, "these data hold token ids");
        if (options->fields != NULL && options->fields[0] != '\0')
            sheaf_note(options->events, "`fields %s` has no effect: these data hold token ids",
                       options->fields);
        st = check_unused_tokenizer(options);
    }
    TRY(st, sheaf__ends_with(path, ".safetensors")
                ? sheaf__data_read_safetensors(data, path, options)
                : read_texts(data, path, options));
    TRY(st, sheaf_in(sheaf__data_images_check(data, options->config), "%s", path));
    TRY(st, sheaf_in(sheaf__data_count(data, options->prompts), "%s", path));
    TRY(st, sheaf_in(check_positions(data, options), "%s", path));
    if (st == NULL)
        warn_of_unlabelled(data, path, options);
    return st;
}

/* Takes the list's paths. */
static sheaf_status *open_several(sheaf_data **out, sheaf__data_list *list,
                                  const sheaf_data_options *options)
{
    sheaf_status *st = empty(out, options);
    if (st == NULL && ((*out)->sets = calloc(1, sizeof *(*out)->sets)) == NULL)
        st = sheaf__data_no_memory(0);
    for (int i = 0; i < list->count && st == NULL; i++) {
        sheaf__data_sets *m = (*out)->sets;
        m->path[i] = list->path[i];
        list->path[i] = NULL;
        m->count = i + 1;
        st = open_one(&m->set[i], m->path[i], options);
    }
    return TRY(st, sheaf__data_sets_join(*out, list));
}

sheaf_status *sheaf_data_open(sheaf_data **out, const char *path, const sheaf_data_options *options)
{
    if (options->seq < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`seq`"), "1 or more"),
                           "%" PRId64, options->seq);
    if (options->pack && options->seq == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`pack`"),
                              "`seq N` beside it, the length of packed rows");
    sheaf__data_list list;
    sheaf_data *data = NULL;
    sheaf_status *st = sheaf__data_list_read(&list, path, options->weights);
    if (st == NULL && list.weighted && options->rollouts)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "weight of %s", list.path[0]),
                                       "none: a group of completions is taken whole, and once"),
                        "%g", list.weight[0]),
            "leave the weights out");
    TRY(st, list.count == 1 ? open_one(&data, list.path[0], options)
                            : open_several(&data, &list, options));
    TRY(st, sheaf__data_hash(data));
    sheaf__data_list_release(&list);
    if (st == NULL)
        *out = data;
    else
        sheaf_data_close(data);
    return st;
}

void sheaf_data_close(sheaf_data *data)
{
    if (data == NULL)
        return;
    if (data->packs > 0) { /* the rest is another data set's */
        free(data->pack_begin);
        free(data->pack_row);
        free(data->pack_place);
        free(data->pack_set);
        free(data);
        return;
    }
    for (int p = 0; data->sets != NULL && p < data->sets->count; p++) {
        sheaf_data_close(data->sets->set[p]);
        free(data->sets->path[p]);
    }
    free(data->sets);
    for (int64_t r = 0; data->rollout != NULL && r < data->rows; r++)
        free((float *)data->rollout[r].logp);
    free(data->rollout);
    sheaf__row_cache_close(data);
    free(data->begin);
    free(data->token);
    free(data->label);
    free(data->label_after);
    free(data->mark);
    free(data->reference);
    free(data->answer);
    free(data->mask);
    free(data->position);
    sheaf__data_images_free(data->images);
    free(data->trained);
    free(data->trained_from);
    free(data->labels);
    free(data->seen);
    free(data->read);
    free(data->used);
    free(data);
}

void sheaf_data_note_unused(const sheaf_data *data, const char *path, const char *prompt_template,
                            const char *date, const char *query, const sheaf_events *events)
{
    const char *const option[] = { "`template`", "`date`" }, *const value[] = { prompt_template,
                                                                                date };
    for (int i = 0; i < 2 && data != NULL && data->prompt_template == NULL; i++)
        if (value[i] != NULL && value[i][0] != '\0')
            sheaf_note(events, "%s %s has no effect: nothing in these data is put in a template",
                       option[i], value[i]);
    if (query != NULL && query[0] != '\0' &&
        (path == NULL || sheaf__path_kind(path) == SHEAF_PATH_FILE))
        sheaf_note(events, "`query` has no effect: it is for pictures of a folder");
}

int64_t sheaf_data_memory(const sheaf_data *d)
{
    if (d->packs > 0)
        return (d->packs + 1 + 2 * d->members) * 8;
    const int64_t per_token = 4 + (d->label != NULL ? 4 : 0) + (d->mask != NULL ? 1 : 0) +
                              (d->position != NULL ? 4 : 0) + (d->images != NULL ? 2 : 0) +
                              (d->trained != NULL ? 1 : 0);
    int64_t parts = 0;
    for (int p = 0; d->sets != NULL && p < d->sets->count; p++)
        parts += sheaf_data_memory(d->sets->set[p]);
    if (d->sets != NULL)
        return parts;
    return d->token_capacity * per_token +
           d->capacity * (8 + (d->trained_from != NULL ? 4 : 0) + (d->mark != NULL ? 4 : 0)) +
           d->rows * ((d->label_after != NULL ? 20 : 16) + (d->reference != NULL ? 8 : 0)) +
           (d->images == NULL ? 0 : sheaf__data_images_memory(d));
}

int64_t sheaf_data_seq(const sheaf_data *data)
{
    return data->seq;
}
int64_t sheaf_data_longest(const sheaf_data *data)
{
    return data->longest;
}

const char *sheaf_data_template(const sheaf_data *data)
{
    return data->prompt_template;
}
const char *sheaf_data_hash(const sheaf_data *data)
{
    return data->hash;
}

bool sheaf_data_labels_images(const sheaf_data *data)
{
    return data != NULL && data->images != NULL && data->images->labelled;
}

sheaf_batch_images sheaf_data_images(const sheaf_data *data, const int64_t *row, int64_t n)
{
    sheaf_batch_images sum = { .seq = sheaf_data_used(data, row, n) };
    for (int64_t i = 0; i < n && data->images != NULL; i++)
        if (row[i] >= 0) {
            int64_t own = row[i];
            const sheaf__data_images *images = sheaf__data_set_of(data, &own)->images;
            const sheaf__picture_counts counts = sheaf__data_images_counts(images, own);
            sheaf__counts_add(&sum.pictures, &counts, 1);
            sum.image_rows += images->expert_rows[own];
        }
    return sum;
}

void sheaf_data_announce(const sheaf_data *data, const int64_t *row, int64_t n)
{
    const sheaf__data_sets *m = data->sets;
    const int count = data->images == NULL ? 0 : m == NULL ? 1 : m->count;
    int64_t *own = count == 0 ? NULL : malloc((size_t)n * sizeof *own + 1);
    for (int p = 0; p < count && own != NULL; p++) {
        const sheaf_data *set = m == NULL ? data : m->set[p];
        const int64_t begin = m == NULL ? 0 : m->begin[p];
        int64_t of_set = 0;
        for (int64_t i = 0; i < n; i++)
            if (row[i] >= begin && row[i] < begin + set->rows)
                own[of_set++] = row[i] - begin;
        if (set->images->announce != NULL)
            set->images->announce(set->images->self, own, of_set);
    }
    free(own);
}
