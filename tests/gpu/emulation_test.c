/* emulation_test.c - kernels run on the processor as a GPU would run them, and mistakes show. */
#include "tests/mma_recorded.h"

#include "tests/gpu/emulation.h"
#include "tests/gpu/emulation_cases.h"
#include "tests/gpu/emulation_mma.h"
#include "ops/matmul/mma.h"

typedef struct setting {
    int64_t blocks;
    int threads;
    size_t shared;
    int group;
    bool turned;
} setting;

static bool try_kernel(const char *name, const void *arguments, size_t bytes, setting s, char *text)
{
    const sheaf__emu_launch launch = { .kernel = sheaf__emu_find(name),
                                       .arguments = arguments,
                                       .bytes = bytes,
                                       .blocks = { s.blocks, 1, 1 },
                                       .threads = s.threads,
                                       .shared = s.shared,
                                       .group = s.group,
                                       .turned = s.turned };
    assert_non_null(launch.kernel);
    return sheaf__emulate(&launch, text);
}

static void run(const char *name, const void *arguments, size_t bytes, setting s)
{
    char text[SHEAF__EMU_TEXT];
    if (!try_kernel(name, arguments, bytes, s, text))
        fail_msg("%s", text);
}
#define RUN(name, a, ...) run(name, &(a), sizeof(a), (setting){ __VA_ARGS__ })

static void fails(const char *name, const void *arguments, size_t bytes, setting s, const char *why)
{
    char text[SHEAF__EMU_TEXT];
    if (try_kernel(name, arguments, bytes, s, text))
        fail_msg("%s runs, wanted: %s", name, why);
    if (strstr(text, why) == NULL)
        fail_msg("%s, wanted: %s", text, why);
}
#define FAILS(why, name, a, ...) fails(name, &(a), sizeof(a), (setting){ __VA_ARGS__ }, why)

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 37 % 101) - 50;
}

/* ---- threads, blocks, lanes ---- */

TEST(test_emulation__each_thread_once_in_both_orders)
{
    enum { N = 1000 };
    float x[N], y[N];
    fill(x, N);
    x[6] = 0.75f * 0x1p-126f; /* denormal, 3/2 of it is not */
    x[7] = 0x1p-126f;         /* half of it is denormal */
    for (int turned = 0; turned < 2; turned++) {
        const case_flat a = { x, y, N };
        memset(y, 0xff, sizeof y);
        RUN("case_each", a, .blocks = 4, .threads = 256, .turned = turned);
        for (int i = 0; i < N; i++)
            assert_true(y[i] == (i == 6 || i == 7 ? 0.0f : x[i] * (i % 2 == 0 ? 1.5f : 0.5f)));
    }
    assert_true(x[6] * 0.5f > 0); /* the caller's mode is back */
}

TEST(test_emulation__grids_of_three_dimensions)
{
    char text[SHEAF__EMU_TEXT];
    float y[24] = { 0 };
    const case_flat a = { NULL, y, 24 };
    sheaf__emu_launch l = { .kernel = sheaf__emu_find("case_grid"),
                            .arguments = &a,
                            .bytes = sizeof a,
                            .blocks = { 4, 3, 2 },
                            .threads = 5 };
    for (int turned = 0; turned < 2; turned++) {
        l.turned = turned;
        assert_true(sheaf__emulate(&l, text));
    }
    for (int i = 0; i < 24; i++)
        assert_true(y[i] == 2 * (float)(i % 4 + 10 * (i / 4 % 3) + 100 * (i / 12)));
}

TEST(test_emulation__lanes_exchange_numbers)
{
    float x[32], sum[64];
    double sum_d[64];
    int32_t sum_i[64];
    fill(x, 32);
    float whole = 0;
    int32_t squares = 0;
    for (int i = 0; i < 32; i++) {
        whole += x[i];
        squares += i * i;
    }
    for (int turned = 0; turned < 2; turned++) {
        const case_shuffles a = { x, sum, sum_d, sum_i };
        RUN("case_shuffled", a, .blocks = 1, .threads = 64, .turned = turned);
        for (int i = 0; i < 64; i++)
            assert_true(sum[i] == whole && sum_d[i] == (double)whole && sum_i[i] == squares);
    }
}

