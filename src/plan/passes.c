/* passes.c - see passes.h. */
#include "plan/passes.h"

#include <stdlib.h>
#include <string.h>

#include "infer/sampling.h"
#include "base/status.h"

/* As generation has it: the sampler changes a copy. */
static sheaf_status *sample(void *self, int64_t row0, const int32_t *row, int64_t n,
                            const float *logits)
{
    sheaf_passes *p = self;
    static const sheaf__sampling greedy = { .greedy = true };
    const int64_t vocab = p->model->schema->config.vocab;
    for (int64_t i = 0; i < n && p->scratch != NULL; i++) {
        memcpy(p->scratch, logits + i * vocab, (size_t)vocab * sizeof(float));
        const int64_t id =
            sheaf__sampling_next(p->scratch, vocab, NULL, 0, &greedy, 0, 0, p->scratch + vocab);
        p->ids[row0 + i] = id < 0 ? 0 : (int32_t)id;
    }
    return NULL;
}

static sheaf_status *take_rows(sheaf_passes *p)
{
    const int64_t vocab = p->model->schema->config.vocab;
    const size_t n = (size_t)p->batch;
    p->ids = calloc(n, sizeof *p->ids);
    p->position = calloc(n, sizeof *p->position);
    p->pick = calloc(2 * n, sizeof *p->pick);
    p->row = calloc(n, sizeof *p->row);
    if (p->model->context->device->kind != SHEAF_DRY)
        p->scratch = malloc(((size_t)vocab + sheaf__sampling_scratch(vocab)) * sizeof *p->scratch);
    if (p->ids == NULL || p->position == NULL || p->pick == NULL || p->row == NULL ||
        (p->scratch == NULL && p->model->context->device->kind != SHEAF_DRY))
        return sheaf_fail(SHEAF_E_MEMORY, "%zu sequences", n);
    for (int64_t i = 0; i < p->batch; i++) {
        p->position[i] = (int32_t)p->keys - 1;
        p->pick[i] = (int32_t)(i * p->prompt + p->prompt - 1);
        p->pick[p->batch + i] = (int32_t)i;
        p->row[i] = i;
    }
    return NULL;
}

static sheaf_status *open_prompts(sheaf_passes *p, const sheaf_data *data)
{
    const bool dry = p->model->context->device->kind == SHEAF_DRY;
    sheaf_status *st = sheaf__runner_open(
        &p->runner, p->model, data,
        &(sheaf__runner_options){ .rows = p->batch, .seq = p->prompt, .kept = &p->kept });
    p->runner.in.key_mask = NULL;
    p->runner.in.segment = NULL;
    p->runner.batch.segments = NULL;
    p->runner.head = (sheaf__head_run){
        .all_rows = true, .pick = p->pick, .npick = p->batch, .take = sample, .self = p
    };
    if (st == NULL && dry)
        p->runner.holds = sheaf__runner_holds(&p->runner, p->row);
    return st;
}

static sheaf_status *record_next(sheaf_passes *p)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    p->in = (sheaf__rows_in){ .ids = p->ids, .position = p->position, .keys = p->keys };
    p->head = (sheaf__head_run){
        .all_rows = true, .pick = p->pick + p->batch, .npick = p->batch, .take = sample, .self = p
    };
    const sheaf__pass pass = { .batch = p->batch,
                               .queries = 1,
                               .in = &p->in,
                               .info = info,
                               .head = &p->head,
                               .kept = &p->kept,
                               .image_rows_unread = true };
    sheaf_status *st = sheaf__tape_new(&p->next, p->model->context);
    if (st != NULL)
        return st;
    sheaf__model_record(p->model, p->next, &pass);
    return sheaf__tape_compile(p->next, false, false);
}

sheaf_status *sheaf_passes_open(sheaf_passes *p, sheaf__model *model,
                                const sheaf_plan_generation *asked, const sheaf_data *data)
{
    *p = (sheaf_passes){ .model = model,
                         .asked = asked,
                         .data = data,
                         .batch = asked->batch,
                         .prompt = asked->prompt,
                         .keys = (asked->prompt + asked->seq + 1) / 2 };
    sheaf_status *st = take_rows(p);
    TRY(st, sheaf__kept_new(&p->kept, model, p->batch, asked->seq));
    TRY(st, open_prompts(p, data));
    return st == NULL ? record_next(p) : st;
}

sheaf_status *sheaf_passes_again(sheaf_passes *p)
{
    const sheaf_passes was = *p;
    sheaf_passes_release(p);
    return sheaf_passes_open(p, was.model, was.asked, was.data);
}

sheaf_status *sheaf_passes_read(sheaf_passes *p)
{
    return sheaf__runner_run(&p->runner,
                             p->model->context->device->kind == SHEAF_DRY ? NULL : p->row);
}

sheaf_status *sheaf_passes_next(sheaf_passes *p)
{
    return sheaf__tape_run(p->next);
}

void sheaf_passes_release(sheaf_passes *p)
{
    sheaf__tape_free(p->next);
    sheaf__runner_release(&p->runner);
    if (p->model != NULL)
        sheaf__kept_release(&p->kept, p->model);
    free(p->ids);
    free(p->position);
    free(p->pick);
    free(p->row);
    free(p->scratch);
    *p = (sheaf_passes){ 0 };
}

/* ---- on dry ---- */

typedef struct listing {
    const sheaf_plan_generation *asked;
    const sheaf_data *data;
    sheaf_pass_work *read, *next;
    double *fresh;
} listing;

static sheaf_status *list_pass(sheaf_pass_work *out, sheaf_passes *p,
                               sheaf_status *(*run)(sheaf_passes *passes))
{
    sheaf__context *c = p->model->context;
    sheaf__costs before, after;
    sheaf__costs_of(&before, c);
    c->work = &out->work;
    sheaf_status *st = run(p);
    c->work = NULL;
    sheaf__costs_of(&after, c);
    sheaf_plan_exchanged(out->exchange, &before, &after);
    return st == NULL && out->work.no_memory ? sheaf_fail(SHEAF_E_MEMORY, "list of ops") : st;
}

static sheaf_status *list_passes(void *self, sheaf__model *model)
{
    const listing *l = self;
    const size_t loaded = model->context->device->peak;
    sheaf_passes passes;
    sheaf_status *st = sheaf_passes_open(&passes, model, l->asked, l->data);
    TRY(st, list_pass(l->read, &passes, sheaf_passes_read));
    *l->fresh = (double)(model->context->device->peak - loaded);
    TRY(st, list_pass(l->next, &passes, sheaf_passes_next));
    sheaf_passes_release(&passes);
    return st;
}

sheaf_status *sheaf_passes_work(sheaf_pass_work *read, sheaf_pass_work *next, double *fresh,
                                const sheaf_plan_generation *asked, int rank,
                                const sheaf_data *data)
{
    listing l = { asked, data, read, next, fresh };
    *read = *next = (sheaf_pass_work){ 0 };
    *fresh = 0;
    return sheaf_plan_alone(asked, &(sheaf_plan_one){ .kind = SHEAF_DRY, .rank = rank },
                            list_passes, &l);
}
