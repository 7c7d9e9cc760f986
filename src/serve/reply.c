/* reply.c - see reply.h. */
#include "serve/reply.h"

#include <math.h>
#include <sys/random.h>
#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "http/log.h"
#include "infer/answer_stream.h"
#include "infer/token_text.h"
#include "serve/responses.h"

/* One answer as it grows. */
typedef struct choice {
    sheaf_text logprobs; /* JSON, of the tokens since the last piece, or of all */
    sheaf_text
        lists[3]; /* completions: tokens, their logs, the best of each; offsets are made of */
    sheaf_text offsets;
    sheaf_text ids;  /* completions: a model may have no text */
    int64_t noted;   /* tokens that these cover */
    int64_t offset;  /* characters before the next token */
    int64_t certain; /* of these, in the text that `stream` has given */
    sheaf_text held; /* the bytes since then */
    int64_t lead;    /* of these, blanks and empty thoughts that are no text of a laid-out answer */
    sheaf__answer_stream stream;
    sheaf__token_text tokens_text; /* the same, by tokens */
    sheaf__said said;
    size_t sent[2]; /* bytes of its thoughts and its content that were streamed */
    int64_t tokens;
    const char *finish;
    bool started;
} choice;

typedef struct reply {
    sheaf__exchange *exchange;
    sheaf__request request;
    sheaf__engine_request submitted;
    const char *model;
    sheaf__said_rules rules;
    sheaf__response response;      /* of /v1/responses */
    char *schema, *before, *after; /* where a call must be; NULL */
    const sheaf__codec *codec;
    choice *choice; /* [choices] */
    int64_t choices;
    long long created;
    double arrived, first; /* moments; first: of the first token, 0: there is none */
    uint64_t id;
    bool started;
} reply;

static void release(reply *r)
{
    for (int64_t i = 0; i < r->choices && r->choice != NULL; i++) {
        choice *p = &r->choice[i];
        sheaf__text_release(&p->logprobs);
        for (int k = 0; k < 3; k++)
            sheaf__text_release(&p->lists[k]);
        sheaf__text_release(&p->offsets);
        sheaf__text_release(&p->ids);
        sheaf__answer_stream_release(&p->stream);
        sheaf__token_text_release(&p->tokens_text);
        sheaf__text_release(&p->held);
        sheaf__said_release(&p->said);
    }
    free(r->choice);
    sheaf__tool_form_release(&r->rules.form);
    free(r->schema);
    free(r->before);
    free(r->after);
    sheaf__prompts_release(&r->submitted.prompts);
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
    sheaf__status_spell(st, sheaf__request_has);
    sheaf__http_error(x, status, status == 400 ? "invalid_request_error" : "server_error", NULL,
                      st);
    sheaf_status_free(st);
}

/* ---- pieces of JSON ---- */

static const char *finish_of(sheaf_ending ending)
{
    return ending == SHEAF_ENDS_TOKEN || ending == SHEAF_ENDS_TEXT ? "stop" : "length";
}

static const char *so_far(const sheaf_text *text)
{
    return text->size == 0 ? "" : text->at;
}

static void add_log(sheaf_text *to, double value)
{
    sheaf__text_add(to, isfinite(value) ? "%.9g" : "-9999.0", value);
}

/* The text of a token as the next of an answer, in which a part of a character is U+FFFD, and its
 * bytes, which clients join. A special token has a name instead. */
static void show_token(sheaf_text *text, sheaf__text_piece *bytes, choice *p, const reply *r,
                       int32_t id)
{
    p->tokens_text.codec = r->codec;
    text->size = 0;
    sheaf_status_free(sheaf__token_text_if(bytes, &p->tokens_text, id));
    const char *name = bytes->size == 0 ? sheaf__token_text_name(&p->tokens_text, id) : NULL;
    sheaf__text_add(text, "%s", name == NULL ? "" : name);
    sheaf__codec_add_utf8(text, bytes->at, bytes->size);
}

