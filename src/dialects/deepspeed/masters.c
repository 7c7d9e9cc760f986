/* masters.c - float32 masters: comparison with the module's weights, and the optimizer of stage 0.
 *
 * Stage 0 keeps the optimizer in the model's file, under `optimizer`. There parameters have
 * numbers, not names: group after group, in each group in the model's order. Around the optimizer
 * of a 16-bit model lies DeepSpeed's own (runtime/fp16/unfused_optimizer.py, fused_optimizer.py):
 *   fp32_groups          a list for each group, of masters in the parameters' shapes
 *   fp32_groups_flat     for each group its masters end to end; moments lie so too
 *   optimizer_state_dict torch's: {state: {number: {step, exp_avg, exp_avg_sq}}, param_groups}
 * A float32 model has only that optimizer, and no masters. Parameters are named by values and
 * shapes: each is the next tensor of the module with its shape to which its master rounds. Frozen
 * ones have no number, so a name is certain only if counting from the end gives the same one: norms
 * that are still 1 match each other. */
#include <math.h>

#include "base/base.h"
#include "base/file.h"
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
    int spacing; /* exponent of the spacing of floats */
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
    TRY(st, sheaf__file_read_at(part->file[stored->file].fd, weight, (size_t)(n * bytes), offset,
                                "module"));
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
    int file;                    /* its number in `part` */
    int64_t count;               /* tensors of the module */
    bool *used;                  /* marks those with a master */
    const sheaf_pickle *masters; /* for each group; NULL: the module is float32 */
    const sheaf_pickle *state;
} plain;

/* A group of consecutively numbered parameters. */
typedef struct group {
    const sheaf_pickle *list;        /* of masters in their shapes, or */
    const sheaf_pickle_tensor *flat; /* of them all end to end; NULL both: no masters */
    int64_t id, n;                   /* the first number, how many there are */
    int64_t *tensor, *at;            /* of each: which it is, elements into `flat` or -1 */
    int64_t found;
    bool done;
} group;

static const sheaf_pickle *state_of(const sheaf_pickle *state, int64_t id)
{
    int64_t key, n = sheaf__pickle_count(state);
    for (int64_t i = id < n ? id : n - 1; i >= 0; i--) /* ascending; unused ones are absent */
        if (sheaf__pickle_int(&key, sheaf__pickle_key(state, i)) && key <= id)
            return key == id ? sheaf__pickle_value(state, i) : NULL;
    return NULL;
}

/* exp_avg (k = 0) or exp_avg_sq of parameter `id`; NULL: it has none. */
static const sheaf_pickle_tensor *moment_of(const plain *x, int64_t id, int k)
{
    char key[16];
    snprintf(key, sizeof key, "%.*s", (int)strlen(sheaf__moment_words[k]) - 1,
             sheaf__moment_words[k]);
    return sheaf__pickle_tensor(x->f->torch->doc, sheaf__pickle_get(state_of(x->state, id), key));
}

/* `at` elements into a flat tensor of a group, or the tensor itself (at -1): a piece of the shape
 * of `l`. False when it does not fit. */
static bool piece_at(sheaf_piece *out, const plain *x, const sheaf_pickle_tensor *t, int64_t at,
                     const sheaf_logical *l)
{
    const int64_t n = sheaf__elements(l->entry.ndim, l->entry.shape);
    if (t == NULL)
        return false;
    if (at < 0) {
        *out = sheaf__piece_of(x->file, x->f->mp, x->f->torch, t);
        return sheaf__same_shape(t->ndim, t->shape, l->entry.ndim, l->entry.shape);
    }
    if (t->ndim != 1 || (t->shape[0] > 1 && t->stride[0] != 1) || n > t->shape[0] - at)
        return false;
    *out = sheaf__piece_dense(x->file, x->f->mp, t->dtype,
                              sheaf__torch_offset(x->f->torch, t) +
                                  at * (int64_t)sheaf_dtype_bytes(t->dtype),
                              l->entry.ndim, l->entry.shape);
    return true;
}

/* The first and the last row of a master round to what the module stores. */
static bool rounds(const plain *x, const sheaf_piece *master, const sheaf_logical *l)
{
    const int ndim = l->entry.ndim;
    sheaf_piece last = *master;
    int64_t from[SHEAF_CATALOG_MAX_DIMS] = { 0 }, size[SHEAF_CATALOG_MAX_DIMS];
    memcpy(size, master->size, sizeof size);
    if (ndim > 1 && size[0] > 1) {
        from[0] = size[0] - 1;
        size[0] = 1;
        sheaf__piece_move(&last, master, ndim, from, size, from);
    }
    return sheaf__elements(ndim, l->entry.shape) == 0 ||
           (sheaf__ds_sample(x->part, master, ndim, &l->piece[0]) != 0 &&
            sheaf__ds_sample(x->part, &last, ndim, &l->piece[0]) != 0);
}

