/* masters.c - float32 masters: do they round to the weights of the module, and those of stage 0.
 *
 * Stage 0 keeps the optimizer in the model's file, under `optimizer`. There parameters have
 * numbers, not names: group after group, in each group in the model's order. Around the optimizer
 * of a 16-bit model lies DeepSpeed's own (runtime/fp16/unfused_optimizer.py, fused_optimizer.py):
 *   fp32_groups          a list for each group, of masters in the parameters' shapes
 *   fp32_groups_flat     for each group its masters end to end; moments lie so too
 *   optimizer_state_dict torch's: {state: {number: {step, exp_avg, exp_avg_sq}}, param_groups}
 * The values give the masters their names: each is of the next tensor of the module that has its
 * shape and to which it rounds. Frozen parameters have none. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/no_memory.h"
#include "dialects/deepspeed/private.h"

/* ---- rounding ---- */

/* Could `master` have been rounded to `stored`? */
static bool rounds_to(float master, const void *stored, sheaf_dtype dtype)
{
    float w;
    uint16_t bits;
    if (dtype == SHEAF_F32)
        return memcmp(&master, stored, sizeof master) == 0;
    memcpy(&bits, stored, sizeof bits);
    int spacing; /* exponent of the distance to the neighbours */
    if (dtype == SHEAF_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        memcpy(&w, &wide, sizeof w);
        const int e = (bits >> 7) & 0xff;
        spacing = (e > 0 ? e : 1) - 127 - 7;
    } else {
        const int e = (bits >> 10) & 0x1f;
        if (e == 31)
            return true;
        w = ldexpf((float)((bits & 0x3ff) | (e > 0 ? 0x400 : 0)), (e > 0 ? e : 1) - 25) *
            (bits >> 15 ? -1.0f : 1.0f);
        spacing = (e > 0 ? e : 1) - 25;
    }
    if (!isfinite(w) || !isfinite(master))
        return true;
    return fabs((double)master - (double)w) <= ldexp(1, spacing - 1);
}

int sheaf__ds_sample(const sheaf_catalog *part, const sheaf_piece *p, int ndim,
                     const sheaf_piece *stored)
{
    enum { MOST = 16 };
    float master[MOST];
    unsigned char weight[MOST * 4];
    const int last = ndim > 0 ? ndim - 1 : 0;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(stored->dtype), n = ndim == 0 ? 1
                                                                         : p->size[last] < MOST
                                                                             ? p->size[last]
                                                                             : MOST;
    if (p->dtype != SHEAF_F32 ||
        (stored->dtype != SHEAF_F32 && stored->dtype != SHEAF_BF16 && stored->dtype != SHEAF_F16) ||
        (ndim > 0 && n > 1 && (stored->stride[last] != 1 || p->stride[last] != 1)))
        return -1;
    int64_t offset = stored->offset;
    for (int i = 0; i < ndim; i++)
        offset += p->begin[i] * stored->stride[i] * bytes;
    sheaf_status *st =
        sheaf__file_read_at(part->file[p->file].fd, master, (size_t)n * 4, p->offset, "masters");
    if (st == NULL)
        st = sheaf__file_read_at(part->file[stored->file].fd, weight, (size_t)(n * bytes), offset,
                                 "module");
    const bool failed = st != NULL;
    sheaf_status_free(st);
    if (failed)
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (!rounds_to(master[i], weight + i * bytes, stored->dtype))
            return 0;
    return 1;
}

/* ---- stage 0 ---- */

typedef struct plain {
    ds_reading *r;
    sheaf_catalog *part;
    const ds_file *f;
    int file;      /* its number in `part` */
    int64_t count; /* tensors of the module */
    bool *used;    /* which of them have a master */
    const sheaf_pickle *state;
} plain;

/* `at` elements into a flat tensor of a group, or the tensor itself (at -1): a piece of the shape
 * of `l`. False when it does not fit. */
static bool piece_at(sheaf_piece *out, const plain *x, const sheaf_pickle_tensor *t, int64_t at,
                     const sheaf_logical *l)
{
    const int64_t n = sheaf__elements(l->told.ndim, l->told.shape);
    if (t == NULL)
        return false;
    if (at < 0) {
        *out = sheaf__piece_of(x->file, x->f->mp, x->f->torch, t);
        return t->ndim == l->told.ndim &&
               memcmp(t->shape, l->told.shape, (size_t)t->ndim * sizeof *t->shape) == 0;
    }
    if (t->ndim != 1 || (t->shape[0] > 1 && t->stride[0] != 1) || n > t->shape[0] - at)
        return false;
    *out = sheaf__piece_dense(x->file, x->f->mp, t->dtype,
                              sheaf__torch_offset(x->f->torch, t) +
                                  at * (int64_t)sheaf_dtype_bytes(t->dtype),
                              l->told.ndim, l->told.shape);
    return true;
}

/* The first and the last row of a master round to what the module stores. */
static bool rounds(const plain *x, const sheaf_piece *master, const sheaf_logical *l)
{
    const int ndim = l->told.ndim;
    sheaf_piece last = *master;
    int64_t from[SHEAF_CATALOG_MAX_DIMS] = { 0 }, size[SHEAF_CATALOG_MAX_DIMS];
    memcpy(size, master->size, sizeof size);
    if (ndim > 1 && size[0] > 1) {
        from[0] = size[0] - 1;
        size[0] = 1;
        sheaf__piece_move(&last, master, ndim, from, size, from);
    }
    return sheaf__elements(ndim, l->told.shape) == 0 ||
           (sheaf__ds_sample(x->part, master, ndim, &l->piece[0]) != 0 &&
            sheaf__ds_sample(x->part, &last, ndim, &l->piece[0]) != 0);
}

