/* lora.c - see lora.h: the adapted layers, the merge, and one A and one B for each layer in PEFT's
 * form.
 *
 * Block (p, k) of the adapter's rank, p-th part, k-th slice where factors differ by rank, is rows
 * (p*ways + k)*rank on of A. A and B of other blocks are zero there, so that B A equals SAT's
 * products block by block. */
#include "dialects/sat/lora.h"

#include "base/base.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/thread.h"
#include "catalog/over_source.h"
#include "dialects/sat/parts.h"
#include "ops/kernels.h"
#include "schema/paths.h"

enum { MOST_RANK = 1 << 16 };

/* ---- the adapted layers ---- */

/* X.matrix_A.part or X.matrix_B.part as SAT stores it; NULL: there is none. */
static const sheaf_logical *factor_of(const sheaf_catalog *c, const char *linear, char which,
                                      int part)
{
    char name[560];
    snprintf(name, sizeof name, "%s.matrix_%c.%d", linear, which, part);
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    return t != NULL && t->kind == SHEAF_LORA && t->entry.ndim == 2 ? t : NULL;
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

/* Does each part have its own factor? For A with weights divided along axis 0, for B along axis
 * 1. */
static bool is_apart(const sheaf_sat_lora *lora, const sheaf_logical *t)
{
    return lora->ways > 1 && !t->replicated;
}

static sheaf_status *wrong(const sheaf_logical *t, int64_t rows, int64_t cols)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", t->entry.name);
    sheaf_expected(st, "[%" PRId64 ", %" PRId64 "], by its weight and the rank", rows, cols);
    return sheaf_found(st, "[%" PRId64 ", %" PRId64 "]", t->entry.shape[0], t->entry.shape[1]);
}

static sheaf_status *check_part(const sheaf_sat_lora *lora, sheaf_sat_lora_linear *l, int p)
{
    const sheaf_logical *a = factor_of(lora->catalog, l->name, 'A', p),
                        *b = factor_of(lora->catalog, l->name, 'B', p);
    if (a == NULL || b == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", l->name),
                                          "matrix_A.%d and matrix_B.%d", p, p),
                           "not both of them");
    if (!arithmetic(a->entry.dtype) || a->entry.dtype != b->entry.dtype)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", a->entry.name),
                                          "factors in one of F32, BF16, F16"),
                           "%s and %s", sheaf_dtype_name(a->entry.dtype),
                           sheaf_dtype_name(b->entry.dtype));
    const bool a_apart = l->axis == 0 && is_apart(lora, a),
               b_apart = l->axis == 1 && is_apart(lora, b);
    const int64_t ra = lora->rank * (a_apart ? lora->ways : 1),
                  rb = lora->rank * (b_apart ? lora->ways : 1);
    if (a->entry.shape[0] != ra || a->entry.shape[1] != l->in)
        return wrong(a, ra, l->in);
    if (b->entry.shape[0] != l->out / l->parts || b->entry.shape[1] != rb)
        return wrong(b, l->out / l->parts, rb);
    l->apart = l->apart || a_apart || b_apart;
    l->dtype = a->entry.dtype;
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
    if (!what->known || w == NULL || w->entry.ndim != 2 || !arithmetic(w->entry.dtype))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", what->linear),
                                          "a linear layer of the model, in F32, BF16 or F16"),
                           "%s",
                           w == NULL      ? "no such weight"
                           : !what->known ? "no layer of CogVLM or CogAgent"
                                          : sheaf_dtype_name(w->entry.dtype));
    if (l->parts == 0)
        l->parts = 1; /* a layer that SAT does not divide */
    l->out = w->entry.shape[0];
    l->in = w->entry.shape[1];
    const int64_t along = l->axis == 0 ? l->out / l->parts : l->in;
    if (l->out % l->parts != 0 || along % lora->ways != 0 || l->out < 1 || l->in < 1 ||
        l->out > INT32_MAX || l->in > INT32_MAX)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s.weight'", l->name),
                                          "rows in %d parts, cut in %d", l->parts, lora->ways),
                           "[%" PRId64 ", %" PRId64 "]", l->out, l->in);
    sheaf_status *st = NULL;
    for (int p = 0; st == NULL && p < l->parts; p++)
        st = check_part(lora, l, p);
    if (st == NULL && factor_of(lora->catalog, l->name, 'A', l->parts) != NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", l->name),
                                        "factors of %d parts", l->parts),
                         "one more");
    l->adapter_rank = lora->rank * l->parts * (l->apart ? lora->ways : 1);
    return st;
}

