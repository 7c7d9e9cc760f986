/* past.c - see past.h. */
#include "infer/past.h"

#include "base/base.h"
#include "models/rope.h"

static int32_t position_at(const sheaf__prompt *p, int64_t j)
{
    return p->position == NULL ? (int32_t)j : p->position[j];
}

static uint8_t kind_at(const sheaf__prompt *p, int64_t j)
{
    return (uint8_t)((p->embed != NULL && p->embed[j]) | (p->expert != NULL && p->expert[j]) << 1);
}

static int64_t equal_rows(const sheaf__past *past, const sheaf__prompt *p)
{
    const int64_t most = past->n < p->n ? past->n : p->n;
    int64_t n = 0;
    while (n < most && past->ids[n] == p->ids[n] && past->position[n] == position_at(p, n) &&
           past->kind[n] == kind_at(p, n))
        n++;
    return n;
}

/* Rows of the prompt up to the last one of its picture: they are computed together, or not. */
static int64_t seen_rows(const sheaf__prompt *p)
{
    int64_t n = p->embed == NULL && p->expert == NULL ? 0 : p->n;
    while (n > 0 && kind_at(p, n - 1) == 0)
        n--;
    return n;
}

/* The last row is computed in any case: its logits are what is asked for. */
static int64_t usable_rows(const sheaf__past *past, const sheaf__prompt *p)
{
    const bool looks = p->embed != NULL || p->pictures > 0;
    if (past->picture != p->look || (looks && p->look == 0))
        return 0;
    const int64_t equal = equal_rows(past, p), n = equal < p->n ? equal : p->n - 1;
    return n < seen_rows(p) ? 0 : n;
}

static sheaf_status *take_space(sheaf__past *past, sheaf__model *model, int64_t length)
{
    const size_t rows = (size_t)length;
    sheaf__past_release(past, model);
    past->ids = malloc(rows * sizeof *past->ids);
    past->position = malloc(rows * sizeof *past->position);
    past->kind = malloc(rows);
    sheaf_status *st = sheaf__kept_new(&past->kept, model, 1, length);
    if (st == NULL && (past->ids == NULL || past->position == NULL || past->kind == NULL))
        st = sheaf_fail(SHEAF_E_MEMORY, "what was read, %lld positions", (long long)length);
    if (st == NULL)
        past->length = length;
    else
        sheaf__past_release(past, model);
    return st;
}

sheaf_status *sheaf__past_begin(int64_t *reused, sheaf__past *past, sheaf__model *model,
                                const sheaf__prompt *prompt, int64_t length)
{
    *reused = 0;
    if (length > past->length) {
        sheaf_status *st = take_space(past, model, length > past->least ? length : past->least);
        if (st != NULL)
            return st;
    }
    *reused = sheaf__rope_turns(&model->schema->config, past->n, prompt->n)
                  ? 0 /* kept keys have the angles of another length */
                  : usable_rows(past, prompt);
    past->n = *reused;
    past->picture = prompt->look;
    return NULL;
}

void sheaf__past_read(sheaf__past *past, const sheaf__prompt *p)
{
    for (int64_t j = past->n; j < p->n; j++) {
        past->ids[j] = p->ids[j];
        past->position[j] = position_at(p, j);
        past->kind[j] = kind_at(p, j);
    }
    past->n = p->n;
}

void sheaf__past_more(sheaf__past *past, int32_t id, int32_t position)
{
    past->ids[past->n] = id;
    past->position[past->n] = position;
    past->kind[past->n++] = 0;
}

void sheaf__past_release(sheaf__past *past, sheaf__model *model)
{
    sheaf__kept_release(&past->kept, model);
    free(past->ids);
    free(past->position);
    free(past->kind);
    *past = (sheaf__past){ .least = past->least };
}
