/* ask.c - see ask.h. */
#include "ask.h"

#include <math.h>

#include "base/base.h"
#include "cli/lib/shared.h"
#include "comm/doing.h"
#include "comm/process.h"
#include "library/question.h"
#include "library/train_settings.h"
#include "schema/family.h"

/* ---- flags ---- */

static const double LEAST = 1e-6; /* logits divided by it are finite */
static const cli_choice orders[] = { { "transformers", 0 }, { "sat", 1 }, { 0 } };

static void append(cli_option *table, const cli_option *rows, size_t bytes)
{
    while (table->name != NULL)
        table++;
    memcpy(table, rows, bytes);
}

void ask_model_table(cli_option *table, sheaf_model_open_options *m)
{
    SHEAF_INIT(m);
    m->tp = m->dp = 1;
    const cli_option rows[] = {
        { "model", CLI_PATH | CLI_REQUIRED | CLI_COMMON | CLI_WORD, &m->model,
          "folder of the model, or of a training run; a word beside flags means it too", "DIR",
          .heading = "model" },
        { "config", CLI_PATH, &m->config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH | CLI_COMMON, &m->adapter,
          "PEFT adapter, or a training run, to use with it", "DIR" },
        { "tp", CLI_INT | CLI_COMMON, &m->tp, "ranks that share the model", "T", 1,
          SHEAF_MAX_SLICES, .heading = "ranks" },
        { "place", CLI_TEXT, &m->place,
          "layers over stages of --tp ranks each: 2, by memory 24,12, or 0-10,11-31", "P", 1 },
        { "threads", CLI_INT | CLI_COMMON, &m->threads,
          "compute threads in all; 0 = every core at hand", .max = 4096 },
        { "slices", CLI_INT, &m->slices, ASK_SLICES, "S", 1, SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE | CLI_COMMON, &m->dtype,
          "type of activations and products (default the run's, else the model's own)",
          .choices = cli_dtypes, .heading = "model" },
        { "bf16-sums", CLI_CHOICE, &m->bf16_sums, SHEAF__SUMS_HELP,
          .choices = sheaf__sums_choices },
        { "force", CLI_FLAG, &m->force, ASK_FORCE, .heading = "failure" },
        { "isa", CLI_TEXT | CLI_HIDDEN, &m->isa, "ref, avx2, avx512, avx512bf16 or amx" },
        { 0 },
    };
    append(table, rows, sizeof rows);
}

