/* sum.c - the sum over slices, and the maximum over ranks, which goes the same way.
 *
 * Every element is combined from the same operands in the same order; the rank that combines it
 * changes no bit. The elements are divided evenly over the ranks:
 *   in place      ranks share memory: each rank reads its share of all operands where
 *                 they lie and writes the result into every rank's output;
 *   by messages   shares travel (all to all), are combined, and the results travel back
 *                 (all gather), a bounded segment at a time: its results with the operands of
 *                 the next one, as every exchange waits for the slowest rank.
 * Where rows belong to ranks, each combines its own, and results stay where they are made. By
 * messages a chain goes from rank to rank instead: parts would travel one by one, as none but the
 * first rank's may be added to each other beforehand. */
#include <assert.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/transport.h"

#define BLOCK 2048 /* floats combined at a time: operands stay in the nearest caches */
#define SEGMENT ((int64_t)1 << 16) /* floats of one share of one message, at most */
#define MAX_SLOTS SHEAF__COMBINING_SLOTS
#define MAX_SENDS 128 /* roots of a rank times its peers; 124 for 63 ranks of 64 slices */
#define LINE 16       /* floats of a cache line: shares begin on one */

typedef void add_fn(float *dst, const float *a, const float *b, int64_t n);

/* An operand of a step: 0 and up is an operand of the sum, ~0 and down a slot. */
#define SLOT(i) (~(i))
#define IN_OUT SHEAF__COMBINED /* destination of the last step's result */

typedef sheaf__combining_step step;

typedef struct combine {
    add_fn *add;
    int operands, steps;
    int owner[SHEAF_MAX_SLICES]; /* rank that holds each operand; ascending */
    step step[SHEAF_MAX_SLICES];
} combine;

/* ---- what is combined with what ---- */

/* Puts the results of a list of additions into as few slots as the order allows. */
static void plan_steps(combine *c, const sheaf_tree_add *add, int count)
{
    int place[SHEAF_MAX_SLICES];
    bool taken[MAX_SLOTS] = { false };
    for (int i = 0; i < c->operands; i++)
        place[i] = i;
    c->steps = count;
    for (int i = 0; i < count; i++) {
        const int a = place[add[i].a], b = place[add[i].b];
        if (a < 0)
            taken[SLOT(a)] = false;
        if (b < 0)
            taken[SLOT(b)] = false;
        int slot = 0;
        while (slot < MAX_SLOTS && taken[slot])
            slot++;
        assert(slot < MAX_SLOTS);
        taken[slot] = true;
        place[add[i].a] = i == count - 1 ? IN_OUT : SLOT(slot);
        c->step[i] = (step){ place[add[i].a], a, b };
    }
}

static void combine_roots(combine *c, const sheaf_tree *tree, add_fn *add)
{
    sheaf_tree_add program[SHEAF_MAX_SLICES];
    c->add = add;
    c->operands = tree->nroots;
    for (int i = 0; i < tree->nroots; i++)
        c->owner[i] = tree->root[i].rank;
    plan_steps(c, program, sheaf_tree_program_roots(tree, program));
}

/* The operands one after the other. */
static void combine_chain(combine *c, int operands, add_fn *add)
{
    sheaf_tree_add program[SHEAF_MAX_SLICES];
    c->add = add;
    c->operands = operands;
    for (int i = 1; i < operands; i++)
        program[i - 1] = (sheaf_tree_add){ 0, i };
    plan_steps(c, program, operands - 1);
}

/* out may be one of the operands. */
static void combine_block(const combine *c, float *out, const float *const *operand, int64_t n)
{
    float slot[MAX_SLOTS][BLOCK];
    if (c->operands == 0)
        memset(out, 0, (size_t)n * sizeof *out);
    else if (c->steps == 0 && out != operand[0])
        memcpy(out, operand[0], (size_t)n * sizeof *out);
    for (int i = 0; i < c->steps; i++) {
        const step *s = &c->step[i];
        c->add(s->to == IN_OUT ? out : slot[SLOT(s->to)],
               s->a < 0 ? slot[SLOT(s->a)] : operand[s->a],
               s->b < 0 ? slot[SLOT(s->b)] : operand[s->b], n);
    }
}

