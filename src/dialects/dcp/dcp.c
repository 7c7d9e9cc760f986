/* dcp.c - see dcp.h: the folder, .metadata, items. */
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "dialects/dcp/dcp.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "dialects/dcp/private.h"

enum { MAX_METADATA = 1 << 30 };

/* ---- is it one? ---- */

/* __RANK_N.distcp */
static bool is_items(const char *name)
{
    if (strncmp(name, "__", 2) != 0 || !isdigit((unsigned char)name[2]))
        return false;
    name += 2 + strspn(name + 2, "0123456789");
    if (*name++ != '_' || !isdigit((unsigned char)*name))
        return false;
    return strcmp(name + strspn(name, "0123456789"), ".distcp") == 0;
}

static bool has_items(const char *dir)
{
    char **names = NULL;
    int64_t n = 0;
    bool yes = sheaf__has_file(dir, ".metadata");
    sheaf_status *st = yes ? NULL : sheaf__list_dir(&names, &n, dir);
    for (int64_t i = 0; st == NULL && i < n && !yes; i++)
        yes = is_items(names[i]);
    sheaf__names_free(names, n);
    sheaf_status_free(st);
    return yes;
}

static char *folder_of(const char *path)
{
    char *dir = NULL;
    if (sheaf__path_kind(path) == SHEAF_PATH_FILE) {
        const char *name = sheaf__last_part(path);
        if (strcmp(name, ".metadata") == 0 || is_items(name))
            sheaf_status_free(sheaf__path_parent(&dir, path));
    } else if (has_items(path))
        dir = strdup(path);
    else
        dir = sheaf__tracked_iteration(path);
    if (dir != NULL && !has_items(dir)) {
        free(dir);
        dir = NULL;
    }
    return dir;
}

static bool dcp_is(const char *path)
{
    char *dir = folder_of(path);
    free(dir);
    return dir != NULL;
}

/* ---- .metadata ---- */

static sheaf_status *no_memory(const dcp_reading *r)
{
    return sheaf_fail(SHEAF_E_MEMORY, "%s", r->dir);
}

static sheaf_status *read_metadata(dcp_reading *r)
{
    char *path = NULL, *bytes = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__path_join(&path, r->dir, ".metadata");
    if (st != NULL)
        return st;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE) {
        st = sheaf__catalog_note(
            r->catalog, SHEAF_DEFECT, "missing", path, "",
            "the list of all tensors, which a save writes last",
            "no such file: the save did not finish, or the file was left behind (its name begins with a dot)",
            "copy it from where this checkpoint was written");
    } else {
        st = sheaf__file_read_all(&bytes, &size, path, MAX_METADATA);
        if (st == NULL)
            st = sheaf__pickle_parse(&r->meta, bytes, size, NULL);
        if (st == NULL && sheaf__pickle_get(r->meta->root, "state_dict_metadata") == NULL)
            st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "a Metadata object");
        st = sheaf__catalog_defect(r->catalog, path, st);
    }
    free(bytes);
    free(path);
    return st;
}

static int by_key(const void *a, const void *b)
{
    const dcp_item *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    if (order == 0)
        order = x->ndim - y->ndim;
    for (int i = 0; order == 0 && i < x->ndim; i++)
        order = x->offset[i] < y->offset[i] ? -1 : x->offset[i] > y->offset[i];
    return order;
}

static int by_name(const void *a, const void *b)
{
    const dcp_item *x = a, *y = b;
    return x->name == NULL || y->name == NULL ? (x->name != NULL) - (y->name != NULL)
                                              : strcmp(x->name, y->name);
}

