/* zero.c - assembles one tensor-parallel rank from its data-parallel parts.
 *
 * Stages 1 and 2: per group of param_shapes, the flat tensors of all data-parallel parts are one
 * stream, in which the parameters lie one after the other; what follows the last one is padding, up
 * to a multiple of 2 * parts, and may be absent. Stage 3: each part has one stream, its flat groups
 * one after the other; parameter after parameter has ceil(elements / parts) elements in each.
 * Moments lie in streams of the same form. Source: DeepSpeed, utils/zero_to_fp32.py. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/deepspeed/private.h"

ds_file *sheaf__ds_file_of(const ds_reading *r, ds_what what, int mp, int dp)
{
    for (int64_t i = 0; i < r->nfiles; i++)
        if (r->file[i].what == what && r->file[i].mp == mp && r->file[i].dp == dp)
            return &r->file[i];
    return NULL;
}

const sheaf_pickle *sheaf__ds_root(const ds_file *f)
{
    return f == NULL || f->torch == NULL ? NULL : f->torch->doc->root;
}

const sheaf_pickle_tensor *sheaf__ds_tensor(const char **name, const ds_file *f,
                                            const sheaf_pickle *dict, int64_t i)
{
    *name = sheaf__pickle_text(sheaf__pickle_key(dict, i));
    return sheaf__pickle_tensor(f->torch->doc, sheaf__pickle_value(dict, i));
}

sheaf_status *sheaf__ds_param(ds_param *out, const ds_file *f, const sheaf_pickle *shapes,
                              int64_t i)
{
    *out = (ds_param){ .name = sheaf__pickle_text(sheaf__pickle_key(shapes, i)), .elements = 1 };
    bool good = out->name != NULL &&
                sheaf__pickle_shape(&out->ndim, out->shape, sheaf__pickle_value(shapes, i));
    for (int k = 0; good && k < out->ndim; k++)
        good = !__builtin_mul_overflow(out->elements, out->shape[k], &out->elements) &&
               out->elements < INT64_MAX / 64;
    return good
               ? NULL
               : sheaf_fail(SHEAF_E_FORMAT, "%s: shapes of parameters, entry %" PRId64, f->path, i);
}

const sheaf_pickle *sheaf__ds_group(const sheaf_pickle *groups, int64_t g)
{
    return sheaf__pickle_is(groups, SHEAF_PICKLE_LIST) ? sheaf__pickle_item(groups, g)
           : g == 0                                    ? groups
                                                       : NULL;
}

sheaf_status *sheaf__ds_range(sheaf_catalog *c, sheaf_logical *t, const sheaf_piece *first,
                              int64_t begin, int64_t end)
{
    sheaf_piece box[SHEAF_RANGE_BOXES];
    const int n = sheaf__range_boxes(box, first, t->entry.ndim, t->entry.shape, begin, end);
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < n; i++)
        st = sheaf__catalog_piece(c, t, &box[i]);
    return st;
}

char *sheaf__ds_state_name(int kind, const char *name)
{
    char *full = NULL;
    return asprintf(&full, "%s%s", kind > 0 ? sheaf__moment_words[kind - 1] : "", name) < 0 ? NULL
                                                                                            : full;
}

/* ---- streams ---- */

typedef struct segment {
    int file;
    sheaf_dtype dtype;
    int64_t offset, count;
} segment; /* file -1: not here */
typedef struct stream {
    int n;
    segment *at;
    int64_t count;
    sheaf_dtype dtype;
} stream;

/* One data-parallel part. */
typedef struct share {
    const ds_file *f; /* NULL: missing or damaged */
    int file;         /* its number in `part` of the rank */
    int64_t lost;     /* tensors in a missing part; two of them, for its finding */
    char first[256], last[256];
} share;

typedef struct zero {
    ds_reading *r;
    sheaf_catalog *part;
    int mp, stage;
    const ds_file *model;
    share *share; /* r->dp */
} zero;

static const sheaf_pickle *group_state(const sheaf_pickle *states, int64_t group)
{
    const sheaf_pickle *state = sheaf__pickle_get(states, "state");
    for (int64_t i = 0, key; i < sheaf__pickle_count(state); i++)
        if (sheaf__pickle_int(&key, sheaf__pickle_key(state, i)) && key == group)
            return sheaf__pickle_value(state, i);
    return sheaf__pickle_item(state != NULL ? state : states, group); /* older: a list of groups */
}

