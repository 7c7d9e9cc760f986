/* eval.c - `sheaf eval`: loss and accuracy of a model on data. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "commands.h"
#include "base/base.h"
#include "library/train_settings.h"
#include "library/generation_config.h"
#include "library/evaluation.h"
#include "base/output.h"
#include "base/print.h"
#include "cli/lib/processes.h"
#include "cli/lib/signals.h"
#include "comm/doing.h"
#include "comm/all.h"
#include "formats/safetensors.h"
#include "infer/batch_images.h"
#include "infer/prompts.h"
#include "library/model.h"
#include "models/crew.h"
#include "plan/fits.h"
#include "monitor/monitor.h"
#include "train/evaluate.h"

const char cmd_eval_usage[] =
    "usage: sheaf eval MODEL DATA [--adapter DIR] [--match] [--tp T] [--save-logits FILE]\n"
    "Mean loss per label token and the share of label tokens that are the model's first\n"
    "choice. With --match every record is also answered, greedily, and the answers that are\n"
    "equal to the record's counted. With --save-logits also every logit, float32 [rows, length,\n"
    "vocabulary].\n";

enum { WORST = 5 }; /* mismatches that are shown */

typedef struct work {
    sheaf__evaluator e;
    cli_processes processes;
    const char *save_logits;
    bool match, max_new_given, specials;
    int64_t max_new;
    sheaf_file file;        /* of the logits; all processes that write have it open */
    int64_t at;             /* where in it they begin */
    bool created, begun;    /* by this process; by all */
    char *partial;          /* its path */
    const atomic_int *stop; /* NULL while it writes nothing: a signal may then end the process */
    int64_t seq;
    /* with --match: */
    sheaf__prompts prompts;
    sheaf__asking asking;
    sheaf__answering answering;
    sheaf_answer **out; /* [prompts.count] */
} work;

static sheaf_status *answer_all(void *self, sheaf__model *model)
{
    work *w = self;
    return sheaf__answering_on_rank(&w->answering, model);
}

static sheaf_status *write_logits(void *self, int64_t row, int64_t position, const float *logits,
                                  int64_t vocab)
{
    work *w = self;
    if (atomic_load(w->stop) != 0)
        return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "eval"),
                           "a request to stop; nothing was left behind");
    return sheaf__file_write_at(&w->file, logits, (size_t)vocab * 4,
                                w->at + (row * w->seq + position) * vocab * 4);
}

static sheaf_status *create_logits(work *w)
{
    const sheaf_safetensors_spec spec = { .name = "logits",
                                          .dtype = SHEAF_F32,
                                          .ndim = 3,
                                          .shape = { sheaf_data_rows(w->e.rows), w->seq,
                                                     w->e.opened.config.vocab } };
    char *header = NULL;
    size_t size = 0;
    int64_t bytes = 0;
    sheaf_status *st = sheaf__safetensors_plan(&header, &size, &w->at, &spec, 1, NULL, 0);
    TRY(st, sheaf__safetensors_bytes(&bytes, &spec));
    TRY(st, sheaf__file_create(&w->file, w->partial));
    w->created = st == NULL;
    TRY(st, sheaf__file_reserve(&w->file, w->at + bytes));
    TRY(st, sheaf__file_write_at(&w->file, header, size, 0));
    free(header);
    return st;
}

/* `st`: of all before, consumed. A file that has failed is gone. */
static sheaf_status *close_logits(work *w, sheaf_status *st)
{
    if (w->file.path == NULL)
        return st;
    TRY(st, sheaf__file_sync(&w->file));
    sheaf_status *closed = sheaf__file_close(&w->file);
    if (st == NULL)
        return closed;
    sheaf_status_free(closed);
    return st;
}

/* The end of what lies under another name: of a success nothing does. */
static sheaf_status *drop_logits(work *w, sheaf_status *st)
{
    st = close_logits(w, st);
    if (st != NULL && w->created)
        unlink(w->partial);
    cli_signals_unfinished(NULL);
    return st;
}

static sheaf_status *open_logits(work *w)
{
    sheaf_status *st = sheaf__file_open_write(&w->file, w->partial);
    return st == NULL ? NULL
                      : sheaf_try_this(st, "an output on a file system that all hosts share");
}

/* Under another name until all are there. The first rank of every group writes; of processes each
 * has the file open. */
