/* ask.c - see ask.h. */
#include "ask.h"

#include "base/base.h"
#include "cli/lib/cli.h"
#include "sheaf/cut.h"

/* ---- flags ---- */

static const cli_choice orders[] = { { "transformers", 0 }, { "sat", 1 }, { 0 } };

void ask_model_table(cli_option *table, sheaf_model_open_options *m)
{
    SHEAF_INIT(m);
    m->tp = m->dp = 1;
    const cli_option rows[] = {
        { "model", CLI_PATH | CLI_REQUIRED | CLI_COMMON | CLI_WORD, &m->model,
          "folder of the model, or of a training run; also as the first word", "DIR",
          .heading = "model" },
        { "config", CLI_PATH, &m->config, "the model's config.json, where its folder has none",
          "FILE" },
        { "adapter", CLI_PATH | CLI_COMMON, &m->adapter,
          "PEFT adapter, or training run, to use with the model", "DIR" },
        { "tp", CLI_INT | CLI_COMMON, &m->tp, "ranks that the model is divided over", "T", 1,
          SHEAF_MAX_SLICES, .heading = "ranks" },
        { "place", CLI_TEXT, &m->place,
          "stages of --tp ranks that the layers are placed on: 2, by memory 24,12, or 0-10,11-31",
          "P", 1 },
        { "threads", CLI_INT | CLI_COMMON, &m->threads,
          "compute threads of all ranks together; 0 = all cores", .max = 4096 },
        { "device", CLI_TEXT | CLI_COMMON, &m->device, SHEAF__DEVICE_HELP, "D" },
        { "slices", CLI_INT, &m->slices, ASK_SLICES, "S", 1, SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE | CLI_COMMON, &m->dtype,
          "type of activations and products (default the run's, else the model's own)",
          .choices = cli_dtypes, .heading = "model" },
        { "sums", CLI_CHOICE, &m->sums, SHEAF__SUMS_HELP, .choices = sheaf__sums_choices },
        { "quantize", CLI_CHOICE, &m->quantize, SHEAF__QUANTIZE_HELP " (default the run's)",
          .choices = sheaf__quantize_choices },
        { "force", CLI_FLAG, &m->force, ASK_FORCE, .heading = "failure" },
        { "isa", CLI_TEXT | CLI_HIDDEN, &m->isa, "ref, avx2, avx512, avx512bf16 or amx" },
        { 0 },
    };
    sheaf__settings_append(table, rows);
}

void ask_table(cli_option *table, ask_flags *f, sheaf_model_open_options *m, int64_t max_new)
{
    *f = (ask_flags){
        .temperature = 1, .top_p = 1, .penalty = 1, .max_new = max_new, .logprobs = 0
    };
    const cli_option rows[] = {
        { "tokenizer", CLI_PATH, &m->tokenizer, SHEAF__TOKENIZER_HELP, "PATH", .heading = "model" },
        { "template", CLI_TEXT | CLI_COMMON, &m->prompt_template,
          SHEAF__TEMPLATE_HELP "the run's, else the model's own, else its family's", "NAME" },
        { "date", CLI_TEXT, &m->date,
          SHEAF__DATE_HELP "; default: the run's, else the template's own, else today's", "DATE" },
        { "system", CLI_TEXT | CLI_COMMON, &f->system,
          "system message, where the template has a place for it", "TEXT", .min = 1 },
        { "specials", CLI_FLAG, &f->specials, SHEAF__SPECIALS_HELP },
        { "max-new", CLI_COUNT | CLI_COMMON, &f->max_new, "most tokens of an answer", .min = 1,
          .max = SHEAF__MOST_NEW, .heading = "answers" },
        { "max-length", CLI_COUNT | CLI_COMMON, &f->max_length,
          "most positions of prompt (with images) and answer together; 0 = no limit", .max = 1e7 },
        { "stop", CLI_TEXTS | CLI_UNSAVED | CLI_COMMON, &f->stop,
          "text before which an answer ends; may be given several times", "TEXT" },
        { "greedy", CLI_FLAG | CLI_COMMON, &f->greedy, "always the most probable token",
          .heading = "sampling" },
        { "sampling", CLI_CHOICE, &f->order,
          "temperature, penalty, top-k and top-p as transformers or SAT applies them",
          .choices = orders },
        { "temperature", CLI_NUMBER | CLI_COMMON, &f->temperature, "divides the logits",
          .min = SHEAF__LEAST_SAMPLING, .max = SHEAF__MOST_SAMPLING,
          .advice = "--greedy, which always takes the most probable token" },
        { "top-k", CLI_COUNT | CLI_COMMON, &f->top_k,
          "sample among the N most probable tokens; 0 = all", .max = SHEAF__MOST_TOP_K },
        { "top-p", CLI_NUMBER | CLI_COMMON, &f->top_p,
          "sample among the fewest tokens that have this probability together",
          .min = SHEAF__LEAST_SAMPLING, .max = 1 },
        { "repetition-penalty", CLI_NUMBER, &f->penalty,
          "penalty of tokens that prompt or answer already have; 1 = none",
          .min = SHEAF__LEAST_SAMPLING, .max = SHEAF__MOST_SAMPLING },
        { "seed", CLI_SEED | CLI_COMMON, &f->seed, "seed of all random numbers" },
        { "logprobs", CLI_COUNT, &f->logprobs,
          "with --json: log-probability of each token, and of the N most probable ones",
          .max = 1000, .heading = "answers" },
        { "stream", CLI_FLAG | CLI_UNSAVED, &f->stream,
          "with --json: also each piece of text as it comes, a line {\"piece\": TEXT}" },
        { 0 },
    };
    sheaf__settings_append(table, rows);
}

