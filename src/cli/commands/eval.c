/* eval.c - `sheaf eval`: loss and accuracy of a model on data. */
#include "ask.h"
#include "base/base.h"
#include "base/file.h"
#include "base/print.h"
#include "driver/processes.h"
#include "driver/signals.h"
#include "commands.h"
#include "sheaf/cut.h"
#include "sheaf/evaluate.h"

const char cmd_eval_usage[] =
    "usage: sheaf eval MODEL DATA [FLAG...]\n"
    "Computes the mean loss per label token, and the accuracy: the share of label tokens that the\n"
    "model finds most probable. --match also generates an answer to each record, greedily, and\n"
    "counts those that equal the record's. --save-logits also writes all logits, float32\n"
    "[rows, length, vocabulary]. --objective computes the loss of a preference objective on its\n"
    "pairs or judged answers, the share in the right order, and rewards. Of a reward model without\n"
    "it the score of each record is printed.\n";

enum { WORST = 5 }; /* mismatches that are shown */

typedef struct mismatch {
    int64_t prompt, distance; /* more by one; 0: none */
} mismatch;

typedef struct work {
    const cli *cli;
    sheaf_model_open_options model;
    sheaf_model_evaluate_options o;
    driver_processes processes;
    bool match, max_new_given, specials;
    int64_t max_new;
    char *settings; /* of an objective */
    double *score;  /* [scores] of a reward model */
    int64_t scores, score_capacity;
    /* found: */
    sheaf_model_facts facts;
    sheaf_model_evaluate_report report;
    /* with --match: */
    sheaf_prompts *prompts;
    int64_t count;      /* of them */
    sheaf_answer **out; /* [count] */
    int64_t compared, equal, equal_nocase, wrong, cut;
    mismatch worst[WORST]; /* the farthest first, of equals the earlier */
} work;

/* ---- answers ---- */

/* Edit distance between the beginnings of two texts. */
static int64_t distance(const char *a, const char *b)
{
    enum { MOST = 255 };
    const size_t n = strnlen(a, MOST), m = strnlen(b, MOST);
    int row[MOST + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int above = row[j], change = corner + (a[i - 1] != b[j - 1]);
            const int other = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = change < other ? change : other;
            corner = above;
        }
    }
    return row[m];
}

static void note_mismatch(work *w, int64_t prompt, const char *expected)
{
    mismatch one = { prompt, 1 + distance(sheaf_answer_text(w->out[prompt]), expected) };
    for (int i = 0; i < WORST; i++)
        if (w->worst[i].distance < one.distance) {
            const mismatch out = w->worst[i];
            w->worst[i] = one;
            one = out;
        }
    w->wrong++;
}

static void compare(work *w)
{
    for (int64_t i = 0; i < w->count; i++) {
        const char *expected = ask_facts(w->prompts, i).expected;
        if (expected == NULL)
            continue;
        const bool equal = sheaf_prompts_match(w->prompts, i, w->out[i], false);
        w->compared++;
        w->cut += !equal && sheaf_answer_ending(w->out[i]) == SHEAF_ENDS_LENGTH;
        w->equal += equal;
        w->equal_nocase += sheaf_prompts_match(w->prompts, i, w->out[i], true);
        if (!equal)
            note_mismatch(w, i, expected);
    }
    if (w->cut > 0)
        sheaf_warn(&w->cli->events,
                   "%lld of %lld answers that are not equal had not ended after %lld tokens "
                   "(--max-new)",
                   (long long)w->cut, (long long)w->wrong, (long long)w->max_new);
}

/* ---- results ---- */

static void put_mismatches(sheaf_json_writer *to, const work *w)
{
    sheaf__json_open(to, "mismatches", '[');
    for (int i = 0; i < WORST && w->worst[i].distance > 0; i++) {
        const int64_t prompt = w->worst[i].prompt;
        sheaf__json_put(to, "{ record:d image:s expected:s text:s", prompt + 1,
                        sheaf_prompts_image(w->prompts, prompt, 0),
                        ask_facts(w->prompts, prompt).expected, sheaf_answer_text(w->out[prompt]));
        ask_images_json(to, w->prompts, prompt);
        sheaf__json_close(to, '}');
    }
    sheaf__json_close(to, ']');
}

