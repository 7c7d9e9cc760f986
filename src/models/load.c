/* load.c - reads what a rank owns, straight from the source into packed panels or masters.
 *
 * Threads share the rows of a tensor in groups of 32 (a panel's width); each reads its rows into
 * its scratch block and packs them at once, so that loading needs no memory beyond that of a
 * step. */
#include "models/build.h"

#include <math.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/lowest.h"
#include "base/random.h"
#include "models/rope.h"
#include "ops/offload.h"
#include "schema/paths.h"
#include "tape/rows.h"

/* ---- reading boxes ---- */

/* A box of a stored tensor and where its rows go. */
typedef struct box {
    sheaf__context *c;
    sheaf_source *source;
    const char *name;
    sheaf_dtype stored;
    int64_t row0, rows, col0, cols;
    int64_t last; /* columns of what is read at once: cols, but of a tensor of more than two axes
                     its last axis; then col0 is 0 and whole rows are wanted */
    sheaf__packed *packed; /* either panels; or those of each slice of `spread`, which is cut along
                              its columns; */
    sheaf__linear *spread;
    void *dst; /* or dense rows [rows, cols] of dtype `to`, the device's or the host's */
    bool host;
    sheaf_dtype to;
    uint64_t *print;      /* or nowhere, and of each row its sheaf__row_hash(); */
    atomic_bool infinite; /* set if a number is not finite in the compute dtype */
    sheaf__lowest failed; /* row groups */
} box;

enum { GROUP = 32 };

static box box_of(sheaf__context *c, sheaf_source *source, const char *name, sheaf_range rows,
                  sheaf_range cols, void *dst, sheaf_dtype to)
{
    return (box){ .c = c,
                  .source = source,
                  .name = name,
                  .row0 = rows.begin,
                  .rows = rows.end - rows.begin,
                  .col0 = cols.begin,
                  .cols = cols.end - cols.begin,
                  .dst = dst,
                  .to = to };
}

/* Notes n rows from row r on that stay in the files. */
static void note_rows(box *b, const void *read, int64_t r, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        b->print[r + i] = sheaf__row_hash(sheaf__at(read, i * b->cols, b->stored),
                                          (size_t)b->cols * sheaf_dtype_bytes(b->stored));
    if (!sheaf__is_finite_as(b->c->device->kernels, read, b->stored, n * b->cols, b->c->dtype))
        b->infinite = true;
}

/* n rows from row r on, as they were read: where they belong. */
static sheaf_status *put_rows(box *b, const void *read, int64_t r, int64_t n)
{
    sheaf__device *device = b->c->device;
    const sheaf__linear *l = b->spread;
    if (b->print != NULL)
        note_rows(b, read, r, n);
    else if (b->packed != NULL)
        sheaf__weight_load(device, b->packed, read, b->stored, b->cols, r, n);
    else if (b->host)
        device->kernels->convert(sheaf__at(b->dst, r * b->cols, b->to), b->to, read, b->stored,
                                 n * b->cols);
    else if (l == NULL)
        return sheaf__upload_rounded(device, sheaf__at(b->dst, r * b->cols, b->to), b->to, read,
                                     b->stored, n * b->cols);
    for (int s = l == NULL ? 0 : l->first; l != NULL && s < l->first + l->count; s++)
        if (l->w[s].k > 0)
            sheaf__weight_load(device, &b->spread->w[s], sheaf__at(read, l->begin[s], b->stored),
                               b->stored, b->cols, r, n);
    return NULL;
}

