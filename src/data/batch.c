/* batch.c - rows of a data set as dense arrays, packed ones too. */
#include "base/base.h"
#include "base/random.h"
#include "data/data_images.h"
#include "data/data_rows.h"
#include "ops/kernels.h"

/* The rows behind a row of data.h: itself, or the members of a packed row. */
typedef struct parts {
    const int64_t *row;
    int64_t n;
} parts;

static parts parts_of(const sheaf_data *d, const int64_t *row)
{
    if (*row < 0)
        return (parts){ row, 0 };
    if (d->packs == 0)
        return (parts){ row, 1 };
    return (parts){ d->pack_row + d->pack_begin[*row],
                    d->pack_begin[*row + 1] - d->pack_begin[*row] };
}

int64_t sheaf_data_rows(const sheaf_data *data)
{
    return data->packs > 0 ? data->packs : data->rows;
}

int sheaf_data_sides(const sheaf_data *data)
{
    return data != NULL && data->pairs ? 2 : 1;
}

bool sheaf_data_desirable(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->mark != NULL && data->mark[row] != 0;
}

double sheaf_data_margin(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->mark == NULL ? 0 : (double)data->mark[row];
}

bool sheaf_data_reference(double *out, const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    if (data->reference != NULL)
        *out = (double)data->reference[row];
    return data->reference != NULL;
}

sheaf_data_rollout sheaf_data_rollout_of(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->rollout[row];
}

int64_t sheaf_data_samples(const sheaf_data *data)
{
    return sheaf_data_rows(data) / sheaf_data_sides(data);
}

bool sheaf_data_reads_files(const sheaf_data *data)
{
    bool reads = data != NULL && data->files != NULL;
    for (int p = 0; data != NULL && data->sets != NULL && p < data->sets->count; p++)
        reads |= data->sets->set[p]->files != NULL;
    return reads;
}

bool sheaf_data_is_packed(const sheaf_data *data)
{
    return data != NULL && (data->packs > 0 || data->joined);
}

/* How often one of `rows` rows can occur in n samples that begin at a micro-batch of n: once an
 * epoch. */
static int64_t times_of(int64_t n, int64_t rows)
{
    return rows % n == 0 ? 1 : n % rows == 0 ? n / rows : n / rows + 2;
}

/* Without memory for the counts it assumes the fullest row everywhere. */
int64_t sheaf_data_read_most(const sheaf_data *data, int64_t n, int64_t rows)
{
    if (data->packs > 0 || data->read == NULL || rows < 1)
        return INT64_MAX;
    int32_t most = 0;
    for (int64_t r = 0; r < data->rows; r++)
        most = data->read[r] > most ? data->read[r] : most;
    int64_t *with = calloc((size_t)most + 1, sizeof *with), sum = 0, left = n; /* rows, by `read` */
    for (int64_t r = 0; r < data->rows && with != NULL; r++)
        with[data->read[r]]++;
    for (int64_t read = most; read > 0 && left > 0; read--) {
        const int64_t all = with == NULL ? left : with[read] * times_of(n, rows),
                      now = all < left ? all : left;
        sum += now * read;
        left -= now;
    }
    free(with);
    return sum;
}

static int64_t tokens_of(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->seen == NULL ? sheaf__data_row_length(data, row) : data->seen[row];
}

static int64_t labels_of(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->labels[row];
}

static int64_t sum_of(int64_t (*number)(const sheaf_data *data, int64_t row),
                      const sheaf_data *data, const int64_t *row, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const parts p = parts_of(data, &row[i]);
        for (int64_t k = 0; k < p.n; k++)
            sum += number(data, p.row[k]);
    }
    return sum;
}

int64_t sheaf_data_used(const sheaf_data *data, const int64_t *row, int64_t n)
{
    int64_t most = 1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t used = sum_of(sheaf__data_used_by, data, &row[i], 1);
        most = used > most ? used : most;
    }
    return most;
}

int64_t sheaf_data_labels(const sheaf_data *data, const int64_t *row, int64_t n)
{
    return sum_of(labels_of, data, row, n);
}

int64_t sheaf_data_tokens(const sheaf_data *data, const int64_t *row, int64_t n)
{
    return sum_of(tokens_of, data, row, n);
}

int64_t sheaf_data_parts(const sheaf_data *data, int64_t row)
{
    return parts_of(data, &row).n;
}

