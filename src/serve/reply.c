/* reply.c - see reply.h. */
#include "serve/reply.h"

#include <math.h>
#include <sys/random.h>
#include <time.h>

#include "base/base.h"
#include "base/text.h"
#include "infer/answer_stream.h"

/* One answer as it grows. */
typedef struct part {
    sheaf_text logprobs; /* JSON, of the tokens since the last piece, or of all */
    sheaf_text
        lists[3]; /* completions: tokens, their logs, the best of each; offsets are made of */
    sheaf_text offsets;
    sheaf_text ids; /* completions: a model may have no text */
    int64_t told;   /* tokens that these are of */
    int64_t offset; /* characters before them, by `heard` */
    sheaf__answer_stream heard;
    char *text;
    int64_t tokens;
    const char *finish;
    bool begun;
} part;

typedef struct reply {
    sheaf__exchange *exchange;
    sheaf__request request;
    sheaf__asked asked;
    const char *model;
    const sheaf__codec *codec;
    part *part; /* [parts] */
    int64_t parts;
    long long created;
    uint64_t id;
    bool begun;
} reply;

static void release(reply *r)
{
    for (int64_t i = 0; i < r->parts && r->part != NULL; i++) {
        part *p = &r->part[i];
        sheaf__text_release(&p->logprobs);
        for (int k = 0; k < 3; k++)
            sheaf__text_release(&p->lists[k]);
        sheaf__text_release(&p->offsets);
        sheaf__text_release(&p->ids);
        sheaf__answer_stream_release(&p->heard);
        free(p->text);
    }
    free(r->part);
    sheaf__prompts_release(&r->asked.prompts);
    sheaf__request_release(&r->request);
    free(r);
}

static int status_of(sheaf_code code)
{
    switch (code) {
    case SHEAF_E_ARG:
    case SHEAF_E_FORMAT:
    case SHEAF_E_UNSUPPORTED:
    case SHEAF_E_DATA: return 400;
    case SHEAF_E_STOPPED: return 503;
    default: return 500;
    }
}

void sheaf__reply_error(sheaf__exchange *x, sheaf_status *st)
{
    const int status = status_of(sheaf_status_code(st));
    sheaf__http_error(x, status, status == 400 ? "invalid_request_error" : "server_error", NULL,
                      st);
    sheaf_status_free(st);
}

/* ---- pieces of JSON ---- */

static const char *finish_of(sheaf_ending ending)
{
    return ending == SHEAF_ENDS_TOKEN || ending == SHEAF_ENDS_TEXT ? "stop" : "length";
}

static void add_log(sheaf_text *to, double value)
{
    sheaf__text_add(to, isfinite(value) ? "%.9g" : "-9999.0", value);
}

/* The text of one token, which may be a part of a character: then U+FFFD. */
static char *token_text(const sheaf__codec *codec, int32_t id)
{
    char *text = NULL;
    sheaf_status_free(sheaf__codec_decode(&text, codec, &id, 1));
    return text;
}

/* {"token": ..., "logprob": ..., "bytes": [...] (null: of a part of a character). The caller closes
 * it. */
static void add_token(sheaf_text *to, const sheaf__codec *codec, int32_t id, double log)
{
    char *text = token_text(codec, id);
    sheaf__text_add(to, "{\"token\": ");
    sheaf__text_json(to, text == NULL ? "" : text);
    sheaf__text_add(to, ", \"id\": %d, \"logprob\": ", (int)id);
    add_log(to, log);
    /* Clients join these to characters: those of U+FFFD are none of the token's. */
    const bool whole = text != NULL && strstr(text, "\xEF\xBF\xBD") == NULL;
    sheaf__text_add(to, ", \"bytes\": %s", whole ? "[" : "null");
    for (const unsigned char *c = (const unsigned char *)text; whole && *c != '\0'; c++)
        sheaf__text_add(to, "%s%d", c == (const unsigned char *)text ? "" : ",", *c);
    sheaf__text_add(to, "%s", whole ? "]" : "");
    free(text);
}

static void add_chat_token(part *p, const reply *r, const sheaf__continuation *said, int64_t i)
{
    const int64_t best = r->asked.how.generate.best;
    sheaf_text *to = &p->logprobs;
    sheaf__text_add(to, "%s", to->size == 0 ? "" : ", ");
    add_token(to, r->codec, said->ids[i], said->logprob[i]);
    sheaf__text_add(to, ", \"top_logprobs\": [");
    for (int64_t k = 0; k < best; k++) {
        sheaf__text_add(to, "%s", k == 0 ? "" : ", ");
        add_token(to, r->codec, said->best_ids[i * best + k], said->best_logprob[i * best + k]);
        sheaf__text_add(to, "}");
    }
    sheaf__text_add(to, "]}");
}

