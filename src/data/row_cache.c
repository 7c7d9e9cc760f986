/* row_cache.c - see row_cache.h. */
#include "data/row_cache.h"

#include <stddef.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/output.h"
#include "data/complaints.h"

enum { BEGIN, LABELS, TOKEN, TRAINED, PARTS };
enum { VERSION = 1 };
static const char *const names[PARTS] = { "begin", "labels", "token", "trained" };
static const char tag_name[] = "CACHEDIR.TAG",
                  tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                          "# Tokenised text of sheaf; it is made again when it is not here.\n";

static sheaf_status *tag_folder(const char *dir)
{
    char path[SHEAF_PATH_SIZE];
    sheaf__path_in(path, dir, tag_name);
    return sheaf__path_kind(path) == SHEAF_PATH_NONE
               ? sheaf__file_write_whole(path, tag, sizeof tag - 1)
               : NULL;
}

/* ---- writing ---- */

/* Rows are written immediately; their begins and numbers of labels are kept for the end. */
struct sheaf__row_cache_writer {
    sheaf_output *output;
    sheaf_file file[PARTS];      /* of TOKEN and TRAINED */
    sheaf_hasher *hasher[PARTS]; /* of all */
    int64_t *begin, begin_capacity;
    int32_t *labels;
    int64_t rows, tokens, labels_capacity;
    char key[64];
    char dir[SHEAF_PATH_SIZE], above[SHEAF_PATH_SIZE]; /* the folder of caches and its parent */
    bool made, made_above; /* created by this writer, and removed if it is abandoned */
};

static void writer_free(sheaf__row_cache_writer *w)
{
    for (int i = 0; i < PARTS; i++) {
        sheaf_status_free(sheaf__file_close(&w->file[i]));
        sheaf__hasher_free(w->hasher[i]);
    }
    free(w->begin);
    free(w->labels);
    free(w);
}

/* Folders with other files stay. */
static void leave_no_trace(const sheaf__row_cache_writer *w)
{
    char path[SHEAF_PATH_SIZE];
    if (!w->made)
        return;
    unlink(sheaf__path_in(path, w->dir, tag_name));
    if (rmdir(w->dir) == 0 && w->made_above)
        rmdir(w->above);
    else if (sheaf__path_kind(w->dir) == SHEAF_PATH_DIR) /* in use by others by now */
        sheaf_status_free(tag_folder(w->dir));
}

void sheaf__row_cache_abandon(sheaf__row_cache_writer *w)
{
    if (w == NULL)
        return;
    sheaf__output_abandon(w->output);
    leave_no_trace(w);
    writer_free(w);
}

static sheaf_status *start(sheaf__row_cache_writer *w)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < PARTS; i++) {
        w->hasher[i] = sheaf__hasher_new();
        if (w->hasher[i] == NULL)
            return sheaf__no_memory("cache of the data");
        if (i >= TOKEN)
            TRY(st, sheaf__output_create(&w->file[i], w->output, names[i]));
    }
    return st;
}

/* The folder with its tag. */
static sheaf_status *make_folder(sheaf__row_cache_writer *w, const char *dir)
{
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    w->made_above = sheaf__path_kind(sheaf__path_above(w->above, dir)) == SHEAF_PATH_NONE;
    w->made = sheaf__path_kind(dir) == SHEAF_PATH_NONE;
    sheaf_status *st = sheaf__make_dirs(dir);
    return st == NULL ? tag_folder(dir) : st;
}

sheaf_status *sheaf__row_cache_begin(sheaf__row_cache_writer **out, const char *dir,
                                     const char *key, const sheaf_events *events)
{
    char path[SHEAF_PATH_SIZE];
    sheaf__row_cache_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory("cache of the data");
    for (int i = 0; i < PARTS; i++)
        w->file[i].fd = -1;
    snprintf(w->key, sizeof w->key, "%s", key);
    sheaf_status *st = make_folder(w, dir);
    TRY(st, sheaf__output_sweep(sheaf__path_in(path, dir, key), events));
    TRY(st, sheaf__output_begin(&w->output, path, true));
    TRY(st, start(w));
    if (st != NULL)
        sheaf__row_cache_abandon(w);
    else
        *out = w;
    return st;
}

static int32_t count_labels(const uint8_t *trained, int64_t count)
{
    int32_t n = 0;
    for (int64_t i = 1; i < count; i++)
        n += trained[i] != 0;
    return n;
}

