/* attention_production_test.c - attention of sizes that models have: the same bits on any number of
 * threads and any instruction set, those of the definition where that is asked, in the memory that
 * was planned. */
#include "tests/attention_twin.h"

/* One query head's row of o and dq, and one key's dk and dv, from the reference. */
static void check_samples(const problem *p, const result *got)
{
    const sheaf__attention *s = &p->s;
    const int64_t last = s->queries - 1, tokens[] = { 0, 255, 256, 1000, last };
    result want = result_of(p);
    memcpy(want.stats, got->stats, (size_t)p->nstats * 4);
    memcpy(want.o, got->o, bytes_of(p, p->no));
    const sheaf__attention_call call = { s,      want.o,  want.stats, p->q,    p->k,    p->v,
                                         p->d_o, want.dq, want.dk,    want.dv, p->sums, { 0 } };
    const unsigned before = sheaf__compute_mode_enter();
    for (size_t n = 0; n < ARRAY_LEN(tokens); n++) {
        const int64_t i = tokens[n] < last ? tokens[n] : last, kv = (int64_t)n % s->kv_heads,
                      g = s->group - 1;
        const int64_t row = i * s->group + g, head = (kv * s->group + g) * s->head_dim;
        sheaf__attention_ref_rows(&call,
                                  &(sheaf__attention_part){ 0, kv, 0, s->group, row, row + 1 });
        sheaf__attention_ref_dq(&call, &(sheaf__attention_part){ 0, kv, g, g + 1, i, i + 1 });
        const size_t o = bytes_of(p, i * s->ldo + head), q = bytes_of(p, i * s->ldq + head);
        CHECK_BYTES("o", (char *)got->o + o, (char *)want.o + o, bytes_of(p, s->head_dim));
        CHECK_BYTES("dq", (char *)got->dq + q, (char *)want.dq + q, bytes_of(p, s->head_dim));
    }
    const int64_t j = s->keys - 41, at = j * s->ldk;
    sheaf__attention_ref_dkv(&call, &(sheaf__attention_part){ 0, 0, 0, s->group, j, j + 1 });
    CHECK_BYTES("dk", (char *)got->dk + bytes_of(p, at), (char *)want.dk + bytes_of(p, at),
                bytes_of(p, s->head_dim));
    CHECK_BYTES("dv", (char *)got->dv + bytes_of(p, at), (char *)want.dv + bytes_of(p, at),
                bytes_of(p, s->head_dim));
    CHECK_BYTES("stats", got->stats, want.stats, (size_t)p->nstats * 4);
    sheaf__compute_mode_leave(before);
}

/* The first of so many ways against samples, the others against it. */
static void check_order_of(sheaf__attention s, sheaf_sums sums, int ways)
{
    static const struct {
        int threads;
        const char *pairs, *tiles;
    } way[] = { { 2, NULL, NULL }, { 5, "avx2", "avx512" }, { 1, NULL, "avx2" } };
    problem p = problem_of(s, 0, false);
    p.sums = sums;
    result first = result_of(&p);
    for (int i = 0; i < ways; i++) {
        char name[80];
        const char *isa = sums == SHEAF_SUMS_TILES ? way[i].tiles : way[i].pairs;
        if (isa != NULL && !on_this_cpu(isa))
            continue;
        result again = i == 0 ? first : result_of(&p);
        run_device(&p, &again, isa, way[i].threads);
        if (i == 0)
            check_samples(&p, &first);
        snprintf(name, sizeof name, "%d threads, %s", way[i].threads, isa != NULL ? isa : "best");
        same_results(name, &p, &again, &first);
    }
}

static void check_production(sheaf__attention s, int ways)
{
    check_order_of(s, SHEAF_SUMS_PAIRS, ways);
    if (s.dtype == SHEAF_BF16 &&
        (double)s.queries * (double)s.keys * (double)(s.kv_heads * s.group) <
            in_soak(100000000, 30000000)) /* seconds */
        check_order_of(s, SHEAF_SUMS_TILES, ways);
}

/* What ./run soak takes of 36 heads others take of six. */
TEST(test_attention__production_size_is_the_same_on_any_threads_and_isa)
{
    const int group = in_soak(18, 3), ways = in_soak(3, 2);
    check_production(attention_of(SHEAF_BF16, 1, 4200, 4200, 2, group, 64, 0.125f), ways);
    check_production(attention_of(SHEAF_BF16, 1, 1300, 1300, 2, group, 64, 0.125f), ways);
    check_production(attention_of(SHEAF_F32, 1, 4200, 4200, 1, 3, 64, 0.125f), ways);
}

