/* attention_cuda_test.c - attention by the kernels of the device `cuda`, emulated, has the bits of
 * its definition: in every order, of heads of all widths, and with numbers that are not finite. */

#include "tests/attention_twin.h"

#include "ops/devices/gpu/gpu.h"
#include "tests/gpu/stand_in.h"

/* ---- one problem on the device ---- */

static void *put(sheaf__device *device, const void *from, size_t bytes)
{
    void *to = NULL;
    if (from == NULL)
        return NULL;
    CHECK_OK(sheaf__device_alloc(&to, device, bytes, SHEAF_MEM_ACTIVATIONS));
    CHECK_OK(sheaf__upload(device, to, from, bytes));
    return to;
}

static void check_ran(const sheaf__device *device, sheaf__operation operation, int64_t times)
{
    if (sheaf__gpu_ran(device, operation) != times)
        fail_msg("operation %d ran %d times by kernels", (int)operation,
                 (int)sheaf__gpu_ran(device, operation));
}

/* On the second GPU the backward pass takes half of the key heads at a time. */
static void run_cuda(const problem *p, const result *r, int unit)
{
    sheaf__device *device;
    const sheaf__attention *s = &p->s;
    CHECK_OK(sheaf__device_open_of(&device, &sheaf__cuda_class, &(sheaf__reserved){ .unit = unit },
                                   1, NULL, 0));
    if (unit == 1)
        ((sheaf__gpu *)device->reserved->own)->kept =
            (size_t)((s->kv_heads + 1) / 2 * s->group * s->batch * s->queries) * 16;
    device->sums = p->sums;
    const struct {
        void *here;
        size_t bytes;
    } out[] = { { r->o, bytes_of(p, p->no) },
                { r->stats, (size_t)p->nstats * 4 },
                { r->dq, bytes_of(p, p->nq) },
                { r->dk, bytes_of(p, p->nk) },
                { r->dv, bytes_of(p, p->nv) } };
    void *there[ARRAY_LEN(out)];
    for (size_t i = 0; i < ARRAY_LEN(out); i++)
        there[i] = put(device, out[i].here, out[i].bytes);
    const void *q = put(device, p->q, bytes_of(p, p->nq)),
               *k = put(device, p->k, bytes_of(p, p->nk)),
               *v = put(device, p->v, bytes_of(p, p->nv)),
               *d_o = put(device, p->d_o, bytes_of(p, p->no));
    sheaf__attention shape = *s;
    shape.key_mask = put(device, s->key_mask, (size_t)(s->batch * s->mask_ld));
    sheaf__attention_forward(device, &shape, there[0], there[1], q, k, v);
    check_ran(device, SHEAF__OP_ATTENTION, 1);
    if (has_backward(s)) {
        sheaf__attention_backward(device, &shape, there[2], there[3], there[4], d_o, there[0],
                                  there[1], q, k, v);
        check_ran(device, SHEAF__OP_ATTENTION_BACK, 1);
    }
    CHECK_OK(sheaf__device_check(device));
    for (size_t i = 0; i < ARRAY_LEN(out); i++)
        CHECK_OK(sheaf__download(device, out[i].here, there[i], out[i].bytes));
    sheaf__device_close(device);
}

/* On the GPU that takes everything in order, or on the one that takes it in turned order, by turn;
 * in ./run soak on both. */
static void check_problem(const char *name, const problem *p, size_t turn)
{
    int unit = in_soak(0, (int)(turn % 2)), end = in_soak(2, unit + 1);
    if (!sheaf__driver_stands_in() && sheaf__by_mma(p->sums, p->s.dtype)) {
        unit = p->sums == SHEAF_SUMS_MMA16; /* of one 8.0, one 9.0 (tests/ptx.sh) */
        end = unit + 1;
    }
    result want = result_of(p);
    run_ref(p, &want);
    for (; unit < end; unit++) {
        char what[200];
        result got = result_of(p);
        snprintf(what, sizeof what, "%s, %s, %s, unit %d", name, sheaf_dtype_name(p->s.dtype),
                 sheaf__sums_text(p->sums), unit);
        run_cuda(p, &got, unit);
        same_results(what, p, &got, &want);
    }
}

/* ---- shapes ---- */

static const sheaf_sums orders[] = { SHEAF_SUMS_PAIRS, SHEAF_SUMS_TILES, SHEAF_SUMS_MMA8,
                                     SHEAF_SUMS_MMA16 };

static void emulate_gpus(sheaf_sums order)
{
    setenv("SHEAF_EMULATED_GPU", order == SHEAF_SUMS_MMA8 ? "8.0,8.6" : "9.0,9.0", 1);
    sheaf__stand_in_reset();
}