/* {"token": ..., "logprob": ..., "bytes": [...]. The caller closes it. */
static void add_token(sheaf_text *to, choice *p, const reply *r, int32_t id, double log)
{
    sheaf_text text = { 0 };
    sheaf__text_piece bytes;
    show_token(&text, &bytes, p, r, id);
    sheaf__text_add(to, "{\"token\": ");
    sheaf__text_json(to, so_far(&text));
    sheaf__text_add(to, ", \"id\": %d, \"logprob\": ", (int)id);
    add_log(to, log);
    sheaf__text_add(to, ", \"bytes\": [");
    for (size_t i = 0; i < bytes.size; i++)
        sheaf__text_add(to, "%s%d", i == 0 ? "" : ",", (unsigned char)bytes.at[i]);
    sheaf__text_add(to, "]");
    sheaf__text_release(&text);
}

static void add_chat_token(choice *p, const reply *r, const sheaf__continuation *output, int64_t i)
{
    const int64_t best = r->submitted.how.generate.best;
    sheaf_text *to = &p->logprobs;
    sheaf__text_add(to, "%s", to->size == 0 ? "" : ", ");
    add_token(to, p, r, output->ids[i], output->logprob[i]);
    sheaf__text_add(to, ", \"top_logprobs\": [");
    for (int64_t k = 0; k < best; k++) {
        sheaf__text_add(to, "%s", k == 0 ? "" : ", ");
        add_token(to, p, r, output->best_ids[i * best + k], output->best_logprob[i * best + k]);
        sheaf__text_add(to, "}");
    }
    sheaf__text_add(to, "]}");
}

