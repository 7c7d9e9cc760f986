/* generate.c - `sheaf generate`: tokens that continue prompts. */
#include <jansson.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/print.h"
#include "ask.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "commands.h"
#include "sheaf/cut.h"

const char cmd_generate_usage[] =
    "usage: sheaf generate MODEL --prompt TEXT [--image FILE]... [FLAG...]\n"
    "       sheaf generate MODEL --data PATH [FLAG...]\n"
    "Answers one prompt, or continues each of a file or folder of images. The tokens are the same at\n"
    "any number of ranks and in any batch. Where a record has an answer, the model's is compared\n"
    "with it. Sampling that no flag sets is what the model's generation_config.json says.\n";

typedef struct settings {
    sheaf_prompts_options from;
    const char *prompts; /* another name of from.data */
    sheaf__texts image;
    int64_t batch;
    bool raw;
    const char *json_schema; /* a file */
    sheaf_model_open_options model;
    ask_flags ask;
    driver_processes processes;
} settings;

typedef struct work {
    const cli *cli;
    const settings *s;
    const sheaf_model_facts *model;
    sheaf_prompts *prompts;
    int64_t count;      /* of them */
    bool started;       /* the answer of a single prompt is being streamed */
    sheaf_answer **out; /* [count] */
} work;

/* ---- results ---- */

static void put_record(sheaf_json_writer *to, const work *w, int64_t i)
{
    const sheaf_prompt_facts prompt = ask_facts(w->prompts, i);
    const char *image = sheaf_prompts_image(w->prompts, i, 0);
    ask_answer_json(to, w->out[i]);
    sheaf__json_put_text(to, "prompt", prompt.text);
    if (image != NULL)
        sheaf__json_put_text(to, "image", image);
    ask_images_json(to, w->prompts, i);
    if (prompt.expected != NULL)
        sheaf__json_put(to, "expected:s match:b", prompt.expected,
                        sheaf_prompts_match(w->prompts, i, w->out[i], false));
}

/* The heading of an answer. */
static void print_prompt(const work *w, int64_t i)
{
    const sheaf_prompt_facts prompt = ask_facts(w->prompts, i);
    const char *image = sheaf_prompts_image(w->prompts, i, 0);
    if (prompt.laid_out && w->s->from.data != NULL && image != NULL)
        sheaf__print(w->cli->out, "%s: ", image);
    else if (!prompt.laid_out && prompt.text != NULL)
        cli_say(w->cli, prompt.text);
}

/* Streams the answer of a single prompt. */
static void speak(void *self, int64_t prompt, const char *text)
{
    work *w = self;
    if (!w->started && !w->cli->json)
        print_prompt(w, prompt);
    w->started = true;
    ask_piece(w->cli, text);
}

static void print_answer(const work *w, int64_t i)
{
    const char *text = sheaf_answer_text(w->out[i]);
    int64_t n;
    const int32_t *tokens = sheaf_answer_tokens(w->out[i], &n);
    if (text != NULL && !w->started) {
        print_prompt(w, i);
        cli_say(w->cli, text);
    }
    for (int64_t j = 0; j < n && text == NULL; j++)
        sheaf__print(w->cli->out, "%s%d", j == 0 ? "" : ",", (int)tokens[j]);
    fputc('\n', w->cli->out);
}

static int64_t tokens_of(const work *w, int64_t i)
{
    int64_t n;
    sheaf_answer_tokens(w->out[i], &n);
    return n;
}

static bool is_whole(const work *w, int64_t i)
{
    return tokens_of(w, i) > 0 && sheaf_answer_ending(w->out[i]) != SHEAF_ENDS_STOPPED;
}

/* After a stop some records have no answer, so each result has its record. */
static void print_json(const work *w, const double *share, bool stopped)
{
    const bool list = w->s->from.data != NULL;
    sheaf_json_writer j = { .compact = true };
    sheaf__json_begin(&j);
    sheaf__json_put(&j, list ? "results:[" : "");
    for (int64_t i = 0; i < w->count; i++) {
        if (tokens_of(w, i) == 0)
            continue;
        sheaf__json_put(&j, list ? "{" : "");
        put_record(&j, w, i);
        if (stopped && list)
            sheaf__json_put_int(&j, "record", i + 1);
        sheaf__json_put(&j, list ? "}" : "");
    }
    sheaf__json_put(&j, list ? "]" : "");
    if (share != NULL)
        sheaf__json_put_real(&j, "exact_match", *share);
    if (w->model->sums != NULL)
        sheaf__json_put_text(&j, "sums", w->model->sums);
    cli_json_end(w->cli->out, &j);
}

