/* catalog.c - Hugging Face folders and bare files as catalogs. */
#include "base/base.h"
#include "dialects/common/dialects.h"

#include "base/file.h"
#include "dialects/common/class.h"
#include "dialects/common/codes.h"
#include "dialects/common/model.h"
#include "dialects/common/model_folder.h"
#include "dialects/common/quantised.h"
#include "dialects/common/tower_sizes.h"
#include "dialects/common/whole.h"
#include "dialects/common/wrapped.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

static bool hf_is(const char *path)
{
    if (sheaf__path_kind(path) == SHEAF_PATH_FILE)
        return sheaf__ends_with(path, ".safetensors") || sheaf__torch_is(path) ||
               sheaf__is_torch_name(path);
    sheaf__names names = { 0 };
    bool yes = false, config = false;
    sheaf_status_free(sheaf__list_dir(&names.at, &names.count, path));
    for (int64_t i = 0; i < names.count; i++) {
        yes = yes || sheaf__is_weights_index(names.at[i]) || sheaf__is_weights(names.at[i]);
        config = config || strcmp(names.at[i], "config.json") == 0;
    }
    sheaf__names_free(names.at, names.count);
    return yes || config;
}

static bool is_moment(void *context, const char *path, const char *name)
{
    return sheaf__moment_base(name) != name;
}

/* optimizer.safetensors, as sheaf convert --optimizer leaves it; its metadata may have the step. */
static sheaf_status *read_moments(sheaf_catalog *c, const char *dir, const sheaf__names *names)
{
    const sheaf__whole whole = { .c = c, .rank = -1, .kind = SHEAF_MOMENT, .wants = is_moment };
    sheaf_safetensors *file = NULL;
    char path[SHEAF_PATH_SIZE];
    bool read = false;
    if (!sheaf__names_has(names, "optimizer.safetensors"))
        return NULL;
    sheaf__path_in(path, dir, "optimizer.safetensors");
    sheaf_status *st = sheaf__whole_file(&read, &whole, path);
    if (st == NULL && read)
        sheaf_status_free(sheaf__safetensors_open(&file, path));
    if (file != NULL) {
        const char *step = sheaf__safetensors_metadata(file, "step");
        if (step != NULL && *step != '\0' && strlen(step) < 16 &&
            strspn(step, "0123456789") == strlen(step))
            c->step = strtoll(step, NULL, 10);
        sheaf__safetensors_close(file);
    }
    return st;
}

/* Are the weights in Hugging Face's standard form: one file, or shards with an index? Other shards
 * and variants were assembled by hand, and are checked against the config. */
static bool is_in_order(const sheaf__names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i], "model.safetensors") == 0 || sheaf__is_weights_index(names->at[i]))
            return true;
    return false;
}

/* Classes that transformers runs with trust_remote_code. */
static sheaf_status *note_code(sheaf_catalog *c, const char *dir, const sheaf__names *names)
{
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < names->count; i++)
        if (sheaf__ends_with(names->at[i], ".py"))
            first = n++ == 0 ? i : first;
    if (n == 0)
        return NULL;
    return sheaf__note(c, "code", dir, "", "", "",
                       "%" PRId64 " Python file%s (%s%s): never run; sheaf has its own code for "
                       "the models it knows",
                       n, n == 1 ? "" : "s", names->at[first], n == 1 ? "" : ", ...");
}

/* Do tensors that are here say how large a part of the model is, of which the config says nothing?
 */
static bool tensors_have_sizes(const sheaf_catalog *c, const char *dir)
{
    sheaf_config config = { 0 };
    sheaf__names names = { 0 };
    json_t *root = NULL;
    bool any = false;
    if (c->config == NULL)
        return false;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf__json_parse(&root, c->config, strlen(c->config)));
    if (st == NULL && sheaf__config_lacks_tower(&config, root))
        st = sheaf__list_dir(&names.at, &names.count, dir);
    for (int64_t i = 0; i < names.count && !any; i++)
        any = sheaf__is_weights(names.at[i]);
    sheaf__names_free(names.at, names.count);
    sheaf_config_release(&config);
    json_decref(root);
    sheaf_status_free(st); /* its reader reports it */
    return any;
}

