/* matmul_twin.h - machines to run on, random operands, and the comparison with the
 * reference, for the tests of this folder. */
#pragma once

#include "base/cpu.h"
#include "base/thread.h"
#include "ops/math/round.h"
#include "ops/matmul/matmul_private.h"
#include "ops/pool.h"
#include "tests/check.h"

/* ---- machines to run on: every instruction set this CPU has, 1, 2 and 5 threads ---- */

static const int thread_counts[] = { 1, 2, 5 };
static sheaf__device machines[ARRAY_LEN(thread_counts)];
static const mm_isa *isas[5];
static int nisas;

static inline int make_machines(void **state)
{
    (void)state;
    isas[nisas++] = &sheaf__mm_ref;
    if (sheaf__kernels_for("avx2") != NULL)
        isas[nisas++] = &sheaf__mm_avx2;
#ifndef SHEAF_NO_X86
    if (sheaf__cpu_has_avx512())
        isas[nisas++] = &sheaf__mm_avx512;
    if (sheaf__units_have_pairs())
        isas[nisas++] = &sheaf__mm_avx512bf16;
    if (sheaf__units_have_tiles())
        isas[nisas++] = &sheaf__mm_amx;
#endif
    else
        print_message("tiles: not on this machine, not compared\n");
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        sheaf__device *d = &machines[i];
        d->class = d->planned = &sheaf__cpu;
        d->threads = thread_counts[i];
        CHECK_OK(sheaf__pool_new(&d->pool, d->threads));
        d->scratch = calloc((size_t)d->threads, sizeof *d->scratch);
        for (int t = 0; t < d->threads; t++) {
            d->scratch[t] = aligned_alloc(4096, SHEAF__THREAD_SCRATCH);
            memset(d->scratch[t], 0xff, SHEAF__THREAD_SCRATCH); /* NaN, should it leak */
        }
    }
    return 0;
}

static inline int free_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        for (int t = 0; t < machines[i].threads; t++)
            free(machines[i].scratch[t]);
        free(machines[i].scratch);
        sheaf__pool_free(machines[i].pool);
    }
    return 0;
}

/* ---- operands ---- */

static uint64_t seed;