/* How elements are divided over the ranks. */
typedef struct division {
    int64_t n;
    int ranks;
    const int64_t *first; /* [ranks + 1] the first row of each, of `cols` elements, whose results
                             stay with it; NULL: evenly, and all get all */
    int64_t cols;
} division;

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements of a rank: those of its rows, or as even as whole cache lines allow; possibly none. */
static sheaf_range share_of(const division *d, int rank)
{
    if (d->first != NULL)
        return (sheaf_range){ d->first[rank] * d->cols, d->first[rank + 1] * d->cols };
    const int64_t lines = (d->n + LINE - 1) / LINE;
    return (sheaf_range){ least_of(lines * rank / d->ranks * LINE, d->n),
                          least_of(lines * (rank + 1) / d->ranks * LINE, d->n) };
}

/* Segments that a division travels in by messages. */
static int64_t segments_of(const division *d)
{
    int64_t most = (d->n + SEGMENT * d->ranks - 1) / (SEGMENT * d->ranks);
    for (int r = 0; r < d->ranks && d->first != NULL; r++) {
        const sheaf_range share = share_of(d, r);
        const int64_t own = (share.end - share.begin + SEGMENT - 1) / SEGMENT;
        most = r == 0 || own > most ? own : most;
    }
    return most;
}

/* A rank's elements of one of them. */
static sheaf_range segment_of(const division *d, int64_t segment, int rank)
{
    if (d->first != NULL) {
        const sheaf_range share = share_of(d, rank);
        return (sheaf_range){ least_of(share.begin + segment * SEGMENT, share.end),
                              least_of(share.begin + (segment + 1) * SEGMENT, share.end) };
    }
    const int64_t base = segment * SEGMENT * d->ranks;
    const division part = { .n = least_of(d->n - base, SEGMENT * d->ranks), .ranks = d->ranks };
    const sheaf_range share = share_of(&part, rank);
    return (sheaf_range){ base + share.begin, base + share.end };
}

/* ---- in place ---- */

typedef struct in_place {
    const combine *c;
    int outputs; /* that get the result: one's own, or those of all ranks */
    sheaf_range share;
    float *out[SHEAF_MAX_SLICES]; /* one's own first */
    float *operand[SHEAF_MAX_SLICES];
} in_place;

static void in_place_task(void *context, int64_t index, int worker)
{
    const in_place *job = context;
    const int64_t begin = job->share.begin + index * BLOCK;
    const int64_t n = job->share.end - begin < BLOCK ? job->share.end - begin : BLOCK;
    const float *operand[SHEAF_MAX_SLICES];
    for (int i = 0; i < job->c->operands; i++)
        operand[i] = job->operand[i] + begin;
    float *mine = job->out[0] + begin;
    combine_block(job->c, mine, operand, n);
    /* Others may have their output in an operand; all of this block are read by now. */
    for (int r = 1; r < job->outputs; r++)
        memcpy(job->out[r] + begin, mine, (size_t)n * sizeof *mine);
}

static void run_here(int64_t tasks, void (*task)(void *context, int64_t index, int worker),
                     void *context)
{
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t i = 0; i < tasks; i++)
        task(context, i, 0);
    sheaf__compute_mode_leave(mode);
}

/* Done on return. */
static sheaf_status *combine_by(const sheaf_comm *comm, const combine *c, float *const *out,
                                int outputs, const float *const *operand, sheaf_range of)
{
    const sheaf__combining what = { .ranks = outputs,
                                    .operands = c->operands,
                                    .steps = c->steps,
                                    .out = out,
                                    .operand = operand,
                                    .step = c->step,
                                    .begin = of.begin,
                                    .end = of.end };
    sheaf_status *st = comm->mover->combine(comm->moved, &what);
    return sheaf__first_of(st, comm->mover->wait(comm->moved));
}

