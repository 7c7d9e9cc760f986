/* catalog.c - PEFT adapter folders as catalogs: adapter_config.json, adapter_model.safetensors or
 * .bin.
 *
 * Tensors have the names that PEFT saves (peft.h). adapter_model.bin is
 * read where there is no adapter_model.safetensors. */
#include "base/base.h"
#include "dialects/common/dialects.h"

#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "dialects/common/whole.h"
#include "dialects/peft/peft.h"
#include "schema/paths.h"

static const char *const files[] = { "adapter_model.safetensors", "adapter_model.bin" };

static bool peft_is(const char *path)
{
    static const char *const models[] = { "model.safetensors", "model.safetensors.index.json",
                                          "pytorch_model.bin", "pytorch_model.bin.index.json" };
    const char *name = sheaf__last_part(path);
    if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return strcmp(name, files[0]) == 0 || strcmp(name, files[1]) == 0;
    bool yes = sheaf__has_file(path, "adapter_config.json");
    for (int i = 0; yes && i < 4; i++) /* a whole model that contains its adapter */
        yes = !sheaf__has_file(path, models[i]);
    return yes || sheaf__has_file(path, files[0]) || sheaf__has_file(path, files[1]);
}

/* With bias "all" PEFT writes the biases of a saved module three times: by their plain names, which
 * it reads, and as its wrapper calls its copy and the base's. */
typedef struct copies {
    const sheaf_catalog *c;
    bool again;    /* second pass: wrapped names without a plain one */
    bool found;    /* a wrapped name exists */
    char word[64]; /* word of a model's wrapper in a name; "" = none */
} copies;

static void find_word(copies *x, const char *stored)
{
    char *name = x->word[0] == '\0' ? strdup(stored) : NULL;
    const char *word = name != NULL ? sheaf__unwrap(name) : NULL;
    if (word != NULL)
        snprintf(x->word, sizeof x->word, "%s", word);
    free(name);
}

static bool is_wanted(void *context, const char *path, const char *stored)
{
    copies *x = context;
    const bool wrapped = strstr(stored, ".modules_to_save.") != NULL;
    char *plain = NULL;
    find_word(x, stored);
    if (strstr(stored, ".original_module.") != NULL)
        return false;
    x->found = x->found || wrapped;
    if (!x->again || !wrapped) /* plain names first, the others after them */
        return !wrapped && !x->again;
    sheaf_status *st = sheaf__peft_name(&plain, stored);
    const bool wanted = st != NULL || sheaf__catalog_find(x->c, plain) == NULL;
    sheaf_status_free(st); /* lack of memory is reported by the reader, which needs the name too */
    free(plain);
    return wanted;
}

static sheaf_status *read_file(bool *read, sheaf_catalog *c, const char *path)
{
    copies x = { .c = c };
    sheaf__whole whole = { .c = c,
                           .rank = -1,
                           .rename = sheaf__peft_name,
                           .as_stored = c->as_stored,
                           .buffers = true,
                           .wants = is_wanted,
                           .context = &x };
    sheaf_status *st = sheaf__whole_file(read, &whole, path);
    if (st == NULL && x.word[0] != '\0' && !c->as_stored)
        st = sheaf__note(c, "inferred", path, "", "names as PEFT saves them", "",
                         "names with '%s', which is left out: PEFT finds no place "
                         "for them",
                         x.word);
    if (st != NULL || !*read || !x.found)
        return st;
    x.again = true;
    return sheaf__whole_file(read, &whole, path);
}

static sheaf_status *read_folder(sheaf_catalog *c, const char *dir)
{
    const bool old = !sheaf__has_file(dir, files[0]) && sheaf__has_file(dir, files[1]);
    char path[SHEAF_PATH_SIZE];
    bool read = false;
    sheaf_status *st = read_file(&read, c, sheaf__path_in(path, dir, files[old]));
    for (int64_t i = 0; i < c->count; i++)
        c->tensor[i].kind =
            strstr(c->tensor[i].entry.name, ".lora_") != NULL ? SHEAF_LORA : SHEAF_WEIGHT;
    return st;
}

/* Known other weights: accelerate's copy of the adapter, another adapter, a merge's output. */
static bool is_known(const char *name)
{
    return strncmp(name, "pytorch_model_fsdp", 18) == 0 || strncmp(name, "merged", 6) == 0 ||
           strstr(name, "adapter") != NULL;
}

/* Weights that a training program saves beside the adapter, as LLaVA's non_lora_trainables.bin: of
 * modules that it trained in full, which the adapter does not name. */
static sheaf_status *check_beside(sheaf_catalog *c, const char *dir)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, dir);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        char path[SHEAF_PATH_SIZE];
        if (sheaf__is_weights(names[i]) && !is_known(names[i]) && sheaf__has_file(dir, names[i]))
            st = sheaf__defect(
                c, "unsupported", sheaf__path_in(path, dir, names[i]), "",
                "no weights but the adapter's own",
                "put its tensors into the base with the program that wrote it, and give that base; "
                "a file that is no part of the adapter: move it away",
                "a file of weights beside the adapter, which would be passed over");
    }
    sheaf__names_free(names, n);
    return st;
}

static sheaf_status *check_config(sheaf_catalog *c)
{
    json_t *root = NULL;
    if (c->config == NULL)
        return sheaf__defect(c, "missing", c->root, "", "adapter_config.json",
                             "copy adapter_config.json too",
                             "no config: rank, alpha and targets are not known");
    sheaf_status *st = sheaf__catalog_defect(
        c, c->config_path, sheaf__json_parse(&root, c->config, strlen(c->config)));
    json_decref(root);
    return st;
}

static sheaf_status *peft_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    char above[SHEAF_PATH_SIZE];
    const bool folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    const char *dir = folder ? path : sheaf__path_above(above, path);
    c->as_stored = hints->as_stored;
    sheaf_status *st = sheaf__catalog_find_config(c, NULL, dir, "adapter_config.json");
    TRY(st, !hints->as_stored ? check_config(c) : NULL);
    TRY(st, read_folder(c, dir));
    return TRY(st, folder ? check_beside(c, path) : NULL);
}

const sheaf_dialect sheaf__dialect_peft = {
    .name = "peft",
    .title = "PEFT adapter",
    .is = peft_is,
    .read = peft_read,
    .writes = SHEAF_WRITES_ADAPTER,
    .adapter = true,
    .plain = true,
    .whole = true,
};