static int64_t characters(const char *text, size_t size)
{
    int64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Whole characters at the beginning of a text. */
static int64_t whole_characters(const char *text, size_t size)
{
    size_t at = 0;
    for (size_t n; at < size && (n = sheaf__utf8_length(text + at, size - at)) > 0;)
        at += n;
    return characters(text, at);
}

/* Bytes at the end of `text` that may be the beginning of a character. */
static size_t open_character(const sheaf_text *text)
{
    static const unsigned char least[] = { 0, 0xC0, 0xE0, 0xF0 }; /* of a lead with more to come */
    for (size_t n = 1; n <= 3 && n <= text->size; n++) {
        const unsigned char lead = (unsigned char)text->at[text->size - n];
        if ((lead & 0xC0) != 0x80)
            return lead >= least[n] ? n : 0;
    }
    return 0;
}

/* One more token, whose bytes are at the end of p->held. The new length of the text: its certain
 * part, and the characters that are whole since then, as decoders may wait for the end of a row of
 * bytes. */
static void add_held(choice *p, const reply *r, const int32_t *ids, int64_t n)
{
    sheaf_text *held = &p->held;
    char *more = NULL;
    p->stream.codec = r->codec;
    sheaf_status_free(sheaf__answer_stream_more(&more, &p->stream, ids, n));
    const size_t size = more == NULL ? 0 : strlen(more);
    p->certain += characters(more, size);
    /* the new text is the held bytes, unless some of these are no characters */
    if (size > 0 && held->size > 0) {
        const bool same = size <= held->size && memcmp(held->at, more, size) == 0;
        const size_t gone = same ? size : held->size - open_character(held);
        held->size -= gone;
        memmove(held->at, held->at + gone, held->size);
    }
    free(more);
    p->offset = p->certain + whole_characters(held->at, held->size);
    if (!r->codec->templated || p->stream.size == 0)
        return;
    bool begins;
    const sheaf__text_piece inner =
        sheaf__codec_answer_span(&begins, r->codec, p->stream.sent, p->stream.size);
    p->lead = begins || inner.size == 0
                  ? p->offset
                  : characters(p->stream.sent, (size_t)(inner.at - p->stream.sent));
}

/* Offset of a token in the whole text: tokens may be choices of one character. If it begins one, an
 * incomplete one before it has become U+FFFD. */
static void add_offset(choice *p, const reply *r, sheaf__text_piece bytes, const int32_t *ids,
                       int64_t n)
{
    int64_t at = p->offset;
    sheaf__text_bytes(&p->held, bytes.at, bytes.size);
    add_held(p, r, ids, n);
    if (bytes.size > 0 && ((unsigned char)bytes.at[0] & 0xC0) != 0x80) {
        const int64_t before = p->offset - whole_characters(bytes.at, bytes.size);
        at = before > at ? before : at;
    }
    sheaf__text_add(&p->offsets, "%s%lld", p->offsets.size == 0 ? "" : ", ",
                    (long long)(at > p->lead ? at - p->lead : 0));
}

/* The chosen token is among the best by its text. Another of the same text (a part of a character,
 * a word that begins a text with its blank and without) is named by its id, as vLLM may do. */
static void add_best(sheaf_text *to, choice *p, const reply *r, const sheaf__continuation *output,
                     int64_t i, const char *chosen)
{
    const int64_t best = r->submitted.how.generate.best;
    sheaf_text key[SHEAF__MOST_TOP] = { 0 };
    sheaf__text_add(to, "{");
    for (int64_t k = 0; k < best; k++) {
        const int32_t id = output->best_ids[i * best + k];
        sheaf__text_piece bytes;
        const bool other = id != output->ids[i];
        if (other)
            show_token(&key[k], &bytes, p, r, id);
        else
            sheaf__text_add(&key[k], "%s", chosen);
        bool taken = other && strcmp(so_far(&key[k]), chosen) == 0;
        for (int64_t j = 0; j < k && !taken; j++)
            taken = strcmp(so_far(&key[j]), so_far(&key[k])) == 0;
        if (taken) {
            key[k].size = 0;
            sheaf__text_add(&key[k], "token_id:%d", (int)id);
        }
        sheaf__text_add(to, "%s", k == 0 ? "" : ", ");
        sheaf__text_json(to, so_far(&key[k]));
        sheaf__text_add(to, ": ");
        add_log(to, output->best_logprob[i * best + k]);
    }
    for (int64_t k = 0; k < best; k++)
        sheaf__text_release(&key[k]);
    sheaf__text_add(to, "}");
}

static void add_text_token(choice *p, const reply *r, const sheaf__continuation *output, int64_t i)
{
    const char *comma = p->lists[0].size == 0 ? "" : ", ";
    sheaf_text text = { 0 };
    sheaf__text_piece bytes;
    show_token(&text, &bytes, p, r, output->ids[i]);
    if (bytes.size == 0) /* joined they are the text, which has no names */
        text.size = 0;
    sheaf__text_add(&p->lists[0], "%s", comma);
    sheaf__text_json(&p->lists[0], so_far(&text));
    sheaf__text_add(&p->lists[1], "%s", comma);
    add_log(&p->lists[1], output->logprob[i]);
    sheaf__text_add(&p->lists[2], "%s", comma);
    add_best(&p->lists[2], p, r, output, i, so_far(&text));
    sheaf__text_release(&text);
}

/* For the new tokens; the one that ended the answer is not part of it. */
static void note_logprobs(choice *p, const reply *r, const sheaf__continuation *output)
{
    const int64_t n = output->n - (output->ending == SHEAF_ENDS_TOKEN);
    for (; p->noted < n && output->logprob != NULL; p->noted++) {
        sheaf__text_piece bytes;
        if (r->request.chat)
            add_chat_token(p, r, output, p->noted);
        else
            add_text_token(p, r, output, p->noted);
        sheaf_status_free(sheaf__token_text_next(&bytes, &p->tokens_text, output->ids[p->noted]));
        if (!r->request.chat)
            add_offset(p, r, bytes, output->ids, p->noted + 1);
    }
}

/* A list of entries so far, which are forgotten. */
static void put_list(sheaf_json_writer *j, const char *key, sheaf_text *entries)
{
    sheaf__json_open(j, key, '[');
    sheaf__text_add(&j->text, "%s", so_far(entries));
    sheaf__json_close(j, ']');
    entries->size = 0;
}

static void put_logprobs(sheaf_json_writer *j, choice *p, const reply *r)
{
    if (!r->request.chat)
        put_list(j, "token_ids", &p->ids);
    p->ids.size = 0;
    if (!r->request.logprobs) {
        sheaf__json_put_text(j, "logprobs", NULL);
        return;
    }
    sheaf__json_open(j, "logprobs", '{');
    if (r->request.chat) {
        put_list(j, "content", &p->logprobs);
        sheaf__json_put_text(j, "refusal", NULL);
    } else {
        put_list(j, "tokens", &p->lists[0]);
        put_list(j, "token_logprobs", &p->lists[1]);
        put_list(j, "top_logprobs", &p->lists[2]);
        put_list(j, "text_offset", &p->offsets);
    }
    sheaf__json_close(j, '}');
}

static void put_head(sheaf_json_writer *j, const reply *r, bool piece)
{
    const bool chat = r->request.chat;
    char id[64];
    snprintf(id, sizeof id, "%s-%016llx", chat ? "chatcmpl" : "cmpl", (unsigned long long)r->id);
    sheaf__json_begin(j);
    sheaf__json_put(j, "id:s object:s created:d model:s system_fingerprint:s seed:d", id,
                    !chat   ? "text_completion"
                    : piece ? "chat.completion.chunk"
                            : "chat.completion",
                    (int64_t)r->created, r->model, "sheaf-" SHEAF_VERSION,
                    (int64_t)r->request.how.seed);
}

static void count_tokens(int64_t *prompt, int64_t *completion, const reply *r)
{
    *prompt = *completion = 0;
    for (int64_t i = 0; i < r->submitted.prompts.count; i++)
        *prompt += r->submitted.prompts.prompt[i].n;
    for (int64_t i = 0; i < r->choices; i++)
        *completion += r->choice[i].tokens;
}

static void put_usage(sheaf_json_writer *j, const reply *r)
{
    int64_t prompt, completion;
    count_tokens(&prompt, &completion, r);
    sheaf__json_put(j, "usage:{ prompt_tokens:d completion_tokens:d total_tokens:d }", prompt,
                    completion, prompt + completion);
}

/* ---- calls of tools ---- */

/* {id, type, function} of call k, behind what else its object has. */
static void put_call(sheaf_json_writer *j, const reply *r, int64_t answer, size_t k)
{
    const json_t *call = json_array_get(r->choice[answer].said.calls, k);
    sheaf__json_put(j, "id:s type:s function:{ name:s arguments:s }",
                    json_string_value(json_object_get(call, "id")), "function",
                    json_string_value(json_object_get(call, "name")),
                    json_string_value(json_object_get(call, "arguments")));
}

/* ---- a stream ---- */

static void write_event(reply *r, sheaf_text *event)
{
    if (!event->failed && event->size > 0)
        sheaf__exchange_write(r->exchange, event->at, event->size);
    sheaf__text_release(event);
}

/* What a delta has beside its role. */
typedef enum kind { THOUGHTS, CONTENT, CALL } kind;

/* finish NULL: the answer goes on. k: the number of a call. */
static void write_piece(reply *r, int64_t answer, kind what, const char *piece, size_t k,
                        const char *finish)
{
    choice *p = &r->choice[answer];
    sheaf_json_writer j = { .compact = false };
    sheaf__text_add(&j.text, "data: ");
    put_head(&j, r, true);
    sheaf__json_put(&j, "choices:[ { index:d", answer);
    if (r->request.chat) {
        sheaf__json_open(&j, "delta", '{');
        sheaf__json_put(&j, p->started ? "" : "role:s", "assistant");
        if (what != THOUGHTS && !(what == CALL && p->started))
            sheaf__json_put_text(&j, "content", what == CALL ? NULL : piece);
        else if (what == THOUGHTS)
            sheaf__json_put_text(&j, "reasoning_content", piece);
        if (what == CALL) {
            sheaf__json_put(&j, "tool_calls:[ { index:d", (int64_t)k);
            put_call(&j, r, answer, k);
            sheaf__json_put(&j, "} ]");
        }
        sheaf__json_close(&j, '}');
    } else
        sheaf__json_put_text(&j, "text", piece);
    p->started = true;
    put_logprobs(&j, p, r);
    sheaf__json_put(&j, "finish_reason:s } ]", finish);
    if (r->request.usage)
        sheaf__json_put_text(&j, "usage", NULL);
    sheaf__text_add(&j.text, "}\n\n");
    write_event(r, &j.text);
}

/* What its end tells. */
static void end_response(reply *r)
{
    r->response.finish = r->choice[0].finish;
    count_tokens(&r->response.input, &r->response.output, r);
}

static void end_stream(reply *r)
{
    sheaf_json_writer j = { .compact = false };
    if (r->request.asked != NULL) {
        end_response(r);
        sheaf__response_end(&j.text, &r->response, &r->choice[0].said);
        write_event(r, &j.text);
        sheaf__exchange_end(r->exchange);
        return;
    }
    if (r->request.usage) {
        sheaf__text_add(&j.text, "data: ");
        put_head(&j, r, true);
        sheaf__json_put(&j, "choices:[ ]");
        put_usage(&j, r);
        sheaf__text_add(&j.text, "}\n\n");
    }
    sheaf__text_add(&j.text, "data: [DONE]\n\n");
    write_event(r, &j.text);
    sheaf__exchange_end(r->exchange);
}

/* An error within a stream. */
static void break_stream(reply *r, const sheaf_status *failed)
{
    sheaf_text event = { 0 };
    sheaf_status *st = sheaf__status_spell(sheaf_status_copy(failed), sheaf__request_has);
    sheaf__text_add(&event, "data: ");
    sheaf__http_error_json(&event, "server_error", NULL, st);
    sheaf_status_free(st);
    sheaf__text_add(&event, "\n");
    write_event(r, &event);
    sheaf__exchange_end(r->exchange);
}

/* ---- a whole reply ---- */

static void write_whole(reply *r)
{
    sheaf_json_writer j = { .compact = false };
    if (r->request.asked != NULL) {
        end_response(r);
        sheaf__response_whole(&j.text, &r->response, &r->choice[0].said);
        sheaf__exchange_reply(r->exchange, 200, "application/json", &j.text);
        return;
    }
    put_head(&j, r, false);
    sheaf__json_open(&j, "choices", '[');
    for (int64_t i = 0; i < r->choices; i++) {
        choice *p = &r->choice[i];
        const size_t calls = json_array_size(p->said.calls);
        char *text = sheaf__said_unsent(p->said.content, &p->sent[1]),
             *thoughts = sheaf__said_unsent(p->said.thoughts, &p->sent[0]);
        sheaf__json_put(&j, "{ index:d", i);
        if (r->request.chat) {
            sheaf__json_put(&j, "message:{ role:s content:s refusal:s", "assistant",
                            text == NULL && calls == 0 ? "" : text, (char *)NULL);
            if (thoughts != NULL)
                sheaf__json_put_text(&j, "reasoning_content", thoughts);
            sheaf__json_put(&j, calls > 0 ? "tool_calls:[" : "");
            for (size_t k = 0; k < calls; k++) {
                sheaf__json_put(&j, "{");
                put_call(&j, r, i, k);
                sheaf__json_put(&j, "}");
            }
            sheaf__json_put(&j, calls > 0 ? "] }" : "}");
        } else
            sheaf__json_put_text(&j, "text", text == NULL ? "" : text);
        free(text);
        free(thoughts);
        put_logprobs(&j, p, r);
        sheaf__json_put(&j, "finish_reason:s }", p->finish);
    }
    sheaf__json_close(&j, ']');
    put_usage(&j, r);
    sheaf__text_add(&j.text, "}\n");
    sheaf__exchange_reply(r->exchange, 200, "application/json", &j.text);
}

/* ---- callbacks of the engine ---- */

/* What is new of an answer; calls stand behind its content. */
static void write_more(reply *r, int64_t answer, bool over)
{
    choice *p = &r->choice[answer];
    const size_t calls = json_array_size(p->said.calls);
    char *thoughts = sheaf__said_unsent(p->said.thoughts, &p->sent[0]),
         *content = sheaf__said_unsent(p->said.content, &p->sent[1]);
    if (thoughts != NULL)
        write_piece(r, answer, THOUGHTS, thoughts, 0, NULL);
    if (content != NULL || (over && calls == 0))
        write_piece(r, answer, CONTENT, content == NULL ? "" : content, 0,
                    over && calls == 0 ? p->finish : NULL);
    for (size_t k = 0; k < calls; k++)
        write_piece(r, answer, CALL, NULL, k, k + 1 == calls ? p->finish : NULL);
    free(thoughts);
    free(content);
}

static void on_delta(void *self, int64_t answer, const sheaf__delta *s, bool over)
{
    reply *r = self;
    choice *p = &r->choice[answer];
    if (r->first == 0 && s->output->n > 0)
        r->first = sheaf__seconds();
    note_logprobs(p, r, s->output);
    for (; p->tokens < s->output->n; p->tokens++)
        if (!r->request.chat)
            sheaf__text_add(&p->ids, "%s%d", p->ids.size == 0 ? "" : ",",
                            (int)s->output->ids[p->tokens]);
    if (over)
        p->finish = finish_of(s->output->ending);
    sheaf_status_free(sheaf__said_more(&p->said, &r->rules, s, over));
    if (p->said.thoughts.size > 0 && p->said.content.size == 0)
        r->response.thinking = p->tokens;
    sheaf__tool_call_ids(p->said.calls, r->id, answer);
    if (p->said.calls != NULL && strcmp(p->finish, "stop") == 0)
        p->finish = "tool_calls";
    if (!r->request.stream)
        return;
    const bool begins = !r->started;
    if (begins)
        sheaf__exchange_begin(r->exchange);
    r->started = true;
    if (r->request.asked == NULL) {
        write_more(r, answer, over);
        return;
    }
    sheaf_text events = { 0 };
    if (begins)
        sheaf__response_begin(&events, &r->response);
    sheaf__response_more(&events, &r->response, &p->said);
    write_event(r, &events);
}

static bool disconnected(void *self)
{
    return sheaf__exchange_gone(((reply *)self)->exchange);
}

/* For the log; `failed`: instead of how each answer ended. */
static void note_answers(const reply *r, const char *failed)
{
    sheaf_text *to = sheaf__exchange_note(r->exchange);
    const double now = sheaf__seconds();
    int64_t prompt, completion;
    bool is_stop = false, is_length = false;
    count_tokens(&prompt, &completion, r);
    for (int64_t i = 0; i < r->choices; i++) {
        const char *finish = r->choice[i].finish;
        is_stop |= finish != NULL && strcmp(finish, "length") != 0;
        is_length |= finish != NULL && strcmp(finish, "length") == 0;
    }
    sheaf__text_add(to, " model=");
    sheaf__log_word(to, r->model);
    sheaf__text_add(to, " prompt_tokens=%" PRId64 " answer_tokens=%" PRId64, prompt, completion);
    if (r->first > 0)
        sheaf__text_add(to, " first_token_ms=%.0f", (r->first - r->arrived) * 1e3);
    if (completion > 1 && now > r->first)
        sheaf__text_add(to, " tokens_per_s=%.1f", (double)(completion - 1) / (now - r->first));
    sheaf__text_add(to, " finish=%s",
                    failed != NULL         ? failed
                    : is_stop && is_length ? "stop,length"
                    : is_stop              ? "stop"
                                           : "length");
}

static void on_end(void *self, sheaf_status *st)
{
    reply *r = self;
    note_answers(r, r->submitted.dropped ? "cancelled" : st != NULL ? "error" : NULL);
    if (st == NULL && r->submitted.dropped)
        st = sheaf_fail(SHEAF_E_STOPPED, "the connection is closed");
    if (st != NULL && r->started)
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

/* ---- submitting ---- */

static sheaf_status *add_prompts(reply *r, const sheaf__served_model *m, const char *system)
{
    const sheaf__request *q = &r->request;
    sheaf__prompts *to = &r->submitted.prompts;
    const json_t *all = q->prompt;
    sheaf_status *st = NULL;
    to->config = m->config;
    to->bytes = q->picture;
    to->video = q->video;
    to->videos = q->videos;
    to->budget.most = q->most_pixels;
    if (q->chat)
        return sheaf__prompts_messages(to, r->codec, q->messages, true, system, q->image,
                                       q->images);
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

/* A seed that every reader of JSON keeps exactly. */
static uint64_t any_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed >> 1;
}

/* The field that an answer has its form by. */
static const char *form_field(const reply *r)
{
    return r->schema != NULL          ? "`tools`"
           : r->request.asked != NULL ? "`text`"
                                      : "`response-format`";
}

static sheaf_status *prepare(reply *r, const sheaf__served_model *m, const char *system,
                             int64_t max_new)
{
    static const sheaf_events silent = { 0 };
    sheaf_model_generate_options o = r->request.how;
    const json_t *prompt = r->request.prompt, *first = json_array_get(prompt, 0);
    const bool texts = r->request.chat || json_is_string(prompt) || json_is_string(first);
    o.events = &silent;
    o.max_new = o.max_new > 0 ? o.max_new : max_new;
    sheaf_status *st = r->request.tools == NULL
                           ? NULL
                           : sheaf__tool_form_read(&r->rules.form, &m->chat, r->request.tools);
    if (r->request.calls)
        TRY(st, sheaf__tool_forced(&r->schema, &r->before, &r->after, &r->rules.form, &m->chat,
                                   r->request.tools, r->request.tool));
    o.json_schema = r->schema != NULL ? r->schema : o.json_schema;
    if (st == NULL) {
        st = sheaf__served_options(&r->submitted.how, m, &o, texts, r->request.chat);
        if (r->submitted.how.form.schema != NULL) /* else it was not looked at */
            st = sheaf_in(st, "%s", form_field(r));
    }
    if (st != NULL)
        return st;
    r->submitted.how.form.before = r->before;
    r->submitted.how.form.after = r->after;
    r->codec = r->submitted.how.codec;
    r->submitted.each = r->request.each;
    TRY(st, sheaf_in(add_prompts(r, m, system), "%s", sheaf__request_asks(&r->request)));
    r->rules.codec = r->codec;
    r->rules.tools = r->request.tools;
    r->rules.one_call = r->request.one_call;
    r->rules.thoughts = r->request.chat && o.json_schema == NULL;
    r->rules.whole = !r->request.stream;
    if (r->rules.thoughts)
        TRY(st, sheaf__said_prompt(&r->rules, &r->submitted.prompts.prompt[0]));
    r->choices = st == NULL ? r->submitted.prompts.count * r->request.each : 0;
    r->choice = calloc((size_t)r->choices + 1, sizeof *r->choice);
    return st == NULL && r->choice == NULL ? sheaf__no_memory("a reply") : st;
}

void sheaf__reply(sheaf__exchange *x, sheaf__engine *engine, const sheaf__served *served, int model,
                  sheaf__request *request, const char *system, int64_t max_new)
{
    reply *r = calloc(1, sizeof *r);
    bool full = false;
    if (r == NULL) {
        sheaf__request_release(request);
        sheaf__reply_error(x, sheaf__no_memory("a reply"));
        return;
    }
    *r = (reply){ .exchange = x,
                  .request = *request,
                  .model = served->name[model],
                  .created = (long long)time(NULL),
                  .arrived = sheaf__seconds(),
                  .submitted = { .model = model,
                                 .on_delta = on_delta,
                                 .cancelled = disconnected,
                                 .on_end = on_end,
                                 .context = r } };
    (void)!getrandom(&r->id, sizeof r->id, GRND_NONBLOCK);
    if (!request->seeded)
        r->request.how.seed = any_seed();
    r->response = (sheaf__response){ .asked = request->asked,
                                     .model = r->model,
                                     .id = r->id,
                                     .created = r->created,
                                     .seed = (int64_t)r->request.how.seed };
    sheaf_status *st = prepare(r, &served->model[model], system, max_new);
    TRY(st, sheaf__engine_submit(&full, engine, &r->submitted));
    if (st == NULL && !full)
        return; /* r is the engine's */
    if (st != NULL && r->submitted.too_long) {
        sheaf__http_error(x, 400, "invalid_request_error", "context_length_exceeded", st);
        sheaf_status_free(st);
    } else if (st != NULL) {
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
