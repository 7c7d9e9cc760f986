/* facts.c - see facts.h. */
#include "report/facts.h"

#include <jansson.h>
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/store/checkpoint.h"
#include "monitor/provenance.h"

enum { MOST_SETTINGS = 1 << 20 }; /* bytes */

typedef struct facts {
    sheaf_json_writer *json;
    const char *path;
    const sheaf_events *events;
    char *odd[SHEAF__CURVE_ODD + 4];
    int nodd;
} facts;

/* Warns, and keeps the text for the list at the end. */
static void add_odd(facts *f, const char *fmt, ...) SHEAF_PRINTF(2, 3);
static void add_odd(facts *f, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    if (text != NULL)
        sheaf_warn(f->events, "%s: %s", f->path, text);
    if (text != NULL && f->nodd < (int)(sizeof f->odd / sizeof *f->odd))
        f->odd[f->nodd++] = text;
    else
        free(text);
}

/* Returns a lack of memory; any other failure is odd. */
static sheaf_status *only_odd(facts *f, sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    const char *where = sheaf_status_where(st), *found = sheaf_status_found(st);
    const size_t n = strlen(f->path);
    if (strncmp(where, f->path, n) == 0 && where[n] == '/')
        where += n + 1;
    add_odd(f, "%s%s%s", where, found[0] == '\0' ? "" : ": ", found);
    sheaf_status_free(st);
    return NULL;
}

/* ---- numbers ---- */

/* To seven digits, as a pixel shows less; null where it is not finite. */
static void put_number(sheaf_json_writer *j, const char *key, double value)
{
    char text[32];
    if (isfinite(value) && value != round(value)) {
        snprintf(text, sizeof text, "%.7g", value);
        value = strtod(text, NULL);
    }
    sheaf__json_put_real(j, key, value);
}

static double lowest_of(const sheaf__curve_point *p)
{
    return p->count[SHEAF__CURVE_LOSS] == 0 ? NAN : p->lowest;
}

static double highest_of(const sheaf__curve_point *p)
{
    return p->count[SHEAF__CURVE_LOSS] == 0 ? NAN : p->highest;
}

static double rate_of(const sheaf__curve_point *p)
{
    return p->count[SHEAF__CURVE_SECONDS] == 0
               ? NAN
               : p->sum[SHEAF__CURVE_TOKENS] / p->sum[SHEAF__CURVE_SECONDS];
}

static void put_list(sheaf_json_writer *j, const char *key, const sheaf__curves *curves,
                     double (*of)(const sheaf__curve_point *))
{
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < curves->points; i++)
        put_number(j, NULL, of(&curves->point[i]));
    sheaf__json_close(j, ']');
}

static bool has(const sheaf__curves *curves, sheaf__curve curve)
{
    for (int64_t i = 0; i < curves->points; i++)
        if (curves->point[i].count[curve] > 0)
            return true;
    return false;
}

static void put_points(sheaf_json_writer *j, const sheaf__curves *curves)
{
    sheaf__json_put(j, "points:{ step:[");
    for (int64_t i = 0; i < curves->points; i++)
        sheaf__json_put_int(j, NULL, curves->point[i].step);
    sheaf__json_close(j, ']');
    for (int c = 0; c < SHEAF__CURVES; c++) {
        if (c >= SHEAF__CURVE_REWARD && !has(curves, (sheaf__curve)c))
            continue;
        sheaf__json_open(j, sheaf__curve_name((sheaf__curve)c), '[');
        for (int64_t i = 0; i < curves->points; i++)
            put_number(j, NULL, sheaf__curve_at(&curves->point[i], (sheaf__curve)c));
        sheaf__json_close(j, ']');
    }
    put_list(j, "tokens_per_s", curves, rate_of);
    if (curves->merged > 1) {
        put_list(j, "lowest", curves, lowest_of);
        put_list(j, "highest", curves, highest_of);
    }
    sheaf__json_close(j, '}');
}

static void put_evaluations(sheaf_json_writer *j, const sheaf__curves *curves)
{
    const int64_t n = curves->evaluations;
    const sheaf__curve_evaluation *e = curves->evaluation;
    sheaf__json_put(j, "evaluations:{ step:[");
    for (int64_t i = 0; i < n; i++)
        sheaf__json_put_int(j, NULL, e[i].step);
    sheaf__json_put(j, "] loss:[");
    for (int64_t i = 0; i < n; i++)
        put_number(j, NULL, e[i].loss);
    sheaf__json_put(j, "] accuracy:[");
    for (int64_t i = 0; i < n; i++)
        put_number(j, NULL, e[i].accuracy);
    sheaf__json_put(j, "] tokens:[");
    for (int64_t i = 0; i < n; i++)
        sheaf__json_put_int(j, NULL, e[i].tokens);
    sheaf__json_put(j, "] reward:[");
    for (int64_t i = 0; i < n; i++)
        put_number(j, NULL, e[i].reward);
    sheaf__json_put(j, "] }");
}

