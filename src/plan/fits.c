/* fits.c - see fits.h. */
#include "plan/fits.h"

#include "base/file.h"
#include "base/number.h"
#include "plan/needs.h"

static double share_of(const sheaf_fits_options *how)
{
    return how->share > 0 ? how->share : 1;
}

/* Bytes of the ranks on this machine. */
static double bytes_here(const sheaf_plan *plan, const sheaf_fits_options *how)
{
    return (double)plan->process * share_of(how);
}

/* The kind with most of these bytes. */
static sheaf_memory most_of(const sheaf_plan *plan, const sheaf_fits_options *how, double *bytes)
{
    sheaf_memory most = SHEAF_MEM_WEIGHTS;
    *bytes = 0;
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
        double sum = 0;
        for (int r = 0; r < plan->ranks; r++)
            sum += (double)plan->rank[r].bytes[k] * share_of(how);
        if (sum > *bytes) {
            *bytes = sum;
            most = (sheaf_memory)k;
        }
    }
    return most;
}

/* wide: more than 16 bits an element. */
static const char *less_of(sheaf_memory kind, const sheaf_plan *plan, bool wide)
{
    const bool training = plan->trained > 0;
    switch (kind) {
    case SHEAF_MEM_WEIGHTS:
        return wide ? "`dtype bfloat16`, or a machine with more memory"
                    : "a machine with more memory";
    case SHEAF_MEM_TRAINED:
    case SHEAF_MEM_GRADIENTS:
    case SHEAF_MEM_OPTIMIZER:
        return "training less (`method lora`, `train`), or a machine with more memory";
    default:
        if (training)
            return wide
                       ? "a smaller `micro-batch` (with a larger `accumulate`), shorter rows, `checkpointing` or `dtype bfloat16`"
                       : "a smaller `micro-batch` (with a larger `accumulate`), shorter rows or `checkpointing`";
        return wide
                   ? "fewer sequences at a time (`micro-batch`, `batch`), shorter ones (`max-new`), or `dtype bfloat16`"
                   : "fewer sequences at a time (`micro-batch`, `batch`) or shorter ones (`max-new`)";
    }
}

/* A GPU that has less memory left than the ranks on it need; -1: none, or no rank is on a GPU. */
static sheaf_status *fullest_unit(int *out, size_t *need, size_t *left, const sheaf_plan *plan,
                                  const char *device, const sheaf_fits_options *how)
{
    const int here = (int)(plan->ranks * share_of(how) + 0.5);
    size_t of[SHEAF__UNITS] = { 0 };
    *out = -1;
    for (int r = 0; r < here; r++) {
        int unit;
        sheaf_status *st = sheaf__device_left(left, &unit, device, r);
        if (st != NULL || *left == SIZE_MAX)
            return st;
        of[unit % SHEAF__UNITS] += plan->rank[r].peak;
        if ((*need = of[unit % SHEAF__UNITS]) > *left) {
            *out = unit;
            return NULL;
        }
    }
    return NULL;
}

/* Of GPUs, once it is known what the ranks need. */
static sheaf_status *judge_units(const sheaf_plan *plan, const char *what, sheaf_dtype dtype,
                                 const char *device, const sheaf_fits_options *how)
{
    int unit;
    size_t needed = 0, there = 0;
    double bytes;
    char need[SHEAF__NUMBER], left[SHEAF__NUMBER];
    sheaf_status *st = fullest_unit(&unit, &needed, &there, plan, device, how);
    if (st != NULL || unit < 0)
        return st;
    sheaf__number_bytes(need, (uint64_t)needed);
    sheaf__number_bytes(left, (uint64_t)there);
    if (how->force) {
        sheaf_warn(how->events,
                   "%s needs %s on GPU %d, which has %s for it; it starts all the same "
                   "(`force`)",
                   what, need, unit, left);
        return NULL;
    }
    const sheaf_memory kind = most_of(plan, how, &bytes);
    st = sheaf_fail(SHEAF_E_MEMORY, "memory of GPU %d for %s", unit, what);
    sheaf_expected(st, "at most %s, without the driver's own memory", left);
    sheaf_found(st, "%s needed, most of it %s", need, sheaf_plan_kind(kind));
    return sheaf_try_this(st,
                          "more GPUs (`device cuda` with a larger `tp`), %s; sheaf plan --device "
                          "SIZE shows what fits; `force` begins all the same, until it is refused",
                          less_of(kind, plan, sheaf_dtype_bytes(dtype) > 2));
}

/* planned: the status of sheaf_plan_...(); too little address space to plan is too little memory.
 */
