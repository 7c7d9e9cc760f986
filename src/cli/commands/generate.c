/* generate.c - `sheaf generate`: tokens that continue prompts. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "ask.h"
#include "commands.h"
#include "monitor/monitor.h"
#include "library/run_model.h"
#include "library/stop_ids.h"
#include "cli/lib/shared.h"

const char cmd_generate_usage[] =
    "usage: sheaf generate --model DIR [--adapter DIR] (--prompt TEXT [--image FILE] | --tokens 1,2,3 | --data PATH)\n"
    "                      --max-new N [--greedy | --temperature X --top-k N --top-p X] [--tp T]\n"
    "Continues one prompt, or every prompt of a file or a folder of images. The tokens are the\n"
    "same at any number of ranks. Where a record has an answer, the model's is compared with it.\n";

typedef struct settings {
    const char *model, *config, *adapter, *prompt, *image, *tokens, *data, *query, *isa, *place;
    int tp, threads, slices;
    sheaf_dtype dtype;
    sheaf_bf16_sums sums;
    int64_t batch;
    bool force;
    ask_flags ask;
} settings;

typedef struct work {
    const settings *s;
    const sheaf__wording *wording;
    const sheaf_events *events;
    const sheaf__prompts *prompts;
    sheaf__generate_options how;
    sheaf__continuation *out; /* of rank 0 */
} work;

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    sheaf__generate_options how = w->how;
    sheaf__continuation *own = NULL;
    const bool first = sheaf__is_first(model->context);
    how.events = first ? w->events : NULL;
    sheaf_status *st = first ? NULL : ask_answers_new(&own, w->prompts->count, how.max_new);
    if (st == NULL)
        st = sheaf__generate(first ? w->out : own, model, w->prompts->prompt, w->prompts->count,
                             &how);
    ask_answers_free(own);
    return st;
}

/* ---- results ---- */

/* Of a text that a template laid out, blanks at the ends are not the answer's. */
static bool same(const work *w, const char *text, const char *expected)
{
    if (text == NULL || expected == NULL)
        return false;
    return w->wording->templated ? sheaf__same_answer(text, expected, false)
                                 : strcmp(text, expected) == 0;
}

static json_t *tokens_json(const sheaf__continuation *c)
{
    json_t *tokens = json_array();
    for (int64_t i = 0; i < c->n; i++)
        json_array_append_new(tokens, json_integer(c->ids[i]));
    return tokens;
}

static json_t *record_json(const work *w, int64_t i, const char *text)
{
    const char *expected = w->prompts->about[i].expected;
    json_t *one = json_pack("{s:o, s:o, s:o}", "tokens", tokens_json(&w->out[i]), "text",
                            ask_json(text), "prompt", ask_json(w->prompts->about[i].text));
    if (w->prompts->about[i].image != NULL)
        json_object_set_new(one, "image", ask_json(w->prompts->about[i].image));
    if (expected != NULL) {
        json_object_set_new(one, "expected", ask_json(expected));
        json_object_set_new(one, "match", json_boolean(same(w, text, expected)));
    }
    return one;
}

static void print_words(const cli *cli, const work *w, int64_t i, const char *text)
{
    const sheaf__prompt_about *about = &w->prompts->about[i];
    if (w->wording->templated && w->s->data != NULL && about->image != NULL)
        sheaf__print(cli->out, "%s: ", about->image);
    else if (!w->wording->templated && about->text != NULL)
        cli_say(cli, about->text);
    cli_say(cli, text);
    fputc('\n', cli->out);
}

