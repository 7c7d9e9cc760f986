/* items.c - .metadata, and the items that it says lie in the files; see private.h. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/dcp/private.h"

enum { MAX_METADATA = 1 << 30 };

/* ---- .metadata ---- */

sheaf_status *sheaf__dcp_metadata(dcp_reading *r)
{
    char path[SHEAF_PATH_SIZE], *bytes = NULL;
    size_t size = 0;
    if (sheaf__path_kind(sheaf__path_in(path, r->dir, ".metadata")) != SHEAF_PATH_FILE)
        return sheaf__defect(
            r->c, "missing", path, "", "the list of all tensors, which a save writes last",
            "copy it from where this checkpoint was written",
            "no such file: the save did not finish, or the file was left behind (its name begins with a dot)");
    sheaf_status *st = sheaf__file_read_all(&bytes, &size, path, MAX_METADATA);
    TRY(st, sheaf__pickle_parse(&r->meta, NULL, bytes, size));
    if (st == NULL && sheaf__pickle_get(r->meta->root, "state_dict_metadata") == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "a Metadata object");
    free(bytes);
    return sheaf__catalog_defect(r->c, path, st);
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
    *f = (dcp_file){ .size = -1 };
    sheaf_status *st = sheaf__path_join(&f->path, r->dir, name);
    r->nfiles++;
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
    sheaf_status *st = r->file == NULL ? sheaf__no_memory(r->dir) : NULL;
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
        return sheaf__no_memory(r->dir);
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

sheaf_status *sheaf__dcp_items(dcp_reading *r)
{
    const sheaf_pickle *data = sheaf__pickle_get(r->meta->root, "storage_data");
    const int64_t n = sheaf__pickle_count(data);
    r->item = calloc((size_t)n + 1, sizeof *r->item);
    if (r->item == NULL)
        return sheaf__no_memory(r->dir);
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

static void add_lost(dcp_file *f, const char *key)
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
    if (st == NULL && (t == NULL || !sheaf__same_shape(t->ndim, t->shape, ndim, sizes)))
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "the item at byte %" PRId64, item->begin),
                            "the chunk of '%s' that .metadata says", item->key);
    TRY(st, sheaf__catalog_file(&file, r->c, f->path, &torch->mark));
    TRY(st, sheaf__catalog_zip(r->c, file, item->begin, item->length));
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
        return sheaf__defect(
            r->c, "damaged", r->dir, key, "a place in a file of this folder for each chunk", "",
            "%s", item == NULL ? "a chunk without a place in .metadata" : "another place");
    dcp_file *f = &r->file[item->file];
    if (item->changed)
        return sheaf__defect(r->c, "unsupported", f->path, key, "items as torch.save() writes them",
                             "", "items that were transformed");
    if (f->size < item->begin + item->length) {
        add_lost(f, key);
        return NULL;
    }
    sheaf_status *st = read_chunk(out, r, item, ndim, offsets, sizes, dtype);
    *found = st == NULL;
    return sheaf__catalog_defect(r->c, f->path, sheaf_in(st, "'%s'", key));
}
