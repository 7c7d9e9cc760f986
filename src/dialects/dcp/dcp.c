/* dcp.c - checkpoints of torch.distributed.checkpoint, and Megatron's torch_dist form of them.
 *
 *   .metadata          a pickle: for each tensor its shape, dtype and chunks (offsets, sizes); for
 *                      each chunk the file and the bytes where it lies
 *   __RANK_N.distcp    items, one after the other: each a whole torch file
 *   common.pt, metadata.json   of torch_dist: args and other values; the form
 *
 * docs/dialect-dcp.md has the layout. This file reads the folder. */
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "dialects/common/dialects.h"

#include <ctype.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/dcp/private.h"

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
    return sheaf__has_file(dir, ".metadata") || sheaf__holds_file(dir, is_items);
}

static bool folder_of(char dir[SHEAF_PATH_SIZE], const char *path)
{
    const char *name = sheaf__last_part(path);
    if (sheaf__path_kind(path) == SHEAF_PATH_FILE)
        return (strcmp(name, ".metadata") == 0 || is_items(name)) &&
               has_items(sheaf__path_above(dir, path));
    snprintf(dir, SHEAF_PATH_SIZE, "%s", path);
    return has_items(dir) || (sheaf__tracker_iteration(dir, path) && has_items(dir));
}

static bool dcp_is(const char *path)
{
    char dir[SHEAF_PATH_SIZE];
    return folder_of(dir, path);
}

/* ---- missing and unexpected files ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const dcp_file *)a)->path, ((const dcp_file *)b)->path);
}

static sheaf_status *report_files(dcp_reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++) {
        const dcp_file *f = &r->file[i];
        if (f->size < 0)
            st = sheaf__defect(
                r->c, "missing", f->path, f->first, "every file that .metadata names",
                "copy it from where this checkpoint was written",
                "no such file; %" PRId64 " chunks of tensors lie in it, the first of '%s'", f->lost,
                f->first);
        else if (f->size < f->wanted)
            st = sheaf__defect(r->c, "damaged", f->path, f->first,
                               "as many bytes as .metadata says", "copy it again",
                               "cut short: %" PRId64 " of %" PRId64 " bytes; %" PRId64
                               " chunks of tensors are not there, the first of '%s'",
                               f->size, f->wanted, f->lost, f->first);
        else if (f->size > f->wanted)
            st = sheaf__warning(r->c, "conflict", f->path, "", "as many bytes as .metadata says",
                                "", "%" PRId64 " bytes for %" PRId64, f->size, f->wanted);
    }
    char **names = NULL;
    int64_t n = 0;
    TRY(st, sheaf__list_dir(&names, &n, r->dir));
    for (int64_t i = 0; st == NULL && i < n; i++) {
        char path[SHEAF_PATH_SIZE];
        const dcp_file want = { .path = path };
        sheaf__path_in(path, r->dir, names[i]);
        if (is_items(names[i]) &&
            bsearch(&want, r->file, (size_t)r->nfiles, sizeof want, by_path) == NULL)
            st = sheaf__warning(r->c, "foreign", path, "", "files that .metadata names", "",
                                "one that it does not name, perhaps of another save");
    }
    sheaf__names_free(names, n);
    return st;
}

/* ---- Megatron's common.pt and metadata.json ---- */

static sheaf_status *read_common(dcp_reading *r)
{
    char json[SHEAF_PATH_SIZE], common[SHEAF_PATH_SIZE];
    json_t *object = NULL;
    sheaf_status *st = NULL;
    sheaf__path_in(common, r->dir, "common.pt");
    if (sheaf__path_kind(sheaf__path_in(json, r->dir, "metadata.json")) == SHEAF_PATH_FILE) {
        st = sheaf__catalog_defect(r->c, json, sheaf__json_load(&object, json));
        const char *backend =
            object == NULL ? NULL : json_string_value(json_object_get(object, "sharded_backend"));
        r->megatron = backend != NULL && strcmp(backend, "torch_dist") == 0;
        if (st == NULL && backend != NULL && !r->megatron)
            st = sheaf__defect(r->c, "unsupported", json, "", "sharded_backend torch_dist", "",
                               "sharded_backend %.40s", backend);
    }
    if (st == NULL && sheaf__path_kind(common) == SHEAF_PATH_FILE) {
        st = sheaf__catalog_defect(r->c, common, sheaf__torch_open(&r->common, common));
        if (r->common != NULL)
            sheaf__torch_close_file(r->common);
    } else if (st == NULL && r->megatron)
        st = sheaf__missing_file(r->c, "", "the args of the run", "%s", common);
    if (st == NULL && r->common != NULL &&
        sheaf__pickle_get(r->common->doc->root, "args") != NULL) {
        r->megatron = true;
        st = sheaf__megatron_args(&r->model, r->c, sheaf__pickle_get(r->common->doc->root, "args"),
                                  common, r->hints->config);
        r->c->tp = (int)(r->model.tp < 65536 ? r->model.tp : 0);
        r->c->pp = (int)(r->model.pp < 65536 ? r->model.pp : 0);
    }
    if (st == NULL && r->common != NULL)
        sheaf__pickle_int(&r->c->step, sheaf__pickle_get(r->common->doc->root, "iteration"));
    if (st == NULL && r->megatron && r->model.layers == 0 && r->model.vocab == 0) {
        st = sheaf__catalog_read_model(NULL, r->c, r->hints,
                                       (const char *const[]){ r->dir, r->c->root, NULL });
        TRY(st, sheaf__megatron_of_config(&r->model, r->c, common));
    }
    json_decref(object);
    return st;
}

