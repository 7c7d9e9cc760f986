/* fit.c - see needs.h. */
#include "plan/needs.h"

#include "base/base.h"

/* The search for a setting. */
typedef struct search {
    sheaf__plan_inputs *q;
    const sheaf_train_options *requested; /* the request */
    sheaf_plan *plan;
    const sheaf_events *events;
    size_t memory;
    const int *slots; /* see sheaf__fit_find(), or of each GPU that is named, or of each rank's */
    const int *hosts; /* sheaf__fit_find()'s */
    int64_t rows;     /* of a step */
    int all;          /* most ranks */
    int most;         /* of a group or stage */
} search;

/* The GPUs of a device's name; NULL class->left: not GPUs. */
static sheaf__device_choice choice_of(const char *device)
{
    sheaf__device_choice choice;
    sheaf_status_free(sheaf__device_choose(&choice, device)); /* the device's opening reports it */
    return choice;
}

bool sheaf__fit_apart(const char *device)
{
    const sheaf__device_class *class = choice_of(device).class;
    return class != NULL && class->left != NULL;
}

/* GPUs of a host with so many ranks. */
static int units_of(const char *device, int ranks)
{
    const int named = choice_of(device).units;
    return named > 0 && named < ranks ? named : ranks;
}

/* Of the ranks from `at` on, those of one host: all, or as many as its slots. */
static int ranks_here(int at, int ranks, const int **hosts)
{
    const int left = ranks - at;
    const int here = *hosts == NULL ? left : **hosts > 0 ? *(*hosts)++ : 1;
    return here < left ? here : left;
}

int sheaf__fit_gpus(const char *device, int ranks, const int *hosts)
{
    int all = 0;
    for (int at = 0, n; at < ranks; at += n) {
        n = ranks_here(at, ranks, &hosts);
        all += units_of(device, n);
    }
    return all;
}

/* The fullest GPU: the ranks on it, and what its driver takes. */
static size_t need_of_unit(const sheaf_plan *plan, const int *hosts, const char *device)
{
    size_t most = 0;
    for (int at = 0, n; at < plan->ranks; at += n) {
        n = ranks_here(at, plan->ranks, &hosts);
        const int units = units_of(device, n);
        for (int u = 0; u < units; u++) {
            size_t all = 0;
            for (int r = u; r < n; r += units)
                all += plan->rank[at + r].peak;
            most = all > most ? all : most;
        }
    }
    return most + choice_of(device).class->takes;
}

/* Bytes in the fullest memory: that of a GPU; else the whole process; or the consecutive ranks of a
 * host, with their share of the memory outside devices, as train counts it. */
static size_t need_of(const sheaf_plan *plan, const int *slots, const int *hosts,
                      const char *device)
{
    size_t most = 0;
    if (sheaf__fit_apart(device))
        return need_of_unit(plan, hosts, device);
    if (slots == NULL)
        return plan->process;
    for (int r = 0; r < plan->ranks;) {
        size_t all = 0;
        for (int left = *slots > 0 ? *slots++ : 1; left > 0 && r < plan->ranks; left--)
            all += plan->rank[r++].peak + plan->host / (size_t)plan->ranks;
        most = all > most ? all : most;
    }
    return most;
}

static sheaf_status *attempt(bool *fits, search *s, int64_t micro_batch)
{
    sheaf_train_options *o = &s->q->o;
    *fits = false;
    if (o->micro_batch != micro_batch) {
        o->micro_batch = micro_batch;
        o->accumulate = s->rows / micro_batch;
        sheaf__plan_inputs_count(s->q, s->events);
    }
    sheaf_status *st = sheaf__plan_inputs_answer(s->plan, s->q);
    *fits = st == NULL && need_of(s->plan, s->slots, s->hosts, o->device) <= s->memory;
    return st;
}

/* The largest micro-batch from `least` to `most` that fits and divides a step's rows; memory grows
 * with it. 0: none. */
static sheaf_status *largest(int64_t *out, search *s, int64_t least, int64_t most)
{
    int64_t *divisor = NULL, n = 0, low = 0, high;
    *out = 0;
    for (int64_t m = least; m <= most; m++)
        n += s->rows % m == 0;
    if (n == 0)
        return NULL;
    divisor = malloc((size_t)n * sizeof *divisor);
    if (divisor == NULL)
        return sheaf__no_memory("micro-batches");
    n = 0;
    for (int64_t m = least; m <= most; m++)
        if (s->rows % m == 0)
            divisor[n++] = m;
    sheaf_status *st = NULL;
    bool fits;
    for (high = n; low < high && st == NULL;) { /* all before `low` fit, none from `high` on */
        const int64_t middle = low + (high - low) / 2;
        st = attempt(&fits, s, divisor[middle]);
        if (fits)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && st == NULL)
        st = attempt(&fits, s, *out = divisor[low - 1]); /* the plan of that one */
    free(divisor);
    return st;
}

