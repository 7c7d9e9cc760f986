/* merge_rows.c - see merge_rows.h. */
#include "checkpoint/merge_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include "lora/delta.h"

enum { MXCSR_DEFAULT = 0x1f80 }; /* round to nearest, denormals kept, nothing trapped */

sheaf_status *sheaf__merge_scratch_init(sheaf__merge_scratch *s, int64_t elements, int64_t rank_floats)
{
    const size_t n = (size_t)elements, r = (size_t)rank_floats + 1;
    s->stored = malloc(n * 8); /* tensors that are only copied may hold eight bytes an element */
    s->whole = malloc(n * 8);
    s->was = malloc(n * 8);
    s->out = malloc(n * 8);
    s->w = malloc(n * sizeof *s->w);
    s->d = malloc(n * sizeof *s->d);
    s->b = malloc(r * sizeof *s->b);
    s->b_stored = malloc(r * sizeof *s->b);
    if (s->stored != NULL && s->whole != NULL && s->was != NULL && s->out != NULL && s->w != NULL &&
        s->d != NULL && s->b != NULL && s->b_stored != NULL)
        return NULL;
    return sheaf_fail(SHEAF_E_MEMORY, "merge: %zu elements", n);
}

void sheaf__merge_scratch_release(sheaf__merge_scratch *s)
{
    free(s->stored);
    free(s->whole);
    free(s->was);
    free(s->out);
    free(s->w);
    free(s->d);
    free(s->b);
    free(s->b_stored);
    *s = (sheaf__merge_scratch){ 0 };
}

static bool is_float(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16;
}

sheaf_status *sheaf__merge_load_a(sheaf__merge_rows *m, const sheaf__merge_tensor *t)
{
    free(m->a);
    free(m->packed);
    m->a = m->packed = NULL;
    if (t->module == NULL)
        return NULL;
    const int64_t rank = t->module->rank, n = rank * t->cols;
    const sheaf_source_entry *e = m->adapter->find(m->adapter, t->module->a_name);
    void *stored = malloc((size_t)n * 4);
    m->a = malloc((size_t)n * sizeof *m->a);
    m->packed = malloc((size_t)sheaf__lora_packed_floats(rank, t->cols) * sizeof *m->packed);
    sheaf_status *st = NULL;
    if (stored == NULL || m->a == NULL || m->packed == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->module->a_name);
    if (st == NULL)
        st = m->adapter->read(m->adapter, t->module->a_name, 0, rank, 0, t->cols, stored);
    if (st == NULL) {
        m->kernels->convert(m->a, SHEAF_F32, stored, e->dtype, n);
        sheaf__lora_pack(m->packed, m->a, rank, t->cols);
    }
    free(stored);
    return st;
}

/* s->d = s * (B A) for the rows. */
static sheaf_status *make_delta(sheaf__merge_scratch *s, const sheaf__merge_rows *m, const sheaf__merge_tensor *t,
                                int64_t row0, int64_t rows, bool plain)
{
    const sheaf_lora_module *module = t->module;
    const int64_t rank = module->rank;
    const sheaf_source_entry *e = m->adapter->find(m->adapter, module->b_name);
    sheaf_status *st = m->adapter->read(m->adapter, module->b_name, row0, rows, 0, rank, s->b_stored);
    if (st != NULL)
        return st;
    m->kernels->convert(s->b, SHEAF_F32, s->b_stored, e->dtype, rows * rank);
    const int64_t block = m->mode == SHEAF_MERGE_BEST ? rank : sheaf__lora_mkl_block(rank);
    if (plain)
        sheaf__lora_delta_ref(s->d, s->b, m->a, rows, t->cols, rank, block);
    else
        sheaf__lora_delta(s->d, s->b, m->packed, rows, t->cols, rank, block);
    return NULL;
}

/* A value that was finite must stay so: 65504 is soon passed in float16. */
static sheaf_status *check_finite(const sheaf__merge_scratch *s, const sheaf__merge_tensor *t, int64_t row0, int64_t n,
                                  const sheaf__kernels *kernels)
{
    kernels->convert(s->d, SHEAF_F32, s->out, t->out_dtype, n);
    float probe = 0; /* becomes NaN if any value is infinite or NaN */
    for (int64_t i = 0; i < n; i++)
        probe += s->d[i] * 0;
    if (probe == 0)
        return NULL;
    kernels->convert(s->w, SHEAF_F32, s->was, t->out_dtype, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(s->d[i]) && isfinite(s->w[i])) {
            sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "'%s', row %" PRId64 ", column %" PRId64, t->name,
                                          row0 + i / t->cols, i % t->cols);
            sheaf_expected(st, "a finite %s after the merge", sheaf_dtype_torch_name(t->out_dtype));
            sheaf_found(st, "%g; it was %g", (double)s->d[i], (double)s->w[i]);
            return sheaf_try_this(st, t->out_dtype == SHEAF_F16 ? "--dtype bfloat16 or --dtype float32"
                                                                : "is the adapter damaged?");
        }
    return NULL;
}

