/* chat.c - see chat.h: renders a conversation with a template's program, and finds the answers to
 * be labelled. */
#include "inputs/chat/chat.h"

#include <ctype.h>

#include "base/base.h"
#include "inputs/chat/named.h"

/* ---- the program and its variables, as in transformers ---- */

static bool is_role(const sheaf__message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

/* Fields of thoughts: the first that a message has is handed on under the first two names. */
static const char *const thoughts[] = { "reasoning_content", "thinking", "reasoning" };
enum { THOUGHTS = sizeof thoughts / sizeof *thoughts };

/* A content; for programs that read no texts (`parts`) the list that it was. */
static json_t *content_of(const sheaf__message *m, bool parts)
{
    json_t *given = json_object_get(m->json, "content");
    return parts && json_is_array(given) ? json_incref(given)
                                         : json_stringn_nocheck(m->content, m->size);
}

static json_t *message_object(const sheaf__message *m, bool parts)
{
    json_t *one = json_object();
    bool failed = json_object_set_new(one, "role", json_string(m->role)) != 0;
    if (m->content != NULL)
        failed |= json_object_set_new(one, "content", content_of(m, parts)) != 0;
    if (m->json != NULL)
        failed |= json_object_update_missing(one, (json_t *)m->json) != 0;
    for (int k = 0; k < THOUGHTS && !failed; k++) {
        json_t *given = json_object_get(one, thoughts[k]);
        if (given == NULL || json_is_null(given))
            continue;
        if (json_object_get(one, "thinking") == NULL)
            failed |= json_object_set(one, "thinking", given) != 0;
        failed |= json_object_set(one, "reasoning_content", given) != 0;
        break;
    }
    if (!failed)
        return one;
    json_decref(one);
    return NULL;
}

static bool has_thoughts(const sheaf__message *m)
{
    const char *begin = m->content == NULL ? NULL : memmem(m->content, m->size, "<think>", 7);
    return strcmp(m->role, "assistant") == 0 && begin != NULL &&
           memmem(begin, m->size - (size_t)(begin - m->content), "</think>", 8) != NULL;
}

/* A NULL text is left out: it is undefined in the program. */
static json_t *variables(const sheaf__message *message, int64_t n,
                         const sheaf__chat_options *options, bool parts, const char *date_string)
{
    json_t *messages = json_array(),
           *tools = options->tools != NULL ? json_incref((json_t *)options->tools) : json_null(),
           *thinking = options->thinking == SHEAF__THINKING_UNSET
                           ? NULL
                           : json_boolean(options->thinking == SHEAF__THINKING_ON ||
                                          (n > 0 && has_thoughts(&message[n - 1])));
    bool good = true;
    for (int64_t i = 0; i < n && good; i++)
        good = json_array_append_new(messages, message_object(&message[i], parts)) == 0;
    json_t *out = json_pack("{s:o, s:o, s:n, s:b, s:s*, s:s*, s:s*, s:o*}", "messages", messages,
                            "tools", tools, "documents", "add_generation_prompt",
                            options->generation_prompt, "bos_token", options->bos, "eos_token",
                            options->eos, "date_string", date_string, "enable_thinking", thinking);
    if (options->kwargs != NULL)
        good = good && json_object_update_missing(out, (json_t *)options->kwargs) == 0;
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

static const sheaf__chat_template *for_tools(const sheaf__chat_template *t,
                                             const sheaf__chat_options *options)
{
    return t->with_tools != NULL && options->tools != NULL ? t->with_tools : t;
}

sheaf_status *sheaf__chat_run(sheaf__jinja_text *out, const sheaf__chat_template *t,
                              const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options)
{
    t = for_tools(t, options);
    const bool by_clock = t->clock && t->day.year != 0;
    json_t *all =
        variables(message, n, options, t->parts, t->takes_date && !by_clock ? t->date : NULL);
    if (all == NULL)
        return sheaf__no_memory("chat template");
    sheaf_status *st = sheaf__jinja_render(out, t->program, all, t->day.year != 0 ? &t->day : NULL);
    json_decref(all);
    return t->file != NULL ? sheaf_in(st, "%s", t->file)
                           : sheaf_in(st, "chat template %s", t->name);
}

sheaf_status *sheaf__unless_raised(sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* ---- roles ---- */

static bool is_name(char c)
{
    return c == '_' || isalnum((unsigned char)c);
}

/* Does the program name the field or role, and not as a part of another name? */
static bool names(const sheaf__chat_template *t, const char *field)
{
    const size_t n = strlen(field);
    for (const char *at = t->source; (at = strstr(at, field)) != NULL; at += n)
        if ((at == t->source || !is_name(at[-1])) && !is_name(at[n]))
            return true;
    return false;
}

/* Does it read that field of an object: .field, ['field'] or get('field')? */
static bool reads(const sheaf__chat_template *t, const char *field)
{
    const size_t n = strlen(field);
    for (const char *at = t->source; (at = strstr(at, field)) != NULL; at += n) {
        const size_t before = (size_t)(at - t->source);
        const bool quoted = before > 1 && (at[-1] == '\'' || at[-1] == '"') && at[n] == at[-1] &&
                            (at[-2] == '[' || at[-2] == '(');
        if (quoted || (before > 0 && at[-1] == '.' && !is_name(at[n])))
            return true;
    }
    return false;
}

bool sheaf__chat_reads_thoughts(const sheaf__chat_template *t)
{
    return reads(t, thoughts[0]) || reads(t, thoughts[1]);
}

/* The program decides which roles there are; only a mistyped one, which it does not name, is
 * refused here, as many programs write any. */
static sheaf_status *check_role(const sheaf__chat_template *t, const sheaf__message *m, int64_t i)
{
    static const char *const known[] = { "system",    "user",     "assistant", "tool",
                                         "developer", "function", "ipython",   "observation" };
    enum { KNOWN = sizeof known / sizeof *known };
    const char *meant = sheaf__nearest(m->role, known, KNOWN);
    if (*m->role != '\0' && (meant == NULL || strcmp(meant, m->role) == 0 || names(t, m->role)))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, i + 1);
    sheaf_expected(st, "role system, user, assistant or tool (chat template %s)", t->name);
    sheaf_found(st, "role '%s'", m->role);
    return meant == NULL ? st : sheaf_try_this(st, "%s", meant);
}

static bool has_some(const json_t *value)
{
    return value != NULL && !json_is_null(value) &&
           (!json_is_array(value) || json_array_size(value) > 0) &&
           (!json_is_string(value) || json_string_length(value) > 0);
}

static const char *const calls[] = { "tool_calls", "function_call" };

bool sheaf__chat_calls(const sheaf__message *m)
{
    return has_some(json_object_get(m->json, calls[0])) ||
           has_some(json_object_get(m->json, calls[1]));
}

bool sheaf__chat_knows_role(const sheaf__chat_template *t, const char *role)
{
    return names(t, role);
}

/* Refuses fields beside the content that the program does not read and so would lose. */
static sheaf_status *check_fields(const sheaf__chat_template *t, const sheaf__message *m, int64_t i)
{
    const bool thinks = sheaf__chat_reads_thoughts(t);
    for (int k = 0; k < 2 + THOUGHTS; k++) {
        const char *field = k < 2 ? calls[k] : thoughts[k - 2];
        if (!has_some(json_object_get(m->json, field)) ||
            (k < 2 ? names(t, field) : thinks || reads(t, field)))
            continue;
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "message %" PRId64 ": '%s'", i + 1, field);
        sheaf_expected(st, "%s",
                       k < 2 ? "no calls of tools"
                             : "thoughts in the content, between <think> and </think>");
        return sheaf_found(st, "some, which the chat template %s does not write", t->name);
    }
    return NULL;
}

/* ---- arguments of calls ---- */

/* Appends [function, its arguments], if these are a text. */
static void add_call(json_t *to, json_t *function)
{
    json_t *text = json_object_get(function, "arguments");
    if (json_is_string(text))
        json_array_append_new(to, json_pack("[O, O]", function, text));
}

/* The object that a text says; of anything else the text itself. */
static json_t *opened(json_t *text)
{
    const char *words = json_string_length(text) > 0 ? json_string_value(text) : "{}";
    json_t *object = json_loads(words, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(object))
        return object;
    json_decref(object);
    return json_incref(text);
}

sheaf_status *sheaf__chat_open_arguments(json_t *messages, const sheaf__chat_template *t,
                                         const sheaf__message *message, int64_t n,
                                         const sheaf__chat_options *options)
{
    static const char probe[] = "{\"sheaf\": \"probe\"}";
    sheaf__jinja_text text = { 0 };
    json_t *found = json_array(), *entry, *call, *pair;
    sheaf_status *st = NULL;
    size_t i, k;
    json_array_foreach(messages, i, entry)
    {
        json_array_foreach(json_object_get(entry, calls[0]), k, call)
            add_call(found, json_object_get(call, "function"));
        add_call(found, json_object_get(entry, calls[1]));
    }
    json_array_foreach(found, i, pair)
        json_object_set_new(json_array_get(pair, 0), "arguments", json_string(probe));
    if (json_array_size(found) > 0)
        st = sheaf__chat_run(&text, t, message, n, options);
    const bool plain = st == NULL && text.size > 0 &&
                       memmem(text.text, text.size, probe, sizeof probe - 1) != NULL;
    json_array_foreach(found, i, pair)
    {
        json_t *was = json_array_get(pair, 1);
        json_object_set_new(json_array_get(pair, 0), "arguments",
                            plain ? json_incref(was) : opened(was));
    }
    sheaf__jinja_text_release(&text);
    json_decref(found);
    return sheaf__only_memory(st);
}

/* The first message with which the program raises, from 1; it raises for the first n. */
static int64_t first_raised(const sheaf__chat_template *t, const sheaf__message *message, int64_t n,
                            const sheaf__chat_options *options)
{
    int64_t good = 0;
    while (n - good > 1) {
        sheaf__jinja_text text;
        const int64_t middle = good + (n - good) / 2;
        sheaf_status *st = sheaf__chat_run(&text, t, message, middle, options);
        if (st == NULL)
            good = middle;
        else
            n = middle;
        sheaf_status_free(st);
        sheaf__jinja_text_release(&text);
    }
    return n;
}

static sheaf_status *missing(const sheaf__chat_template *t, const char *what)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template %s", t->name);
    sheaf_expected(st, "a tokenizer with %s token", what);
    return sheaf_found(st, "none in tokenizer_config.json or special_tokens_map.json");
}