static int64_t characters(const char *text)
{
    int64_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Where in the whole text the next token begins: tokens may be parts of one character. */
static void note_offset(part *p, const reply *r, const int32_t *ids, int64_t n)
{
    char *more = NULL;
    p->heard.codec = r->codec;
    sheaf_status_free(sheaf__answer_stream_more(&more, &p->heard, ids, n));
    p->offset += more == NULL ? 0 : characters(more);
    free(more);
}

static void add_text_token(part *p, const reply *r, const sheaf__continuation *said, int64_t i)
{
    const int64_t best = r->asked.how.generate.best;
    const char *comma = p->lists[0].size == 0 ? "" : ", ";
    char *text = token_text(r->codec, said->ids[i]);
    const char *shown = text == NULL ? "" : text;
    sheaf__text_add(&p->lists[0], "%s", comma);
    sheaf__text_json(&p->lists[0], shown);
    sheaf__text_add(&p->lists[1], "%s", comma);
    add_log(&p->lists[1], said->logprob[i]);
    sheaf__text_add(&p->offsets, "%s%lld", comma, (long long)p->offset);
    free(text);
    note_offset(p, r, said->ids, i + 1);
    sheaf__text_add(&p->lists[2], "%s{", comma);
    char *other[SHEAF__MOST_TOP];
    for (int64_t k = 0; k < best; k++) {
        bool before = false; /* two tokens may have one text: the more probable one stays */
        other[k] = token_text(r->codec, said->best_ids[i * best + k]);
        for (int64_t j = 0; j < k && other[k] != NULL && !before; j++)
            before = other[j] != NULL && strcmp(other[j], other[k]) == 0;
        if (before)
            continue;
        sheaf__text_add(&p->lists[2], "%s", k == 0 ? "" : ", ");
        sheaf__text_json(&p->lists[2], other[k] == NULL ? "" : other[k]);
        sheaf__text_add(&p->lists[2], ": ");
        add_log(&p->lists[2], said->best_logprob[i * best + k]);
    }
    for (int64_t k = 0; k < best; k++)
        free(other[k]);
    sheaf__text_add(&p->lists[2], "}");
}

/* Of the tokens that are new; the one that ended the answer is none of it. */
static void note_logprobs(part *p, const reply *r, const sheaf__continuation *said)
{
    const int64_t n = said->n - (said->ending == SHEAF_ENDS_TOKEN);
    for (; p->told < n && said->logprob != NULL; p->told++)
        if (r->request.chat)
            add_chat_token(p, r, said, p->told);
        else
            add_text_token(p, r, said, p->told);
}

static const char *so_far(const sheaf_text *text)
{
    return text->size == 0 ? "" : text->at;
}

/* ", "logprobs": ...", and they are forgotten. */
static void add_logprobs(sheaf_text *to, part *p, const reply *r)
{
    if (!r->request.chat)
        sheaf__text_add(to, ", \"token_ids\": [%s]", so_far(&p->ids));
    p->ids.size = 0;
    if (!r->request.logprobs) {
        sheaf__text_add(to, ", \"logprobs\": null");
        return;
    }
    if (r->request.chat) {
        sheaf__text_add(to, ", \"logprobs\": {\"content\": [%s], \"refusal\": null}",
                        so_far(&p->logprobs));
    } else {
        const sheaf_text *l = p->lists;
        sheaf__text_add(to,
                        ", \"logprobs\": {\"tokens\": [%s], \"token_logprobs\": [%s], "
                        "\"top_logprobs\": [%s], \"text_offset\": [%s]}",
                        so_far(&l[0]), so_far(&l[1]), so_far(&l[2]), so_far(&p->offsets));
    }
    p->logprobs.size = p->lists[0].size = p->lists[1].size = p->lists[2].size = p->offsets.size = 0;
}

static void add_head(sheaf_text *to, const reply *r, bool piece)
{
    const bool chat = r->request.chat;
    sheaf__text_add(to,
                    "{\"id\": \"%s-%016llx\", \"object\": \"%s\", \"created\": %lld, \"model\": ",
                    chat ? "chatcmpl" : "cmpl", (unsigned long long)r->id,
                    !chat   ? "text_completion"
                    : piece ? "chat.completion.chunk"
                            : "chat.completion",
                    r->created);
    sheaf__text_json(to, r->model);
    sheaf__text_add(to, ", \"system_fingerprint\": \"sheaf-" SHEAF_VERSION "\", \"seed\": %lld",
                    (long long)r->request.how.seed);
}

static void add_usage(sheaf_text *to, const reply *r)
{
    int64_t asked = 0, said = 0;
    for (int64_t i = 0; i < r->asked.prompts.count; i++)
        asked += r->asked.prompts.prompt[i].n;
    for (int64_t i = 0; i < r->parts; i++)
        said += r->part[i].tokens;
    sheaf__text_add(to,
                    "\"usage\": {\"prompt_tokens\": %lld, \"completion_tokens\": %lld, "
                    "\"total_tokens\": %lld}",
                    (long long)asked, (long long)said, (long long)(asked + said));
}

/* ---- a stream ---- */

static void write_event(reply *r, sheaf_text *event)
{
    if (!event->failed && event->size > 0)
        sheaf__exchange_write(r->exchange, event->at, event->size);
    sheaf__text_release(event);
}

/* finish NULL: the answer goes on. */
static void write_piece(reply *r, int64_t answer, const char *piece, const char *finish)
{
    part *p = &r->part[answer];
    sheaf_text event = { 0 };
    sheaf__text_add(&event, "data: ");
    add_head(&event, r, true);
    sheaf__text_add(&event, ", \"choices\": [{\"index\": %lld, ", (long long)answer);
    if (r->request.chat) {
        sheaf__text_add(&event, "\"delta\": {%s", p->begun ? "" : "\"role\": \"assistant\", ");
        sheaf__text_add(&event, "\"content\": ");
        sheaf__text_json(&event, piece);
        sheaf__text_add(&event, "}");
    } else {
        sheaf__text_add(&event, "\"text\": ");
        sheaf__text_json(&event, piece);
    }
    p->begun = true;
    add_logprobs(&event, p, r);
    sheaf__text_add(
        &event, finish == NULL ? ", \"finish_reason\": null}]" : ", \"finish_reason\": \"%s\"}]",
        finish);
    sheaf__text_add(&event, "%s}\n\n", r->request.usage ? ", \"usage\": null" : "");
    write_event(r, &event);
}

static void end_stream(reply *r)
{
    sheaf_text event = { 0 };
    if (r->request.usage) {
        sheaf__text_add(&event, "data: ");
        add_head(&event, r, true);
        sheaf__text_add(&event, ", \"choices\": [], ");
        add_usage(&event, r);
        sheaf__text_add(&event, "}\n\n");
    }
    sheaf__text_add(&event, "data: [DONE]\n\n");
    write_event(r, &event);
    sheaf__exchange_end(r->exchange);
}

/* An error after the stream has begun. */
static void break_stream(reply *r, const sheaf_status *st)
{
    sheaf_text event = { 0 };
    sheaf__text_add(&event, "data: ");
    sheaf__http_error_json(&event, "server_error", NULL, st);
    sheaf__text_add(&event, "\n");
    write_event(r, &event);
    sheaf__exchange_end(r->exchange);
}

/* ---- a whole reply ---- */

static void write_whole(reply *r)
{
    sheaf_text all = { 0 };
    add_head(&all, r, false);
    sheaf__text_add(&all, ", \"choices\": [");
    for (int64_t i = 0; i < r->parts; i++) {
        part *p = &r->part[i];
        sheaf__text_add(&all, "%s{\"index\": %lld, ", i == 0 ? "" : ", ", (long long)i);
        sheaf__text_add(&all, r->request.chat
                                  ? "\"message\": {\"role\": \"assistant\", \"content\": "
                                  : "\"text\": ");
        sheaf__text_json(&all, p->text == NULL ? "" : p->text);
        sheaf__text_add(&all, "%s", r->request.chat ? ", \"refusal\": null}" : "");
        add_logprobs(&all, p, r);
        sheaf__text_add(&all, ", \"finish_reason\": \"%s\"}", p->finish);
    }
    sheaf__text_add(&all, "], ");
    add_usage(&all, r);
    sheaf__text_add(&all, "}\n");
    sheaf__exchange_reply(r->exchange, 200, "application/json", &all);
}

/* ---- the engine's calls ---- */

static void spoken(void *self, int64_t answer, const sheaf__spoken *s, bool over)
{
    reply *r = self;
    part *p = &r->part[answer];
    note_logprobs(p, r, s->said);
    for (; p->tokens < s->said->n; p->tokens++)
        if (!r->request.chat)
            sheaf__text_add(&p->ids, "%s%d", p->ids.size == 0 ? "" : ",",
                            (int)s->said->ids[p->tokens]);
    if (over)
        p->finish = finish_of(s->said->ending);
    if (!r->request.stream) {
        if (over)
            p->text = s->text == NULL ? NULL : strdup(s->text);
        return;
    }
    if (!r->begun)
        sheaf__exchange_begin(r->exchange);
    r->begun = true;
    if (s->piece[0] != '\0' || over)
        write_piece(r, answer, s->piece, over ? p->finish : NULL);
}

static bool gone(void *self)
{
    return sheaf__exchange_gone(((reply *)self)->exchange);
}

static void done(void *self, sheaf_status *st)
{
    reply *r = self;
    if (st == NULL && r->asked.dropped)
        st = sheaf_fail(SHEAF_E_STOPPED, "the connection is closed");
    if (st != NULL && r->begun)
        break_stream(r, st);
    else if (st != NULL)
        sheaf__reply_error(r->exchange, sheaf_status_copy(st));
    else if (r->request.stream)
        end_stream(r);
    else
        write_whole(r);
    sheaf_status_free(st);
    release(r);
}

/* ---- asking ---- */

static sheaf_status *add_prompts(reply *r, const sheaf_model *m, const char *system)
{
    const sheaf__request *q = &r->request;
    sheaf__prompts *to = &r->asked.prompts;
    const json_t *all = q->prompt;
    sheaf_status *st = NULL;
    to->config = &m->opened.config;
    if (q->chat)
        return sheaf__prompts_conversation(to, r->codec, q->messages, system, q->image, q->images);
    if (json_is_string(all))
        return sheaf__prompts_add_text(to, r->codec, json_string_value(all), NULL, NULL, 0);
    if (json_is_integer(json_array_get(all, 0)))
        return sheaf__prompts_add_ids(to, all, NULL);
    for (size_t i = 0; i < json_array_size(all) && st == NULL; i++) {
        const json_t *one = json_array_get(all, i);
        st = json_is_string(one)
                 ? sheaf__prompts_add_text(to, r->codec, json_string_value(one), NULL, NULL, 0)
                 : sheaf__prompts_add_ids(to, one, NULL);
        st = sheaf_in(st, "prompt %zu", i + 1);
    }
    return st;
}

/* A seed that JSON's readers keep. */
static uint64_t any_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed >> 1;
}

