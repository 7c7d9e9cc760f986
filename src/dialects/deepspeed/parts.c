/* parts.c - the contents of each tensor-parallel rank: masters, module, frozen parameters,
 * aliases. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/dialects.h"
#include "dialects/deepspeed/private.h"

/* Only sizes are needed of a part's files from now on. */
static void close_files(sheaf_catalog *part)
{
    for (int i = 0; i < part->nfiles; i++)
        if (part->file[i].fd >= 0) {
            close(part->file[i].fd);
            part->file[i].fd = -1;
        }
}

bool sheaf__ds_listed(const sheaf_pickle *names, const char *name)
{
    for (int64_t i = 0; i < sheaf__pickle_count(names); i++) {
        const char *one = sheaf__pickle_text(sheaf__pickle_item(names, i));
        if (one != NULL && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

static sheaf_kind kind_of(const sheaf_pickle *buffers, const char *name)
{
    return sheaf__ds_listed(buffers, name)  ? SHEAF_BUFFER
           : strstr(name, ".lora_") != NULL ? SHEAF_LORA
                                            : SHEAF_WEIGHT;
}

const char *sheaf__ds_twin(const ds_file *f, const sheaf_pickle *module, int64_t i,
                           const sheaf_pickle_tensor *t)
{
    for (int64_t k = 0; k < i; k++) {
        const char *name;
        const sheaf_pickle_tensor *o = sheaf__ds_tensor(&name, f, module, k);
        if (o != NULL && o->storage == t->storage && o->offset == t->offset &&
            sheaf__same_shape(o->ndim, o->shape, t->ndim, t->shape) &&
            sheaf__same_shape(o->ndim, o->stride, t->ndim, t->stride))
            return name;
    }
    return NULL;
}

/* A tensor of the module that the part does not have yet. `sharded`: stage 3, whose empty tensors
 * stand for others. */
static sheaf_status *add_module_tensor(ds_reading *r, sheaf_catalog *part, const ds_file *f,
                                       const sheaf_pickle *module, int64_t i, bool sharded)
{
    const char *name;
    const sheaf_pickle_tensor *t = sheaf__ds_tensor(&name, f, module, i);
    const sheaf_pickle *root = f->torch->doc->root;
    sheaf_logical *l = name == NULL ? NULL : sheaf__catalog_find(part, name);
    if (name == NULL || sheaf__pickle_is(sheaf__pickle_value(module, i), SHEAF_PICKLE_NONE))
        return NULL;
    if (t == NULL) {
        bool noted;
        sheaf_status *st =
            sheaf__dialect_unread(&noted, r->c, f->path, name, sheaf__pickle_value(module, i));
        return st != NULL || noted ? st
                                   : sheaf__note(r->c, "unsupported", f->path, name, "a tensor", "",
                                                 "something else in 'module'");
    }
    if (l != NULL) {
        if (sharded || sheaf__same_shape(l->entry.ndim, l->entry.shape, t->ndim, t->shape))
            return NULL;
        return sheaf__defect(r->c, "conflict", f->path, name, "the shape in param_shapes", "",
                             "another shape in 'module'");
    }
    if (sheaf__pickle_path(root, "shared_params", name, NULL) != NULL)
        return NULL; /* added below */
    const char *twin =
        sharded || sheaf__elements(t->ndim, t->shape) > 0 ? sheaf__ds_twin(f, module, i, t) : NULL;
    if (twin != NULL && sheaf__catalog_find(part, twin) != NULL &&
        !sheaf__ds_listed(sheaf__pickle_get(root, "buffer_names"), name)) {
        if (f->mp > 0)
            return NULL; /* one note, for rank 0 */
        return sheaf__note(r->c, "inferred", f->path, name, "", "",
                           "tied: the same storage as '%s'", twin);
    }
    if (sharded && sheaf__elements(t->ndim, t->shape) == 0)
        return sheaf__defect(r->c, "missing", f->path, name, "a shape in param_shapes", "",
                             "only an empty stand-in in 'module'");
    return sheaf__catalog_put(part, kind_of(sheaf__pickle_get(root, "buffer_names"), name), name,
                              f->torch, t, f->mp);
}

static sheaf_status *add_module(ds_reading *r, sheaf_catalog *part, const ds_file *f, bool sharded)
{
    const sheaf_pickle *module = sheaf__pickle_get(f->torch->doc->root, "module");
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(module); i++)
        st = add_module_tensor(r, part, f, module, i, sharded);
    return st;
}

/* ---- frozen parameters ---- */

/* Their values: whole in the model's file, or under stage 3 ceil(elements / dp) in each
 * data-parallel part's. */
sheaf_status *sheaf__ds_frozen(ds_reading *r, sheaf_catalog *part, const ds_file *model,
                               const sheaf_pickle *shapes, int64_t i)
{
    ds_param param;
    sheaf_status *st = sheaf__ds_param(&param, model, shapes, i);
    if (st != NULL)
        return st;
    const int64_t n = param.elements;
    int64_t at = 0;
    for (int d = model->dp < 0 ? -1 : 0; d < (model->dp < 0 ? 0 : r->dp); d++) {
        const ds_file *f = sheaf__ds_file_of(r, DS_MODEL, model->mp, d);
        const int64_t each = d < 0 || r->dp < 1 ? n : (n + r->dp - 1) / r->dp;
        const sheaf_pickle_tensor *t =
            sheaf__ds_root(f) == NULL
                ? NULL
                : sheaf__pickle_tensor(f->torch->doc, sheaf__pickle_path(sheaf__ds_root(f),
                                                                         "frozen_param_fragments",
                                                                         param.name, NULL));
        sheaf_logical *l;
        int file;
        st = sheaf__catalog_tensor(&l, part, param.name, t != NULL ? t->dtype : SHEAF_F32,
                                   param.ndim, param.shape);
        if (st != NULL)
            return st;
        const int64_t left = n - at < each ? n - at : each;
        at += left;
        if (t == NULL || left <= 0)
            continue;
        const sheaf_piece whole = sheaf__piece_dense(0, 0, t->dtype, 0, t->ndim, t->shape);
        bool dense = true; /* row-major: a range of it is a range of the file */
        for (int k = 0; k < t->ndim; k++)
            dense &= t->shape[k] <= 1 || t->stride[k] == whole.stride[k];
        if (!dense || sheaf__elements(t->ndim, t->shape) < left)
            return sheaf_expected(
                sheaf_fail(SHEAF_E_FORMAT, "%s: frozen_param_fragments '%s'", f->path, param.name),
                "%" PRId64 " elements, dense", left);
        st = sheaf__catalog_file(&file, part, f->path, &f->torch->mark);
        const sheaf_piece first = { .file = file,
                                    .rank = model->mp,
                                    .dtype = t->dtype,
                                    .offset = sheaf__torch_offset(f->torch, t) };
        TRY(st, sheaf__ds_range(part, l, &first, at - left, at));
        if (st != NULL)
            return st;
    }
    return NULL;
}

/* ---- aliases ---- */

static sheaf_status *add_alias(sheaf_catalog *part, const char *name, const char *source)
{
    const sheaf_logical *from = sheaf__catalog_find(part, source);
    sheaf_logical *to;
    if (from == NULL || sheaf__catalog_find(part, name) != NULL)
        return NULL;
    const sheaf_logical copy = *from;
    sheaf_status *st =
        sheaf__catalog_tensor(&to, part, name, copy.entry.dtype, copy.entry.ndim, copy.entry.shape);
    if (st == NULL)
        to->kind = copy.kind;
    for (int64_t i = 0; st == NULL && i < copy.npieces; i++)
        st = sheaf__catalog_piece(part, to, &copy.piece[i]);
    return st;
}

/* shared_params: {name: the name it is stored under}. A tied head gets no tensor of its own, as in
 * the Llama schema. */
static sheaf_status *add_aliases(ds_reading *r, sheaf_catalog *part, const ds_file *f)
{
    const sheaf_pickle *shared = sheaf__pickle_get(f->torch->doc->root, "shared_params");
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(shared); i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(shared, i));
        const char *source = sheaf__pickle_text(sheaf__pickle_value(shared, i));
        if (name == NULL || source == NULL)
            continue;
        if (strcmp(name, "lm_head.weight") != 0)
            st = add_alias(part, name, source);
        else if (f->mp == 0)
            st = sheaf__note(r->c, "inferred", f->path, name, "", "",
                             "tied: shared_params says it is '%s'", source);
    }
    return st;
}