static void print_mismatches(const work *w)
{
    FILE *to = w->cli->out;
    const double n = (double)w->compared;
    sheaf__print(to, "exact match: %lld of %lld (%.1f %%), without case %lld (%.1f %%)\n",
                 (long long)w->equal, (long long)w->compared, 100 * (double)w->equal / n,
                 (long long)w->equal_nocase, 100 * (double)w->equal_nocase / n);
    for (int i = 0; i < WORST && w->worst[i].distance > 0; i++) {
        const int64_t prompt = w->worst[i].prompt;
        const char *image = sheaf_prompts_image(w->prompts, prompt, 0);
        sheaf__print(to, "  record %lld%s%s: '%.80s' instead of '%.80s'\n", (long long)prompt + 1,
                     image == NULL ? "" : ", ", image == NULL ? "" : image,
                     sheaf_answer_text(w->out[prompt]), ask_facts(w->prompts, prompt).expected);
    }
    if (w->wrong > WORST)
        sheaf__print(to, "  and %lld more\n", (long long)(w->wrong - WORST));
}

static sheaf_status *keep_score(void *self, int64_t row, double score)
{
    work *w = self;
    if (!SHEAF_GROW(&w->score, &w->score_capacity, row + 1))
        return sheaf__no_memory("scores");
    w->score[row] = score;
    w->scores = row + 1;
    return NULL;
}

static void print_scores(const work *w)
{
    sheaf_json_writer j = { .compact = true };
    for (int64_t i = 0; i < w->scores && !w->cli->json; i++)
        sheaf__print(w->cli->out, "%.6f\n", w->score[i]);
    if (!w->cli->json)
        return;
    sheaf__json_begin(&j);
    sheaf__json_put(&j, "records:d", w->scores);
    for (int i = 0; i < w->report.values; i++)
        sheaf__json_put_real(&j, w->report.value[i].name, w->report.value[i].value);
    sheaf__json_open(&j, "scores", '[');
    for (int64_t i = 0; i < w->scores; i++)
        sheaf__json_put_real(&j, NULL, w->score[i]);
    sheaf__json_close(&j, ']');
    if (w->facts.sums != NULL)
        sheaf__json_put_text(&j, "sums", w->facts.sums);
    cli_json_end(w->cli->out, &j);
}

static void print_result(const work *w)
{
    const sheaf_model_evaluate_report *r = &w->report;
    const double accuracy = r->tokens == 0 ? 0 : (double)r->correct / (double)r->tokens,
                 n = (double)w->compared;
    if (!w->cli->json) {
        sheaf__print(w->cli->out, "loss %.6f, accuracy %.4f over %lld %s\n", r->loss, accuracy,
                     (long long)r->tokens, r->values > 0 ? "samples" : "label tokens");
        for (int i = 0; i < r->values; i++)
            sheaf__print(w->cli->out, i + 1 < r->values ? "%s %.6f, " : "%s %.6f\n",
                         r->value[i].name, r->value[i].value);
        if (w->compared > 0)
            print_mismatches(w);
        return;
    }
    sheaf_json_writer j = { .compact = true };
    sheaf__json_begin(&j);
    sheaf__json_put(&j,
                    r->values > 0 ? "loss:f samples:d accuracy:f" : "loss:f tokens:d accuracy:f",
                    r->loss, r->tokens, accuracy);
    for (int i = 0; i < r->values; i++)
        sheaf__json_put_real(&j, r->value[i].name, r->value[i].value);
    if (w->compared > 0) {
        sheaf__json_put(&j, "exact_match:f exact_match_nocase:f answers:d", (double)w->equal / n,
                        (double)w->equal_nocase / n, w->compared);
        put_mismatches(&j, w);
    }
    if (w->facts.sums != NULL)
        sheaf__json_put_text(&j, "sums", w->facts.sums);
    cli_json_end(w->cli->out, &j);
}

