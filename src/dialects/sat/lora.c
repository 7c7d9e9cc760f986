/* lora.c - see lora.h: what is adapted, and the merge. */
#include "dialects/sat/lora.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef SHEAF_NO_X86
#include <immintrin.h>
#endif

#include "base/status.h"
#include "base/array.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/thread.h"
#include "dialects/sat/parts.h"
#include "ops/kernels.h"

enum { MOST_RANK = 1 << 16 };

/* ---- what is adapted ---- */

static const sheaf_logical *factor(const sheaf_catalog *c, const char *linear, char which, int part)
{
    char name[560];
    snprintf(name, sizeof name, "%s.matrix_%c.%d", linear, which, part);
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    return t != NULL && t->kind == SHEAF_LORA && t->told.ndim == 2 ? t : NULL;
}

static const sheaf_logical *weight_of(const sheaf_catalog *c, const char *linear)
{
    char name[560];
    snprintf(name, sizeof name, "%s.weight", linear);
    return sheaf__catalog_find(c, name);
}

static bool arithmetic(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16;
}

/* One of its own in each part? Of A that is so for weights divided along axis 0, of B along axis
 * 1. */
static bool is_apart(const sheaf_sat_lora *lora, const sheaf_logical *t)
{
    return lora->ways > 1 && !t->replicated;
}

static sheaf_status *wrong(const sheaf_logical *t, int64_t rows, int64_t cols)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", t->told.name);
    sheaf_expected(st, "[%" PRId64 ", %" PRId64 "], by its weight and the rank", rows, cols);
    return sheaf_found(st, "[%" PRId64 ", %" PRId64 "]", t->told.shape[0], t->told.shape[1]);
}

static sheaf_status *check_part(const sheaf_sat_lora *lora, sheaf_sat_lora_linear *l, int p)
{
    const sheaf_logical *a = factor(lora->catalog, l->name, 'A', p),
                        *b = factor(lora->catalog, l->name, 'B', p);
    if (a == NULL || b == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", l->name),
                                          "matrix_A.%d and matrix_B.%d", p, p),
                           "not both of them");
    if (!arithmetic(a->told.dtype) || a->told.dtype != b->told.dtype)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", a->told.name),
                                          "factors in one of F32, BF16, F16"),
                           "%s and %s", sheaf_dtype_name(a->told.dtype),
                           sheaf_dtype_name(b->told.dtype));
    const bool a_apart = l->axis == 0 && is_apart(lora, a),
               b_apart = l->axis == 1 && is_apart(lora, b);
    const int64_t ra = lora->rank * (a_apart ? lora->ways : 1),
                  rb = lora->rank * (b_apart ? lora->ways : 1);
    if (a->told.shape[0] != ra || a->told.shape[1] != l->in)
        return wrong(a, ra, l->in);
    if (b->told.shape[0] != l->out / l->parts || b->told.shape[1] != rb)
        return wrong(b, l->out / l->parts, rb);
    l->apart = l->apart || a_apart || b_apart;
    l->dtype = a->told.dtype;
    return NULL;
}

static sheaf_status *describe(const sheaf_sat_lora *lora, sheaf_sat_lora_linear *l,
                              const sheaf__sat_name *what)
{
    const sheaf_logical *w = weight_of(lora->catalog, what->linear);
    *l = (sheaf_sat_lora_linear){ .name = strdup(what->linear),
                                  .axis = what->rule.axis,
                                  .parts = what->rule.parts };
    if (l->name == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", what->linear);
    if (!what->known || w == NULL || w->told.ndim != 2 || !arithmetic(w->told.dtype))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", what->linear),
                                          "a linear layer of the model, in F32, BF16 or F16"),
                           "%s",
                           w == NULL      ? "no such weight"
                           : !what->known ? "no layer of CogVLM or CogAgent"
                                          : sheaf_dtype_name(w->told.dtype));
    if (l->parts == 0)
        l->parts = 1; /* of a layer that SAT does not divide */
    l->out = w->told.shape[0];
    l->in = w->told.shape[1];
    const int64_t along = l->axis == 0 ? l->out / l->parts : l->in;
    if (l->out % l->parts != 0 || along % lora->ways != 0 || l->out < 1 || l->in < 1 ||
        l->out > INT32_MAX || l->in > INT32_MAX)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s.weight'", l->name),
                                          "rows in %d parts, cut in %d", l->parts, lora->ways),
                           "[%" PRId64 ", %" PRId64 "]", l->out, l->in);
    sheaf_status *st = NULL;
    for (int p = 0; st == NULL && p < l->parts; p++)
        st = check_part(lora, l, p);
    if (st == NULL && factor(lora->catalog, l->name, 'A', l->parts) != NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", l->name),
                                        "factors of %d parts", l->parts),
                         "one more");
    l->adapter_rank = lora->rank * l->parts * (l->apart ? lora->ways : 1);
    return st;
}