sheaf_status *sheaf__row_cache_put(sheaf__row_cache_writer *w, const int32_t *id,
                                   const uint8_t *trained, int64_t count)
{
    const size_t n = (size_t)count;
    if (!SHEAF_GROW(&w->begin, &w->begin_capacity, w->rows + 2) ||
        !SHEAF_GROW(&w->labels, &w->labels_capacity, w->rows + 1))
        return sheaf__no_memory("cache of the data");
    w->begin[0] = 0;
    sheaf_status *st = sheaf__file_write_at(&w->file[TOKEN], id, n * sizeof *id, w->tokens * 4);
    TRY(st, sheaf__file_write_at(&w->file[TRAINED], trained, n, w->tokens));
    sheaf__hasher_add(w->hasher[TOKEN], id, n * sizeof *id);
    sheaf__hasher_add(w->hasher[TRAINED], trained, n);
    w->labels[w->rows] = count_labels(trained, count);
    w->begin[++w->rows] = w->tokens += count;
    return st;
}

/* The begins or numbers of labels. */
static sheaf_status *write_kept(sheaf__row_cache_writer *w, int part, const void *bytes,
                                size_t size)
{
    sheaf__hasher_add(w->hasher[part], bytes, size);
    return sheaf__output_write(w->output, names[part], bytes, size);
}

/* ---- the manifest ---- */

static const struct {
    const char *name;
    size_t at;
} fields[] = {
#define FIELD(name, member)                                                                        \
    {                                                                                              \
        name, offsetof(sheaf__row_cache_facts, member)                                             \
    }
    FIELD("records", records),
    FIELD("limit", counts.limit),
    FIELD("rows", counts.rows),
    FIELD("longest", counts.longest),
    FIELD("too_long", counts.too_long),
    FIELD("cut", counts.cut),
    FIELD("emptied", counts.emptied),
    FIELD("left_out", counts.left_out),
    FIELD("written", counts.written),
    FIELD("bad", counts.bad),
    FIELD("end", end),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static int64_t *value_of(const sheaf__row_cache_facts *facts, int i)
{
    return (int64_t *)((char *)facts + fields[i].at);
}

/* A hash of the manifest's own numbers: the longest row, for example, sizes buffers. */
static sheaf_status *hash_facts(char out[33], const sheaf__row_cache_facts *facts, int64_t tokens)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    if (hasher == NULL)
        return sheaf__no_memory("cache of the data");
    sheaf__hasher_add(hasher, &tokens, sizeof tokens);
    for (int i = 0; i < FIELDS; i++)
        sheaf__hasher_add(hasher, value_of(facts, i), sizeof(int64_t));
    sheaf__hasher_add(hasher, facts->prompt_template, strlen(facts->prompt_template));
    sheaf__hash_text(out, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return NULL;
}

static sheaf_status *write_manifest(sheaf__row_cache_writer *w, const sheaf__row_cache_facts *facts)
{
    sheaf_text text = { 0 };
    char hash[33];
    sheaf_status *st = hash_facts(hash, facts, w->tokens);
    if (st != NULL)
        return st;
    sheaf__text_add(&text, "{\n \"version\": %d,\n \"key\": \"%s\",\n \"tokens\": %" PRId64 ",\n",
                    VERSION, w->key, w->tokens);
    for (int i = 0; i < FIELDS; i++)
        sheaf__text_add(&text, " \"%s\": %" PRId64 ",\n", fields[i].name, *value_of(facts, i));
    sheaf__text_add(&text, " \"facts\": \"%s\",\n", hash);
    for (int i = 0; i < PARTS; i++)
        sheaf__text_add(&text, " \"%s\": \"%s\",\n", names[i],
                        sheaf__hash_text(hash, sheaf__hasher_end(w->hasher[i])));
    sheaf__text_add(&text, " \"template\": ");
    sheaf__text_json(&text, facts->prompt_template);
    sheaf__text_add(&text, "\n}\n");
    st = text.failed ? sheaf__no_memory("cache of the data")
                     : sheaf__output_write(w->output, "manifest.json", text.at, text.size);
    sheaf__text_release(&text);
    return st;
}

sheaf_status *sheaf__row_cache_commit(sheaf__row_cache_writer *w,
                                      const sheaf__row_cache_facts *facts)
{
    sheaf_status *st = sheaf__file_sync(&w->file[TOKEN]);
    TRY(st, sheaf__file_sync(&w->file[TRAINED]));
    TRY(st, write_kept(w, BEGIN, w->begin, (size_t)(w->rows + 1) * sizeof *w->begin));
    TRY(st, write_kept(w, LABELS, w->labels, (size_t)w->rows * sizeof *w->labels));
    TRY(st, write_manifest(w, facts));
    if (st != NULL) {
        sheaf__row_cache_abandon(w);
        return st;
    }
    sheaf_output *output = w->output;
    writer_free(w);
    return sheaf__output_commit(output);
}

/* ---- reading ---- */

enum { READ = 2 }; /* TOKEN and TRAINED are read row by row; the others lie in memory */

/* The files stay open, so that they are read even if another process removes or replaces them. One
 * that another process truncates or writes to is an error when it is read; a mapping would kill the
 * process. */
struct sheaf__row_files {
    int fd[READ];
    char path[READ][SHEAF_PATH_SIZE], folder[SHEAF_PATH_SIZE];
};

void sheaf__row_cache_close(sheaf_data *data)
{
    if (data->files == NULL)
        return;
    for (int i = 0; i < READ; i++)
        if (data->files->fd[i] >= 0)
            close(data->files->fd[i]);
    free(data->files);
    data->files = NULL;
}

static sheaf_status *changed(const sheaf_data *data, sheaf_status *st)
{
    return sheaf__try_path(
        st,
        "something changed this cache while it was in use; run again, with `resume` where there is "
        "a checkpoint: what does not agree is made anew (or remove ",
        data->files->folder, ")");
}

sheaf_status *sheaf__row_cache_read(int32_t *token, uint8_t *trained, const sheaf_data *data,
                                    int64_t row)
{
    const struct sheaf__row_files *f = data->files;
    const int64_t at = data->begin[row], n = data->begin[row + 1] - at;
    sheaf_status *st = sheaf__file_read_at(f->fd[0], token, (size_t)n * 4, at * 4, f->path[0]);
    TRY(st, sheaf__file_read_at(f->fd[1], trained, (size_t)n, at, f->path[1]));
    for (int64_t i = 0; i < n && st == NULL; i++)
        if (token[i] < 0 || token[i] >= data->vocab) {
            st =
                sheaf_fail(SHEAF_E_FORMAT, "%s: row %" PRId64 " (counted from 0)", f->path[0], row);
            sheaf_expected(st, "tokens below %" PRId64 ", as they were written", data->vocab);
            sheaf_found(st, "%d", (int)token[i]);
        }
    return st == NULL ? NULL : changed(data, st);
}

static sheaf_status *differs(const char *expected, const char *found)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "it"), "%s", expected), "%s",
                       found);
}