void ask_table(cli_option *table, ask_flags *f, sheaf_model_open_options *m, int64_t max_new)
{
    *f = (ask_flags){
        .temperature = 1, .top_p = 1, .penalty = 1, .max_new = max_new, .logprobs = 0
    };
    const cli_option rows[] = {
        { "tokenizer", CLI_PATH, &m->tokenizer,
          "file or folder; default: the tokenizer in the model's folder, else bytes", "PATH",
          .heading = "model" },
        { "template", CLI_TEXT | CLI_COMMON, &m->prompt_template,
          "name of the chat template (docs/templates.md); of CogVLM and CogAgent base, chat, vqa or chat_old; default: the model's, else the family's",
          "NAME" },
        { "date", CLI_TEXT, &m->date,
          "the date that a chat template writes (Llama 3.1 and 3.2, SmolLM3): YYYY-MM-DD, or a text where the template takes one; default: the run's, else the template's own, else today's",
          "DATE" },
        { "system", CLI_TEXT | CLI_COMMON, &f->system,
          "system message, where the template has a place for it", "TEXT", .min = 1 },
        { "specials", CLI_FLAG, &f->specials, SHEAF__SPECIALS_HELP },
        { "max-new", CLI_COUNT | CLI_COMMON, &f->max_new, "most tokens of an answer", .min = 1,
          .max = 1e7, .heading = "answers" },
        { "max-length", CLI_COUNT | CLI_COMMON, &f->max_length,
          "most positions of prompt (image included) and answer; 0 = no limit", .max = 1e7 },
        { "stop", CLI_TEXTS | CLI_UNSAVED | CLI_COMMON, &f->stop,
          "text that ends an answer, which ends before it; may be given several times", "TEXT" },
        { "greedy", CLI_FLAG | CLI_COMMON, &f->greedy, "always the largest logit",
          .heading = "sampling" },
        { "sampling", CLI_CHOICE, &f->order, "whose order of steps: transformers or sat",
          .choices = orders },
        { "temperature", CLI_NUMBER | CLI_COMMON, &f->temperature, "divides the logits",
          .min = LEAST, .max = 1e6,
          .advice = "--greedy, which always takes the most probable token" },
        { "top-k", CLI_COUNT | CLI_COMMON, &f->top_k, "sample among the k largest; 0 = all",
          .max = 1e9 },
        { "top-p", CLI_NUMBER | CLI_COMMON, &f->top_p,
          "sample among the fewest with this much probability", .min = LEAST, .max = 1 },
        { "repetition-penalty", CLI_NUMBER, &f->penalty, "divides logits of tokens that were there",
          .min = LEAST, .max = 1e6 },
        { "seed", CLI_SEED | CLI_COMMON, &f->seed, "start of all randomness" },
        { "logprobs", CLI_COUNT, &f->logprobs,
          "with --json: the log of each token's probability, and the N most probable ones",
          .max = 1000, .heading = "answers" },
        { "stream", CLI_FLAG | CLI_UNSAVED, &f->stream,
          "with --json: each piece of text too as it comes, {\"piece\": TEXT} in a line" },
        { 0 },
    };
    append(table, rows, sizeof rows);
}

sheaf_status *ask_open(sheaf_model **out, const cli *cli, sheaf_model_open_options *how,
                       const ask_flags *f, int64_t positions, sheaf_comm *all)
{
    how->positions = positions;
    how->events = &cli->events;
    how->late = true;
    sheaf_status *st = sheaf__model_open(out, how, all);
    if (st == NULL && f->specials)
        sheaf__wording_take_specials(&(*out)->wording);
    return st;
}

sheaf_status *ask_asking(sheaf__asking *out, const cli *cli, const cli_option *table,
                         const ask_flags *f, const sheaf_model *m, bool texts)
{
#define GIVEN(name) sheaf__settings_given(&cli->settings, table, name)
    const bool logprobs = GIVEN("logprobs");
    if ((logprobs || f->stream) && !cli->json)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, logprobs ? "--logprobs" : "--stream"),
                              "--json%s", logprobs ? ", which has them" : "");
    const sheaf__sampling_wish wish = { .do_sample = GIVEN("greedy") ? !f->greedy : -1,
                                        .temperature = GIVEN("temperature") ? f->temperature : -1,
                                        .top_p = GIVEN("top-p") ? f->top_p : -1,
                                        .repetition_penalty =
                                            GIVEN("repetition-penalty") ? f->penalty : -1,
                                        .top_k = GIVEN("top-k") ? f->top_k : -1 };
    sheaf__generation_config g = m->generation;
    if (texts && m->wording.placed && !GIVEN("greedy"))
        sheaf__generation_config_family(&g, &m->wording.speech.form);
    const bool own = !GIVEN("max-new") && g.max_new > 0;
#undef GIVEN
    *out = (sheaf__asking){ .wording = &m->wording,
                            .sampling = { .sat = f->order == 1, .seed = f->seed },
                            .max_new = own ? g.max_new : f->max_new,
                            .max_length = f->max_length,
                            .batch = 1,
                            .logprobs = logprobs,
                            .best = f->logprobs < m->opened.config.vocab ? f->logprobs
                                                                         : m->opened.config.vocab,
                            .stop = f->stop.at,
                            .nstop = f->stop.n };
    sheaf__generation_config_sampling(&out->sampling, &g, &wish, m->events);
    return f->stop.n > 0 ? sheaf_in(sheaf__wording_needed(&m->wording), "--stop") : NULL;
}

