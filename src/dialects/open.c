/* open.c - see open.h. */
#include "dialects/open.h"

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/save.h"
#include "dialects/common/dialects.h"
#include "dialects/peft/peft.h"

/* ---- recognising ---- */

static sheaf_status *find_dialect(const sheaf_dialect **out, const char *path,
                                  const sheaf_dialect_hints *h)
{
    const bool own =
        h->own != NULL && (h->from != NULL ? strcmp(h->from, h->own->name) == 0 : h->own->is(path));
    *out = own ? h->own : h->from != NULL ? sheaf__dialect_named(h->from) : sheaf__dialect_of(path);
    if (*out == NULL && h->from == NULL) /* is() cannot report lack of memory */
        *out = sheaf__dialect_of(path);
    if (*out == NULL && h->config_only && sheaf__path_kind(path) == SHEAF_PATH_DIR)
        *out = &sheaf__dialect_hf;
    if (*out == NULL && h->from != NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`from %s`", h->from),
                              "a dialect that sheaf reads (docs/dialects.md)");
    return NULL;
}

/* The content of a folder, by name if that is short. */
static void name_what_is_there(sheaf_status *st, char *const *names, int64_t n)
{
    enum { FEW = 3 };
    sheaf_text list = { 0 };
    for (int64_t i = 0; i < n && i < FEW; i++)
        sheaf__text_add(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    if (n > FEW)
        sheaf__text_add(&list, " and %" PRId64 " more", n - FEW);
    sheaf_found(st, "%s", n == 0 ? "an empty folder" : list.at != NULL ? list.at : "other files");
    sheaf__text_release(&list);
}

/* A single file without weights. */
static sheaf_status *name_file(sheaf_status *st, const char *path)
{
    char folder[SHEAF_PATH_SIZE];
    sheaf_found(st, "a file that holds no weights");
    if (sheaf__dialect_of(sheaf__path_above(folder, path)) != NULL)
        sheaf_try_this(st, "give the folder that it is in: %s", folder);
    return st;
}

/* A save of DeepSpeed, SAT or Megatron that names a step whose folder is gone. */
static sheaf_status *name_latest(sheaf_status *st, const char *path)
{
    char *latest = NULL, folder[SHEAF_PATH_SIZE];
    sheaf_status *bad = sheaf__tracker_read(&latest, path, "latest");
    const bool named = latest != NULL || (bad == NULL && sheaf__tracker_iteration(folder, path));
    if (latest != NULL)
        sheaf__path_in(folder, path, latest);
    if (named && sheaf__path_kind(folder) == SHEAF_PATH_NONE)
        sheaf_found(st, "a file %s that names %.100s, which is not there",
                    latest != NULL ? "latest" : sheaf__iteration_tracker, sheaf__last_part(folder));
    free(latest);
    return bad;
}

/* No known dialect here, but perhaps one folder down: without `latest` tag folders are not
 * searched. */
static sheaf_status *not_known(const char *path, const sheaf_dialect_hints *h)
{
    sheaf_status *st = sheaf_expected(
        sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: no dialect that sheaf knows", path),
        h->want == SHEAF_WANT_MODEL
            ? "a model: its config.json and weights, or a checkpoint of another program"
            : "one of those listed in docs/dialects.md");
    char **names = NULL, below[SHEAF_PATH_SIZE];
    bool is_below = false;
    int64_t n = 0;
    if (sheaf__path_kind(path) == SHEAF_PATH_OTHER)
        return sheaf_found(st, "%s", sheaf__path_what(path));
    if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return name_file(st, path);
    sheaf_status *bad = sheaf__list_dir(&names, &n, path);
    if (bad != NULL) {
        sheaf_status_free(st);
        return bad;
    }
    if (h->want == SHEAF_WANT_MODEL)
        sheaf_try_this(
            st,
            "give the model's own folder, or the config with `config`; sheaf info %s shows what is there",
            path);
    name_what_is_there(st, names, n);
    bad = name_latest(st, path);
    for (int64_t i = n; i-- > 0 && !is_below;)
        is_below = sheaf__path_kind(sheaf__path_in(below, path, names[i])) == SHEAF_PATH_DIR &&
                   sheaf__dialect_of(below) != NULL;
    sheaf__names_free(names, n);
    if (bad != NULL)
        sheaf_status_free(st);
    else if (is_below)
        sheaf_try_this(st, "give '%s', where a checkpoint lies", below);
    return bad != NULL ? bad : st;
}

/* Is it what the caller wants? */
static sheaf_status *check_wanted(const sheaf_dialect **dialect, const char *path,
                                  const sheaf_dialect_hints *h)
{
    char *config = NULL;
    const bool adapter = *dialect != NULL && (*dialect)->adapter;
    if (h->want == SHEAF_WANT_ADAPTER && !adapter) {
        sheaf_status *st = sheaf_peft_config_path(&config, path); /* says what is there instead */
        *dialect = &sheaf__dialect_peft;
        free(config);
        return st;
    }
    if (h->want != SHEAF_WANT_MODEL || !adapter)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: no model here", path);
    sheaf_found(sheaf_expected(
                    st, "a model: its config.json and weights, or a checkpoint of another program"),
                "a PEFT adapter");
    return sheaf_try_this(st, "give it as `adapter`, with the model it was made for as `model`");
}

/* A --config that is no file is an error of the flag, not of the checkpoint. */
static sheaf_status *check_config(const char *config)
{
    if (config == NULL || sheaf__path_kind(config) == SHEAF_PATH_FILE)
        return NULL;
    sheaf_status *st =
        sheaf__path_kind(config) == SHEAF_PATH_NONE ? sheaf__dialect_denied(config, NULL) : NULL;
    if (st != NULL)
        return sheaf_in(st, "`config`");
    st = sheaf_fail(SHEAF_E_IO, "`config %s`", config);
    sheaf_found(sheaf_expected(st, "the model's config.json"), "%s", sheaf__path_what(config));
    return sheaf_try_this(st, "check the path given to `config`");
}

/* ---- opening ---- */

sheaf_status *sheaf__open(sheaf_catalog **out, const char *path, const sheaf_dialect_hints *hints)
{
    const sheaf_dialect_hints none = { 0 }, *h = hints != NULL ? hints : &none;
    const sheaf_dialect *dialect = NULL;
    *out = NULL;
    sheaf_status *st = check_config(h->config);
    TRY(st, find_dialect(&dialect, path, h));
    if (st == NULL && (dialect == NULL || sheaf__path_kind(path) == SHEAF_PATH_NONE))
        st = sheaf__dialect_denied(path, NULL);
    if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_NONE)
        st = sheaf__path_hub(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s: nothing there", path),
                                            "a folder or file of a checkpoint"),
                             path);
    TRY(st, check_wanted(&dialect, path, h));
    TRY(st, dialect == NULL ? not_known(path, h) : NULL);
    TRY(st, sheaf__dialect_read(out, dialect, path, h));
    TRY(st, sheaf__dialect_check(*out, h));
    if (st != NULL) {
        sheaf__catalog_free(*out);
        *out = NULL;
    }
    return st;
}

sheaf_status *sheaf__open_config(sheaf_config *out, const sheaf_catalog *c)
{
    if (c->config != NULL)
        return sheaf_in(sheaf_config_parse(out, c->config, strlen(c->config)), "%s",
                        c->config_path != NULL ? c->config_path : c->root);
    sheaf_status *st = sheaf__catalog_refusal(c); /* may be about the config */
    if (st != NULL)
        return st;
    const bool sat = strcmp(c->dialect->name, "sat") == 0;
    st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", c->root), "the model's config");
    sheaf_found(st, sat ? "no model_config.json" : "no config.json");
    return sheaf_try_this(st,
                          "%s, or with `config` the path of a config.json; sheaf info %s shows "
                          "what is there",
                          sat ? "put the model_config.json that SAT wrote beside it"
                              : "give the model's own folder",
                          c->root);
}

sheaf_status *sheaf__open_source(sheaf_source **out, const char *path,
                                 const sheaf_dialect_hints *hints)
{
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__open(&c, path, hints);
    return st != NULL ? st : sheaf__catalog_source(out, c, c->dialect->adapter);
}