static sheaf_status *begin_logits(void *self, sheaf__model *model)
{
    work *w = self;
    const bool first = sheaf__is_first(model->context);
    sheaf_status *st = NULL;
    if (!sheaf__crew_keeps(model->context))
        return NULL;
    if (first)
        st = sheaf__partial_path(&w->partial, w->save_logits, "partial", 0);
    if (st == NULL && w->stop == NULL) {
        st = cli_signals_install();
        w->stop = sheaf__control_stop(cli_signals());
    }
    w->asking.generate.stop_now = w->stop;
    if (st == NULL && first) {
        cli_signals_unfinished(w->partial);
        st = create_logits(w);
    }
    st = sheaf__all_agree(w->processes.all, st);
    TRY(st, sheaf__all_share(w->processes.all, &w->partial));
    TRY(st, sheaf__all_broadcast(w->processes.all, &w->at, sizeof w->at));
    if (st == NULL && !first && sheaf__is_first_of_group(model->context))
        st = open_logits(w);
    st = sheaf__all_agree(w->processes.all, st);
    w->begun = st == NULL;
    return w->begun ? NULL : drop_logits(w, st);
}

static sheaf_status *check_logits(const work *w)
{
    struct stat about;
    if (w->save_logits == NULL || lstat(w->save_logits, &about) != 0)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--save-logits %s", w->save_logits),
                                      "a file that does not exist"),
                       "something there already");
}

/* `st`: of all that came before, consumed. */
static sheaf_status *finish_logits(work *w, sheaf_status *st)
{
    if (!w->begun)
        return st;
    sheaf__doing_phase(sheaf_comm_doing(w->processes.all), "finishing");
    st = sheaf__all_agree(w->processes.all, close_logits(w, st));
    if (st == NULL && sheaf__all_first(w->processes.all)) {
        st = check_logits(w); /* nothing is replaced, whatever came there meanwhile */
        TRY(st, sheaf__rename_new(w->partial, w->save_logits));
    }
    st = sheaf__all_agree(w->processes.all, st);
    return drop_logits(w, st);
}

/* ---- answers ---- */

typedef struct mismatch {
    int64_t prompt, distance;
    char *text;
} mismatch;

typedef struct matches {
    int64_t compared, equal, equal_nocase, wrong, cut;
    mismatch worst[WORST]; /* the farthest first, of equals the earlier */
} matches;

/* Letters added, dropped or changed between two texts, of which only the beginnings count. */
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

/* Takes `text`. */
static void note_mismatch(matches *m, int64_t prompt, char *text, const char *expected)
{
    mismatch one = { prompt, distance(text, expected), text };
    for (int i = 0; i < WORST; i++)
        if (m->worst[i].text == NULL || m->worst[i].distance < one.distance) {
            const mismatch out = m->worst[i];
            m->worst[i] = one;
            one = out;
        }
    free(one.text);
    m->wrong++;
}

static sheaf_status *compare(matches *m, const work *w)
{
    const sheaf__wording *words = &w->e.wording;
    for (int64_t i = 0; i < w->prompts.count; i++) {
        const char *expected = w->prompts.about[i].expected, *text = sheaf_answer_text(w->out[i]);
        if (expected == NULL)
            continue;
        const bool equal = sheaf__wording_same(words, text, expected, false);
        m->compared++;
        m->cut += !equal && sheaf_answer_ending(w->out[i]) == SHEAF_ENDS_LENGTH;
        m->equal += equal;
        m->equal_nocase += sheaf__wording_same(words, text, expected, true);
        char *own = equal ? NULL : strdup(text);
        if (own != NULL)
            note_mismatch(m, i, own, expected);
        else if (!equal)
            return sheaf__no_memory("answers");
    }
    return NULL;
}

static void release_matches(matches *m)
{
    for (int i = 0; i < WORST; i++)
        free(m->worst[i].text);
}

/* ---- results ---- */

static json_t *mismatches_json(const matches *m, const work *w)
{
    json_t *list = json_array();
    for (int i = 0; i < WORST && m->worst[i].text != NULL; i++) {
        const sheaf__prompt_about *about = &w->prompts.about[m->worst[i].prompt];
        json_t *one =
            json_pack("{s:I, s:o, s:o, s:o}", "record", (json_int_t)m->worst[i].prompt + 1, "image",
                      ask_json(about->image), "expected", ask_json(about->expected), "text",
                      ask_json(m->worst[i].text));
        for (int64_t k = 0; about->nviewed > 1 && k < about->nviewed; k++) {
            if (k == 0)
                json_object_set_new(one, "images", json_array());
            json_array_append_new(json_object_get(one, "images"), ask_json(about->viewed[k].path));
        }
        json_array_append_new(list, one);
    }
    return list;
}

