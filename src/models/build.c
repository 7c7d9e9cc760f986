/* build.c - see build.h. */
#include "models/build.h"

#include "base/base.h"
#include "base/random.h"
#include "catalog/boxes.h"
#include "lora/start.h"
#include "ops/offload.h"
#include "models/rope.h"
#include "tape/rows.h"

sheaf_status *sheaf__build_find(const sheaf_tensor **out, const sheaf__model *m, const char *name)
{
    char own[SHEAF__SPELLED];
    name = sheaf__spelled(own, sheaf__family_for(&m->schema->config), name);
    *out = sheaf_schema_find(m->schema, name);
    if (*out != NULL)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "model"), "a tensor '%s'", name),
                       "none");
}

static sheaf_status *add_module(sheaf__model *m, sheaf__module module)
{
    if (!SHEAF_GROW(&m->module, &m->module_capacity, m->nmodules + 1))
        return sheaf__no_memory("parts of a model");
    m->module[m->nmodules++] = module;
    return NULL;
}

/* Memory of the model, for the tensor `name`. */
static sheaf_status *take(sheaf__model *m, void *out, const char *name, size_t bytes,
                          sheaf_memory kind)
{
    if (!SHEAF_GROW(&m->block, &m->block_capacity, m->nblocks + 1))
        return sheaf__no_memory("parts of a model");
    sheaf_status *st = sheaf__alloc(out, m->context, bytes, kind);
    if (st == NULL)
        m->block[m->nblocks++] = (sheaf__block){ name, *(void **)out, false };
    return st;
}

/* The same of the host's. */
static sheaf_status *take_host(sheaf__model *m, void **out, const char *name, size_t bytes)
{
    if (!SHEAF_GROW(&m->block, &m->block_capacity, m->nblocks + 1))
        return sheaf__no_memory("parts of a model");
    sheaf_status *st = sheaf__host_alloc(out, m->context->device, bytes, SHEAF_MEM_WEIGHTS);
    if (st == NULL)
        m->block[m->nblocks++] = (sheaf__block){ name, *out, true };
    return st;
}

sheaf_status *sheaf__build_parts(void *out, sheaf__model *m, int64_t count, size_t size)
{
    void *at = SHEAF_GROW(&m->owned, &m->owned_capacity, m->nowned + 1)
                   ? calloc(count > 0 ? (size_t)count : 1, size)
                   : NULL;
    if (at == NULL)
        return sheaf__no_memory("parts of a model");
    *(void **)out = m->owned[m->nowned++] = at;
    return NULL;
}

static sheaf_status *take_floats(float **out, sheaf__model *m, const char *name, int64_t n)
{
    return take(m, out, name, (size_t)n * sizeof(float), SHEAF_MEM_WEIGHTS);
}

sheaf_status *sheaf__build_reallocate(sheaf__model *m, void *block, size_t bytes, sheaf_memory kind)
{
    int64_t i = 0;
    while (m->block[i].at != *(void **)block)
        i++;
    sheaf__free(m->context, m->block[i].at);
    sheaf_status *st = sheaf__alloc(block, m->context, bytes, kind);
    m->block[i].at = *(void **)block;
    return st;
}

/* ---- what is trained ---- */

static bool is_saved(const sheaf__model *m, const sheaf_tensor *t)
{
    const sheaf__model_options *o = &m->options;
    if (o->train_lora && o->lora != NULL && sheaf__lora_is_saved(o->lora, t))
        return !t->buffer && !t->idle; /* saved too, unchanged */
    return o->trains != NULL && !t->buffer && o->trains(o->self, t);
}

/* Names without decay: biases and norms, as transformers' Trainer
 * (get_decay_parameter_names) and SAT (deepspeed_training.py) have it; q_bias and v_bias of
 * CogAgent's tower are no `bias` there. */
static bool decays(const sheaf_tensor *t)
{
    return !t->bias && !sheaf__is_norm(t->role);
}

/* Trained tensors are matrices: a convolution's weight is [out, the rest], a table of positions
 * [rows, width]. */
