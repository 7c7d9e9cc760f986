/* metrics.c - see metrics.h. */
#include "monitor/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "ops/device.h"

static sheaf_status *io_error(const char *path, const char *doing, int error)
{
    return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s: %s", path, doing), error);
}

/* ---- lines kept from an earlier run ---- */

/* The content of a whole line: step 0 if it is not ours. */
typedef struct line {
    int64_t step;
    bool evaluation;
} line;

/* Errors: SHEAF_E_MEMORY. */
static sheaf_status *read_line(line *out, const char *line, size_t size)
{
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_parse(&object, line, size);
    const json_t *value = json_object_get(object, "step"); /* NULL for NULL */
    out->step = json_is_integer(value) ? json_integer_value(value) : 0;
    out->evaluation = json_object_get(object, "eval_loss") != NULL;
    json_decref(object);
    return sheaf__only_memory(st);
}

/* Bytes of the leading lines to keep, and how many of them are steps. An evaluation's line follows
 * that of its step. A damaged line before good ones is kept. Reads line by line: the file of a long
 * run may be large. */
static sheaf_status *kept_bytes(int64_t *bytes, int64_t *lines, FILE *file, int64_t keep_steps,
                                int64_t keep_evaluations)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t size;
    int64_t step = 0, evaluation = 0, damaged = 0;
    sheaf_status *st = NULL;
    while ((size = getline(&text, &room, file)) > 0 && text[size - 1] == '\n') {
        line now;
        if ((st = read_line(&now, text, (size_t)size - 1)) != NULL)
            break;
        if (now.step == 0) {
            damaged += size;
            continue;
        }
        const bool stays = now.evaluation ? now.step >= step && now.step > evaluation &&
                                                now.step <= keep_evaluations
                                          : now.step > step && now.step <= keep_steps;
        if (!stays)
            break;
        *(now.evaluation ? &evaluation : &step) = now.step;
        *lines += !now.evaluation;
        *bytes += damaged + size;
        damaged = 0;
    }
    free(text);
    return st != NULL || size >= 0 || feof(file)
               ? st
               : sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "reading"), errno);
}

/* The same of the file at `path`. */
static sheaf_status *look(int64_t *bytes, int64_t *lines, const char *path, int64_t keep_steps,
                          int64_t keep_evaluations)
{
    int fd = -1;
    int64_t size = 0;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL)
        return st;
    FILE *file = fdopen(fd, "r");
    if (file == NULL) {
        close(fd);
        return sheaf__no_memory(path);
    }
    st = sheaf_in(kept_bytes(bytes, lines, file, keep_steps, keep_evaluations), "%s", path);
    fclose(file);
    return st;
}

sheaf_status *sheaf__metrics_open(sheaf_metrics *metrics, const char *path, int64_t keep_steps,
                                  int64_t keep_evaluations)
{
    *metrics = (sheaf_metrics){ 0 };
    int64_t lines = 0, end = 0;
    sheaf_status *st = NULL;
    struct stat about;
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode)) /* its target would be truncated */
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                                                         "a file of this run, or nothing"),
                                          "a symbolic link"),
                              "move it away");
    if (sheaf__path_kind(path) != SHEAF_PATH_NONE)
        st = look(&end, &lines, path, keep_steps, keep_evaluations);
    if (st != NULL)
        return st;
    const int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return io_error(path, "cannot open for writing", errno);
    char *copy = strdup(path);
    if (ftruncate(fd, end) != 0)
        st = io_error(path, "removing the lines of later steps", errno);
    else if (copy == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    if (st != NULL) {
        close(fd);
        free(copy);
        return st;
    }
    *metrics = (sheaf_metrics){ .file = { .fd = fd, .end = end, .path = copy }, .kept = lines };
    return NULL;
}

/* ---- lines ---- */

/* To a microsecond. */
static void put_seconds(sheaf_json_writer *j, const char *key, double seconds)
{
    sheaf__json_put_real(j, key, round(seconds * 1e6) / 1e6);
}

/* Work and memory of its device; of several ranks also bytes to each, and the bandwidth of the
 * exchanges each way. */