static sheaf_status *raised(sheaf_status *st, const sheaf__chat_template *t,
                            const sheaf__message *message, int64_t n,
                            const sheaf__chat_options *options)
{
    const char *lacks = strstr(sheaf_status_where(st), "'bos_token' is undefined") != NULL ? "a bos"
                        : strstr(sheaf_status_where(st), "'eos_token' is undefined") != NULL
                            ? "an eos"
                            : NULL;
    if (lacks != NULL) {
        sheaf_status_free(st);
        return missing(t, lacks);
    }
    if (sheaf_status_code(st) == SHEAF_E_DATA)
        st = sheaf_in(st, "message %" PRId64, first_raised(t, message, n, options));
    return sheaf_status_code(st) == SHEAF_E_MEMORY
               ? st
               : sheaf_try_this(st, "leave this conversation out; or, if the model was trained on "
                                    "another template, `template NAME`");
}

/* ---- the date ---- */

const char *sheaf__chat_template_date(const sheaf__chat_template *t)
{
    const char *own = t->date != NULL ? t->date : t->own_date;
    return own == NULL && t->with_tools != NULL ? sheaf__chat_template_date(t->with_tools) : own;
}

bool sheaf__chat_template_wants_date(const sheaf__chat_template *t)
{
    return (t->clock && t->date == NULL && t->own_date == NULL) ||
           (t->with_tools != NULL && sheaf__chat_template_wants_date(t->with_tools));
}