static void print_mismatches(const cli *cli, const matches *m, const work *w)
{
    const double n = (double)m->compared;
    sheaf__print(cli->out, "exact match: %lld of %lld (%.1f %%), without case %lld (%.1f %%)\n",
                 (long long)m->equal, (long long)m->compared, 100 * (double)m->equal / n,
                 (long long)m->equal_nocase, 100 * (double)m->equal_nocase / n);
    for (int i = 0; i < WORST && m->worst[i].text != NULL; i++) {
        const sheaf__prompt_about *about = &w->prompts.about[m->worst[i].prompt];
        sheaf__print(cli->out, "  record %lld%s%s: '%.80s' instead of '%.80s'\n",
                     (long long)m->worst[i].prompt + 1, about->image == NULL ? "" : ", ",
                     about->image == NULL ? "" : about->image, m->worst[i].text, about->expected);
    }
    if (m->wrong > WORST)
        sheaf__print(cli->out, "  and %lld more\n", (long long)(m->wrong - WORST));
}

static void print_result(const cli *cli, const work *w, const matches *m)
{
    const sheaf__evaluation *found = &w->e.result;
    const double accuracy = found->tokens == 0 ? 0 : (double)found->correct / (double)found->tokens;
    if (cli->json) {
        json_t *object = json_pack("{s:o, s:I, s:f}", "loss", ask_json_real(found->loss), "tokens",
                                   (json_int_t)found->tokens, "accuracy", accuracy);
        if (m->compared > 0) {
            json_object_set_new(object, "exact_match",
                                json_real((double)m->equal / (double)m->compared));
            json_object_set_new(object, "exact_match_nocase",
                                json_real((double)m->equal_nocase / (double)m->compared));
            json_object_set_new(object, "answers", json_integer(m->compared));
            json_object_set_new(object, "mismatches", mismatches_json(m, w));
        }
        if (w->e.o.dtype == SHEAF_BF16)
            json_object_set_new(object, "bf16_sums",
                                json_string(sheaf__sums_name(w->e.o.dtype, w->e.o.bf16_sums)));
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
    } else {
        sheaf__print(cli->out, "loss %.6f, accuracy %.4f over %lld label tokens\n", found->loss,
                     accuracy, (long long)found->tokens);
        if (m->compared > 0)
            print_mismatches(cli, m, w);
    }
}

/* ---- the command ---- */

static sheaf_status *read_answers(work *w)
{
    sheaf__evaluator *e = &w->e;
    w->asking = (sheaf__asking){ .wording = &e->wording,
                                 .generate = { .max_new = w->max_new,
                                               .batch = e->o.micro_batch,
                                               .load = sheaf__prompts_load,
                                               .self = &w->prompts,
                                               .stop_now = w->stop,
                                               .events = e->o.events } };
    const sheaf_model_generate_options greedy = { .sampled = -1 };
    sheaf__generation_config generation;
    sheaf_status *st = sheaf__wording_needed(&e->wording);
    if (st != NULL)
        return sheaf_in(st, "--match");
    st = sheaf__generation_config_read(&generation, e->run.folder, NULL);
    if (st != NULL)
        return st;
    sheaf__generation_config_stops(&e->wording, &generation); /* all three as generate does */
    sheaf__generation_config_sampling(&w->asking.generate.sampling, &generation, &greedy, e->notes);
    if (!w->max_new_given && generation.max_new > 0)
        w->asking.generate.max_new = w->max_new = generation.max_new;
    e->asking = &w->asking;
    st = sheaf__prompts_read(&w->prompts, &e->wording,
                             &(sheaf_prompts_options){ .data = e->o.data,
                                                       .query = e->o.query,
                                                       .fields = e->o.fields,
                                                       .on_bad = e->o.on_bad,
                                                       .events = e->o.events },
                             e->rows);
    int64_t expected = 0;
    for (int64_t i = 0; i < w->prompts.count; i++)
        expected += w->prompts.about[i].expected != NULL;
    if (st == NULL && expected == 0)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", e->o.data), "answers to compare with"),
            "none");
    w->answering = (sheaf__answering){ .a = &w->asking,
                                       .prompt = w->prompts.prompt,
                                       .count = w->prompts.count };
    if (st == NULL && (w->out = calloc((size_t)w->prompts.count, sizeof *w->out)) == NULL)
        st = sheaf__no_memory("answers");
    w->answering.out = w->out;
    return st;
}

