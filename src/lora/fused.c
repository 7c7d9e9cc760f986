/* fused.c - B of fused layers, compact in memory and block-diagonal in files; see adapter.h. */
#include "base/base.h"
#include "catalog/over_source.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "lora/match.h"
#include "lora/stacked.h"

enum { CHUNK = 1 << 20 }; /* bytes read at once, and at least a row */

/* The part that row `row` of the weight belongs to. */
static int part_of(const sheaf_lora_module *m, int64_t row)
{
    int p = 0;
    for (int64_t end = 0; p < m->parts - 1; p++) {
        end += m->b_cut.part[p].units * m->b_cut.part[p].rows_per_unit;
        if (row < end)
            break;
    }
    return p;
}

static bool is_compact(const sheaf_lora_module *m)
{
    return m->parts > 1 && !m->dense;
}

void sheaf_lora_spread(void *dst, const void *compact, const sheaf_lora_module *m, int64_t row0,
                       int64_t rows, size_t bytes)
{
    const size_t line = (size_t)m->rank * bytes, wide = (size_t)m->file_rank * bytes;
    memset(dst, 0, (size_t)rows * wide);
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)dst + (size_t)r * wide + (size_t)part_of(m, row0 + r) * line,
               (const char *)compact + (size_t)r * line, line);
}

/* ---- is it block-diagonal? ---- */

/* Zeros of either sign. */
static bool all_zero(const unsigned char *x, int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n; i++, x += bytes)
        for (size_t k = 0; k < bytes; k++)
            if ((k + 1 < bytes ? x[k] : x[k] & 0x7f) != 0) /* little-endian: the sign comes last */
                return false;
    return true;
}

static sheaf_status *check_blocks(bool *out, const sheaf_lora_module *m, sheaf_source *file)
{
    const size_t bytes = sheaf_dtype_bytes(file->find(file, m->b_name)->dtype);
    const int64_t line = m->file_rank * (int64_t)bytes, most = CHUNK / line > 0 ? CHUNK / line : 1,
                  out_rows = m->b_shape[0];
    unsigned char *buffer = malloc((size_t)(most * line));
    sheaf_status *st = buffer == NULL ? sheaf_fail(SHEAF_E_MEMORY, "'%s'", m->b_name) : NULL;
    *out = true;
    for (int64_t at = 0; at < out_rows && *out && st == NULL; at += most) {
        const int64_t n = out_rows - at < most ? out_rows - at : most;
        st = file->read(file, m->b_name, at, n, 0, m->file_rank, buffer);
        for (int64_t r = 0; r < n && *out && st == NULL; r++) {
            const unsigned char *row = buffer + r * line;
            const int64_t before = part_of(m, at + r) * m->rank, after = before + m->rank;
            *out = all_zero(row, before, bytes) &&
                   all_zero(row + after * (int64_t)bytes, m->file_rank - after, bytes);
        }
    }
    free(buffer);
    return st;
}

static void make_dense(sheaf_lora_module *m)
{
    m->dense = true;
    m->rank = m->file_rank;
    m->alpha = m->file_alpha;
    m->b_shape[1] = m->rank;
}

sheaf_status *sheaf_lora_check_trainable(const sheaf_lora *lora)
{
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        if (!m->dense || m->always_dense)
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", m->b_name);
        sheaf_expected(
            st,
            "for training, factors of rank r for each of the %d parts: B zero off %d blocks on its diagonal",
            m->parts, m->parts);
        sheaf_found(st, "a B of rank %" PRId64 " that mixes the parts", m->rank);
        return sheaf_try_this(
            st,
            "sheaf merge BASE ADAPTER MERGED, then train a new adapter of MERGED; to run it or to merge it, it is fine");
    }
    return NULL;
}

/* ---- as a source ---- */

typedef struct fitted {
    sheaf__over_source over;   /* first; its own tensors are B of fused layers that are not dense */
    sheaf_lora_module *module; /* copies of these */
} fitted;

static sheaf_status *fitted_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const fitted *f = (fitted *)self;
    sheaf_source *const file = f->over.under;
    const int64_t i = sheaf__over_find(&f->over, name);
    if (i < 0)
        return file->read(file, name, row0, rows, col0, cols, dst);
    const sheaf_lora_module *m = &f->module[i];
    const size_t line = (size_t)cols * sheaf_dtype_bytes(f->over.own[i].dtype);
    const sheaf_source_entry *e = &f->over.own[i];
    sheaf_status *st =
        sheaf__safetensors_check_box(name, e->dtype, e->ndim, e->shape, row0, rows, col0, cols);
    for (int64_t at = row0; at < row0 + rows && st == NULL;) { /* the rows of a part at a time */
        const int p = part_of(m, at);
        int64_t n = 1;
        while (at + n < row0 + rows && part_of(m, at + n) == p)
            n++;
        st = file->read(file, name, at, n, p * m->rank + col0, cols,
                        (char *)dst + (size_t)(at - row0) * line);
        at += n;
    }
    return st;
}

static void fitted_release(sheaf__over_source *self)
{
    free(((fitted *)self)->module);
}

static sheaf_status *make_fitted(sheaf_source **out, const sheaf_lora *lora, sheaf_source *file)
{
    fitted *f = sheaf__over_new(sizeof *f, file, lora->nmodules, fitted_read, fitted_release);
    if (f == NULL)
        return sheaf__no_memory("adapter");
    f->module = calloc((size_t)lora->nmodules + 1, sizeof *f->module);
    sheaf_status *st = f->module == NULL ? sheaf__no_memory("adapter") : NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        if (!is_compact(m))
            continue;
        sheaf_source_entry e = *file->find(file, m->b_name);
        e.shape[1] = m->rank;
        f->module[f->over.count] = *m;
        st = sheaf__over_add(&f->over, strdup(m->b_name), e);
    }
    return sheaf__over_end(out, f, st);
}

/* Biases that the file's PEFT did not train stay the base's. */
static void leave_named(sheaf_lora *lora, sheaf_source *file)
{
    int kept = 0;
    if (!sheaf__lora_leaves_named(&lora->options, file))
        return;
    for (int i = 0; i < lora->nsaved; i++) {
        if (sheaf__lora_named_bias(&lora->options, lora->saved[i]->name)) {
            free(lora->saved_name[i]);
            continue;
        }
        lora->saved[kept] = lora->saved[i];
        lora->saved_name[kept++] = lora->saved_name[i];
    }
    lora->nsaved = kept;
}

sheaf_status *sheaf_lora_fit(sheaf_source **adapter, sheaf_lora *lora)
{
    sheaf_status *st = sheaf__lora_unstack(adapter, lora, false);
    if (st != NULL)
        return st;
    sheaf_source *file = *adapter;
    leave_named(lora, file);
    st = sheaf_lora_check(lora, file);
    int fused = 0;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        sheaf_lora_module *m = &lora->module[i];
        bool blocks = true;
        if (!is_compact(m))
            continue;
        st = check_blocks(&blocks, m, file);
        if (!blocks)
            make_dense(m);
        fused += blocks;
    }
    return st == NULL && fused > 0 ? make_fitted(adapter, lora, file) : st;
}