sheaf_status *sheaf__chat_template_undated(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template %s", name);
    sheaf_expected(st, "the date that it writes: a result must not depend on the day");
    return sheaf_try_this(sheaf_found(st, "none"), "`date 2024-07-26`, or another day");
}

/* ---- the answers to be learnt ----
 *
 * If the program has {% generation %} blocks, these are the answers, as for transformers'
 * return_assistant_tokens_mask. Otherwise an answer begins where the prompt for it ends, which is
 * found by running the program on the messages before it with the generation prompt. The text
 * between question and answer is usually the same for all, so one run is enough while that holds.
 * An answer ends with the output of its iteration of the program's loop, without trailing
 * blanks. */

typedef struct search {
    sheaf__rendered *out;
    const sheaf__jinja_text *text;
    const sheaf__chat_template *t;
    const sheaf__message *message;
    int64_t n;
    const sheaf__chat_options *options;
    char *lead; /* text between a user's question and its answer, or NULL */
    size_t lead_size;
} search;

/* ---- places in a text ---- */

/* The last piece of a message before those of later ones, as a program may quote it in these; NULL:
 * none. */
static const sheaf__jpiece *last_piece(const sheaf__jinja_text *text, int64_t message)
{
    const sheaf__jpiece *last = NULL;
    for (int64_t i = 0; i < text->pieces; i++)
        if (text->piece[i].message == message)
            last = &text->piece[i];
        else if (text->piece[i].message > message && last != NULL)
            break;
    return last;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* End of the loop's turn that writes up to `end`; the end of the text: none does. */
static size_t turn_end(const sheaf__jinja_text *text, size_t begin, size_t end)
{
    size_t stop = text->size;
    for (int64_t i = text->cuts - 1; i >= 0 && text->cut[i] >= end; i--)
        if (text->cut[i] > begin)
            stop = text->cut[i];
    return stop;
}

size_t sheaf__chat_answer_end(const sheaf__jinja_text *text, size_t begin, size_t end, size_t limit)
{
    size_t stop = turn_end(text, begin, end);
    stop = stop < limit ? stop : limit;
    while (stop > end && is_blank(text->text[stop - 1]))
        stop--;
    return stop;
}

/* ---- where an answer begins ---- */

static sheaf_status *changes(const search *s, int64_t i, const char *how)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, i + 1);
    sheaf_expected(st, "an answer that follows the prompt for it in the text (chat template %s)",
                   s->t->name);
    sheaf_found(st, "%s", how);
    return sheaf_try_this(st, "learn the last answer alone (`loss-on last`), a record for each "
                              "answer, or a template that writes all turns in one way, as "
                              "`template qwen3-thoughts`");
}