/* Positions and memory for the answers too. */
static sheaf_status *answers_fit(work *w)
{
    sheaf__evaluator *e = &w->e;
    const sheaf__prompts *p = &w->prompts;
    sheaf__placement place;
    sheaf_plan_generation asked;
    sheaf_status *st = sheaf__evaluator_layout(&asked, &place, e, p->count);
    asked.prompt = 1;
    for (int64_t i = 0; i < p->count; i++)
        asked.prompt = p->prompt[i].n > asked.prompt ? p->prompt[i].n : asked.prompt;
    asked.images =
        sheaf__prompts_images(asked.patches, p->prompt, p->count, asked.batch, &e->opened.config);
    asked.seq = asked.prompt + w->max_new;
    e->positions = asked.seq > e->positions ? asked.seq : e->positions;
    return st == NULL ? sheaf_fits_generate(
                            &asked, &(sheaf_fits_how){ .force = e->o.force, .events = e->o.events })
                      : st;
}

static sheaf_status *ready(void *self)
{
    work *w = self;
    sheaf__evaluator *e = &w->e;
    w->seq = e->positions;
    if (!w->match)
        return NULL;
    sheaf_status *st = read_answers(w);
    if (st == NULL) /* rows that are too long were refused, or asked for */
        st = sheaf__prompts_reach(&e->opened.config, &w->prompts, w->max_new, INT64_MAX,
                                  e->o.events);
    return st == NULL ? answers_fit(w) : st;
}

static sheaf_status *run(const cli *cli, work *w)
{
    matches m = { 0 };
    sheaf_monitor *monitor = NULL;
    sheaf_status *st =
        sheaf_monitor_open(&monitor, &(sheaf_monitor_options){ .progress = cli->err });
    if (st != NULL)
        return st;
    w->e.o.events = sheaf_monitor_events(monitor);
    st = sheaf__evaluator_run(&w->e);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED)
        sheaf_found(st, "a request to stop; nothing was left behind");
    st = cli_signals_explain(st);
    sheaf_status_free(sheaf_monitor_close(monitor)); /* it holds no file */
    st = finish_logits(w, st);
    if (st == NULL && w->match)
        st = compare(&m, w);
    if (st == NULL && m.cut > 0)
        sheaf_warn(w->e.notes,
                   "%lld of %lld answers that are not equal had not ended after %lld tokens "
                   "(--max-new)",
                   (long long)m.cut, (long long)m.wrong, (long long)w->max_new);
    if (st == NULL)
        print_result(cli, w, &m);
    release_matches(&m);
    cli_signals_unfinished(NULL);
    free(w->partial);
    for (int64_t i = 0; i < w->prompts.count && w->out != NULL; i++)
        sheaf_answer_free(w->out[i]);
    free(w->out);
    sheaf__prompts_release(&w->prompts);
    return st;
}