static void read_group(void *arg, int64_t group, int worker)
{
    box *b = arg;
    const size_t row_bytes = (size_t)b->cols * sheaf_dtype_bytes(b->stored);
    const int64_t fold = b->cols / b->last; /* stored rows that make one of ours */
    const int64_t first = group * GROUP, last = first + GROUP < b->rows ? first + GROUP : b->rows;
    int64_t fit = (int64_t)(SHEAF__THREAD_SCRATCH / (row_bytes == 0 ? 1 : row_bytes));
    if (fit < 1) {
        sheaf__lowest_note(
            &b->failed, group,
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a row of %zu bytes", b->name, row_bytes));
        return;
    }
    void *scratch = b->c->device->scratch[worker];
    for (int64_t r = first; r < last;) {
        const int64_t n = last - r < fit ? last - r : fit;
        sheaf_status *st = b->source->read(b->source, b->name, (b->row0 + r) * fold, n * fold,
                                           b->col0, b->last, scratch);
        TRY(st, put_rows(b, scratch, r, n));
        if (st != NULL) {
            sheaf__lowest_note(&b->failed, group, st);
            return;
        }
        r += n;
    }
}

static sheaf_status *read_box(box *b)
{
    if (b->rows == 0 || b->cols == 0)
        return NULL;
    const sheaf_source_entry *entry = b->source->find(b->source, b->name);
    if (entry == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", b->name);
        sheaf_expected(st, "a tensor of this name in the files");
        return sheaf_found(st, "none");
    }
    b->stored = entry->dtype;
    if (b->stored != SHEAF_F32 && b->stored != SHEAF_BF16 && b->stored != SHEAF_F16) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", b->name);
        sheaf_expected(st, "F32, BF16 or F16");
        return sheaf_found(st, "%s", sheaf_dtype_name(b->stored));
    }
    b->last = entry->ndim > 2 ? entry->shape[entry->ndim - 1] : b->cols;
    sheaf__lowest_begin(&b->failed);
    sheaf__pool_run(b->c->device->pool, (b->rows + GROUP - 1) / GROUP, read_group, b);
    return sheaf__lowest_end(&b->failed);
}

static sheaf_status *read_trained(sheaf__context *c, sheaf_source *source, const char *name,
                                  sheaf__trained *t)
{
    sheaf_status *st = NULL;
    for (int s = t->first; s < t->first + t->count; s++)
        for (int part = 0; part < sheaf__trained_parts(t) && st == NULL; part++) {
            sheaf_range rows, cols;
            sheaf__trained_box(t, part, s, &rows, &cols);
            box b = box_of(c, source, name, rows, cols,
                           t->weight[s] + sheaf__trained_at(t, part, s), SHEAF_F32);
            st = read_box(&b);
        }
    return st;
}

static sheaf_status *load_floats(sheaf__model *m, sheaf_source *base, const char *name,
                                 sheaf__trained *trained, float *dst, int64_t row0, int64_t rows,
                                 int64_t cols, bool one)
{
    if (trained != NULL)
        return read_trained(m->context, base, name, trained);
    box b = box_of(m->context, base, name, (sheaf_range){ row0, row0 + rows },
                   (sheaf_range){ 0, cols }, dst, SHEAF_F32);
    sheaf_status *st = read_box(&b);
    if (st == NULL) /* each rounded to the compute dtype */
        sheaf__refresh(m->context, dst, dst, rows * cols, one);
    return st;
}

/* The dtype of a matrix that should stay in 16 bits, if the files have another dtype than the
 * config says: the stored one, or float32, which takes more memory than planned. */
static sheaf_dtype dtype_to_keep(const sheaf__model *m, sheaf_source *base, const char *name,
                                 sheaf_dtype planned)
{
    const sheaf_source_entry *e = base->find(base, name);
    if (planned == m->context->dtype || e == NULL)
        return planned;
    return e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16 ? e->dtype : m->context->dtype;
}

static sheaf_status *keep_panels(sheaf__model *m, sheaf_source *base, sheaf__linear *l)
{
    const sheaf_dtype planned = l->w[l->first].dtype, as = dtype_to_keep(m, base, l->name, planned);
    const bool larger = sheaf_dtype_bytes(as) != sheaf_dtype_bytes(planned);
    sheaf_status *st = NULL;
    l->all.dtype = as;
    if (larger && l->all.ahead != NULL)
        st = sheaf__build_reallocate(m, &l->all.ahead, sheaf__packed_size(&l->all),
                                     SHEAF_MEM_WEIGHTS);
    for (int s = l->first; s < l->first + l->count && st == NULL; s++) {
        sheaf__packed *w = &l->w[s];
        w->dtype = as;
        if (!l->rows)
            w->ahead = l->all.ahead;
        else if (larger && w->ahead != NULL)
            st = sheaf__build_reallocate(m, &w->ahead, sheaf__packed_size(w), SHEAF_MEM_WEIGHTS);
    }
    return st;
}

