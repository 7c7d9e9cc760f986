/* trained_test.c - sums of gradients over accumulators, and the norm of them. */
#include "tests/check.h"

#include "comm/grid.h"
#include "tape/moments.h"
#include "tape/trained.h"
#include "base/status.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

enum { N = 70, MOST = 16 };

static float number_of(int g, int64_t i)
{
    return sinf((float)(g * 131 + i * 7 + 1)) * (float)(1 << (g * 3 + (int)i) % 11);
}

/* The contract's tree over accumulators [begin, end); accumulators that are not in `held` give
 * nothing. */
static bool tree(float *out, int begin, int end, unsigned held, int64_t i)
{
    float a, b;
    if (end - begin == 1) {
        *out = number_of(begin, i);
        return (held >> begin & 1) != 0;
    }
    const int mid = (begin + end) / 2;
    const bool left = tree(&a, begin, mid, held, i), right = tree(&b, mid, end, held, i);
    *out = left && right ? a + b : left ? a : b;
    return left || right;
}

TEST(test_accumulators__meet_in_the_tree)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, 1, NULL, 0));
    int chains = 0;
    for (int count = 1; count <= MOST; count *= 2)
        for (int n = 1; n <= MOST + 1;
             n++) { /* micro-batches: with fewer than `count` some stay empty */
            unsigned held = 0;
            for (int g = 0; g < count; g++)
                held |= (unsigned)(n * (g + 1) / count > n * g / count) << g;
            sheaf__trained_set *set;
            sheaf__trained *t;
            sheaf__accumulators stack = { 0 };
            float chain[N] = { 0 };
            CHECK_OK(sheaf__trained_set_new(&set, &c));
            CHECK_OK(sheaf__trained_add(&t, set, "x", 1, (int64_t[]){ N }, NULL, true));
            CHECK_OK(sheaf__trained_allocate(set));
            for (int g = 0; g < count; g++) {
                if ((held >> g & 1) == 0)
                    continue;
                CHECK_OK(sheaf__accumulator_begin(set, &stack, g));
                for (int64_t i = 0; i < N; i++) {
                    assert_true(t->grad[0][i] == 0);
                    t->grad[0][i] += number_of(g, i);
                    chain[i] += number_of(g, i);
                }
            }
            sheaf__accumulators_close(set, &stack);
            assert_true(set->nsums <= 5); /* one for each level of the tree */
            for (int64_t i = 0; i < N; i++) {
                float want = 0;
                tree(&want, 0, count, held, i);
                CHECK_NEAR("sum", t->grad[0][i], want, 0);
                chains += want != chain[i];
            }
            sheaf__trained_set_free(set);
        }
    assert_true(chains > 0); /* or nothing would be shown */
    sheaf__device_close(c.device);
}

/* Of 2^53 and many ones the order is seen: slices meet in the tree, tensors in the order of their
 * names. */
TEST(test_norm__of_slices_in_the_tree_and_of_names_in_order)
{
    enum { SLICES = 8, SMALL = 7 };
    static const char *const names[] = {
        "z", "g", "b", "e", "a", "d", "f", "c"
    }; /* the large one first */
    sheaf__context c = { .ranks = 1, .slices = SLICES, .own = { 0, SLICES }, .dtype = SHEAF_F32 };
    const sheaf_cut cut = { .slices = SLICES, .nparts = 1, .part = { { SLICES, 2 } } };
    double norm;
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, 1, NULL, 0));
    for (int way = 0; way < 3; way++) {
        const bool whole = way == 2;
        const int large = way == 1 ? SLICES - 1 : 0;
        sheaf__trained_set *set;
        sheaf__trained *t[1 + SMALL];
        CHECK_OK(sheaf__trained_set_new(&set, &c));
        for (int i = 0; i < (whole ? 1 + SMALL : 1); i++)
            CHECK_OK(sheaf__trained_add(&t[i], set, names[i], 1, (int64_t[]){ 2 * SLICES },
                                        whole ? NULL : &cut, true));
        CHECK_OK(sheaf__trained_allocate(set));
        for (int i = 0; i < SLICES; i++) {
            float *grad = t[whole ? i : 0]->grad[whole ? 0 : i];
            grad[0] = i == large ? 0x1p26f : 1;
            grad[1] = i == large ? 0x1p26f : 0;
        }
        CHECK_OK(sheaf__grad_norm(&norm, set));
        /* tree: the large one meets 1, then 2, then 4; names: 1 + 1 + ... + 2^53 */
        const double want = whole ? 7 + 0x1p53 : ((0x1p53 + 1) + 2) + 4;
        CHECK_NEAR(whole ? "names" : "slices", norm, sqrt(want), 0);
        assert_true(sqrt(want) != sqrt(0x1p53)); /* or nothing would be shown */
        sheaf__trained_set_free(set);
    }
    sheaf__device_close(c.device);
}