/* The rank is both in the config and in the shapes. */
static sheaf_status *find_rank(sheaf_sat_lora *lora)
{
    json_t *config = NULL;
    const sheaf_catalog *c = lora->catalog;
    if (c->config != NULL) {
        sheaf_status *st = sheaf__json_parse(&config, c->config, strlen(c->config));
        if (st != NULL)
            return st;
    }
    const json_t *declared = json_object_get(config, "lora_rank");
    lora->rank = json_is_integer(declared) ? json_integer_value(declared) : 0;
    json_decref(config);
    for (int64_t i = 0; lora->rank == 0 && i < c->count;
         i++) { /* a factor that is always replicated */
        const sheaf_logical *t = &c->tensor[i];
        sheaf__sat_name what;
        if (t->kind == SHEAF_LORA && t->entry.ndim == 2 &&
            sheaf__sat_name_of(&what, t->entry.name) &&
            what.kind == (what.rule.axis == 0 ? SHEAF_SAT_B : SHEAF_SAT_A))
            lora->rank = t->entry.shape[what.kind == SHEAF_SAT_B];
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
        if (c->tensor[i].kind != SHEAF_LORA || !sheaf__sat_name_of(&what, c->tensor[i].entry.name))
            continue;
        /* Each layer is described at its first B; without one its factors are incomplete. */
        if (what.kind == SHEAF_SAT_B && what.part == 0)
            st = describe(lora, &lora->linear[lora->count++], &what);
        else if (factor_of(c, what.linear, 'B', 0) == NULL)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", c->tensor[i].entry.name),
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

/* ---- the factors of the adapter ---- */

static int64_t slices_of(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l)
{
    return l->apart ? lora->ways : 1;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One row of A. Of a weight divided along its output: a row of A_p, the slice's own where it has
 * one. Along its input: the row of A, in the columns of the slice only. */
static sheaf_status *row_of_a(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                              int64_t row, int64_t col0, int64_t cols, char *dst)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(l->dtype), slices = slices_of(lora, l);
    const int64_t p = row / (slices * lora->rank), k = row / lora->rank % slices,
                  i = row % lora->rank;
    const sheaf_logical *a = factor_of(lora->catalog, l->name, 'A', (int)p);
    int64_t c0 = col0, c1 = col0 + cols;
    if (l->axis == 1 && slices > 1) {
        c0 = most(col0, k * (l->in / slices));
        c1 = least(col0 + cols, (k + 1) * (l->in / slices));
        memset(dst, 0, (size_t)(cols * bytes));
    }
    if (c0 >= c1)
        return NULL;
    const int64_t from =
        a->entry.shape[0] > lora->rank ? k * lora->rank + i : i; /* its own A, or the copy */
    return sheaf__catalog_read(lora->catalog, a, from, 1, c0, c1 - c0, dst + (c0 - col0) * bytes);
}

/* One row of B, `row` of the weight: zero but in the block of its part and slice; along the input
 * it has all slices. */
static sheaf_status *row_of_b(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                              int64_t row, int64_t col0, int64_t cols, char *dst)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(l->dtype), slices = slices_of(lora, l),
                  block = l->out / l->parts;
    const int64_t p = row / block;
    const sheaf_logical *b = factor_of(lora->catalog, l->name, 'B', (int)p);
    const int64_t k = l->axis == 0 ? row % block / (block / slices) : 0, wide = b->entry.shape[1];
    const int64_t begin = (p * slices + k) * lora->rank, c0 = most(col0, begin),
                  c1 = least(col0 + cols, begin + wide);
    memset(dst, 0, (size_t)(cols * bytes));
    if (c0 >= c1)
        return NULL;
    return sheaf__catalog_read(lora->catalog, b, row % block, 1, c0 - begin, c1 - c0,
                               dst + (c0 - col0) * bytes);
}

/* A box of the adapter's A or B of a layer, in the dtype of its factors. */
static sheaf_status *factor_rows(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                                 char which, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                 void *dst)
{
    const int64_t each = (int64_t)sheaf_dtype_bytes(l->dtype);
    char *to = dst;
    sheaf_status *st = NULL;
    for (int64_t r = row0; st == NULL && cols > 0 && r < row0 + rows; r++, to += cols * each)
        st = which == 'A' ? row_of_a(lora, l, r, col0, cols, to)
                          : row_of_b(lora, l, r, col0, cols, to);
    return st;
}

/* ---- the merge ---- */

/* d = b A: for each column a chain of fused multiply-adds over the rank. Most of b is zero if the
 * factors of parts and slices are in one B. */
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
#ifdef __clang__
#define VECTORISED target("avx2,fma")
#else /* gcc vectorises loops of unknown length at -O3 */
#define VECTORISED target("avx2,fma"), optimize("O3")
#endif
__attribute__((VECTORISED)) static void multiply_avx2(float *d, const float *b, const float *a,
                                                      int64_t rank, int64_t n)
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
    sheaf_status *st = factor_rows(lora, l, which, row0, rows, 0, cols, stored);
    if (st == NULL)
        kernels->convert(dst, SHEAF_F32, stored, l->dtype, rows * cols);
    return st;
}