/* ---- the command ---- */

static sheaf_status *read_prompts(work *w, sheaf_model *m)
{
    sheaf_prompts_options o = { .size = sizeof o };
    o.data = w->o.data;
    o.query = w->o.query;
    o.fields = w->o.fields;
    o.on_bad = w->o.on_bad;
    sheaf_status *st = sheaf_prompts_open(&w->prompts, m, &o);
    if (st != NULL)
        return st;
    int64_t expected = 0;
    w->count = sheaf_prompts_count(w->prompts);
    for (int64_t i = 0; i < w->count; i++)
        expected += ask_facts(w->prompts, i).expected != NULL;
    if (expected == 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", w->o.data), "answers to compare with"),
            "none");
    if (!w->max_new_given && w->facts.max_new > 0)
        w->max_new = w->facts.max_new;
    w->o.prompts = w->prompts;
    w->o.out = w->out = calloc((size_t)w->count, sizeof *w->out);
    return w->out == NULL ? sheaf__no_memory("answers") : NULL;
}

static sheaf_status *run(cli *cli, work *w)
{
    sheaf_model *m = NULL;
    char *partial = NULL;
    SHEAF_INIT(&w->facts);
    SHEAF_INIT(&w->report);
    sheaf_model_generate_options answers = { .size = sizeof answers };
    w->model.events = w->o.events = &cli->events;
    w->model.evaluates = w->match ? NULL : w->o.data;
    sheaf_status *st = sheaf_model_open(&m, &w->model);
    TRY(st, sheaf_model_info(&w->facts, m));
    if (w->match)
        TRY(st, read_prompts(w, m));
    if (st == NULL && w->o.save_logits != NULL) { /* else a signal may end the process */
        if (w->o.control == NULL)
            st = driver_signals_control(&w->o.control);
        TRY(st, sheaf__partial_path(&partial, w->o.save_logits, "partial", 0));
        driver_signals_unfinished(partial);
    }
    answers.max_new = w->max_new;
    answers.max_length = INT64_MAX; /* rows that are too long were refused, or allowed */
    answers.sampled = -1;
    answers.model_defaults = true;
    answers.batch = w->o.micro_batch;
    answers.control = w->o.control;
    answers.events = w->o.events;
    w->o.answers = &answers;
    w->o.score = keep_score;
    w->o.context = w;
    TRY(st, sheaf_model_evaluate(&w->report, m, &w->o));
    driver_progress_end(cli);
    if (st == NULL && w->match)
        compare(w);
    if (st == NULL)
        (w->scores > 0 ? print_scores : print_result)(w);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED)
        sheaf_found(st, "a request to stop; nothing was left behind");
    driver_signals_unfinished(NULL);
    for (int64_t i = 0; i < w->count && w->out != NULL; i++)
        sheaf_answer_free(w->out[i]);
    free(w->out);
    free(w->score);
    free(partial);
    sheaf_prompts_close(w->prompts);
    sheaf_model_close(m);
    return driver_signals_explain(st);
}