TEST(test_update__each_tensor_has_its_own_rate_and_decay)
{
    static const struct {
        bool decay;
        double scale;
    } own[] = { { true, 1 }, { false, 1 }, { true, 0.25 }, { false, 3 }, { false, 2 } };
    const sheaf__adamw how = { .lr = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .eps = 1e-8,
                               .weight_decay = 0.5,
                               .bias1 = 0.1,
                               .bias2_sqrt = 0.1,
                               .grad_scale = 1 };
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    sheaf__trained_set *set;
    sheaf__trained *t[ARRAY_LEN(own)];
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, 1, NULL, 0));
    CHECK_OK(sheaf__trained_set_new(&set, &c));
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        CHECK_OK(sheaf__trained_add(&t[i], set, "x", 1, (int64_t[]){ 1 }, NULL, own[i].decay));
        t[i]->lr_scale = own[i].scale;
    }
    CHECK_OK(sheaf__trained_allocate(set));
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        t[i]->master[0][0] = 1, t[i]->grad[0][0] = 2;
    sheaf__trained_update(set, &how);
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        sheaf__adamw alone = how;
        float p = 1, m = 0, v = 0;
        const float g = 2;
        alone.lr = 0.1 * own[i].scale;
        alone.weight_decay = own[i].decay ? 0.5 : 0;
        c.device->kernels->adamw(&p, &m, &v, &g, 1, &alone);
        CHECK_NEAR("master", t[i]->master[0][0], p, 0);
        for (size_t k = 0; k < i; k++)
            assert_true(t[k]->master[0][0] != t[i]->master[0][0]); /* or nothing would be shown */
    }
    sheaf__trained_set_free(set);
    sheaf__device_close(c.device);
}

/* ---- several groups ---- */

enum { WIDE = 3 * 40000, ALL_SLICES = 8 };

typedef struct groups {
    int count, micros; /* accumulators, and micro-batches */
    sheaf_dtype dtype;
    int ranks;                        /* of a group */
    const sheaf__device_class *class; /* NULL: cpu */
} groups;

static sheaf__context context_of(const sheaf__grid *grid, const groups *g, sheaf__device *device)
{
    const int rank = grid->group == NULL ? 0 : sheaf_comm_rank(grid->group);
    return (sheaf__context){ .device = device,
                             .comm = grid->group,
                             .rank = rank,
                             .ranks = g->ranks,
                             .slices = ALL_SLICES,
                             .own = sheaf_owner_slices(ALL_SLICES, g->ranks, rank),
                             .dtype = g->dtype,
                             .groups = grid->groups,
                             .group = grid->number,
                             .peers = grid->peers };
}