/* Rows of X.weight after the merge, all columns, in its stored dtype: as SAT's merge_lora, the
 * delta is rounded to that, then the sum. */
static sheaf_status *merged_rows(const sheaf_sat_lora *lora, const sheaf_sat_lora_linear *l,
                                 int64_t row0, int64_t rows, void *dst)
{
    const sheaf_logical *weight = weight_of(lora->catalog, l->name);
    const sheaf_dtype dtype = weight->entry.dtype;
    const int64_t in = l->in, rank = l->adapter_rank;
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    if (row0 < 0 || rows < 0 || row0 > l->out - rows)
        return sheaf_fail(SHEAF_E_ARG, "'%s.weight': rows outside of it", l->name);
    if (rows == 0)
        return NULL;
    float *a = malloc((size_t)((rank + rows + 1) * in + rows * rank) * sizeof *a);
    void *stored = malloc((size_t)most(most(rank, rows) * in, rows * rank) * sizeof *a);
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

/* ---- the merged weights as a source ---- */

typedef struct merged_source {
    sheaf__over_source
        over; /* first; over the catalog's source: the same tensors with other values */
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

static void merged_release(sheaf__over_source *self)
{
    sheaf_sat_lora_free(((merged_source *)self)->lora);
}

sheaf_status *sheaf_sat_merged(sheaf_source **out, sheaf_catalog *c)
{
    sheaf_source *base = NULL;
    sheaf_status *st = sheaf__catalog_source(&base, c, false); /* owns c, whose address stays */
    if (st != NULL)
        return st;
    merged_source *s = sheaf__over_new(sizeof *s, base, 0, merged_read, merged_release);
    st = s == NULL ? sheaf__no_memory("merging") : sheaf_sat_lora_open(&s->lora, c);
    if (st != NULL)
        base->close(base);
    return sheaf__over_end(out, s, st);
}

/* ---- the adapter as a source ---- */

typedef struct adapter {
    sheaf__over_source over; /* first; its own tensors are A and B of each layer */
    const sheaf_sat_lora *lora;
} adapter;

static sheaf_status *adapter_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, void *dst)
{
    const adapter *s = (adapter *)self;
    const int64_t i = sheaf__over_find(&s->over, name);
    const sheaf_source_entry *e = i >= 0 ? &s->over.own[i] : NULL;
    if (e == NULL)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    if (row0 < 0 || rows < 0 || row0 > e->shape[0] - rows || col0 < 0 || cols < 0 ||
        col0 > e->shape[1] - cols)
        return sheaf_fail(SHEAF_E_ARG, "tensor '%s': a box outside of it", name);
    return factor_rows(s->lora, &s->lora->linear[i / 2], i % 2 == 0 ? 'A' : 'B', row0, rows, col0,
                       cols, dst);
}

sheaf_status *sheaf_sat_adapter(sheaf_source **out, const sheaf_sat_lora *lora)
{
    if (lora->count == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", lora->catalog->root),
                                          "factors of LoRA that are not merged"),
                           "none");
    adapter *s = sheaf__over_new(sizeof *s, NULL, 2 * lora->count, adapter_read, NULL);
    if (s == NULL)
        return sheaf__no_memory("adapter");
    sheaf_status *st = NULL;
    s->lora = lora;
    for (int64_t i = 0; st == NULL && i < 2 * lora->count; i++) {
        const sheaf_sat_lora_linear *l = &lora->linear[i / 2];
        const bool a = i % 2 == 0;
        char *name = NULL;
        if (asprintf(&name, "base_model.model.%s.lora_%c.weight", l->name, a ? 'A' : 'B') < 0)
            name = NULL;
        st = sheaf__over_add(&s->over, name,
                             (sheaf_source_entry){ .dtype = l->dtype,
                                                   .ndim = 2,
                                                   .shape = { a ? l->adapter_rank : l->out,
                                                              a ? l->in : l->adapter_rank } });
    }
    return sheaf__over_end(out, s, st);
}