static void put_sample(sheaf_json_writer *j, const char *of, const sheaf__sample *sample)
{
    sheaf__json_put(j, "{ of:s step:d", of, sample->step);
    put_number(j, "reward", sample->reward);
    sheaf__json_put(j, "truncated:b prompt:s text:s }", sample->truncated, sample->prompt,
                    sample->text);
}

static void put_samples(sheaf_json_writer *j, const sheaf__samples *samples)
{
    sheaf__json_open(j, "samples", '[');
    if (samples->best.step > 0)
        put_sample(j, "best", &samples->best);
    if (samples->worst.reward < samples->best.reward)
        put_sample(j, "worst", &samples->worst);
    for (int i = 0; i < samples->kept; i++)
        put_sample(j, "step", &samples->over[i]);
    if (samples->kept > 0 && samples->newest.step > samples->over[samples->kept - 1].step)
        put_sample(j, "step", &samples->newest);
    sheaf__json_close(j, ']');
}

static void put_rank(sheaf_json_writer *j, const sheaf__curve_rank *rank, int ranks)
{
    sheaf__json_open(j, NULL, '{');
    put_number(j, "compute", rank->compute);
    put_number(j, "wait", rank->wait);
    put_number(j, "exchange", rank->exchange);
    put_number(j, "read", rank->read);
    put_number(j, "save", rank->save);
    put_number(j, "products", rank->products);
    put_number(j, "attention", rank->attention);
    put_number(j, "transfers", rank->transfers);
    sheaf__json_put_int(j, "timed", rank->timed);
    put_number(j, "sent", rank->sent);
    put_number(j, "received", rank->received);
    put_number(j, "memory", rank->memory);
    put_number(j, "process", rank->process);
    sheaf__json_open(j, "kinds", '[');
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        put_number(j, NULL, rank->kind[k]);
    sheaf__json_put(j, "] sent_to:[");
    for (int r = 0; r < ranks; r++)
        put_number(j, NULL, rank->sent_to[r]);
    sheaf__json_put(j, "] }");
}

static void put_ranks(sheaf_json_writer *j, const sheaf__curves *curves)
{
    sheaf__json_open(j, "kinds", '[');
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        sheaf__json_put_text(j, NULL, sheaf__memory_name((sheaf_memory)k));
    sheaf__json_put(j, "] ranks_since:d ranks_steps:d ranks:[", curves->ranks_since,
                    curves->ranks_steps);
    for (int r = 0; r < curves->ranks; r++)
        put_rank(j, &curves->rank[r], curves->ranks);
    sheaf__json_close(j, ']');
}

/* ---- settings and starts ---- */

static sheaf_status *put_settings(facts *f)
{
    char path[SHEAF_PATH_SIZE], *text = NULL, *rest = NULL;
    size_t size = 0;
    sheaf_status *st = NULL;
    if (sheaf__path_has(f->path, "settings", SHEAF_PATH_NONE))
        st = only_odd(f,
                      sheaf__file_read_all(&text, &size, sheaf__path_in(path, f->path, "settings"),
                                           MOST_SETTINGS));
    sheaf__json_open(f->json, "settings", '[');
    for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *colon = strchr(line, ':');
        if (colon == NULL || line[0] == '#')
            continue;
        *colon = '\0';
        sheaf__json_put(f->json, "[ s s ]", line, colon + 1 + strspn(colon + 1, " "));
    }
    sheaf__json_close(f->json, ']');
    free(text);
    return st;
}

/* Its number, unchanged; a value that is no number is left out. */
static void put_start_number(sheaf_json_writer *j, const json_t *start, const char *key)
{
    const json_t *value = json_object_get(start, key);
    if (json_is_integer(value))
        sheaf__json_put_int(j, key, json_integer_value(value));
}

static void put_start(sheaf_json_writer *j, const json_t *start)
{
    static const char *const texts[] = { "started", "host", "cpu", "version", "transport" };
    static const char *const numbers[] = { "step", "steps", "ranks", "threads" };
    sheaf__json_open(j, NULL, '{');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = json_string_value(json_object_get(start, texts[i]));
        if (text != NULL)
            sheaf__json_put_text(j, texts[i], text);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_start_number(j, start, numbers[i]);
    sheaf_text command = { 0 };
    const json_t *words = json_object_get(start, "command");
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        sheaf__text_add(&command, "%s", i == 0 ? "" : " ");
        sheaf__text_word(&command, word == NULL ? "?" : word);
    }
    if (command.at != NULL)
        sheaf__json_put_text(j, "command", command.at);
    sheaf__text_release(&command);
    sheaf__json_close(j, '}');
}

