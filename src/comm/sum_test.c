/* sum_test.c - the sum over slices gives the bytes of its definition, a recursion on
 * [b, e), at every number of ranks, in place and by messages; small sums are quick
 * even with more ranks than cores. */
#include "tests/check.h"

#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "base/thread.h"
#include "tests/comm_run.h"
#include "tests/far_mover.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void plain_add(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

/* Runs tasks backwards: their order must not matter. */
static void run_backwards(void *pool, int64_t tasks, void (*task)(void *, int64_t, int),
                          void *context)
{
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t i = tasks; i-- > 0;)
        task(context, i, 0);
    ++*(int *)pool;
    sheaf__compute_mode_leave(mode);
}

typedef struct sum_case {
    int slices;
    bool present[SHEAF_MAX_SLICES];
    int64_t rows, cols;
    uint64_t seed;
    bool alias; /* out is roots[0] where a rank has one */
    bool pooled;
    bool moved;  /* by a mover */
    bool owned;  /* each rank gets rows of its own */
    float *want; /* [rows, cols] */
} sum_case;

/* Magnitudes differ so that any other order of additions shows; some elements are
 * denormal in all slices. */
static float value_of(const sum_case *c, int slice, int64_t element)
{
    const uint64_t r = mix(mix(c->seed + (uint64_t)slice) + (uint64_t)element);
    if (element % 11 != 3)
        return ldexpf((float)(int64_t)(r % 2000001 - 1000000), (int)(r >> 40 & 15) - 20);
    const uint32_t denormal = (uint32_t)r & 0x807fffffu;
    float x;
    memcpy(&x, &denormal, sizeof x);
    return x;
}

static bool define(float *sum, const sum_case *c, int begin, int end)
{
    const int64_t n = c->rows * c->cols;
    if (end - begin == 1) {
        for (int64_t i = 0; i < n; i++)
            sum[i] = value_of(c, begin, i);
        return c->present[begin];
    }
    const int mid = begin + (end - begin) / 2;
    float *right = calloc((size_t)n + 1, sizeof *right);
    const bool a = define(sum, c, begin, mid), b = define(right, c, mid, end);
    if (a && b)
        plain_add(sum, sum, right, n);
    else if (b)
        memcpy(sum, right, (size_t)n * sizeof *sum);
    free(right);
    return a || b;
}

static void fill_want(sum_case *c)
{
    const int64_t n = c->rows * c->cols;
    const unsigned mode = sheaf__compute_mode_enter();
    c->want = calloc((size_t)n + 1, sizeof *c->want);
    if (!define(c->want, c, 0, c->slices))
        memset(c->want, 0, (size_t)n * sizeof *c->want);
    sheaf__compute_mode_leave(mode);
}

/* As matmul: the complete subtrees of this rank. */
static void fill_root(float *to, const sum_case *c, const sheaf_tree *tree, const sheaf_root *root)
{
    const int64_t n = c->rows * c->cols;
    sheaf_tree_add add[SHEAF_MAX_SLICES];
    float acc[SHEAF_MAX_SLICES];
    int result;
    const int count = sheaf_tree_program_slices(tree, root, add, &result);
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t i = 0; i < n; i++) {
        for (int s = root->begin; s < root->end; s++)
            acc[s - root->begin] = value_of(c, s, i);
        for (int j = 0; j < count; j++)
            plain_add(&acc[add[j].a], &acc[add[j].a], &acc[add[j].b], 1);
        /* A lone denormal is no sum yet: it stays until something is added to it. */
        to[i] = acc[result];
    }
    sheaf__compute_mode_leave(mode);
}

static sheaf_status *check_bytes(const char *what, const sheaf_comm *comm, const void *got,
                                 const void *want, size_t size)
{
    const unsigned char *a = got, *b = want;
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i])
            return sheaf_found(sheaf_fail(SHEAF_E_NUMBER, "%s, rank %d of %d", what,
                                          sheaf_comm_rank(comm), sheaf_comm_ranks(comm)),
                               "byte %zu of %zu differs", i, size);
    return NULL;
}

