/* attention_twin.h - what both tests of attention use: a problem with operands and space for
 * results, the reference and the fast kernels run on it, and their comparison. */
#pragma once

#include "ops/attention/attention_parts.h"
#include "tests/ops_twin.h"

/* ---- the definition, of a whole call: plain C, serial, slow; with DAZ and FTZ set, like all
 * arithmetic under the contract ---- */
typedef void part_kernel(const sheaf__attention_call *call, const sheaf__attention_part *part);
enum { OF_ROWS, OF_QUERIES, OF_KEYS };

static inline void for_each_head(const sheaf__attention_call *all, int what, part_kernel *part)
{
    const int64_t segments = all->shape->segment == NULL ? 1 : all->shape->segments;
    for (int64_t i = 0; i < segments; i++) {
        sheaf__attention_call call;
        sheaf__attention shape;
        sheaf__attention_segment(&call, &shape, all, i);
        const int64_t end = what == OF_KEYS   ? shape.keys
                            : what == OF_ROWS ? shape.queries * shape.group
                                              : shape.queries;
        for (int64_t b = 0; b < shape.batch; b++)
            for (int64_t kv = 0; kv < shape.kv_heads; kv++)
                part(&call, &(sheaf__attention_part){ b, kv, 0, shape.group, 0, end });
    }
}

static inline void attention_forward_ref(const sheaf__attention *shape, sheaf_sums sums, void *o,
                                         float *stats, const void *q, const void *k, const void *v)
{
    const sheaf__attention_call call = {
        .shape = shape, .o = o, .stats = stats, .q = q, .k = k, .v = v, .sums = sums
    };
    for_each_head(&call, OF_ROWS, sheaf__attention_ref_rows);
}

static inline void attention_backward_ref(const sheaf__attention *shape, sheaf_sums sums, void *dq,
                                          void *dk, void *dv, const void *d_o, const void *o,
                                          const float *stats, const void *q, const void *k,
                                          const void *v)
{
    /* o and stats are only read; the call has one field for both directions */
    const sheaf__attention_call call = { shape, (void *)o, (float *)stats, q,    k, v, d_o, dq,
                                         dk,    dv,        sums,           { 0 } };
    for_each_head(&call, OF_QUERIES, sheaf__attention_ref_dq);
    for_each_head(&call, OF_KEYS, sheaf__attention_ref_dkv);
}

/* ---- shapes ---- */
static const sheaf_dtype attention_types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };

/* Of dense rows. */
static inline sheaf__attention attention_of(sheaf_dtype dtype, int64_t batch, int64_t queries,
                                            int64_t keys, int64_t kv_heads, int64_t group,
                                            int64_t head_dim, float scale)
{
    const int64_t width = kv_heads * head_dim;
    return (sheaf__attention){ dtype,
                               batch,
                               queries,
                               keys,
                               kv_heads,
                               group,
                               head_dim,
                               .scale = scale,
                               .kv_rows = keys,
                               .ldq = group * width,
                               .ldo = group * width,
                               .ldk = width,
                               .ldv = width };
}

static inline sheaf__attention full_attention_of(sheaf_dtype dtype, int64_t batch, int64_t queries,
                                                 int64_t keys, int64_t kv_heads, int64_t group,
                                                 int64_t head_dim, float scale)
{
    sheaf__attention s =
        attention_of(dtype, batch, queries, keys, kv_heads, group, head_dim, scale);
    s.full = true;
    return s;
}

static inline sheaf__attention windowed(sheaf__attention s, int64_t window)
{
    s.window = window;
    return s;
}

/* ---- one problem: operands, and space for results, none of which is given back ---- */
typedef struct problem {
    sheaf__attention s;
    sheaf_sums sums;                /* pairs unless set */
    int64_t nq, nk, nv, no, nstats; /* elements */
    void *q, *k, *v, *d_o;
    uint8_t *mask;
} problem;

typedef struct result {
    void *o, *dq, *dk, *dv;
    float *stats;
} result;

static inline size_t bytes_of(const problem *p, int64_t n)
{
    return (size_t)n * twin_bytes(p->s.dtype);
}

static inline void *guarded(const problem *p, int64_t n, uint64_t salt)
{
    void *x = twin_take(bytes_of(p, n));
    twin_fill(x, n, p->s.dtype, TWIN_PLAIN, salt);
    return x;
}

/* Zeros; a search for leaks finds them in use. */
static inline void *lasting(size_t bytes)
{
    static void **last;
    void **block = calloc(1, sizeof *block + bytes);
    *block = last;
    last = block;
    return block + 1;
}