/* ---- results ---- */

json_t *ask_json(const char *text)
{
    if (text == NULL || sheaf__is_utf8(text))
        return text == NULL ? json_null() : json_string(text);
    sheaf_text whole = { 0 };
    sheaf__text_utf8(&whole, text);
    json_t *value = whole.failed ? json_null() : json_string(whole.at);
    sheaf__text_release(&whole);
    return value;
}

void ask_images_json(json_t *answer, const sheaf__prompt_about *about)
{
    if (about->nviewed < 2)
        return;
    json_t *paths = json_array();
    for (int64_t i = 0; i < about->nviewed; i++)
        json_array_append_new(paths, ask_json(about->viewed[i].path));
    json_object_set_new(answer, "images", paths);
}

json_t *ask_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *logprobs_json(const sheaf_answer *answer)
{
    int64_t n, best;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    const float *logprob = sheaf_answer_logprobs(answer), *of;
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        const int32_t *top = sheaf_answer_top(answer, i, &best, &of);
        json_t *one = json_pack("{s:I, s:o, s:[]}", "token", (json_int_t)tokens[i], "logprob",
                                ask_json_real((double)logprob[i]), "best");
        for (int64_t j = 0; j < best; j++)
            json_array_append_new(json_object_get(one, "best"),
                                  json_pack("{s:I, s:o}", "token", (json_int_t)top[j], "logprob",
                                            ask_json_real((double)of[j])));
        json_array_append_new(list, one);
    }
    return list;
}

void ask_piece(const cli *cli, const char *text)
{
    sheaf__doing *doing = sheaf_comm_doing(cli_all(cli));
    sheaf__doing_idle(doing, true); /* a pager may wait for its reader */
    if (cli->json) {
        json_t *object = json_pack("{s:o}", "piece", ask_json(text));
        json_dumpf(object, cli->out, JSON_COMPACT);
        json_decref(object);
        fputc('\n', cli->out);
    } else {
        cli_say(cli, text);
    }
    fflush(cli->out);
    sheaf__doing_idle(doing, false);
}

bool ask_streams(const cli *cli, const ask_flags *f)
{
    return !cli->json || f->stream;
}

json_t *ask_answer_json(const sheaf_answer *answer)
{
    static const char *const ends[] = { "length", "token", "text", "stopped" };
    int64_t n;
    const int32_t *tokens = sheaf_answer_tokens(answer, &n);
    json_t *one =
        json_pack("{s:[], s:o, s:s}", "tokens", "text", ask_json(sheaf_answer_text(answer)), "end",
                  ends[sheaf_answer_ending(answer)]);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(json_object_get(one, "tokens"), json_integer(tokens[i]));
    if (sheaf_answer_logprobs(answer) != NULL)
        json_object_set_new(one, "logprobs", logprobs_json(answer));
    return one;
}

/* ---- rows of tokens ---- */

/* One row of a data set, and space for it. */
typedef struct one_row {
    sheaf_batch batch;
    int64_t seq, begin, context; /* tokens [begin, context) are the prompt; before them padding */
    int64_t images, image_rows;  /* and positions that are theirs */
    int64_t expert_rows;
} one_row;

static void release_row(one_row *r)
{
    free(r->batch.tokens);
    free(r->batch.labels);
    free(r->batch.position);
    free(r->batch.mask);
    free(r->batch.image_row);
    free(r->batch.stream[0]);
    free(r->batch.stream[1]);
}