TEST(test_emulation__matrices_plain_and_transposed)
{
    uint16_t x[32 * 8];
    uint32_t plain[128], transposed[128];
    for (int i = 0; i < 256; i++)
        x[i] = (uint16_t)(i * 257 + 1);
    for (int turned = 0; turned < 2; turned++) {
        const case_matrices a = { x, plain, transposed };
        RUN("case_matrix", a, .blocks = 1, .threads = 32, .shared = 512, .turned = turned);
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                const uint16_t *m = x + i * 64;
                const int g = lane / 4, t = lane % 4 * 2;
                assert_int_equal(plain[lane * 4 + i],
                                 m[g * 8 + t] | (uint32_t)m[g * 8 + t + 1] << 16);
                assert_int_equal(transposed[lane * 4 + i],
                                 m[t * 8 + g] | (uint32_t)m[(t + 1) * 8 + g] << 16);
            }
    }
}

/* ---- tensor cores ---- */

enum { WARPS = 64 };

static uint64_t next(uint64_t *r) /* splitmix64 */
{
    uint64_t z = *r += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* What a number of 16 bits is drawn from, beside what was recorded: sums that nearly do not fit the
 * integers they are made in, that overflow, and factors far apart. */
enum { FULL, LARGE, APART, KINDS };

static uint16_t draw(uint64_t *r, int kind, bool f16)
{
    const uint64_t bits = next(r);
    const int fraction = f16 ? 10 : 7, bias = f16 ? 15 : 127;
    const uint16_t low = (uint16_t)(bits & ((1u << fraction) - 1)),
                   sign = (uint16_t)(bits >> 63 << 15);
    if (kind == FULL)
        return (uint16_t)(bias << fraction | ((1 << fraction) - 1 - (low & 1)));
    if (kind == LARGE)
        return (uint16_t)((f16 ? bias : bias + 50) << fraction | low);
    return bits >> 30 & 1   ? (uint16_t)(sign | low) /* denormals, large numbers, zeros */
           : bits >> 31 & 7 ? 0
                            : (uint16_t)(sign | (f16 ? bias + 10 : bias + 45) << fraction | low);
}

static void draw_all(uint64_t *r, int kind, bool f16, uint16_t *a, uint16_t *b, float *c)
{
    for (int i = 0; i < WARPS * 256; i++)
        a[i] = draw(r, kind, f16);
    for (int i = 0; i < WARPS * 128; i++) {
        b[i] = draw(r, kind, f16);
        c[i] = kind == FULL    ? 1.99f * (float)(1 + i % 3)
               : kind == LARGE ? 0x1.fffffep127f
                               : (float)(i % 2) * 0x1p-120f;
    }
}

static void compare_products(const uint16_t *a, const uint16_t *b, const float *c, const float *got,
                             int group, bool f16)
{
    for (int i = 0; i < WARPS * 128; i++) {
        const int w = i / 128, row = i / 8 % 16, column = i % 8;
        uint16_t y[16];
        for (int k = 0; k < 16; k++)
            y[k] = b[w * 128 + k * 8 + column];
        const uint32_t want = sheaf__mma_chain(group == 8 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16,
                                               f16 ? SHEAF_F16 : SHEAF_BF16, sheaf__bits(c[i]),
                                               a + w * 256 + row * 16, y, 16);
        if (sheaf__bits(got[i]) != want)
            fail_msg("mma%d, f16 %d, result %d: %08x, wanted %08x", group, f16, i,
                     sheaf__bits(got[i]), want);
    }
}

TEST(test_emulation__tensor_cores_follow_the_rule)
{
    static uint16_t a[WARPS * 256], b[WARPS * 128];
    static float c[WARPS * 128], got[WARPS * 128];
    uint64_t r = 43;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 8; i++) {
            const int group = i % 2 ? 8 : 16;
            const bool f16 = i / 2 % 2, turned = i / 4 % 2;
            draw_all(&r, kind, f16, a, b, c);
            memcpy(got, c, sizeof c);
            const case_mma arguments = { a, b, got, f16 };
            RUN("case_product", arguments, .blocks = WARPS / 4, .threads = 128, .group = group,
                .turned = turned);
            compare_products(a, b, c, got, group, f16);
        }
}