sheaf_data_part sheaf_data_part_of(const sheaf_data *data, int64_t row, int64_t i, int64_t index,
                                   uint64_t seed, bool shuffle)
{
    const int64_t record = parts_of(data, &row).row[i];
    sheaf_data_part part = { .positions = sheaf__data_used_by(data, record),
                             .tokens = tokens_of(data, record),
                             .sample = index };
    if (data->pack_set != NULL) { /* a packed row may be drawn twice in an epoch */
        part.sample = index * data->seq + i;
    } else if (data->packs > 0) {
        const uint64_t n = (uint64_t)data->members, epoch = (uint64_t)(index / data->packs),
                       place = (uint64_t)data->pack_place[data->pack_begin[row] + i];
        part.sample =
            (int64_t)(epoch * n + (shuffle ? sheaf__permute_back(place, n, seed, epoch) : place));
    }
    return part;
}

/* A row's own positions, which go on through the padding. */
static int32_t position_at(const sheaf_data *data, int64_t row, int64_t length, int64_t t)
{
    if (data->position == NULL || length == 0)
        return (int32_t)t;
    const int32_t *own = data->position + data->begin[row];
    return t < length ? own[t] : own[length - 1] + (int32_t)(t - length + 1);
}

/* On three axes; 0 behind the row. */
static sheaf_status *fill_axes(const sheaf_batch *batch, const sheaf_data *data, int64_t row,
                               int64_t length, int64_t room, int64_t at)
{
    for (int axis = 0; axis < 3; axis++)
        memset(batch->position + axis * batch->axis_stride + at, 0,
               (size_t)room * sizeof *batch->position);
    return length == 0 ? NULL
                       : sheaf__data_images_axes(batch->position + at, batch->axis_stride,
                                                 length < room ? length : room, data, row);
}

/* One row over positions [at, at + room) of the batch, the rest of them padding. */
static sheaf_status *fill(const sheaf_batch *batch, const sheaf_data *data, int64_t row,
                          int64_t room, int64_t at)
{
    sheaf__data_row of = { 0 };
    data = sheaf__data_set_of(data, &row);
    sheaf_status *st = row < 0 ? NULL : sheaf__data_row_open(&of, data, row);
    const int64_t length = row < 0 || st != NULL ? 0 : sheaf__data_row_length(data, row);
    int64_t seen = length; /* after it comes the file's own padding */
    while (batch->whole && data->pads_seen && seen > 0 && !sheaf__data_mask_at(data, row, seen - 1))
        seen--;
    if (st == NULL && batch->axis_stride > 0 && batch->position != NULL)
        st = fill_axes(batch, data, row, length, room, at);
    for (int64_t t = 0; t < room; t++, at++) {
        const bool real = t < length;
        if (batch->tokens != NULL)
            batch->tokens[at] = real ? of.token[t] : (int32_t)data->pad;
        if (batch->position != NULL && batch->axis_stride == 0)
            batch->position[at] = position_at(data, row, length, t);
        if (batch->mask != NULL)
            batch->mask[at] = real ? t >= seen || sheaf__data_mask_at(data, row, t) : 0;
        if (batch->labels != NULL) {
            const int32_t next = real ? sheaf__data_target_at(&of, t) : SHEAF__NO_LABEL;
            const bool prompt = batch->prompts_too && next == SHEAF__NO_LABEL && t + 1 < length;
            batch->labels[at] = next != SHEAF__NO_LABEL ? next
                                : prompt                ? of.token[t + 1]
                                                        : SHEAF__IGNORED;
            if (batch->answer != NULL)
                batch->answer[at] = next != SHEAF__NO_LABEL;
        }
    }
    sheaf__data_row_release(&of);
    return st;
}

/* ---- rows with another one's answer ---- */

static sheaf__answer answer_of(const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    return data->answer[row];
}

int64_t sheaf_data_mixed(const sheaf_data *data, const int64_t *row, const int64_t *other,
                         int64_t n)
{
    int64_t most = 1;
    for (int64_t i = 0; i < n; i++) {
        const sheaf__answer beside = answer_of(data, other[i]);
        const int64_t whole = answer_of(data, row[i]).begin + beside.end - beside.begin;
        most = whole > most ? whole : most;
    }
    return most;
}

