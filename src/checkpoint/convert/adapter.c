/* adapter.c - see convert.h. */

#include <math.h>

#include "base/base.h"
#include "catalog/over_source.h"
#include "checkpoint/convert/convert.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "lora/check_file.h"
#include "lora/renamed.h"
#include "lora/paths.h"

/* Part p of A or of B of a layer. */
typedef struct factor {
    const sheaf_lora_module *module;
    bool b;
    int part;
    double by; /* of B: the adapter's scale divided by SAT's */
} factor;

typedef struct adapted {
    sheaf__over_source over; /* first member; its own tensors are the factors, beside the base's */
    sheaf_source *adapter;
    sheaf_lora *lora;
    factor *factor; /* parallel to over.own */
} adapted;

/* ---- what SAT can express ---- */

static sheaf_status *cannot(const sheaf_lora_module *m)
{
    return sheaf_try_this(
        sheaf_fail(SHEAF_E_UNSUPPORTED, "adapter of '%s'", m->base->module),
        "sheaf merge BASE ADAPTER MERGED, then sheaf convert MERGED DST --to sat");
}

/* The adapter's scale over 1 / r. */
static double scale_over_sats(const sheaf_lora_module *m, bool rslora)
{
    const double all = (double)m->file_rank,
                 over = rslora ? m->file_alpha / sqrt(all) : m->file_alpha / all;
    return rslora ? over * (double)m->rank : m->file_alpha * (double)m->rank / all;
}

static bool is_power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

static sheaf_dtype dtype_of(const adapted *a, const char *name)
{
    return a->adapter->find(a->adapter, name)->dtype;
}

static sheaf_status *check_module(adapted *a, const sheaf_schema *schema,
                                  const sheaf_lora_module *m)
{
    const sheaf_lora_module *first = &a->lora->module[0];
    const double by = scale_over_sats(m, a->lora->options.rslora);
    if (!sheaf__lora_in_sat_set(SHEAF_SAT_SET_VIT, schema, m->base->module))
        return sheaf_found(
            sheaf_expected(
                cannot(m),
                "attention of the text model or of the ViT: SAT has no factors elsewhere"),
            "another layer");
    if (m->m_name != NULL)
        return sheaf_found(sheaf_expected(cannot(m), "LoRA, which is all that SAT has"), "DoRA");
    if (m->dense)
        return sheaf_found(sheaf_expected(cannot(m), "factors for each of its %d parts", m->parts),
                           "a B that mixes the parts");
    if (m->rank != first->rank)
        return sheaf_found(sheaf_expected(cannot(m),
                                          "one rank for all layers, %" PRId64 " as '%s' has",
                                          first->rank, first->base->module),
                           "%" PRId64, m->rank);
    if (!is_power_of_two(by) && dtype_of(a, m->b_name) != SHEAF_F32) {
        sheaf_status *st = sheaf_expected(
            cannot(m),
            "a scale of 1 / r, which is SAT's, or that times a power of two, or factors in float32");
        return sheaf_found(st, "%.9g / %" PRId64 " in %s", by, m->rank,
                           sheaf_dtype_name(dtype_of(a, m->b_name)));
    }
    return NULL;
}

/* ---- as a source ---- */

/* Multiplies n numbers of `dtype` by `by`: exactly for a power of two; other factors, in float32
 * only, round once. */
static sheaf_status *scale_numbers(void *numbers, sheaf_dtype dtype, double by, int64_t n,
                                   const char *name)
{
    const bool rounds = !is_power_of_two(by);
    bool good = true;
    char *at = numbers;
    for (int64_t i = 0; i < n && by != 1 && good; i++, at += sheaf_dtype_bytes(dtype)) {
        float x = 0, y;
        sheaf__dtype_convert(&x, SHEAF_F32, at, dtype, 1);
        const double want = (double)x * by;
        y = (float)want;
        sheaf__dtype_convert(at, dtype, &y, SHEAF_F32, 1);
        sheaf__dtype_convert(&y, SHEAF_F32, at, dtype, 1);
        good = isfinite(x) ? isfinite(y) && (rounds || (double)y == want) : !isfinite(y);
    }
    return good ? NULL
                : sheaf_try_this(
                      sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "'%s'", name),
                                                 "numbers that can be multiplied by %.9g in %s", by,
                                                 sheaf_dtype_name(dtype)),
                                  "one that is too large or too small"),
                      "sheaf merge BASE ADAPTER MERGED, then sheaf convert MERGED DST --to sat");
}

static sheaf_status *read_factor(const adapted *a, int64_t i, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const factor *f = &a->factor[i];
    const sheaf_source_entry *e = &a->over.own[i];
    const char *name = f->b ? f->module->b_name : f->module->a_name;
    sheaf_status *st =
        sheaf__safetensors_check_box(e->name, e->dtype, e->ndim, e->shape, row0, rows, col0, cols);
    TRY(st,
        a->adapter->read(a->adapter, name, f->part * e->shape[0] + row0, rows, col0, cols, dst));
    return st != NULL || !f->b ? st : scale_numbers(dst, e->dtype, f->by, rows * cols, name);
}

/* The adapter's name of a tensor that it replaces, or NULL. */
static const char *saved_name(const adapted *a, const char *name)
{
    for (int i = 0; i < a->lora->nsaved; i++)
        if (strcmp(a->lora->saved[i]->name, name) == 0)
            return a->lora->saved_name[i];
    return NULL;
}