/* The records with whole answers (1-16, 101-116), if these are not the first ones. */
static void name_whole(sheaf_text *text, const work *w, int64_t whole)
{
    enum { MOST = 16 };
    int64_t first = 0, end;
    int named = 0;
    while (first < whole && is_whole(w, first))
        first++;
    for (int64_t i = 0; i < w->count && first < whole && named <= MOST; i = end) {
        for (end = i; end < w->count && is_whole(w, end);)
            end++;
        if (end > i && named++ == MOST)
            sheaf__text_add(text, ", ...");
        else if (end > i)
            sheaf__text_add(text, "%s%" PRId64, named == 1 ? ": of records " : ", ", i + 1);
        if (end > i + 1 && named <= MOST)
            sheaf__text_add(text, "-%" PRId64, end);
        end += end == i;
    }
}

/* NULL: it was not. */
static sheaf_status *stopped(const work *w)
{
    int64_t whole = 0;
    for (int64_t i = 0; i < w->count; i++)
        whole += is_whole(w, i);
    if (whole == w->count)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_STOPPED, "generate");
    if (w->s->from.data == NULL)
        return sheaf_found(st, "a request to stop, after %" PRId64 " tokens", tokens_of(w, 0));
    sheaf_text which = { 0 };
    name_whole(&which, w, whole);
    sheaf_found(st, "a request to stop, after %" PRId64 " of %" PRId64 " answers%s", whole,
                w->count, which.size == 0 || which.failed ? "" : which.at);
    sheaf__text_release(&which);
    return st;
}

/* Prints the results after a stop; a streamed answer is on the terminal already. */
static void print_results(const work *w, bool stopped)
{
    int64_t compared = 0, equal = 0, started = 0;
    for (int64_t i = 0; i < w->count; i++) {
        started += tokens_of(w, i) > 0;
        compared += !stopped && ask_facts(w->prompts, i).expected != NULL;
        equal += sheaf_prompts_match(w->prompts, i, w->out[i], false);
    }
    const double share = compared == 0 ? 0 : (double)equal / (double)compared;
    if (w->cli->json && (started > 0 || !stopped))
        print_json(w, compared > 0 ? &share : NULL, stopped);
    for (int64_t i = 0; i < w->count && !w->cli->json; i++)
        if (!stopped || is_whole(w, i) || (w->s->from.data == NULL && started > 0))
            print_answer(w, i);
    if (compared > 0 && !w->cli->json)
        sheaf__print(w->cli->out, "exact match: %lld of %lld (%.1f %%)\n", (long long)equal,
                     (long long)compared, 100 * share);
}

/* ---- the command ---- */

static sheaf_status *read_prompts(work *w, sheaf_model *m, const sheaf_events *events)
{
    const settings *s = w->s;
    sheaf_prompts_options o = s->from;
    o.images = s->image.at;
    o.nimages = s->image.n;
    o.system = s->ask.system;
    o.max_length = s->ask.max_length;
    o.events = events;
    sheaf_status *st = sheaf_prompts_open(&w->prompts, m, &o);
    w->count = st == NULL ? sheaf_prompts_count(w->prompts) : 0;
    return st;
}