/* Most ranks of a group or of a stage: in a shared memory more ranks need more. */
static int most_of(const search *s)
{
    const sheaf__plan_inputs *q = s->q;
    if (s->slots == NULL)
        return q->o.tp;
    const int copies = q->place_text == NULL ? q->o.dp : q->place.stages, each = s->all / copies;
    return q->o.slices < each ? q->o.slices : each;
}

/* Slices of a rank, and key heads in them. */
typedef struct load {
    int64_t slices, heads;
} load;

static load load_of(const sheaf__plan_inputs *q, int tp, int rank)
{
    const int slices = q->opened.schema->slices;
    const sheaf_range own = sheaf_owner_slices(slices, tp, rank);
    const int64_t heads = q->opened.config.kv_heads;
    return (load){ own.end - own.begin, heads * own.end / slices - heads * own.begin / slices };
}

/* Does each of tp - 1 ranks have an equal among tp? Then tp ranks need no less. */
static bool holds_as_much(const sheaf__plan_inputs *q, int tp)
{
    for (int r = 0; r < tp - 1; r++) {
        const load one = load_of(q, tp - 1, r);
        int like = 0;
        for (load of; like < tp; like++)
            if ((of = load_of(q, tp, like)).slices >= one.slices && of.heads >= one.heads)
                break;
        if (like == tp)
            return false;
    }
    return true;
}

enum { MOST_FORMS = 4 };

/* Forms of kept activations: as requested, unless the offload excludes it, and less, the fastest
 * first. 8 bits would change the result. */
static int kept_forms(sheaf__kept of[MOST_FORMS], const search *s)
{
    const sheaf_train_options *o = s->requested;
    unsigned offloads = 0;
    int n = 0;
    sheaf_status_free(sheaf__offloads(&offloads, s->q->o.offload)); /* a valid one */
    if (s->q->place_text == NULL && o->kept == SHEAF__KEPT_ALL && !o->kept_given &&
        sheaf__objective_keeps(&s->q->sets.objective, &s->q->o))
        of[n++] = SHEAF__KEPT_PAIRS;
    of[n++] = o->kept;
    if (s->q->place_text != NULL || o->kept == SHEAF__KEPT_INT8 || o->kept == SHEAF__KEPT_NONE)
        return n;
    if (o->kept == SHEAF__KEPT_PAIRS)
        of[(offloads & ~(unsigned)SHEAF__OFFLOADS_MOMENTS) != 0 ? 0 : n++] = SHEAF__KEPT_ALL;
    if (o->kept != SHEAF__KEPT_ATTENTION)
        of[n++] = SHEAF__KEPT_ATTENTION;
    of[n++] = SHEAF__KEPT_NONE;
    return n;
}

/* Where each rank has its own memory, does one rank or do most of them fit with the least kept? */
static sheaf_status *ends_fit(bool *fits, search *s, sheaf__kept least, int64_t micro_batch)
{
    sheaf_train_options *o = &s->q->o;
    const int first = o->tp;
    o->kept = least;
    sheaf_status *st = attempt(fits, s, micro_batch);
    o->tp = s->most;
    if (st == NULL && !*fits && first < s->most)
        st = attempt(fits, s, micro_batch);
    return st;
}

/* Tries ranks upwards, each with all that is kept and with less, at `micro_batch` or the largest
 * below it. */
static sheaf_status *over_ranks(bool *fits, search *s, int64_t micro_batch, bool below)
{
    sheaf_train_options *o = &s->q->o;
    const int first = o->tp;
    sheaf__kept form[MOST_FORMS];
    const int forms = kept_forms(form, s);
    const bool apart = s->slots != NULL && *s->slots == 0; /* each on its own host */
    sheaf_status *st = NULL;
    if (apart) {
        st = ends_fit(fits, s, form[forms - 1], below ? 1 : micro_batch);
        if (st == NULL && !*fits)
            return NULL;
        sheaf_status_free(st); /* what precedes it may fit */
        st = NULL;
    }
    for (int tp = first; tp <= s->most && st == NULL; tp++) {
        if (apart && tp > first && tp < s->most && holds_as_much(s->q, tp))
            continue;
        for (int i = 0; i < forms && st == NULL; i++) {
            int64_t found = 0;
            o->tp = tp;
            o->kept = form[i];
            if (below) {
                st = largest(&found, s, 1, micro_batch - 1);
                *fits = found > 0;
            } else {
                st = attempt(fits, s, micro_batch);
            }
            if (*fits || st != NULL)
                return st;
        }
    }
    return st;
}