static sheaf_status *print_results(const cli *cli, const work *w)
{
    json_t *results = json_array();
    int64_t compared = 0, matches = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->prompts->count && st == NULL; i++) {
        char *text = NULL;
        st = sheaf__wording_answer(&text, w->wording, w->out[i].ids, w->out[i].n);
        compared += w->prompts->about[i].expected != NULL;
        matches += same(w, text, w->prompts->about[i].expected);
        if (st == NULL && cli->json)
            json_array_append_new(results, record_json(w, i, text));
        else if (st == NULL && text != NULL)
            print_words(cli, w, i, text);
        else if (st == NULL)
            for (int64_t j = 0; j < w->out[i].n; j++)
                sheaf__print(cli->out, "%d%c", (int)w->out[i].ids[j],
                             j + 1 == w->out[i].n ? '\n' : ',');
        free(text);
    }
    const double share = compared == 0 ? 0 : (double)matches / (double)compared;
    if (st == NULL && cli->json) {
        json_t *object = w->s->data == NULL ? json_incref(json_array_get(results, 0))
                                            : json_pack("{s:O}", "results", results);
        if (compared > 0)
            json_object_set_new(object, "exact_match", json_real(share));
        if (w->s->dtype == SHEAF_BF16)
            json_object_set_new(object, "bf16_sums",
                                json_string(sheaf__sums_name(w->s->dtype, w->s->sums)));
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
    } else if (st == NULL && compared > 0) {
        sheaf__print(cli->out, "exact match: %lld of %lld (%.1f %%)\n", (long long)matches,
                     (long long)compared, 100 * share);
    }
    json_decref(results);
    return st;
}

/* ---- the command ---- */

static sheaf_status *read_prompts(sheaf__prompts *prompts, sheaf_data **data, work *w,
                                  const sheaf_config *config)
{
    const settings *s = w->s;
    w->how.load = sheaf__prompts_load;
    w->how.self = prompts;
    if (s->data == NULL || s->prompt != NULL || s->tokens != NULL || !ask_is_tokens(s->data))
        return sheaf__prompts_read(prompts, w->wording,
                                   &(sheaf__prompts_from){ .text = s->prompt,
                                                           .tokens = s->tokens,
                                                           .file = s->data,
                                                           .image = s->image,
                                                           .query = s->query,
                                                           .events = w->events });
    sheaf_status *st = sheaf_data_open(
        data, s->data,
        &(sheaf_data_options){ .config = config, .events = w->events, .prompts = true });
    if (st == NULL)
        st = sheaf_in(ask_data(prompts, w->wording, *data), "%s", s->data);
    w->how.load = ask_data_load;
    w->how.self = *data;
    return st;
}

static sheaf_status *run(const cli *cli, const settings *s, const sheaf__opened *opened,
                         const char *folder, const sheaf__wording *wording)
{
    sheaf__prompts prompts = { 0 };
    sheaf_data *data = NULL;
    int64_t stop[SHEAF_MAX_EOS];
    sheaf_monitor *monitor = NULL;
    work w = { .s = s, .wording = wording, .events = &cli->events, .prompts = &prompts };
    sheaf_status *st =
        s->data == NULL
            ? NULL
            : sheaf_monitor_open(&monitor, &(sheaf_monitor_options){ .progress = cli->err });
    if (monitor != NULL) /* one prompt is no progress */
        w.events = sheaf_monitor_events(monitor);
    if (st == NULL)
        st = read_prompts(&prompts, &data, &w, &opened->config);
    if (st == NULL)
        st = sheaf__stop_ids(stop, &w.how.nstop, folder, wording);
    if (st == NULL)
        st = ask_reach(&opened->config, &prompts, s->ask.max_new, s->ask.max_length, w.events);
    if (st == NULL)
        st = ask_fits(&(ask_layout){ .place = s->place,
                                     .tp = s->tp,
                                     .threads = s->threads,
                                     .dtype = s->dtype,
                                     .force = s->force,
                                     .events = w.events },
                      opened, prompts.prompt, prompts.count, s->batch, s->ask.max_new);
    if (st == NULL)
        st = ask_answers_new(&w.out, prompts.count, s->ask.max_new);
    if (st == NULL) {
        w.how.sampling = ask_sampling(&s->ask);
        w.how.max_new = s->ask.max_new;
        w.how.max_length = s->ask.max_length;
        w.how.batch = s->batch;
        w.how.stop = stop;
        st = sheaf__crew_run(opened,
                             &(sheaf__crew_options){
                                 .ranks = s->tp,
                                 .place = s->place,
                                 .threads = s->threads,
                                 .dtype = s->dtype,
                                 .isa = s->isa,
                                 .sums = s->sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS,
                                 .positions = ask_positions(&prompts, s->ask.max_new),
                                 .events = w.events },
                             on_rank, &w);
    }
    sheaf_status_free(sheaf_monitor_close(monitor)); /* it holds no file */
    if (st == NULL)
        st = print_results(cli, &w);
    ask_answers_free(w.out);
    sheaf__prompts_release(&prompts);
    sheaf_data_close(data);
    return st;
}