static void add_spent(sheaf_json_writer *j, const sheaf_event_rank *rank,
                      const sheaf_event_spent *spent, int me, int ranks)
{
    const sheaf_event_spent *one = &spent[me];
    if (one->timed) {
        put_seconds(j, "products", one->products);
        put_seconds(j, "attention", one->attention);
        put_seconds(j, "transfers", one->transfers);
    }
    sheaf__json_open(j, "kinds", '{');
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        sheaf__json_put_int(j, sheaf__memory_key((sheaf_memory)k), (int64_t)one->kind[k]);
    sheaf__json_close(j, '}');
    if (ranks == 1)
        return;
    sheaf__json_open(j, "sent_to", '[');
    for (int r = 0; r < ranks; r++)
        sheaf__json_put_int(j, NULL, (int64_t)one->sent_to[r]);
    sheaf__json_put(j, "] bytes_per_s:[");
    for (int r = 0; r < ranks; r++) {
        const double bytes = (double)(one->sent_to[r] + spent[r].sent_to[me]),
                     seconds = rank[me].exchange;
        sheaf__json_put_int(j, NULL, seconds > 0 ? (int64_t)(bytes / seconds) : 0);
    }
    sheaf__json_close(j, ']');
}

static void add_offload(sheaf_json_writer *j, const sheaf_event_offload *one)
{
    sheaf__json_put(j, "offload:{ read:d written:d", (int64_t)one->read, (int64_t)one->written);
    put_seconds(j, "reading", one->reading);
    put_seconds(j, "writing", one->writing);
    put_seconds(j, "waiting", one->waiting);
    sheaf__json_close(j, '}');
}

static void add_ranks(sheaf_json_writer *j, const sheaf_event_rank *rank,
                      const sheaf_event_spent *spent, const sheaf_event_offload *offload, int ranks)
{
    sheaf__json_open(j, "ranks", '[');
    for (int r = 0; r < ranks; r++) {
        const sheaf_event_rank *one = &rank[r];
        sheaf__json_open(j, NULL, '{');
        put_seconds(j, "compute", one->compute);
        put_seconds(j, "wait", one->wait);
        put_seconds(j, "exchange", one->exchange);
        put_seconds(j, "read", one->read);
        put_seconds(j, "save", one->save);
        sheaf__json_put(j, "sent:d received:d memory:d process:d", (int64_t)one->sent,
                        (int64_t)one->received, (int64_t)one->memory, (int64_t)one->process);
        if (spent != NULL)
            add_spent(j, rank, spent, r, ranks);
        if (offload != NULL)
            add_offload(j, &offload[r]);
        sheaf__json_close(j, '}');
    }
    sheaf__json_close(j, ']');
}

/* prefix: of the names. */
static void add_values(sheaf_json_writer *j, const char *prefix, const sheaf_event_value *value,
                       int values)
{
    char name[64];
    for (int i = 0; i < values; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, value[i].name);
        sheaf__json_put_real(j, name, value[i].value);
    }
}

static void add_line(sheaf_text *text, const sheaf_event_step *step, const sheaf_event_rank *rank,
                     const sheaf_event_spent *spent, const sheaf_event_offload *offload, int ranks)
{
    /* to a tenth: the measurement is not more precise */
    const double per_s =
        step->seconds > 0 ? round((double)step->tokens / step->seconds * 10) / 10 : 0;
    sheaf_json_writer j = { *text };
    sheaf__json_begin(&j);
    sheaf__json_put(&j, "step:d loss:f grad_norm:f lr:f tokens:d tokens_per_s:f", step->step,
                    step->loss, step->grad_norm, step->lr, step->tokens, per_s);
    if (step->skipped)
        sheaf__json_put_bool(&j, "skipped", true);
    if (step->loss_scale > 0)
        sheaf__json_put_real(&j, "loss_scale", step->loss_scale);
    add_values(&j, "", step->value, step->values);
    if (rank != NULL)
        add_ranks(&j, rank, spent, offload, ranks);
    sheaf__json_end(&j);
    *text = j.text;
    sheaf__text_add(text, "\n");
}