static sheaf_status *sum_far(sheaf_comm *comm, const sheaf_tree *tree, float *out,
                             float *const *roots, int count, const sum_case *c,
                             const int64_t *rows_of, const sheaf_comm_adder *adder)
{
    far_memory memory = { 0 };
    float *far[SHEAF_MAX_SLICES];
    const bool sees = sheaf_comm_sees_memory(comm);
    for (int i = 0; i < count; i++)
        far[i] = far_of(roots[i]);
    sheaf_comm_move_by(comm, &far_mover, &memory);
    sheaf_status *st = sheaf_comm_sum(comm, tree, far_of(out), count > 0 ? far : NULL, c->rows,
                                      c->cols, rows_of, adder);
    sheaf_comm_move_by(comm, NULL, NULL);
    if (st == NULL && (memory.lent != 1 || (sees && (memory.waited != 1 || memory.moved != 1))))
        st = sheaf_fail(SHEAF_E_NUMBER, "the mover lent %d times, waited %d", memory.lent,
                        memory.waited);
    far_release(&memory);
    return st;
}

static sheaf_status *sum_body(void *context, sheaf_comm *comm)
{
    const sum_case *c = context;
    const int64_t n = c->rows * c->cols;
    sheaf_tree tree;
    sheaf_tree_init(&tree, c->slices, sheaf_comm_ranks(comm), c->present);
    int count, pooled = 0;
    const int first = sheaf_tree_own(&tree, sheaf_comm_rank(comm), &count);
    float *roots[SHEAF_MAX_SLICES];
    for (int i = 0; i < count; i++) {
        roots[i] = malloc((size_t)(n + 1) * sizeof(float));
        fill_root(roots[i], c, &tree, &tree.root[first + i]);
    }
    float *spare = malloc((size_t)(n + 1) * sizeof *spare);
    float *out = c->alias && count > 0 ? roots[0] : spare;
    out[n] = 12345; /* a guard */
    const sheaf_comm_adder adder = { plain_add, c->pooled ? run_backwards : NULL, &pooled };
    int64_t rows_of[SHEAF_MAX_SLICES + 1] = { 0 }, begin = 0, end = n;
    for (int r = 0, ranks = sheaf_comm_ranks(comm); c->owned && r < ranks; r++)
        rows_of[r + 1] = r + 1 == ranks ? c->rows : c->rows * (r + 1) * (r + 1) / ranks / ranks;
    if (c->owned) {
        begin = rows_of[sheaf_comm_rank(comm)] * c->cols;
        end = rows_of[sheaf_comm_rank(comm) + 1] * c->cols;
    }
    const int64_t *owned = c->owned ? rows_of : NULL;
    const bool moved = c->moved && sheaf_comm_ranks(comm) > 1;
    sheaf_status *st = moved ? sum_far(comm, &tree, out, roots, count, c, owned, &adder)
                             : sheaf_comm_sum(comm, &tree, out, count > 0 ? roots : NULL, c->rows,
                                              c->cols, owned, &adder);
    TRY(st, check_bytes("sum", comm, out + begin, c->want + begin,
                        (size_t)(end - begin) * sizeof *out));
    if (st == NULL && out[n] != 12345)
        st = sheaf_fail(SHEAF_E_NUMBER, "written behind the end");
    if (st == NULL && comm->transport->posted != NULL && c->pooled && !c->moved &&
        end - begin >= 4096 * (c->owned ? 1 : sheaf_comm_ranks(comm)) && pooled != 1)
        st = sheaf_fail(SHEAF_E_NUMBER, "the rank's threads were not used");
    for (int i = 0; i < count; i++)
        free(roots[i]);
    free(spare);
    return st;
}

static void check_case(sum_case *c)
{
    fill_want(c);
    for (int ranks = 1; ranks <= (c->slices < 9 ? c->slices : 9); ranks++)
        for (int how = 0; how < 6; how++) { /* in place, by messages, by a mover; to owners */
            c->moved = how % 3 == 2;
            c->owned = how >= 3;
            CHECK_OK(run_ranks(ranks, how % 3 == 1 || (c->moved && ranks % 2 == 0), sum_body, c));
        }
    free(c->want);
}

static void test_sum__same_bytes_at_every_T(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 1, 4099 }, { 3, 5 },    { 5, 0 },
                                         { 0, 7 }, { 7, 1 },    { 33, 129 }, { 2, 16 } };
    uint64_t seed = 1;
    for (int slices = 1; slices <= SHEAF_MAX_SLICES; slices *= 2)
        for (int trial = 0; trial < 9; trial += every(2)) {
            const int64_t *shape = shapes[(trial + slices) % (int)ARRAY_LEN(shapes)];
            sum_case c = { .slices = slices,
                           .rows = shape[0],
                           .cols = shape[1],
                           .seed = mix(++seed),
                           .alias = trial % 2,
                           .pooled = trial % 3 == 0 };
            for (int s = 0; s < slices; s++)
                c.present[s] = trial == 0 || (trial != 1 && mix(c.seed + (uint64_t)s * 77) % 4 <
                                                                (uint64_t)(trial % 5));
            check_case(&c);
        }
}