static void read_item(dcp_item *item, const sheaf_pickle *key, const sheaf_pickle *value)
{
    const sheaf_pickle *changed = sheaf__pickle_get(value, "transform_descriptors");
    const char *name = sheaf__pickle_text(sheaf__pickle_get(value, "relative_path"));
    *item = (dcp_item){ .key = sheaf__pickle_text(sheaf__pickle_get(key, "fqn")),
                        .ndim = -1,
                        .file = -1 };
    if (!sheaf__pickle_shape(&item->ndim, item->offset, sheaf__pickle_get(key, "offset")))
        item->ndim = -1;
    item->changed = changed != NULL && !sheaf__pickle_is(changed, SHEAF_PICKLE_NONE) &&
                    sheaf__pickle_count(changed) > 0;
    if (sheaf__pickle_int(&item->begin, sheaf__pickle_get(value, "offset")) &&
        sheaf__pickle_int(&item->length, sheaf__pickle_get(value, "length")) && item->begin >= 0 &&
        item->length >= 0 && item->begin <= INT64_MAX - item->length && name != NULL &&
        *name != '\0' && strchr(name, '/') == NULL && strcmp(name, "..") != 0)
        item->name = name;
}

/* The next file; items come sorted by name. */
static sheaf_status *add_file(dcp_reading *r, const char *name)
{
    dcp_file *f = &r->file[r->nfiles];
    int fd = -1;
    *f = (dcp_file){ .name = strdup(name), .size = -1 };
    sheaf_status *st = sheaf__path_join(&f->path, r->dir, name);
    r->nfiles++;
    if (st == NULL && f->name == NULL)
        st = no_memory(r);
    if (st == NULL && sheaf__path_kind(f->path) == SHEAF_PATH_FILE)
        sheaf_status_free(sheaf__file_open_read(&fd, &f->size, f->path));
    if (fd >= 0)
        close(fd);
    return st;
}

static sheaf_status *find_files(dcp_reading *r)
{
    int64_t files = 0;
    for (int64_t i = 0; i < r->nitems; i++)
        files += r->item[i].name != NULL && (i == 0 || by_name(&r->item[i - 1], &r->item[i]) != 0);
    r->file = calloc((size_t)files + 1, sizeof *r->file);
    sheaf_status *st = r->file == NULL ? no_memory(r) : NULL;
    for (int64_t i = 0; st == NULL && i < r->nitems; i++) {
        dcp_item *item = &r->item[i];
        if (item->name == NULL)
            continue;
        if (i == 0 || by_name(&r->item[i - 1], item) != 0)
            st = add_file(r, item->name);
        item->file = r->nfiles - 1;
        if (item->begin + item->length > r->file[item->file].wanted)
            r->file[item->file].wanted = item->begin + item->length;
    }
    return st;
}

static int by_path_key(const void *a, const void *b)
{
    return strcmp(((const dcp_path *)a)->key, ((const dcp_path *)b)->key);
}

static sheaf_status *read_paths(dcp_reading *r)
{
    const sheaf_pickle *data = sheaf__pickle_get(r->meta->root, "planner_data");
    const int64_t n = sheaf__pickle_is(data, SHEAF_PICKLE_DICT) ? sheaf__pickle_count(data) : 0;
    r->path = calloc((size_t)n + 1, sizeof *r->path);
    if (r->path == NULL)
        return no_memory(r);
    for (int64_t i = 0; i < n; i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(data, i));
        if (key != NULL)
            r->path[r->npaths++] = (dcp_path){ key, sheaf__pickle_value(data, i) };
    }
    qsort(r->path, (size_t)r->npaths, sizeof *r->path, by_path_key);
    return NULL;
}

const sheaf_pickle *sheaf__dcp_path(const dcp_reading *r, const char *key)
{
    const dcp_path want = { key, NULL };
    const dcp_path *found = bsearch(&want, r->path, (size_t)r->npaths, sizeof want, by_path_key);
    return found == NULL ? NULL : found->path;
}

static sheaf_status *read_items(dcp_reading *r)
{
    const sheaf_pickle *data = sheaf__pickle_get(r->meta->root, "storage_data");
    const int64_t n = sheaf__pickle_count(data);
    r->item = calloc((size_t)n + 1, sizeof *r->item);
    if (r->item == NULL)
        return no_memory(r);
    for (int64_t i = 0; i < n; i++) {
        read_item(&r->item[r->nitems], sheaf__pickle_key(data, i), sheaf__pickle_value(data, i));
        r->nitems += r->item[r->nitems].key != NULL;
    }
    qsort(r->item, (size_t)r->nitems, sizeof *r->item, by_name);
    sheaf_status *st = find_files(r);
    qsort(r->item, (size_t)r->nitems, sizeof *r->item, by_key);
    return st == NULL ? read_paths(r) : st;
}