/* Slices of rows follow each other in the files and in the layer's panels, those of columns lie
 * side by side in the files, so that all of a rank's are read together, not in pieces of a row
 * each. */
static sheaf_status *read_panels(sheaf__model *m, sheaf_source *base, sheaf__linear *l)
{
    if (sheaf__linear_is_quantised(l))
        return sheaf__load_codes(m->context, base, l);
    const sheaf_range mine = { l->logical0, l->logical0 + l->owned };
    box b = box_of(m->context, base, l->name, l->rows ? (sheaf_range){ 0, l->out } : mine,
                   l->rows ? mine : (sheaf_range){ 0, l->in }, NULL, SHEAF_F32);
    b.spread = l->rows ? l : NULL;
    b.packed = l->rows ? NULL : &l->all;
    return read_box(&b);
}

/* The packed matrices of a layer: one, or one for each slice of columns. */
static int packed_of(sheaf__packed *out[SHEAF_MAX_SLICES], sheaf__linear *l)
{
    out[0] = &l->all;
    for (int s = 0; s < l->count && l->rows; s++)
        out[s] = &l->w[l->first + s];
    return l->rows ? l->count : 1;
}

/* A compressed weight has only the product x w^T. A thread packs whole panels if their rows fit in
 * its scratch, in any stored dtype. */
static void compress(const sheaf__model *m, sheaf__linear *l)
{
    sheaf__packed *w[SHEAF_MAX_SLICES];
    const sheaf__context *c = m->context;
    const int64_t cols = l->rows ? l->owned : l->in, sequences = m->options.sequences;
    const bool pays = c->dtype == SHEAF_BF16 && !l->transposed && sequences > 0 &&
                      sequences <= sheaf__packed_few(c->device) &&
                      (size_t)(cols * GROUP) * sizeof(float) <= SHEAF__THREAD_SCRATCH;
    for (int i = packed_of(w, l) - 1; i >= 0 && pays; i--)
        sheaf__packed_compress(w[i]);
}

/* Marks slices of a layer's outputs as parts of one packed matrix. */
static void set_parts(sheaf__linear *l)
{
    for (int s = l->first; s < l->first + l->count && !l->rows; s++)
        l->w[s].code = l->all.code;
}

/* Either all matrices of a layer are compressed, or none. */
static bool as_wanted(sheaf__linear *l)
{
    sheaf__packed *w[SHEAF_MAX_SLICES];
    const int n = packed_of(w, l);
    bool all = true;
    for (int i = 0; i < n; i++)
        all = sheaf__packed_as_wanted(w[i]) && all;
    for (int i = 0; i < n && !all; i++)
        w[i]->code = NULL;
    return all;
}

/* Memory for a weight that is away, which then has the type it stays in. */
static sheaf_status *bring(void **at, sheaf__model *m, sheaf__linear *l)
{
    const size_t bytes = sheaf__linear_bytes(l);
    sheaf_status *st = NULL;
    if (bytes > sheaf__offload_size(m->away, l->away.block))
        st = sheaf__offload_resize(m->away, l->away.block, bytes);
    TRY(st, sheaf__offload_fill(at, m->away, l->away.block));
    if (st == NULL)
        l->away.place(&l->away, *at);
    return st;
}

static sheaf_status *load_panels(sheaf__model *m, sheaf_source *base, sheaf__linear *l)
{
    void *at = NULL;
    const bool codes = sheaf__linear_is_quantised(l);
    sheaf_status *st = codes ? NULL : keep_panels(m, base, l);
    if (l->away.place != NULL) {
        TRY(st, bring(&at, m, l));
        TRY(st, read_panels(m, base, l));
        l->away.place(&l->away, NULL);
        return TRY(st, sheaf__offload_filled(m->away, l->away.block));
    }
    if (!codes)
        compress(m, l);
    TRY(st, read_panels(m, base, l));
    if (!as_wanted(l) && st == NULL)
        st = read_panels(m, base, l);
    set_parts(l);
    return st;
}

