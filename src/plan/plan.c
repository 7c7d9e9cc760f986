/* plan.c - see plan.h. */
#include "plan/plan.h"

#include <string.h>

#include "models/build.h"

const char *sheaf_plan_kind(sheaf_memory kind)
{
    static const char *const name[SHEAF_MEM_KINDS] = { "weights", "trained", "gradients", "optimizer", "activations",
                                                       "cache", "scratch", "exchange", "inputs" };
    return name[kind];
}

const char *sheaf_plan_component(sheaf_component component)
{
    static const char *const name[SHEAF_PLAN_COMPONENTS] = { "text", "embeddings", "vit", "adapter", "experts", "tower",
                                                             "cross_attention" };
    return name[component];
}

sheaf_component sheaf_plan_component_of(const char *name)
{
    static const struct { const char *part; sheaf_component is; } rule[] = { /* the first that is in the name */
        { "mixins.eva.vit_model.", SHEAF_PLAN_VIT }, { "mixins.eva.", SHEAF_PLAN_ADAPTER },
        { "mixins.encoder.", SHEAF_PLAN_TOWER }, { "mixins.rotary.vision_", SHEAF_PLAN_EXPERTS },
        { "mixins.mlp.vision_", SHEAF_PLAN_EXPERTS }, { "cross_attention", SHEAF_PLAN_CROSS },
        { "word_embeddings", SHEAF_PLAN_EMBEDDINGS }, { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
        { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (strstr(name, rule[i].part) != NULL)
            return rule[i].is;
    return SHEAF_PLAN_TEXT;
}

int64_t sheaf_plan_seq(const sheaf_config *config)
{
    if (config->patches > 0)
        return config->patches + 2 + 256;
    return config->max_position < 4096 ? config->max_position : 4096;
}

size_t sheaf_plan_fullest(const sheaf_plan *plan)
{
    size_t most = 0;
    for (int r = 0; r < plan->ranks; r++)
        most = plan->rank[r].peak > most ? plan->rank[r].peak : most;
    return most;
}

/* ---- what each component holds ---- */

typedef struct count { sheaf_plan_rank *out; const sheaf__device *device; } count;

static void count_block(void *self, const char *name, void *block)
{
    const count *c = self;
    sheaf_memory kind;
    const size_t size = sheaf__device_size(c->device, block, &kind);
    c->out->component[sheaf_plan_component_of(name)][kind] += size;
}

static void count_components(sheaf_plan_rank *out, const sheaf__rank *held)
{
    const sheaf__trained_set *set = held->model->trained;
    sheaf__build_blocks(held->model, count_block, &(count){ out, held->device });
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *t = set->item[i];
        size_t *bytes = out->component[sheaf_plan_component_of(t->name)];
        for (int s = t->first; s < t->first + t->count; s++) {
            const size_t one = (size_t)t->numel[s] * sizeof(float);
            bytes[SHEAF_MEM_TRAINED] += one;
            bytes[SHEAF_MEM_GRADIENTS] += one * (size_t)set->nsums;
            bytes[SHEAF_MEM_OPTIMIZER] += 2 * one;
        }
    }
}

/* ---- the plan ---- */

static sheaf_status *plan_rank(sheaf_plan_rank *out, sheaf_plan *plan, const sheaf__job *job, int rank)
{
    sheaf__rank held;
    sheaf__step_result unused;
    sheaf_status *st = sheaf__rank_open(&held, SHEAF_DRY, NULL, rank, job);
    if (st == NULL)
        st = sheaf__stepper_run(&unused, held.stepper, 0, 0);
    if (st == NULL) {
        for (int k = 0; k < SHEAF_MEM_KINDS; k++)
            out->bytes[k] = held.device->at_peak[k];
        out->peak = held.device->peak;
        out->flops = held.device->flops;
        out->sent = held.context.sent;
        count_components(out, &held);
        plan->trained = 0;
        for (int i = 0; i < held.model->trained->count; i++) {
            const sheaf__trained *t = held.model->trained->item[i];
            plan->trained += t->shape[0] * t->shape[1];
        }
    }
    sheaf__rank_close(&held);
    return st;
}

/* What a process holds beside its devices, measured over small and large settings
 * (docs/plan.md): lists that grow with tensors and ranks, allocator arenas and stacks of
 * threads, buffers of the files being written; and a 256th of the rest, so that the answer
 * errs on the safe side. */
static size_t host_bytes(const sheaf__job *job, size_t devices, size_t data_bytes)
{
    const size_t ranks = (size_t)job->options->tp;
    const size_t tensors = (size_t)job->schema->count;
    const size_t pictures = job->schema->config.patches > 0 ? (size_t)1 << 20 : 0; /* of the libraries that read them */
    return data_bytes + pictures + ((size_t)2560 << 10) + ranks * (((size_t)704 << 10) + tensors * 4096) + devices / 256;
}

sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes)
{
    *out = (sheaf_plan){ .ranks = job->options->tp };
    for (int64_t i = 0; i < job->schema->count; i++) {
        const sheaf_tensor *t = &job->schema->tensor[i];
        if (!t->buffer)
            out->parameters += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    }
    sheaf_status *st = NULL;
    for (int r = 0; r < out->ranks && st == NULL; r++) {
        st = sheaf_in(plan_rank(&out->rank[r], out, job, r), "rank %d of %d", r, out->ranks);
        out->process += out->rank[r].peak;
    }
    out->host = host_bytes(job, out->process, data_bytes);
    out->process += out->host;
    return st;
}