static inline uint32_t random_u32(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

static inline int64_t below(int64_t n)
{
    return (int64_t)(random_u32() % (uint64_t)n);
}

/* Everything a case allocates, freed together. */
static void *kept[4096];
static int nkept;

static inline void *keep(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(p);
    assert_true(nkept < (int)ARRAY_LEN(kept));
    kept[nkept++] = p;
    return p;
}

static inline void drop_all(void)
{
    while (nkept > 0)
        free(kept[--nkept]);
}

typedef enum kind { ORDINARY, SPECIAL, TINY } kind;

/* Values in (-1, 1); SPECIAL mixes in infinities, NaN and zeros of both signs, TINY has
 * magnitudes around the square root of the smallest normal number, and denormals. */
static inline float random_float(kind kind)
{
    static const uint32_t special[] = { 0x7f800000, 0xff800000, 0x7fc01234, 0xffc00000,
                                        0x7f812345, 0x7fffffff, 0x80000000, 0x00000000,
                                        0x7f7fffff, 0x00800000, 0x80400000 };
    const uint32_t u = random_u32();
    if (kind == SPECIAL && u % 64 == 0)
        return sheaf__float(special[random_u32() % ARRAY_LEN(special)]);
    if (kind == TINY)
        return sheaf__float((u & 0x807fffffu) | (u % 16 == 0 ? 0 : (58 + random_u32() % 10) << 23));
    return (float)(int32_t)u * 0x1p-31f;
}

/* float32 is as frequent as the two types of 16 bits together. */
static inline sheaf_dtype random_type(void)
{
    return below(2) ? SHEAF_F32 : below(2) ? SHEAF_BF16 : SHEAF_F16;
}

/* TINY: many denormal halves. */
static inline uint16_t random_half(kind kind)
{
    const uint32_t u = random_u32();
    return kind == TINY ? (uint16_t)(u & 0x87ffu) : sheaf__f16(random_float(kind));
}

static inline void *random_vector(sheaf_dtype dtype, int64_t count, kind kind)
{
    void *p = keep((size_t)count * (dtype == SHEAF_F32 ? 4 : 2));
    for (int64_t i = 0; i < count; i++) {
        const float x = dtype == SHEAF_F16 ? 0 : random_float(kind);
        if (dtype == SHEAF_F32)
            ((float *)p)[i] = x;
        else if (dtype == SHEAF_F16)
            ((uint16_t *)p)[i] = random_half(kind);
        else
            ((uint16_t *)p)[i] = (uint16_t)(sheaf__bits(x) >> 16);
    }
    return p;
}

/* Elements from the first of a matrix to its last: no space behind it, where a tool that
 * watches memory would not see it read. */
static inline int64_t extent(int64_t rows, int64_t cols, int64_t ld)
{
    return rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
}

static inline void *random_matrix(sheaf_dtype dtype, int64_t rows, int64_t cols, int64_t ld,
                                  kind kind)
{
    void *p = random_vector(dtype, extent(rows, cols, ld), kind);
    const size_t size = dtype == SHEAF_F32 ? 4 : 2;
    for (int64_t r = 0; cols > 0 && r + 1 < rows; r++) /* NaN between the rows, should it be read */
        memset((char *)p + (size_t)(r * ld + cols) * size, 0xff, (size_t)(ld - cols) * size);
    return p;
}

enum { FORMS = SHEAF__B_BACK + 1 };

/* Every second one is a part of a larger one, between rows of NaN: rows that begin at a multiple of
 * `apart` there. */
static inline sheaf__packed *packed_matrix(sheaf_dtype dtype, int64_t n, int64_t k, int64_t apart,
                                           kind kind)
{
    sheaf__packed *w = keep(sizeof *w), whole = { .dtype = dtype, .n = n, .k = k };
    const int64_t before = below(2) ? apart * below(128 / apart) : 0, ld = k + below(5);
    whole.n += before + (below(2) ? below(70) : 0);
    whole.ahead = keep(sheaf__packed_bytes(dtype, whole.n, k));
    memset(whole.ahead, 0xff, sheaf__packed_bytes(dtype, whole.n, k));
    *w = whole.n == n ? whole : sheaf__packed_part(&whole, before, n);
    sheaf__pack(w, random_matrix(dtype, n, k, ld, kind), dtype, ld, 0, n);
    return w;
}

static inline sheaf__term random_term(sheaf_dtype dtype, int form, bool a_km, int64_t m, int64_t n,
                                      int64_t k, kind kind)
{
    sheaf__term t = { .a_km = a_km, .k = k, .form = (sheaf__right)form };
    t.lda = (a_km ? m : k) + below(4);
    t.a = random_matrix(dtype, a_km ? k : m, a_km ? m : k, t.lda, kind);
    switch (form) {
    case SHEAF__B_NK:
        t.ldb = k + below(4);
        t.b = random_matrix(dtype, n, k, t.ldb, kind);
        break;
    case SHEAF__B_KN:
        t.ldb = n + below(4);
        t.b = random_matrix(dtype, k, n, t.ldb, kind);
        break;
    default: { /* a weight that meets float32 or float16 may be of any type */
        const sheaf_dtype stored = dtype == SHEAF_BF16 ? dtype : random_type();
        static const int64_t apart[] = { 1, 2, 8, 16, 32 };
        t.w = form == SHEAF__B_AHEAD
                  ? packed_matrix(stored, n, k, MM_PANEL, kind)
                  : packed_matrix(stored, k, n, apart[below(ARRAY_LEN(apart))], kind);
    }
    }
    return t;
}

/* ---- running and comparing ---- */

typedef struct output {
    void *at;
    size_t bytes;
} output;

static inline int outputs_of(output out[SHEAF_MAX_SLICES], const sheaf__product *job)
{
    if (job->roots == NULL) {
        out[0] = (output){ job->y, (size_t)extent(job->m, job->n, job->ldy) *
                                       (job->out == SHEAF_F32 ? 4 : 2) };
        return 1;
    }
    int count;
    sheaf_tree_own(job->tree, job->rank, &count);
    for (int r = 0; r < count; r++)
        out[r] = (output){ job->roots[r], (size_t)(job->m * job->n) * 4 };
    return count;
}

static inline void run_ref(const sheaf__product *job, sheaf_sums sums)
{
    const unsigned before = sheaf__compute_mode_enter();
    sheaf__product_ref(job, sums);
    sheaf__compute_mode_leave(before);
}

/* Does an instruction set run a job of this turn with the thread count of machine d? In ./run soak
 * with all of them, else with one in turn, and the reference, which is slow, a third of the jobs.
 */
static inline bool takes_job(int isa, size_t d, int64_t turn)
{
    if (isa == 0)
        return turn % (in_soak(1, 3) * (int64_t)ARRAY_LEN(machines)) == (int64_t)d;
    return in_soak(1, 0) || (isa + turn) % (int64_t)ARRAY_LEN(machines) == (int64_t)d;
}

/* All instruction sets against the reference, with thread counts in turn; what lies between the
 * columns of y has to stay as it was. */
static inline void check_order(const char *name, const sheaf__product *job, sheaf_sums sums)
{
    output out[SHEAF_MAX_SLICES];
    const int count = outputs_of(out, job);
    void *before[SHEAF_MAX_SLICES], *want[SHEAF_MAX_SLICES];
    for (int o = 0; o < count; o++)
        before[o] = memcpy(keep(out[o].bytes), out[o].at, out[o].bytes);
    run_ref(job, sums);
    for (int o = 0; o < count; o++)
        want[o] = memcpy(keep(out[o].bytes), out[o].at, out[o].bytes);
    for (int isa = 0; isa < nisas; isa++)
        for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
            if (!takes_job(isa, d, job->m + job->n))
                continue;
            for (int o = 0; o < count; o++)
                memcpy(out[o].at, before[o], out[o].bytes);
            machines[d].sums = sums;
            sheaf__mm_products_with(isas[isa], &machines[d], job, 1);
            for (int o = 0; o < count; o++)
                if (memcmp(out[o].at, want[o], out[o].bytes) != 0) {
                    print_error("%s, %s, %s, %d threads, m %d n %d\n", isas[isa]->name, name,
                                sheaf__sums_text(sums), machines[d].threads, (int)job->m,
                                (int)job->n);
                    CHECK_BYTES(name, out[o].at, want[o], out[o].bytes);
                }
        }
}