static void expand(void *arg, int64_t index, int worker)
{
    sheaf__packed *w[SHEAF_MAX_SLICES];
    const sheaf__module *module = (const sheaf__module *)arg + index;
    sheaf__linear *l = module->part;
    for (int i = module->kind == SHEAF__LINEAR ? packed_of(w, l) - 1 : -1; i >= 0; i--)
        sheaf__packed_expand(w[i]);
    if (module->kind == SHEAF__LINEAR)
        set_parts(l);
}

void sheaf__model_set_sequences(sheaf__model *m, int64_t sequences)
{
    if (sequences > sheaf__packed_few(m->context->device))
        sheaf__pool_run(m->context->device->pool, m->nmodules, expand, m->module);
}

static sheaf_status *load_bias(sheaf__model *m, sheaf_source *base, sheaf__linear *l,
                               const sheaf__module *module)
{
    /* Biases of the parts of a fused weight are one tensor, cut as it is, or one each. */
    const bool apart = module->weight->cut.nparts > module->bias->cut.nparts && !l->rows;
    sheaf_range first = { l->logical0, 0 };
    if (apart) {
        sheaf_status *st = sheaf_cut_rows(&first, &module->bias->cut, 0, l->first);
        if (st != NULL)
            return st;
    } else if (l->bias_trained != NULL && module->piece > 0) { /* the first piece read them */
        return NULL;
    }
    return load_floats(m, base, module->bias->name, l->bias_trained, l->bias,
                       l->rows ? 0 : first.begin, l->rows ? l->out : l->owned, 1, false);
}

static sheaf_status *load_linear(sheaf__model *m, sheaf_source *base, sheaf__linear *l,
                                 const sheaf__module *module)
{
    sheaf_status *st = NULL;
    if (l->weight_trained != NULL && module->piece == 0)
        st = read_trained(m->context, base, l->name, l->weight_trained);
    else if (l->weight_trained == NULL && !module->shared)
        st = load_panels(m, base, l);
    return st != NULL || l->bias == NULL ? st : load_bias(m, base, l, module);
}

static sheaf_status *load_layernorm(sheaf__model *m, sheaf_source *base, sheaf__layernorm *n,
                                    const sheaf__module *module)
{
    sheaf_status *st = load_floats(m, base, module->weight->name, n->weight_trained, n->weight,
                                   n->logical0, n->owned, 1, n->one);
    if (module->bias != NULL)
        TRY(st, load_floats(m, base, module->bias->name, n->bias_trained, n->bias, n->logical0,
                            n->owned, 1, false));
    return st;
}

/* Each rank reads, and hashes, the rows of all slices. */
static sheaf_status *load_table(sheaf__model *m, sheaf_source *base, sheaf__table *t)
{
    if (t->trained != NULL)
        return read_trained(m->context, base, t->name, t->trained);
    box all = box_of(m->context, base, t->name, (sheaf_range){ 0, t->vocab },
                     (sheaf_range){ 0, t->width }, NULL, SHEAF_F32);
    all.print = t->stored.print;
    sheaf_status *st = read_box(&all);
    t->stored.source = base;
    t->stored.dtype = all.stored;
    t->stored.finite = !all.infinite;
    return st;
}

static sheaf_status *load_module(sheaf__model *m, sheaf_source *base, const sheaf__module *module)
{
    sheaf__norm *norm = module->part;
    sheaf__vector *vector = module->part;
    switch (module->kind) {
    case SHEAF__LINEAR: return load_linear(m, base, module->part, module);
    case SHEAF__RMSNORM:
        return load_floats(m, base, norm->name, norm->trained, norm->weight, 0, norm->width, 1,
                           norm->one);
    case SHEAF__LAYERNORM: return load_layernorm(m, base, module->part, module);
    case SHEAF__VECTOR:
        return load_floats(m, base, vector->name, vector->trained, vector->data, 0, vector->rows,
                           vector->width, false);
    case SHEAF__TABLE: return module->shared ? NULL : load_table(m, base, module->part);
    }
    return NULL;
}