/* ---- a rank ---- */

/* The file that describes rank `mp`; NULL: none is readable. */
static const ds_file *model_of(const ds_reading *r, int mp)
{
    for (int64_t i = 0; i < r->nfiles; i++)
        if (r->file[i].what == DS_MODEL && r->file[i].mp == mp && r->file[i].torch != NULL)
            return &r->file[i];
    return NULL;
}

/* `any`: there are optimizer files, of this rank or another. */
static sheaf_status *read_rank(ds_reading *r, int mp, bool any)
{
    const ds_file *f = model_of(r, mp);
    if (f == NULL)
        return NULL;
    const sheaf_pickle *root = f->torch->doc->root,
                       *frozen = sheaf__pickle_get(root, "frozen_param_shapes");
    if (sheaf__pickle_get(root, "module") == NULL)
        return sheaf__defect(r->c, "foreign", f->path, "",
                             "a model file of DeepSpeed, with 'module'", "", "none");
    sheaf_status *st = sheaf__catalog_new(&r->part[mp], r->c->dialect, f->path);
    TRY(st, any ? sheaf__ds_zero(r, r->part[mp], f, mp) : NULL);
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(frozen); i++)
        st = sheaf__catalog_defect(r->c, f->path, sheaf__ds_frozen(r, r->part[mp], f, frozen, i));
    TRY(st, add_module(r, r->part[mp], f, f->dp >= 0));
    TRY(st, !any ? sheaf__ds_plain(r, r->part[mp], f) : NULL);
    TRY(st, add_aliases(r, r->part[mp], f));
    close_files(r->part[mp]);
    return st;
}