static sheaf_status *add_trained(sheaf__trained **out, sheaf__model *m, const sheaf_tensor *t,
                                 int64_t rows, int64_t cols)
{
    const int64_t shape[2] = { rows, cols };
    return sheaf__trained_add(out, m->trained, t->name, t->ndim == 1 ? 1 : 2, shape, &t->cut,
                              decays(t));
}

/* Is the tensor frozen, and the base's, not the adapter's? */
static bool is_frozen(const sheaf__model *m, const sheaf_tensor *t)
{
    const sheaf_lora *lora = m->options.lora;
    return (lora == NULL || !sheaf__lora_is_saved(lora, t)) && !is_saved(m, t);
}

/* Of a matrix in memory: the compute dtype; but frozen matrices stay in 16 bits where the config
 * says that they are stored so and the compute dtype is float32. */
static sheaf_dtype dtype_of(const sheaf__model *m, const sheaf_tensor *t)
{
    const sheaf_dtype stored = m->schema->config.dtype, computed = m->context->dtype;
    const bool half = computed == SHEAF_F32 && (stored == SHEAF_BF16 || stored == SHEAF_F16);
    return half && is_frozen(m, t) ? stored : computed;
}

/* NULL: it is plain in memory. Trained tensors, those of an adapter's file and tables are. */
static const sheaf__quant *form_of(const sheaf__model *m, const sheaf_tensor *t)
{
    if (m->options.forms == NULL || t->role == SHEAF_EMBED || !is_frozen(m, t))
        return NULL;
    const sheaf__quant *held = sheaf__source_held(m->options.forms, t->name);
    /* Blocks are values for answers, too; codes of 4 bits in groups are not (docs/contract.md). */
    return held == NULL || m->options.backward || held->added || sheaf__code_bits(held->codes) == 8
               ? held
               : sheaf__source_form(m->options.forms, t->name);
}

/* ---- LoRA ---- */

static int index_of_module(const sheaf__model *m, const sheaf_tensor *t)
{
    const sheaf_lora *lora = m->options.lora;
    for (int i = 0; lora != NULL && i < lora->nmodules; i++)
        if (lora->module[i].base == t)
            return i;
    return -1;
}

static sheaf_status *make_factors(sheaf__model *m, sheaf__factors *f,
                                  const sheaf_lora_module *module)
{
    const sheaf_cut *cut[2] = { &module->a_cut, &module->b_cut };
    const int64_t *shape[2] = { module->a_shape, module->b_shape };
    const char *name[2] = { module->a_name, module->b_name };
    sheaf__trained **trained[2] = { &f->a, &f->b };
    f->parts = module->parts;
    sheaf_status *st = sheaf__build_parts(&f->part, m, f->parts, sizeof *f->part);
    const bool shares = module->a_of != NULL;
    if (shares)
        f->a = m->lora[module->a_of - m->options.lora->module].a;
    for (int i = shares; i < 2 && st == NULL && m->options.train_lora; i++)
        st = sheaf__trained_add(trained[i], m->trained, name[i], 2, shape[i], cut[i], true);
    if (st == NULL && m->options.train_lora &&
        sheaf__start_is_held(m->options.lora->options.init)) {
        f->a->band = module->a_shape[0] / (module->dense ? 1 : module->parts);
        f->b->band = 1;
    }
    if (st == NULL && m->options.train_lora && module->m_name != NULL)
        st = sheaf__trained_add(&f->m, m->trained, module->m_name, 1,
                                (const int64_t[]){ module->b_shape[0], 1 }, &module->b_cut, true);
    return st;
}