static const dcp_item *find_item(const dcp_reading *r, const char *key, int ndim,
                                 const int64_t *offsets)
{
    dcp_item want = { .key = key, .ndim = ndim };
    for (int i = 0; i < ndim; i++)
        want.offset[i] = offsets[i];
    return r->nitems == 0 ? NULL
                          : bsearch(&want, r->item, (size_t)r->nitems, sizeof *r->item, by_key);
}

bool sheaf__dcp_value(int64_t *out, dcp_reading *r, const char *key)
{
    const dcp_item *item = find_item(r, key, -1, NULL);
    sheaf_torch *torch = NULL;
    if (item == NULL || item->file < 0 || r->file[item->file].size < item->begin + item->length)
        return false;
    sheaf_status *st =
        sheaf__torch_open_at(&torch, r->file[item->file].path, item->begin, item->length);
    const bool found = st == NULL && sheaf__pickle_int(out, torch->doc->root);
    sheaf_status_free(st);
    sheaf__torch_close(torch);
    return found;
}

/* ---- chunks ---- */

static void lose(dcp_file *f, const char *key)
{
    if (f->lost++ == 0)
        snprintf(f->first, sizeof f->first, "%s", key);
}

static sheaf_status *read_chunk(sheaf_piece *out, dcp_reading *r, const dcp_item *item, int ndim,
                                const int64_t *offsets, const int64_t *sizes, sheaf_dtype *dtype)
{
    const dcp_file *f = &r->file[item->file];
    sheaf_torch *torch = NULL;
    sheaf_status *st = sheaf__torch_open_at(&torch, f->path, item->begin, item->length);
    const sheaf_pickle_tensor *t =
        st == NULL ? sheaf__pickle_tensor(torch->doc, torch->doc->root) : NULL;
    int file;
    if (st == NULL && (t == NULL || t->ndim != ndim ||
                       memcmp(t->shape, sizes, (size_t)ndim * sizeof *sizes) != 0))
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "the item at byte %" PRId64, item->begin),
                            "the chunk of '%s' that .metadata says", item->key);
    if (st == NULL)
        st = sheaf__catalog_file(&file, r->catalog, f->path);
    if (st == NULL)
        st = sheaf__catalog_zip(r->catalog, file, item->begin, item->length);
    if (st == NULL) {
        *out = sheaf__piece_of(file, -1, torch, t);
        *dtype = t->dtype;
        for (int i = 0; i < ndim; i++)
            out->begin[i] = offsets[i];
    }
    sheaf__torch_close(torch);
    return st;
}

sheaf_status *sheaf__dcp_chunk(sheaf_piece *out, bool *found, dcp_reading *r, const char *key,
                               int ndim, const int64_t *offsets, const int64_t *sizes,
                               sheaf_dtype *dtype)
{
    const dcp_item *item = find_item(r, key, ndim, offsets);
    *found = false;
    if (item == NULL || item->file < 0)
        return sheaf__catalog_note(
            r->catalog, SHEAF_DEFECT, "damaged", r->dir, key,
            "a place in a file of this folder for each chunk",
            item == NULL ? "a chunk without a place in .metadata" : "another place", "");
    dcp_file *f = &r->file[item->file];
    if (item->changed)
        return sheaf__catalog_note(r->catalog, SHEAF_DEFECT, "unsupported", f->path, key,
                                   "items as torch.save() writes them",
                                   "items that were transformed", "");
    if (f->size < item->begin + item->length) {
        lose(f, key);
        return NULL;
    }
    sheaf_status *st = read_chunk(out, r, item, ndim, offsets, sizes, dtype);
    *found = st == NULL;
    return sheaf__catalog_defect(r->catalog, f->path, sheaf_in(st, "'%s'", key));
}