/* The same with groups upwards, which share masters and moments. Restores the request if none fits.
 */
static sheaf_status *over_groups(bool *fits, search *s, int64_t micro_batch, bool below)
{
    sheaf_train_options *o = &s->q->o;
    const int first = o->tp, groups = o->dp;
    const bool shares =
        s->slots != NULL && s->q->place_text == NULL && o->method != SHEAF_METHOD_LORA;
    sheaf_status *st = over_ranks(fits, s, micro_batch, below);
    while (st == NULL && !*fits && shares && sheaf__accumulators_of(o) % (2 * o->dp) == 0 &&
           first * 2 * o->dp <= s->all) {
        o->dp *= 2;
        o->tp = first;
        s->most = most_of(s);
        st = over_ranks(fits, s, micro_batch, below);
    }
    if (st == NULL && !*fits) {
        o->dp = groups;
        s->most = o->tp = most_of(s);
    }
    return st;
}

/* All ranks and one row at a time: finds the longest rows that fit. */
static sheaf_status *shorten(bool *fits, search *s)
{
    sheaf__plan_inputs *q = s->q;
    const sheaf__subset train = q->sets.train, eval = q->sets.eval;
    const int64_t requested = q->seq, given = q->o.seq, step = requested > 64 ? 64 : 8;
    int64_t low = 0, high = (requested + step - 1) / step; /* multiples; `high` does not fit */
    sheaf_status *st = NULL;
    *fits = false;
    q->sets.train = q->sets.eval = (sheaf__subset){ 0 }; /* rows of images are longer */
    while (low + 1 < high && st == NULL) {
        const int64_t middle = low + (high - low) / 2;
        bool here = false;
        q->seq = q->o.seq = middle * step;
        st = attempt(&here, s, q->o.micro_batch);
        if (here)
            low = middle;
        else
            high = middle;
    }
    q->seq = low > 0 ? low * step : requested;
    q->o.seq = low > 0 ? q->seq : given;
    if (low == 0) {
        q->sets.train = train;
        q->sets.eval = eval;
    }
    TRY(st, attempt(fits, s, q->o.micro_batch)); /* the plan of that one */
    q->sets.train = train;
    q->sets.eval = eval;
    return st;
}

/* Memory needed with other options and the same open data. False: the options exclude each other.
 */
static bool try_help(size_t *need, const sheaf__plan_inputs *q, const sheaf_train_options *change,
                     const int *slots, const int *hosts)
{
    sheaf__plan_inputs other = { .o = *change,
                                 .positions = q->positions,
                                 .whole = q->whole,
                                 .images_text = q->sets.data == NULL ? q->images_text : NULL,
                                 .warned = true };
    sheaf_plan plan;
    other.o.data = other.o.eval_data = NULL;
    other.o.seq = q->seq;
    if (change->method != q->o.method)
        other.o.train = NULL;
    sheaf_status *st = sheaf__plan_inputs_open(&other, NULL);
    other.o.data = q->o.data;
    other.o.eval_data = q->o.eval_data;
    other.sets = q->sets;
    other.data_bytes = q->data_bytes;
    TRY(st, sheaf__plan_inputs_answer(&plan, &other));
    const bool known = st == NULL;
    if (known)
        *need = need_of(&plan, slots, hosts, other.o.device);
    other.sets = (sheaf__sets){ 0 }; /* borrowed */
    sheaf__plan_inputs_close(&other);
    sheaf_status_free(st);
    return known;
}

static void try_change(sheaf__fit *out, const search *s, const char *flags,
                       sheaf_train_options change)
{
    sheaf__fit_help help = { .flags = flags };
    const bool same = change.transport == s->q->o.transport;
    const int *slots = same ? s->slots : &(int){ 0 }, *hosts = same ? s->hosts : &(int){ 0 };
    if (try_help(&help.need, s->q, &change, slots, hosts))
        out->help[out->nhelps++] = help;
}

