/* finite.c - which of a model's tensors hold numbers that are not finite. */
#include "base/base.h"
#include "models/build.h"

#include "ops/offload.h"
#include "tape/rows.h"
#include "tape/transfer.h"

static bool is_finite(const sheaf__context *c, const void *x, sheaf_dtype dtype, int64_t n)
{
    return sheaf__op_is_finite(c->device, x, dtype, n, dtype);
}

/* Is a trained tensor finite, as far as this rank has its masters? NULL: not trained. */
static bool is_sound(const sheaf__context *c, const sheaf__trained *t)
{
    bool sound = true;
    for (int s = 0; t != NULL && s < t->count && sound; s++)
        sound = sheaf__op_is_finite(c->device, t->master[t->first + s], SHEAF_F32,
                                    t->numel[t->first + s], c->dtype);
    return sound;
}

/* Checks trained tensors in their compute copies too. */
static bool floats_are(const sheaf__context *c, const sheaf__trained *t, const float *x, int64_t n)
{
    return is_sound(c, t) && is_finite(c, x, SHEAF_F32, n);
}

/* Panels are padded with zeros; compressed ones are finite by construction, those of codes were
 * checked when they were loaded. */
static bool is_packed_well(const sheaf__context *c, const sheaf__packed *w)
{
    if (w->code != NULL || w->quantised)
        return true;
    const size_t bytes = sheaf__packed_size(w);
    return is_finite(c, w->ahead, w->dtype, (int64_t)(bytes / sheaf_dtype_bytes(w->dtype)));
}

static bool panels_are(const sheaf__context *c, const sheaf__linear *l)
{
    bool sound = is_sound(c, l->weight_trained) && is_packed_well(c, &l->all);
    for (int s = l->first; l->rows && s < l->first + l->count && sound; s++)
        sound = is_packed_well(c, &l->w[s]);
    return sound;
}

/* A failure is the device's, which the caller checks. */
static bool away_is(const sheaf__model *m, sheaf__linear *l)
{
    void *at;
    sheaf_status *st = sheaf__offload_fetch(&at, m->away, l->away.block);
    sheaf__device_fail(m->context->device, st);
    if (st != NULL)
        return true;
    l->away.place(&l->away, at);
    const bool sound = panels_are(m->context, l);
    l->away.place(&l->away, NULL);
    return sound;
}

static bool table_is(const sheaf__model *m, const sheaf__table *t)
{
    int64_t rows = 0;
    for (int64_t s = m->context->own.begin; s < m->context->own.end; s++)
        rows += sheaf_cut_slice_rows(&t->cut, (int)s);
    return is_sound(m->context, t->trained) && (t->stored.print == NULL || t->stored.finite) &&
           is_finite(m->context, t->rows, m->context->dtype, rows * t->width);
}

/* The part of a module that is not finite: its weight (or A), bias (or B) or DoRA's magnitudes. */
typedef enum unsound { NEITHER, WEIGHT, BIAS, MAGNITUDES, PARTS = MAGNITUDES } unsound;

static unsound unsound_of(bool weight, bool bias)
{
    return !weight ? WEIGHT : !bias ? BIAS : NEITHER;
}

static unsound bad_in(const sheaf__model *m, const sheaf__module *module)
{
    const sheaf__context *c = m->context;
    const sheaf__linear *l = module->part;
    const sheaf__layernorm *n = module->part;
    const sheaf__norm *r = module->part;
    const sheaf__vector *v = module->part;
    switch (module->kind) {
    case SHEAF__LINEAR:
        return unsound_of(l->away.place == NULL ? panels_are(c, l) : away_is(m, module->part),
                          floats_are(c, l->bias_trained, l->bias, l->rows ? l->out : l->owned));
    case SHEAF__LAYERNORM:
        return unsound_of(floats_are(c, n->weight_trained, n->weight, n->owned),
                          floats_are(c, n->bias_trained, n->bias, n->owned));
    case SHEAF__RMSNORM: return unsound_of(floats_are(c, r->trained, r->weight, r->width), true);
    case SHEAF__VECTOR:
        return unsound_of(floats_are(c, v->trained, v->data, v->rows * v->width), true);
    case SHEAF__TABLE: return unsound_of(table_is(m, module->part), true);
    }
    return NEITHER;
}