/* Each group adds its own accumulators; all have the tree over all of them afterwards. */
static sheaf_status *meet_body(void *context, const sheaf__grid *grid)
{
    const groups *g = context;
    sheaf__device *device = NULL;
    sheaf__trained_set *set = NULL;
    sheaf__trained *t = NULL;
    sheaf__accumulators stack = { 0 };
    bool present[SHEAF__MOST_ACCUMULATORS];
    unsigned held = 0;
    sheaf_status *st = sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0);
    sheaf__context c = context_of(grid, g, device);
    const sheaf_range own = sheaf__share_of(g->count, &c, c.group);
    TRY(st, sheaf__trained_set_new(&set, &c));
    TRY(st, sheaf__trained_add(&t, set, "x", 1, (int64_t[]){ N }, NULL, true));
    TRY(st, sheaf__trained_allocate(set));
    for (int a = 0; a < g->count && st == NULL; a++) {
        present[a] = g->micros * (a + 1) / g->count > g->micros * a / g->count;
        held |= (unsigned)present[a] << a;
        if (!present[a] || a < own.begin || a >= own.end)
            continue;
        st = sheaf__accumulator_begin(set, &stack, a);
        for (int64_t i = 0; i < N && st == NULL; i++)
            t->grad[0][i] += number_of(a, i);
    }
    if (st == NULL) {
        sheaf__accumulators_close(set, &stack);
        st = sheaf__accumulators_reduce(set, g->count, present);
    }
    for (int64_t i = 0; i < N && st == NULL; i++) {
        float want = 0;
        tree(&want, 0, g->count, held, i);
        if (memcmp(&want, &t->grad[0][i], sizeof want) != 0)
            st = sheaf_fail(SHEAF_E_NUMBER, "group %d of %d, %d accumulators, %d micro-batches",
                            grid->number, grid->groups, g->count, g->micros);
    }
    sheaf__trained_set_free(set);
    sheaf__device_close(device);
    return st;
}

TEST(test_groups__their_sums_meet_in_the_same_tree)
{
    for (int count = 1; count <= 16; count *= 2)
        for (int of = 1; of <= count; of *= 2)
            for (int micros = 1; micros <= count + 1; micros += every(3))
                CHECK_OK(sheaf__grid_run(
                    &(sheaf__grid_options){ .groups = of, .ranks = 1, .messages = micros % 2 == 0 },
                    meet_body, &(groups){ count, micros, SHEAF_F32, 1 }));
}

static float first_of(int tensor, int slice, int64_t i)
{
    return number_of(tensor * 8 + slice, i) * 0.01f;
}

/* Numbers of a slice, from `first` on, to the device's memory. */
static sheaf_status *put(sheaf__device *device, float *at, int tensor, int slice, int64_t n,
                         int first)
{
    float *host;
    const size_t bytes = (size_t)n * sizeof(float);
    sheaf_status *st = sheaf__borrow(&host, device, at, bytes, false);
    for (int64_t i = 0; i < n && st == NULL; i++)
        host[i] = first_of(tensor, slice, i + first);
    return TRY(st, sheaf__return(host, device, at, bytes, true));
}

/* A tensor of each kind: cut in uneven slices of which one is empty, cut, replicated. */
static sheaf_status *fill(sheaf__trained_set **out, sheaf__trained *t[3], sheaf__context *c,
                          bool divided)
{
    const sheaf_cut few = { .slices = ALL_SLICES, .nparts = 1, .part = { { 7, 5 } } },
                    wide = { .slices = ALL_SLICES, .nparts = 1, .part = { { WIDE, 1 } } };
    sheaf_status *st = sheaf__trained_set_new(out, c);
    TRY(st, sheaf__trained_add(&t[0], *out, "few", 1, (int64_t[]){ 35 }, &few, true));
    TRY(st, sheaf__trained_add(&t[1], *out, "wide", 1, (int64_t[]){ WIDE }, &wide, true));
    TRY(st, sheaf__trained_add(&t[2], *out, "whole", 1, (int64_t[]){ 19 }, NULL, false));
    if (st != NULL)
        return st;
    (*out)->divided = divided;
    st = sheaf__trained_allocate(*out);
    for (int k = 0; k < 3 && st == NULL; k++)
        for (int s = t[k]->first; s < t[k]->first + t[k]->count; s++)
            TRY(st, put(c->device, t[k]->weight[s], k, s, t[k]->numel[s], 0));
    return st;
}