/* Eight cases are the diagonal of a tile. */
static void compare_tile(const mma_header *h, const uint16_t *a, const uint16_t *b,
                         const uint32_t *c, const uint32_t *want, int cases)
{
    uint32_t left[16][8] = { 0 }, right[8][8] = { 0 };
    float sums[16][8] = { 0 };
    for (int i = 0; i < cases; i++) {
        for (int k = 0; k < 16; k++) {
            left[i][k / 2] |= (uint32_t)a[i * 16 + k] << 16 * (k % 2);
            right[k / 2][i] |= (uint32_t)b[i * 16 + k] << 16 * (k % 2);
        }
        memcpy(&sums[i][i], &c[i], 4);
    }
    sheaf__emu_mma_tile(sums, (const uint32_t(*)[8])left, (const uint32_t(*)[8])right, h->length,
                        h->type == 0);
    for (int i = 0; i < cases; i++) {
        uint32_t got;
        memcpy(&got, &sums[i][i], 4);
        if (got != want[i])
            fail_msg("%.24s: %08x, recorded %08x", h->name, got, want[i]);
    }
}

/* Those of 16 products to a sum. */
static int64_t compare_record(const mma_record *r)
{
    const mma_header *h = &r->of;
    if (h->type > 1 || h->k != 16 ||
        !(h->length == 8 ? h->kept == 24 : h->length == 16 && h->kept == 25))
        return 0;
    for (int i = 0; i < h->cases; i += 8)
        compare_tile(h, r->a + i * 16, r->b + i * 16, r->c + i, r->want + i,
                     h->cases - i < 8 ? h->cases - i : 8);
    return h->cases;
}

TEST(test_emulation__tensor_cores_give_what_was_recorded)
{
    mma_compare_recorded(compare_record);
}

/* ---- mistakes show ---- */

/* How many of n results are wrong, in an order of threads. */
static int wrong_reversed(const char *kernel, int n, int mistake, bool turned)
{
    float x[256], y[256];
    int wrong = 0;
    fill(x, n);
    const case_reverse a = { x, y, n, mistake };
    RUN(kernel, a, .blocks = 1, .threads = n, .shared = (size_t)n * 4, .turned = turned);
    for (int i = 0; i < n; i++)
        wrong += !(y[i] == x[n - 1 - i]);
    return wrong;
}

TEST(test_emulation__a_missing_barrier_shows)
{
    for (int turned = 0; turned < 2; turned++) {
        for (int n = 1; n <= 256; n += 51) {
            assert_int_equal(wrong_reversed("case_reversed", n, CASE_RIGHT, turned), 0);
            assert_int_equal(wrong_reversed("case_reversed", n, CASE_NO_BARRIER, turned), n / 2);
        }
        assert_int_equal(wrong_reversed("case_reversed_warp", 32, CASE_RIGHT, turned), 0);
        assert_int_equal(wrong_reversed("case_reversed_warp", 32, CASE_NO_BARRIER, turned), 16);
    }
}

TEST(test_emulation__either_order_shows_its_races)
{
    float x[256], y[256];
    fill(x, 256);
    for (int i = 0; i < 4; i++) {
        const bool turned = i % 2, above = i / 2;
        int wrong = 0;
        const case_reverse a = { x, y, 256, above ? CASE_ABOVE : CASE_BELOW };
        RUN("case_neighbour", a, .blocks = 1, .threads = 256, .shared = 1024, .turned = turned);
        for (int t = 0; t < 256; t++) {
            const int from = above ? t + 1 : t - 1;
            wrong += from >= 0 && from < 256 && !(y[t] == x[from]);
        }
        assert_int_equal(wrong, turned == above ? 0 : 255);
    }
}

TEST(test_emulation__shared_memory_is_garbage_at_first)
{
    float y[2][64];
    for (int turned = 0; turned < 2; turned++) {
        const case_flat a = { NULL, y[turned], 64 };
        RUN("case_garbage", a, .blocks = 3, .threads = 64, .shared = 256, .turned = turned);
    }
    for (int i = 0; i < 64; i++)
        assert_true(isnan(y[0][i]) && !(y[0][i] == y[1][i]));
}

TEST(test_emulation__the_order_of_blocks_shows)
{
    float y[2][8] = { { 0 } };
    for (int turned = 0; turned < 2; turned++) {
        const case_flat a = { NULL, y[turned], 8 };
        RUN("case_blocks", a, .blocks = 8, .threads = 32, .turned = turned);
    }
    assert_true(y[0][7] == 8 && y[1][7] == 1);
}

