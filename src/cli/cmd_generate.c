/* cmd_generate.c - `sheaf generate`: tokens that continue prompts. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "commands.h"
#include "infer/prompts.h"
#include "models/crew.h"

const char cmd_generate_usage[] =
    "usage: sheaf generate --model DIR [--adapter DIR] (--prompt TEXT | --tokens 1,2,3 | --data FILE)\n"
    "                      --max-new N [--greedy | --temperature X --top-k N --top-p X] [--tp T]\n"
    "Continues one prompt, or every prompt of a JSON Lines file. The tokens are the same at any\n"
    "number of ranks. Where a record has a completion, the answer is compared with it.\n";

typedef struct settings {
    const char *model, *config, *adapter, *prompt, *tokens, *data, *isa;
    int tp, threads, slices;
    sheaf_dtype dtype;
    bool greedy;
    double temperature, top_p, penalty;
    int64_t top_k, max_new, batch;
    uint64_t seed;
} settings;

typedef struct work {
    const settings *s;
    const sheaf_events *events;
    const sheaf__prompts *prompts;
    sheaf__generate_options how;
    sheaf__continuation *out; /* of rank 0 */
} work;

static sheaf_status *room_for(sheaf__continuation **out, int64_t count, int64_t max_new)
{
    *out = calloc((size_t)count, sizeof **out);
    int32_t *ids = malloc((size_t)(count * max_new) * sizeof *ids);
    if (*out == NULL || ids == NULL) {
        free(*out);
        free(ids);
        *out = NULL;
        return sheaf_fail(SHEAF_E_MEMORY, "%lld continuations", (long long)count);
    }
    for (int64_t i = 0; i < count; i++)
        (*out)[i].ids = ids + i * max_new;
    return NULL;
}

static void free_room(sheaf__continuation *out)
{
    if (out != NULL)
        free(out[0].ids);
    free(out);
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    sheaf__generate_options how = w->how;
    sheaf__continuation *own = NULL;
    const bool first = model->context->rank == 0;
    how.events = first ? w->events : NULL;
    sheaf_status *st = first ? NULL : room_for(&own, w->prompts->count, how.max_new);
    if (st == NULL)
        st = sheaf__generate(first ? w->out : own, model, w->prompts->prompt, w->prompts->count, &how);
    free_room(own);
    return st;
}

/* ---- results ---- */

static bool same(const char *text, const char *expected) { return text != NULL && expected != NULL && strcmp(text, expected) == 0; }

static json_t *tokens_json(const sheaf__continuation *c)
{
    json_t *tokens = json_array();
    for (int64_t i = 0; i < c->n; i++)
        json_array_append_new(tokens, json_integer(c->ids[i]));
    return tokens;
}

static json_t *text_json(const char *text) { return text == NULL ? json_null() : json_string(text); }

static json_t *record_json(const work *w, int64_t i, const char *text)
{
    const char *expected = w->prompts->expected[i];
    json_t *one = json_pack("{s:o, s:o, s:o}", "tokens", tokens_json(&w->out[i]), "text", text_json(text), "prompt",
                            text_json(w->prompts->text[i]));
    if (expected != NULL) {
        json_object_set_new(one, "expected", json_string(expected));
        json_object_set_new(one, "match", json_boolean(same(text, expected)));
    }
    return one;
}

static sheaf_status *print_results(const cli *cli, const work *w, const sheaf_config *config)
{
    json_t *results = json_array();
    int64_t compared = 0, matches = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->prompts->count && st == NULL; i++) {
        char *text = NULL;
        st = sheaf__prompts_decode(&text, config, w->out[i].ids, w->out[i].n);
        compared += w->prompts->expected[i] != NULL;
        matches += same(text, w->prompts->expected[i]);
        if (st == NULL && cli->json)
            json_array_append_new(results, record_json(w, i, text));
        else if (st == NULL && text != NULL)
            fprintf(cli->out, "%s%s\n", w->prompts->text[i] == NULL ? "" : w->prompts->text[i], text);
        else if (st == NULL)
            for (int64_t j = 0; j < w->out[i].n; j++)
                fprintf(cli->out, "%d%c", (int)w->out[i].ids[j], j + 1 == w->out[i].n ? '\n' : ',');
        free(text);
    }
    const double share = compared == 0 ? 0 : (double)matches / (double)compared;
    if (st == NULL && cli->json) {
        json_t *object = w->s->data == NULL ? json_incref(json_array_get(results, 0)) : json_pack("{s:O}", "results", results);
        if (compared > 0)
            json_object_set_new(object, "exact_match", json_real(share));
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
    } else if (st == NULL && compared > 0) {
        fprintf(cli->out, "exact match: %lld of %lld (%.1f %%)\n", (long long)matches, (long long)compared, 100 * share);
    }
    json_decref(results);
    return st;
}