static sheaf_status *prepare(reply *r, sheaf_model *m, const char *system, int64_t max_new)
{
    static const sheaf_events silent = { 0 };
    sheaf_model_generate_options o = r->request.how;
    const json_t *prompt = r->request.prompt, *first = json_array_get(prompt, 0);
    const bool texts = r->request.chat || json_is_string(prompt) || json_is_string(first);
    o.events = &silent;
    o.max_new = o.max_new > 0 ? o.max_new : max_new;
    o.max_length = 0;
    sheaf_status *st = sheaf__model_answer_options(&r->asked.how, m, &o, texts);
    if (st != NULL)
        return st;
    r->asked.how.codec = r->codec;
    r->asked.each = r->request.each;
    TRY(st, add_prompts(r, m, system));
    r->parts = st == NULL ? r->asked.prompts.count * r->request.each : 0;
    r->part = calloc((size_t)r->parts + 1, sizeof *r->part);
    return st == NULL && r->part == NULL ? sheaf__no_memory("a reply") : st;
}

void sheaf__reply(sheaf__exchange *x, sheaf__engine *engine, int model, const sheaf__codec *codec,
                  sheaf__request *request, const char *system, int64_t max_new)
{
    reply *r = calloc(1, sizeof *r);
    bool full = false;
    if (r == NULL) {
        sheaf__request_release(request);
        sheaf__reply_error(x, sheaf__no_memory("a reply"));
        return;
    }
    *r = (reply){
        .exchange = x,
        .request = *request,
        .model = sheaf__engine_name(engine, model),
        .codec = codec,
        .created = (long long)time(NULL),
        .asked = { .model = model, .spoken = spoken, .gone = gone, .done = done, .context = r }
    };
    (void)!getrandom(&r->id, sizeof r->id, GRND_NONBLOCK);
    if (!request->seeded)
        r->request.how.seed = any_seed();
    sheaf_status *st = prepare(r, sheaf__engine_model(engine, model), system, max_new);
    TRY(st, sheaf__engine_ask(&full, engine, &r->asked));
    if (st == NULL && !full)
        return; /* r is the engine's */
    if (st != NULL) {
        sheaf__reply_error(x, st);
    } else {
        st = sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_STOPPED, "questions"),
                                           "fewer of them at a time: no more may wait"),
                            "it again, later");
        sheaf__http_error(x, 429, "rate_limit_error", "queue_full", st);
        sheaf_status_free(st);
    }
    release(r);
}