static void test_sum__eight_full_slices_of_odd_sizes(void **state)
{
    static const int64_t sizes[] = { 1, 2, 15, 16, 17, 100, 127, 2047, 2048, 2049, 16385, 70001 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i += (size_t)every(2)) {
        sum_case c = { .slices = 8,
                       .rows = 1,
                       .cols = sizes[i],
                       .seed = mix(i),
                       .alias = i % 2,
                       .pooled = i % 2 };
        memset(c.present, true, sizeof c.present);
        check_case(&c);
    }
}

/* Larger than one segment of messages, at more ranks than slices are aligned to. */
static void test_sum__many_segments(void **state)
{
    sum_case c = { .slices = 8, .rows = 3, .cols = 100003, .seed = 5 };
    memset(c.present, true, sizeof c.present);
    c.present[2] = c.present[7] = false;
    fill_want(&c);
    for (int ranks = 1; ranks <= 8; ranks += every(3))
        for (int how = 0; how < 6; how++) {
            c.moved = how % 3 == 2;
            c.owned = how >= 3;
            CHECK_OK(run_ranks(ranks, how % 3 > 0, sum_body, &c));
        }
    free(c.want);
}

static void test_sum__sixty_four_ranks(void **state)
{
    sum_case c = { .slices = 64, .rows = 2, .cols = 1111, .seed = 6 };
    for (int s = 0; s < 64; s++)
        c.present[s] = s % 5 != 0;
    fill_want(&c);
    for (int ranks = 33; ranks <= 64; ranks += 10 + (ranks == 53))
        for (int messages = 0; messages < 2; messages++)
            CHECK_OK(run_ranks(ranks, messages, sum_body, &c));
    CHECK_OK(run_ranks(63, true, sum_body, &c)); /* most pieces sent by one rank */
    free(c.want);
}

/* ---- a chain ---- */

typedef struct chain_case {
    int64_t n, parts;
    bool moved; /* as of a sum */
    float *want;
} chain_case;

/* Rank r's parts: the even ranks have two thirds of them. */
static void share_parts(int64_t *first, int64_t parts, int ranks)
{
    const int64_t shares = ranks + (ranks + 1) / 2;
    first[0] = 0;
    for (int r = 0; r < ranks; r++)
        first[r + 1] = parts * (r + 1 + (r + 2) / 2) / shares;
}

static sheaf_status *chain_body(void *context, sheaf_comm *comm)
{
    const chain_case *c = context;
    const sum_case values = { .seed = 77 };
    const int rank = sheaf_comm_rank(comm);
    const int64_t apart = sheaf_comm_part(c->n);
    int64_t first[SHEAF_MAX_SLICES + 1];
    share_parts(first, c->parts, sheaf_comm_ranks(comm));
    const int64_t mine = first[rank + 1] - first[rank];
    float *part = calloc((size_t)(mine * apart) + 1, sizeof *part),
          *out = calloc((size_t)c->n + 1, sizeof *out);
    for (int64_t p = 0; p < mine; p++)
        for (int64_t i = 0; i < c->n; i++)
            part[p * apart + i] = value_of(&values, (int)(first[rank] + p), i);
    const sheaf_comm_adder adder = { .add = plain_add };
    far_memory memory = { 0 };
    if (c->moved)
        sheaf_comm_move_by(comm, &far_mover, &memory);
    sheaf_status *st = c->moved
                           ? sheaf_comm_chain(comm, far_of(out), far_of(part), first, c->n, &adder)
                           : sheaf_comm_chain(comm, out, part, first, c->n, &adder);
    sheaf_comm_move_by(comm, NULL, NULL);
    far_release(&memory);
    TRY(st, check_bytes("chain", comm, out, c->want, (size_t)c->n * sizeof *out));
    free(part);
    free(out);
    return st;
}

