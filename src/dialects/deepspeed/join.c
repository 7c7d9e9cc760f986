/* join.c - the parts' local pieces as pieces of logical tensors; universal folders. */
#include "base/base.h"
#include "base/file.h"
#include "dialects/deepspeed/private.h"
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "dialects/common/vocabulary.h"
#include "dialects/common/wrapped.h"

/* ---- joining the parts ---- */

static sheaf_status *add_rank(ds_reading *r, sheaf_logical *out, const sheaf_catalog *part,
                              const sheaf_logical *local, const ds_rank_moves *moves)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < local->npieces; i++) {
        const sheaf_piece *p = &local->piece[i];
        int file;
        st = sheaf__catalog_file(&file, r->c, part->file[p->file].path, &part->file[p->file].mark);
        for (int64_t k = 0; st == NULL && k < moves->count; k++) {
            sheaf_piece moved;
            if (!sheaf__piece_move(&moved, p, local->entry.ndim, moves->at[k].from,
                                   moves->at[k].size, moves->at[k].to))
                continue;
            moved.file = file;
            st = sheaf__catalog_piece(r->c, out, &moved);
        }
    }
    return st;
}

/* Reports available ranks without a tensor of this name. */
static sheaf_status *report_absent(ds_reading *r, const char *name)
{
    for (int mp = 0; mp < r->tp; mp++)
        if (r->part[mp] != NULL && sheaf__catalog_find(r->part[mp], name) == NULL)
            return sheaf__defect(r->c, "missing", r->part[mp]->root, name,
                                 "the tensors of the other parts", "",
                                 "no tensor of this name in mp_rank_%02d", mp);
    return NULL;
}

static sheaf_status *join_one(ds_reading *r, ds_rules *rules, const sheaf_logical *first)
{
    const char *name = first->entry.name, *base = sheaf__moment_base(name);
    const bool moment = first->kind == SHEAF_MOMENT;
    sheaf_logical *out = NULL;
    ds_rule rule;
    bool refused;
    if (moment && sheaf__catalog_find(r->c, base) == NULL)
        return NULL; /* its parameter is refused already */
    sheaf_status *st = sheaf__ds_rule_make(&rule, &refused, rules, moment ? base : name);
    TRY(st, refused || moment ? NULL : report_absent(r, name));
    if (st == NULL && !refused)
        st = sheaf__catalog_tensor(&out, r->c, name, first->entry.dtype, rule.ndim, rule.shape);
    if (st == NULL && !refused) {
        out->kind = first->kind;
        out->replicated = rule.replicated;
    }
    for (int mp = 0; st == NULL && !refused && mp < r->tp; mp++) {
        const sheaf_logical *local =
            r->part[mp] == NULL ? NULL : sheaf__catalog_find(r->part[mp], name);
        if (local != NULL && local->entry.ndim == rule.ndim)
            st = add_rank(r, out, r->part[mp], local, &rule.rank[mp]);
    }
    sheaf__ds_rule_release(&rule);
    return sheaf__catalog_defect(r->c, r->tag, st);
}

sheaf_status *sheaf__ds_join(ds_reading *r)
{
    ds_rules *rules = NULL;
    sheaf_status *st = sheaf__ds_rules_new(&rules, r);
    for (int mp = 0; st == NULL && mp < r->tp; mp++)
        for (int64_t i = 0; st == NULL && r->part[mp] != NULL && i < r->part[mp]->count; i++) {
            bool done = false; /* by an earlier rank */
            for (int k = 0; k < mp && !done; k++)
                done = r->part[k] != NULL &&
                       sheaf__catalog_find(r->part[k], r->part[mp]->tensor[i].entry.name) != NULL;
            if (!done)
                st = join_one(r, rules, &r->part[mp]->tensor[i]);
        }
    TRY(st, sheaf__ds_rules_report(rules));
    sheaf__ds_rules_free(rules);
    return st;
}