static sheaf_status *run_in_place(sheaf_comm *comm, in_place *job, const sheaf_comm_adder *how,
                                  sheaf__comm_op op)
{
    const double began = sheaf__seconds();
    const int64_t tasks = (job->share.end - job->share.begin + BLOCK - 1) / BLOCK;
    sheaf_status *st = NULL;
    if (comm->mover != NULL)
        st = combine_by(comm, job->c, job->out, job->outputs, (const float *const *)job->operand,
                        job->share);
    else if (how->run != NULL && tasks > 1)
        how->run(how->pool, tasks, in_place_task, job);
    else
        run_here(tasks, in_place_task, job);
    sheaf__comm_count(comm, op)->summing += sheaf__seconds() - began;
    return st;
}

/* Each rank has posted its output and its operands, in this order. */
static sheaf_status *combine_in_place(sheaf_comm *comm, const combine *c, const division *d,
                                      const sheaf_comm_adder *how, sheaf__comm_op op)
{
    in_place job = { .c = c,
                     .outputs = d->first != NULL ? 1 : comm->ranks,
                     .share = share_of(d, comm->rank) };
    int next = 0;
    for (int r = 0; r < comm->ranks; r++) {
        const sheaf__move *posted = comm->transport->posted(comm, r);
        job.out[(r - comm->rank + comm->ranks) % comm->ranks] = posted[0].bytes;
        for (int i = 1; next < c->operands && c->owner[next] == r; i++)
            job.operand[next++] = posted[i].bytes;
    }
    sheaf_status *st = run_in_place(comm, &job, how, op);
    return sheaf__first_of(st, sheaf__comm_collect(comm, op, NULL, 0));
}

/* ---- by messages ---- */

typedef struct flow {
    sheaf_comm *comm;
    const combine *c;
    const division *d;
    float *out, *const *own; /* this rank's output and operands */
    float *staging;          /* of the others' operands */
    sheaf__move send[MAX_SENDS + 1], receive[2 * SHEAF_MAX_SLICES];
    int nsend, nreceive;
    const float *operand[SHEAF_MAX_SLICES]; /* of this rank's share: own or staged */
} flow;

/* Each rank gets its share of all operands. */
static void move_operands(flow *f, int64_t segment)
{
    const int ranks = f->comm->ranks, rank = f->comm->rank;
    const sheaf_range mine = segment_of(f->d, segment, rank);
    int nown = 0;
    for (int i = 0; i < f->c->operands; i++) {
        if (f->c->owner[i] != rank) {
            float *place = f->staging + (int64_t)i * (SEGMENT + LINE);
            f->receive[f->nreceive++] =
                (sheaf__move){ f->c->owner[i], place,
                               (size_t)(mine.end - mine.begin) * sizeof *place };
            f->operand[i] = place;
            continue;
        }
        float *own = f->own[nown++];
        f->operand[i] = own + mine.begin;
        for (int r = 0; r < ranks; r++) {
            const sheaf_range theirs = segment_of(f->d, segment, r);
            if (r == rank)
                continue;
            assert(f->nsend < MAX_SENDS);
            f->send[f->nsend++] =
                (sheaf__move){ r, own + theirs.begin,
                               (size_t)(theirs.end - theirs.begin) * sizeof *own };
        }
    }
}

/* And all get what each has combined. */
static void move_results(flow *f, int64_t segment)
{
    for (int r = 0; r < f->comm->ranks; r++) {
        const sheaf_range share = segment_of(f->d, segment, r);
        sheaf__move move = { r, f->out + share.begin,
                             (size_t)(share.end - share.begin) * sizeof(float) };
        if (r != f->comm->rank) {
            f->receive[f->nreceive++] = move;
            continue;
        }
        move.peer = SHEAF__ALL;
        f->send[f->nsend++] = move;
    }
}