/* *steps: of the whole run, by its newest start; 0: not stated. */
static sheaf_status *put_starts(facts *f, int64_t *steps)
{
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL;
    sheaf_status *st = NULL;
    if (sheaf__path_has(f->path, "run.json", SHEAF_PATH_NONE))
        st = only_odd(f, sheaf__json_load(&root, sheaf__path_in(path, f->path, "run.json")));
    const json_t *runs = json_object_get(root, "runs");
    const size_t n = json_array_size(runs);
    if (root != NULL && n == 0)
        add_odd(f, "run.json: no list of starts in it");
    sheaf__json_open(f->json, "starts", '[');
    for (size_t i = 0; i < n; i++)
        put_start(f->json, json_array_get(runs, i));
    sheaf__json_close(f->json, ']');
    *steps = sheaf_provenance_steps(root);
    json_decref(root);
    return st;
}

/* ---- all of a run ---- */

/* "run" of "out/run/", of a link to it and of "." there. */
static char *name_of(const char *path)
{
    char *whole = realpath(path, NULL), *name = NULL;
    sheaf_status_free(sheaf__path_name(&name, whole == NULL ? path : whole));
    free(whole);
    return name;
}

static void put_odd(facts *f, const sheaf__curves *curves, bool running)
{
    for (int i = 0; i < SHEAF__CURVE_ODD && curves->odd[i] != NULL; i++)
        add_odd(f, "metrics.jsonl: %s: left out", curves->odd[i]);
    if (curves->nodd > SHEAF__CURVE_ODD)
        add_odd(f, "metrics.jsonl: %" PRId64 " more lines are left out",
                curves->nodd - SHEAF__CURVE_ODD);
    if (curves->at.cut && !running)
        add_odd(f, "metrics.jsonl: its last line is cut off: left out");
    sheaf__json_open(f->json, "odd", '[');
    for (int i = 0; i < f->nodd; i++)
        sheaf__json_put_text(f->json, NULL, f->odd[i]);
    sheaf__json_close(f->json, ']');
}

static sheaf_status *put_run(facts *f, const sheaf__report_run *run)
{
    const sheaf__curves *curves = &run->curves;
    sheaf_json_writer *j = f->json;
    int64_t steps = 0;
    const bool running = sheaf__checkpoints_busy(f->path);
    char *name = name_of(f->path);
    sheaf__json_put(j, "{ name:s path:s", name == NULL ? f->path : name, f->path);
    free(name);
    sheaf_status *st = put_starts(f, &steps);
    TRY(st, put_settings(f));
    sheaf__json_put(j, "state:s steps:d last_step:d",
                    sheaf_provenance_state(running, curves->last_step, steps), steps,
                    curves->last_step);
    put_number(j, "tokens", curves->tokens);
    put_number(j, "seconds", curves->seconds);
    sheaf__json_put(j, "skipped:d merged:d", curves->skipped, curves->merged);
    put_points(j, curves);
    put_evaluations(j, curves);
    put_samples(j, &run->samples);
    put_ranks(j, curves);
    put_odd(f, curves, running);
    sheaf__json_close(j, '}');
    return st;
}

static bool is_run(const char *path)
{
    static const char *const files[] = { "metrics.jsonl", "run.json", "settings" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (sheaf__path_has(path, files[i], SHEAF_PATH_FILE))
            return true;
    return false;
}

sheaf_status *sheaf__report_facts(sheaf_json_writer *json, sheaf__report_run *run, const char *path,
                                  const sheaf_events *events)
{
    facts f = { .json = json, .path = path, .events = events };
    char file[SHEAF_PATH_SIZE];
    if (!is_run(path)) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                                          "the folder of a run, the `out` of sheaf train");
        return sheaf_try_this(sheaf_found(st,
                                          sheaf__path_kind(path) == SHEAF_PATH_DIR
                                              ? "a folder without metrics.jsonl"
                                              : "%s",
                                          sheaf__path_what(path)),
                              "sheaf info says what is there");
    }
    sheaf_status *st =
        only_odd(&f, sheaf__curves_read(&run->curves, sheaf__path_in(file, path, "metrics.jsonl")));
    TRY(st, only_odd(&f, sheaf__samples_read(&run->samples,
                                             sheaf__path_in(file, path, "rollouts.jsonl"))));
    TRY(st, put_run(&f, run));
    for (int i = 0; i < f.nodd; i++)
        free(f.odd[i]);
    return st;
}

void sheaf__report_run_release(sheaf__report_run *run)
{
    sheaf__curves_release(&run->curves);
    sheaf__samples_release(&run->samples);
}