/* In orders that are different of the type; of those of tensor cores, which take longest, each
 * 16-bit type has one, the other one at the next call; in ./run soak both. */
static void check_orders(const char *name, sheaf__attention s, int64_t slack, bool masked,
                         void (*change)(const problem *p))
{
    static size_t calls;
    const size_t call = calls++;
    for (size_t i = 0; i < ARRAY_LEN(orders) * ARRAY_LEN(attention_types); i++) {
        const size_t type = i / ARRAY_LEN(orders);
        const sheaf_dtype dtype = attention_types[type];
        const sheaf_sums order = orders[i % ARRAY_LEN(orders)];
        if (order != SHEAF_SUMS_PAIRS && dtype != SHEAF_BF16 && !sheaf__by_mma(order, dtype))
            continue;
        if (sheaf__by_mma(order, dtype) && (i + type + call) % (size_t)in_soak(1, 2) != 0)
            continue;
        s.dtype = dtype;
        problem p = problem_of(s, slack, masked);
        p.sums = order;
        fill_mask(&p, 3);
        emulate_gpus(order);
        if (change != NULL)
            change(&p);
        check_problem(name, &p, i + call / 2);
    }
}

/* More than one block of queries, of keys, and of what a tile has; widths on both sides of those
 * that kernels are made for. */
static const struct {
    const char *name;
    int64_t batch, queries, keys, kv, group, d, window, slack;
    float cap;
    bool full, masked, by_head;
} shapes[] = {
    { "causal", 1, 71, 71, 1, 2, 64, 0, 0, 0, false, false, false },
    { "an odd head", 2, 37, 37, 2, 1, 5, 0, 1, 0, false, true, false },
    { "a window and a cap", 1, 140, 140, 1, 1, 24, 40, 8, 2, false, false, false },
    { "wider than 64", 1, 66, 66, 1, 1, 80, 0, 0, 0, false, true, false },
    { "128, masked", 1, 70, 70, 1, 1, 128, 0, 8, 0, false, true, false },
    { "256, and a cap", 1, 65, 65, 1, 2, 256, 0, 0, 1.5f, false, false, false },
    { "wider than 128", 1, 40, 40, 1, 1, 136, 9, 0, 0, false, true, false },
    { "full, more queries than keys", 2, 70, 33, 2, 2, 16, 0, 0, 0, true, true, false },
    { "full, more keys than queries", 1, 17, 130, 1, 1, 32, 0, 1, 1, true, false, false },
    { "one query and a cache by head", 2, 1, 77, 2, 3, 32, 0, 0, 0, false, true, true },
    { "some queries and a cache", 1, 5, 150, 2, 2, 64, 70, 0, 0, false, false, true },
    { "few queries, masked", 2, 3, 300, 2, 4, 24, 0, 8, 0, false, true, false },
    { "few queries, a window, a cap and an odd head", 1, 2, 400, 1, 3, 19, 150, 1, 2, false, false,
      false },
    { "few queries of many heads", 1, 7, 129, 1, 9, 136, 0, 0, 0, true, true, false },
    { "few queries, but of more rows than that", 1, 16, 129, 1, 5, 24, 0, 0, 0, true, true, false },
    { "few queries, 256 by head", 2, 16, 81, 2, 4, 256, 0, 0, 0, false, false, true },
    { "one query", 3, 1, 2100, 1, 1, 32, 0, 0, 0, false, true, false },
};

TEST(test_cuda__is_the_definition)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        sheaf__attention s =
            attention_of(SHEAF_F32, shapes[i].batch, shapes[i].queries, shapes[i].keys,
                         shapes[i].kv, shapes[i].group, shapes[i].d, 0.25f);
        s.window = shapes[i].window;
        s.cap = shapes[i].cap;
        s.full = shapes[i].full;
        s.by_head = shapes[i].by_head;
        s.kv_rows += s.by_head ? 3 : 0;
        check_orders(shapes[i].name, s, shapes[i].slack, shapes[i].masked, NULL);
    }
}

/* Of whole tiles some are cut by it, and some are not. */
static void hide_one_key(const problem *p)
{
    memset(p->mask, 1, (size_t)(p->s.batch * p->s.mask_ld));
    p->mask[40] = 0;
}

TEST(test_cuda__a_mask_that_hides_one_key)
{
    check_orders("one key is hidden", attention_of(SHEAF_F32, 1, 200, 200, 1, 1, 8, 0.25f), 0, true,
                 hide_one_key);
}

/* ---- segments ---- */

static const int64_t ends[] = { 0, 1, 66, 75, 150 };