sheaf_status *ask_open(sheaf_model **out, sheaf_model_facts *facts, const cli *cli,
                       sheaf_model_open_options *how, const ask_flags *f, struct sheaf_comm *all)
{
    how->late = true;
    how->specials = f->specials;
    how->processes = all;
    sheaf_status *st = sheaf_model_open(out, how);
    SHEAF_INIT(facts);
    return st == NULL ? sheaf_model_info(facts, *out) : st;
}

sheaf_status *ask_options(sheaf_model_generate_options *out, const cli *cli,
                          const cli_option *table, const ask_flags *f,
                          const sheaf_model_facts *model)
{
#define GIVEN(name) sheaf__settings_given(&cli->settings, table, name)
    SHEAF_INIT(out);
    out->logprobs = GIVEN("logprobs");
    if ((out->logprobs || f->stream) && !cli->json)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, out->logprobs ? "--logprobs" : "--stream"),
                              "--json%s", out->logprobs ? ", which has them" : "");
    out->model_defaults = out->program_defaults = out->partial = true;
    out->sampled = !GIVEN("greedy") ? 0 : f->greedy ? -1 : 1;
    out->temperature = GIVEN("temperature") ? f->temperature : 0;
    out->top_p = GIVEN("top-p") ? f->top_p : 0;
    out->repetition_penalty = GIVEN("repetition-penalty") ? f->penalty : 0;
    out->top_k = !GIVEN("top-k") ? 0 : f->top_k > 0 ? f->top_k : -1;
    out->sat_order = f->order == 1;
    out->seed = f->seed;
    out->max_new = GIVEN("max-new") || model->max_new == 0 ? f->max_new : model->max_new;
    out->max_length = f->max_length;
    out->top_logprobs = f->logprobs;
    out->stop = f->stop.at;
    out->nstop = f->stop.n;
#undef GIVEN
    return NULL;
}

/* ---- results ---- */

sheaf_prompt_facts ask_facts(const sheaf_prompts *prompts, int64_t prompt)
{
    sheaf_prompt_facts facts = { .size = sizeof facts };
    sheaf_status_free(sheaf_prompts_info(&facts, prompts, prompt));
    return facts;
}

void ask_images_json(sheaf_json_writer *to, const sheaf_prompts *prompts, int64_t prompt)
{
    const char *image;
    if (sheaf_prompts_image(prompts, prompt, 1) == NULL)
        return;
    sheaf__json_open(to, "images", '[');
    for (int64_t k = 0; (image = sheaf_prompts_image(prompts, prompt, k)) != NULL; k++)
        sheaf__json_put_text(to, NULL, image);
    sheaf__json_close(to, ']');
}

static void put_logprobs(sheaf_json_writer *to, const sheaf_answer *answer)
{
    int64_t n, best;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    const float *logprob = sheaf_answer_logprobs(answer), *of;
    sheaf__json_open(to, "logprobs", '[');
    for (int64_t i = 0; i < n; i++) {
        const int32_t *top = sheaf_answer_top(answer, i, &best, &of);
        sheaf__json_put(to, "{ token:i logprob:f best:[", tokens[i], (double)logprob[i]);
        for (int64_t j = 0; j < best; j++)
            sheaf__json_put(to, "{ token:i logprob:f }", top[j], (double)of[j]);
        sheaf__json_put(to, "] }");
    }
    sheaf__json_close(to, ']');
}

void ask_piece(const cli *cli, const char *text)
{
    if (cli->json) {
        sheaf_json_writer line = { .compact = true };
        sheaf__json_begin(&line);
        sheaf__json_put_text(&line, "piece", text);
        cli_json_end(cli->out, &line);
    } else {
        cli_say(cli, text);
    }
    fflush(cli->out);
}

bool ask_streams(const cli *cli, const ask_flags *f)
{
    return !cli->json || f->stream;
}

void ask_answer_json(sheaf_json_writer *to, const sheaf_answer *answer)
{
    static const char *const ends[] = { "length", "token", "text", "stopped" };
    int64_t n;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    sheaf__json_open(to, "tokens", '[');
    for (int64_t i = 0; i < n; i++)
        sheaf__json_put_int(to, NULL, tokens[i]);
    sheaf__json_put(to, "] text:s end:s", sheaf_answer_text(answer),
                    ends[sheaf_answer_ending(answer)]);
    if (sheaf_answer_logprobs(answer) != NULL)
        put_logprobs(to, answer);
}