/* Compute copies of one factor, in the layout of trained tensors: slice after slice, one block. */
static sheaf_status *take_copy(sheaf__model *m, const sheaf__lora_part *part, const char *name,
                               const sheaf_cut *cut, int piece, int64_t length, int64_t width,
                               sheaf_dtype dtype, void *copy[SHEAF_MAX_SLICES],
                               int64_t numel[SHEAF_MAX_SLICES])
{
    const sheaf__context *c = m->context;
    const bool whole = cut->nparts == 0;
    const int first = whole ? 0 : (int)c->own.begin, end = whole ? 1 : (int)c->own.end;
    int64_t all = 0;
    for (int s = first; s < end; s++) {
        sheaf_range rows = { 0, length };
        sheaf_status *st = whole ? NULL : sheaf_cut_rows(&rows, cut, piece, s);
        if (st != NULL)
            return st;
        numel[s] = (rows.end - rows.begin) * width;
        all += numel[s];
    }
    void *block;
    sheaf_status *st = take(m, &block, name, (size_t)all * sheaf_dtype_bytes(dtype),
                            part->a != NULL ? SHEAF_MEM_TRAINED : SHEAF_MEM_WEIGHTS);
    for (int s = first; s < end && st == NULL; s++) {
        copy[s] = block;
        block = sheaf__at(block, numel[s], dtype);
    }
    return st;
}

static sheaf_status *take_copies(sheaf__model *m, sheaf__lora_part *part,
                                 const sheaf_lora_module *module, int piece)
{
    const char *name = module->base->name;
    sheaf_status *st = NULL;
    if (part->first == NULL) {
        st = take_copy(m, part, name, &module->a_cut, 0, module->a_shape[1], part->rank,
                       m->context->dtype, part->a_copy, part->a_numel);
    } else {
        memcpy(part->a_copy, part->first->a_copy, sizeof part->a_copy);
        memcpy(part->a_numel, part->first->a_numel, sizeof part->a_numel);
    }
    return TRY(st, take_copy(m, part, name, &module->b_cut, piece, module->b_shape[0],
                             module->b_shape[1], m->context->dtype, part->b_copy, part->b_numel));
}

/* Magnitudes, and what is made of them and of norms, beside the copies of B. */
static sheaf_status *take_magnitudes(sheaf__model *m, sheaf__lora_part *part,
                                     const sheaf_lora_module *module, const sheaf__factors *factors,
                                     int piece)
{
    const char *name = module->base->name;
    struct sheaf__dora *d;
    int64_t numel[SHEAF_MAX_SLICES] = { 0 };
    sheaf_status *st = sheaf__build_parts(&d, m, 1, sizeof *d);
    if (st != NULL)
        return st;
    *d = (struct sheaf__dora){ .m = factors->m, .stale = true };
    part->dora = d;
    st = take_copy(m, part, name, &module->b_cut, piece, module->b_shape[0], 1, SHEAF_F32,
                   (void **)part->m_copy, numel);
    for (int s = 0; s < SHEAF_MAX_SLICES; s++) {
        d->n += numel[s];
        d->m_at[s] = part->b_at[s] / part->rank;
    }
    float **const of[] = { &d->squares, &d->now, &d->factor, &d->inverse };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        TRY(st, take_floats(of[i], m, name, d->n));
    return TRY(st, take_floats(&d->weigh, m, name, 2 * part->rank));
}

static sheaf_status *build_lora(sheaf__model *m, sheaf__lora_part **out, const sheaf_tensor *t,
                                int piece)
{
    const int index = index_of_module(m, t);
    if (index < 0)
        return NULL;
    const sheaf_lora_module *module = &m->options.lora->module[index];
    sheaf__factors *factors = &m->lora[index];
    sheaf_status *st = factors->part == NULL ? make_factors(m, factors, module) : NULL;
    if (st == NULL && module->m_name != NULL && is_saved(m, t))
        st = sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' trained with DoRA", t->name),
                           "a weight that is frozen, whose norms are constant"),
            "leave it out of `train` and `modules-to-save`, or the module out of the targets");
    if (st != NULL)
        return st;
    sheaf__lora_part *part = *out = &factors->part[piece];
    /* A dense B multiplies all rows of A in each part. */
    const int64_t rank = module->dense ? module->a_shape[0] : module->a_shape[0] / module->parts;
    *part = (sheaf__lora_part){ .rank = rank,
                                .scale = module->scale,
                                .dropout = m->options.lora->options.dropout,
                                .purpose = sheaf__name_key(t->module),
                                .a = factors->a,
                                .b = factors->b,
                                .a_at = module->dense ? 0 : piece * rank * module->a_shape[1],
                                .first = module->dense && piece > 0 ? factors->part : NULL };
    if (module->a_of != NULL)
        part->first = m->lora[module->a_of - m->options.lora->module].part;
    for (int s = 0; s < SHEAF_MAX_SLICES && part->b != NULL && module->b_cut.nparts > 0 &&
                    s < m->context->slices;
         s++)
        part->b_at[s] = sheaf__trained_at(part->b, piece, s);
    st = take_copies(m, part, module, piece);
    return st != NULL || module->m_name == NULL ? st
                                                : take_magnitudes(m, part, module, factors, piece);
}