/* Rows end with their last head, the last row at a page that must not be touched. */
static inline problem problem_of(sheaf__attention s, int64_t slack, bool masked)
{
    problem p = { .s = s };
    const int64_t q_wide = s.kv_heads * s.group * s.head_dim,
                  k_wide = s.by_head ? s.head_dim : s.kv_heads * s.head_dim,
                  tables = s.by_head ? s.batch * s.kv_heads : s.batch;
    p.s.ldq = q_wide + slack;
    p.s.ldo = q_wide + 2 * slack;
    p.s.ldk = k_wide + slack;
    p.s.ldv = k_wide + 3 * slack;
    p.nq = (s.batch * s.queries - 1) * p.s.ldq + q_wide;
    p.no = (s.batch * s.queries - 1) * p.s.ldo + q_wide;
    p.nk = ((tables - 1) * s.kv_rows + s.keys - 1) * p.s.ldk + k_wide;
    p.nv = ((tables - 1) * s.kv_rows + s.keys - 1) * p.s.ldv + k_wide;
    p.nstats = s.batch * s.kv_heads * s.group * s.queries * 2;
    p.q = guarded(&p, p.nq, 1);
    p.k = guarded(&p, p.nk, 2);
    p.v = guarded(&p, p.nv, 3);
    p.d_o = guarded(&p, p.no, 4);
    if (masked) {
        p.s.mask_ld = s.keys + 3;
        p.mask = lasting((size_t)(s.batch * p.s.mask_ld));
        p.s.key_mask = p.mask;
    }
    return p;
}

static inline bool has_backward(const sheaf__attention *s)
{
    return !s->by_head && (s->full || s->queries == s->keys);
}

static inline result result_of(const problem *p)
{
    return (result){ twin_take(bytes_of(p, p->no)), twin_take(bytes_of(p, p->nq)),
                     twin_take(bytes_of(p, p->nk)), twin_take(bytes_of(p, p->nv)),
                     lasting((size_t)p->nstats * sizeof(float)) };
}

static inline void same_results(const char *name, const problem *p, const result *got,
                                const result *want)
{
    char what[240];
    const struct {
        const char *name;
        const void *got, *want;
        size_t size;
    } part[] = {
        { "o", got->o, want->o, bytes_of(p, p->no) },
        { "stats", got->stats, want->stats, (size_t)p->nstats * 4 },
        { "dq", got->dq, want->dq, bytes_of(p, p->nq) },
        { "dk", got->dk, want->dk, bytes_of(p, p->nk) },
        { "dv", got->dv, want->dv, bytes_of(p, p->nv) },
    };
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        snprintf(what, sizeof what, "%s: %s", name, part[i].name);
        CHECK_BYTES(what, part[i].got, part[i].want, part[i].size);
    }
}

/* The reference, with DAZ and FTZ set. */
static inline void run_ref(const problem *p, const result *r)
{
    const unsigned before = sheaf__compute_mode_enter();
    attention_forward_ref(&p->s, p->sums, r->o, r->stats, p->q, p->k, p->v);
    if (has_backward(&p->s))
        attention_backward_ref(&p->s, p->sums, r->dq, r->dk, r->dv, p->d_o, r->o, r->stats, p->q,
                               p->k, p->v);
    sheaf__compute_mode_leave(before);
}

/* limit: bytes of the device. Returns the most scratch that was in use. */
static inline size_t run_limited(const problem *p, const result *r, const char *isa, int threads,
                                 size_t limit)
{
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, threads, isa, limit));
    device->sums = p->sums;
    sheaf__attention_forward(device, &p->s, r->o, r->stats, p->q, p->k, p->v);
    if (has_backward(&p->s))
        sheaf__attention_backward(device, &p->s, r->dq, r->dk, r->dv, p->d_o, r->o, r->stats, p->q,
                                  p->k, p->v);
    const size_t peak = device->peak_of[SHEAF_MEM_SCRATCH];
    assert_true(device->in_use[SHEAF_MEM_SCRATCH] ==
                (size_t)threads * sheaf__device_needs(SHEAF__THREAD_SCRATCH));
    sheaf__device_close(device);
    return peak;
}

static inline void run_device(const problem *p, const result *r, const char *isa, int threads)
{
    (void)run_limited(p, r, isa, threads, SMALL_DEVICE);
}