/* ---- adapter_config.json ---- */

/* Layers whose rank is not the first one's; `by`: divisor of the layer's rank for the written
 * value, a rank or an alpha. "^", because a layer of the text model has a path that ends one of the
 * ViT's, and PEFT matches a key with the end of any path. */
static void patterns(sheaf_text *text, const sheaf_sat_lora *lora, int64_t by)
{
    bool any = false;
    for (int64_t i = 0; i < lora->count; i++) {
        const sheaf_sat_lora_linear *l = &lora->linear[i];
        if (l->adapter_rank == lora->linear[0].adapter_rank)
            continue;
        char key[560];
        snprintf(key, sizeof key, "^%s", l->name);
        sheaf__text_add(text, "%s\n    ", any ? "," : "");
        sheaf__text_json(text, key);
        sheaf__text_add(text, ": %" PRId64, l->adapter_rank / by);
        any = true;
    }
    sheaf__text_add(text, "%s", any ? "\n  " : "");
}

sheaf_status *sheaf_sat_adapter_config(char **out, const sheaf_sat_lora *lora)
{
    const int64_t r = lora->count > 0 ? lora->linear[0].adapter_rank : lora->rank;
    sheaf_text text = { 0 }, targets = { 0 };
    const char **path = calloc((size_t)lora->count + 1, sizeof *path);
    char *pattern = NULL;
    if (path == NULL)
        return sheaf__no_memory("adapter");
    for (int64_t i = 0; i < lora->count; i++)
        path[i] = lora->linear[i].name;
    sheaf__paths_pattern(&targets, path, lora->count);
    sheaf_status *st = sheaf__text_take(&pattern, &targets);
    free(path);
    sheaf__text_add(&text, "{\n  \"alpha_pattern\": {");
    patterns(&text, lora, lora->rank);
    sheaf__text_add(
        &text,
        "},\n  \"base_model_name_or_path\": null,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n"
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"lora_alpha\": %" PRId64
        ",\n  \"lora_dropout\": 0.0,\n"
        "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %" PRId64
        ",\n  \"rank_pattern\": {",
        r / lora->rank, r);
    patterns(&text, lora, 1);
    sheaf__text_add(&text, "},\n  \"target_modules\": ");
    if (st == NULL)
        sheaf__text_json(&text, pattern);
    sheaf__text_add(
        &text, ",\n  \"task_type\": null,\n  \"use_dora\": false,\n  \"use_rslora\": false\n}\n");
    free(pattern);
    if (st == NULL)
        return sheaf__text_take(out, &text);
    sheaf__text_release(&text);
    return st;
}
