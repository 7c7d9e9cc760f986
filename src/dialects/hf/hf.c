/* hf.c - opening a model folder; see hf.h. */
#include "hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "dialects/common/shards.h"

enum { MOST_SHARDS = 4096, NAMED = 5 }; /* of several offenders this many are named */

/* A constant that follows from config.json; files from before 2023 hold it. (CogVLM's, "mixins...",
 * belongs to it.) */
static bool is_buffer(const char *name)
{
    return sheaf__ends_with(name, "rotary_emb.inv_freq") && strncmp(name, "mixins.", 7) != 0;
}

/* Names of offenders: "a, b, c and 4 more". */
typedef struct offenders {
    sheaf_text names;
    int64_t count;
} offenders;

static void offend(offenders *o, const char *name)
{
    if (o->count < NAMED)
        sheaf__text_add(&o->names, "%s%.200s", o->count > 0 ? ", " : "", name);
    o->count++;
}

static sheaf_status *tell(offenders *o, const char *where, const char *expected)
{
    sheaf_status *st = NULL;
    if (o->count > 0) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", where), "%s", expected);
        const char *names = o->names.at == NULL ? "" : o->names.at;
        if (o->count > NAMED)
            sheaf_found(st, "%s and %" PRId64 " more", names, o->count - NAMED);
        else
            sheaf_found(st, "%s", names);
    }
    sheaf__text_release(&o->names);
    return st;
}

/* ---- one file ---- */

static sheaf_status *check_format(const sheaf_safetensors *file)
{
    const char *format = sheaf__safetensors_metadata(file, "format");
    if (format == NULL ||
        (strcmp(format, "tf") != 0 && strcmp(format, "flax") != 0 && strcmp(format, "np") != 0))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: metadata 'format'", file->path);
    sheaf_found(sheaf_expected(st, "\"pt\""), "\"%s\"", format);
    return sheaf_try_this(
        st, "other frameworks store weights under other names and transposed: convert with "
            "transformers");
}

static sheaf_status *add_whole_file(sheaf_shards *shards, const char *path)
{
    const sheaf_safetensors *file = NULL;
    sheaf_status *st = sheaf__shards_open(shards, path, &file);
    if (st == NULL)
        st = check_format(file);
    for (int64_t i = 0; st == NULL && i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        if (!is_buffer(e->name))
            st = sheaf__shards_add(shards, file, e, e->name);
    }
    return st;
}

/* ---- shards with an index ---- */

static sheaf_status *check_file_name(const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value);
    char shown[96];
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "weight_map: '%.200s'", tensor);
    sheaf_expected(st, "the name of a .safetensors file in the same folder");
    sheaf_found(st, "%s", sheaf__json_show(shown, value));
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL ||
        strchr(name, '\\') != NULL || strstr(name, "..") != NULL ||
        !sheaf__ends_with(name, ".safetensors"))
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* The open shard of that name, opened now if it is new. `known` maps names to positions in
 * `file`. */
static sheaf_status *shard_of(const sheaf_safetensors **out, sheaf_shards *shards, json_t *known,
                              const sheaf_safetensors **file, const char *dir, const char *name)
{
    const json_t *at = json_object_get(known, name);
    if (at != NULL) {
        *out = file[json_integer_value(at)];
        return NULL;
    }
    const size_t n = json_object_size(known);
    char *path = NULL;
    if (n == MOST_SHARDS)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "weight_map"), "at most %d files",
                              MOST_SHARDS);
    sheaf_status *st = sheaf__path_join(&path, dir, name);
    if (st == NULL)
        st = sheaf__shards_open(shards, path, &file[n]);
    if (st == NULL)
        st = check_format(file[n]);
    free(path);
    if (st == NULL && json_object_set_new(known, name, json_integer((json_int_t)n)) != 0)
        st = sheaf_fail(SHEAF_E_MEMORY, "out of memory for the list of shards");
    *out = file[n];
    return sheaf_in(st, "a file that the index names");
}

/* What the shards hold and the index does not name. */
static sheaf_status *check_unmapped(const json_t *map, json_t *known,
                                    const sheaf_safetensors *const *file)
{
    offenders strangers = { 0 };
    const char *name;
    json_t *at;
    json_object_foreach(known, name, at)
    {
        const sheaf_safetensors_header *h = &file[json_integer_value(at)]->header;
        for (int64_t i = 0; i < h->count; i++) {
            const char *mapped = json_string_value(json_object_get(map, h->entry[i].name));
            if (!is_buffer(h->entry[i].name) && (mapped == NULL || strcmp(mapped, name) != 0)) {
                char both[600];
                snprintf(both, sizeof both, "%.300s (%.200s)", h->entry[i].name, name);
                offend(&strangers, both);
            }
        }
    }
    return tell(&strangers, "tensors in the shards",
                "each named by the index, for the file that holds it");
}

static sheaf_status *add_mapped(sheaf_shards *shards, const json_t *map, const char *dir)
{
    const sheaf_safetensors **file = calloc(MOST_SHARDS, sizeof *file);
    json_t *known = json_object();
    sheaf_status *st = NULL;
    offenders absent = { 0 };
    const char *name;
    json_t *value;
    if (file == NULL || known == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "out of memory for the shards");
    json_object_foreach((json_t *)map, name, value)
    {
        const sheaf_safetensors *in = NULL;
        if (st == NULL)
            st = check_file_name(name, value);
        if (st == NULL)
            st = shard_of(&in, shards, known, file, dir, json_string_value(value));
        if (st != NULL)
            break;
        const sheaf_safetensors_entry *e = sheaf__safetensors_find(in, name);
        if (e == NULL && !is_buffer(name)) {
            char both[600];
            snprintf(both, sizeof both, "%.300s (%.200s)", name, json_string_value(value));
            offend(&absent, both);
        } else if (e != NULL && !is_buffer(name))
            st = sheaf__shards_add(shards, in, e, name);
    }
    sheaf_status *missing =
        tell(&absent, "tensors that the index promises", "each in the file it names");
    if (st == NULL)
        st = missing;
    else
        sheaf_status_free(missing);
    if (st == NULL)
        st = check_unmapped(map, known, file);
    json_decref(known);
    free(file);
    return st;
}