TEST(test_cuda__segments_are_sequences)
{
    sheaf__attention s = attention_of(SHEAF_F32, 2, 75, 75, 2, 1, 16, 0.25f);
    s.segment = ends;
    s.segments = ARRAY_LEN(ends) - 1;
    check_orders("segments", s, 0, true, NULL);
}

/* ---- numbers that are not finite ---- */

static void put_odd_numbers(const problem *p)
{
    for (int operand = 0; operand < 4; operand++)
        put_odd_number(p, operand, operand < 2 ? 20 : 35, operand % 2 ? NAN : INFINITY);
    put_odd_number(p, 2, 50, -INFINITY);
    put_odd_number(p, 3, 9, NAN);
    put_odd_number(p, 1, 30, 1e-40f);
}

/* They reach who sees them; operands meet infinities alone, too. */
static void put_infinity(const problem *p)
{
    put_odd_number(p, 2, 35, INFINITY);
    put_odd_number(p, 3, 33, -INFINITY);
}

TEST(test_cuda__what_is_not_finite)
{
    for (int i = 0; i < 4; i++) {
        sheaf__attention s = attention_of(SHEAF_F32, 1, 67, 67, 2, 1, 48, 0.25f);
        s.window = i == 3 ? 11 : 0;
        s.full = i == 2;
        check_orders("not finite", s, 0, i == 2, i % 2 ? put_infinity : put_odd_numbers);
    }
}

/* Of few queries and many keys; some keys of a tile are seen by no query, or by the last ones. */
static void put_odd_keys(const problem *p)
{
    put_odd_number(p, 2, 130, INFINITY);
    put_odd_number(p, 2, 197, -INFINITY);
    put_odd_number(p, 1, 198, NAN);
    put_odd_number(p, 0, 2, INFINITY);
}

TEST(test_cuda__few_queries_of_what_is_not_finite)
{
    for (int i = 0; i < 4; i++) {
        sheaf__attention s = attention_of(SHEAF_F32, 1, 6, 200, 2, 1 + i, 24, 0.25f);
        s.window = i % 2 ? 11 : 0;
        s.full = i == 2;
        check_orders("few queries, not finite", s, 0, i >= 2, put_odd_keys);
    }
}

/* ---- parts, and what a factor does ---- */

TEST(test_cuda__parts)
{
    static const int64_t keys[] = { 1023, 1024, 1025, 2049 };
    for (size_t i = 0; i < ARRAY_LEN(keys) * 2; i++) /* few queries, and more */
        check_orders("scores that rise",
                     attention_of(SHEAF_F32, 1, i % 2 ? 1 : 17, keys[i / 2], 1, 1, 8, 0.25f), 0,
                     false, put_rising);
}

TEST(test_cuda__denormal_chains)
{
    static const int64_t queries[] = { 1, 3, 20 };
    for (size_t i = 0; i < ARRAY_LEN(queries); i++)
        check_orders("denormal chains",
                     attention_of(SHEAF_F32, 1, queries[i], 300, 1, 1, 16, 0.25f), 0, false,
                     put_denormal_chains);
}

/* ---- chains that end on the way ---- */

TEST(test_cuda__chains)
{
    const struct {
        int64_t queries, keys, group, dim;
        bool full;
        int64_t window;
    } row[] = {
        { 1, 4100, 2, 16, true, 0 },  { 3, 8193, 1, 3, true, 0 },   { 4101, 2, 2, 8, true, 0 },
        { 2, 4200, 1, 16, false, 0 }, { 17, 4099, 1, 3, false, 0 }, { 2, 8300, 2, 3, false, 300 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        sheaf__attention s = attention_of(SHEAF_F32, 1, row[i].queries, row[i].keys, 1,
                                          row[i].group, row[i].dim, 0.25f);
        s.full = row[i].full;
        s.window = row[i].window;
        check_orders("chains", s, 0, false, NULL);
    }
}

/* All keys count the same, and the first two chains cancel out: what the third adds is lost if it
 * meets one of them alone. */
static void put_cancelling(const problem *p)
{
    const sheaf__attention *s = &p->s;
    memset(p->q, 0, bytes_of(p, p->nq));
    for (int64_t i = 0; i < p->nv; i++) {
        const int64_t chain = i / s->ldv / 4096;
        sheaf__store(p->v, i, chain == 0 ? 1 : chain == 1 ? -1 : 0x1.5p-16f, s->dtype);
    }
}

TEST(test_cuda__chains_join_in_order)
{
    check_orders("chains that cancel out", attention_of(SHEAF_F32, 1, 1, 8200, 1, 2, 4, 0.25f), 0,
                 false, put_cancelling);
}
