/* lora.c - see lora.h: what is adapted, and the merge. */
#include "dialects/sat/lora.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/array.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/thread.h"
#include "catalog/over_source.h"
#include "dialects/sat/parts.h"
#include "ops/kernels.h"

enum { MOST_RANK = 1 << 16 };

/* ---- what is adapted ---- */

const sheaf_logical *sheaf__sat_factor(const sheaf_catalog *c, const char *linear, char which,
                                       int part)
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
    const sheaf_logical *a = sheaf__sat_factor(lora->catalog, l->name, 'A', p),
                        *b = sheaf__sat_factor(lora->catalog, l->name, 'B', p);
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
    if (st == NULL && sheaf__sat_factor(lora->catalog, l->name, 'A', l->parts) != NULL)
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
        /* Each layer is described at its first B; without one its factors are incomplete. */
        if (what.kind == SHEAF_SAT_B && what.part == 0)
            st = describe(lora, &lora->linear[lora->count++], &what);
        else if (sheaf__sat_factor(c, what.linear, 'B', 0) == NULL)
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

static const sheaf_sat_lora_linear *find_linear(const sheaf_sat_lora *lora, const char *weight)
{
    char name[560];
    const int n = (int)strlen(weight) - (int)strlen(".weight");
    if (n < 1 || n >= (int)sizeof name || strcmp(weight + n, ".weight") != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s", n, weight);
    return SHEAF_FIND(const sheaf_sat_lora_linear, name, lora->linear, lora->count, name);
}

/* ---- the merge ---- */

/* d = b A: of each column a chain of fused multiply-adds over the rank. Most of b is zero where the
 * factors of parts and slices lie in one B. */
static inline __attribute__((always_inline)) void
multiply(float *restrict d, const float *b, const float *restrict a, int64_t rank, int64_t n)
{
    memset(d, 0, (size_t)n * sizeof *d);
    for (int64_t k = 0; k < rank; k++, a += n)
        if (b[k] != 0)
            for (int64_t c = 0; c < n; c++)
                d[c] = __builtin_fmaf(b[k], a[c], d[c]);
}

static void multiply_plain(float *d, const float *b, const float *a, int64_t rank, int64_t n)
{
    multiply(d, b, a, rank, n);
}

#ifdef SHEAF_NO_X86
#define multiply_avx2 multiply_plain
#else
__attribute__((target("avx2,fma"), optimize("O3"))) static void
multiply_avx2(float *d, const float *b, const float *a, int64_t rank, int64_t n)
{
    multiply(d, b, a, rank, n);
}
#endif

/* Some rows of A or B of the adapter, as float32. */
static sheaf_status *load(float *dst, const sheaf__kernels *kernels, const sheaf_sat_lora *lora,
                          const sheaf_sat_lora_linear *l, char which, int64_t row0, int64_t rows,
                          void *stored)
{
    const int64_t cols = which == 'A' ? l->in : l->adapter_rank;
    sheaf_status *st = sheaf__sat_factor_rows(lora, l, which, row0, rows, 0, cols, stored);
    if (st == NULL)
        kernels->convert(dst, SHEAF_F32, stored, l->dtype, rows * cols);
    return st;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rows of X.weight after the merge, all columns, in its stored dtype: as SAT's merge_lora, the
 * delta is rounded to that, then the sum. */
static sheaf_status *merged_rows(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                                 int64_t row0, int64_t rows, void *dst)
{
    const sheaf_logical *weight = weight_of(lora->catalog, l->name);
    const sheaf_dtype dtype = weight->told.dtype;
    const int64_t in = l->in, rank = l->adapter_rank;
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    if (kernels == NULL)
        kernels = sheaf__kernels_for("ref");
    if (row0 < 0 || rows < 0 || row0 > l->out - rows)
        return sheaf_fail(SHEAF_E_ARG, "'%s.weight': rows outside of it", l->name);
    if (rows == 0)
        return NULL;
    float *a = malloc((size_t)((rank + rows + 1) * in + rows * rank) * sizeof *a);
    void *stored = malloc((size_t)larger(larger(rank, rows) * in, rows * rank) * sizeof *a);
    const unsigned mode = sheaf__mode_set(SHEAF__MERGE_MODE); /* compute threads flush denormals */
    float *w = a + rank * in, *d = w + rows * in, *b = d + in;
    sheaf_status *st = a == NULL || stored == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "merging '%s'", l->name)
                           : sheaf__catalog_read(lora->catalog, weight, row0, rows, 0, in, stored);
    if (st == NULL)
        kernels->convert(w, SHEAF_F32, stored, dtype, rows * in);
    TRY(st, load(a, kernels, lora, l, 'A', 0, rank, stored));
    TRY(st, load(b, kernels, lora, l, 'B', row0, rows, stored));
    for (int64_t r = 0; st == NULL && r < rows; r++) {
        (SHEAF__CPU_HAS("avx2") && SHEAF__CPU_HAS("fma") ? multiply_avx2 : multiply_plain)(
            d, b + r * rank, a, rank, in);
        kernels->scale(d, lora->scale, in);
        kernels->convert(stored, dtype, d, SHEAF_F32, in);
        kernels->convert(d, SHEAF_F32, stored, dtype, in);
        kernels->add(w + r * in, w + r * in, d, in);
    }
    if (st == NULL)
        kernels->convert(dst, dtype, w, SHEAF_F32, rows * in);
    sheaf__mode_set(mode);
    free(a);
    free(stored);
    return st;
}

/* ---- as a source ---- */

typedef struct merged_source {
    sheaf__over_source
        over; /* first; over the catalog's, with no tensor of its own but other values */
    sheaf_sat_lora *lora;
} merged_source;

static sheaf_status *merged_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const merged_source *s = (merged_source *)self;
    sheaf_source *const base = s->over.under;
    const sheaf_sat_lora_linear *l = find_linear(s->lora, name);
    if (l == NULL)
        return base->read(base, name, row0, rows, col0, cols, dst);
    if (col0 < 0 || cols < 0 || col0 > l->in - cols)
        return sheaf_fail(SHEAF_E_ARG, "tensor '%s': a box outside of it", name);
    if (col0 == 0 && cols == l->in)
        return merged_rows(s->lora, l, row0, rows, dst);
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(base->find(base, name)->dtype);
    char *row = malloc((size_t)(l->in * bytes));
    sheaf_status *st = row == NULL ? sheaf_fail(SHEAF_E_MEMORY, "tensor '%s'", name) : NULL;
    for (int64_t r = 0; st == NULL && r < rows; r++) {
        st = merged_rows(s->lora, l, row0 + r, 1, row);
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
    s->over.under->close(s->over.under);
    sheaf__over_release(&s->over);
    free(s);
}

sheaf_status *sheaf_sat_merged(sheaf_source **out, sheaf_catalog *c)
{
    sheaf_source *base = NULL;
    sheaf_status *st = sheaf__catalog_source(&base, c, false); /* owns c, which stays where it is */
    if (st != NULL)
        return st;
    merged_source *s = calloc(1, sizeof *s);
    if (s == NULL) {
        base->close(base);
        return sheaf__no_memory("merging");
    }
    s->over.under = base;
    st = sheaf__over_init(&s->over, 0);
    s->over.source.read = merged_read;
    s->over.source.close = merged_close;
    TRY(st, sheaf_sat_lora_open(&s->lora, c));
    if (st == NULL)
        *out = &s->over.source;
    else
        merged_close(&s->over.source);
    return st;
}