/* The ids that end a sequence: generation_config.json's, else config.json's. */
static sheaf_status *stop_ids(int64_t *stop, int *n, const char *model, const sheaf_config *config)
{
    *n = config->neos;
    memcpy(stop, config->eos, sizeof config->eos);
    char *path = NULL;
    sheaf_status *st = sheaf__path_join(&path, model, "generation_config.json");
    if (st != NULL || sheaf__path_kind(path) != SHEAF_PATH_FILE) {
        free(path);
        return st;
    }
    json_t *object = NULL;
    st = sheaf__json_load(&object, path);
    const json_t *eos = json_object_get(object, "eos_token_id");
    if (json_is_integer(eos)) {
        stop[0] = json_integer_value(eos);
        *n = 1;
    } else if (json_is_array(eos) && json_array_size(eos) <= SHEAF_MAX_EOS) {
        *n = 0;
        for (size_t i = 0; i < json_array_size(eos); i++)
            stop[(*n)++] = json_integer_value(json_array_get(eos, i));
    }
    json_decref(object);
    free(path);
    return st;
}

static int64_t longest(const sheaf__prompts *p)
{
    int64_t most = 1;
    for (int64_t i = 0; i < p->count; i++)
        most = p->prompt[i].n > most ? p->prompt[i].n : most;
    return most;
}

int cmd_generate(cli *cli, int argc, char **argv)
{
    static const cli_choice dtypes[] = { { "float32", SHEAF_F32 }, { "bfloat16", SHEAF_BF16 }, { 0 } };
    settings s = { .tp = 1, .slices = 8, .dtype = SHEAF_F32, .temperature = 1, .top_p = 1, .penalty = 1, .max_new = 64, .batch = 32 };
    const cli_option table[] = {
        { "model", CLI_PATH | CLI_REQUIRED, &s.model, "folder of the model (Hugging Face form)", "DIR" },
        { "config", CLI_PATH, &s.config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH, &s.adapter, "PEFT adapter to use with it", "DIR" },
        { "prompt", CLI_TEXT, &s.prompt, "text to continue (byte vocabularies)", "TEXT" },
        { "tokens", CLI_TEXT, &s.tokens, "token ids to continue", "1,2,3" },
        { "data", CLI_PATH, &s.data, "JSON Lines with prompt or tokens (and completion)", "FILE" },
        { "max-new", CLI_COUNT, &s.max_new, "most tokens to add", .min = 1, .max = 1e7 },
        { "greedy", CLI_FLAG, &s.greedy, "always the largest logit" },
        { "temperature", CLI_NUMBER, &s.temperature, "divides the logits", .above = true },
        { "top-k", CLI_COUNT, &s.top_k, "sample among the k largest; 0 = all", .max = 1e9 },
        { "top-p", CLI_NUMBER, &s.top_p, "sample among the fewest with this much probability", .above = true, .max = 1 },
        { "repetition-penalty", CLI_NUMBER, &s.penalty, "divides logits of tokens that were there", .above = true },
        { "seed", CLI_SEED, &s.seed, "start of all randomness" },
        { "batch", CLI_COUNT, &s.batch, "prompts run together", .min = 1, .max = 4096 },
        { "tp", CLI_INT, &s.tp, "ranks that share the model", "T", 1, SHEAF_MAX_SLICES },
        { "threads", CLI_INT, &s.threads, "compute threads in all; 0 = every core at hand", .max = 4096 },
        { "slices", CLI_INT, &s.slices, "parts every tensor falls into, a power of two", "S", 1, SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE, &s.dtype, "type of activations and products", .choices = dtypes },
        { "isa", CLI_TEXT | CLI_HIDDEN, &s.isa, "ref, avx2 or avx512" },
        { 0 },
    };
    sheaf__opened opened = { 0 };
    sheaf__prompts prompts = { 0 };
    int64_t stop[SHEAF_MAX_EOS];
    work w = { .s = &s, .events = &cli->events, .prompts = &prompts };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL)
        st = sheaf__open_model(&opened, &(sheaf__open_options){ .model = s.model, .config = s.config, .slices = s.slices, .adapter = s.adapter,
                                                                        .events = &cli->events });
    if (st == NULL)
        st = sheaf__prompts_read(&prompts, &opened.config, s.prompt, s.tokens, s.data);
    if (st == NULL)
        st = stop_ids(stop, &w.how.nstop, s.model, &opened.config);
    if (st == NULL)
        st = room_for(&w.out, prompts.count, s.max_new);
    if (st == NULL) {
        w.how.sampling = (sheaf__sampling){ .greedy = s.greedy, .temperature = (float)s.temperature, .top_k = s.top_k,
                                            .top_p = (float)s.top_p, .repetition_penalty = (float)s.penalty, .seed = s.seed };
        w.how.max_new = s.max_new;
        w.how.batch = s.batch;
        w.how.stop = stop;
        st = sheaf__crew_run(&opened, &(sheaf__crew_options){ .ranks = s.tp, .threads = s.threads, .dtype = s.dtype, .isa = s.isa,
                                                              .positions = longest(&prompts) + s.max_new }, on_rank, &w);
    }
    if (st == NULL)
        st = print_results(cli, &w, &opened.config);
    free_room(w.out);
    sheaf__prompts_release(&prompts);
    sheaf__opened_close(&opened);
    return cli_report(cli, st);
}