static sheaf_status *combine_share(const flow *f, int64_t segment)
{
    const sheaf_range mine = segment_of(f->d, segment, f->comm->rank);
    if (f->comm->mover != NULL)
        return combine_by(f->comm, f->c, &(float *){ f->out + mine.begin }, 1, f->operand,
                          (sheaf_range){ 0, mine.end - mine.begin });
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t at = mine.begin; at < mine.end; at += BLOCK) {
        const float *operand[SHEAF_MAX_SLICES];
        for (int i = 0; i < f->c->operands; i++)
            operand[i] = f->operand[i] + (at - mine.begin);
        combine_block(f->c, f->out + at, operand, mine.end - at < BLOCK ? mine.end - at : BLOCK);
    }
    sheaf__compute_mode_leave(mode);
    return NULL;
}

/* At least one, in which all meet; results travel behind the last operands. */
static int64_t exchanges_of(const division *d)
{
    const int64_t segments = segments_of(d);
    return d->first == NULL || segments == 0 ? segments + 1 : segments;
}

static size_t staging_of(int operands)
{
    return (size_t)operands * (size_t)(SEGMENT + LINE);
}

/* In memory of the processor; a mover's kernels read it, too. */
static sheaf_status *reserve_staging(float **out, sheaf_comm *comm, int operands)
{
    const size_t need = staging_of(operands);
    if (comm->mover != NULL) {
        sheaf_status *st = sheaf__comm_pin(comm, need * sizeof **out);
        *out = st == NULL ? (float *)((char *)comm->pinned + sheaf__comm_ring(comm)) : NULL;
        return st;
    }
    *out = comm->staging;
    if (need <= comm->staging_capacity)
        return NULL;
    free(comm->staging);
    comm->staging_capacity = 0;
    comm->staging = malloc(need * sizeof *comm->staging);
    if (comm->staging == NULL)
        return sheaf__no_memory("room for a sum");
    comm->staging_capacity = need;
    *out = comm->staging;
    return NULL;
}

/* Results of a segment travel with the operands of the next one, if they travel. */
static sheaf_status *combine_by_messages(sheaf_comm *comm, const combine *c, const division *d,
                                         float *out, float *const *own, sheaf__heading *heading)
{
    const int64_t segments = segments_of(d), exchanges = exchanges_of(d);
    float *staging;
    sheaf_status *st = reserve_staging(&staging, comm, c->operands);
    for (int64_t i = 0; i < exchanges && st == NULL; i++) {
        flow f = { .comm = comm, .c = c, .d = d, .out = out, .own = own, .staging = staging };
        if (i < segments)
            move_operands(&f, i);
        if (i > 0 && d->first == NULL)
            move_results(&f, i - 1);
        st = i == 0 ? sheaf__comm_enter(comm, heading, f.send, f.nsend)
                    : sheaf__comm_again(comm, heading, f.send, f.nsend);
        TRY(st, sheaf__comm_collect(comm, heading->op, f.receive, f.nreceive));
        if (st == NULL && i < segments) {
            const double began = sheaf__seconds();
            st = combine_share(&f, i);
            sheaf__comm_count(comm, heading->op)->summing += sheaf__seconds() - began;
        }
    }
    return st;
}

/* ---- the calls ---- */

/* Elements that a rank sums when they travel by messages, all segments together: of whole ones it
 * sums as many as every other. */
static int64_t summed_by(const division *d, int rank)
{
    const int64_t whole = d->first != NULL ? 0 : d->n / (SEGMENT * d->ranks);
    const sheaf_range rest = d->first != NULL ? share_of(d, rank) : segment_of(d, whole, rank);
    return whole * SEGMENT + rest.end - rest.begin;
}

/* Counts the bytes that messages would have, where ranks see each other's memory or none is there.
 */