static void count_changes(sheaf__merge_stats *stats, const sheaf__merge_scratch *s, const sheaf__merge_tensor *t,
                          int64_t n, const sheaf__kernels *kernels)
{
    const size_t size = sheaf_dtype_bytes(t->out_dtype);
    *stats = (sheaf__merge_stats){ 0 };
    if (memcmp(s->out, s->was, (size_t)n * size) == 0)
        return;
    if (size == 4) {
        const uint32_t *a = s->out, *b = s->was;
        for (int64_t i = 0; i < n; i++)
            stats->elements_changed += a[i] != b[i];
    } else {
        const uint16_t *a = s->out, *b = s->was;
        for (int64_t i = 0; i < n; i++)
            stats->elements_changed += a[i] != b[i];
    }
    kernels->convert(s->d, SHEAF_F32, s->out, t->out_dtype, n);
    kernels->convert(s->w, SHEAF_F32, s->was, t->out_dtype, n);
    stats->base_squares = kernels->squares(s->w, n);
    for (int64_t i = 0; i < n; i++)
        s->d[i] -= s->w[i];
    stats->change_squares = kernels->squares(s->d, n);
}

/* s->w = the base's rows as float32, s->was = the same in the output's dtype. */
static sheaf_status *read_base(sheaf__merge_scratch *s, const sheaf__merge_rows *m, const sheaf__merge_tensor *t,
                               int64_t row0, int64_t rows)
{
    const int64_t n = rows * t->cols;
    sheaf_status *st = m->base->read(m->base, t->base_name, row0, rows, 0, t->cols, s->stored);
    if (st == NULL)
        m->kernels->convert(s->was, t->out_dtype, s->stored, t->base_dtype, n);
    if (st == NULL && t->whole != NULL) {
        st = m->adapter->read(m->adapter, t->whole, row0, rows, 0, t->cols, s->whole);
        if (st == NULL) /* the base's dtype, as PEFT loads it */
            m->kernels->convert(s->stored, t->base_dtype, s->whole, t->whole_dtype, n);
    }
    if (st != NULL)
        return st;
    if (m->mode == SHEAF_MERGE_BEST && t->saved) { /* rounded once, to the output's dtype */
        m->kernels->convert(s->w, SHEAF_F32, s->whole, t->whole_dtype, n);
    } else if (m->mode == SHEAF_MERGE_BEST) {
        m->kernels->convert(s->w, SHEAF_F32, s->stored, t->base_dtype, n);
    } else { /* PEFT merges in the dtype the model was loaded in */
        m->kernels->convert(s->out, t->out_dtype, s->stored, t->base_dtype, n);
        m->kernels->convert(s->w, SHEAF_F32, s->out, t->out_dtype, n);
    }
    return NULL;
}

static sheaf_status *make_rows(sheaf__merge_scratch *s, const sheaf__merge_rows *m, const sheaf__merge_tensor *t,
                               int64_t row0, int64_t rows, bool plain, sheaf__merge_stats *stats)
{
    const int64_t n = rows * t->cols;
    sheaf_status *st = read_base(s, m, t, row0, rows);
    if (st == NULL && t->module != NULL)
        st = make_delta(s, m, t, row0, rows, plain);
    if (st != NULL)
        return st;
    if (t->module != NULL && m->mode == SHEAF_MERGE_AS_PEFT_SAFE) {
        m->kernels->scale(s->d, t->module->scale, n);
        m->kernels->convert(s->out, t->out_dtype, s->d, SHEAF_F32, n);
        m->kernels->convert(s->d, SHEAF_F32, s->out, t->out_dtype, n);
        sheaf__lora_add(s->w, s->d, 1, n);
    } else if (t->module != NULL) {
        sheaf__lora_add(s->w, s->d, t->module->scale, n);
    }
    m->kernels->convert(s->out, t->out_dtype, s->w, SHEAF_F32, n);
    st = check_finite(s, t, row0, n, m->kernels);
    if (st == NULL && stats != NULL)
        count_changes(stats, s, t, n, m->kernels);
    return st;
}

sheaf_status *sheaf__merge_make(sheaf__merge_scratch *s, const sheaf__merge_rows *m, const sheaf__merge_tensor *t,
                                int64_t row0, int64_t rows, bool plain, sheaf__merge_stats *stats)
{
    if (stats != NULL)
        *stats = (sheaf__merge_stats){ 0 };
    if (t->module == NULL && t->whole == NULL && t->base_dtype == t->out_dtype)
        return m->base->read(m->base, t->base_name, row0, rows, 0, t->cols, s->out);
    if (!is_float(t->base_dtype) || !is_float(t->out_dtype))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", t->base_name), "F32, BF16 or F16"),
                           "%s", sheaf_dtype_name(t->base_dtype));
    /* Compute threads may flush denormals; the merge keeps them, as PEFT does. */
    const unsigned before = _mm_getcsr();
    _mm_setcsr(MXCSR_DEFAULT);
    sheaf_status *st = make_rows(s, m, t, row0, rows, plain, stats);
    _mm_setcsr(before);
    return st;
}