/* ---- universal ---- */

static const char copy_again[] =
    "copy the files of this parameter again from where the checkpoint was written";
static const char *const states[3] = { "fp32", "exp_avg", "exp_avg_sq" };

/* Values of another kind: the file stores the name that it was saved under. */
static sheaf_status *check_kind(ds_reading *r, const char *path, const char *name, int kind)
{
    char stem[128];
    sheaf__torch_stem(stem, path);
    for (int k = 0; k < 3; k++)
        if (k != kind && strcmp(stem, states[k]) == 0)
            return sheaf__defect(r->c, "conflict", path, name,
                                 "a file that was saved under this name",
                                 "give the files back the names they were saved under",
                                 "it was saved as %s.pt", stem);
    return NULL;
}

/* A tensor that ZeRO 3 left flat gets its shape from a model's file or the config: of `elements`,
 * -1 if none has it. */
static sheaf_status *shape_of_flat(ds_param *p, const ds_reading *r, const char *path,
                                   const char *name, const sheaf_pickle_tensor *t)
{
    char want[128], is[128], plain[SHEAF__PLAIN_NAME];
    const sheaf_pickle *shapes;
    bool found = false;
    *p = (ds_param){ .elements = -1 };
    if (t->ndim != 1 || (t->shape[0] > 1 && t->stride[0] != 1))
        return NULL;
    for (int64_t i = 0; i < r->nfiles && !found; i++) {
        const sheaf_pickle *groups =
            r->file[i].what == DS_MODEL
                ? sheaf__pickle_get(sheaf__ds_root(&r->file[i]), "param_shapes")
                : NULL;
        for (int64_t g = 0; !found && (shapes = sheaf__ds_group(groups, g)) != NULL; g++)
            found = sheaf__pickle_shape(&p->ndim, p->shape, sheaf__pickle_get(shapes, name));
    }
    const sheaf_tensor *known = found || r->schema == NULL
                                    ? NULL
                                    : sheaf_schema_find(r->schema, sheaf__plain_name(plain, name));
    if (known != NULL) {
        p->ndim = known->ndim;
        memcpy(p->shape, known->shape, (size_t)known->ndim * sizeof *p->shape);
    }
    if (!found && known == NULL)
        return NULL;
    p->elements = 1;
    for (int k = 0; p->elements >= 0 && k < p->ndim; k++)
        if (__builtin_mul_overflow(p->elements, p->shape[k], &p->elements))
            p->elements = -1;
    return p->elements == t->shape[0] ||
                   !found /* the config is checked against all tensors later */
               ? NULL
               : sheaf__defect(r->c, "shape", path, name,
                               sheaf__show_shape(want, p->ndim, p->shape), copy_again, "%s",
                               sheaf__show_shape(is, t->ndim, t->shape));
}

static sheaf_status *add_state(ds_reading *r, const sheaf_torch *torch,
                               const sheaf_pickle_tensor *t, const char *path, const char *name,
                               int kind)
{
    sheaf_logical *out;
    int file;
    ds_param known;
    char *full = sheaf__ds_state_name(kind, name);
    sheaf_status *st = full == NULL ? sheaf__no_memory(path) : NULL;
    TRY(st, sheaf__catalog_file(&file, r->c, path, &torch->mark));
    TRY(st, shape_of_flat(&known, r, path, name, t));
    const bool flat = st == NULL && known.elements == t->shape[0] && known.elements >= 0;
    TRY(st, sheaf__catalog_tensor(&out, r->c, full, t->dtype, flat ? known.ndim : t->ndim,
                                  flat ? known.shape : t->shape));
    free(full);
    if (st != NULL)
        return st;
    const sheaf_piece p =
        flat ? sheaf__piece_dense(file, -1, t->dtype, sheaf__torch_offset(torch, t), known.ndim,
                                  known.shape)
             : sheaf__piece_of(file, -1, torch, t);
    out->kind = kind > 0 ? SHEAF_MOMENT : SHEAF_WEIGHT;
    out->alone = !sheaf__is_vocabulary(name); /* a head may be tied to the table */
    return sheaf__catalog_piece(r->c, out, &p);
}

