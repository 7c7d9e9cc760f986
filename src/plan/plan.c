/* plan.c - see plan.h. */
#include "plan/plan.h"

const char *sheaf_plan_kind(sheaf_memory kind)
{
    static const char *const name[SHEAF_MEM_KINDS] = { "weights", "trained", "gradients", "optimizer", "activations",
                                                       "cache", "scratch", "exchange", "inputs" };
    return name[kind];
}

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
    return data_bytes + ((size_t)2560 << 10) + ranks * (((size_t)704 << 10) + tensors * 4096) + devices / 256;
}

sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes)
{
    *out = (sheaf_plan){ .ranks = job->options->tp };
    for (int64_t i = 0; i < job->schema->count; i++)
        out->parameters += job->schema->tensor[i].shape[0] * job->schema->tensor[i].shape[1];
    sheaf_status *st = NULL;
    for (int r = 0; r < out->ranks && st == NULL; r++) {
        st = sheaf_in(plan_rank(&out->rank[r], out, job, r), "rank %d of %d", r, out->ranks);
        out->process += out->rank[r].peak;
    }
    out->host = host_bytes(job, out->process, data_bytes);
    out->process += out->host;
    return st;
}