int64_t sheaf_data_mixed_most(const sheaf_data *data)
{
    int64_t prompt = 1, answer = 0;
    for (int64_t i = 0; i < sheaf_data_rows(data); i++) {
        const sheaf__answer own = answer_of(data, i);
        prompt = own.begin > prompt ? own.begin : prompt;
        answer = own.end - own.begin > answer ? own.end - own.begin : answer;
    }
    return prompt + answer;
}

/* Positions of an answer behind the prompt before `at`: each axis goes on from there. */
static void go_on(const sheaf_batch *batch, int64_t at, int64_t n)
{
    for (int axis = 0; axis < (batch->axis_stride > 0 ? 3 : 1); axis++) {
        int32_t *position = batch->position + axis * batch->axis_stride + at;
        for (int64_t t = 0; t < n; t++)
            position[t] = position[t - 1] + 1;
    }
}

/* The prompt of a row, pictures included, and the answer of another one. */
static sheaf_status *fill_mixed(const sheaf_batch *batch, const sheaf_data *data, int64_t row,
                                int64_t other, int64_t room, int64_t at)
{
    const sheaf__answer own = answer_of(data, row), beside = answer_of(data, other);
    const int64_t n = beside.end - beside.begin, behind = at + own.begin;
    sheaf__data_row answer = { 0 };
    sheaf_status *st = fill(batch, data, -1, room, at);
    TRY(st, fill(batch, data, row, own.begin, at));
    data = sheaf__data_set_of(data, &other);
    TRY(st, sheaf__data_row_open(&answer, data, other));
    for (int64_t t = -1; t < n && st == NULL; t++) {
        const int32_t next = sheaf__data_target_at(&answer, beside.begin + t);
        batch->labels[behind + t] = next == SHEAF__NO_LABEL ? SHEAF__IGNORED : next;
        if (batch->answer != NULL)
            batch->answer[behind + t] = next != SHEAF__NO_LABEL;
        if (t < 0)
            continue;
        batch->tokens[behind + t] = answer.token[beside.begin + t];
        batch->mask[behind + t] = 1;
    }
    if (st == NULL && batch->position != NULL)
        go_on(batch, behind, n);
    sheaf__data_row_release(&answer);
    return st;
}

static void put_segment(const sheaf_batch *batch, int64_t at, int64_t length)
{
    if (batch->segment == NULL || length == 0)
        return;
    batch->segment[(*batch->segments)++] = at;
    batch->segment[*batch->segments] = at + length;
}

/* The first n positions of a row: each record of it is a segment. */
static void put_records(const sheaf_batch *batch, const sheaf_data *data, int64_t row, int64_t n,
                        int64_t at)
{
    data = sheaf__data_set_of(data, &row);
    const int32_t *position = data->joined ? data->position + data->begin[row] : NULL;
    int64_t begin = 0;
    for (int64_t t = 1; t < n && position != NULL; t++)
        if (position[t] != position[t - 1] + 1) {
            put_segment(batch, at + begin, t - begin);
            begin = t;
        }
    put_segment(batch, at + begin, n - begin);
}

/* A packed row: its rows without their own padding, then the padding. */
static sheaf_status *fill_packed(const sheaf_batch *batch, const sheaf_data *data,
                                 const int64_t *row, int64_t seq, int64_t at)
{
    const parts p = parts_of(data, row);
    const int64_t end = at + seq;
    sheaf_status *st = NULL;
    for (int64_t k = 0; k < p.n && st == NULL; k++) {
        const int64_t used = sheaf__data_used_by(data, p.row[k]);
        st = fill(batch, data, p.row[k], used, at);
        put_records(batch, data, p.row[k], used, at);
        at += used;
    }
    TRY(st, fill(batch, data, -1, end - at, at));
    put_segment(batch, at, end - at);
    return st;
}

sheaf_status *sheaf_data_batch(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                               int64_t n)
{
    const int64_t seq = batch->seq > 0 ? batch->seq : data->seq;
    if (batch->segments != NULL)
        *batch->segments = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = batch->other != NULL ? fill_mixed(batch, data, row[i], batch->other[i], seq, i * seq)
             : sheaf_data_is_packed(data) ? fill_packed(batch, data, &row[i], seq, i * seq)
                                          : fill(batch, data, row[i], seq, i * seq);
    if (st == NULL && data->images != NULL)
        sheaf__data_images_rows(batch, data, row, n);
    return st;
}