/* zero/NAME/STATE.pt as a tensor; a missing file is a defect for the weights, nothing for
 * moments. */
static sheaf_status *read_state(ds_reading *r, const char *dir, const char *name, int kind)
{
    char path[SHEAF_PATH_SIZE], file[16];
    sheaf_torch *torch = NULL;
    snprintf(file, sizeof file, "%s.pt", states[kind]);
    if (!sheaf__has_file(dir, file))
        return kind > 0 ? NULL
                        : sheaf__missing_file(r->c, name, "the values of the parameter", "%s/%s",
                                              dir, file);
    sheaf_status *st = sheaf__torch_open(&torch, sheaf__path_in(path, dir, file));
    if (st == NULL) {
        const sheaf_pickle *root = torch->doc->root;
        const sheaf_pickle_tensor *t = sheaf__pickle_tensor(
            torch->doc,
            sheaf__pickle_is(root, SHEAF_PICKLE_TENSOR) ? root : sheaf__pickle_get(root, "param"));
        st = t != NULL ? add_state(r, torch, t, path, name, kind)
                       : sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path),
                                        "a dict with a tensor 'param'");
    }
    st = sheaf__catalog_defect(r->c, path, st);
    TRY(st, check_kind(r, path, name, kind));
    sheaf__torch_close(torch);
    return st;
}

/* fp32.pt, exp_avg.pt and exp_avg_sq.pt of a parameter are of one shape. */
static sheaf_status *check_states(ds_reading *r, const char *dir, const char *name)
{
    const sheaf_logical *weight = sheaf__catalog_find(r->c, name);
    sheaf_status *st = NULL;
    for (int kind = 1; st == NULL && weight != NULL && kind < 3; kind++) {
        char want[128], is[128], *full = sheaf__ds_state_name(kind, name);
        if (full == NULL)
            return sheaf__no_memory(dir);
        const sheaf_logical *t = sheaf__catalog_find(r->c, full);
        if (t != NULL && !sheaf__same_shape(t->entry.ndim, t->entry.shape, weight->entry.ndim,
                                            weight->entry.shape))
            st = sheaf__defect(r->c, "shape", dir, full,
                               sheaf__show_shape(want, weight->entry.ndim, weight->entry.shape),
                               copy_again, "%s in %s.pt",
                               sheaf__show_shape(is, t->entry.ndim, t->entry.shape), states[kind]);
        free(full);
    }
    return st;
}

/* A part in the model's file must not be larger than the whole, except for a padded vocabulary. */
static sheaf_status *compare_shape(ds_reading *r, const char *zero, const sheaf_logical *whole,
                                   const sheaf_pickle_tensor *part)
{
    char want[128], is[128];
    bool same = whole->entry.ndim == part->ndim, empty = false;
    for (int d = 0; d < part->ndim; d++) {
        same = same && (d == 0 || part->shape[d] <= whole->entry.shape[d]);
        empty = empty || part->shape[d] == 0; /* as ZeRO 3 leaves them */
    }
    if (empty || same)
        return NULL;
    return sheaf__defect(r->c, "shape", zero, whole->entry.name,
                         sheaf__show_shape(want, part->ndim, part->shape), copy_again, "%s",
                         sheaf__show_shape(is, whole->entry.ndim, whole->entry.shape));
}

static bool is_reported_missing(const sheaf_catalog *c, const char *name)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, "missing") == 0 && strcmp(c->finding[i].tensor, name) == 0)
            return true;
    return false;
}