/* The tensor of frequencies `name`, where the files have it; else `frequency` stays. */
static sheaf_status *read_frequencies(float *frequency, sheaf__model *m, sheaf_source *base,
                                      const char *name)
{
    box stored = box_of(m->context, base, name, (sheaf_range){ 0, m->rope.rot / 2 },
                        (sheaf_range){ 0, 1 }, frequency, SHEAF_F32);
    stored.host = true;
    return base->find(base, name) == NULL ? NULL : read_box(&stored);
}

/* Frequencies of each layer must be those of the first: there is one table of angles. */
static sheaf_status *check_layers(float *other, const float *frequency, sheaf__model *m,
                                  sheaf_source *base, const char *pattern)
{
    char name[128], first[128];
    const int64_t half = m->rope.rot / 2;
    sheaf_status *st = NULL;
    sheaf__numbered_name(first, sizeof first, pattern, 0);
    for (int64_t i = 1; i < m->schema->config.layers && st == NULL; i++) {
        memcpy(other, frequency, (size_t)half * sizeof *other);
        st = read_frequencies(other, m, base, sheaf__numbered_name(name, sizeof name, pattern, i));
        for (int64_t j = 0; j < half && st == NULL; j++)
            if (other[j] != frequency[j])
                st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", name),
                                                "the numbers of '%s'", first),
                                 "%g, not %g, at %" PRId64, (double)other[j], (double)frequency[j],
                                 j);
    }
    return st;
}

/* For families whose files store the frequencies: the stored, rounded values are used. A file
 * without them gets the values that its program would store. */
static sheaf_status *load_frequencies(sheaf__model *m, sheaf_source *base)
{
    const sheaf__family *family = sheaf__family_for(&m->schema->config);
    const char *pattern = family->frequencies;
    const int64_t half = m->rope.rot / 2;
    char name[128];
    if (pattern == NULL)
        return NULL;
    float *frequency = malloc((size_t)half * 2 * sizeof *frequency);
    sheaf_status *st = frequency == NULL ? sheaf__no_memory(pattern) : NULL;
    for (int64_t j = 0; j < half && st == NULL; j++)
        frequency[j] = sheaf__rope_frequency(&m->schema->config, j, m->rope.rot, 0);
    TRY(st,
        read_frequencies(frequency, m, base, sheaf__numbered_name(name, sizeof name, pattern, 0)));
    if (strchr(pattern, '#') != NULL)
        TRY(st, check_layers(frequency + half, frequency, m, base, pattern));
    sheaf__rope_table host = { 0 };
    TRY(st, sheaf__rope_borrow(&host, &m->rope, m->context->device));
    for (int64_t j = 0; j < half && st == NULL; j++)
        sheaf__rope_fill_pair(&host, j, frequency[j], 1, m->context->dtype,
                              family->angles_rounded ? m->context->dtype : SHEAF_F32);
    free(frequency);
    return sheaf__first_of(st, sheaf__rope_return(&host, &m->rope, m->context->device, st == NULL));
}

/* ---- LoRA factors ---- */

/* The copies of one part's A or B, where the factor is not trained. */
static sheaf_status *load_copies(sheaf__model *m, sheaf_source *adapter, const char *name,
                                 const sheaf_cut *cut, int piece, sheaf_range rows,
                                 sheaf_range cols, sheaf_dtype dtype, void **copy)
{
    sheaf__context *c = m->context;
    const bool whole = cut->nparts == 0;
    sheaf_status *st = NULL;
    for (int s = whole ? 0 : (int)c->own.begin; s < (whole ? 1 : (int)c->own.end) && st == NULL;
         s++) {
        if (!whole)
            st = sheaf_cut_rows(cut->axis == 0 ? &rows : &cols, cut, piece, s);
        box b = box_of(c, adapter, name, rows, cols, copy[s], dtype);
        TRY(st, read_box(&b));
    }
    return st;
}