/* Both the config and the shapes say it. */
static sheaf_status *find_rank(sheaf_sat_lora *lora)
{
    json_t *config = NULL;
    const sheaf_catalog *c = lora->catalog;
    if (c->config != NULL) {
        sheaf_status *st = sheaf__json_parse(&config, c->config, strlen(c->config));
        if (st != NULL)
            return st;
    }
    const json_t *said = json_object_get(config, "lora_rank");
    lora->rank = json_is_integer(said) ? json_integer_value(said) : 0;
    json_decref(config);
    for (int64_t i = 0; lora->rank == 0 && i < c->count;
         i++) { /* a factor that is never one of each part */
        const sheaf_logical *t = &c->tensor[i];
        sheaf__sat_name what;
        if (t->kind == SHEAF_LORA && t->told.ndim == 2 && sheaf__sat_name_of(&what, t->told.name) &&
            what.kind == (what.rule.axis == 0 ? SHEAF_SAT_B : SHEAF_SAT_A))
            lora->rank = t->told.shape[what.kind == SHEAF_SAT_B];
    }
    if (lora->rank < 1 || lora->rank > MOST_RANK)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "lora_rank"), "1 to %d", MOST_RANK),
            "%" PRId64, lora->rank);
    lora->scale = (float)(1.0 / (double)lora->rank);
    return NULL;
}

static sheaf_status *find_linears(sheaf_sat_lora *lora)
{
    const sheaf_catalog *c = lora->catalog;
    int64_t n = 0;
    sheaf__sat_name what;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < c->count; i++)
        n += c->tensor[i].kind == SHEAF_LORA;
    if (n == 0)
        return NULL;
    lora->linear = calloc((size_t)n, sizeof *lora->linear);
    if (lora->linear == NULL)
        return sheaf__no_memory(c->root);
    st = find_rank(lora);
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        if (c->tensor[i].kind != SHEAF_LORA || !sheaf__sat_name_of(&what, c->tensor[i].told.name))
            continue;
        /* A layer is met at its first B; an A without it has nobody to speak for it. */
        if (what.kind == SHEAF_SAT_B && what.part == 0)
            st = describe(lora, &lora->linear[lora->count++], &what);
        else if (factor(c, what.linear, 'B', 0) == NULL)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", c->tensor[i].told.name),
                               "its matrix_B.0 too"),
                "none");
    }
    if (st == NULL)
        qsort(lora->linear, (size_t)lora->count, sizeof *lora->linear, sheaf__by_name);
    return st;
}

sheaf_status *sheaf_sat_lora_open(sheaf_sat_lora **out, const sheaf_catalog *c)
{
    sheaf_sat_lora *lora = calloc(1, sizeof *lora);
    if (lora == NULL)
        return sheaf__no_memory(c->root);
    *lora = (sheaf_sat_lora){ .catalog = c, .ways = c->tp > 0 ? c->tp : 1 };
    sheaf_status *st = find_linears(lora);
    if (st == NULL)
        *out = lora;
    else
        sheaf_sat_lora_free(lora);
    return st;
}

void sheaf_sat_lora_free(sheaf_sat_lora *lora)
{
    if (lora == NULL)
        return;
    for (int64_t i = 0; i < lora->count; i++)
        free(lora->linear[i].name);
    free(lora->linear);
    free(lora);
}

const sheaf_sat_lora_linear *sheaf_sat_lora_find(const sheaf_sat_lora *lora, const char *weight)
{
    char name[560];
    const int n = (int)strlen(weight) - (int)strlen(".weight");
    if (n < 1 || n >= (int)sizeof name || strcmp(weight + n, ".weight") != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s", n, weight);
    return SHEAF_FIND(const sheaf_sat_lora_linear, name, lora->linear, lora->count, name);
}

/* ---- the merge ---- */

static void chain_plain(float *d, const float *b, const float *a, int64_t lda, int64_t rank,
                        int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        float sum = 0;
        for (int64_t k = 0; k < rank; k++)
            sum = fmaf(b[k], a[k * lda + c], sum);
        d[c] = sum;
    }
}