static bool continues(const search *s, size_t at, const char *with, size_t size)
{
    return s->text->size - at >= size && memcmp(s->text->text + at, with, size) == 0;
}

static sheaf_status *keep_lead(search *s, const char *lead, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy == NULL)
        return sheaf__no_memory("chat template");
    memcpy(copy, lead, size);
    free(s->lead);
    s->lead = copy;
    s->lead_size = size;
    return NULL;
}

/* Of an answer that begins the conversation: behind the header that the generation prompt writes.
 */
static sheaf_status *begin_first(size_t *begin, const search *s)
{
    const sheaf__message question = { "user", "?", 1, NULL, false };
    sheaf__chat_options how = *s->options;
    sheaf__jinja_text with = { 0 }, without = { 0 };
    how.generation_prompt = true;
    sheaf_status *st = sheaf__chat_run(&with, s->t, &question, 1, &how);
    how.generation_prompt = false;
    TRY(st, sheaf__chat_run(&without, s->t, &question, 1, &how));
    const size_t header = with.size > without.size ? with.size - without.size : 0;
    const size_t at = s->text->pieces > 0 ? s->text->piece[0].begin : 0;
    if (st == NULL && s->text->pieces > 0 && s->text->piece[0].message == 0 && at >= header &&
        (header == 0 || memcmp(s->text->text + at - header, with.text + without.size, header) == 0))
        *begin = at;
    else if (st == NULL)
        st = changes(s, 0, "one that begins the conversation, not behind such a prompt");
    sheaf__jinja_text_release(&with);
    sheaf__jinja_text_release(&without);
    return st;
}