static const char *const columns[] = { "avx2", "avx512", "avx512bf16", "amx" };

static inline bool on_this_cpu(const char *isa)
{
    if (sheaf__kernels_for(isa) != NULL)
        return true;
    print_message("%s: not on this CPU, not compared\n", isa);
    return false;
}

/* ---- the fast kernels are the reference ---- */
static inline uint32_t chance(uint64_t what, uint32_t below)
{
    return sheaf__random_tensor_u32(5, 6, what) % below;
}

static inline void fill_mask(const problem *p, uint64_t round)
{
    for (int64_t b = 0; p->mask != NULL && b < p->s.batch; b++) {
        uint8_t *row = p->mask + b * p->s.mask_ld;
        const int64_t n = p->s.keys, left = chance(round * 9 + 1, (uint32_t)n),
                      kind = (round + (uint64_t)b) % 3;
        for (int64_t j = 0; j < n; j++)
            row[j] = kind == 0   ? j >= left
                     : kind == 1 ? j < n - left
                                 : chance(round * 4096 + (uint64_t)j, 4) != 0;
    }
}

/* Every way to divide the work must give the same bits, so kernels are called directly:
 * rows in two parts, gradients together or apart, and scratch so small that values are packed run
 * by run, and scores are made again backward. */
static inline void run_parts(const problem *p, const result *r, const char *isa, int way)
{
    const sheaf__attention *s = &p->s;
    sheaf__attention_kernel *kernel = sheaf__attention_kernel_for(sheaf__kernels_for(isa)->isa);
    const sheaf__attention_call call = { s,     r->o,  r->stats, p->q,
                                         p->k,  p->v,  p->d_o,   r->dq,
                                         r->dk, r->dv, p->sums,  sheaf__units_for(isa) };
    const size_t whole = SHEAF__THREAD_SCRATCH, little = (size_t)1 << 20;
    char *scratch = twin_take(whole);
    const unsigned before = sheaf__compute_mode_enter();
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t kv = 0; kv < s->kv_heads; kv++) {
            const int64_t rows = s->queries * s->group, split = way == 0 ? rows : rows / 3;
            const size_t bytes = way == 2 && s->head_dim <= 80 ? little : whole;
            sheaf__attention_part part = { b, kv, 0, s->group, 0, split };
            if (split > 0)
                kernel(&call, &part, SHEAF__ATTENTION_ROWS, scratch + whole - bytes, bytes);
            part.begin = split;
            part.end = rows;
            if (split < rows)
                kernel(&call, &part, SHEAF__ATTENTION_ROWS, scratch + whole - bytes, bytes);
            if (!has_backward(s))
                continue;
            for (int64_t j = 0; j < s->keys; j += way == 0 ? s->keys : 256) {
                const int64_t end = way == 0 || j + 256 > s->keys ? s->keys : j + 256;
                kernel(&call, &(sheaf__attention_part){ b, kv, 0, s->group, j, end },
                       way == 0 ? SHEAF__ATTENTION_DKV_DQ : SHEAF__ATTENTION_DKV, scratch, whole);
            }
            for (int64_t i = 0; way != 0 && i < s->queries; i += 256)
                for (int64_t g = 0; g < s->group; g++) {
                    const int64_t end = i + 256 > s->queries ? s->queries : i + 256;
                    kernel(&call, &(sheaf__attention_part){ b, kv, g, g + 1, i, end },
                           SHEAF__ATTENTION_DQ, scratch, whole);
                }
        }
    sheaf__compute_mode_leave(before);
    munmap(scratch, whole);
}

static inline void check_order(const problem *p, const char *name)
{
    result want = result_of(p);
    run_ref(p, &want);
    for (size_t c = 0; c < ARRAY_LEN(columns); c++)
        for (int way = 0; way < 3 && on_this_cpu(columns[c]); way++) {
            char what[200];
            if (strcmp(columns[c], p->sums == SHEAF_SUMS_TILES ? "avx512bf16" : "amx") == 0 ||
                ((p->s.dtype == SHEAF_F32 || p->sums >= SHEAF_SUMS_MMA8) && c > 1))
                continue; /* the kernels of another column */
            result got = result_of(p);
            snprintf(what, sizeof what, "%s, %s, %s, way %d", name, columns[c],
                     sheaf__sums_text(p->sums), way);
            run_parts(p, &got, columns[c], way);
            same_results(what, p, &got, &want);
        }
}