/* Reads a part into `into`, or keeps it open as number `which` of those read by rows. */
static sheaf_status *open_part(sheaf_data *data, void **into, const char *folder, int which,
                               int64_t size, const char *hash, const sheaf_data_options *options)
{
    char path[SHEAF_PATH_SIZE], text[33];
    int fd = -1;
    int64_t is = 0;
    sheaf_hash now;
    sheaf_status *st = sheaf__file_open_read(&fd, &is, sheaf__path_in(path, folder, names[which]));
    if (st == NULL && is != size)
        st = differs("files of the sizes in the manifest", "another size");
    if (st == NULL && into != NULL && (*into = malloc((size_t)size)) == NULL)
        st = sheaf__no_memory(path);
    TRY(st, sheaf__file_hash(&now, fd, 0, size, path, into == NULL ? NULL : *into, options->stop));
    if (st == NULL && strcmp(sheaf__hash_text(text, now), hash) != 0)
        st = differs("the bytes that were written", "others");
    if (st == NULL && into == NULL) {
        data->files->fd[which - TOKEN] = fd;
        strcpy(data->files->path[which - TOKEN], path);
        return NULL;
    }
    if (fd >= 0)
        close(fd);
    return st;
}

/* A matching hash proves that sheaf wrote it, so that few values need a check. */
static sheaf_status *take_manifest(sheaf__row_cache_facts *facts, int64_t *tokens,
                                   const char *hash[PARTS], json_t *json, const char *key)
{
    sheaf_json_reader r = { .object = json };
    const int64_t version = sheaf__json_int(&r, "version", 0, INT32_MAX, 0);
    const char *was = sheaf__json_string(&r, "key"), *form = sheaf__json_string(&r, "template"),
               *stored = json_string_value(json_object_get(json, "facts"));
    char is[33];
    *tokens = sheaf__json_int(&r, "tokens", 1, INT64_MAX / 8, SHEAF_JSON_NEEDED);
    for (int i = 0; i < FIELDS; i++)
        *value_of(facts, i) = sheaf__json_int(&r, fields[i].name, 0, INT64_MAX, SHEAF_JSON_NEEDED);
    for (int i = 0; i < PARTS; i++)
        hash[i] = sheaf__json_string(&r, names[i]);
    if (r.st != NULL)
        return r.st;
    for (int i = 0; i < PARTS; i++)
        if (hash[i] == NULL)
            return differs("a hash of each file", "none");
    if (version != VERSION || was == NULL || strcmp(was, key) != 0)
        return differs("a manifest of this version and key", "another one");
    if (facts->counts.rows < 1 || facts->counts.rows > INT64_MAX / 16)
        return differs("at least one row", "none");
    snprintf(facts->prompt_template, sizeof facts->prompt_template, "%s", form == NULL ? "" : form);
    sheaf_status *st = hash_facts(is, facts, *tokens);
    if (st == NULL && (stored == NULL || strcmp(stored, is) != 0))
        st = differs("the numbers that were written", "others");
    return st;
}