static sheaf_status *adapted_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, void *dst)
{
    const adapted *a = (adapted *)self;
    sheaf_source *const base = a->over.under;
    const int64_t i = sheaf__over_find(&a->over, name);
    const char *saved = i < 0 ? saved_name(a, name) : NULL;
    if (i >= 0)
        return read_factor(a, i, row0, rows, col0, cols, dst);
    if (saved == NULL)
        return base->read(base, name, row0, rows, col0, cols, dst);
    const sheaf_dtype from = a->adapter->find(a->adapter, saved)->dtype,
                      to = base->find(base, name)->dtype;
    void *stored = malloc((size_t)(rows * cols) * sheaf_dtype_bytes(from) + 1);
    if (stored == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", name);
    sheaf_status *st = a->adapter->read(a->adapter, saved, row0, rows, col0, cols, stored);
    if (st == NULL && !sheaf__dtype_convert(dst, to, stored, from, rows * cols))
        st = sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "'%s'", saved), "numbers that %s holds",
                            sheaf_dtype_name(to));
    free(stored);
    return st;
}

static void adapted_close(sheaf_source *self)
{
    adapted *a = (adapted *)self;
    if (a->adapter != NULL)
        a->adapter->close(a->adapter);
    a->over.under->close(a->over.under);
    sheaf__over_release(&a->over);
    free(a->factor);
    sheaf_lora_free(a->lora);
    free(a);
}

/* ---- construction ---- */

static sheaf_status *open_adapter(adapted *a, const sheaf_schema *schema, const char *dir,
                                  const sheaf_events *events)
{
    sheaf_lora_options options = { 0 };
    char *path = NULL;
    const char *copy = NULL;
    sheaf_status *st = sheaf_peft_config_path(&path, dir);
    TRY(st, sheaf_lora_options_read(&options, path, events));
    TRY(st, sheaf_lora_check_runs(&options));
    TRY(st, sheaf__open_source(
                &a->adapter, dir,
                &(sheaf_dialect_hints){ .want = SHEAF_WANT_ADAPTER, .as_stored = true }));
    TRY(st, sheaf__lora_rename_for(&options, &a->adapter, dir, &schema->config, events));
    TRY(st, sheaf_lora_check_file(&options, a->adapter));
    TRY(st, sheaf_lora_resolve(&a->lora, schema, &options));
    TRY(st, sheaf_lora_take_tables(&copy, a->lora, schema, a->adapter));
    TRY(st, sheaf_lora_take_copies(&copy, a->lora, schema, a->adapter, a->over.under, false));
    if (st == NULL && copy != NULL)
        sheaf_note(events,
                   "%s: its '%s' is used in place of the base's, as PEFT does, though its config "
                   "does not ask for it",
                   dir, copy);
    TRY(st, sheaf_lora_fit(&a->adapter, a->lora));
    sheaf_lora_options_release(&options);
    free(path);
    return sheaf_in(st, "%s", dir);
}

static sheaf_status *list_factors(adapted *a)
{
    int64_t n = 0;
    for (int i = 0; i < a->lora->nmodules; i++)
        n += 2 * a->lora->module[i].parts;
    a->factor = calloc((size_t)n, sizeof *a->factor);
    sheaf_status *st =
        a->factor == NULL ? sheaf__no_memory("adapter") : sheaf__over_init(&a->over, n);
    for (int i = 0; i < a->lora->nmodules; i++)
        for (int k = 0; k < 2 * a->lora->module[i].parts && st == NULL; k++) {
            const sheaf_lora_module *m = &a->lora->module[i];
            const bool b = k % 2 == 1;
            const int64_t *shape = b ? m->b_shape : m->a_shape;
            char *name = NULL;
            a->factor[a->over.count] =
                (factor){ m, b, k / 2, scale_over_sats(m, a->lora->options.rslora) };
            if (asprintf(&name, "%s.matrix_%c.%d", m->base->module, b ? 'B' : 'A', k / 2) < 0)
                name = NULL;
            st = sheaf__over_add(
                &a->over, name,
                (sheaf_source_entry){ .dtype = dtype_of(a, b ? m->b_name : m->a_name),
                                      .ndim = 2,
                                      .shape = { shape[0] / m->parts, shape[1] } });
        }
    return st;
}

sheaf_status *sheaf__adapted_source(sheaf_source **out, int64_t *rank, sheaf_source *base,
                                    const sheaf_schema *schema, const char *dir,
                                    const sheaf_events *events)
{
    adapted *a = calloc(1, sizeof *a);
    if (a == NULL) {
        base->close(base);
        return sheaf__no_memory(dir);
    }
    a->over.under = base;
    a->over.beside = true;
    sheaf_status *st = open_adapter(a, schema, dir, events);
    for (int i = 0; st == NULL && i < a->lora->nmodules; i++)
        st = check_module(a, schema, &a->lora->module[i]);
    for (int i = 0; st == NULL && i < a->lora->nsaved; i++)
        if (base->find(base, a->lora->saved[i]->name) == NULL)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", a->lora->saved[i]->name),
                               "it in the base"),
                "none of this name");
    TRY(st, list_factors(a));
    a->over.source.read = adapted_read;
    a->over.source.close = adapted_close;
    if (st != NULL) {
        adapted_close(&a->over.source);
        return st;
    }
    *rank = a->lora->module[0].rank;
    *out = &a->over.source;
    return NULL;
}