sheaf_status *sheaf__ds_parts(ds_reading *r)
{
    bool any = false, sharded = false;
    int stated = 0;
    for (int64_t i = 0; i < r->nfiles; i++) {
        any |= r->file[i].what == DS_OPTIM;
        sharded |= r->file[i].what == DS_MODEL && r->file[i].dp >= 0;
        stated +=
            r->file[i].what == DS_MODEL &&
            sheaf__pickle_count(sheaf__pickle_get(sheaf__ds_root(&r->file[i]), "param_shapes")) > 0;
        if (r->file[i].what == DS_LAYER)
            return sheaf__ds_layers(r);
    }
    r->part = calloc((size_t)r->tp + 1, sizeof *r->part);
    sheaf_status *st = r->part == NULL ? sheaf__no_memory(r->tag) : NULL;
    if (any)
        TRY(st, sheaf__ds_report_masters(r));
    else if (sharded && st == NULL)
        st = sheaf__defect(r->c, "missing", r->tag, "",
                           "the *_optim_states.pt files, in which ZeRO 3 keeps the weights",
                           "copy them from where this checkpoint was written", "none");
    else if (stated > 0 && st == NULL)
        st = sheaf__warning(
            r->c, "missing", r->tag, "",
            "the *_optim_states.pt files of ZeRO, with the float32 masters", "",
            "none; the weights of 'module', rounded to the training dtype, are used");
    for (int mp = 0; st == NULL && mp < r->tp; mp++)
        st = read_rank(r, mp, any);
    return st;
}