static sheaf_status *step(sheaf__trained_set *set, sheaf__trained *t[3])
{
    sheaf_status *st = NULL;
    const sheaf__adamw how = { .lr = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .eps = 1e-8,
                               .weight_decay = 0.5,
                               .bias1 = 0.1,
                               .bias2_sqrt = 0.1,
                               .grad_scale = 1 };
    for (int k = 0; k < 3; k++)
        for (int s = t[k]->first; s < t[k]->first + t[k]->count; s++)
            TRY(st, put(set->context->device, t[k]->grad[s], k + 1, s, t[k]->numel[s], 3));
    if (st == NULL)
        sheaf__trained_update(set, &how);
    return st;
}

/* Many moments are read piece by piece, and nothing behind them. */
TEST(test_moments__are_finite_to_the_last)
{
    enum { MOST = 1 << 22 };
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    sheaf__trained_set *set;
    sheaf__moments *m;
    const int64_t n = MOST / 2 + 3;
    float *x = calloc(MOST, sizeof *x);
    assert_non_null(x);
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, 1, NULL, 0));
    CHECK_OK(sheaf__trained_set_new(&set, &c));
    set->moments_away = true;
    set->folder = "/tmp";
    CHECK_OK(sheaf__moments_new(&m, set));
    x[n] = NAN;
    assert_true(sheaf__moments_finite(m, x, n));
    assert_false(sheaf__moments_finite(m, x, n + 1));
    sheaf__moments_free(m);
    sheaf__trained_set_free(set);
    sheaf__device_close(c.device);
    free(x);
}

/* Are masters and first moments of a slice those of a set that is not divided, and its weights
 * these, rounded? */
static sheaf_status *compare(const sheaf__context *c, const sheaf__trained *t,
                             const sheaf__trained *want, int s, bool kept)
{
    sheaf__device *device = c->device;
    const size_t bytes = (size_t)t->numel[s] * sizeof(float);
    const float *const at[] = { want->master[s], want->moment1[s], t->weight[s],
                                kept ? t->master[s] : NULL, kept ? t->moment1[s] : NULL };
    float *x[5] = { NULL };
    sheaf_status *st = NULL;
    for (int i = 0; i < (kept ? 5 : 3); i++)
        TRY(st, sheaf__borrow(&x[i], device, at[i], bytes, true));
    if (st == NULL && kept && (memcmp(x[0], x[3], bytes) != 0 || memcmp(x[1], x[4], bytes) != 0))
        st =
            sheaf_fail(SHEAF_E_NUMBER, "state of '%s', slice %d in group %d", t->name, s, c->group);
    for (int64_t i = 0; i < t->numel[s] && st == NULL; i++) {
        uint32_t rounded[2] = { 0 };
        device->kernels->round(&rounded[0], c->dtype, &x[0][i], 1);
        device->kernels->round(&rounded[1], c->dtype, &x[2][i], 1);
        if (rounded[0] != rounded[1])
            st = sheaf_fail(SHEAF_E_NUMBER, "weight %d of '%s', slice %d in group %d", (int)i,
                            t->name, s, c->group);
    }
    for (int i = 0; i < 5; i++)
        if (x[i] != NULL)
            st = sheaf__first_of(st, sheaf__return(x[i], device, (void *)at[i], bytes, false));
    return st;
}

/* Two steps of a divided set, and of one that each rank has alone. */
static sheaf_status *divide_body(void *context, const sheaf__grid *grid)
{
    const groups *g = context;
    sheaf__device *device = NULL;
    sheaf__trained_set *set = NULL, *alone = NULL;
    sheaf__trained *t[3], *want[3];
    sheaf_status *st =
        sheaf__device_open(&device, g->class == NULL ? &sheaf__cpu : g->class, 1, NULL, 0);
    sheaf__context c = context_of(grid, g, device), own = c;
    own.groups = own.group = 0;
    own.peers = NULL;
    TRY(st, fill(&set, t, &c, true));
    TRY(st, fill(&alone, want, &own, false));
    if (st == NULL)
        sheaf__trained_from_weights(set);
    for (int n = 0; n < 2 && st == NULL; n++) {
        st = step(set, t);
        TRY(st, step(alone, want));
        TRY(st, sheaf__trained_publish(set));
    }
    for (int k = 0; k < 3 && st == NULL; k++)
        for (int s = t[k]->first; s < t[k]->first + t[k]->count && st == NULL; s++) {
            const bool kept = k == 2 || s % grid->groups == grid->number;
            if (kept != (t[k]->master[s] != NULL) || kept != (t[k]->moment2[s] != NULL))
                st = sheaf_fail(SHEAF_E_NUMBER, "keeping tensor %d, slice %d in group %d of %d", k,
                                s, grid->number, grid->groups);
            TRY(st, compare(&c, t[k], want[k], s, kept));
        }
    TRY(st, sheaf__device_check(device));
    sheaf__trained_set_free(set);
    sheaf__trained_set_free(alone);
    sheaf__device_close(device);
    return st;
}