static sheaf_status *load_part(sheaf__model *m, sheaf_source *adapter,
                               const sheaf_lora_module *module, sheaf__lora_part *part, int piece)
{
    const int64_t first = module->dense ? 0 : piece * part->rank;
    sheaf_status *st =
        part->first != NULL
            ? NULL
            : load_copies(m, adapter, module->a_name, &module->a_cut, 0,
                          (sheaf_range){ first, first + part->rank },
                          (sheaf_range){ 0, module->a_shape[1] }, m->context->dtype, part->a_copy);
    TRY(st, load_copies(m, adapter, module->b_name, &module->b_cut, piece,
                        (sheaf_range){ 0, module->b_shape[0] },
                        (sheaf_range){ 0, module->b_shape[1] }, m->context->dtype, part->b_copy));
    if (part->dora != NULL)
        TRY(st, load_copies(m, adapter, module->m_name, &module->b_cut, piece,
                            (sheaf_range){ 0, module->b_shape[0] }, (sheaf_range){ 0, 1 },
                            SHEAF_F32, (void **)part->m_copy));
    return st;
}

static sheaf_status *load_lora(sheaf__model *m, sheaf_source *adapter)
{
    sheaf_status *st = NULL;
    const sheaf_lora *lora = m->options.lora;
    for (int i = 0; lora != NULL && i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *module = &lora->module[i];
        sheaf__factors *f = &m->lora[i];
        if (f->a == NULL)
            for (int piece = 0; piece < f->parts && st == NULL; piece++)
                st = load_part(m, adapter, module, &f->part[piece], piece);
        else if (adapter == NULL) {
            st = sheaf__fresh_factors(m, module, f);
        } else {
            st = read_trained(m->context, adapter, module->a_name, f->a);
            TRY(st, read_trained(m->context, adapter, module->b_name, f->b));
            if (f->m != NULL)
                TRY(st, read_trained(m->context, adapter, module->m_name, f->m));
        }
    }
    return st;
}

/* Norms of the frozen weights, which may be away; fresh: magnitudes of a new adapter. Collective:
 * `st`, of what was loaded before, is that of the ranks together then. */
static sheaf_status *begin_dora(sheaf__model *m, bool fresh, sheaf_status *st)
{
    const bool dora = m->options.lora != NULL && m->options.lora->options.dora;
    for (int i = 0; i < m->nmodules && st == NULL && dora; i++) {
        sheaf__linear *l = m->module[i].part;
        void *at;
        if (m->module[i].kind != SHEAF__LINEAR || l->lora == NULL)
            continue;
        if (l->away.place != NULL) {
            st = sheaf__offload_fetch(&at, m->away, l->away.block);
            if (st == NULL)
                l->away.place(&l->away, at);
        }
        TRY(st, sheaf__dora_begin(m->context, l, fresh && l->lora->b != NULL));
        if (l->away.place != NULL)
            l->away.place(&l->away, NULL);
    }
    return dora && m->context->comm != NULL ? sheaf_comm_agree(m->context->comm, st) : st;
}

sheaf_status *sheaf__model_load(sheaf__model *m, sheaf_source *base, sheaf_source *adapter)
{
    sheaf_status *st = m->away == NULL ? NULL : sheaf__offload_claim(m->away);
    for (int i = 0; i < m->nmodules && st == NULL; i++)
        st = load_module(m, base, &m->module[i]);
    TRY(st, load_frequencies(m, base));
    TRY(st, load_lora(m, adapter));
    if (adapter == NULL)
        st = sheaf__model_start(m, base, st);
    st = begin_dora(m, adapter == NULL, st);
    if (st == NULL) {
        if (m->trained != NULL)
            sheaf__trained_from_weights(m->trained);
        sheaf__model_refresh(m);
    }
    return sheaf__first_of(st, sheaf__device_check(m->context->device));
}