static sheaf_status *open_all(sheaf_data *data, sheaf__row_cache_facts *facts, const char *folder,
                              const char *key, const sheaf_data_options *options)
{
    char path[SHEAF_PATH_SIZE];
    json_t *json = NULL;
    int64_t tokens = 0;
    const char *hash[PARTS];
    void *into[2] = { NULL, NULL }; /* BEGIN and LABELS */
    data->files = calloc(1, sizeof *data->files);
    if (data->files == NULL)
        return sheaf__no_memory("cache of the data");
    strcpy(data->files->folder, folder);
    data->files->fd[0] = data->files->fd[1] = -1;
    sheaf_status *st = sheaf__json_load(&json, sheaf__path_in(path, folder, "manifest.json"));
    TRY(st, take_manifest(facts, &tokens, hash, json, key));
    const int64_t rows = facts->counts.rows,
                  size[PARTS] = { (rows + 1) * 8, rows * 4, tokens * 4, tokens };
    for (int i = 0; i < PARTS && st == NULL; i++)
        st = open_part(data, i < TOKEN ? &into[i] : NULL, folder, i, size[i], hash[i], options);
    if (st == NULL) {
        data->begin = into[BEGIN];
        data->labels = into[LABELS];
        data->rows = rows;
        data->tokens = tokens;
        data->end = (int32_t)facts->end;
    } else {
        free(into[BEGIN]);
        free(into[LABELS]);
    }
    json_decref(json);
    return st;
}

sheaf_status *sheaf__row_cache_open(bool *found, sheaf_data *data, sheaf__row_cache_facts *facts,
                                    const char *dir, const char *key,
                                    const sheaf_data_options *options)
{
    const sheaf__row_cache_facts before = *facts;
    char folder[SHEAF_PATH_SIZE];
    *found = false;
    if (sheaf__path_kind(sheaf__path_in(folder, dir, key)) == SHEAF_PATH_NONE)
        return NULL;
    sheaf_status *st = open_all(data, facts, folder, key, options);
    *found = st == NULL;
    if (*found)
        return NULL;
    sheaf__row_cache_close(data);
    *facts = before;
    if (sheaf_status_code(st) == SHEAF_E_MEMORY || sheaf_status_code(st) == SHEAF_E_STOPPED)
        return st;
    sheaf_warn(options->events, "%s is damaged and made anew: %s, expected %s, found %s", folder,
               sheaf_status_where(st), sheaf_status_expected(st), sheaf_status_found(st));
    sheaf_status_free(st);
    return NULL;
}

bool sheaf__row_cache_is(const char *dir)
{
    char path[SHEAF_PATH_SIZE], *text = NULL;
    size_t size = 0;
    if (sheaf__path_has(dir, tag_name, SHEAF_PATH_FILE))
        sheaf_status_free(
            sheaf__file_read_all(&text, &size, sheaf__path_in(path, dir, tag_name), 4096));
    const bool is = text != NULL && size == sizeof tag - 1 && memcmp(text, tag, size) == 0;
    free(text);
    return is;
}