/* Parameter i of a group as tensor `l`: its master, or of a float32 model its moment, in *piece. */
static bool fits(sheaf_piece *piece, const plain *x, const group *g, int64_t i, int64_t at,
                 const sheaf_logical *l)
{
    const sheaf_pickle_tensor *t =
        g->flat != NULL   ? g->flat
        : g->list != NULL ? sheaf__pickle_tensor(x->f->torch->doc, sheaf__pickle_item(g->list, i))
                          : moment_of(x, g->id + i, 0);
    return piece_at(piece, x, t, at, l) && (x->masters == NULL || rounds(x, piece, l));
}

/* Assigns tensors to a group's parameters from the first one on, or `back` from the last: *found of
 * them. False: no tensor for the next one. */
static bool seek(int64_t *tensor, int64_t *place, int64_t *found, const plain *x, const group *g,
                 bool back)
{
    const int64_t total = g->flat != NULL ? sheaf__elements(g->flat->ndim, g->flat->shape) : g->n;
    int64_t left = total, n = 0;
    for (int64_t k = 0; k < x->count && left > 0; k++) {
        const int64_t j = back ? x->count - 1 - k : k;
        const sheaf_logical *l = &x->part->tensor[j];
        const int64_t size = g->flat != NULL ? sheaf__elements(l->entry.ndim, l->entry.shape) : 1;
        const int64_t from = back ? left - size : total - left;
        sheaf_piece piece;
        if (x->used[j] || l->kind == SHEAF_BUFFER || l->npieces > 1 || size < 1 || size > left ||
            !fits(&piece, x, g, from, g->flat != NULL ? from : -1, l))
            continue;
        tensor[n] = j;
        place[n++] = g->flat != NULL ? from : -1;
        left -= size;
    }
    *found = n;
    return left == 0;
}

/* Keeps the tensors of a group that counting from both ends agrees on; -1 for others. A group
 * without others is settled, and its tensors are excluded for other groups. */
static sheaf_status *settle(plain *x, group *g, int64_t number)
{
    int64_t n = 0, sure = 0;
    if (!seek(g->tensor, g->at, &g->found, x, g, false))
        return x->masters == NULL ? NULL
                                  : sheaf__defect(x->r->c, "conflict", x->f->path, "",
                                                  "masters that round to the weights in 'module'",
                                                  "copy this file again, from a save that finished",
                                                  "number %" PRId64 " of group %" PRId64
                                                  " is that of none of them",
                                                  g->found, number);
    int64_t *back = malloc(2 * (size_t)x->count * sizeof *back);
    if (back == NULL)
        return sheaf__no_memory(x->r->tag);
    const bool all = seek(back, back + x->count, &n, x, g, true) && n == g->found;
    for (int64_t i = 0; i < g->found; i++) {
        const int64_t k = g->found - 1 - i;
        const bool same = all && back[k] == g->tensor[i] && back[x->count + k] == g->at[i];
        sure += same;
        if (!same)
            g->tensor[i] = -1;
    }
    free(back);
    g->done = g->found > 0 && sure == g->found;
    for (int64_t i = 0; g->done && i < g->found; i++)
        x->used[g->tensor[i]] = true;
    return NULL;
}

static sheaf_status *settle_all(plain *x, group *g, int64_t n)
{
    sheaf_status *st = NULL;
    for (bool more = true; st == NULL && more;) { /* settling one group may settle another */
        more = false;
        for (int64_t i = 0; st == NULL && i < n; i++)
            if (!g[i].done) {
                st = settle(x, &g[i], i);
                more = more || g[i].done;
            }
    }
    return st;
}

/* Replaces the rounded weight by the master, and adds the moments in the same layout. */
static sheaf_status *take(plain *x, const group *g, int64_t i)
{
    const int64_t index = g->tensor[i], at = g->at[i];
    sheaf_logical *l = &x->part->tensor[index];
    sheaf_piece p;
    sheaf_status *st = NULL;
    if (x->masters != NULL && fits(&p, x, g, i, at, l)) {
        l->entry.dtype = p.dtype;
        l->npieces = 0;
        st = sheaf__catalog_piece(x->part, l, &p);
    }
    for (int k = 0; st == NULL && k < 2; k++) {
        char *name = NULL;
        const sheaf_pickle_tensor *t = moment_of(x, g->flat != NULL ? g->id : g->id + i, k);
        sheaf_logical *moment;
        l = &x->part->tensor[index];
        if (!piece_at(&p, x, t, at, l))
            continue;
        if (asprintf(&name, "%s%s", sheaf__moment_words[k], l->entry.name) < 0)
            return sheaf__no_memory(x->r->tag);
        st = sheaf__catalog_tensor(&moment, x->part, name, t->dtype, l->entry.ndim, p.size);
        free(name);
        if (st != NULL)
            return st;
        moment->kind = SHEAF_MOMENT;
        st = sheaf__catalog_piece(x->part, moment, &p);
    }
    return st;
}

