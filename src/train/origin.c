/* origin.c - see origin.h. */
#include "train/origin.h"

#include <sys/stat.h>
#include <time.h>

#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/version.h"
#include "lora/adapter.h"

static const char memory_for[] = "the start of the run";

/* ---- files ---- */

static const int64_t second = 1000000000;

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * second + t->tv_nsec;
}

/* *newest: the later of its times. An empty stamp, of a file without access, equals no other. */
static sheaf_status *stamp_of(char **out, int64_t *newest, const char *path)
{
    struct stat s;
    *newest = INT64_MAX;
    if (stat(path, &s) != 0)
        return (*out = strdup("")) == NULL ? sheaf__no_memory(memory_for) : NULL;
    const int64_t changed = nanoseconds(&s.st_mtim), touched = nanoseconds(&s.st_ctim);
    *newest = changed > touched ? changed : touched;
    if (asprintf(out, "%jx:%jx:%jd:%" PRId64 ":%" PRId64, (uintmax_t)s.st_dev, (uintmax_t)s.st_ino,
                 (intmax_t)s.st_size, changed, touched) < 0) {
        *out = NULL;
        return sheaf__no_memory(memory_for);
    }
    return NULL;
}

static sheaf_status *take_stamps(sheaf__origin *o)
{
    struct timespec now;
    int64_t newest;
    sheaf_status *st = NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    o->began = nanoseconds(&now);
    o->stamp = calloc((size_t)o->opened->nfiles + 1, sizeof *o->stamp);
    if (o->stamp == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < o->opened->nfiles && st == NULL; i++)
        st = stamp_of(&o->stamp[i], &newest, o->opened->file[i]);
    return st;
}

/* Are they the files that were hashed before? */
static bool same_files(const sheaf__origin *o)
{
    const json_t *files = json_object_get(o->known, "files");
    const int64_t n = (int64_t)json_array_size(files);
    bool same = n > 0 && n == o->opened->nfiles;
    for (int64_t i = 0; i < n && same; i++) {
        const char *was = json_string_value(json_array_get(json_array_get(files, (size_t)i), 1));
        same = was != NULL && was[0] != '\0' && strcmp(was, o->stamp[i]) == 0;
    }
    return same;
}

/* Do the stamps identify the bytes read? Not if a file changed meanwhile, or is so new that a
 * change may not show in its times. */
static sheaf_status *stamps_hold(bool *hold, const sheaf__origin *o)
{
    sheaf_status *st = NULL;
    *hold = o->opened->nfiles > 0;
    for (int64_t i = 0; i < o->opened->nfiles && st == NULL && *hold; i++) {
        char *now = NULL;
        int64_t newest;
        st = stamp_of(&now, &newest, o->opened->file[i]);
        *hold = st == NULL && now[0] != '\0' && strcmp(now, o->stamp[i]) == 0 &&
                newest < o->began - 2 * second;
        free(now);
    }
    return st;
}

/* ---- fingerprints ---- */

