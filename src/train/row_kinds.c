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

/* Rows of this kind for images with so many patches; 0 if rows are tokens. */
static int64_t rows_of(const sheaf__tower *w, int t, int kind, int64_t images, int64_t patches)
{
    if (kind == sheaf__rows_given(t)) /* if its rows are not its patches */
        return w->ragged || w->gives != w->patches ? images * w->gives : 0;
    return kind == sheaf__rows_inside(t) ? patches + images * (w->rows - w->patches) : patches;
}

sheaf_status *sheaf__row_kinds_open(sheaf__row_kinds *out, sheaf__model *model,
                                    const sheaf_batch_images *most, int64_t tokens)
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
                                              : rows_of(w, t, k, most->images, most->patches[t]));
        if (n == 0)
            continue;
        st = sheaf__alloc(&out->sample[k], model->context, n * 8, SHEAF_MEM_INPUTS);
        TRY(st, sheaf__alloc(&out->position[k], model->context, n * 8, SHEAF_MEM_INPUTS));
    }
    return st;
}

static void fill_stream(sheaf__row_kinds *k, int stream, const sheaf__step_info *tokens,
                        const int32_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        k->sample[stream][i] = tokens->sample[at[i]];
        k->position[stream][i] = tokens->position[at[i]];
    }
}

/* Rows image after image; the count continues over the images of a sequence. */
static void fill_images(sheaf__row_kinds *kinds, int k, const sheaf__model *model,
                        const sheaf__step_info *tokens, const sheaf_batch *batch, int64_t images)
{
    const int64_t embedded = sheaf__image_positions(&model->schema->config);
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    int t;
    const sheaf__tower *w = tower_of(tower, &t, model, k);
    int64_t at = 0, next = 0, before = 0;
    for (int64_t i = 0; i < images && w != NULL; i++) {
        const int64_t sample = tokens->sample[batch->image_row[i * embedded]],
                      patches = w->ragged ? sheaf__picture_seen(batch->picture, images, i, w, t)
                                          : w->patches,
                      end = at + rows_of(w, t, k, 1, patches);
        next = i > 0 && sample == before ? next : 0;
        before = sample;
        for (; at < end; at++, next++) {
            kinds->sample[k][at] = sample;
            kinds->position[k][at] = next;
        }
    }
}

void sheaf__row_kinds_fill(sheaf__row_kinds *kinds, const sheaf__model *model,
                           const sheaf__step_info *tokens, const sheaf_batch *batch,
                           sheaf_batch_images holds, int64_t tokens_in_all)
{
    for (int k = 0; k < SHEAF__ROW_KINDS; k++) {
        kinds->of[k] = *tokens;
        if (kinds->sample[k] == NULL)
            continue;
        kinds->of[k].sample = kinds->sample[k];
        kinds->of[k].position = kinds->position[k];
        if (batch == NULL)
            continue;
        if (k < SHEAF__STREAMS) {
            fill_stream(kinds, k, tokens, batch->stream[k],
                        k == SHEAF__TEXT ? tokens_in_all - holds.image_rows : holds.image_rows);
            continue;
        }
        fill_images(kinds, k, model, tokens, batch, holds.images);
    }
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++)
        if (kinds->sample[sheaf__rows_given(t)] == NULL)
            kinds->of[sheaf__rows_given(t)] = kinds->of[sheaf__rows_after(t)];
}

void sheaf__row_kinds_release(sheaf__row_kinds *kinds, sheaf__model *model)
{
    for (int k = 0; k < SHEAF__ROW_KINDS; k++) {
        sheaf__free(model->context, kinds->sample[k]);
        sheaf__free(model->context, kinds->position[k]);
    }
    *kinds = (sheaf__row_kinds){ 0 };
}