int cmd_eval(cli *cli, int argc, char **argv)
{
    work w = { .max_new = 64,
               .e = { .o = { .tp = 1, .dp = 1, .micro_batch = 4 }, .notes = &cli->events } };
    sheaf__evaluator *e = &w.e;
    cli_option table[CLI_MAX_OPTIONS] = {
        { "model", CLI_PATH | CLI_REQUIRED | CLI_COMMON | CLI_WORD, &e->o.model,
          "folder of the model, or of a training run; a word beside flags means it too", "DIR",
          .heading = "model and data" },
        { "config", CLI_PATH, &e->o.config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH | CLI_COMMON, &e->o.adapter,
          "PEFT adapter, or a training run, to use with it", "DIR" },
        { "data", CLI_PATH | CLI_REQUIRED | CLI_COMMON | CLI_WORD, &e->o.data,
          "JSON Lines or a JSON array, a folder of images, or .safetensors with input_ids and labels",
          "PATH" },
        { "match", CLI_FLAG | CLI_COMMON, &w.match,
          "also answer every record and count the answers that are right" },
        { "exact-match", CLI_FLAG | CLI_HIDDEN, &w.match, "the same" },
        { "max-new", CLI_COUNT | CLI_COMMON, &w.max_new, "most tokens of an answer", .min = 1,
          .max = 1e7 },
        { "tokenizer", CLI_PATH, &e->o.tokenizer,
          "folder, tokenizer.json or tokenizer.model; default: the model's folder, else bytes",
          "PATH" },
        { "template", CLI_TEXT | CLI_COMMON, &e->o.prompt_template,
          "name of the chat template; of CogVLM and CogAgent base, chat, vqa or chat_old; default: the model's",
          "NAME" },
        { "date", CLI_TEXT, &e->o.date,
          "the date that a chat template writes (Llama 3.1 and 3.2, SmolLM3): YYYY-MM-DD, or a text where the template takes one; default: the run's, else the template's own",
          "DATE" },
        { "query", CLI_TEXT, &e->o.query, "asked of every image of a folder (default CAPTCHA:)",
          "TEXT" },
        { "loss-on", CLI_CHOICE, &e->o.loss_on, SHEAF__LOSS_HELP, .choices = sheaf__loss_choices },
        { "specials", CLI_FLAG, &w.specials, SHEAF__SPECIALS_HELP },
        { "data-cache", CLI_PATH, &e->o.data_cache,
          "keep tokenised texts in this folder and find them again", "DIR" },
        { "on-long", CLI_CHOICE, &e->o.on_long, SHEAF__LONG_HELP, .choices = sheaf__long_choices },
        { "on-bad", CLI_CHOICE, &e->o.on_bad, SHEAF__BAD_HELP, .choices = sheaf__bad_choices },
        { "fields", CLI_TEXT, &e->o.fields, SHEAF__FIELDS_HELP, "THEIRS=OURS,..." },
        { "tp", CLI_INT | CLI_COMMON, &e->o.tp, "ranks that share the model", "T", 1,
          SHEAF_MAX_SLICES, .heading = "ranks" },
        { "dp", CLI_INT | CLI_COMMON, &e->o.dp,
          "groups of such ranks, each with the whole model, that share the rows", "D", 1,
          SHEAF_MAX_SLICES },
        { "place", CLI_TEXT, &e->o.place,
          "layers over stages of --tp ranks each: 2, by memory 24,12, or 0-10,11-31", "P", 1 },
        { "threads", CLI_INT | CLI_COMMON, &e->o.threads,
          "compute threads in all; 0 = every core at hand", .max = 4096 },
        { "slices", CLI_INT, &e->o.slices, ASK_SLICES, "S", 1, SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE | CLI_COMMON, &e->o.dtype,
          "type of activations and products (default the run's, else the model's own)",
          .choices = cli_dtypes, .heading = "model and data" },
        { "bf16-sums", CLI_CHOICE, &e->o.bf16_sums, SHEAF__SUMS_HELP,
          .choices = sheaf__sums_choices },
        { "micro-batch", CLI_COUNT | CLI_COMMON, &e->o.micro_batch, "rows of one forward", .min = 1,
          .max = 1e6, .heading = "batching" },
        { "seq", CLI_COUNT | CLI_COMMON, &e->o.seq,
          "longest row in tokens; 0 = as long as the data", .max = 1e8 },
        { "save-logits", CLI_PATH | CLI_COMMON, &w.save_logits,
          "write every logit to this .safetensors file", "FILE", .heading = "result" },
        { "force", CLI_FLAG, &e->o.force, ASK_FORCE, .heading = "failure" },
        { "isa", CLI_TEXT | CLI_HIDDEN, &e->o.isa, "ref, avx2, avx512, avx512bf16 or amx" },
        { 0 },
    };
    cli_processes_table(table, &w.processes, false);
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    TRY(st, cli_processes_begin(&w.processes, cli,
                                &(cli_processes_how){ .table = table,
                                                      .argc = argc,
                                                      .argv = argv,
                                                      .ranks = e->o.tp * e->o.dp,
                                                      .in_group = e->o.tp,
                                                      .place = e->o.place }));
    if (st == NULL && sheaf__all_first(w.processes.all))
        st = check_logits(&w);
    st = sheaf__all_agree(w.processes.all, st);
    if (st == NULL) {
        e->transport = w.processes.transport;
        e->all = w.processes.all;
        e->stop = w.stop = w.processes.stop;
        if (sheaf__settings_given(&cli->settings, table, "specials"))
            e->o.specials = w.specials ? 1 : -1;
        e->words = w.match;
        w.max_new_given = sheaf__settings_given(&cli->settings, table, "max-new");
        e->o.take = w.save_logits != NULL ? write_logits : NULL;
        e->o.context = &w;
        e->ready = ready;
        e->before = w.save_logits != NULL ? begin_logits : NULL;
        e->after = w.match ? answer_all : NULL;
        e->self = &w;
        st = sheaf__all_agree(w.processes.all, sheaf__evaluator_open(e));
    }
    TRY(st, run(cli, &w));
    sheaf__evaluator_close(e);
    return cli_processes_answer(&w.processes, cli, st, true);
}