/* ---- what the folder lacks, and what it has too much ---- */

static int by_file_name(const void *a, const void *b)
{
    return strcmp(((const dcp_file *)a)->name, ((const dcp_file *)b)->name);
}

static sheaf_status *tell_files(dcp_reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++) {
        const dcp_file *f = &r->file[i];
        if (f->size < 0)
            st = sheaf__catalog_notef(
                r->catalog, SHEAF_DEFECT, "missing", f->path, f->first,
                "every file that .metadata names", "copy it from where this checkpoint was written",
                "no such file; %" PRId64 " chunks of tensors lie in it, the first of '%s'", f->lost,
                f->first);
        else if (f->size < f->wanted)
            st = sheaf__catalog_notef(r->catalog, SHEAF_DEFECT, "damaged", f->path, f->first,
                                      "as many bytes as .metadata says", "copy it again",
                                      "cut short: %" PRId64 " of %" PRId64 " bytes; %" PRId64
                                      " chunks of tensors are not there, the first of '%s'",
                                      f->size, f->wanted, f->lost, f->first);
        else if (f->size > f->wanted)
            st = sheaf__catalog_notef(r->catalog, SHEAF_WARNING, "conflict", f->path, "",
                                      "as many bytes as .metadata says", "",
                                      "%" PRId64 " bytes for %" PRId64, f->size, f->wanted);
    }
    char **names = NULL;
    int64_t n = 0;
    if (st == NULL)
        st = sheaf__list_dir(&names, &n, r->dir);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const dcp_file want = { .name = names[i] };
        const bool known = !is_items(names[i]) || bsearch(&want, r->file, (size_t)r->nfiles,
                                                          sizeof want, by_file_name) != NULL;
        char *path = NULL;
        if (!known && (st = sheaf__path_join(&path, r->dir, names[i])) == NULL)
            st = sheaf__catalog_note(r->catalog, SHEAF_WARNING, "foreign", path, "",
                                     "files that .metadata names",
                                     "one that it does not name, perhaps of another save", "");
        free(path);
    }
    sheaf__names_free(names, n);
    return st;
}

/* ---- Megatron's common.pt and metadata.json ---- */

static sheaf_status *read_common(dcp_reading *r)
{
    char *json = NULL, *common = NULL;
    json_t *object = NULL;
    sheaf_status *st = sheaf__path_join(&json, r->dir, "metadata.json");
    if (st == NULL)
        st = sheaf__path_join(&common, r->dir, "common.pt");
    if (st == NULL && sheaf__path_kind(json) == SHEAF_PATH_FILE) {
        st = sheaf__catalog_defect(r->catalog, json, sheaf__json_load(&object, json));
        const char *backend =
            object == NULL ? NULL : json_string_value(json_object_get(object, "sharded_backend"));
        r->megatron = backend != NULL && strcmp(backend, "torch_dist") == 0;
        if (st == NULL && backend != NULL && !r->megatron)
            st = sheaf__catalog_notef(r->catalog, SHEAF_DEFECT, "unsupported", json, "",
                                      "sharded_backend torch_dist", "", "sharded_backend %.40s",
                                      backend);
    }
    if (st == NULL && sheaf__path_kind(common) == SHEAF_PATH_FILE) {
        st = sheaf__catalog_defect(r->catalog, common, sheaf__torch_open(&r->common, common));
        if (r->common != NULL)
            sheaf__torch_close_file(r->common);
    } else if (st == NULL && r->megatron)
        st = sheaf__not_there(r->catalog, strdup(common), "", "the args of the run");
    if (st == NULL && r->common != NULL &&
        sheaf__pickle_get(r->common->doc->root, "args") != NULL) {
        r->megatron = true;
        st = sheaf__megatron_args(&r->model, r->catalog,
                                  sheaf__pickle_get(r->common->doc->root, "args"), common,
                                  r->hints->config);
        sheaf__pickle_int(&r->catalog->step, sheaf__pickle_get(r->common->doc->root, "iteration"));
        r->catalog->tp = (int)(r->model.tp < 65536 ? r->model.tp : 0);
        r->catalog->pp = (int)(r->model.pp < 65536 ? r->model.pp : 0);
    }
    json_decref(object);
    free(json);
    free(common);
    return st;
}

