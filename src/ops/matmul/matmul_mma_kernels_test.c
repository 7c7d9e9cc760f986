/* matmul_mma_kernels_test.c - the kernels of mma8 and mma16 equal the rule bit for bit, whatever
 * kinds of numbers meet: those that vectors compute, those left to the rule, and what lies between.
 */
#include "tests/matmul_twin.h"

typedef enum numbers {
    NORMAL,
    ANY,        /* all bits */
    TWICE,      /* each number beside its negative: sums cancel */
    SMALL,      /* products around the floor of E, and denormals */
    LOW,        /* products around the least E of vectors */
    LARGE,      /* up to the largest, and past it */
    SPECIALS,   /* some infinities and NaN among others */
    NEARLY_TWO, /* sums of integers reach 2^31: all of a group, and the sum before, are so large */
    MANY_ZEROS, /* and some infinities and NaN beside them */
    WIDE,       /* exponents of all sizes that vectors take */
    APART,      /* tiny ones, denormals and zeros meet large ones */
    NUMBERS
} numbers;

static const char *const names[NUMBERS] = { "normal", "any bits", "cancelling", "small",
                                            "low",    "large",    "specials",   "nearly two",
                                            "zeros",  "wide",     "apart" };

/* A sign, an exponent field from `least` on, and any fraction, of a type. */
static uint16_t number(sheaf_dtype dtype, int least, int count)
{
    const uint32_t u = random_u32(),
                   field = (uint32_t)(least + (int)(random_u32() % (uint32_t)count));
    return dtype == SHEAF_BF16 ? (uint16_t)((u & 0x807f) | field << 7)
                               : (uint16_t)((u & 0x83ff) | field << 10);
}

static uint16_t special(sheaf_dtype dtype)
{
    static const uint16_t bf16[] = { 0x7f80, 0xff80, 0x7fc1, 0xff81, 0x8000, 0, 1, 0x8001, 0x7f7f },
                          f16[] = { 0x7c00, 0xfc00, 0x7e01, 0xfc01, 0x8000, 0, 1, 0x8001, 0x7bff };
    return (dtype == SHEAF_BF16 ? bf16 : f16)[random_u32() % ARRAY_LEN(bf16)];
}

static uint16_t random_number(sheaf_dtype dtype, numbers kind)
{
    const bool bf16 = dtype == SHEAF_BF16;
    switch (kind) {
    case ANY: return (uint16_t)random_u32();
    case SMALL: return below(9) ? number(dtype, bf16 ? 55 : 0, bf16 ? 10 : 4) : number(dtype, 0, 2);
    case LOW: return number(dtype, bf16 ? 70 : 0, bf16 ? 14 : 10);
    case LARGE: return number(dtype, bf16 ? 140 : 20, bf16 ? 114 : 11);
    case SPECIALS: return below(150) ? number(dtype, bf16 ? 120 : 8, 9) : special(dtype);
    case NEARLY_TWO: return 0x3fff;
    case MANY_ZEROS:
        return below(150) == 0 ? special(dtype)
               : below(4)      ? (uint16_t)(random_u32() & 0x8000)
                               : number(dtype, 12, 4);
    case WIDE: return number(dtype, bf16 ? 80 : 1, bf16 ? 71 : 30);
    case APART: return below(6) ? number(dtype, 0, bf16 ? 25 : 3) : 0;
    default: return number(dtype, bf16 ? 120 : 8, 9);
    }
}

/* [rows, k]; of TWICE each second product is the negative of the one before, nearly always. */
static uint16_t *numbers_of(sheaf_dtype dtype, int64_t rows, int64_t k, numbers kind, bool right)
{
    uint16_t *x = keep((size_t)(rows * k) * 2);
    for (int64_t i = 0; i < rows * k; i++)
        x[i] = random_number(dtype, kind);
    for (int64_t r = 0; kind == TWICE && r < rows; r++)
        for (int64_t i = 0; i + 1 < k; i += 2)
            x[r * k + i + 1] = x[r * k + i] ^ (right ? 0x8000 : below(40) == 0);
    for (int64_t i = 0; kind == APART && !right && i < rows * k; i++)
        x[i] =
            dtype == SHEAF_F16 ? number(dtype, 10, 20) : number(dtype, below(40) ? 135 : 160, 17);
    /* each group of 16 is 2^5 times the one before */
    for (int64_t i = 0; kind == NEARLY_TWO && i < rows * k; i++)
        x[i] =
            (uint16_t)(x[i] + (i % k / 16 % 5 * (right ? 2 : 3) << (dtype == SHEAF_F16 ? 10 : 7)) +
                       (i / k % 2 << 15));
    for (int64_t r = 0; kind == MANY_ZEROS && r < rows; r++)
        for (int64_t i = 0; below(3) == 0 && i < k - k % 32; i++) /* all of some rows */
            x[r * k + i] = 0;
    return x;
}