static int wrong_copied(int threads, int mistake, bool turned)
{
    enum { STAGES = 5, MOST = 128 };
    static float x[STAGES * MOST * 4];
    float y[MOST];
    int wrong = 0;
    fill(x, STAGES * MOST * 4);
    const case_ring a = { x, y, STAGES, mistake };
    RUN("case_copied", a, .blocks = 1, .threads = threads, .shared = (size_t)threads * 32,
        .turned = turned);
    for (int t = 0; t < threads; t++) {
        float want = 0;
        for (int i = 0; i < STAGES; i++)
            want += x[(i * threads + threads - 1 - t) * 4 + i % 4];
        wrong += !(y[t] == want);
    }
    return wrong;
}

/* In order, copies come when they are waited for; turned, at once. */
TEST(test_emulation__wrong_waits_for_copies_show)
{
    for (int threads = 32; threads <= 128; threads += 48) {
        assert_int_equal(wrong_copied(threads, CASE_RIGHT, false), 0);
        assert_int_equal(wrong_copied(threads, CASE_RIGHT, true), 0);
        assert_int_equal(wrong_copied(threads, CASE_NO_WAIT, false), threads);
        assert_int_equal(wrong_copied(threads, CASE_WAIT_FOR_FEWER, false), threads);
        assert_true(wrong_copied(threads, CASE_NO_BARRIER_AFTER, false) > 0);
        assert_true(wrong_copied(threads, CASE_NO_BARRIER_BEFORE, true) > 0);
    }
}

TEST(test_emulation__what_would_fault_or_hang_is_named)
{
    const struct {
        int what;
        size_t shared;
        const char *why;
    } row[] = {
        { ODD_STUCK_AT_BARRIER, 256, "kernel case_odds, block 0 0 0, thread" },
        { ODD_STUCK_AT_BARRIER, 256, "waits at a barrier to which" },
        { ODD_STUCK_AT_SHUFFLE, 256, "thread 32: waits at a shuffle to which 31 of 32 lanes come" },
        { ODD_LANES_PART, 256, "thread 40: is at sync_warp, other lanes of its warp at a shuffle" },
        { ODD_MATRICES_OUTSIDE, 256, "ldmatrix: not in shared memory" },
        { ODD_MATRICES_UNALIGNED, 256, "ldmatrix: not at a multiple of 16" },
        { ODD_COPY_UNALIGNED, 256, "cp.async: from no multiple of 16" },
        { ODD_COPY_OUTSIDE, 256, "cp.async: not in shared memory" },
        { ODD_QUAD_UNALIGNED, 256, "an access at no multiple of its size" },
        { ODD_ONE_PAST_SHARED, 256, "touches 0x" },
        { ODD_ONE_PAST_SHARED, 260, "kernel case_odds, block 0 0 0: writes beside" },
        { ODD_FAR_PAST_SHARED, 260, "touches 0x" },
        { ODD_BELOW_SHARED, 256, "writes beside its shared memory" },
        { ODD_NO_MEMORY, 256, "touches 0x1000" },
        { ODD_DEEP, 256, "touches 0x" },
    };
    _Alignas(16) float x[64];
    fill(x, 64);
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (int again = 0; again < 2; again++) {
            const case_odd odd = { x, row[i].what, (int32_t)row[i].shared },
                           right = { x, ODD_RIGHT, 256 };
            x[0] = 0;
            FAILS(row[i].why, "case_odds", odd, .blocks = 2, .threads = 64,
                  .shared = row[i].shared);
            if (row[i].what == ODD_DEEP) /* ends at the stack's end, not below it */
                assert_true(x[0] < 20);
            RUN("case_odds", right, .blocks = 1, .threads = 64, .shared = 256);
        }
}

TEST(test_emulation__launches_that_cannot_be)
{
    float y[4];
    const case_flat a = { y, y, 0 };
    assert_null(sheaf__emu_find("case_of_none"));
    FAILS("number of blocks", "case_each", a, .blocks = 0, .threads = 32);
    FAILS("more threads", "case_each", a, .blocks = 1, .threads = 257);
    FAILS("more threads", "case_each", a, .blocks = 1, .threads = 0);
    FAILS("more shared memory", "case_each", a, .blocks = 1, .threads = 32,
          .shared = SHEAF__EMU_SHARED + 1);
    char text[SHEAF__EMU_TEXT];
    assert_false(try_kernel("case_each", &a, sizeof a - 8, (setting){ 1, 32 }, text));
    assert_non_null(strstr(text, "another size"));
}