/* The same chains, 32 columns at a time. */
#ifdef SHEAF_NO_X86
#define chain_avx2 chain_plain
#else
__attribute__((target("avx2,fma"))) static void chain_avx2(float *d, const float *b, const float *a,
                                                           int64_t lda, int64_t rank, int64_t n)
{
    int64_t c = 0;
    for (; c + 32 <= n; c += 32) {
        __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t k = 0; k < rank; k++) {
            const __m256 bk = _mm256_broadcast_ss(b + k);
            const float *at = a + k * lda + c;
            s0 = _mm256_fmadd_ps(bk, _mm256_loadu_ps(at), s0);
            s1 = _mm256_fmadd_ps(bk, _mm256_loadu_ps(at + 8), s1);
            s2 = _mm256_fmadd_ps(bk, _mm256_loadu_ps(at + 16), s2);
            s3 = _mm256_fmadd_ps(bk, _mm256_loadu_ps(at + 24), s3);
        }
        _mm256_storeu_ps(d + c, s0);
        _mm256_storeu_ps(d + c + 8, s1);
        _mm256_storeu_ps(d + c + 16, s2);
        _mm256_storeu_ps(d + c + 24, s3);
    }
    for (; c < n; c++) {
        float sum = 0;
        for (int64_t k = 0; k < rank; k++)
            sum = __builtin_fmaf(b[k], a[k * lda + c], sum);
        d[c] = sum;
    }
}
#endif

typedef struct merging {
    const sheaf_sat_lora *lora;
    const sheaf_sat_lora_linear *linear;
    const sheaf__kernels *kernels;
    float *a, *b, *d, *w; /* A of the part; B, delta and weight of the rows */
    void *stored;
    bool fast;
} merging;

/* A whole factor or some of its rows, as float32. */
static sheaf_status *load(float *dst, const merging *m, const sheaf_logical *t, int64_t row0,
                          int64_t rows)
{
    const int64_t cols = t->told.shape[1];
    sheaf_status *st = sheaf__catalog_read(m->lora->catalog, t, row0, rows, 0, cols, m->stored);
    if (st == NULL)
        m->kernels->convert(dst, SHEAF_F32, m->stored, t->told.dtype, rows * cols);
    return st;
}

/* d = B A for one row, `row` of part p: each slice with its own factors where they differ. */
static void delta_row(const merging *m, float *d, const float *b, int64_t row, bool a_apart,
                      bool b_apart)
{
    void (*chain)(float *, const float *, const float *, int64_t, int64_t, int64_t) =
        m->fast ? chain_avx2 : chain_plain;
    const sheaf_sat_lora_linear *l = m->linear;
    const int64_t rank = m->lora->rank;
    if (b_apart) {
        const int64_t n = l->in / m->lora->ways;
        for (int k = 0; k < m->lora->ways; k++)
            chain(d + k * n, b + k * rank, m->a + k * n, l->in, rank, n);
        return;
    }
    const int64_t slice = a_apart ? row / (l->out / l->parts / m->lora->ways) : 0;
    chain(d, b, m->a + slice * rank * l->in, l->in, rank, l->in);
}

/* Rows of one part: m->w += scale * B A, in the order and roundings asked for. */
static sheaf_status *merge_part(const merging *m, int p, int64_t row0, int64_t rows,
                                sheaf_sat_rounding rounding, float *w)
{
    const sheaf_sat_lora_linear *l = m->linear;
    const sheaf_logical *a = factor(m->lora->catalog, l->name, 'A', p),
                        *b = factor(m->lora->catalog, l->name, 'B', p);
    const sheaf_dtype dtype = weight_of(m->lora->catalog, l->name)->told.dtype;
    sheaf_status *st = load(m->a, m, a, 0, a->told.shape[0]);
    TRY(st, load(m->b, m, b, row0, rows));
    for (int64_t r = 0; st == NULL && r < rows; r++) {
        delta_row(m, m->d, m->b + r * b->told.shape[1], row0 + r,
                  l->axis == 0 && is_apart(m->lora, a), l->axis == 1 && is_apart(m->lora, b));
        m->kernels->scale(m->d, m->lora->scale, l->in);
        if (rounding == SHEAF_SAT_ROUND_TWICE && dtype != SHEAF_F32) {
            m->kernels->convert(m->stored, dtype, m->d, SHEAF_F32, l->in);
            m->kernels->convert(m->d, SHEAF_F32, m->stored, dtype, l->in);
        }
        m->kernels->add(w + r * l->in, w + r * l->in, m->d, l->in);
    }
    return st;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

sheaf_status *sheaf_sat_lora_rows(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                                  int64_t row0, int64_t rows, sheaf_sat_rounding rounding,
                                  void *dst)
{
    const sheaf_logical *weight = weight_of(lora->catalog, l->name);
    const int64_t block = l->out / l->parts, widest = lora->rank * lora->ways;
    merging m = { .lora = lora,
                  .linear = l,
                  .kernels = sheaf__kernels_for(NULL),
                  .fast = SHEAF__CPU_HAS("avx2") && SHEAF__CPU_HAS("fma") };
    if (m.kernels == NULL)
        m.kernels = sheaf__kernels_for("ref");
    if (row0 < 0 || rows < 0 || row0 > l->out - rows)
        return sheaf_fail(SHEAF_E_ARG, "'%s.weight': rows outside of it", l->name);
    if (rows == 0)
        return NULL;
    const int64_t most = larger(larger(rows * l->in, widest * l->in), rows * widest);
    m.a = malloc((size_t)(widest * l->in) * sizeof *m.a);
    m.b = malloc((size_t)(rows * widest) * sizeof *m.b);
    m.d = malloc((size_t)l->in * sizeof *m.d);
    m.w = malloc((size_t)(rows * l->in) * sizeof *m.w);
    m.stored = malloc((size_t)most * sizeof(float));
    const unsigned mode = sheaf__mode_set(SHEAF__MERGE_MODE); /* compute threads flush denormals */
    sheaf_status *st = m.a == NULL || m.b == NULL || m.d == NULL || m.w == NULL || m.stored == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "merging '%s'", l->name)
                           : load(m.w, &m, weight, row0, rows);
    for (int64_t at = row0; st == NULL && at < row0 + rows;) {
        const int64_t p = at / block,
                      n = (p + 1) * block < row0 + rows ? (p + 1) * block - at : row0 + rows - at;
        st = merge_part(&m, (int)p, at % block, n, rounding, m.w + (at - row0) * l->in);
        at += n;
    }
    if (st == NULL)
        m.kernels->convert(dst, weight->told.dtype, m.w, SHEAF_F32, rows * l->in);
    sheaf__mode_set(mode);
    free(m.a);
    free(m.b);
    free(m.d);
    free(m.w);
    free(m.stored);
    return st;
}