/* metadata is not looked at: some programs write total_size in other units. */
static sheaf_status *add_index(sheaf_shards *shards, const char *dir, const char *index)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_load(&root, index);
    if (st != NULL)
        return st;
    sheaf_json_reader r = { root, NULL, NULL };
    const json_t *map = sheaf__json_object(&r, "weight_map");
    if (r.st == NULL && (map == NULL || json_object_size(map) == 0))
        sheaf__json_fail(&r, SHEAF_E_FORMAT, "weight_map", "an object that maps tensors to files");
    st = r.st != NULL ? r.st : add_mapped(shards, map, dir);
    json_decref(root);
    return sheaf_in(st, "%s", index);
}

/* ---- which of them is there ---- */

/* Why a folder without model.safetensors and without an index cannot be opened. */
static sheaf_status *explain(const char *dir)
{
    static const struct {
        const char *start, *end, *what, *cure;
    } known[] = {
        { "adapter_model", "", "a PEFT adapter",
          "give it as --adapter, with the model it was made for as --model" },
        { "latest_checkpointed_iteration", ".txt", "a Megatron checkpoint",
          "convert it first; this form is not supported yet" },
        { "latest", "", "a DeepSpeed or SAT checkpoint",
          "convert it first; this form is not supported yet" },
        { "model-", ".safetensors", "shards without model.safetensors.index.json",
          "copy or download the index too" },
        { "model.", ".safetensors", "a variant", "give the file itself instead of the folder" },
        { "", ".safetensors", "a file of another name",
          "give the file itself instead of the folder" },
        { "pytorch_model", ".bin", "pickled weights",
          "convert them to safetensors first (transformers: "
          "save_pretrained); reading pickled models is not supported yet" },
        { "mp_rank_", ".pt", "a DeepSpeed or SAT part",
          "convert it first; this form is not supported yet" },
        { "consolidated", "", "Meta's own form", "use the Hugging Face form of this model" },
        { "", ".gguf", "a GGUF file", "use the Hugging Face form of this model" },
        { "", ".pth", "pickled weights", "convert them to safetensors first" },
        { "", ".pt", "pickled weights", "convert them to safetensors first" },
        { "", ".bin", "pickled weights", "convert them to safetensors first" },
    };
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, dir);
    if (st != NULL)
        return st;
    st = sheaf_fail(SHEAF_E_IO, "%s: no model here", dir);
    sheaf_expected(st, "model.safetensors, or model.safetensors.index.json with its shards");
    sheaf_found(st, n == 0 ? "an empty folder" : "%" PRId64 " other files", n);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (int64_t i = 0; i < n; i++)
            if (strncmp(names[i], known[k].start, strlen(known[k].start)) == 0 &&
                sheaf__ends_with(names[i], known[k].end)) {
                sheaf_status_free(st);
                st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: no model that sheaf reads", dir);
                sheaf_expected(
                    st, "model.safetensors, or model.safetensors.index.json with its shards");
                sheaf_found(st, "%s (%s)", names[i], known[k].what);
                sheaf_try_this(st, "%s", known[k].cure);
                sheaf__names_free(names, n);
                return st;
            }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *add_folder(sheaf_shards *shards, const char *dir)
{
    char *single = NULL, *index = NULL;
    sheaf_status *st = sheaf__path_join(&single, dir, "model.safetensors");
    if (st == NULL)
        st = sheaf__path_join(&index, dir, "model.safetensors.index.json");
    if (st == NULL) {
        const bool has_single = sheaf__path_kind(single) != SHEAF_PATH_NONE;
        const bool has_index = sheaf__path_kind(index) != SHEAF_PATH_NONE;
        if (has_single && has_index) {
            st = sheaf_fail(SHEAF_E_LAYOUT, "%s", dir);
            sheaf_expected(st, "model.safetensors or model.safetensors.index.json");
            sheaf_found(st, "both: one of them is left from another save");
            sheaf_try_this(st, "move the stale one away");
        } else
            st = has_single  ? add_whole_file(shards, single)
                 : has_index ? add_index(shards, dir, index)
                             : explain(dir);
    }
    free(single);
    free(index);
    return st;
}

sheaf_status *sheaf_hf_open(sheaf_source **out, const char *path)
{
    sheaf_shards *shards = NULL;
    sheaf_status *st = sheaf__shards_new(&shards);
    if (st != NULL)
        return st;
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
        st = add_folder(shards, path);
    else
        st = add_whole_file(shards, path);
    if (st == NULL)
        st = sheaf__shards_source(out, shards);
    if (st != NULL)
        sheaf__shards_close(shards);
    return st;
}

sheaf_status *sheaf_hf_config_path(char **out, const char *path)
{
    if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
        return sheaf__path_join(out, path, "config.json");
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, path);
    if (st == NULL)
        st = sheaf__path_join(out, parent, "config.json");
    free(parent);
    return st;
}