static inline void check_twins(const problem *p, const char *name)
{
    problem other = *p;
    check_order(p, name);
    other.sums = SHEAF_SUMS_TILES;
    if (p->s.dtype == SHEAF_BF16)
        check_order(&other, name);
    /* their reference takes ten times as long: one of both, in turns that keep step with no loop */
    if (p->s.dtype != SHEAF_F32 && p->s.head_dim % 2 == 0) {
        static unsigned turn;
        other.sums = __builtin_popcount(turn++) % 2 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
        check_order(&other, name);
    }
}

static inline void check_shape(sheaf__attention s, int64_t slack, bool masked, uint64_t round)
{
    char name[120];
    problem p = problem_of(s, slack, masked);
    fill_mask(&p, round);
    snprintf(name, sizeof name, "%s, %d queries, %d keys, %d x %d heads of %d, window %d%s%s",
             s.dtype == SHEAF_F32 ? "f32" : "bf16", (int)s.queries, (int)s.keys, (int)s.kv_heads,
             (int)s.group, (int)s.head_dim, (int)s.window, masked ? ", masked" : "",
             s.full ? ", full" : "");
    check_twins(&p, name);
}

/* In a row of q, k, v or d_o, in the second key head. */
static inline void put_odd_number(const problem *p, int operand, int64_t row, float x)
{
    void *const where[] = { p->q, p->k, p->v, p->d_o };
    const bool key = operand == 1 || operand == 2;
    const int64_t at = key ? row * p->s.ldk + 20 : row * p->s.ldq + 40;
    if (p->s.dtype == SHEAF_F32)
        ((float *)where[operand])[at] = x;
    else /* not through a rounding that would end denormals */
        ((uint16_t *)where[operand])[at] = (uint16_t)(sheaf__bits(x) >> 16);
}

/* With an odd number there, in an operand, every kernel is the definition; masked: with the mask
 * of a round. */
static inline void check_odd_number(sheaf__attention s, bool masked, uint64_t round, int operand,
                                    int64_t row, float x)
{
    char name[80];
    const problem p = problem_of(s, 0, masked);
    fill_mask(&p, round);
    put_odd_number(&p, operand, row, x);
    snprintf(name, sizeof name, "%g in operand %d of row %d", (double)x, operand, (int)row);
    check_twins(&p, name);
}

/* x of one channel of key j, in all heads, or of query j: the others are zero. */
static inline void put_channel(const problem *p, void *x, int64_t j, int64_t c, float value)
{
    const sheaf__attention *s = &p->s;
    const int64_t ld = x == p->q   ? s->ldq
                       : x == p->v ? s->ldv
                                   : s->ldk,
                  heads = x == p->q ? s->kv_heads * s->group : s->kv_heads;
    for (int64_t h = 0; h < heads; h++)
        sheaf__store(x, j * ld + h * s->head_dim + c, value, s->dtype);
}

/* Scores rise by more than 8 within and between parts, exact in float32; of one sequence. */
static inline float rising(int64_t j)
{
    return 9.0f * (float)(j / 300 + j / SHEAF__ATTENTION_PART) + (float)(j % 7) * 0.125f;
}

static inline void put_rising(const problem *p)
{
    memset(p->q, 0, bytes_of(p, p->nq));
    memset(p->k, 0, bytes_of(p, p->nk));
    for (int64_t i = 0; i < p->s.queries; i++)
        put_channel(p, p->q, i, 0, 1 / p->s.scale);
    for (int64_t j = 0; j < p->s.keys; j++)
        put_channel(p, p->k, j, 0, rising(j));
}

/* Sums of 256 keys are denormal, those of more are not. Scores of odd rows rise. */
static inline void put_denormal_chains(const problem *p)
{
    memset(p->q, 0, bytes_of(p, p->nq));
    memset(p->k, 0, bytes_of(p, p->nk));
    for (int64_t i = 0; i < p->s.queries; i++) {
        put_channel(p, p->q, i, 0, 1 / p->s.scale);
        put_channel(p, p->q, i, 1, (float)(i % 2) / p->s.scale);
    }
    for (int64_t j = 0; j < p->s.keys; j++) {
        put_channel(p, p->k, j, 0, j == 0 ? 0 : -6.25f);
        put_channel(p, p->k, j, 1, 10.0f * (float)(j / SHEAF__ATTENTION_KEYS));
        for (int64_t c = 0; c < p->s.head_dim; c++)
            put_channel(p, p->v, j, c, j == 0 ? 0 : j < 256 ? 0x1p-126f : 0x1p-121f);
    }
}