/* By the prompt for it. */
static sheaf_status *begin_by_prompt(size_t *begin, search *s, int64_t i)
{
    sheaf__chat_options how = *s->options;
    sheaf__jinja_text prompt = { 0 };
    how.generation_prompt = true;
    /* only the last answer stands behind empty thoughts */
    if (how.thinking != SHEAF__THINKING_UNSET && (i + 1 < s->n || has_thoughts(&s->message[i])))
        how.thinking = SHEAF__THINKING_ON;
    sheaf_status *st = sheaf__chat_run(&prompt, s->t, s->message, i, &how);
    const sheaf__jpiece *in_prompt = last_piece(&prompt, i - 1),
                        *in_text = last_piece(s->text, i - 1);
    const char *lead = in_prompt != NULL && in_text != NULL ? prompt.text + in_prompt->end : NULL;
    const size_t size = lead != NULL ? prompt.size - in_prompt->end : 0;
    if (st == NULL && continues(s, 0, prompt.text, prompt.size))
        *begin = prompt.size;
    else if (st == NULL && !s->t->unsteady && s->options->tools == NULL && lead != NULL &&
             continues(s, in_text->end, lead, size))
        *begin =
            in_text->end + size; /* a template may move the system message to the last question */
    else if (st == NULL)
        st = changes(s, i, "the text before it changes with it");
    if (lead != NULL && is_role(&s->message[i - 1], "user"))
        TRY(st, keep_lead(s, lead, size));
    sheaf__jinja_text_release(&prompt);
    return st;
}

static sheaf_status *find_begin(size_t *begin, search *s, int64_t i)
{
    if (i == 0)
        return begin_first(begin, s);
    const sheaf__jpiece *question = last_piece(s->text, i - 1);
    const bool plain = !s->t->unsteady && s->options->tools == NULL && question != NULL &&
                       is_role(&s->message[i - 1], "user") &&
                       (s->options->thinking == SHEAF__THINKING_UNSET || i + 1 < s->n);
    if (plain && s->lead != NULL && continues(s, question->end, s->lead, s->lead_size)) {
        *begin = question->end + s->lead_size;
        return NULL;
    }
    return begin_by_prompt(begin, s, i);
}

/* ---- its content ---- */

const char *sheaf__chat_template_stop(const sheaf__chat_template *t, const char *eos)
{
    return t->end != NULL && strcmp(t->end, SHEAF__EOS) == 0 ? eos : t->end;
}

/* Bytes that are no blanks, which programs trim. */
static size_t letters(const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += !is_blank(text[i]);
    return n;
}

/* Letters of a message in a part of a text, whose first may begin before it. */
static size_t letters_in(const sheaf__jinja_text *text, int64_t message, size_t begin, size_t end)
{
    size_t n = 0;
    for (int64_t i = 0; i < text->pieces; i++)
        if (text->piece[i].message == message && text->piece[i].end > begin &&
            text->piece[i].end <= end)
            n += letters(text->text + text->piece[i].begin,
                         text->piece[i].end - text->piece[i].begin);
    return n;
}

/* Of what the strings in a value say. */
static size_t letters_of(const json_t *json)
{
    const char *key;
    json_t *value;
    size_t n = letters(json_string_value(json), json_string_length(json)), i;
    json_array_foreach((json_t *)json, i, value) n += letters_of(value);
    json_object_foreach((json_t *)json, key, value)
    {
        if (!sheaf__is_listed("role from type", key, strlen(key)))
            n += letters_of(value);
    }
    return n;
}

/* End of an answer whose turn goes on with later messages: its end without them, if both texts
 * agree up to there. */
static size_t end_in_turn(const search *s, const sheaf__jinja_text *alone, int64_t i, size_t begin)
{
    const sheaf__jpiece *last = last_piece(alone, i);
    size_t end = alone->size;
    while (end > 0 && is_blank(alone->text[end - 1]))
        end--;
    if (end >= begin && continues(s, 0, alone->text, end))
        return end;
    return last == NULL ? begin : last->end;
}

/* Compares with the text that ends with the answer: thoughts may be cut where others follow. */
static sheaf_status *check_whole(size_t *end, const search *s, int64_t i, size_t begin, bool shared)
{
    const sheaf__message *m = &s->message[i];
    const size_t whole = m->json != NULL ? letters_of(m->json) : letters(m->content, m->size);
    if (i + 1 == s->n || (!shared && letters_in(s->text, i, begin, *end) >= whole))
        return NULL;
    sheaf__jinja_text alone = { 0 };
    sheaf_status *st = sheaf__chat_run(&alone, s->t, s->message, i + 1, s->options);
    if (st == NULL && shared)
        *end = end_in_turn(s, &alone, i, begin);
    if (st == NULL && (letters_in(&alone, i, 0, alone.size) > letters_in(s->text, i, begin, *end) ||
                       (shared && (*end > alone.size || !continues(s, 0, alone.text, *end)))))
        st = changes(s, i, "a part of it is cut as other messages follow");
    sheaf__jinja_text_release(&alone);
    return st;
}