int cmd_eval(cli *cli, int argc, char **argv)
{
    work w = { .cli = cli, .max_new = 64, .o = { .size = sizeof w.o, .micro_batch = 4 } };
    sheaf_model_evaluate_options *o = &w.o;
    cli_option table[CLI_MAX_OPTIONS] = { { 0 } }, objective[CLI_MAX_OPTIONS] = { { 0 } };
    sheaf__run_settings train = { 0 };
    sheaf_status *st = sheaf__run_settings_open(&train, &cli->settings, true);
    ask_model_table(table, &w.model);
    if (st == NULL)
        sheaf__objective_settings(objective, train.table);
    const cli_option rows[] = {
        { "data", CLI_PATH | CLI_REQUIRED | CLI_COMMON | CLI_WORD, &o->data,
          "examples as JSON Lines or a JSON array, a folder of images, or .safetensors with input_ids and labels; also as the second word",
          "PATH", .heading = "data" },
        { "match", CLI_FLAG | CLI_COMMON, &w.match,
          "also answer every record, and count the answers that are right" },
        { "exact-match", CLI_FLAG | CLI_HIDDEN, &w.match, "the same" },
        { "max-new", CLI_COUNT | CLI_COMMON, &w.max_new, "most tokens of an answer", .min = 1,
          .max = 1e7 },
        { "tokenizer", CLI_PATH, &o->tokenizer, SHEAF__TOKENIZER_HELP, "PATH" },
        { "template", CLI_TEXT | CLI_COMMON, &o->prompt_template,
          SHEAF__TEMPLATE_HELP "the run's, else the model's own", "NAME" },
        { "date", CLI_TEXT, &o->date,
          SHEAF__DATE_HELP "; default: the run's, else the template's own", "DATE" },
        { "query", CLI_TEXT, &o->query, SHEAF__QUERY_HELP "the run's, else CAPTCHA:", "TEXT" },
        { "loss-on", CLI_CHOICE, &o->loss_on, SHEAF__LOSS_HELP "the run's, else all answers",
          .choices = sheaf__loss_choices },
        { "specials", CLI_FLAG, &w.specials, SHEAF__SPECIALS_HELP },
        { "data-cache", CLI_PATH, &o->data_cache, "folder that caches tokenised texts", "DIR" },
        { "on-long", CLI_CHOICE, &o->on_long, SHEAF__LONG_HELP, .choices = sheaf__long_choices },
        { "on-bad", CLI_CHOICE, &o->on_bad, SHEAF__BAD_HELP, .choices = sheaf__bad_choices },
        { "fields", CLI_TEXT, &o->fields, SHEAF__FIELDS_HELP, "THEIRS=OURS,..." },
        { "dp", CLI_INT, &w.model.dp,
          "data-parallel groups of --tp ranks each, which share the rows", "D", 1, SHEAF_MAX_SLICES,
          .heading = "ranks" },
        { "micro-batch", CLI_COUNT | CLI_COMMON, &o->micro_batch, "rows of one forward", .min = 1,
          .max = 1e6, .heading = "batching" },
        { "seq", CLI_COUNT | CLI_COMMON, &o->seq, "longest row in tokens; 0 = as long as the data",
          .max = 1e8 },
        { "save-logits", CLI_PATH | CLI_COMMON, &o->save_logits,
          "write all logits to this .safetensors file", "FILE", .heading = "result" },
        { 0 },
    };
    sheaf__settings_append(table, rows);
    sheaf__settings_append(table, objective);
    driver_processes_table(table, &w.processes, false);
    TRY(st, cli_parse(cli, table, NULL, argc, argv));
    TRY(st, sheaf__settings_text(&w.settings, objective, false));
    o->settings = w.settings;
    TRY(st, driver_processes_begin(&w.processes, cli, w.model.tp * w.model.dp, w.model.place));
    if (st == NULL && !w.processes.elsewhere) {
        w.max_new_given = sheaf__settings_given(&cli->settings, table, "max-new");
        if (sheaf__settings_given(&cli->settings, table, "specials"))
            o->specials = w.model.specials = w.specials ? 1 : -1;
        w.model.tokenizer = o->tokenizer;
        w.model.prompt_template = o->prompt_template;
        w.model.date = o->date;
        w.model.late = true;
        w.model.processes = w.processes.all;
        o->control = w.processes.stop == NULL ? NULL : driver_signals();
        st = run(cli, &w);
    }
    free(w.settings);
    sheaf__run_settings_close(&train);
    return driver_processes_answer(&w.processes, cli, st, true);
}