/* A quantised base needs less memory, and is another base: suggested, never chosen. `with` is the
 * rest of the setting, which keeps as much as fits. */
static void tell_quantised(sheaf__fit *out, const search *s, sheaf_train_options with, bool one)
{
    static const char *const flags[][2] = {
        [SHEAF__KEPT_ALL] = { "--quantize nf4", "--quantize nf4 on one GPU" },
        [SHEAF__KEPT_PAIRS] = { "--quantize nf4 --keep-activations pairs",
                                "--quantize nf4 --keep-activations pairs on one GPU" },
        [SHEAF__KEPT_ATTENTION] = { "--quantize nf4 --keep-activations attention",
                                    "--quantize nf4 --keep-activations attention on one GPU" },
        [SHEAF__KEPT_INT8] = { "--quantize nf4 --keep-activations int8",
                               "--quantize nf4 --keep-activations int8 on one GPU" },
        [SHEAF__KEPT_NONE] = { "--quantize nf4 --checkpointing",
                               "--quantize nf4 --checkpointing on one GPU" },
    };
    sheaf__kept form[MOST_FORMS];
    const int forms = kept_forms(form, s), before = out->nhelps;
    if (with.method == SHEAF_METHOD_FULL || with.quantize != SHEAF_QUANTIZE_NONE)
        return;
    with.quantize = SHEAF_QUANTIZE_NF4;
    for (int i = 0; i < forms; i++) {
        out->nhelps = before;
        with.kept = form[i];
        try_change(out, s, flags[form[i]][one], with);
        if (out->nhelps > before && out->help[before].need <= s->memory)
            return;
    }
}

/* Likewise moments in 8 bits. */
static void tell_eight_bits(sheaf__fit *out, const search *s)
{
    sheaf_train_options with = s->q->o;
    with.optimizer = SHEAF_OPTIMIZER_ADAMW8BIT;
    if (with.method != SHEAF_METHOD_LORA && s->q->o.optimizer == SHEAF_OPTIMIZER_ADAMW)
        try_change(out, s, "--optimizer adamw8bit", with);
}

/* Nothing fits: finds what would need less. */
static void tell_helps(sheaf__fit *out, const search *s)
{
    const sheaf_train_options o = s->q->o;
    sheaf_train_options with = o;
    tell_quantised(out, s, o, false);
    with.dtype = SHEAF_BF16;
    if (o.dtype == SHEAF_F32)
        try_change(out, s, "--dtype bfloat16", with);
    with = o;
    with.method = SHEAF_METHOD_LORA;
    if (o.method == SHEAF_METHOD_FULL)
        try_change(out, s, "--method lora", with);
    with = o;
    with.tp = 1;
    if (s->slots == NULL && o.tp > 1)
        try_change(out, s, "--tp 1", with);
    with = o;
    with.tp = o.slices;
    with.transport = SHEAF_TRANSPORT_MPI;
    if (s->slots == NULL && o.slices * o.dp <= SHEAF_MAX_SLICES) {
        try_change(out, s, "--transport mpi and a host for each rank of all --slices", with);
    } else if (2 * o.slices * o.dp <= s->all && o.tp == o.slices) {
        with.tp = with.slices = 2 * o.slices;
        with.transport = o.transport;
        try_change(out, s, "twice the --slices and --tp", with);
    }
    with = o;
    with.accumulators = with.dp = 4;
    if (s->slots != NULL && o.method == SHEAF_METHOD_FULL && sheaf__accumulators_of(&o) < 4 &&
        4 * o.tp <= s->all)
        try_change(out, s, "--accumulators 4 --dp 4", with);
}

/* As many rows at once as requested, else fewer. Restores the request, with one row, if none fits.
 */
static sheaf_status *over_batches(bool *fits, search *s)
{
    const sheaf_train_options *requested = s->requested;
    sheaf_train_options *o = &s->q->o;
    const bool trains = s->q->place_text == NULL;
    sheaf_status *st = over_groups(fits, s, requested->micro_batch, false);
    if (st != NULL || *fits || !trains || requested->micro_batch == 1)
        return st;
    o->tp = requested->tp;
    st = over_groups(fits, s, requested->micro_batch, true);
    return st == NULL && !*fits ? attempt(fits, s, 1) : st;
}

/* Offloads, which cost time and change no byte of the result: of weights, moments and activations
 * the largest, by the plan of the smallest setting without; then the next, too. */