static void add_evaluation(sheaf_text *text, const sheaf_event_evaluation *e)
{
    sheaf_json_writer j = { *text };
    sheaf__json_begin(&j);
    sheaf__json_put(&j, "step:d eval_loss:f eval_accuracy:f eval_tokens:d", e->step, e->loss,
                    e->accuracy, e->tokens);
    add_values(&j, "eval_", e->value, e->values);
    sheaf__json_end(&j);
    *text = j.text;
    sheaf__text_add(text, "\n");
}

void sheaf__metrics_step(sheaf_metrics *metrics, const sheaf_event_step *step,
                         const sheaf_event_rank *rank, const sheaf_event_spent *spent,
                         const sheaf_event_offload *offload, int ranks)
{
    if (!sheaf__appended_is_open(&metrics->file))
        return;
    add_line(&metrics->file.pending, step, rank, spent, offload, ranks);
    sheaf__appended_write(&metrics->file);
}

void sheaf__metrics_evaluation(sheaf_metrics *metrics, const sheaf_event_evaluation *evaluation)
{
    if (!sheaf__appended_is_open(&metrics->file))
        return;
    add_evaluation(&metrics->file.pending, evaluation);
    sheaf__appended_write(&metrics->file);
}

/* ---- the last lines ---- */

enum { MOST_BYTES = 1 << 20, STEPS = 20 }; /* of the end; a line of 64 ranks has some 10 KB */

/* The end of the file, from the beginning of a line to the end of one. */
static sheaf_status *read_end(char **out, const char *path)
{
    int fd;
    int64_t size;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL)
        return st;
    const int64_t begin = size > MOST_BYTES ? size - MOST_BYTES : 0;
    char *text = malloc((size_t)(size - begin) + 1);
    st = text == NULL ? sheaf__no_memory(path)
                      : sheaf__file_read_at(fd, text, (size_t)(size - begin), begin, path);
    close(fd);
    if (st != NULL) {
        free(text);
        return st;
    }
    text[size - begin] = '\0';
    for (char *at = text; (at = memchr(at, '\0', (size_t)(text + size - begin - at))) != NULL;)
        *at = '?'; /* zeros of a file system after a crash: not a line */
    char *last = strrchr(text, '\n'), *first = begin > 0 ? strchr(text, '\n') : NULL;
    if (last != NULL)
        last[1] = '\0';
    else
        text[0] = '\0'; /* a line that is being written */
    if (first != NULL)
        memmove(text, first + 1, strlen(first + 1) + 1);
    *out = text;
    return NULL;
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Returns false for a line that is not ours. Lines are read backwards. */
static bool take_line(sheaf__metrics_last *out, const json_t *line, int *steps, double *tokens,
                      double *seconds)
{
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    if (step < 1)
        return false;
    if (json_object_get(line, "eval_loss") != NULL) {
        if (out->eval_step == 0) {
            out->eval_step = step;
            out->eval_loss = number(line, "eval_loss");
        }
        return true;
    }
    if (json_object_get(line, "loss") == NULL)
        return false;
    if (out->step == 0) {
        out->step = step;
        out->loss = number(line, "loss");
    }
    const double read = number(line, "tokens"), rate = number(line, "tokens_per_s");
    if (rate > 0 && read > 0) {
        *tokens += read;
        *seconds += read / rate;
        ++*steps;
    }
    return true;
}

sheaf_status *sheaf__metrics_read(sheaf__metrics_last *out, const char *path)
{
    char *text = NULL;
    *out = (sheaf__metrics_last){ .loss = NAN, .eval_loss = NAN };
    sheaf_status *st = read_end(&text, path);
    double tokens = 0, seconds = 0;
    int steps = 0;
    for (bool first = true; text != NULL && text[0] != '\0' && steps < STEPS; first = false) {
        text[strlen(text) - 1] = '\0';
        char *begin = strrchr(text, '\n');
        begin = begin == NULL ? text : begin + 1;
        json_t *line = json_loads(begin, 0, NULL);
        if (!take_line(out, line, &steps, &tokens, &seconds) && first)
            st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: the last line", path),
                                "a step or an evaluation, as train writes them");
        json_decref(line);
        *begin = '\0';
    }
    free(text);
    if (steps > 0) {
        out->tokens_per_s = tokens / seconds;
        out->seconds_per_step = seconds / steps;
    }
    return st;
}
