/* whole_folder.c - the weights of a folder, by an index or by the names of its files; see
 * whole.h. */
#include <ctype.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/save.h"
#include "dialects/common/whole.h"

enum { MOST_SHARDS = 4096 };

bool sheaf__names_has(const sheaf__names *names, const char *name)
{
    for (int64_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

/* ---- names of files ---- */

bool sheaf__is_weights(const char *name)
{
    static const char *const others[] = { "adapter_model", "optimizer",     "pytorch_optim",
                                          "scheduler",     "training_args", "rng_state",
                                          "scaler" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return sheaf__ends_with(name, ".safetensors") || sheaf__is_torch_name(name);
}

bool sheaf__is_weights_index(const char *name)
{
    return (strncmp(name, "model.", 6) == 0 || strncmp(name, "pytorch_model.", 14) == 0) &&
           strstr(name, ".index.") != NULL && sheaf__ends_with(name, ".json");
}

/* The parts of a shard's name: STEM-00002-of-00005.safetensors, or STEM-00002.safetensors (of 0),
 * or STEM-stage-00001-shard-00002.safetensors (stage 1). */
typedef struct shard_name {
    size_t stem;
    int64_t stage, number, of;
} shard_name;

static int64_t number_at(const char **p, const char *before)
{
    const size_t n = strlen(before);
    if (strncmp(*p, before, n) != 0 || !isdigit((unsigned char)(*p)[n]))
        return -1;
    const char *digits = *p + n;
    const size_t length = strspn(digits, "0123456789");
    *p = digits + length;
    return length <= 9 ? strtoll(digits, NULL, 10) : -1;
}

static bool shard_of_name(shard_name *out, const char *name)
{
    for (const char *dash = strchr(name, '-'); dash != NULL; dash = strchr(dash + 1, '-')) {
        const char *p = dash;
        *out = (shard_name){ .stem = (size_t)(dash - name) };
        const int64_t stage = number_at(&p, "-stage-");
        if (stage >= 0) {
            out->stage = stage;
            out->number = number_at(&p, "-shard-");
        } else {
            out->number = number_at(&p, "-");
            const int64_t of = out->number >= 0 ? number_at(&p, "-of-") : -1;
            out->of = of > 0 ? of : 0;
        }
        if (out->number >= 0 && *p == '.' && strchr(p + 1, '.') == NULL)
            return true;
    }
    return false;
}

int64_t sheaf__shard_of(const char *path)
{
    shard_name is;
    return shard_of_name(&is, sheaf__last_part(path)) ? is.of : 0;
}

/* ---- an index ---- */

typedef struct indexed {
    sheaf__whole whole; /* a copy, with our wants */
    const json_t *map;
    sheaf_status *st; /* failure to add a finding */
} indexed;

static const char other_save[] =
    "this file or the index is of another save: copy both from the same one";

static bool safe_file_name(const char *name)
{
    return name != NULL && *name != '\0' && *name != '.' && strchr(name, '/') == NULL &&
           strchr(name, '\\') == NULL && strstr(name, "..") == NULL &&
           (sheaf__ends_with(name, ".safetensors") || sheaf__is_torch_name(name));
}

/* Accepts tensors that the index has in this file. */
static bool wants_indexed(void *context, const char *path, const char *name)
{
    indexed *x = context;
    const json_t *value = json_object_get(x->map, name);
    const char *file = json_string_value(value);
    if (value != NULL && !safe_file_name(file)) /* a finding has its name */
        return false;
    if (file != NULL && strcmp(file, sheaf__last_part(path)) == 0)
        return true;
    if (sheaf__ends_with(name, "rotary_emb.inv_freq") || x->st != NULL)
        return false;
    x->st = sheaf__defect(x->whole.c, file == NULL ? "foreign" : "duplicate", path, name,
                          file == NULL ? "a name of the index" : file, other_save, "%s",
                          file == NULL ? "a tensor that the index does not name"
                                       : "it lies in this file too");
    return false;
}

/* Reads each file that the index names once; files[name] = was it read? */
static sheaf_status *read_mapped(indexed *x, json_t *files, bool *damaged, const char *dir,
                                 const char *index)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)x->map, name, value)
    {
        const char *file = json_string_value(value);
        char shown[96], path[SHEAF_PATH_SIZE];
        bool read = false;
        sheaf_status *st = NULL;
        if (!safe_file_name(file)) {
            *damaged = true;
            st = sheaf__defect(x->whole.c, "damaged", index, name,
                               "the name of a file of weights in the same folder", "", "%s",
                               sheaf__json_show(shown, value));
        } else if (json_object_get(files, file) == NULL) {
            if (json_object_size(files) == MOST_SHARDS)
                return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", index),
                                      "at most %d files", MOST_SHARDS);
            st = sheaf__whole_file(&read, &x->whole, sheaf__path_in(path, dir, file));
            *damaged = *damaged || !read;
            if (st == NULL && json_object_set_new(files, file, json_boolean(read)) != 0)
                st = sheaf__no_memory(index);
        }
        TRY(st, x->st);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static sheaf_status *note_promised(const indexed *x, const json_t *files, const char *dir)
{
    const char *name;
    json_t *value;
    sheaf_catalog *c = x->whole.c;
    sheaf_status *st = NULL;
    json_object_foreach((json_t *)x->map, name, value)
    {
        const char *file = json_string_value(value);
        char path[SHEAF_PATH_SIZE];
        const json_t *read =
            file == NULL ? NULL : json_object_get(files, file); /* NULL: a finding has its name */
        if (read == NULL || sheaf__ends_with(name, "rotary_emb.inv_freq") ||
            sheaf__catalog_find(c, name) != NULL)
            continue;
        TRY(st, sheaf__defect(c, "missing", sheaf__path_in(path, dir, file), name,
                              "in this file, as the index says",
                              json_is_true(read) ? other_save : "copy or download it", "%s",
                              json_is_true(read) ? "no tensor of this name in it"
                                                 : "this file cannot be read"));
    }
    return st;
}

/* Reports shards that the index does not name. */
static sheaf_status *note_strangers(const sheaf__whole *whole, const json_t *files, const char *dir,
                                    const sheaf__names *names)
{
    shard_name of = { 0 };
    const char *first = json_object_iter_key(json_object_iter((json_t *)files));
    sheaf_status *st = NULL;
    if (first == NULL || !shard_of_name(&of, first))
        return NULL;
    for (int64_t i = 0; st == NULL && i < names->count; i++) {
        shard_name is;
        char path[SHEAF_PATH_SIZE];
        if (!sheaf__is_weights(names->at[i]) || json_object_get(files, names->at[i]) != NULL ||
            !shard_of_name(&is, names->at[i]) || is.stem != of.stem ||
            strncmp(first, names->at[i], of.stem) != 0)
            continue;
        const char *end = strrchr(first, '.');
        if (end == NULL || !sheaf__ends_with(names->at[i], end))
            continue; /* the same weights in the other format */
        sheaf__path_in(path, dir, names->at[i]);
        st = is.of != of.of
                 ? sheaf__warning(whole->c, "stale", path, "", "the files that the index names",
                                  "delete it", "a shard of another save, of %" PRId64 " files",
                                  is.of)
                 : sheaf__warning(whole->c, "foreign", path, "", "the files that the index names",
                                  "delete it, or copy the index again",
                                  "a file that the index does not name");
    }
    return st;
}

static sheaf_status *read_index(bool *damaged, const sheaf__whole *whole, const char *dir,
                                const char *name, const sheaf__names *names)
{
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL, *files = NULL;
    sheaf_status *st = sheaf__json_load(&root, sheaf__path_in(path, dir, name));
    indexed x = { .whole = *whole, .map = json_object_get(root, "weight_map") };
    if (st == NULL && json_object_size(x.map) == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'weight_map'"),
                            "an object that maps tensors to files");
    if (st != NULL) {
        *damaged = true;
        st = sheaf__catalog_defect(whole->c, path, st);
    } else {
        x.whole.wants = wants_indexed;
        x.whole.context = &x;
        files = json_object();
        st = files == NULL ? sheaf__no_memory(path) : read_mapped(&x, files, damaged, dir, path);
        TRY(st, note_promised(&x, files, dir));
        TRY(st, note_strangers(whole, files, dir, names));
    }
    json_decref(files);
    json_decref(root);
    return st;
}

/* ---- no index ---- */

static sheaf_status *read_one(bool *damaged, const sheaf__whole *whole, const char *dir,
                              const char *name)
{
    char path[SHEAF_PATH_SIZE];
    bool read = false;
    sheaf_status *st = sheaf__whole_file(&read, whole, sheaf__path_in(path, dir, name));
    *damaged = *damaged || !read;
    return st;
}

/* Numbers from `begin` to before `end`, of shards or stages, that no file has. */
static sheaf_status *note_gap(bool *damaged, sheaf_catalog *c, const char *dir, bool stages,
                              int64_t begin, int64_t end, const char *name)
{
    if (begin >= end)
        return NULL;
    *damaged = true;
    return sheaf__defect(
        c, "missing", dir, "", stages ? "all stages of the pipeline" : "all shards",
        stages ? "copy them too" : "download or copy them too",
        "no %s %" PRId64 "..%" PRId64 " %s %s%s", stages ? "stages" : "shards", begin, end - 1,
        stages ? "before that of" : "of those that", name, stages ? "" : " is one of");
}

/* Reports missing files: the shards between the previous one and this one; after the last, those up
 * to `of`; the stages before the first one. */
static sheaf_status *note_gaps(bool *damaged, sheaf_catalog *c, const char *dir,
                               const sheaf__names *names, const char *name, const shard_name *is)
{
    int64_t number = 0, stage = 0;
    bool last = is->of > 0, first = true;
    for (int64_t i = 0; i < names->count; i++) {
        shard_name other;
        if (!sheaf__is_weights(names->at[i]) || !shard_of_name(&other, names->at[i]) ||
            other.of != is->of)
            continue;
        last = last && other.number <= is->number;
        if (other.stem != is->stem || strncmp(names->at[i], name, is->stem) != 0)
            continue;
        if (other.stage == is->stage && other.number < is->number) {
            number = other.number > number ? other.number : number;
            first = false;
        } else if (other.stage < is->stage && other.stage > stage)
            stage = other.stage;
    }
    sheaf_status *st = note_gap(damaged, c, dir, false, number + 1, is->number, name);
    TRY(st, note_gap(damaged, c, dir, false, is->number + 1, last ? is->of + 1 : 0, name));
    return TRY(st, first ? note_gap(damaged, c, dir, true, stage + 1, is->stage, name) : NULL);
}

/* Shards by their names alone: those of the division with most files; others are left from another
 * save. */
static sheaf_status *read_shards(bool *damaged, const sheaf__whole *whole, const char *dir,
                                 const sheaf__names *names)
{
    int64_t of = 0, read = 0;
    sheaf_status *st = NULL;
    shard_name is;
    if (names->count > MOST_SHARDS) /* the loop below is quadratic */
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", dir), "at most %d files",
                              MOST_SHARDS);
    for (int64_t i = 0; i < names->count; i++) /* the division with most files */
        if (sheaf__is_weights(names->at[i]) && shard_of_name(&is, names->at[i])) {
            int64_t here = 0;
            for (int64_t k = 0; k < names->count; k++) {
                shard_name other;
                here += sheaf__is_weights(names->at[k]) && shard_of_name(&other, names->at[k]) &&
                        other.of == is.of;
            }
            if (here > read) {
                read = here;
                of = is.of;
            }
        }
    read = 0;
    for (int64_t i = 0; st == NULL && i < names->count; i++) {
        if (!sheaf__is_weights(names->at[i]) || !shard_of_name(&is, names->at[i]))
            continue;
        if (is.of != of) {
            char path[SHEAF_PATH_SIZE];
            st = sheaf__defect(whole->c, "stale", sheaf__path_in(path, dir, names->at[i]), "",
                               "shards of one save", "move it away",
                               "one of %" PRId64 " files, beside others of %" PRId64, is.of, of);
            continue;
        }
        read++;
        st = note_gaps(damaged, whole->c, dir, names, names->at[i], &is);
        TRY(st, read_one(damaged, whole, dir, names->at[i]));
    }
    if (st == NULL && read > 0)
        st = sheaf__warning(whole->c, "missing", dir, "", "an index of the shards",
                            "sheaf convert {} {+indexed} --to hf{config}",
                            "none; %" PRId64 " files were read by their names", read);
    return st;
}