/* The flat tensor of `kind` (0 masters, 1 exp_avg, 2 exp_avg_sq) of a group; NULL when there is
 * none. */
static const sheaf_pickle_tensor *flat_of(const ds_file *f, int stage, int kind, int64_t group)
{
    const sheaf_pickle *state = sheaf__pickle_get(f->torch->doc->root, "optimizer_state_dict");
    const sheaf_pickle *flat;
    if (kind == 0) {
        flat = sheaf__pickle_get(state, stage == 3 ? "fp32_flat_groups"
                                                   : "single_partition_of_fp32_groups");
        if (!sheaf__pickle_is(flat, SHEAF_PICKLE_TENSOR))
            flat = sheaf__pickle_item(flat, group);
        else if (group > 0)
            flat = NULL;
    } else {
        state =
            sheaf__pickle_get(state, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
        flat = sheaf__pickle_get(group_state(state, group), kind == 1 ? "exp_avg" : "exp_avg_sq");
    }
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(f->torch->doc, flat);
    return t == NULL || t->ndim != 1 || (t->shape[0] > 1 && t->stride[0] != 1) ? NULL : t;
}

static segment segment_of(const zero *z, int d, int kind, int64_t group)
{
    const share *x = &z->share[d];
    const sheaf_pickle_tensor *t = x->f == NULL ? NULL : flat_of(x->f, z->stage, kind, group);
    if (t == NULL)
        return (segment){ .file = -1 };
    return (segment){ x->file, t->dtype, sheaf__torch_offset(x->f->torch, t), t->shape[0] };
}

static void add_lost(share *x, const char *name)
{
    if (x->lost++ == 0)
        snprintf(x->first, sizeof x->first, "%s", name);
    snprintf(x->last, sizeof x->last, "%s", name);
}

/* Elements [first, first + count) of the tensor lie in the stream from `at` on. `kind` 0 reports
 * losses. */
static sheaf_status *add_range(zero *z, sheaf_logical *t, const stream *s, int64_t at,
                               int64_t first, int64_t count, bool report)
{
    int64_t begin = 0;
    for (int i = 0; i < s->n; begin += s->at[i++].count) {
        const segment *g = &s->at[i];
        const int64_t from = at > begin ? at : begin, end = begin + g->count,
                      to = at + count < end ? at + count : end;
        if (from >= to)
            continue;
        if (g->file < 0) {
            if (report)
                add_lost(&z->share[i], t->entry.name);
            continue;
        }
        const sheaf_piece start = {
            .file = g->file,
            .rank = z->mp,
            .dtype = g->dtype,
            .offset = g->offset + (from - begin) * (int64_t)sheaf_dtype_bytes(g->dtype)
        };
        sheaf_status *st = sheaf__ds_range(z->part, t, &start, first + from - at, first + to - at);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static sheaf_status *add_tensor(sheaf_logical **out, zero *z, int kind, const ds_param *p,
                                sheaf_dtype dtype)
{
    char *full = sheaf__ds_state_name(kind, p->name);
    if (full == NULL)
        return sheaf__no_memory(z->r->tag);
    sheaf_status *st = sheaf__catalog_tensor(out, z->part, full, dtype, p->ndim, p->shape);
    free(full);
    if (st == NULL)
        (*out)->kind = kind > 0 ? SHEAF_MOMENT : SHEAF_WEIGHT;
    return st;
}

/* ---- stages 1 and 2 ---- */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static sheaf_status *group_elements(int64_t *total, const zero *z, const sheaf_pickle *shapes)
{
    sheaf_status *st = NULL;
    *total = 0;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(shapes); i++) {
        ds_param p;
        st = sheaf__ds_param(&p, z->model, shapes, i);
        if (st == NULL && (!sheaf__ds_add(total, p.elements) || *total > INT64_MAX / 4))
            st = sheaf_fail(SHEAF_E_FORMAT, "param_shapes");
    }
    return st;
}

/* The stream of a group. Missing parts get the size that they must have had. */
static sheaf_status *group_stream(stream *s, zero *z, int kind, int64_t group, int64_t total)
{
    const int dp = z->r->dp;
    const int64_t align = 2 * (int64_t)dp, even = round_up(total, align) / dp;
    int missing = 0;
    int64_t have = 0, size = even;
    s->n = dp;
    s->dtype = SHEAF_F32;
    for (int d = 0; d < dp; d++) {
        s->at[d] = segment_of(z, d, kind, group);
        missing += s->at[d].file < 0;
        s->dtype = s->at[d].file < 0 ? s->dtype : s->at[d].dtype;
        if (s->at[d].file >= 0 && d + 1 < dp && s->at[d].count > 0 &&
            (size == even || s->at[d].count > size))
            size = s->at[d].count;
    }
    for (int d = 0; d < dp; d++) {
        if (s->at[d].file < 0) {
            const int64_t left = total - have;
            s->at[d].count = left < 0 ? 0 : left < size ? left : size;
        }
        have += s->at[d].count;
    }
    s->count = have;
    if (missing == dp && kind > 0)
        s->n = 0;
    else if (missing == 0 && round_up(have, align) != round_up(total, align))
        return sheaf__defect(z->r->c, "conflict", z->share[0].f->path, "",
                             "as many elements as param_shapes of the model's file say", "",
                             "%" PRId64 " elements in group %" PRId64 " of %d parts for %" PRId64,
                             have, group, dp, total);
    return NULL;
}

static sheaf_status *read_group(zero *z, const sheaf_pickle *shapes, int64_t group, int kind,
                                stream *s)
{
    int64_t total, at = 0;
    sheaf_status *st = group_elements(&total, z, shapes);
    TRY(st, group_stream(s, z, kind, group, total));
    for (int64_t i = 0; st == NULL && s->n > 0 && i < sheaf__pickle_count(shapes); i++) {
        ds_param p;
        sheaf_logical *t;
        st = sheaf__ds_param(&p, z->model, shapes, i);
        TRY(st, add_tensor(&t, z, kind, &p, s->dtype));
        TRY(st, t->npieces == 0 ? add_range(z, t, s, at, 0, p.elements, kind == 0) : NULL);
        at += p.elements;
    }
    return st;
}

/* ---- stage 3 ---- */

/* The stream of part d, all its groups. */
static sheaf_status *part_stream(stream *s, zero *z, int kind, int d)
{
    enum { MOST = 4096 };
    *s = (stream){ 0 };
    s->at = calloc(MOST, sizeof *s->at);
    if (s->at == NULL)
        return sheaf__no_memory(z->r->tag);
    for (int64_t g = 0; g < MOST; g++) {
        const segment next = segment_of(z, d, kind, g);
        if (next.file < 0)
            break;
        s->at[s->n++] = next;
        s->count += next.count;
    }
    s->dtype = s->n > 0 ? s->at[0].dtype : SHEAF_F32;
    return NULL;
}

static sheaf_status *read_sharded(zero *z, int kind, int d, const stream *s,
                                  const sheaf_pickle *groups)
{
    const int dp = z->r->dp;
    int64_t at = 0;
    const sheaf_pickle *shapes;
    sheaf_status *st = NULL;
    for (int64_t g = 0; (shapes = sheaf__ds_group(groups, g)) != NULL; g++)
        for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(shapes); i++) {
            ds_param p;
            sheaf_logical *t;
            st = sheaf__ds_param(&p, z->model, shapes, i);
            TRY(st, add_tensor(&t, z, kind, &p, s->dtype));
            if (st != NULL)
                return st;
            const int64_t each = (p.elements + dp - 1) / dp, first = d * each,
                          count = p.elements - first < each ? p.elements - first : each;
            if (count > 0 && s->n == 0 && kind == 0)
                add_lost(&z->share[d], p.name);
            if (count > 0 && s->n > 0)
                st = add_range(z, t, s, at, first, count, false);
            if (st == NULL && (!sheaf__ds_add(&at, each) || at > INT64_MAX / 4))
                st = sheaf_fail(SHEAF_E_FORMAT, "param_shapes");
        }
    if (st != NULL)
        return st;
    if (s->n == 0 || at == s->count)
        return NULL;
    return sheaf__defect(z->r->c, "conflict", z->share[d].f->path, "",
                         "as many elements as param_shapes of the model's file say", "",
                         "%" PRId64 " elements for %" PRId64, s->count, at);
}

/* ---- checks between the parts ---- */

static bool read_step(double *out, const zero *z, int d)
{
    const sheaf_torch *torch = z->share[d].f->torch;
    const sheaf_pickle *state =
        sheaf__pickle_path(torch->doc->root, "optimizer_state_dict",
                           z->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state", NULL);
    return sheaf__torch_number(out, torch, sheaf__pickle_get(group_state(state, 0), "step"));
}

/* All parts must have the same number of steps; the minority is stale. */
static sheaf_status *check_steps(zero *z)
{
    double most = -1;
    sheaf_status *st = NULL;
    for (int d = 0; d < z->r->dp; d++) {
        double step;
        if (z->share[d].f != NULL && read_step(&step, z, d) && step > most)
            most = step;
    }
    for (int d = 0; st == NULL && d < z->r->dp; d++) {
        double step;
        char expected[96];
        if (z->share[d].f == NULL || !read_step(&step, z, d) || step == most)
            continue;
        snprintf(expected, sizeof expected, "%.0f optimizer steps, as in the other parts", most);
        st = sheaf__defect(z->r->c, "stale", z->share[d].f->path, "", expected,
                           "put the part of the same save here", "%.0f optimizer steps", step);
    }
    return st;
}

/* Compares samples of each piece: masters and module of one save agree, but not with those of
 * another rank or step. */
static sheaf_status *check_module(zero *z, int model)
{
    const sheaf_pickle *module = sheaf__pickle_get(z->model->torch->doc->root, "module");
    const int dp = z->r->dp;
    int64_t *seen = calloc((size_t)dp * 2, sizeof *seen), *differ = seen + dp;
    sheaf_status *st = NULL;
    if (seen == NULL)
        return sheaf__no_memory(z->r->tag);
    for (int64_t i = 0; i < sheaf__pickle_count(module); i++) {
        const char *name;
        const sheaf_pickle_tensor *t = sheaf__ds_tensor(&name, z->model, module, i);
        const sheaf_logical *l = name == NULL ? NULL : sheaf__catalog_find(z->part, name);
        if (t == NULL || l == NULL || t->ndim == 0 ||
            !sheaf__same_shape(t->ndim, t->shape, l->entry.ndim, l->entry.shape))
            continue;
        const sheaf_piece stored = sheaf__piece_of(model, z->mp, z->model->torch, t);
        for (int64_t k = 0; k < l->npieces; k++)
            for (int d = 0; d < dp; d++)
                if (z->share[d].f != NULL && z->share[d].file == l->piece[k].file) {
                    const int same = sheaf__ds_sample(z->part, &l->piece[k], t->ndim, &stored);
                    seen[d] += same >= 0;
                    differ[d] += same == 0;
                }
    }
    for (int d = 0; st == NULL && d < dp; d++)
        if (differ[d] > 0)
            st = sheaf__finding(z->r->c, 2 * differ[d] > seen[d] ? SHEAF_DEFECT : SHEAF_WARNING,
                                "conflict", z->share[d].f->path, "",
                                "masters that round to the weights in the model's file",
                                "put the parts of one save together",
                                "others, in %" PRId64 " of %" PRId64
                                " samples: this part or %s is of another step or rank",
                                differ[d], seen[d], z->model->path);
    free(seen);
    return st;
}

static sheaf_status *report_lost(zero *z)
{
    sheaf_status *st = NULL;
    for (int d = 0; st == NULL && d < z->r->dp; d++) {
        const share *l = &z->share[d];
        const ds_file *f = sheaf__ds_file_of(z->r, DS_OPTIM, z->mp, d);
        char path[SHEAF_PATH_SIZE], name[96];
        if (l->f != NULL)
            continue;
        snprintf(name, sizeof name, "zero_pp_rank_%d_mp_rank_%02d_optim_states.pt", d, z->mp);
        st = sheaf__defect(
            z->r->c, "missing", f != NULL ? f->path : sheaf__path_in(path, z->r->tag, name),
            l->first, "every data-parallel part",
            "copy it from where this checkpoint was written; without any *_optim_states.pt file the rounded weights of "
            "stages 1 and 2 are read",
            "%s; in it lie, whole or in part, %" PRId64 " tensors from '%s' to '%s'",
            f != NULL ? "a damaged file" : "no such file", l->lost, l->first, l->last);
    }
    return st;
}

/* ---- all of it ---- */

static sheaf_status *read_stage2(zero *z, const sheaf_pickle *groups)
{
    stream s = { .at = calloc((size_t)z->r->dp, sizeof *s.at) };
    sheaf_status *st = s.at == NULL ? sheaf__no_memory(z->r->tag) : NULL;
    const sheaf_pickle *shapes;
    for (int64_t g = 0; st == NULL && (shapes = sheaf__ds_group(groups, g)) != NULL; g++)
        for (int kind = 0; st == NULL && kind < 3; kind++)
            st = read_group(z, shapes, g, kind, &s);
    free(s.at);
    return st;
}

static sheaf_status *read_stage3(zero *z, const sheaf_pickle *groups)
{
    sheaf_status *st = NULL;
    bool moments[3] = { true, false, false };
    for (int kind = 1; kind < 3; kind++)
        for (int d = 0; d < z->r->dp; d++)
            moments[kind] |= segment_of(z, d, kind, 0).file >= 0;
    for (int kind = 0; st == NULL && kind < 3; kind++)
        for (int d = 0; st == NULL && moments[kind] && d < z->r->dp; d++) {
            stream s;
            st = part_stream(&s, z, kind, d);
            TRY(st, read_sharded(z, kind, d, &s, groups));
            free(s.at);
        }
    return st;
}

static int stage_of(const ds_reading *r)
{
    for (int64_t i = 0; i < r->nfiles; i++) {
        const sheaf_pickle *state =
            r->file[i].what == DS_OPTIM
                ? sheaf__pickle_get(sheaf__ds_root(&r->file[i]), "optimizer_state_dict")
                : NULL;
        if (sheaf__pickle_get(state, "fp32_flat_groups") != NULL)
            return 3;
        if (sheaf__pickle_get(state, "single_partition_of_fp32_groups") != NULL)
            return 2;
    }
    return 0;
}

static sheaf_status *open_shares(zero *z)
{
    sheaf_status *st = NULL;
    z->share = calloc((size_t)z->r->dp, sizeof *z->share);
    if (z->share == NULL)
        return sheaf__no_memory(z->r->tag);
    for (int d = 0; st == NULL && d < z->r->dp; d++) {
        const ds_file *f = sheaf__ds_file_of(z->r, DS_OPTIM, z->mp, d);
        if (f == NULL || f->torch == NULL)
            continue;
        st = sheaf__catalog_file(&z->share[d].file, z->part, f->path, &f->torch->mark);
        z->share[d].f = f;
    }
    return st;
}

sheaf_status *sheaf__ds_zero(ds_reading *r, sheaf_catalog *part, const ds_file *model, int mp)
{
    zero z = { .r = r, .part = part, .mp = mp, .stage = stage_of(r), .model = model };
    const sheaf_pickle *groups = sheaf__pickle_get(model->torch->doc->root, "param_shapes");
    int file;
    if (z.stage == 0)
        return sheaf__defect(r->c, "unsupported", r->tag, "", "masters of ZeRO 1, 2 or 3", "",
                             "optimizer files of another form");
    if (r->dp < 1 || sheaf__pickle_count(groups) == 0)
        return sheaf__defect(r->c, "damaged", model->path, "", "param_shapes", "", "none");
    sheaf_status *st = open_shares(&z);
    TRY(st, z.stage == 3 ? read_stage3(&z, groups) : read_stage2(&z, groups));
    TRY(st, check_steps(&z));
    if (st == NULL && z.stage < 3)
        st = sheaf__catalog_file(&file, part, model->path, &model->torch->mark);
    if (st == NULL && z.stage < 3)
        st = check_module(&z, file);
    TRY(st, report_lost(&z));
    free(z.share);
    return sheaf__catalog_defect(r->c, model->path, st);
}