static sheaf_status *make_row(one_row *r, const sheaf_data *data)
{
    const size_t n = (size_t)sheaf_data_seq(data);
    *r = (one_row){ .seq = (int64_t)n };
    r->batch = (sheaf_batch){ .tokens = malloc(n * 4),
                              .labels = malloc(n * 4),
                              .position = malloc(n * 4),
                              .mask = malloc(n),
                              .image_row = malloc(n * 4),
                              .stream = { malloc(n * 4), malloc(n * 4) } };
    const bool made = r->batch.tokens != NULL && r->batch.labels != NULL &&
                      r->batch.position != NULL && r->batch.mask != NULL &&
                      r->batch.image_row != NULL && r->batch.stream[0] != NULL &&
                      r->batch.stream[1] != NULL;
    return made ? NULL : sheaf_fail(SHEAF_E_MEMORY, "a row of %zu tokens", n);
}

/* Labels are of the token behind them. Rows with an image have places for it, which padding before
 * them would move. */
static sheaf_status *find_context(one_row *r)
{
    int64_t n = 0;
    while (n < r->seq && r->batch.labels[n] < 0)
        n++;
    r->begin = 0;
    r->context = n + 1;
    if (n == r->seq) /* nothing to be answered is told: all of the row is the question */
        for (r->context = r->seq; r->context > 1 && r->batch.mask[r->context - 1] == 0;)
            r->context--;
    while (r->images == 0 && r->begin < r->context - 1 && r->batch.mask[r->begin] == 0)
        r->begin++;
    for (int64_t t = r->begin; t < r->context; t++)
        if (r->batch.mask[t] == 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "attention_mask"),
                                              "no padding %s",
                                              r->images > 0 ? "before the answer"
                                                            : "between the tokens of the prompt"),
                               "0 at position %" PRId64, t + 1);
    return NULL;
}

/* Sizes of its images, ids, position, embed and expert of the prompt, in one block. */
static sheaf_status *copy_context(sheaf__prompt *out, void **block, const one_row *r,
                                  const sheaf_config *config, const sheaf_data *data, int64_t row)
{
    const size_t n = (size_t)(r->context - r->begin);
    int64_t rows = 0; /* of images before the answer */
    while (rows < r->image_rows && r->batch.image_row[rows] < r->context)
        rows++;
    const bool any = r->images > 0, sizes = sheaf__family_for(config)->image.most > 1 && rows > 0;
    const int64_t images = sizes ? rows / sheaf__image_positions(config) : 0;
    sheaf__picture *picture = malloc((size_t)images * sizeof *picture + n * 10);
    if (picture == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "a prompt of %zu tokens", n);
    int32_t *ids = (int32_t *)(picture + images);
    uint8_t *embed = (uint8_t *)(ids + 2 * n), *expert = embed + n;
    memcpy(ids, r->batch.tokens + r->begin, n * 4);
    const int32_t shift = r->begin > 0 ? r->batch.position[r->begin] : 0;
    for (size_t i = 0; i < n; i++) /* padding before it shifts no position */
        ids[n + i] = r->batch.position[r->begin + (int64_t)i] - shift;
    memset(embed, 0, 2 * n);
    for (int64_t i = 0; i < rows; i++)
        embed[r->batch.image_row[i]] = 1;
    for (int64_t i = 0; i < r->expert_rows; i++)
        if (r->batch.stream[1][i] < r->context)
            expert[r->batch.stream[1][i]] = 1;
    sheaf_data_row_sizes(picture, images, data, row);
    *out = (sheaf__prompt){ .ids = ids,
                            .n = (int64_t)n,
                            .position = ids + n,
                            .embed = any && rows > 0 ? embed : NULL,
                            .expert = any ? expert : NULL,
                            .picture = images > 0 ? picture : NULL,
                            .pictures = images };
    *block = picture;
    return NULL;
}

/* The labels from the first one on, up to the end of the answer, which says too whether a template
 * laid the row out. */
static sheaf_status *expected_text(char **out, bool *laid_out, const one_row *r,
                                   const sheaf__wording *w)
{
    int64_t first = 0, n = 0;
    while (first < r->seq && r->batch.labels[first] < 0)
        first++;
    const int32_t *label = r->batch.labels + first;
    while (first + n < r->seq && label[n] >= 0 && !sheaf__wording_ends(w, label[n], true))
        n++;
    *laid_out = first + n < r->seq && w->end >= 0 && label[n] == w->end;
    sheaf_status *st = first == r->seq ? NULL : sheaf__wording_decode(out, w, label, n);
    char *end =
        st == NULL && *out != NULL && w->end_text != NULL ? strstr(*out, w->end_text) : NULL;
    if (end != NULL) {
        *laid_out = true;
        *end = '\0';
    }
    return st;
}