static sheaf_status *read_folder(bool *damaged, bool *in_order, sheaf_catalog *c, const char *path,
                                 const sheaf_dialect_hints *hints)
{
    sheaf__whole whole = { .c = c, .rank = -1, .as_stored = hints->as_stored };
    sheaf__names names = { 0 };
    sheaf_status *st = sheaf__catalog_find_config(c, hints, path, "config.json");
    if (st == NULL && hints->config_only &&
        !tensors_have_sizes(c, path)) /* SAT's, if there is only that */
        return c->config != NULL ? NULL
                                 : sheaf__catalog_find_config(c, hints, path, "model_config.json");
    whole.buffers = sheaf__catalog_keeps_buffers(c);
    TRY(st, sheaf__list_dir(&names.at, &names.count, path));
    *in_order = is_in_order(&names);
    TRY(st, note_code(c, path, &names));
    TRY(st, sheaf__whole_folder(damaged, &whole, path, &names));
    if (st == NULL && (!hints->as_stored || hints->moments))
        st = read_moments(c, path, &names);
    sheaf__names_free(names.at, names.count);
    return st;
}

/* A config beside a file is its own only where the file holds a model. */
static sheaf_status *read_file(bool *damaged, sheaf_catalog *c, const char *path,
                               const sheaf_dialect_hints *hints)
{
    const sheaf__whole whole = { .c = c,
                                 .rank = -1,
                                 .as_stored = hints->as_stored,
                                 .buffers = hints->as_stored && hints->buffers };
    char dir[SHEAF_PATH_SIZE];
    bool read = hints->config_only;
    sheaf_status *st = read ? NULL : sheaf__whole_file(&read, &whole, path);
    const int64_t shards = hints->config_only ? 0 : sheaf__shard_of(path);
    *damaged = !read;
    if (st == NULL && shards > 1) {
        *damaged = true;
        st = sheaf__note(c, "inferred", path, "", "", "give the folder instead of the file",
                         "by its name one shard of %" PRId64 ": other tensors lie in the others",
                         shards);
    }
    if (st == NULL && (hints->config != NULL || hints->as_stored || sheaf__family_of(c) != NULL))
        st = sheaf__catalog_find_config(c, hints, sheaf__path_above(dir, path), "config.json");
    return st;
}

/* A pickle may have wrappers' names or padding: it is always checked against its config. */
static bool is_pickled(const sheaf_catalog *c)
{
    for (int i = 0; i < c->nfiles; i++)
        if (!sheaf__ends_with(c->file[i].path, ".safetensors") &&
            (sheaf__is_torch_name(c->file[i].path) || sheaf__torch_is(c->file[i].path)))
            return true;
    return false;
}

static sheaf_status *hf_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints);

/* Of weights whose config alone is wanted: of another model they are refused here too, and anything
 * else may be wrong with them. */
static sheaf_status *check_class_beside(sheaf_catalog *c, const char *path,
                                        const sheaf_dialect_hints *hints)
{
    sheaf_dialect_hints all = *hints;
    sheaf_catalog *weights = NULL;
    all.config_only = false;
    all.as_stored = true;
    sheaf_status *st = sheaf__catalog_new(&weights, c->dialect, path);
    TRY(st, sheaf__only_memory(hf_read(weights, path, &all)));
    const sheaf_finding *f = st == NULL ? sheaf__catalog_finding(weights, "class") : NULL;
    if (f != NULL)
        st = sheaf__defect(c, f->code, f->path, f->tensor, f->expected, f->cure, "%s", f->found);
    sheaf__catalog_free(weights);
    return st;
}

static sheaf_status *hf_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    bool damaged = false, in_order = true;
    sheaf_status *st = sheaf__path_kind(path) == SHEAF_PATH_DIR
                           ? read_folder(&damaged, &in_order, c, path, hints)
                           : read_file(&damaged, c, path, hints);
    if (st == NULL && hints->also != NULL && *hints->also != NULL)
        st = sheaf__rank_parts_join(c, NULL, hints->also, NULL);
    TRY(st, sheaf__catalog_unwrap(c)); /* the model's names, by which parameters are found */
    if (st != NULL)
        return st;
    c->as_stored =
        hints->config_only || hints->raw || (hints->as_stored && in_order && !is_pickled(c));
    if (!c->as_stored)
        return sheaf__catalog_check_model(c, damaged);
    st = hints->raw || hints->config_only ? NULL : sheaf__catalog_unstack(c);
    TRY(st, hints->raw ? NULL : sheaf__catalog_codes(&damaged, c));
    TRY(st, sheaf__catalog_stale_quantization(c));
    if (hints->config_only)
        return TRY(st, check_class_beside(c, path, hints));
    return hints->raw ? st : TRY(st, sheaf__catalog_check_stored_class(c));
}

const sheaf_dialect sheaf__dialect_hf = {
    .name = "hf",
    .title = "Hugging Face",
    .is = hf_is,
    .read = hf_read,
    .writes = SHEAF_WRITES_MODEL | SHEAF_WRITES_MOMENTS | SHEAF_WRITES_QUANTISED,
    .plain = true,
    .whole = true,
    .folders = true,
    .hf_config = true,
};