/* ---- linear layers ---- */

static sheaf_status *lay_out_slices(const sheaf__model *m, sheaf__linear *l, const sheaf_tensor *t,
                                    int piece)
{
    const sheaf__context *c = m->context;
    bool present[SHEAF_MAX_SLICES];
    l->first = (int)c->own.begin;
    l->count = (int)(c->own.end - c->own.begin);
    if (t->cut.nparts == 0) {
        l->whole = true;
        l->first = 0;
        l->count = 1;
        l->extent[0] = l->owned = l->out;
        return NULL;
    }
    for (int s = 0; s < c->slices; s++) {
        sheaf_range rows;
        sheaf_status *st = sheaf_cut_rows(&rows, &t->cut, piece, s);
        if (st != NULL)
            return st;
        l->extent[s] = rows.end - rows.begin;
        present[s] = l->extent[s] > 0;
        if (s == l->first)
            l->logical0 = rows.begin;
        if (s >= l->first && s < l->first + l->count) {
            l->begin[s] = l->owned;
            l->owned += l->extent[s];
        }
    }
    sheaf_tree_init(&l->tree, c->slices, c->ranks, present);
    return NULL;
}

/* The head is read once in each direction, by an op that works in parts; tables share its panels.
 */
static bool goes_away(const sheaf__model *m, const sheaf_tensor *t, sheaf_memory kind)
{
    return m->away != NULL && kind == SHEAF_MEM_WEIGHTS && t->role != SHEAF_HEAD &&
           t->role != SHEAF_EMBED;
}

static sheaf_status *send_away(sheaf__model *m, sheaf__linear *l)
{
    int64_t block;
    const size_t bytes = sheaf__linear_bytes(l);
    sheaf_status *st = bytes == 0 ? NULL : sheaf__offload_add(&block, m->away, bytes);
    if (st == NULL && bytes > 0)
        sheaf__linear_away(l, block);
    return st;
}

/* The matrix of all owned outputs, or that of one slice of the inputs. */
static sheaf__packed matrix_of(const sheaf__model *m, const sheaf__linear *l, const sheaf_tensor *t,
                               int slice)
{
    const sheaf__device *device = m->context->device;
    const sheaf__quant *form = form_of(m, t);
    const sheaf__quant_box box =
        l->rows ? (sheaf__quant_box){ l->in, 0, l->out, l->logical0 + l->begin[slice],
                                      l->extent[slice] }
                : (sheaf__quant_box){ l->in, l->logical0, l->owned, 0, l->in };
    return form == NULL ? sheaf__packed_on(device, dtype_of(m, t), box.rows, box.cols)
                        : sheaf__packed_quantised(device, m->context->dtype, form, &box);
}

static sheaf_status *take_panels(sheaf__model *m, sheaf__linear *l, const sheaf_tensor *t,
                                 sheaf_memory kind)
{
    sheaf_status *st = NULL;
    const bool away = goes_away(m, t, kind);
    if (!l->rows)
        l->all = matrix_of(m, l, t, 0);
    if (l->all.n > 0 && !away)
        st = take(m, &l->all.ahead, t->name, sheaf__packed_size(&l->all), kind);
    for (int s = l->first; s < l->first + l->count && st == NULL; s++) {
        sheaf__packed *w = &l->w[s];
        *w = l->rows ? matrix_of(m, l, t, s)
                     : sheaf__packed_part(&l->all, l->begin[s], l->extent[s]);
        if (l->rows && l->extent[s] > 0 && !away)
            st = take(m, &w->ahead, t->name, sheaf__packed_size(w), kind);
    }
    return st == NULL && away ? send_away(m, l) : st;
}