static sheaf_status *take_all(plain *x, const group *g, int64_t n)
{
    sheaf_catalog *c = x->r->c;
    sheaf_status *st = NULL;
    int64_t unsure = 0;
    for (int64_t k = 0; k < n; k++) {
        unsure += g[k].found == 0;
        for (int64_t i = 0; i < g[k].found; i++)
            unsure += g[k].tensor[i] < 0;
    }
    const bool none = unsure > 0 && x->masters == NULL;
    for (int64_t k = 0; st == NULL && !none && k < n; k++)
        for (int64_t i = 0; st == NULL && i < g[k].found; i++)
            if (g[k].tensor[i] >= 0)
                st = take(x, &g[k], i);
    if (st != NULL || x->f->mp > 0)
        return st; /* one note, for rank 0 */
    if (none)
        return sheaf__note(
            c, "unsupported", x->f->path, "",
            "numbers that fit one parameter each, by order and shape", "",
            "an optimizer state whose numbers fit several parameters; its moments are not read");
    if (x->masters == NULL)
        return sheaf__note(
            c, "inferred", x->f->path, "", "", "",
            "the names of the moments, from the order and the shapes of the parameters");
    st = sheaf__ds_report_masters(x->r);
    return st != NULL || unsure == 0
               ? st
               : sheaf__warning(
                     c, "inferred", x->f->path, "", "masters that round to one weight each", "",
                     "%" PRId64
                     " that fit several, frozen ones or those of another group; these have the rounded values of 'module', and no moments",
                     unsure);
}

sheaf_status *sheaf__ds_plain(ds_reading *r, sheaf_catalog *part, const ds_file *f)
{
    const sheaf_pickle *optimizer = sheaf__pickle_get(f->torch->doc->root, "optimizer");
    plain x = { .r = r, .part = part, .f = f, .count = part->count };
    if ((x.masters = sheaf__pickle_get(optimizer, "fp32_groups")) == NULL)
        x.masters = sheaf__pickle_get(optimizer, "fp32_groups_flat");
    if (x.masters != NULL)
        optimizer = sheaf__pickle_get(optimizer, "optimizer_state_dict");
    const sheaf_pickle *groups = sheaf__pickle_get(optimizer, "param_groups");
    const int64_t n = sheaf__pickle_count(x.masters != NULL ? x.masters : groups);
    x.state = sheaf__pickle_get(optimizer, "state");
    if (n == 0 || (x.masters == NULL && sheaf__pickle_count(x.state) == 0))
        return NULL;
    group *g = calloc((size_t)n, sizeof *g);
    int64_t id = 0, *room = calloc(2 * (size_t)n, (size_t)(x.count + 1) * sizeof *room);
    x.used = calloc((size_t)x.count + 1, sizeof *x.used);
    sheaf_status *st = x.used == NULL || g == NULL || room == NULL
                           ? sheaf__no_memory(r->tag)
                           : sheaf__catalog_file(&x.file, part, f->path, &f->torch->mark);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const sheaf_pickle *list = sheaf__pickle_item(x.masters, i);
        g[i].flat = sheaf__pickle_tensor(f->torch->doc, list);
        g[i].list = g[i].flat == NULL ? list : NULL;
        g[i].n =
            g[i].flat != NULL ? 1
            : x.masters != NULL
                ? sheaf__pickle_count(list)
                : sheaf__pickle_count(sheaf__pickle_get(sheaf__pickle_item(groups, i), "params"));
        g[i].id = id;
        g[i].tensor = &room[2 * i * (x.count + 1)];
        g[i].at = g[i].tensor + x.count + 1;
        id += g[i].n;
    }
    TRY(st, settle_all(&x, g, n));
    TRY(st, take_all(&x, g, n));
    free(room);
    free(g);
    free(x.used);
    return st;
}

sheaf_status *sheaf__ds_report_masters(ds_reading *r)
{
    return sheaf__note(
        r->c, "inferred", r->tag, "", "", "",
        "weights are the float32 masters of the optimizer; 'module' holds them rounded to the training dtype");
}