int cmd_generate(cli *cli, int argc, char **argv)
{
    settings s = { .tp = 1, .slices = 8, .dtype = SHEAF_F32, .batch = 32 };
    cli_option table[CLI_MAX_OPTIONS] = {
        { "model", CLI_PATH | CLI_REQUIRED, &s.model, "folder of the model, or of a training run",
          "DIR" },
        { "config", CLI_PATH, &s.config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH, &s.adapter, "PEFT adapter, or a training run, to use with it",
          "DIR" },
        { "prompt", CLI_TEXT, &s.prompt, "text to continue, or question", "TEXT", .min = 1 },
        { "image", CLI_PATH, &s.image, "picture that the prompt asks about", "FILE" },
        { "tokens", CLI_TEXT, &s.tokens, "token ids to continue", "1,2,3" },
        { "data", CLI_PATH, &s.data,
          "JSON Lines, a folder of images, or .safetensors whose rows are cut at the first label",
          "PATH" },
        { "query", CLI_TEXT, &s.query, "asked of every image of a folder (default CAPTCHA:)",
          "TEXT" },
        { "batch", CLI_COUNT, &s.batch, "prompts run together", .min = 1, .max = 4096 },
        { "tp", CLI_INT, &s.tp, "ranks that share the model", "T", 1, SHEAF_MAX_SLICES },
        { "place", CLI_TEXT, &s.place,
          "layers over stages of --tp ranks each: 2, by memory 24,12, or 0-10,11-31", "P", 1 },
        { "threads", CLI_INT, &s.threads, "compute threads in all; 0 = every core at hand",
          .max = 4096 },
        { "slices", CLI_INT, &s.slices, "parts every tensor falls into, a power of two", "S", 1,
          SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE, &s.dtype, "type of activations and products",
          .choices = cli_dtypes },
        { "bf16-sums", CLI_CHOICE, &s.sums, SHEAF__SUMS_HELP, .choices = sheaf__sums_choices },
        { "force", CLI_FLAG, &s.force, ASK_FORCE },
        { "isa", CLI_TEXT | CLI_HIDDEN, &s.isa, "ref, avx2, avx512, avx512bf16 or amx" },
        { 0 },
    };
    ask_table(table, &s.ask, 64);
    sheaf__opened opened = { 0 };
    sheaf__run_model model = { 0 };
    sheaf__wording wording = { 0 };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL)
        st = sheaf__run_model_open(&opened, &model,
                                   &(sheaf__open_options){ .model = s.model,
                                                           .config = s.config,
                                                           .slices = s.slices,
                                                           .adapter = s.adapter,
                                                           .events = &cli->events });
    if (st == NULL) {
        sheaf_data_note_unused(NULL, s.data, NULL, s.query,
                               &cli->events); /* before a run's own words come to it */
        s.sums = sheaf__sums_of(s.sums, model.sums, s.dtype);
        sheaf__run_model_words(&model, &s.ask.tokenizer, &s.ask.version, &s.query);
        st = sheaf__wording_open(&wording, &opened.config,
                                 &(sheaf__wording_options){ .folder = model.folder,
                                                            .tokenizer = s.ask.tokenizer,
                                                            .version = s.ask.version,
                                                            .max_length = s.ask.max_length,
                                                            .events = &cli->events });
    }
    if (st == NULL)
        st = run(cli, &s, &opened, model.folder, &wording);
    sheaf__wording_close(&wording);
    sheaf__opened_close(&opened);
    sheaf__run_model_release(&model);
    return cli_report(cli, st);
}