/* The same part of options.like, where that holds the weight as this one does; else NULL. */
static const sheaf__module *shared_module(const sheaf__model *m, int index)
{
    const sheaf__model *like = m->options.like;
    const sheaf_tensor *t = m->module[index].weight;
    if (like == NULL || index >= like->nmodules || !is_frozen(m, t))
        return NULL;
    const sheaf__module *other = &like->module[index];
    return other->kind == m->module[index].kind && other->piece == m->module[index].piece &&
                   strcmp(other->weight->name, t->name) == 0 && is_frozen(like, other->weight)
               ? other
               : NULL;
}

static bool share_panels(sheaf__model *m, sheaf__linear *l)
{
    const sheaf__module *other = shared_module(m, m->nmodules - 1);
    if (other == NULL)
        return false;
    const sheaf__linear *from = other->part;
    m->module[m->nmodules - 1].shared = true;
    l->all = from->all;
    memcpy(l->w, from->w, sizeof l->w);
    return true;
}

static sheaf_status *add_trained_pieces(sheaf__trained **out, int64_t at[SHEAF_MAX_SLICES],
                                        sheaf__model *m, const sheaf_tensor *t, int piece,
                                        int64_t cols)
{
    *out = NULL;
    for (int i = 0; i < m->trained->count && piece > 0; i++) /* the first piece created it */
        if (strcmp(m->trained->item[i]->name, t->name) == 0)
            *out = m->trained->item[i];
    sheaf_status *st = *out == NULL ? add_trained(out, m, t, t->shape[0], cols) : NULL;
    for (int s = 0; s < t->cut.slices && t->cut.nparts > 1 && st == NULL; s++)
        at[s] = sheaf__trained_at(*out, piece, s);
    return st;
}

sheaf_status *sheaf__build_linear(sheaf__model *m, sheaf__linear *l, const sheaf_tensor *t,
                                  const sheaf_tensor *bias, int piece)
{
    const int64_t in = t->shape[1] * t->shape[2] * t->shape[3] * t->shape[4];
    l->name = t->name; /* of zeros so far: writing all lists took a plan an eighth of its time */
    l->out = t->shape[0];
    l->in = in;
    l->rows = t->cut.nparts > 0 && t->cut.axis == 1;
    if (t->cut.nparts > 1)
        l->out = t->cut.part[piece].units * t->cut.part[piece].rows_per_unit;
    const bool trained = is_saved(m, t);
    sheaf_status *st = lay_out_slices(m, l, t, piece);
    TRY(st, add_module(m, (sheaf__module){ SHEAF__LINEAR, l, t, bias, piece }));
    if (st == NULL && !share_panels(m, l))
        st = take_panels(m, l, t, trained ? SHEAF_MEM_TRAINED : SHEAF_MEM_WEIGHTS);
    if (st == NULL && bias != NULL)
        st = take_floats(&l->bias, m, t->name, l->rows ? l->out : l->owned);
    if (st == NULL && trained)
        st = add_trained_pieces(&l->weight_trained, l->weight_at, m, t, piece, in);
    if (st == NULL && bias != NULL && is_saved(m, bias))
        st = add_trained_pieces(&l->bias_trained, l->bias_at, m, bias, piece, 1);
    TRY(st, build_lora(m, &l->lora, t, piece));
    return st;
}

/* An op reads one weight, or up to SHEAF__MAX_TOGETHER that are cut along their output and read the
 * same input, which are built one after the other. */
sheaf_status *sheaf__build_away(sheaf__model *m)
{
    size_t most = 0, bytes[SHEAF__MAX_TOGETHER] = { 0 };
    int64_t in = -1;
    for (int i = 0; i < m->nmodules && m->away != NULL; i++) {
        const sheaf__linear *l = m->module[i].part;
        if (m->module[i].kind != SHEAF__LINEAR || l->away.place == NULL)
            continue;
        if (l->rows || l->in != in)
            memset(bytes, 0, sizeof bytes);
        in = l->rows ? -1 : l->in;
        memmove(bytes + 1, bytes, sizeof bytes - sizeof *bytes);
        bytes[0] = sheaf__offload_size(m->away, l->away.block);
        size_t together = 0;
        for (int k = 0; k < SHEAF__MAX_TOGETHER; k++)
            together += bytes[k];
        most = together > most ? together : most;
    }
    return m->away == NULL ? NULL : sheaf__offload_ring(m->away, most);
}