/* Until the model is loaded nothing is lost, and a signal ends the process. */
static sheaf_status *answer(work *w, sheaf_model *m, sheaf_model_generate_options *o)
{
    const settings *s = w->s;
    o->batch = s->batch;
    o->on_text = s->from.data == NULL && ask_streams(w->cli, &s->ask) ? speak : NULL;
    o->context = w;
    o->control = driver_signals();
    sheaf_status *st = read_prompts(w, m, o->events);
    TRY(st, sheaf_prompts_begin(w->prompts, o));
    if (st == NULL && s->processes.stop == NULL)
        st = driver_signals_install_stops();
    if (st == NULL && (w->out = calloc((size_t)w->count, sizeof *w->out)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%" PRId64 " answers", w->count);
    return st == NULL ? sheaf_prompts_answer(w->out, w->prompts) : st;
}

static sheaf_status *run(cli *cli, const cli_option *table, settings *s)
{
    sheaf_model *m = NULL;
    sheaf_model_facts facts;
    sheaf_model_generate_options o;
    work w = { .cli = cli, .s = s, .model = &facts };
    char *schema = NULL;
    size_t size;
    s->model.events = &cli->events;
    sheaf_status *st = ask_open(&m, &facts, cli, &s->model, &s->ask, s->processes.all);
    TRY(st, ask_options(&o, cli, table, &s->ask, &facts));
    if (s->json_schema != NULL)
        TRY(st, sheaf__file_read_all(&schema, &size, s->json_schema, SHEAF_JSON_MAX_BYTES));
    if (st == NULL) {
        o.json_schema = schema;
        o.events = &cli->events;
        st = answer(&w, m, &o);
    }
    driver_progress_end(cli);
    if (st == NULL && (st = stopped(&w)) == NULL)
        print_results(&w, false);
    else if (w.out != NULL && w.out[0] != NULL)
        print_results(&w, true);
    else if (w.started && !cli->json)
        fputc('\n', cli->out);
    for (int64_t i = 0; i < w.count && w.out != NULL; i++)
        sheaf_answer_free(w.out[i]);
    free(w.out);
    sheaf_prompts_close(w.prompts);
    sheaf_model_close(m);
    free(schema);
    return st;
}

static sheaf_status *check_files(settings *s)
{
    if (s->raw && s->model.prompt_template != NULL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--raw"), "no --template beside it"),
            "--template %s", s->model.prompt_template);
    if (s->raw && s->from.text == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--raw"), "--prompt TEXT, which it is about");
    if (s->from.text != NULL)
        s->model.asks = s->raw ? -1 : 1;
    if (s->prompts == NULL)
        return NULL;
    if (s->from.data != NULL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--prompts"), "no --data beside it"), "both");
    s->from.data = s->prompts;
    return NULL;
}

int cmd_generate(cli *cli, int argc, char **argv)
{
    settings s = { .from = { .size = sizeof s.from }, .batch = 32 };
    cli_option table[CLI_MAX_OPTIONS] = {
        { "prompt", CLI_TEXT | CLI_COMMON, &s.from.text,
          "a question, where the model stores a chat template or --template names one; else a text to continue",
          "TEXT", .min = 1, .heading = "prompts" },
        { "raw", CLI_FLAG | CLI_COMMON, &s.raw, "continue the text of --prompt as it stands" },
        { "image", CLI_TEXTS | CLI_UNSAVED | CLI_COMMON, &s.image,
          "picture that the prompt is about; may be given several times if the model reads several",
          "FILE", .advice = "--data FILE: a record's \"images\" lists as many as there are" },
        { "tokens", CLI_TEXT | CLI_COMMON, &s.from.tokens, "token ids to continue", "1,2,3" },
        { "prompts", CLI_PATH, &s.prompts, "another name of --data", "FILE" },
        { "data", CLI_PATH | CLI_COMMON, &s.from.data,
          "prompts: JSON Lines of texts or of objects with prompt, messages or tokens, a folder of images, or .safetensors, each row up to its first label",
          "PATH" },
        { "on-bad", CLI_CHOICE, &s.from.on_bad, SHEAF__BAD_HELP, .choices = sheaf__bad_choices },
        { "fields", CLI_TEXT, &s.from.fields, SHEAF__FIELDS_HELP, "THEIRS=OURS,..." },
        { "query", CLI_TEXT, &s.from.query, SHEAF__QUERY_HELP "the run's, else CAPTCHA:", "TEXT" },
        { "json-schema", CLI_PATH, &s.json_schema, "the answer is JSON that this schema allows",
          "FILE", .heading = "answers" },
        { "batch", CLI_COUNT | CLI_COMMON, &s.batch, "prompts computed together", .min = 1,
          .max = 4096, .heading = "ranks" },
        { "dp", CLI_INT, &s.model.dp,
          "data-parallel groups of --tp ranks each, which share the prompts of --data", "D", 1,
          SHEAF_MAX_SLICES },
        { 0 },
    };
    ask_model_table(table, &s.model);
    ask_table(table, &s.ask, &s.model, 64);
    driver_processes_table(table, &s.processes, false);
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    TRY(st, check_files(&s));
    TRY(st, driver_processes_begin(&s.processes, cli, s.model.tp * s.model.dp, s.model.place));
    if (st == NULL && !s.processes.elsewhere)
        st = run(cli, table, &s);
    if (st != NULL && driver_signals_stopped_by() != NULL && sheaf_status_found(st)[0] == '\0')
        sheaf_found(st, "a request to stop");
    return driver_processes_answer(&s.processes, cli, driver_signals_explain(st), true);
}