/* Reports names in the model's files that `zero` lacks; adds buffers, which are only there. */
static sheaf_status *compare_module(ds_reading *r, const ds_file *f, const char *zero)
{
    const sheaf_pickle *root = sheaf__ds_root(f), *module = sheaf__pickle_get(root, "module");
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(module); i++) {
        const char *name;
        const sheaf_pickle_tensor *t = sheaf__ds_tensor(&name, f, module, i);
        if (name == NULL || t == NULL)
            continue;
        const sheaf_logical *whole = sheaf__catalog_find(r->c, name);
        bool skip = whole != NULL || sheaf__pickle_path(root, "shared_params", name, NULL) != NULL;
        if (whole != NULL && whole->kind == SHEAF_WEIGHT) {
            st = compare_shape(r, zero, whole, t);
        } else if (!skip && sheaf__ds_listed(sheaf__pickle_get(root, "buffer_names"), name)) {
            st = sheaf__catalog_put(r->c, SHEAF_BUFFER, name, f->torch, t, f->mp);
            skip = true;
        }
        skip = skip || sheaf__ds_twin(f, module, i, t) != NULL;
        if (!skip && !is_reported_missing(r->c, name)) /* or without values */
            st = sheaf__defect(
                r->c, "missing", zero, name, "a folder for each parameter in the model's file",
                "copy it from where this checkpoint was written", "none of this name");
    }
    return st;
}

/* Frozen parameters have no optimizer state: their values are in the model's files. */
static sheaf_status *add_frozen(ds_reading *r)
{
    const ds_file *model = NULL;
    for (int64_t i = 0; i < r->nfiles; i++) {
        const ds_file *f = &r->file[i];
        if (f->what != DS_MODEL)
            continue;
        r->dp = f->dp >= r->dp ? f->dp + 1 : r->dp;
        if (model == NULL && f->mp == 0 && f->torch != NULL)
            model = f;
    }
    const sheaf_pickle *shapes =
        model == NULL ? NULL : sheaf__pickle_get(model->torch->doc->root, "frozen_param_shapes");
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(shapes); i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(shapes, i));
        if (name != NULL && sheaf__catalog_find(r->c, name) == NULL)
            st = sheaf__catalog_defect(r->c, model->path,
                                       sheaf__ds_frozen(r, r->c, model, shapes, i));
    }
    return st;
}

/* No model has only vectors: these are flat tensors of unknown shape. */
static sheaf_status *report_flat(ds_reading *r, const char *zero)
{
    int64_t weights = 0;
    for (int64_t i = 0; i < r->c->count; i++) {
        weights += r->c->tensor[i].kind == SHEAF_WEIGHT;
        if (r->c->tensor[i].kind == SHEAF_WEIGHT && r->c->tensor[i].entry.ndim > 1)
            return NULL;
    }
    return weights < 2
               ? NULL
               : sheaf__defect(
                     r->c, "shape", zero, "",
                     "the shapes of the parameters: param_shapes in a *_model_states.pt, or the model's config.json",
                     "give the config.json of the model with `config`, or copy the *_model_states.pt files too",
                     "neither; ZeRO 3 left them flat");
}

sheaf_status *sheaf__ds_universal(ds_reading *r)
{
    char zero[SHEAF_PATH_SIZE], **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, sheaf__path_in(zero, r->tag, "zero"));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        char dir[SHEAF_PATH_SIZE];
        sheaf__path_in(dir, zero, names[i]);
        for (int kind = 0; st == NULL && kind < 3 && sheaf__path_kind(dir) == SHEAF_PATH_DIR;
             kind++)
            st = read_state(r, dir, names[i], kind);
        TRY(st, check_states(r, dir, names[i]));
    }
    TRY(st, add_frozen(r));
    TRY(st, report_flat(r, zero));
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++)
        if (r->file[i].what == DS_MODEL && r->file[i].torch != NULL)
            st = compare_module(r, &r->file[i], zero);
    r->c->tp = r->c->pp = r->c->dp = 1;
    r->c->tensors_by_names = true;
    sheaf__names_free(names, n);
    return st;
}