TEST(test_groups__share_masters_and_moments)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d += (size_t)every(2))
        for (int ranks = 1; ranks <= 3; ranks += 2)
            for (int of = 1; of <= 8; of *= 2)
                CHECK_OK(sheaf__grid_run(
                    &(sheaf__grid_options){ .groups = of, .ranks = ranks, .messages = of == 2 },
                    divide_body, &(groups){ .dtype = dtypes[d], .ranks = ranks }));
}

TEST(test_groups__share_them_on_every_device)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        groups checked = { .dtype = SHEAF_BF16, .ranks = ranks, .class = &checked_device },
               copied = { .dtype = SHEAF_F16, .ranks = ranks, .class = &copied_device };
        const sheaf__grid_options grid = { .groups = 2, .ranks = ranks };
        CHECK_OK(sheaf__grid_run(&grid, divide_body, &checked));
        CHECK_OK(sheaf__grid_run(&grid, divide_body, &copied));
    }
}

/* Of bands the first halves learn and decay, the second stay, whatever their gradients say; with
 * moments in 8 bits, too. */
TEST(test_update__leaves_second_halves_as_they_are)
{
    enum { ROWS = 64, COLS = 96 };
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
    const double rest[] = { 0.1, 0.19 }; /* 1 - beta^t */
    CHECK_OK(sheaf__device_open(&c.device, &sheaf__cpu, 1, NULL, 0));
    for (int trial = 0; trial < 4; trial++) {
        sheaf__trained_set *set;
        sheaf__trained *t;
        sheaf__accumulators stack = { 0 };
        float was[ROWS * COLS];
        CHECK_OK(sheaf__trained_set_new(&set, &c));
        CHECK_OK(sheaf__trained_add(&t, set, "x", 2, (int64_t[]){ ROWS, COLS }, NULL, true));
        t->band = trial % 2 == 0 ? 1 : ROWS / 2;
        set->eight_bits = trial >= 2;
        CHECK_OK(sheaf__trained_allocate(set));
        for (int64_t i = 0; i < ROWS * COLS; i++)
            was[i] = t->master[0][i] = number_of(1, i % N);
        CHECK_OK(sheaf__accumulator_begin(set, &stack, 0));
        for (int64_t i = 0; i < ROWS * COLS; i++)
            t->grad[0][i] = number_of(2, i % N);
        sheaf__accumulators_close(set, &stack);
        for (int k = 0; k < 2; k++)
            sheaf__trained_update(set, &(sheaf__adamw){ .lr = 0.1,
                                                        .beta1 = 0.9,
                                                        .beta2 = 0.9,
                                                        .eps = 1e-8,
                                                        .weight_decay = 0.5,
                                                        .bias1 = rest[k],
                                                        .bias2_sqrt = sqrt(rest[k]),
                                                        .grad_scale = 1 });
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            const int64_t band = t->band * COLS;
            const float is = t->master[0][i], step = t->grad[0][i] > 0 ? -0.1f : 0.1f;
            if (i % band >= band / 2)
                CHECK_NEAR("held", is, was[i], 0);
            else
                CHECK_NEAR("trained", is, (was[i] * 0.95f + step) * 0.95f + step,
                           1e-6 * fabs((double)was[i]) + 1e-6);
        }
        sheaf__trained_set_free(set);
    }
    sheaf__device_close(c.device);
}