/* The iteration in the folder's name and that in the files. */
static sheaf_status *check_step(dcp_reading *r)
{
    const char *rest;
    const int64_t named = sheaf__step_of_name(&rest, r->dir, "iter_");
    if (r->c->step < 0)
        r->c->step = named;
    if (named < 0 || r->c->step == named)
        return NULL;
    return sheaf__defect(r->c, "stale", r->dir, "", "the iteration in the folder's name", "",
                         "iteration %" PRId64 " inside", r->c->step);
}

/* ---- all of it ---- */

/* A number of the run, also inside the wrapper dict. */
static bool value(int64_t *out, dcp_reading *r, const char *key)
{
    char within[256];
    if (sheaf__dcp_value(out, r, key))
        return true;
    if (r->wrapper == NULL)
        return false;
    const int n = snprintf(within, sizeof within, "%s.%s", r->wrapper, key);
    return n > 0 && (size_t)n < sizeof within && sheaf__dcp_value(out, r, within);
}

static sheaf_status *read_values(dcp_reading *r)
{
    static const char *const steps[] = { "iteration", "step", "global_step", "train_state.step",
                                         "trainer.global_step" };
    for (size_t i = 0; r->c->step < 0 && i < sizeof steps / sizeof *steps; i++) {
        int64_t n;
        if (value(&n, r, steps[i]) && n >= 0)
            r->c->step = n;
    }
    int64_t vocab;
    if (r->c->vocab < 0 && value(&vocab, r, "args.vocab_size") && vocab > 0)
        r->c->vocab = vocab;
    return NULL;
}

static sheaf_status *recognise(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_recognise(c);
    const sheaf_logical *table = sheaf__catalog_find(c, "model.embed_tokens.weight");
    if (table != NULL && table->entry.ndim == 2 && table->entry.shape[0] > c->vocab)
        c->padded_vocab = table->entry.shape[0];
    return st;
}

static sheaf_status *read_all(dcp_reading *r)
{
    sheaf_status *st = sheaf__dcp_metadata(r);
    TRY(st, read_common(r));
    if (st != NULL || r->meta == NULL)
        return st;
    st = sheaf__dcp_items(r);
    if (st == NULL && !r->megatron)
        sheaf__dcp_wrapper(r);
    if (st == NULL && r->c->config == NULL)
        st = sheaf__catalog_read_model(NULL, r->c, r->hints, (const char *const[]){ r->dir, NULL });
    TRY(st, read_values(r));
    TRY(st, check_step(r));
    TRY(st, sheaf__dcp_tensors(r));
    TRY(st, report_files(r));
    return st != NULL || r->megatron ? st : recognise(r->c);
}

static void release(dcp_reading *r)
{
    for (int64_t i = 0; i < r->nfiles; i++)
        free(r->file[i].path);
    free(r->file);
    free(r->item);
    free(r->path);
    free(r->other);
    sheaf__torch_close(r->common);
    sheaf__pickle_free(r->meta);
    sheaf__megatron_release(&r->model);
}

static sheaf_status *dcp_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    char dir[SHEAF_PATH_SIZE];
    dcp_reading r = { .c = c, .hints = hints, .dir = dir };
    if (!folder_of(dir, path))
        return sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path),
                              "a folder with .metadata and __0_0.distcp");
    sheaf_status *st = read_all(&r);
    release(&r);
    return st;
}

const sheaf_dialect sheaf__dialect_dcp = {
    .name = "dcp",
    .title = "PyTorch distributed checkpoint (DCP), Megatron torch_dist",
    .is = dcp_is,
    .read = dcp_read,
    .training = true,
};