/* The folder's number, against what is said inside. */
static sheaf_status *check_step(dcp_reading *r)
{
    const char *rest;
    const int64_t said = sheaf__step_of_name(&rest, r->dir, "iter_");
    if (r->catalog->step < 0)
        r->catalog->step = said;
    if (said < 0 || r->catalog->step == said)
        return NULL;
    return sheaf__catalog_notef(r->catalog, SHEAF_DEFECT, "stale", r->dir, "",
                                "the iteration in the folder's name", "",
                                "iteration %" PRId64 " inside", r->catalog->step);
}

/* ---- all of it ---- */

static sheaf_status *read_values(dcp_reading *r)
{
    static const char *const steps[] = { "iteration", "step", "global_step", "train_state.step",
                                         "trainer.global_step" };
    for (size_t i = 0; r->catalog->step < 0 && i < sizeof steps / sizeof *steps; i++) {
        int64_t n;
        if (sheaf__dcp_value(&n, r, steps[i]) && n >= 0)
            r->catalog->step = n;
    }
    int64_t vocab;
    if (r->catalog->vocab < 0 && sheaf__dcp_value(&vocab, r, "args.vocab_size") && vocab > 0)
        r->catalog->vocab = vocab;
    return NULL;
}

static sheaf_status *recognise(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_recognise(c);
    const sheaf_logical *table = sheaf__catalog_find(c, "model.embed_tokens.weight");
    if (table != NULL && table->told.ndim == 2 && table->told.shape[0] > c->vocab)
        c->padded_vocab = table->told.shape[0];
    return st;
}

static sheaf_status *read_all(dcp_reading *r)
{
    sheaf_status *st = read_metadata(r);
    if (st == NULL)
        st = read_common(r);
    if (st != NULL || r->meta == NULL)
        return st;
    st = read_items(r);
    if (st == NULL && r->catalog->config == NULL)
        st = sheaf__catalog_know(NULL, r->catalog, r->hints, (const char *const[]){ r->dir, NULL });
    if (st == NULL)
        st = read_values(r);
    if (st == NULL)
        st = check_step(r);
    if (st == NULL)
        st = sheaf__dcp_tensors(r);
    if (st == NULL)
        st = tell_files(r);
    return st != NULL || r->megatron ? st : recognise(r->catalog);
}

static void release(dcp_reading *r)
{
    for (int64_t i = 0; i < r->nfiles; i++) {
        free(r->file[i].name);
        free(r->file[i].path);
    }
    free(r->file);
    free(r->item);
    free(r->path);
    free(r->other);
    sheaf__torch_close(r->common);
    sheaf__pickle_free(r->meta);
    sheaf__megatron_release(&r->model);
    free(r->dir);
}

static sheaf_status *dcp_read(sheaf_catalog **out, const char *path,
                              const sheaf_dialect_hints *hints)
{
    dcp_reading r = { .hints = hints };
    *out = NULL;
    sheaf_status *st = sheaf__catalog_new(&r.catalog, &sheaf__dialect_dcp, path);
    if (st == NULL && (r.dir = folder_of(path)) == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path),
                            "a folder with .metadata and __0_0.distcp");
    if (st == NULL)
        st = read_all(&r);
    release(&r);
    if (st != NULL) {
        sheaf__catalog_free(r.catalog);
        return st;
    }
    *out = r.catalog;
    return NULL;
}

const sheaf_dialect sheaf__dialect_dcp = {
    .name = "dcp",
    .title = "PyTorch distributed checkpoint (DCP), Megatron torch_dist",
    .is = dcp_is,
    .read = dcp_read,
    .training = true,
};
