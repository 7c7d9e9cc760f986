/* matmul_sizes_test.c - products of the size of real models: samples against the
 * reference, the whole result across instruction sets and thread counts. */
#include "tests/matmul_twin.h"

static const struct {
    const char *name;
    sheaf_dtype dtype;
    int form;
    bool a_km;
    int64_t m, n, k;
    int slices; /* of k */
} production[] = {
    { "down, row-cut", SHEAF_BF16, SHEAF__B_AHEAD, false, 1030, 2304, 6145, 8 },
    { "down, row-cut", SHEAF_F32, SHEAF__B_AHEAD, false, 517, 2304, 6145, 8 },
    { "dx of gate", SHEAF_BF16, SHEAF__B_BACK, false, 1030, 2304, 6145, 8 },
    { "dx of gate, stored", SHEAF_F32, SHEAF__B_BACK, false, 300, 2304, 6145, 8 },
    { "dx of gate", SHEAF_F32, SHEAF__B_BACK, false, 300, 2304, 6145, 8 },
    { "up", SHEAF_BF16, SHEAF__B_AHEAD, false, 4200, 769, 2304, 1 },
    { "LoRA A", SHEAF_BF16, SHEAF__B_NK, false, 4200, 16, 2304, 1 },
    { "LoRA A", SHEAF_F32, SHEAF__B_NK, false, 4200, 16, 2304, 1 },
    { "LoRA B", SHEAF_BF16, SHEAF__B_NK, false, 4200, 2304, 16, 1 },
    { "dA", SHEAF_BF16, SHEAF__B_KN, true, 16, 2304, 4200, 1 },
    { "dA", SHEAF_F32, SHEAF__B_KN, true, 16, 2304, 4200, 1 },
    { "dB", SHEAF_F32, SHEAF__B_KN, true, 6145, 16, 4200, 1 },
    { "dW", SHEAF_BF16, SHEAF__B_KN, true, 769, 2304, 4200, 1 },
    { "decoding", SHEAF_BF16, SHEAF__B_AHEAD, false, 1, 6145, 2304, 1 },
    { "decoding", SHEAF_F32, SHEAF__B_AHEAD, false, 5, 6145, 2304, 1 },
    { "dx of gate", SHEAF_F16, SHEAF__B_BACK, false, 60, 2304, 6145, 8 },
};

static void check_samples(const char *name, const sheaf__product *job, sheaf_sums sums)
{
    sheaf__product sample = *job;
    sample.y = keep((size_t)extent(job->m, job->n, job->ldy) * 4);
    for (int r = 0; r < 12; r++) {
        const int64_t i = r == 0 ? job->m - 1 : below(job->m),
                      j0 = r % 2 ? below(job->n) : job->n - 1;
        const int64_t j1 = mm_min(job->n, j0 + 20);
        const unsigned before = sheaf__compute_mode_enter();
        sheaf__product_ref_part(&sample, sums, i, i + 1, j0, j1);
        sheaf__compute_mode_leave(before);
        CHECK_BYTES(name, (float *)job->y + i * job->ldy + j0,
                    (float *)sample.y + i * job->ldy + j0, (j1 - j0) * 4);
    }
}

typedef struct sliced {
    sheaf__product job;
    sheaf_tree tree;
    sheaf__term term[8];
    int slice_of[8], first[9];
} sliced;

/* Large ones take a third of their rows, under sanitizers a 27th, in ./run soak all. */
static int64_t rows_of(size_t p)
{
    const bool large = production[p].m > 100 && production[p].n > 100 && production[p].k > 100;
    return production[p].m / (large ? in_soak(1, 3 * every(9)) : 1);
}

static void production_job(sliced *s, size_t p)
{
    memset(s, 0, sizeof *s);
    const int64_t m = rows_of(p), n = production[p].n, k = production[p].k;
    const int slices = production[p].slices;
    for (int i = 0; i < slices; i++) {
        const int64_t from = k * i / slices, to = k * (i + 1) / slices;
        s->term[i] = random_term(production[p].dtype, production[p].form, production[p].a_km, m, n,
                                 to - from, ORDINARY);
        s->slice_of[i] = i;
        s->first[i + 1] = i + 1;
    }
    sheaf_tree_init(&s->tree, slices, 1, NULL);
    s->job = plain_job(production[p].dtype, m, n, s->term, slices);
    s->job.nslices = slices;
    s->job.slice_of = s->slice_of;
    s->job.first = s->first;
    s->job.tree = &s->tree;
}

/* The thin ones, each in one order: others take seconds. */
static bool takes_mma(size_t p, sheaf_sums sums)
{
    const double size = (double)production[p].m * (double)production[p].n * (double)production[p].k;
    return sheaf__by_mma(sums, production[p].dtype) && size < 1e9 &&
           sums == (p % 2 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16);
}

TEST(test_product__production_sizes_agree_everywhere)
{
    const bool few = every(2) > 1;
    for (size_t i = 0; i < 4 * ARRAY_LEN(production); i++) {
        sliced s;
        const size_t p = i / 4;
        const sheaf_sums sums = (sheaf_sums)(i % 4);
        if (sums == SHEAF_SUMS_TILES && production[p].dtype != SHEAF_BF16)
            continue;
        if (sums >= SHEAF_SUMS_MMA8 && !takes_mma(p, sums))
            continue;
        if (few && (p % 5 != 0 || (production[p].dtype == SHEAF_BF16 && sums != p % 2)))
            continue;
        production_job(&s, p);
        const size_t bytes = (size_t)extent(s.job.m, s.job.n, s.job.ldy) * 4;
        void *want = NULL;
        for (int isa = 1; isa < nisas; isa++)
            for (int d = 0; d < 2; d++) {
                const mm_engine *e = mm_engine_of(isas[isa], production[p].dtype, sums);
                if (isa > 1 && e == mm_engine_of(isas[isa - 1], production[p].dtype, sums))
                    continue;
                if (isa < nisas - 1 && d != isa % 2)
                    continue; /* one thread count for all but the best */
                machines[d + 1].sums = sums;
                sheaf__mm_products_with(isas[isa], &machines[d + 1], &s.job, 1);
                if (want == NULL)
                    want = memcpy(keep(bytes), s.job.y, bytes);
                CHECK_BYTES(production[p].name, s.job.y, want, bytes);
            }
        if (nisas > 1)
            check_samples(production[p].name, &s.job, sums);
        drop_all();
    }
}

FIXTURE(make_machines, free_machines);
