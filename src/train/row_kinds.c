/* row_kinds.c - see row_kinds.h. */
#include "train/row_kinds.h"

/* Rows of one image in each kind; 0 where rows are tokens. */
static int64_t of_image(const sheaf__model *m, int kind)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &m->schema->config);
    for (int i = 0; i < towers; i++)
        if (kind == sheaf__rows_inside(i) || kind == sheaf__rows_after(i))
            return kind == sheaf__rows_inside(i) ? tower[i].rows : tower[i].patches;
    return 0;
}

sheaf_status *sheaf__row_kinds_open(sheaf__row_kinds *out, sheaf__model *model, int64_t rows,
                                    int64_t seq)
{
    sheaf_status *st = NULL;
    *out = (sheaf__row_kinds){ 0 };
    if (model->towers == NULL || model->options.lora == NULL ||
        model->options.lora->options.dropout <= 0)
        return NULL;
    for (int k = 0; k < SHEAF__ROW_KINDS && st == NULL; k++) {
        const size_t n = (size_t)(rows * (k < SHEAF__STREAMS ? seq : of_image(model, k)));
        if (n == 0)
            continue;
        st = sheaf__take(&out->sample[k], model->context, n * 8, SHEAF_MEM_INPUTS);
        if (st == NULL)
            st = sheaf__take(&out->position[k], model->context, n * 8, SHEAF_MEM_INPUTS);
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
        const int64_t n = of_image(model, k),
                      embedded = sheaf__image_positions(&model->schema->config);
        for (int64_t i = 0; i < holds.images * n; i++) {
            kinds->sample[k][i] = tokens->sample[batch->image_row[i / n * embedded]];
            kinds->position[k][i] = i % n;
        }
    }
}

void sheaf__row_kinds_release(sheaf__row_kinds *kinds, sheaf__model *model)
{
    for (int k = 0; k < SHEAF__ROW_KINDS; k++) {
        sheaf__give(model->context, kinds->sample[k]);
        sheaf__give(model->context, kinds->position[k]);
    }
    *kinds = (sheaf__row_kinds){ 0 };
}