/* Behind the mark of the end that follows `end`, if it does. */
static size_t behind_mark(const search *s, size_t end, size_t limit)
{
    const char *mark = sheaf__chat_template_stop(s->t, s->options->eos);
    size_t at = end;
    while (at < limit && is_blank(s->text->text[at]))
        at++;
    return mark != NULL && continues(s, at, mark, strlen(mark)) ? at + strlen(mark) : end;
}

static sheaf_status *add_answer(search *s, int64_t i)
{
    size_t begin = 0;
    sheaf_status *st = find_begin(&begin, s, i);
    if (st != NULL)
        return st;
    const size_t size = s->text->size;
    size_t end = begin, limit = size, turn = turn_end(s->text, begin, begin);
    bool found = false;
    for (int64_t k = 0; k < s->text->pieces; k++) {
        const sheaf__jpiece *p = &s->text->piece[k];
        if (p->end < begin)
            continue;
        if (p->message == i && (found ? p->end <= turn : limit == size)) { /* later ones quote it */
            found = true;
            turn = turn_end(s->text, begin, p->end);
            end = p->end > begin ? p->end : begin;
        } else if (p->message > i && p->begin < limit) {
            limit = p->begin;
        }
    }
    const bool in_loop = s->text->cuts > 0 && s->text->cut[s->text->cuts - 1] >= end,
               shared = in_loop && limit < turn;
    if (!in_loop)
        end = behind_mark(s, end, limit);
    else if (!shared)
        end = sheaf__chat_answer_end(s->text, begin, end, limit);
    if ((st = check_whole(&end, s, i, begin, shared)) == NULL)
        s->out->span[s->out->spans++] = (sheaf_span){ begin, end, i, SHEAF_SPAN_ANSWER };
    return st;
}

/* ---- {% generation %} ---- */

/* The message of a mark, as marks may divide one: the answer inside the mark, or the last before
 * it; if that is empty the next answer; else the last message. */
static int64_t mark_of(const search *s, const sheaf__jpiece *mark)
{
    int64_t last = -1;
    for (int64_t p = 0; p < s->text->pieces && s->text->piece[p].begin <= mark->end; p++) {
        const sheaf__jpiece *piece = &s->text->piece[p];
        last = piece->message;
        if (piece->begin >= mark->begin && piece->end <= mark->end &&
            is_role(&s->message[last], "assistant"))
            return last;
    }
    for (int64_t i = last < 0 ? 0 : last; i < s->n; i++)
        if (is_role(&s->message[i], "assistant"))
            return i;
    return last < 0 ? s->n - 1 : last;
}

static void take_marks(search *s)
{
    for (int64_t k = 0; k < s->text->marks; k++) {
        const sheaf__jpiece *mark = &s->text->mark[k];
        const int64_t i = mark_of(s, mark);
        if (!s->message[i].unlearnt)
            s->out->span[s->out->spans++] =
                (sheaf_span){ mark->begin, mark->end, i, SHEAF_SPAN_ANSWER };
    }
}

/* Orders answers before the contents that they enclose. */
static int by_place(const void *x, const void *y)
{
    const sheaf_span *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->kind != b->kind ? (a->kind == SHEAF_SPAN_ANSWER ? -1 : 1)
                              : (a->end > b->end) - (a->end < b->end);
}