static void count_unsent(sheaf_comm *comm, const combine *c, const division *d, sheaf__comm_op op)
{
    int own[SHEAF_MAX_SLICES] = { 0 };
    sheaf__count *count = sheaf__comm_count(comm, op);
    const int64_t mine = summed_by(d, comm->rank);
    const bool all = d->first == NULL;
    for (int i = 0; i < c->operands; i++)
        own[c->owner[i]]++;
    for (int r = 0; r < comm->ranks; r++) {
        if (r == comm->rank)
            continue;
        const int64_t theirs = summed_by(d, r);
        const uint64_t to = sizeof(float) * (uint64_t)(own[comm->rank] * theirs + (all ? mine : 0)),
                       from = sizeof(float) * (uint64_t)(own[r] * mine + (all ? theirs : 0));
        comm->counters.to[r] += to;
        comm->counters.from[r] += from;
        count->sent += to;
        count->received += from;
    }
}

static sheaf_status *combine_all(sheaf_comm *comm, const combine *c, const division *d, float *out,
                                 float *const *own, int nown, const sheaf_comm_adder *how,
                                 sheaf__heading *heading)
{
    const sheaf__comm_op op = heading->op;
    const bool counts_only = comm->transport->counts_only;
    if (comm->ranks > 1 && (counts_only || comm->transport->posted != NULL))
        count_unsent(comm, c, d, op);
    else if (comm->ranks > 1)
        return combine_by_messages(comm, c, d, out, own, heading);
    sheaf__move lend[SHEAF_MAX_SLICES + 1] = { { SHEAF__ALL, out, (size_t)d->n * sizeof *out } };
    for (int i = 0; i < nown; i++)
        lend[i + 1] = (sheaf__move){ SHEAF__ALL, own[i], (size_t)d->n * sizeof *out };
    sheaf_status *st = sheaf__comm_enter(comm, heading, lend, counts_only ? 0 : nown + 1);
    if (st != NULL)
        return st;
    if (counts_only) { /* the first was counted */
        sheaf__comm_would_pin(comm, staging_of(c->operands) * sizeof(float));
        sheaf__comm_count(comm, op)->exchanges += (uint64_t)(exchanges_of(d) - 1);
        return NULL;
    }
    if (comm->ranks > 1)
        return combine_in_place(comm, c, d, how, op);
    combine_block(c, out, (const float *const *)own, d->n); /* one operand, or none */
    return NULL;
}

static uint64_t digest_tree(const sheaf_tree *tree, int64_t rows, int64_t cols,
                            const int64_t *first)
{
    uint64_t present = 0;
    for (int s = 0; s < tree->slices; s++)
        present |= (uint64_t)tree->present[s] << s;
    uint64_t digest = sheaf__comm_digest(0, (uint64_t)tree->slices);
    digest = sheaf__comm_digest(digest, present);
    digest = sheaf__comm_digest(digest, (uint64_t)rows);
    digest = sheaf__comm_digest(digest, (uint64_t)cols);
    for (int r = 0; r <= tree->ranks && first != NULL; r++)
        digest = sheaf__comm_digest(digest, (uint64_t)first[r]);
    return digest;
}

sheaf_status *sheaf_comm_sum(sheaf_comm *comm, const sheaf_tree *tree, float *out,
                             float *const *roots, int64_t rows, int64_t cols, const int64_t *first,
                             const sheaf_comm_adder *adder)
{
    if (tree->ranks != comm->ranks) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "sum over slices");
        sheaf_expected(st, "a tree for %d ranks", comm->ranks);
        return sheaf_found(st, "one for %d", tree->ranks);
    }
    combine c = { 0 };
    int nown;
    sheaf_tree_own(tree, comm->rank, &nown);
    combine_roots(&c, tree, adder->add);
    sheaf__heading heading = { .op = SHEAF__OP_SUM,
                               .size = (uint64_t)rows * (uint64_t)cols * sizeof(float),
                               .digest = digest_tree(tree, rows, cols, first) };
    const division d = { rows * cols, comm->ranks, first, cols };
    return sheaf__comm_left(comm, combine_all(comm, &c, &d, out, roots, nown, adder, &heading));
}

/* ---- a chain ---- */

/* The parts of each rank, as far as they can be reached. */
typedef struct chain {
    const int64_t *first;
    int64_t n;
    float *part[SHEAF_MAX_SLICES];
} chain;

