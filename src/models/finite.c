/* finite.c - which of a model's tensors hold numbers that are not finite. */
#include "models/build.h"

#include <stddef.h>

/* Of one tensor that is trained. */
static bool is_sound(const sheaf__trained *t)
{
    bool sound = true;
    for (int s = t->first; s < t->first + t->count && sound; s++)
        sound = sheaf__is_finite(t->master[s], t->numel[s], SHEAF_F32);
    return sound;
}

static bool floats_are(const sheaf__trained *trained, const float *x, int64_t n)
{
    return trained != NULL ? is_sound(trained) : x == NULL || sheaf__is_finite(x, n, SHEAF_F32);
}

/* Panels are padded with zeros. */
static bool panels_are(const sheaf__linear *l)
{
    bool sound = l->weight_trained == NULL || is_sound(l->weight_trained);
    for (int s = l->first; s < l->first + l->count && sound && l->weight_trained == NULL; s++) {
        const sheaf__packed *w = &l->w[s];
        const size_t bytes = l->extent[s] == 0 ? 0 : sheaf__packed_bytes(w->dtype, w->n, w->k);
        sound =
            sheaf__is_finite(w->ahead, (int64_t)(bytes / sheaf_dtype_bytes(w->dtype)), w->dtype);
    }
    return sound;
}

static bool table_is(const sheaf__model *m, const sheaf__table *t)
{
    int64_t rows = 0;
    for (int64_t s = m->context->own.begin; s < m->context->own.end; s++)
        rows += sheaf_cut_slice_rows(&t->cut, (int)s);
    return t->trained != NULL ? is_sound(t->trained)
                              : sheaf__is_finite(t->rows, rows * t->width, t->dtype);
}

/* The name of the weight, or of the bias, that is not sound; NULL: both are. */
static const char *bad_in(const sheaf__model *m, const sheaf__held *held)
{
    const sheaf__linear *l = held->part;
    const sheaf__layernorm *n = held->part;
    const sheaf__norm *r = held->part;
    const sheaf__vector *v = held->part;
    const char *weight = held->weight->name, *bias = held->bias == NULL ? NULL : held->bias->name;
    switch (held->kind) {
    case SHEAF__LINEAR:
        if (!panels_are(l))
            return weight;
        return floats_are(l->bias_trained, l->bias, l->rows ? l->out : l->owned) ? NULL : bias;
    case SHEAF__LAYERNORM:
        if (!floats_are(n->weight_trained, n->weight, n->owned))
            return weight;
        return floats_are(n->bias_trained, n->bias, n->owned) ? NULL : bias;
    case SHEAF__RMSNORM: return floats_are(r->trained, r->weight, r->width) ? NULL : weight;
    case SHEAF__VECTOR: return floats_are(v->trained, v->data, v->rows * v->width) ? NULL : weight;
    case SHEAF__TABLE: return table_is(m, held->part) ? NULL : weight;
    }
    return NULL;
}

/* Of LoRA module i; those that are not trained are looked at where they are computed with. */
static const char *bad_factor(const sheaf__model *m, int i)
{
    const sheaf__factors *f = &m->lora[i];
    const sheaf_lora_module *module = &m->options.lora->module[i];
    if (f->a != NULL)
        return !is_sound(f->a) ? module->a_name : !is_sound(f->b) ? module->b_name : NULL;
    for (int p = 0; p < f->parts; p++)
        for (int s = 0; s < SHEAF_MAX_SLICES; s++) {
            const sheaf__lora_part *part = &f->part[p];
            const sheaf_dtype dtype = m->context->dtype;
            if (part->a_copy[s] != NULL &&
                !sheaf__is_finite(part->a_copy[s], part->a_numel[s], dtype))
                return module->a_name;
            if (part->b_copy[s] != NULL &&
                !sheaf__is_finite(part->b_copy[s], part->b_numel[s], dtype))
                return module->b_name;
        }
    return NULL;
}

sheaf_status *sheaf__model_bad_weight(const char **name, const sheaf__model *m)
{
    const sheaf__context *c = m->context;
    const int modules = m->options.lora == NULL ? 0 : m->options.lora->nmodules,
              all = m->nheld + modules;
    int at = 0;
    *name = NULL;
    if (c->device->kind == SHEAF_DRY)
        return NULL;
    for (; at < all && *name == NULL; at += *name == NULL)
        *name = at < m->nheld ? bad_in(m, &m->held[at]) : bad_factor(m, at - m->nheld);
    float first = -(float)at;
    sheaf_status *st = c->comm == NULL ? NULL : sheaf_comm_max(c->comm, &first, 1);
    const int least = (int)-first;
    if (st == NULL && least < at) /* another rank's: its weight stands for a bias too */
        *name = least < m->nheld ? m->held[least].weight->name
                                 : m->options.lora->module[least - m->nheld].a_name;
    return st;
}