/* The tensor from number `from` on whose master this is; -1: none. */
static int64_t next_of(sheaf_piece *out, const plain *x, int64_t from, const sheaf_pickle_tensor *t,
                       int64_t at)
{
    for (int64_t i = from; i < x->count; i++) {
        const sheaf_logical *l = &x->part->tensor[i];
        if (!x->used[i] && l->kind != SHEAF_BUFFER && l->npieces < 2 &&
            piece_at(out, x, t, at, l) && rounds(x, out, l))
            return i;
    }
    return -1;
}

/* Numbers ascend; a parameter that made no step has none. */
static const sheaf_pickle *state_of(const sheaf_pickle *state, int64_t id)
{
    int64_t key, n = sheaf__pickle_count(state);
    for (int64_t i = id < n ? id : n - 1; i >= 0; i--)
        if (sheaf__pickle_int(&key, sheaf__pickle_key(state, i)) && key <= id)
            return key == id ? sheaf__pickle_value(state, i) : NULL;
    return NULL;
}

/* The master in the place of the rounded weight, and the moments that lie as it does. */
static sheaf_status *take(plain *x, int64_t index, const sheaf_piece *master, int64_t id,
                          int64_t at)
{
    sheaf_logical *l = &x->part->tensor[index];
    x->used[index] = true;
    l->told.dtype = master->dtype;
    l->npieces = 0;
    sheaf_status *st = sheaf__catalog_piece(x->part, l, master);
    for (int k = 0; st == NULL && k < 2; k++) {
        char key[16], *name = NULL;
        snprintf(key, sizeof key, "%.*s", (int)strlen(sheaf__moment_words[k]) - 1,
                 sheaf__moment_words[k]);
        const sheaf_pickle_tensor *t =
            sheaf__pickle_tensor(x->f->torch->doc, sheaf__pickle_get(state_of(x->state, id), key));
        sheaf_piece p;
        sheaf_logical *moment;
        l = &x->part->tensor[index];
        if (!piece_at(&p, x, t, at, l))
            continue;
        if (asprintf(&name, "%s%s", sheaf__moment_words[k], l->told.name) < 0)
            return sheaf__no_memory(x->r->tag);
        st = sheaf__catalog_tensor(&moment, x->part, name, t->dtype, l->told.ndim, p.size);
        free(name);
        if (st != NULL)
            return st;
        moment->kind = SHEAF_MOMENT;
        st = sheaf__catalog_piece(x->part, moment, &p);
    }
    return st;
}

static sheaf_status *no_place(const plain *x, int64_t number, int64_t group)
{
    return sheaf__catalog_notef(x->r->catalog, SHEAF_DEFECT, "conflict", x->f->path, "",
                                "masters that round to the weights in `module`",
                                "copy this file again, from a save that finished",
                                "number %" PRId64 " of group %" PRId64 " is that of none of them",
                                number, group);
}

/* A group: a list of masters, or one flat tensor. *id: of its first parameter; then of the next
 * group's. */
static sheaf_status *take_group(plain *x, const sheaf_pickle *masters, int64_t group, int64_t *id)
{
    const sheaf_pickle_doc *doc = x->f->torch->doc;
    const sheaf_pickle_tensor *flat = sheaf__pickle_tensor(doc, masters);
    const int64_t n = sheaf__pickle_count(masters);
    sheaf_status *st = NULL;
    int64_t at = 0, from = 0;
    for (int64_t i = 0;
         st == NULL && (flat != NULL ? at < sheaf__elements(flat->ndim, flat->shape) : i < n);
         i++) {
        sheaf_piece master;
        const sheaf_pickle_tensor *t =
            flat != NULL ? flat : sheaf__pickle_tensor(doc, sheaf__pickle_item(masters, i));
        const int64_t index = next_of(&master, x, from, t, flat != NULL ? at : -1);
        if (index < 0)
            return no_place(x, i, group);
        st = take(x, index, &master, flat != NULL ? *id : *id + i, flat != NULL ? at : -1);
        at += sheaf__elements(x->part->tensor[index].told.ndim, x->part->tensor[index].told.shape);
        from = index + 1;
    }
    *id += flat != NULL ? 1 : n;
    return st;
}

sheaf_status *sheaf__ds_masters(bool *any, ds_reading *r, sheaf_catalog *part, const ds_file *f)
{
    const sheaf_pickle *root = f->torch->doc->root,
                       *groups = sheaf__pickle_path(root, "optimizer", "fp32_groups", NULL);
    plain x = { .r = r, .part = part, .f = f, .count = part->count };
    if (groups == NULL)
        groups = sheaf__pickle_path(root, "optimizer", "fp32_groups_flat", NULL);
    *any = sheaf__pickle_count(groups) > 0;
    if (!*any)
        return NULL;
    x.state = sheaf__pickle_path(root, "optimizer", "optimizer_state_dict", "state", NULL);
    x.used = calloc((size_t)x.count + 1, sizeof *x.used);
    sheaf_status *st =
        x.used == NULL ? sheaf__no_memory(r->tag) : sheaf__catalog_file(&x.file, part, f->path);
    int64_t id = 0;
    for (int64_t g = 0; st == NULL && g < sheaf__pickle_count(groups); g++)
        st = take_group(&x, sheaf__pickle_item(groups, g), g, &id);
    free(x.used);
    return st != NULL || f->mp > 0 ? st : sheaf__ds_tell_masters(r);
}

sheaf_status *sheaf__ds_tell_masters(ds_reading *r)
{
    return sheaf__catalog_note(
        r->catalog, SHEAF_NOTE, "inferred", r->tag, "", "",
        "weights are the float32 masters of the optimizer; `module` holds them rounded to the training dtype",
        "");
}