/* The parts of ranks [begin, end), behind the sum of those before them in job->out. */
static sheaf_status *add_parts(sheaf_comm *comm, const chain *of, in_place *job, int begin, int end,
                               const sheaf_comm_adder *how)
{
    const int outputs = job->outputs;
    const int64_t last = of->first[end];
    sheaf_status *st = NULL;
    for (int64_t i = of->first[begin]; i < last && st == NULL;) {
        combine c = { 0 };
        int operands = 0;
        if (i > 0)
            job->operand[operands++] = job->out[0];
        for (int r = begin; r < end; r++)
            for (; i >= of->first[r] && i < of->first[r + 1] && operands < SHEAF_MAX_SLICES; i++)
                job->operand[operands++] =
                    of->part[r] + (i - of->first[r]) * sheaf_comm_part(of->n);
        combine_chain(&c, operands, how->add);
        job->c = &c;
        job->outputs = i < last ? 1 : outputs;
        st = run_in_place(comm, job, how, SHEAF__OP_SUM);
    }
    return st;
}

/* Hops of a piece: up to the last rank, which has the sum then, and as far again but for two of
 * them, until all have it. Hop h is from rank h % ranks to the next. In every exchange each piece
 * is a hop behind the one before it. */
static int hops_of(int ranks)
{
    return 2 * ranks - 2;
}

static int exchanges_of_chain(int ranks)
{
    return hops_of(ranks) + ranks - 1;
}

/* Moves of the pieces that leave rank `from` in an exchange, to or from `peer`. */
static int hops_from(sheaf__move *move, float *out, const chain *of, int ranks, int exchange,
                     int from, int peer)
{
    const division d = { .n = of->n, .ranks = ranks };
    int count = 0;
    for (int hop = from; hop < hops_of(ranks); hop += ranks) {
        const int piece = exchange - hop;
        if (piece < 0 || piece >= ranks)
            continue;
        const sheaf_range share = share_of(&d, piece);
        move[count++] = (sheaf__move){ peer, out + share.begin,
                                       (size_t)(share.end - share.begin) * sizeof *out };
    }
    return count;
}

static sheaf_status *chain_by_messages(sheaf_comm *comm, const chain *of, float *out,
                                       const sheaf_comm_adder *how, sheaf__heading *heading)
{
    const int rank = comm->rank, ranks = comm->ranks, next = (rank + 1) % ranks,
              before = (rank + ranks - 1) % ranks;
    const division d = { .n = of->n, .ranks = ranks };
    const combine none = { .add = how->add };
    in_place job = { .c = &none, .outputs = 1, .out = { out }, .share = { 0, of->n } };
    sheaf_status *st = NULL;
    if (rank == 0 && comm->mover != NULL)
        st = comm->mover->lend(comm->moved);
    if (rank == 0 && of->first[1] > 0)
        TRY(st, add_parts(comm, of, &job, 0, 1, how));
    else if (rank == 0) /* zeros are sent, which nobody adds */
        TRY(st, run_in_place(comm, &job, how, SHEAF__OP_SUM));
    for (int i = 0; i < exchanges_of_chain(ranks) && st == NULL; i++) {
        sheaf__move send[2], receive[2];
        const int nsend = hops_from(send, out, of, ranks, i, rank, next),
                  nreceive = hops_from(receive, out, of, ranks, i, before, before),
                  piece = i - before; /* that has come for the first time */
        st = i == 0 ? sheaf__comm_enter(comm, heading, send, nsend)
                    : sheaf__comm_again(comm, heading, send, nsend);
        TRY(st, sheaf__comm_collect(comm, heading->op, receive, nreceive));
        if (rank == 0 || piece < 0 || piece >= ranks)
            continue;
        job.share = share_of(&d, piece);
        TRY(st, add_parts(comm, of, &job, rank, rank + 1, how));
    }
    return st;
}