/* ---- the rest ---- */

sheaf_status *sheaf__build_norm(sheaf__model *m, sheaf__norm *norm, const sheaf_tensor *t,
                                double eps, bool once)
{
    *norm = (sheaf__norm){ .name = t->name, .width = t->shape[0], .eps = (float)eps, .once = once };
    sheaf_status *st = add_module(m, (sheaf__module){ SHEAF__RMSNORM, norm, t, NULL, 0 });
    TRY(st, take_floats(&norm->weight, m, t->name, norm->width));
    if (st == NULL && is_saved(m, t))
        st = add_trained(&norm->trained, m, t, t->shape[0], 1);
    return st;
}

sheaf_status *sheaf__build_layernorm(sheaf__model *m, sheaf__layernorm *norm, const sheaf_tensor *t,
                                     const sheaf_tensor *bias, double eps)
{
    *norm = (sheaf__layernorm){ .name = t->name,
                                .width = t->shape[0],
                                .eps = (float)eps,
                                .cut = t->cut.nparts > 0,
                                .plain = bias == NULL };
    sheaf__linear like = { .out = t->shape[0] }; /* divided as a layer's outputs are */
    sheaf_status *st = lay_out_slices(m, &like, t, 0);
    norm->first = like.first;
    norm->count = like.count;
    norm->owned = like.owned;
    norm->logical0 = like.logical0;
    norm->tree = like.tree;
    memcpy(norm->begin, like.begin, sizeof norm->begin);
    memcpy(norm->extent, like.extent, sizeof norm->extent);
    TRY(st, add_module(m, (sheaf__module){ SHEAF__LAYERNORM, norm, t, bias, 0 }));
    TRY(st, take_floats(&norm->weight, m, t->name, norm->owned));
    TRY(st, take_floats(&norm->bias, m, t->name, norm->owned));
    if (st == NULL && norm->plain)
        sheaf__op_zero(m->context->device, norm->bias, norm->owned, SHEAF_F32);
    if (st == NULL && is_saved(m, t))
        st = add_trained(&norm->weight_trained, m, t, t->shape[0], 1);
    if (st == NULL && bias != NULL && is_saved(m, bias))
        st = add_trained(&norm->bias_trained, m, bias, bias->shape[0], 1);
    return st;
}

sheaf_status *sheaf__build_vector(sheaf__model *m, sheaf__vector *v, const sheaf_tensor *t,
                                  int64_t width)
{
    const int64_t numel = sheaf__elements(t->ndim, t->shape);
    *v = (sheaf__vector){ .name = t->name, .rows = numel / width, .width = width };
    sheaf_status *st = add_module(m, (sheaf__module){ SHEAF__VECTOR, v, t, NULL, 0 });
    TRY(st, take_floats(&v->data, m, t->name, numel));
    if (st == NULL && is_saved(m, t))
        st = add_trained(&v->trained, m, t, v->rows, width);
    return st;
}

sheaf_status *sheaf__build_table(sheaf__model *m, sheaf__table *table, const sheaf_tensor *t,
                                 const sheaf__linear *head)
{
    *table = (sheaf__table){ .name = t->name,
                             .vocab = t->shape[0],
                             .width = t->shape[1],
                             .cut = t->cut,
                             .padding = m->schema->config.padding };
    if (head != NULL) {
        table->packed = head->w;
        table->trained = head->weight_trained;
        table->panels = m->trained->divided;
        return NULL;
    }
    sheaf_status *st = add_module(m, (sheaf__module){ SHEAF__TABLE, table, t, NULL, 0 });
    TRY(st, build_lora(m, &table->lora, t, 0));
    if (st != NULL)
        return st;
    if (is_saved(m, t))
        st = add_trained(&table->trained, m, t, t->shape[0], t->shape[1]);
    if (st != NULL || (table->trained != NULL && !m->trained->divided))
        return st;
    int64_t rows = 0;
    for (int64_t s = m->context->own.begin; s < m->context->own.end && table->trained != NULL; s++)
        rows += sheaf_cut_slice_rows(&t->cut, (int)s);
    if (table->trained != NULL)
        return take(m, &table->rows, t->name,
                    (size_t)(rows * table->width) * sheaf_dtype_bytes(m->context->dtype),
                    SHEAF_MEM_WEIGHTS);
    const sheaf__module *other = shared_module(m, m->nmodules - 1);
    if (other != NULL) {
        table->stored = ((const sheaf__table *)other->part)->stored;
        m->module[m->nmodules - 1].shared = true;
        return NULL;
    }
    void *print = NULL;
    st = take_host(m, &print, t->name, (size_t)table->vocab * sizeof *table->stored.print);
    table->stored = (sheaf__stored_rows){ .name = t->name, .width = t->shape[1], .print = print };
    return st;
}