/* ---- as a source ---- */

typedef struct merged_source {
    sheaf_source source; /* first */
    sheaf_source *base;  /* owns the catalog */
    sheaf_sat_lora *lora;
    sheaf_sat_rounding rounding;
} merged_source;

static const sheaf_source_entry *merged_find(sheaf_source *self, const char *name)
{
    sheaf_source *base = ((merged_source *)self)->base;
    return base->find(base, name);
}

static int64_t merged_count(sheaf_source *self)
{
    sheaf_source *base = ((merged_source *)self)->base;
    return base->count(base);
}

static const sheaf_source_entry *merged_entry(sheaf_source *self, int64_t i)
{
    sheaf_source *base = ((merged_source *)self)->base;
    return base->entry(base, i);
}

static sheaf_status *merged_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const merged_source *s = (merged_source *)self;
    const sheaf_sat_lora_linear *l = sheaf_sat_lora_find(s->lora, name);
    if (l == NULL)
        return s->base->read(s->base, name, row0, rows, col0, cols, dst);
    if (col0 < 0 || cols < 0 || col0 > l->in - cols)
        return sheaf_fail(SHEAF_E_ARG, "tensor '%s': a box outside of it", name);
    if (col0 == 0 && cols == l->in)
        return sheaf_sat_lora_rows(s->lora, l, row0, rows, s->rounding, dst);
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(s->base->find(s->base, name)->dtype);
    char *row = malloc((size_t)(l->in * bytes));
    sheaf_status *st = row == NULL ? sheaf_fail(SHEAF_E_MEMORY, "tensor '%s'", name) : NULL;
    for (int64_t r = 0; st == NULL && r < rows; r++) {
        st = sheaf_sat_lora_rows(s->lora, l, row0 + r, 1, s->rounding, row);
        if (st == NULL)
            memcpy((char *)dst + r * cols * bytes, row + col0 * bytes, (size_t)(cols * bytes));
    }
    free(row);
    return st;
}

static void merged_close(sheaf_source *self)
{
    merged_source *s = (merged_source *)self;
    sheaf_sat_lora_free(s->lora);
    s->base->close(s->base);
    free(s);
}

sheaf_status *sheaf_sat_merged(sheaf_source **out, sheaf_catalog *c, sheaf_sat_rounding rounding)
{
    sheaf_source *base = NULL;
    sheaf_sat_lora *lora = NULL;
    sheaf_status *st = sheaf__catalog_source(&base, c, false); /* owns c, which stays where it is */
    if (st != NULL)
        return st;
    st = sheaf_sat_lora_open(&lora, c);
    merged_source *s = st == NULL ? calloc(1, sizeof *s) : NULL;
    TRY(st, s == NULL ? sheaf__no_memory("merging") : NULL);
    if (st != NULL) {
        sheaf_sat_lora_free(lora);
        base->close(base);
        return st;
    }
    *s = (merged_source){
        { merged_find, merged_count, merged_entry, merged_read, merged_close }, base, lora, rounding
    };
    *out = &s->source;
    return NULL;
}