/* The command writes run.json; one that cannot be read is ignored. */
static sheaf_status *read_known(sheaf__origin *o, const char *out)
{
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL;
    if (out == NULL || !sheaf__path_has(out, "run.json", SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st =
        sheaf__only_memory(sheaf__json_load(&root, sheaf__path_in(path, out, "run.json")));
    json_t *base = json_object_get(root, "base");
    if (json_integer_value(json_object_get(base, "version")) == SHEAF__ORIGIN_VERSION)
        o->known = json_incref(base);
    json_decref(root);
    return st;
}

static sheaf_status *hash_file(char out[33], const char *path)
{
    sheaf_hash hash;
    sheaf_status *st = sheaf__path_hash(&hash, path, NULL);
    if (st == NULL)
        sheaf__hash_text(out, hash);
    return st;
}

static sheaf_status *hash_tokenizer(sheaf__origin *o, const sheaf__origin_from *from)
{
    char beside[SHEAF_PATH_SIZE];
    const bool own = sheaf__is_given(from->tokenizer);
    if (!own && !sheaf__is_given(from->model))
        return NULL;
    const char *path =
        own ? from->tokenizer : sheaf__path_in(beside, from->model, "tokenizer.model");
    return sheaf__path_kind(path) == SHEAF_PATH_FILE ? hash_file(o->tokenizer, path) : NULL;
}

static sheaf_status *hash_adapter(sheaf__origin *o)
{
    if (o->opened->adapter == NULL)
        return NULL;
    sheaf_lora_options options = o->opened->lora->options;
    options.base_name = NULL; /* the base's path then */
    sheaf_status *st = sheaf_lora_options_json(&o->adapter_config, &options);
    TRY(st, sheaf__hashed_new(&o->adapter_print, o->opened->adapter, NULL));
    TRY(st, sheaf__hashed_all(o->adapter_print, 1));
    return st == NULL ? sheaf__hashed_weights(o->adapter, o->adapter_print) : st;
}

sheaf_status *sheaf__origin_begin(sheaf__origin *o, const sheaf__opened *opened,
                                  const sheaf__origin_from *from)
{
    *o = (sheaf__origin){ .opened = opened, .tokens = from->tokens == NULL ? "" : from->tokens };
    sheaf_status *st = take_stamps(o);
    TRY(st, read_known(o, from->out));
    if (st == NULL && same_files(o)) {
        const char *weights = json_string_value(json_object_get(o->known, "weights"));
        snprintf(o->weights, sizeof o->weights, "%s", weights == NULL ? "" : weights);
        if (o->weights[0] != '\0')
            sheaf__hashed_stop(opened->hashed);
    }
    TRY(st, sheaf__fingerprint(o->first_and_last, opened->schema, opened->weights));
    TRY(st, hash_tokenizer(o, from));
    return st == NULL ? hash_adapter(o) : st;
}

sheaf_status *sheaf__origin_end(sheaf__origin *o)
{
    return o->weights[0] != '\0' ? NULL : sheaf__hashed_weights(o->weights, o->opened->hashed);
}

void sheaf__origin_release(sheaf__origin *o)
{
    for (int64_t i = 0; o->stamp != NULL && i < o->opened->nfiles; i++)
        free(o->stamp[i]);
    free(o->stamp);
    free(o->adapter_config);
    sheaf__hashed_free(o->adapter_print);
    json_decref(o->known);
    *o = (sheaf__origin){ 0 };
}

/* ---- as text ---- */

static void add_origin(sheaf_text *t, const sheaf__origin *o)
{
    const struct {
        const char *key, *value;
    } rows[] = {
        { "adapter", o->adapter },
        { "adapter_config", o->adapter_config == NULL ? "" : o->adapter_config },
        { "config", o->opened->config_text },
        { "tokenizer", o->tokenizer },
        { "weights", o->weights },
        { "tokens", o->tokens },
    };
    sheaf__text_add(t, "{\"version\": %d", SHEAF__ORIGIN_VERSION);
    for (size_t i = 0; i < sizeof rows / sizeof *rows - (o->tokens[0] == '\0'); i++) {
        sheaf__text_add(t, ", \"%s\": ", rows[i].key);
        sheaf__text_json(t, rows[i].value);
    }
}

sheaf_status *sheaf__origin_text(char **out, const sheaf__origin *o)
{
    sheaf_text t = { 0 };
    add_origin(&t, o);
    sheaf__text_add(&t, "}");
    return sheaf__text_take(out, &t);
}

static void add_tensors(sheaf_text *t, const sheaf__hashed *print)
{
    for (int64_t i = 0; i < sheaf__hashed_count(print); i++) {
        char hash[33];
        const char *name = sheaf__hashed_tensor(hash, print, i);
        sheaf__text_add(t, i == 0 ? "" : ", ");
        sheaf__text_json(t, name);
        sheaf__text_add(t, ": \"%s\"", hash);
    }
}

/* Hashed now, or known from before. */
static sheaf_status *add_hashes(sheaf_text *t, const sheaf__origin *o)
{
    char *known = NULL;
    sheaf_status *st = NULL;
    if (same_files(o)) {
        st = sheaf__json_text(&known, json_object_get(o->known, "tensors"), JSON_COMPACT);
        sheaf__text_add(t, ", \"tensors\": %s", known == NULL ? "{}" : known);
    } else {
        sheaf__text_add(t, ", \"tensors\": {");
        add_tensors(t, o->opened->hashed);
        sheaf__text_add(t, "}");
    }
    free(known);
    sheaf__text_add(t, ", \"adapter_tensors\": {");
    if (o->adapter_print != NULL)
        add_tensors(t, o->adapter_print);
    sheaf__text_add(t, "}");
    return st;
}

sheaf_status *sheaf__origin_record(char **out, const sheaf__origin *o)
{
    sheaf_text t = { 0 };
    bool hold = false;
    sheaf_status *st = stamps_hold(&hold, o);
    add_origin(&t, o);
    TRY(st, add_hashes(&t, o));
    sheaf__text_add(&t, ", \"files\": [");
    for (int64_t i = 0; hold && i < o->opened->nfiles; i++) {
        sheaf__text_add(&t, i == 0 ? "[" : ", [");
        sheaf__text_json(&t, o->opened->file[i]);
        sheaf__text_add(&t, ", \"%s\"]", o->stamp[i]);
    }
    sheaf__text_add(&t, "]}");
    TRY(st, sheaf__text_take(out, &t));
    sheaf__text_release(&t);
    return st;
}

/* ---- comparison ---- */

static sheaf_status *differs(const sheaf__origin_words *w, const char *part, const char *was,
                             const char *is, int64_t more)
{
    sheaf_status *st =
        more == 0 ? sheaf_fail(w->code, "%s: %s", w->what, part)
                  : sheaf_fail(w->code, "%s: %s, and %" PRId64 " more", w->what, part, more);
    sheaf_expected(st, "%s, %s", was, w->began);
    sheaf_found(st, "%s", is);
    return sheaf_try_this(st, "%s", w->cure);
}

/* Texts of lines "KEY: VALUE" of what `whole` names. */
static sheaf_status *check_lines(const char *whole, const char *was, const char *is,
                                 const sheaf__origin_words *w)
{
    sheaf__line_change d;
    char part[160], value[2][SHEAF__LINE_VALUE];
    if (!sheaf__lines_differ(&d, was, is, ':'))
        return NULL;
    snprintf(part, sizeof part, "%s %.*s", whole, (int)d.key, d.line);
    return differs(w, part, sheaf__line_value(value[0], d.was), sheaf__line_value(value[1], d.is),
                   d.more);
}

/* Names the tensors that differ, if run.json has their fingerprints. */
static sheaf_status *hash_differs(const sheaf__origin *o, const sheaf__origin_words *w,
                                  const char *key, const char *tensors, const sheaf__hashed *print,
                                  const char *whole, const char *was, const char *is)
{
    const char *known = json_string_value(json_object_get(o->known, key));
    const json_t *of =
        known != NULL && strcmp(known, was) == 0 ? json_object_get(o->known, tensors) : NULL;
    char part[400], expected[80], found[80], hash[33];
    int64_t n = 0;
    snprintf(part, sizeof part, "%s", whole);
    for (int64_t i = 0; of != NULL && print != NULL && i < sheaf__hashed_count(print); i++) {
        const char *name = sheaf__hashed_tensor(hash, print, i),
                   *before = json_string_value(json_object_get(of, name));
        if ((before == NULL || strcmp(before, hash) != 0) && n++ == 0)
            snprintf(part, sizeof part, "%s%s, tensor '%.300s'", whole,
                     before == NULL ? " (which the run did not have)" : "", name);
    }
    snprintf(expected, sizeof expected, "fingerprint %s", was[0] == '\0' ? "none" : was);
    snprintf(found, sizeof found, "another, %s", is[0] == '\0' ? "none" : is);
    return differs(w, part, expected, found, n > 1 ? n - 1 : 0);
}

static const char *text_of(const json_t *was, const char *key)
{
    const char *text = json_string_value(json_object_get(was, key));
    return text == NULL ? "" : text;
}

sheaf_status *sheaf__origin_weights(char out[33], const char *progress)
{
    json_t *root = NULL;
    sheaf_status *st =
        progress != NULL ? sheaf__json_parse(&root, progress, strlen(progress)) : NULL;
    snprintf(out, 33, "%s", text_of(json_object_get(root, "origin"), "weights"));
    json_decref(root);
    return st;
}

sheaf_status *sheaf__origin_check(const sheaf__origin *o, const json_t *progress,
                                  const sheaf__origin_words *w)
{
    const json_t *was = progress == NULL ? o->known : json_object_get(progress, "origin");
    if (progress == NULL && was == NULL)
        return NULL;
    sheaf_status *st = sheaf__version_check(
        "format", json_integer_value(json_object_get(was, "version")), SHEAF__ORIGIN_VERSION);
    if (st != NULL)
        return sheaf_in(st, "%s", w->what);
    const char *tokenizer = text_of(was, "tokenizer"), *adapter = text_of(was, "adapter"),
               *weights = text_of(was, "weights");
    const char *options = text_of(was, "adapter_config"),
               *config = o->adapter_config == NULL ? "" : o->adapter_config;
    st = check_lines("config,", text_of(was, "config"), o->opened->config_text, w);
    if (st == NULL && strcmp(weights, o->weights) != 0)
        st = hash_differs(o, w, "weights", "tensors", o->opened->hashed, "weights", weights,
                          o->weights);
    if (st == NULL && tokenizer[0] != '\0' && o->tokenizer[0] != '\0' &&
        strcmp(tokenizer, o->tokenizer) != 0)
        st = differs(w, "tokenizer", tokenizer, o->tokenizer, 0);
    if (st != NULL || w->base_only)
        return st;
    if (strcmp(options, config) != 0)
        st = differs(w, "adapter_config.json of the adapter it starts from",
                     options[0] == '\0' ? "no adapter" : options,
                     config[0] == '\0' ? "no adapter" : config, 0);
    if (st == NULL && strcmp(adapter, o->adapter) != 0)
        st = hash_differs(o, w, "adapter", "adapter_tensors", o->adapter_print,
                          "the adapter it starts from", adapter, o->adapter);
    return TRY(st, check_lines("`add-tokens`, token", text_of(was, "tokens"), o->tokens, w));
}

/* ---- texts of lines ---- */

static const char *next(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static const char *value_of(const char *text, const char *key, size_t n, char separator)
{
    for (const char *line = text; *line != '\0'; line = next(line))
        if (strncmp(line, key, n) == 0 && line[n] == separator)
            return line + n + 1 + (line[n + 1] == ' ');
    return NULL;
}

int sheaf__line_size(const char *value)
{
    return value == NULL ? 0 : (int)strcspn(value, "\n");
}

const char *sheaf__line_value(char out[SHEAF__LINE_VALUE], const char *value)
{
    snprintf(out, SHEAF__LINE_VALUE, "%.*s", value == NULL ? 4 : sheaf__line_size(value),
             value == NULL ? "none" : value);
    return out;
}

bool sheaf__lines_differ(sheaf__line_change *out, const char *was, const char *is, char separator)
{
    const char ends[] = { separator, '\n', '\0' };
    int64_t n = 0;
    if (strcmp(was, is) == 0)
        return false;
    for (int side = 0; side < 2; side++)
        for (const char *line = side == 0 ? was : is; *line != '\0'; line = next(line)) {
            const size_t key = strcspn(line, ends);
            const char *a = value_of(was, line, key, separator),
                       *b = value_of(is, line, key, separator);
            const int size = sheaf__line_size(a);
            const bool same = a != NULL && b != NULL && size == sheaf__line_size(b) &&
                              strncmp(a, b, (size_t)size) == 0;
            if (same || (side == 1 && a != NULL))
                continue;
            if (n++ == 0)
                *out = (sheaf__line_change){ line, key, a, b, 0 };
        }
    if (n > 0)
        out->more = n - 1;
    return n > 0;
}