sheaf_status *sheaf__build_rope(sheaf__model *m, sheaf__rope_table *t, int64_t rot)
{
    t->positions = m->options.positions;
    t->rot = rot;
    float **const numbers[] = { &t->cos, &t->sin, &t->other_cos, &t->other_sin };
    const bool two = t == &m->rope && sheaf__rope_follows_length(&m->schema->config);
    sheaf_status *st = NULL;
    for (int i = 0; i < (two ? 4 : 2); i++)
        TRY(st, take_floats(numbers[i], m, "rotary table", t->positions * sheaf__rope_angles(t)));
    t->other_length = -1;
    return st;
}

/* ---- the pass ---- */

void sheaf__stage(const sheaf__pass *pass, sheaf__tape *tape, const char *stage, int layer,
                  int stream, sheaf__value *value)
{
    if (pass->stages != NULL && value != NULL)
        pass->stages->on_value(pass->stages->self, tape, stage, layer, stream, value);
}

/* ---- release ---- */

void sheaf__build_free(sheaf__model *m)
{
    for (int64_t i = 0; i < m->nblocks; i++)
        if (m->block[i].host)
            sheaf__host_free(m->context->device, m->block[i].at);
        else
            sheaf__free(m->context, m->block[i].at);
    for (int64_t i = 0; i < m->nowned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->module);
    free(m->block);
}

/* ---- by names ---- */

static sheaf_status *find(const sheaf_tensor **out, const sheaf__model *m, const char *prefix,
                          const char *name, const char *end)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s%s", prefix, name, end);
    return sheaf__build_find(out, m, whole);
}

sheaf_status *sheaf__named_linear(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *weight, const char *bias, int piece)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, prefix, weight, "");
    if (st == NULL && bias != NULL)
        st = find(&b, m, prefix, bias, "");
    return st == NULL ? sheaf__build_linear(m, l, w, b, piece) : st;
}

sheaf_status *sheaf__named_biased(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *name, int piece)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, prefix, name, ".weight");
    TRY(st, find(&b, m, prefix, name, ".bias"));
    return st == NULL ? sheaf__build_linear(m, l, w, b, piece) : st;
}

sheaf_status *sheaf__named_rmsnorm(sheaf__model *m, sheaf__norm *norm, const char *prefix,
                                   const char *name, double eps)
{
    const sheaf_tensor *w = NULL;
    sheaf_status *st = find(&w, m, prefix, name, ".weight");
    return st == NULL ? sheaf__build_norm(m, norm, w, eps, false) : st;
}

sheaf_status *sheaf__named_layernorm(sheaf__model *m, sheaf__layernorm *norm, const char *prefix,
                                     const char *name, double eps)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, prefix, name, ".weight");
    TRY(st, find(&b, m, prefix, name, ".bias"));
    return st == NULL ? sheaf__build_layernorm(m, norm, w, b, eps) : st;
}

sheaf_status *sheaf__named_vector(sheaf__model *m, sheaf__vector *v, const char *prefix,
                                  const char *name, int64_t width)
{
    const sheaf_tensor *t = NULL;
    sheaf_status *st = find(&t, m, prefix, name, "");
    return st == NULL ? sheaf__build_vector(m, v, t, width) : st;
}