/* Both orders of bfloat16; results stay as the last one left them. */
static inline void check_job(const char *name, const sheaf__product *job)
{
    output out[SHEAF_MAX_SLICES];
    void *before[SHEAF_MAX_SLICES];
    const int count = outputs_of(out, job);
    for (int o = 0; job->dtype == SHEAF_BF16 && o < count; o++)
        before[o] = memcpy(keep(out[o].bytes), out[o].at, out[o].bytes);
    if (job->dtype == SHEAF_BF16)
        check_order(name, job, SHEAF_SUMS_TILES);
    for (int o = 0; job->dtype == SHEAF_BF16 && o < count; o++)
        memcpy(out[o].at, before[o], out[o].bytes);
    check_order(name, job, SHEAF_SUMS_PAIRS);
}

static inline sheaf__product plain_job(sheaf_dtype dtype, int64_t m, int64_t n,
                                       const sheaf__term *term, int nterms)
{
    sheaf__product job = { .m = m,
                           .n = n,
                           .dtype = dtype,
                           .nslices = 1,
                           .term = term,
                           .nterms = nterms,
                           .out = SHEAF_F32,
                           .alpha = 1,
                           .round_to = SHEAF_F32 };
    job.ldy = n + below(4);
    job.y = random_matrix(SHEAF_F32, m, n, job.ldy, ORDINARY);
    return job;
}

/* Any way out of a job whose m and n are set. */
static inline void random_ending(sheaf__product *job, kind kind)
{
    job->out = random_type();
    job->add = job->out == SHEAF_F32 && below(3) == 0;
    job->alpha = below(2) ? 1.0f : random_float(ORDINARY);
    job->round_to = random_type();
    job->ldy = job->n + below(9);
    job->y = random_matrix(job->out, job->m, job->n, job->ldy, kind);
    if (job->add)
        return;
    if (below(2))
        job->bias = random_vector(SHEAF_F32, job->n, kind);
    if (below(2)) {
        job->ldr = job->n + below(9);
        job->residual = random_matrix(job->out, job->m, job->n, job->ldr, kind);
    }
}

/* Jobs of one call against the reference, as in check_order(). */
static inline void check_together(const char *name, const sheaf__product *job, int jobs,
                                  sheaf_sums sums)
{
    output *before = keep((size_t)jobs * sizeof *before), *want = keep((size_t)jobs * sizeof *want);
    for (int j = 0; j < jobs; j++) {
        outputs_of(&before[j], &job[j]);
        want[j] = before[j];
        before[j].at = memcpy(keep(before[j].bytes), job[j].y, before[j].bytes);
        run_ref(&job[j], sums);
        want[j].at = memcpy(keep(want[j].bytes), job[j].y, want[j].bytes);
    }
    for (int isa = 0; isa < nisas; isa++)
        for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
            if (!takes_job(isa, d, job->m + job->n))
                continue;
            for (int j = 0; j < jobs; j++)
                memcpy(job[j].y, before[j].at, before[j].bytes);
            machines[d].sums = sums;
            sheaf__mm_products_with(isas[isa], &machines[d], job, jobs);
            for (int j = 0; j < jobs; j++)
                CHECK_BYTES(name, job[j].y, want[j].at, want[j].bytes);
        }
}