static sheaf_status *add_row(sheaf__prompts *out, one_row *r, const sheaf__wording *w,
                             const sheaf_data *data, int64_t row)
{
    const sheaf_batch_images images = sheaf_data_images(data, &row, 1);
    sheaf__prompt prompt;
    sheaf__prompt_about about = { 0 };
    bool laid_out = false;
    sheaf_status *st = sheaf_data_batch(&r->batch, data, &row, 1);
    r->images = images.images;
    r->image_rows = images.images * sheaf__image_positions(w->config);
    r->expert_rows = images.image_rows;
    TRY(st, find_context(r));
    if (st == NULL && w->max_length > 0 && r->context - r->begin >= w->max_length)
        st =
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"),
                                       "fewer positions than --max-length %" PRId64, w->max_length),
                        "%" PRId64, r->context - r->begin);
    TRY(st, expected_text(&about.expected, &laid_out, r, w));
    TRY(st, copy_context(&prompt, &about.block, r, w->config, data, row));
    prompt.laid_out = laid_out;
    if (st == NULL)
        return sheaf__prompts_put(out, &prompt, &about);
    free(about.expected);
    return st;
}

sheaf_status *ask_data(sheaf__prompts *out, const sheaf__wording *w, const sheaf_data *data)
{
    one_row r;
    *out = (sheaf__prompts){ .config = w->config };
    if (sheaf_data_is_packed(data)) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "position_ids"),
                                          "one record in each row that is to be answered");
        return sheaf_try_this(sheaf_found(st, "positions that restart within a row"),
                              "write each record in a row of its own");
    }
    sheaf_status *st = make_row(&r, data);
    for (int64_t row = 0; row < sheaf_data_rows(data) && st == NULL; row++)
        st = sheaf_in(add_row(out, &r, w, data, row), "row %" PRId64, row + 1);
    release_row(&r);
    return st;
}

sheaf_status *ask_data_load(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    return sheaf_data_row_pixels(picture, n, self, prompt);
}

/* ---- how far positions reach ---- */

static int64_t positions_of(const sheaf__prompt *p)
{
    return p->position == NULL || p->n == 0 ? p->n : p->position[p->n - 1] + (int64_t)1;
}

sheaf_status *ask_reach(const sheaf_config *config, const sheaf__prompts *p, int64_t max_new,
                        int64_t max_length, const sheaf_events *events)
{
    int64_t most = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t n = positions_of(&p->prompt[i]);
        const bool full = max_length > 0 && p->prompt[i].n >= max_length;
        most = n > most ? n : most;
        if (!full && (n <= config->max_position || max_length > 0))
            continue;
        sheaf_status *st = p->count == 1 ? sheaf_fail(SHEAF_E_DATA, "the prompt")
                                         : sheaf_fail(SHEAF_E_DATA, "prompt %" PRId64, i + 1);
        if (full)
            return sheaf_found(
                sheaf_expected(st, "fewer positions than --max-length %" PRId64, max_length),
                "%" PRId64, p->prompt[i].n);
        sheaf_expected(st, "at most %" PRId64 " positions, the model's %s", config->max_position,
                       sheaf_config_position_key(config));
        return sheaf_try_this(sheaf_found(st, "%" PRId64, n),
                              "a shorter one; --max-length %" PRId64
                              " goes beyond what the model was made for",
                              n + max_new);
    }
    const int64_t end = max_length > 0 && most + max_new > max_length ? max_length : most + max_new;
    sheaf__warn_positions(config, "prompt and answer", end, events);
    return NULL;
}
