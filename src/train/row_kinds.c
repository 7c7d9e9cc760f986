/* row_kinds.c - see row_kinds.h. */
#include "train/row_kinds.h"
#include "base/status.h"

/* The tower whose images have rows of this kind, and its number; NULL: rows are tokens, or there
 * are none. */
static const sheaf__tower *tower_of(sheaf__tower tower[SHEAF__MOST_TOWERS], int *t,
                                    const sheaf__model *m, int kind)
{
    *t = (kind - SHEAF__STREAMS) / SHEAF__KINDS_OF_TOWER;
    return kind < SHEAF__STREAMS || *t >= sheaf__towers_of(tower, &m->schema->config) ? NULL
                                                                                      : &tower[*t];
}

/* Rows of this kind for these images; 0 if rows are tokens. */
static int64_t rows_of(const sheaf__tower *tower, int t, int kind, const sheaf__picture_counts *c)
{
    const sheaf__tower *w = &tower[t];
    if (kind == sheaf__rows_given(t)) /* if its rows are not its patches */
        return w->ragged || w->gives != w->patches ? sheaf__counts_give(c, tower, t) : 0;
    return c->patches[t] + (kind == sheaf__rows_inside(t) ? c->images * (w->rows - w->patches) : 0);
}

sheaf_status *sheaf__row_kinds_open(sheaf__row_kinds *out, sheaf__model *model,
                                    const sheaf__picture_counts *most, int64_t tokens)
{
    sheaf_status *st = NULL;
    *out = (sheaf__row_kinds){ 0 };
    if (!sheaf__model_has_images(model) || model->options.lora == NULL ||
        model->options.lora->options.dropout <= 0)
        return NULL;
    for (int k = 0; k < SHEAF__ROW_KINDS && st == NULL; k++) {
        sheaf__tower tower[SHEAF__MOST_TOWERS];
        int t;
        const sheaf__tower *w = tower_of(tower, &t, model, k);
        const size_t n = (size_t)(k < SHEAF__STREAMS ? tokens
                                  : w == NULL        ? 0
                                                     : rows_of(tower, t, k, most));
        if (n == 0)
            continue;
        sheaf__device *device = model->context->device;
        st = sheaf__mirror_alloc(&out->sample[k], device, n * 8, SHEAF_MEM_INPUTS);
        TRY(st, sheaf__mirror_alloc(&out->position[k], device, n * 8, SHEAF_MEM_INPUTS));
    }
    return st;
}

/* Row i of a kind. */
static void set(sheaf__row_kinds *kinds, int k, int64_t i, int64_t sample, int64_t position)
{
    ((int64_t *)kinds->sample[k].host)[i] = sample;
    ((int64_t *)kinds->position[k].host)[i] = position;
}

static void fill_stream(sheaf__row_kinds *kinds, int k, const sheaf__step_info *tokens,
                        const int32_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        set(kinds, k, i, tokens->host.sample[at[i]], tokens->host.position[at[i]]);
}

/* Rows of one image after the other; those of a sequence's images are counted on. */
static void fill_images(sheaf__row_kinds *kinds, int k, const sheaf__model *model,
                        const sheaf__step_info *tokens, const sheaf_batch *batch, int64_t images)
{
    const sheaf_config *config = &model->schema->config;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    int t;
    const sheaf__tower *w = tower_of(tower, &t, model, k);
    int64_t at = 0, next = 0, before = 0, row = 0, own = 0;
    for (int64_t i = 0; i < images && w != NULL; i++) {
        if (batch->picture != NULL && sheaf__picture_inside(&batch->picture[i], w))
            continue;
        const bool joins = batch->picture != NULL && batch->picture[i].joins;
        sheaf__picture_counts one = { .images = 1, .groups = !joins };
        one.patches[t] =
            w->ragged ? sheaf__picture_seen(batch->picture, images, i, w, t) : w->patches;
        if (!joins) { /* the place of a group, or of one by itself */
            row += own;
            own = sheaf__counts_positions(config, &one);
        }
        const int64_t sample = tokens->host.sample[batch->image_row[row]],
                      end = at + rows_of(tower, t, k, &one);
        next = i > 0 && sample == before ? next : 0;
        before = sample;
        for (; at < end; at++, next++)
            set(kinds, k, at, sample, next);
    }
}

/* Rows of a kind in a micro-batch. */
static int64_t rows_in(const sheaf__model *model, int k, sheaf_batch_images holds, int64_t tokens)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    int t;
    const sheaf__tower *w = tower_of(tower, &t, model, k);
    if (k < SHEAF__STREAMS)
        return k == SHEAF__TEXT ? tokens - holds.image_rows : holds.image_rows;
    return w == NULL ? 0 : rows_of(tower, t, k, &holds.pictures);
}

sheaf_status *sheaf__row_kinds_fill(sheaf__row_kinds *kinds, const sheaf__model *model,
                                    const sheaf__step_info *tokens, const sheaf_batch *batch,
                                    sheaf_batch_images holds, int64_t tokens_in_all)
{
    sheaf__device *device = model->context->device;
    sheaf_status *st = NULL;
    for (int k = 0; k < SHEAF__ROW_KINDS; k++) {
        const sheaf__mirror *sample = &kinds->sample[k], *position = &kinds->position[k];
        kinds->of[k] = *tokens;
        if (sample->host == NULL)
            continue;
        kinds->of[k].sample = sample->device;
        kinds->of[k].position = position->device;
        const int64_t n = rows_in(model, k, holds, tokens_in_all);
        if (batch != NULL && k < SHEAF__STREAMS)
            fill_stream(kinds, k, tokens, batch->stream[k], n);
        else if (batch != NULL)
            fill_images(kinds, k, model, tokens, batch, holds.pictures.images);
        TRY(st, sheaf__mirror_upload(sample, device, (size_t)n * 8));
        TRY(st, sheaf__mirror_upload(position, device, (size_t)n * 8));
    }
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++)
        if (kinds->sample[sheaf__rows_given(t)].host == NULL)
            kinds->of[sheaf__rows_given(t)] = kinds->of[sheaf__rows_after(t)];
    return st;
}

void sheaf__row_kinds_release(sheaf__row_kinds *kinds, sheaf__model *model)
{
    for (int k = 0; k < SHEAF__ROW_KINDS; k++) {
        sheaf__mirror_free(&kinds->sample[k], model->context->device);
        sheaf__mirror_free(&kinds->position[k], model->context->device);
    }
    *kinds = (sheaf__row_kinds){ 0 };
}