/* Appends answers to the contents; there is room. */
static sheaf_status *add_answers(sheaf__rendered *out, const sheaf__jinja_text *text,
                                 const sheaf__chat_template *t, const sheaf__message *message,
                                 int64_t n, const sheaf__chat_options *options)
{
    sheaf__jinja_text bare = { 0 }; /* the generation prompt is no part of the last turn */
    sheaf__chat_options how = *options;
    search s = { out, text, t, message, n, &how, NULL, 0 };
    const bool marked = sheaf__jinja_has_marks(t->program);
    how.generation_prompt = false;
    sheaf_status *st =
        options->generation_prompt && !marked ? sheaf__chat_run(&bare, t, message, n, &how) : NULL;
    if (bare.text != NULL && continues(&s, 0, bare.text, bare.size))
        s.text = &bare;
    if (st == NULL && marked)
        take_marks(&s);
    for (int64_t i = 0; i < n && st == NULL && !marked; i++)
        if (is_role(&message[i], "assistant") && !message[i].unlearnt) {
            st = add_answer(&s, i);
            if (options->lenient) /* an answer that changes is counted */
                out->unlearnt += st != NULL && sheaf_status_code(st) == SHEAF_E_DATA;
            if (options->lenient)
                st = sheaf__unless_raised(st);
        }
    qsort(out->span, (size_t)out->spans, sizeof *out->span, by_place);
    free(s.lead);
    sheaf__jinja_text_release(&bare);
    return st;
}

/* ---- a conversation ---- */

/* Sets the spans of contents, with room for answers, and counts messages that are not written. */
static sheaf_status *take_contents(sheaf__rendered *out, const sheaf__jinja_text *text,
                                   const sheaf__message *message, int64_t n)
{
    out->span = malloc((size_t)(text->pieces + text->marks + n) * sizeof *out->span);
    if (out->span == NULL)
        return sheaf__no_memory("chat template");
    for (int64_t i = 0; i < text->pieces; i++) {
        const sheaf__jpiece *p = &text->piece[i];
        out->span[out->spans++] = (sheaf_span){ p->begin, p->end, p->message, SHEAF_SPAN_CONTENT };
    }
    for (int64_t i = 0; i < n; i++) {
        const char *at = message[i].content;
        size_t size = at == NULL ? 0 : message[i].size;
        if (size > 0)
            sheaf__utf8_strip(&at, &size);
        out->left_out += size > 0 && last_piece(text, i) == NULL;
    }
    return NULL;
}

sheaf_status *sheaf__chat_render(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const sheaf__message *message, int64_t n,
                                 const sheaf__chat_options *options)
{
    sheaf__jinja_text text = { 0 };
    *out = (sheaf__rendered){ 0 };
    t = for_tools(t, options);
    if (t->only_with_tools && options->tools == NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'tools'"),
                                       "some: the tokenizer stores the template tool_use and none "
                                       "called default"),
                        "none"),
            "`template NAME`");
    sheaf_status *st =
        n > 0 ? NULL : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"), "at least one message");
    for (int64_t i = 0; i < n && st == NULL; i++)
        if ((st = check_role(t, &message[i], i)) == NULL)
            st = check_fields(t, &message[i], i);
    if (st == NULL && options->tools != NULL && strstr(t->source, "tools") == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'tools'"), "no tools"),
                         "some, which the chat template %s does not write", t->name);
    if (st == NULL && sheaf__chat_template_wants_date(t))
        st = sheaf__chat_template_undated(t->name);
    if (st == NULL && (st = sheaf__chat_run(&text, t, message, n, options)) != NULL)
        st = raised(st, t, message, n, options);
    if (st == NULL && text.lacks_eos)
        st = missing(t, "an eos");
    TRY(st, take_contents(out, &text, message, n));
    if (options->answers)
        TRY(st, add_answers(out, &text, t, message, n, options));
    out->text = text.text;
    out->size = text.size;
    text.text = NULL;
    sheaf__jinja_text_release(&text);
    if (st != NULL)
        sheaf__rendered_release(out);
    return st;
}

bool sheaf__chat_is_open(const sheaf__chat_template *t, const sheaf__rendered *r, int64_t k)
{
    const int64_t message = r->span[k].message;
    size_t end = r->span[k].begin;
    for (int64_t i = k + 1; i < r->spans && r->span[i].message == message; i++)
        end = r->span[i].end;
    return end >= r->span[k].end && (t->end == NULL || !sheaf__jinja_has_marks(t->program));
}

void sheaf__rendered_release(sheaf__rendered *r)
{
    free(r->text);
    free(r->span);
    *r = (sheaf__rendered){ 0 };
}