/* Also with more parts than one exchange takes, and with ranks that have none. */
static void test_chain__parts_in_their_order(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 },   { 5, 2 },      { 33, 7 }, { 4099, 16 },
                                         { 17, 64 }, { 20001, 65 }, { 7, 200 } };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const sum_case values = { .seed = 77 };
        chain_case c = { .n = shapes[i][0], .parts = shapes[i][1] };
        const unsigned mode = sheaf__compute_mode_enter();
        c.want = calloc((size_t)c.n, sizeof *c.want);
        for (int64_t e = 0; e < c.n; e++) {
            c.want[e] = value_of(&values, 0, e);
            for (int p = 1; p < c.parts; p++)
                c.want[e] += value_of(&values, p, e);
        }
        sheaf__compute_mode_leave(mode);
        static const int ranks[] = { 2, 3, 8, 64 };
        for (size_t r = 0; r < ARRAY_LEN(ranks) - (c.n > 5000); r++)
            for (int how = 0; how < 3; how++) {
                c.moved = how == 2;
                CHECK_OK(run_ranks(ranks[r], how == 1, chain_body, &c));
            }
        free(c.want);
    }
}

/* ---- bytes sent ---- */

static sheaf_status *sent_body(void *context, sheaf_comm *comm)
{
    double *sent = context;
    sheaf_tree tree;
    sheaf_tree_init(&tree, 8, sheaf_comm_ranks(comm), NULL);
    float value[8][80] = { { 0 } }, *roots[8], out[80];
    for (int i = 0; i < 8; i++)
        roots[i] = value[i];
    const sheaf_comm_adder adder = { .add = plain_add };
    sheaf_status *st = sheaf_comm_sum(comm, &tree, out, roots, 1, 80, NULL, &adder);
    sent[sheaf_comm_rank(comm)] = (double)sheaf__counters_all(sheaf_comm_counters(comm)).sent;
    return st;
}

/* 80 floats of 8 slices: each root but the summer's own share of it travels, then each
 * share of the result to all others. Shares are whole lines of 16 floats. */
static void test_sum__bytes_sent(void **state)
{
    static const struct {
        int ranks;
        double sent[3];
    } want[] = {
        { 1, { 0 } },
        { 2, { 4 * (48 + 32), 4 * (32 + 48) } }, /* shares 32, 48; one root each */
        { 3,
          { 4 * (64 + 32), 4 * (96 + 64), 4 * (96 + 64) } }, /* shares 16, 32, 32; 1, 2, 2 roots */
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        double sent[8] = { 0 };
        CHECK_OK(sheaf_comm_run_threads(want[i].ranks, sent_body, sent));
        for (int r = 0; r < want[i].ranks; r++)
            CHECK_NEAR("sent", sent[r], want[i].sent[r], 0);
    }
}

/* Counters of a sum of `n` numbers, in place, by messages and on the planner's group. */
typedef struct counted {
    int64_t n;
    sheaf__counters of[8];
} counted;

static sheaf_status *counted_body(void *context, sheaf_comm *comm)
{
    counted *c = context;
    sheaf_tree tree;
    sheaf_tree_init(&tree, 8, sheaf_comm_ranks(comm), NULL);
    float *roots[8] = { NULL };
    for (int i = 0; i < 8; i++)
        roots[i] = calloc((size_t)c->n + 1, sizeof **roots);
    const sheaf_comm_adder adder = { .add = plain_add };
    sheaf_status *st = sheaf_comm_sum(comm, &tree, roots[0], roots, 1, c->n, NULL, &adder);
    TRY(st, sheaf_comm_max(comm, roots[0], c->n));
    int64_t first[9];
    share_parts(first, 70, sheaf_comm_ranks(comm));
    float *part = calloc((size_t)(70 * (c->n + 4)), sizeof *part);
    if (sheaf_comm_ranks(comm) > 1)
        TRY(st, sheaf_comm_chain(comm, roots[0], part, first, c->n, &adder));
    free(part);
    for (int i = 0; i < 8; i++)
        free(roots[i]);
    c->of[sheaf_comm_rank(comm)] = *sheaf_comm_counters(comm);
    return st;
}

static void check_counted(const counted *a, const counted *b, int ranks, bool exchanges)
{
    for (int r = 0; r < ranks; r++) {
        const sheaf__count x = sheaf__counters_all(&a->of[r]), y = sheaf__counters_all(&b->of[r]);
        CHECK_NEAR("calls", (double)x.calls, (double)y.calls, 0);
        CHECK_NEAR("sent", (double)x.sent, (double)y.sent, 0);
        CHECK_NEAR("received", (double)x.received, (double)y.received, 0);
        assert_memory_equal(a->of[r].to, b->of[r].to, sizeof a->of[r].to);
        assert_memory_equal(a->of[r].from, b->of[r].from, sizeof a->of[r].from);
        if (exchanges)
            CHECK_NEAR("exchanges", (double)x.exchanges, (double)y.exchanges, 0);
        for (int p = 0; p < ranks; p++)
            assert_true(a->of[r].to[p] == a->of[p].from[r]);
    }
}