static sheaf_status *judge(sheaf_status *planned, const sheaf_plan *plan, const char *what,
                           sheaf_dtype dtype, const char *device, const sheaf_fits_options *how)
{
    const sheaf__device_class *class;
    if (planned != NULL) {
        if (!how->force || sheaf_status_code(planned) != SHEAF_E_MEMORY)
            return planned;
        sheaf_status_free(planned);
        return NULL;
    }
    const sheaf__memory m = how->memory != NULL ? *how->memory : sheaf__memory_look("");
    sheaf_status *st = sheaf__device_find(&class, device);
    if (st == NULL && class->left != NULL && m.left != INT64_MAX)
        st = judge_units(plan, what, dtype, device, how);
    if (st != NULL)
        return st;
    const double needed =
        class->left == NULL ? bytes_here(plan, how) : (double)plan->host * share_of(how);
    const double more = needed - (double)m.held;
    if (m.left == INT64_MAX || more <= (double)m.left)
        return NULL;
    double bytes;
    const sheaf_memory kind = most_of(plan, how, &bytes);
    char need[SHEAF__NUMBER], left[SHEAF__NUMBER], most[SHEAF__NUMBER];
    sheaf__number_bytes(need, (uint64_t)more);
    sheaf__number_bytes(left, (uint64_t)m.left);
    sheaf__number_bytes(most, (uint64_t)bytes);
    const char *where =
        m.by_group ? "the limit of its control group" : "the available memory of this machine";
    if (how->force) {
        sheaf_warn(how->events, "%s needs %s of memory, %s is %s; it starts all the same (`force`)",
                   what, need, where, left);
        return NULL;
    }
    st = sheaf_fail(SHEAF_E_MEMORY, "memory for %s", what);
    sheaf_expected(st, "at most %s, %s", left, where);
    sheaf_found(st, "%s needed, %s of it %s", need, most, sheaf_plan_kind(kind));
    return sheaf_try_this(
        st,
        "%s; sheaf plan shows what fits; `force` begins all the same, and the system may then kill it",
        less_of(kind, plan, sheaf_dtype_bytes(dtype) > 2));
}

/* A run that cannot store its result does not start. */
static sheaf_status *judge_disk(const sheaf_plan *plan, const sheaf__job *job,
                                const sheaf_fits_options *how)
{
    const char *out = job->options->out;
    if (!sheaf__is_given(out))
        return NULL;
    const sheaf_plan_files f = sheaf_plan_disk(plan, job);
    const double left = how->disk > 0 ? how->disk : sheaf__disk_free(out);
    char checkpoint[SHEAF__NUMBER], result[SHEAF__NUMBER], is[SHEAF__NUMBER];
    if (left < 0 || f.checkpoint + f.result <= left)
        return NULL;
    sheaf__number_bytes(checkpoint, (uint64_t)f.checkpoint);
    sheaf__number_bytes(result, (uint64_t)f.result);
    sheaf__number_bytes(is, (uint64_t)left);
    if (how->force) {
        sheaf_warn(
            how->events,
            "%s: a checkpoint takes %s and the result %s, and %s are free there; it starts all "
            "the same (`force`)",
            out, checkpoint, result, is);
        return NULL;
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: room on its disk", out);
    sheaf_expected(st, "%s for a checkpoint and %s for the result", checkpoint, result);
    sheaf_found(st, "%s free", is);
    return sheaf_try_this(st, "free space there, or another `out`; `force` begins all the same");
}

sheaf_status *sheaf_fits_train(const sheaf__job *job, const sheaf_fits_options *how)
{
    sheaf_plan plan = { 0 }; /* without a plan, by --force, nothing is counted */
    sheaf_status *st = sheaf_plan_train(&plan, job, (size_t)job->data_bytes);
    st = judge(st, &plan, "this run", job->options->dtype, job->options->device, how);
    TRY(st, judge_disk(&plan, job, how));
    if (st != NULL || how->force || how->footprint == NULL)
        return st;
    for (int r = 0; r < plan.ranks; r++)
        how->footprint[r] = plan.rank[r].peak;
    return NULL;
}

bool sheaf_fits_pairs(const sheaf__job *job, const sheaf_fits_options *how)
{
    sheaf_train_options more = *job->options;
    sheaf__job both = *job;
    sheaf__memory m = how->memory != NULL ? *how->memory : sheaf__memory_look("");
    sheaf_fits_options quiet = *how;
    quiet.events = NULL;
    quiet.memory = &m;
    both.options = &more;
    if (more.kept != SHEAF__KEPT_ALL || more.kept_given || how->force || m.left == INT64_MAX ||
        more.transport != SHEAF_TRANSPORT_THREADS || sheaf__fit_apart(more.device) ||
        !sheaf__objective_keeps(&job->objective, &more))
        return false;
    m.left -= m.left / 4;
    more.kept = SHEAF__KEPT_PAIRS;
    sheaf_status *st = sheaf_fits_train(&both, &quiet);
    const bool fits = st == NULL;
    sheaf_status_free(st);
    return fits;
}

sheaf_status *sheaf_fits_generate(const sheaf_plan_generation *request,
                                  const sheaf_fits_options *how)
{
    sheaf_plan plan;
    sheaf_status *st = sheaf_plan_generate(&plan, request);
    return judge(st, &plan, "these answers", request->dtype, request->device, how);
}

sheaf_status *sheaf_fits_evaluate(const sheaf_plan_generation *request, const sheaf_data *data,
                                  bool padded, const sheaf_fits_options *how)
{
    sheaf_plan plan;
    sheaf_status *st = sheaf_plan_evaluate(&plan, request, data, padded);
    if (st == NULL)
        plan.process += (size_t)sheaf_data_memory(data);
    return judge(st, &plan, "this evaluation", request->dtype, request->device, how);
}