/* As count_unsent(). */
static void count_hops(sheaf_comm *comm, int64_t n)
{
    const int ranks = comm->ranks, next = (comm->rank + 1) % ranks,
              before = (comm->rank + ranks - 1) % ranks;
    sheaf__count *count = sheaf__comm_count(comm, SHEAF__OP_SUM);
    const uint64_t one = (uint64_t)n * sizeof(float), to = one * (comm->rank < ranks - 2 ? 2 : 1),
                   from = one * (before < ranks - 2 ? 2 : 1);
    comm->counters.to[next] += to;
    comm->counters.from[before] += from;
    count->sent += to;
    count->received += from;
}

/* Each rank adds its share of all. */
static sheaf_status *chain_in_place(sheaf_comm *comm, chain *of, float *out,
                                    const sheaf_comm_adder *how, sheaf__heading *heading)
{
    const int rank = comm->rank, ranks = comm->ranks;
    const bool counts_only = comm->transport->counts_only;
    const division d = { .n = of->n, .ranks = ranks };
    in_place job = { .outputs = ranks, .share = share_of(&d, rank) };
    const size_t bytes = (size_t)of->n * sizeof *out;
    const sheaf__move lend[] = { { SHEAF__ALL, out, bytes },
                                 { SHEAF__ALL, of->part[rank], bytes } };
    count_hops(comm, of->n);
    sheaf_status *st = sheaf__comm_enter(comm, heading, lend, counts_only ? 0 : 2);
    if (counts_only)
        sheaf__comm_count(comm, heading->op)->exchanges +=
            (uint64_t)(exchanges_of_chain(ranks) - 1);
    if (st != NULL || counts_only)
        return st;
    for (int r = 0; r < ranks; r++) {
        const sheaf__move *posted = comm->transport->posted(comm, r);
        job.out[(r - rank + ranks) % ranks] = posted[0].bytes;
        of->part[r] = posted[1].bytes;
    }
    st = add_parts(comm, of, &job, 0, ranks, how);
    return sheaf__first_of(st, sheaf__comm_collect(comm, heading->op, NULL, 0));
}

sheaf_status *sheaf_comm_chain(sheaf_comm *comm, float *out, float *part, const int64_t *first,
                               int64_t n, const sheaf_comm_adder *adder)
{
    sheaf__heading heading = { .op = SHEAF__OP_SUM, .size = (uint64_t)n * sizeof(float) };
    chain of = { .first = first, .n = n };
    of.part[comm->rank] = part;
    for (int r = 0; r <= comm->ranks; r++)
        heading.digest = sheaf__comm_digest(heading.digest, (uint64_t)first[r]);
    if (first[comm->ranks] == 0)
        return NULL;
    const bool messages = !comm->transport->counts_only && comm->transport->posted == NULL;
    return sheaf__comm_left(comm, messages ? chain_by_messages(comm, &of, out, adder, &heading)
                                           : chain_in_place(comm, &of, out, adder, &heading));
}

/* Adding 0 under DAZ and FTZ makes -0 and denormals +0. */
static void max_of(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = a[i], y = b[i];
        const float most = (x > y ? x : y) + 0.0f;
        dst[i] = x != x || y != y ? __builtin_nanf("") : most;
    }
}

sheaf_status *sheaf_comm_max(sheaf_comm *comm, float *x, int64_t n)
{
    const sheaf_comm_adder how = { .add = max_of };
    sheaf__heading heading = { .op = SHEAF__OP_MAX, .size = (uint64_t)n * sizeof *x };
    combine c = { 0 };
    for (int r = 0; r < comm->ranks; r++)
        c.owner[r] = r;
    combine_chain(&c, comm->ranks, max_of);
    const division d = { .n = n, .ranks = comm->ranks };
    sheaf_status *st = combine_all(comm, &c, &d, x, &x, 1, &how, &heading);
    if (st == NULL && comm->ranks == 1) {
        const unsigned mode = sheaf__compute_mode_enter();
        max_of(x, x, x, n);
        sheaf__compute_mode_leave(mode);
    }
    return sheaf__comm_left(comm, st);
}