/* The bytes of messages, in one segment and in several, are those counted without messages. */
static void test_sum__counts_the_same_however_it_is_made(void **state)
{
    /* 65536 * 2 fills the segments of two ranks, of one rank two */
    static const int64_t sizes[] = { 0, 1, 80, 65536 * 2, 65536 * 2 + 17 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int ranks = 1; ranks <= 8; ranks += ranks > 2 ? 5 : 1) {
            counted way[3] = { { sizes[i] }, { sizes[i] }, { sizes[i] } };
            CHECK_OK(sheaf__run_threads(ranks, true, counted_body, &way[0]));
            CHECK_OK(sheaf__run_threads(ranks, false, counted_body, &way[1]));
            for (int r = 0; r < ranks && ranks > 1; r++) {
                sheaf_comm *comm = NULL;
                CHECK_OK(sheaf_comm_dry_new(&comm, r, ranks));
                CHECK_OK(counted_body(&way[2], comm));
                sheaf_comm_dry_free(comm);
                const sheaf__count all = sheaf__counters_all(&way[2].of[r]);
                CHECK_NEAR("it waits for nobody", all.waiting + all.moving, 0, 0);
            }
            check_counted(&way[0], &way[1], ranks, false);
            if (ranks > 1)
                check_counted(&way[0], &way[2], ranks, true);
        }
}

/* ---- cost ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct cost {
    int times;
    int64_t n;
    double seconds;
} cost;

static sheaf_status *cost_body(void *context, sheaf_comm *comm)
{
    cost *c = context;
    sheaf_tree tree;
    sheaf_tree_init(&tree, 8, sheaf_comm_ranks(comm), NULL);
    int count;
    sheaf_tree_own(&tree, sheaf_comm_rank(comm), &count);
    float *roots[8];
    for (int i = 0; i < count; i++) {
        roots[i] = malloc((size_t)c->n * sizeof(float));
        for (int64_t j = 0; j < c->n; j++)
            roots[i][j] = (float)(j % 7);
    }
    const sheaf_comm_adder adder = { .add = plain_add };
    sheaf_status *st = sheaf_comm_barrier(comm);
    const double begin = now();
    for (int i = 0; i < c->times && st == NULL; i++)
        st = sheaf_comm_sum(comm, &tree, roots[0], roots, 1, c->n, NULL, &adder);
    if (sheaf_comm_rank(comm) == 0)
        c->seconds = now() - begin;
    for (int i = 0; i < count; i++)
        free(roots[i]);
    return st;
}

static void test_sum__small_sums_are_quick_with_more_ranks_than_cores(void **state)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        cost c = { .times = 10000, .n = 1024 };
        /* A tenth of a second; minutes where ranks that wait keep the core. A machine busy with
         * something else may take longer once, not each time. */
        for (int attempt = 0; attempt == 0 || (c.seconds >= 10 && attempt < 4); attempt++)
            CHECK_OK(sheaf_comm_run_threads(ranks, cost_body, &c));
        print_message("T=%d: %.1f us for a sum of 1024\n", ranks, c.seconds / c.times * 1e6);
        assert_true(c.seconds < 10);
        cost big = { .times = 3, .n = (int64_t)1 << 21 };
        CHECK_OK(sheaf_comm_run_threads(ranks, cost_body, &big));
        print_message("T=%d: %.2f GB/s of result for a sum of 8 MiB\n", ranks,
                      (double)big.n * 4 * big.times / big.seconds * 1e-9);
    }
}

int main(void)
{
    alarm(120); /* nothing here may hang */
    const bool processes = meet_for_test();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum__same_bytes_at_every_T),
        cmocka_unit_test(test_sum__eight_full_slices_of_odd_sizes),
        cmocka_unit_test(test_sum__many_segments),
    }, of_threads[] = { /* they need more ranks, or one memory */
        cmocka_unit_test(test_sum__sixty_four_ranks),
        cmocka_unit_test(test_chain__parts_in_their_order),
        cmocka_unit_test(test_sum__bytes_sent),
        cmocka_unit_test(test_sum__counts_the_same_however_it_is_made),
        cmocka_unit_test(test_sum__small_sums_are_quick_with_more_ranks_than_cores),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (processes ? 0 : cmocka_run_group_tests(of_threads, NULL, NULL));
}