static size_t dry_scratch(const sheaf__attention *s, int threads)
{
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__dry, threads, NULL, 0));
    sheaf__attention_backward(device, s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    const size_t peak = device->peak_of[SHEAF_MEM_SCRATCH];
    sheaf__device_close(device);
    return peak;
}

/* dk and dv of all keys do not fit in the scratch of a thread: tasks get more memory, or, with more
 * threads than heads or without that memory, are not fused. */
static void check_long(sheaf_dtype dtype, int64_t keys, bool finds_room)
{
    sheaf__attention s = attention_of(dtype, 1, keys, keys, 2, 1, 128, 0.1f);
    s.window = 300;
    problem p = problem_of(s, 0, false);
    const size_t scratch = sheaf__device_needs(SHEAF__THREAD_SCRATCH);
    static const struct {
        int threads;
        bool limited;
    } way[] = { { 3, false }, { 1, false }, { 2, false }, { 2, true } };
    result first = result_of(&p), again;
    for (size_t i = 0; i < ARRAY_LEN(way); i++) {
        const int threads = way[i].threads;
        const bool room = finds_room && threads < 3 && !way[i].limited;
        again = i == 0 ? first : result_of(&p);
        const size_t limit = way[i].limited ? (size_t)threads * scratch + (4u << 20) : 0,
                     used = run_limited(&p, &again, NULL, threads, limit);
        assert_true((used > (size_t)threads * scratch) == room);
        if (i == 0)
            check_samples(&p, &first);
        else
            same_results("long", &p, &again, &first);
        if (!way[i].limited)
            assert_int_equal(used, dry_scratch(&p.s, threads));
    }
}

TEST(test_attention__long_sequences_fit_in_scratch)
{
    check_long(SHEAF_F32, 6000, true);
    check_long(SHEAF_BF16, 6000, true);
    check_long(SHEAF_BF16, 4000, false);  /* fits */
    check_long(SHEAF_BF16, 25000, false); /* more than four times the scratch */
    check_production(attention_of(SHEAF_F32, 1, 6000, 6000, 1, 1, 128, 0.1f), 1);
    assert_true(
        sheaf__attention_keys_held(&(sheaf__attention){ .dtype = SHEAF_F32, .head_dim = 128 },
                                   SHEAF_SUMS_PAIRS, SHEAF__THREAD_SCRATCH) < 6000);
    check_production(
        windowed(attention_of(SHEAF_BF16, 1, 32768, 32768, 1, 1, 64, 0.1f), in_soak(4096, 1000)),
        1);
    check_shape(attention_of(SHEAF_BF16, 1, 1, 100000, 1, 2, 8, 0.1f), 0, false, 0);
}

/* ---- full attention ---- */

/* The high-resolution tower of CogAgent, its cross-attention, and the tower of CogVLM. */
TEST(test_attention__full_production_size_is_the_same_on_any_threads_and_isa)
{
    const struct {
        sheaf_dtype dtype;
        int64_t queries, keys, heads, d;
    } table[] = {
        { SHEAF_BF16, 6401, 6401, in_soak(4, 1), 64 },
        { SHEAF_BF16, 2000, 6400, in_soak(3, 2), 32 },
        { SHEAF_BF16, 1226, 1226, 2, 112 },
        { SHEAF_F32, 6401, 6401, 1, 64 },
        { SHEAF_F32, 1700, 6400, 1, 32 },
        { SHEAF_F32, 257, 6400, 1, 240 },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        check_production(full_attention_of(table[i].dtype, 1, table[i].queries, table[i].keys,
                                           table[i].heads, 1, table[i].d, 0.125f),
                         in_soak(3, 2));
}

/* The definition takes a part of an hour for it: one NaN must not stop a run before it is seen. */
TEST(test_attention__full_with_nan_takes_no_slow_path)
{
    sheaf__attention s = attention_of(SHEAF_BF16, 1, 9000, 9000, 1, 1, 32, 0.2f);
    s.full = true;
    problem p = problem_of(s, 0, false);
    void *const where[] = { p.v, p.k, p.d_o };
    for (size_t i = 0; i < ARRAY_LEN(where); i++)
        ((uint16_t *)where[i])[77 * 32] = 0x7fc0;
    result r = result_of(&p);
    run_device(&p, &r, NULL, 2);
    for (int64_t at = 0; at < p.no; at += 32 * 1000)
        assert_true(((uint16_t *)r.o)[at] == 0x7fc0 && ((uint16_t *)r.dq)[at] == 0x7fc0 &&
                    ((uint16_t *)r.dk)[at] == 0x7fc0 && ((uint16_t *)r.dv)[at] == 0x7fc0);
}