/* Checks a LoRA module; factors that are not trained in their compute copies. */
static unsound bad_factor(const sheaf__model *m, const sheaf__factors *f)
{
    const sheaf__context *c = m->context;
    bool a = is_sound(c, f->a), b = is_sound(c, f->b), magnitudes = is_sound(c, f->m);
    for (int p = 0; f->a == NULL && p < f->parts; p++)
        for (int s = 0; s < SHEAF_MAX_SLICES; s++) {
            const sheaf__lora_part *part = &f->part[p];
            a = a && is_finite(c, part->a_copy[s], c->dtype, part->a_numel[s]);
            b = b && is_finite(c, part->b_copy[s], c->dtype, part->b_numel[s]);
            magnitudes = magnitudes &&
                         is_finite(c, part->m_copy[s], SHEAF_F32, part->b_numel[s] / part->rank);
        }
    return a && b && !magnitudes ? MAGNITUDES : unsound_of(a, b);
}

/* The model's own copy of the name, from any stage. */
static const char *known_name(const sheaf__model *m, const char *name)
{
    const sheaf_tensor *t = sheaf_schema_find(m->schema, name);
    const sheaf_lora *lora = m->options.lora;
    for (int64_t i = 0; t == NULL && lora != NULL && i < lora->nmodules; i++) {
        if (strcmp(lora->module[i].a_name, name) == 0)
            return lora->module[i].a_name;
        if (strcmp(lora->module[i].b_name, name) == 0)
            return lora->module[i].b_name;
        if (lora->module[i].m_name != NULL && strcmp(lora->module[i].m_name, name) == 0)
            return lora->module[i].m_name;
    }
    return t == NULL ? NULL : t->name;
}

/* *name: of this rank's stage; that of the first stage that has one. */
static sheaf_status *of_all_stages(const char **name, const sheaf__model *m)
{
    sheaf__context *c = m->context;
    char text[256] = "";
    float first = *name != NULL ? -(float)c->stage : -(float)c->stages;
    sheaf_status *st = sheaf_comm_max(c->world, &first, 1);
    if (st != NULL || first == -(float)c->stages)
        return st;
    if (*name != NULL)
        snprintf(text, sizeof text, "%s", *name);
    st = sheaf__transfer(c, text, sizeof text, (int)-first);
    *name = known_name(m, text);
    return st;
}

sheaf_status *sheaf__model_bad_weight(const char **name, const sheaf__model *m)
{
    const sheaf__context *c = m->context;
    const int modules = m->options.lora == NULL ? 0 : m->options.lora->nmodules,
              all = m->nmodules + modules;
    unsound what = NEITHER;
    int at = 0;
    *name = NULL;
    for (; at < all; at++) {
        what = at < m->nmodules ? bad_in(m, &m->module[at])
                                : bad_factor(m, &m->lora[at - m->nmodules]);
        if (what != NEITHER)
            break;
    }
    /* the least of all ranks' */
    float first = -(float)(PARTS * at + (what == NEITHER ? 0 : what - WEIGHT));
    sheaf_status *st = sheaf__device_check(c->device);
    if (c->comm != NULL)
        TRY(st, sheaf_comm_max(c->comm, &first, 1));
    what = (unsound)((int)-first % PARTS + WEIGHT);
    at = (int)-first / PARTS;
    if (st == NULL && at < m->nmodules)
        *name = what == BIAS ? m->module[at].bias->name : m->module[at].weight->name;
    else if (st == NULL && at < all) {
        const sheaf_lora_module *of = &m->options.lora->module[at - m->nmodules];
        *name = what == WEIGHT ? of->a_name : what == BIAS ? of->b_name : of->m_name;
    }
    return st == NULL && c->stages > 1 ? of_all_stages(name, m) : st;
}