/* Reads the weights of a folder, in transformers' order of preference. */
sheaf_status *sheaf__whole_folder(bool *damaged, sheaf__whole *whole, const char *dir,
                                  const sheaf__names *names)
{
    static const char *const forms[][2] = { { "model.safetensors", "model.safetensors.index.json" },
                                            { "pytorch_model.bin",
                                              "pytorch_model.bin.index.json" } };
    for (int i = 0; i < 2; i++) {
        const bool single = sheaf__names_has(names, forms[i][0]),
                   index = sheaf__names_has(names, forms[i][1]);
        sheaf_status *st = NULL;
        if (single && index)
            st = sheaf__defect(
                whole->c, "duplicate", dir, "", "one of them", "move the stale one away",
                "both %s and %s: one is left from another save", forms[i][0], forms[i][1]);
        if (single || index)
            return st != NULL ? st
                   : single   ? read_one(damaged, whole, dir, forms[i][0])
                              : read_index(damaged, whole, dir, forms[i][1], names);
    }
    int64_t indexes = 0, singles = 0, shards = 0, index = -1, single = -1;
    shard_name is;
    for (int64_t i = 0; i < names->count; i++) {
        if (sheaf__is_weights_index(names->at[i]) && indexes++ == 0)
            index = i;
        if (!sheaf__is_weights(names->at[i]))
            continue;
        shards += shard_of_name(&is, names->at[i]);
        single = singles++ == 0 ? i : single;
    }
    if (indexes == 1)
        return read_index(damaged, whole, dir, names->at[index], names);
    if (indexes == 0 && shards > 0)
        return read_shards(damaged, whole, dir, names);
    if (indexes == 0 && singles == 1)
        return read_one(damaged, whole, dir, names->at[single]);
    *damaged = true;
    if (indexes == 0 && singles == 0)
        return sheaf__defect(whole->c, "missing", dir, "",
                             "model.safetensors, or shards and their index",
                             "copy or download the weights too", "no weights in this folder");
    return sheaf__defect(whole->c, "conflict", dir, "", "one model in a folder",
                         "give the file itself instead of the folder",
                         "%" PRId64 " files, each of which could be it (%s, ...)",
                         indexes > 0 ? indexes : singles, names->at[indexes > 0 ? index : single]);
}