static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F16 };

static void compare(const char *name, const sheaf__product *job, sheaf_sums sums)
{
    const size_t bytes = (size_t)extent(job->m, job->n, job->ldy) * 4;
    const mm_engine *before = NULL;
    run_ref(job, sums);
    void *want = memcpy(keep(bytes), job->y, bytes);
    for (int isa = 1; isa < nisas; isa++) {
        const mm_engine *engine = mm_engine_of(isas[isa], job->dtype, sums);
        assert_non_null(engine);
        if (engine == before)
            continue;
        before = engine;
        machines[0].sums = sums;
        sheaf__mm_products_with(isas[isa], &machines[0], job, 1);
        if (memcmp(job->y, want, bytes) == 0)
            continue;
        print_error("%s, %s, %s, m %d n %d k %d\n", isas[isa]->name, name, sheaf__sums_text(sums),
                    (int)job->m, (int)job->n, (int)job->term[0].k);
        CHECK_BYTES(name, job->y, want, bytes);
    }
}

/* `terms` terms of one chain, or of several. */
static void check(sheaf_dtype dtype, numbers kind, int64_t m, int64_t n, const int64_t *k,
                  int terms)
{
    sheaf__term term[3];
    for (int t = 0; t < terms; t++)
        term[t] = (sheaf__term){ .a = numbers_of(dtype, m, k[t], kind, false),
                                 .lda = k[t],
                                 .b = numbers_of(dtype, n, k[t], kind, true),
                                 .ldb = k[t],
                                 .form = SHEAF__B_NK,
                                 .k = k[t] };
    const sheaf__product job = plain_job(dtype, m, n, term, terms);
    compare(names[kind], &job, SHEAF_SUMS_MMA8);
    compare(names[kind], &job, SHEAF_SUMS_MMA16);
    drop_all();
}

TEST(test_mma_kernels__all_k_from_1_to_70)
{
    for (int64_t k = 1; k <= 70; k++)
        for (int kind = 0; kind < NUMBERS; kind++)
            check(types[(k + kind) % 2], (numbers)kind, 1 + below(7), 1 + below(70), &k, 1);
}

TEST(test_mma_kernels__around_blocks_and_chains)
{
    static const int64_t ks[] = { 239, 240, 241, 255, 256, 257,  271,
                                  272, 273, 511, 512, 513, 4096, 4096 + 17 };
    for (size_t i = 0; i < ARRAY_LEN(ks); i += (size_t)every(5))
        for (int kind = 0; kind < NUMBERS; kind++)
            for (size_t t = 0; t < ARRAY_LEN(types); t++)
                check(types[t], (numbers)kind, 3, 33 - 16 * (int64_t)t, &ks[i], 1);
}

TEST(test_mma_kernels__several_terms_in_a_chain)
{
    static const int64_t ks[][3] = { { 17, 300, 16 }, { 256, 16, 0 },  { 1, 1, 1 },
                                     { 0, 40, 255 },  { 300, 300, 7 }, { 4100, 8, 8 },
                                     { 16, 4112, 31 } };
    for (size_t i = 0; i < ARRAY_LEN(ks); i++)
        for (int kind = 0; kind < NUMBERS; kind++)
            check(types[(i + (size_t)kind) % 2], (numbers)kind, 2, 20, ks[i],
                  2 + (i + (size_t)kind) / 2 % 2);
}

/* Bands, tiles and areas of all sizes, whole and not. */
TEST(test_mma_kernels__all_sizes)
{
    static const int64_t sizes[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 97 };
    const int64_t k = 40;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t j = 0; j < ARRAY_LEN(sizes); j++)
            check(types[(i + j) % 2], (i + j) % 3 ? NORMAL : SPECIALS, sizes[i], sizes[j], &k, 1);
}

/* Vectors compute most of a product of ordinary numbers; here many more products. */
TEST(test_mma_kernels__a_million_sums)
{
    const int64_t k = 64, m = 200 / every(10);
    for (int kind = 0; kind < NUMBERS; kind++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            check(types[t], (numbers)kind, m, 100, &k, 1);
}

FIXTURE(make_machines, free_machines);
