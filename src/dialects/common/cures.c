/* cures.c - the command that cures a config which is missing or another model's; see model.h. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/text.h"
#include "dialects/common/model.h"
#include "dialects/common/vocabulary.h"
#include "schema/schema.h"

enum { MOST_PLACES = 256 }; /* folders that are looked into for a config */

/* ---- a config that fits ---- */

static bool same_shape(const sheaf_tensor *want, const sheaf_source_entry *is, int64_t vocab)
{
    bool same = want->ndim == is->ndim;
    for (int d = 0; same && d < want->ndim; d++)
        same = want->shape[d] == is->shape[d] ||
               (d == 0 && sheaf__is_vocabulary(is->name) && want->shape[0] == vocab &&
                sheaf__vocabulary_padded(is->shape[0], vocab));
    return same;
}

/* Is it the config of a model that has all of these tensors, in their shapes? */
static bool fits(const sheaf_catalog *c, const char *path)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    int64_t weights = 0;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE ||
        (c->config_path != NULL && strcmp(path, c->config_path) == 0))
        return false;
    sheaf_status *st = sheaf_config_read(&config, path);
    TRY(st, sheaf_schema_new(&schema, &config, 1));
    bool yes = st == NULL;
    for (int64_t i = 0; yes && i < c->count; i++) {
        if (c->tensor[i].kind != SHEAF_WEIGHT)
            continue;
        const sheaf_tensor *t = sheaf_schema_find(schema, c->tensor[i].told.name);
        yes = t != NULL && same_shape(t, &c->tensor[i].told, config.vocab);
        weights++;
    }
    sheaf_status_free(st);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return yes && weights > 0;
}

/* *out = a config in `dir` that fits; NULL when there is none. */
static sheaf_status *in_folder(char **out, const sheaf_catalog *c, const char *dir)
{
    static const char *const names[] = { "config.json", "model_config.json" };
    sheaf_status *st = NULL;
    for (size_t i = 0; st == NULL && *out == NULL && i < sizeof names / sizeof *names; i++) {
        char *path = NULL;
        st = sheaf__path_join(&path, dir, names[i]);
        if (st == NULL && fits(c, path)) {
            *out = path;
            path = NULL;
        }
        free(path);
    }
    return st;
}

/* In `dir` and in the folders in it. */
static sheaf_status *below(char **out, const sheaf_catalog *c, const char *dir)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = in_folder(out, c, dir);
    sheaf_status *unlisted = sheaf__list_dir(&names, &n, dir);
    if (unlisted != NULL)
        n = 0;
    for (int64_t i = 0; st == NULL && *out == NULL && i < n && i < MOST_PLACES; i++) {
        char *path = NULL;
        st = sheaf__path_join(&path, dir, names[i]);
        TRY(st, sheaf__path_kind(path) == SHEAF_PATH_DIR ? in_folder(out, c, path) : NULL);
        free(path);
    }
    sheaf_status_free(unlisted);
    sheaf__names_free(names, n);
    return st;
}

sheaf_status *sheaf__config_cure(char **out, const sheaf_catalog *c)
{
    const bool folder = sheaf__path_kind(c->root) == SHEAF_PATH_DIR;
    char *beside = NULL, *found = NULL;
    sheaf_text text = { 0 };
    *out = NULL;
    sheaf_status *st = folder ? below(&found, c, c->root) : NULL;
    TRY(st, sheaf__path_parent(&beside, c->root));
    TRY(st, found == NULL ? below(&found, c, beside) : NULL);
    if (st == NULL && found != NULL) {
        sheaf__text_add(&text, "sheaf verify ");
        sheaf__text_word(&text, c->root);
        sheaf__text_add(&text, " --config ");
        sheaf__text_word(&text, found);
    } else if (st == NULL) {
        sheaf__text_add(&text, "give the path of this model's %s with --config, or copy it into ",
                        c->dialect->config != NULL ? c->dialect->config : "config.json");
        sheaf__text_word(&text, folder ? c->root : beside);
    }
    TRY(st, sheaf__text_take(out, &text));
    sheaf__text_release(&text);
    free(found);
    free(beside);
    return st;
}

sheaf_status *sheaf__config_note(sheaf_catalog *c, sheaf_severity severity, const char *code,
                                 const char *path, const char *tensor, const char *expected,
                                 const char *found)
{
    char *cure = NULL;
    sheaf_status *st = sheaf__config_cure(&cure, c);
    TRY(st, sheaf__catalog_note(c, severity, code, path, tensor, expected, found, cure));
    free(cure);
    return st;
}