static sheaf_status *over_offloads(bool *fits, search *s)
{
    const sheaf_train_options *requested = s->requested;
    sheaf_train_options *o = &s->q->o;
    size_t bytes[3] = { 0 };
    static const sheaf_memory kind[] = { SHEAF_MEM_WEIGHTS, SHEAF_MEM_OPTIMIZER,
                                         SHEAF_MEM_ACTIVATIONS }; /* in the order of their bits */
    unsigned all = 0;
    sheaf_status *st = sheaf__offloads(&all, requested->offload);
    for (int r = 0; r < s->plan->ranks; r++)
        for (int k = 0; k < 3; k++)
            bytes[k] += s->plan->rank[r].bytes[kind[k]];
    while (all != SHEAF__OFFLOADS_ALL && st == NULL && !*fits) {
        int most = -1;
        for (int k = 0; k < 3; k++)
            if ((all & 1u << k) == 0 && (most < 0 || bytes[k] > bytes[most]))
                most = k;
        all |= 1u << most;
        o->offload = sheaf__offloads_text(all);
        o->tp = requested->tp;
        s->most = most_of(s);
        st = over_batches(fits, s);
    }
    return st;
}

/* Would more rows at once fit as well? Fewer passes are faster, if each group still has one. */
static sheaf_status *try_larger(sheaf__fit *out, const search *found)
{
    sheaf__plan_inputs *q = found->q;
    const sheaf_train_options o = q->o;
    const int64_t most = found->rows / o.dp;
    sheaf_plan plan;
    search s = *found;
    s.plan = &plan;
    sheaf_status *st =
        largest(&out->larger_micro_batch, &s, o.micro_batch + 1, most < 1000000 ? most : 1000000);
    q->o = o;
    sheaf__plan_inputs_count(q, found->events);
    return st;
}

sheaf_status *sheaf__fit_find(sheaf__fit *out, sheaf_plan *plan, sheaf__plan_inputs *q,
                              size_t memory, const int *slots, const sheaf_events *events)
{
    int units[SHEAF__UNITS + 1] = { 0 }; /* GPUs that are named; none: each rank has its own */
    sheaf_train_options *o = &q->o;
    const bool trains = q->place_text == NULL, apart = sheaf__fit_apart(o->device);
    for (int i = 0; apart && i < choice_of(o->device).units; i++)
        units[i] = 1;
    const sheaf_train_options requested = *o;
    search s = { .q = q,
                 .requested = &requested,
                 .plan = plan,
                 .events = events,
                 .memory = memory,
                 .slots = slots == NULL && apart ? units : slots,
                 .hosts = slots,
                 .rows = o->micro_batch * o->accumulate };
    *out = (sheaf__fit){ 0 };
    for (const int *n = s.slots; n != NULL && *n > 0; n++)
        s.all += *n;
    if (s.all == 0 || s.all > SHEAF_MAX_SLICES)
        s.all = SHEAF_MAX_SLICES;
    if (apart && s.all < o->tp * o->dp)
        s.all = o->tp * o->dp; /* they share GPUs */
    s.most = most_of(&s);
    sheaf_status *st = over_batches(&out->fits, &s);
    if (st == NULL && !out->fits && trains) {
        st = over_offloads(&out->fits, &s);
        out->offloads = out->fits;
    }
    if (st == NULL && out->fits && trains && o->accumulate > 1)
        st = try_larger(out, &s);
    out->need = st == NULL ? need_of(plan, s.slots, slots, o->device) : 0;
    if (st == NULL && !out->fits && trains && !sheaf__sets_samples(o) &&
        sheaf__image_positions(&q->opened.config) == 0) {
        st = shorten(&out->fits, &s);
        if (out->fits && st == NULL)
            out->need = need_of(plan, s.slots, slots, o->device);
    }
    if (st == NULL && !out->fits && trains)
        tell_helps(out, &s);
    else if (st == NULL && out->offloads) {
        sheaf_train_options without = *o;
        without.offload = requested.offload;
        tell_quantised(out, &s, without, false);
        tell_eight_bits(out, &s);
    } else if (st == NULL && trains && apart && plan->ranks > 1 &&
               requested.tp * requested.dp == 1 && sheaf__fit_gpus(o->device, 2, slots) == 2) {
        tell_quantised(out, &s, requested, true); /* several GPUs are needed */
    }
    return st;
}
