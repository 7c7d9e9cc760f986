/* chat.c - see chat.h: one conversation through one row of styles.c. */
#include "inputs/chat/held.h"
#include "inputs/chat/style.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/array.h"
#include "base/text.h"

/* ---- writing ---- */

typedef struct writing {
    sheaf_text text;
    sheaf__span *span;
    int64_t spans, capacity;
    bool failed; /* out of memory for spans */
    bool needs_bos, needs_eos, needs_date;
    bool quiet; /* MODES: without thoughts */
    const char *date;
    const sheaf__style *style;
    const sheaf__message *message;
    int64_t n, left_out, question; /* the last one's index */
    const sheaf__chat_options *options;
} writing;

static bool has(const writing *w, unsigned flag)
{
    return (w->style->flags & flag) != 0;
}

/* What stands for a mark; NULL: there is none, which is noted where that matters. */
static const char *meaning(writing *w, char mark)
{
    const char *text = mark == *SHEAF__BOS    ? w->options->bos
                       : mark == *SHEAF__EOS  ? w->options->eos
                       : mark == *SHEAF__DATE ? w->date
                       : w->quiet             ? "/no_think"
                                              : "/think";
    if (text != NULL)
        return text;
    if (mark == *SHEAF__EOS)
        w->needs_eos = true;
    else if (mark == *SHEAF__DATE)
        w->needs_date = true;
    else if (has(w, SHEAF__NEEDS_BOS))
        w->needs_bos = true;
    return NULL;
}

/* Text of the template: what its marks mean in place of them. */
static void put(writing *w, const char *marks)
{
    for (const char *p = marks; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, SHEAF__BOS SHEAF__EOS SHEAF__DATE SHEAF__MODE);
        sheaf__text_bytes(&w->text, p, n);
        p += n;
        if (*p == '\0')
            break;
        const char *text = meaning(w, *p++);
        if (text != NULL)
            sheaf__text_bytes(&w->text, text, strlen(text));
    }
}

/* Room for a span that begins here; its index. */
static int64_t open_span(writing *w, int64_t message, sheaf__span_kind kind)
{
    if (w->failed || !SHEAF_GROW(&w->span, &w->capacity, w->spans + 1)) {
        w->failed = true;
        return -1;
    }
    w->span[w->spans] = (sheaf__span){ w->text.size, w->text.size, message, kind };
    return w->spans++;
}
static void close_span(writing *w, int64_t index)
{
    if (index >= 0)
        w->span[index].end = w->text.size;
}

static void put_content(writing *w, int64_t message, const char *content, size_t size, bool trim)
{
    if (trim)
        sheaf__utf8_strip(&content, &size);
    const int64_t span = open_span(w, message, SHEAF__CONTENT);
    sheaf__text_bytes(&w->text, content, size);
    close_span(w, span);
}

static void put_message(writing *w, int64_t message, const char *open, const char *close, bool trim)
{
    put(w, open);
    put_content(w, message, w->message[message].content, w->message[message].size, trim);
    put(w, close);
}

/* ---- turns ---- */

/* Takes the blanks at both ends away from what was written since `begin`: the spans there shrink.
 */
static void strip_since(writing *w, size_t begin, int64_t first_span)
{
    if (w->text.failed || w->text.at == NULL)
        return;
    const char *at = w->text.at + begin;
    size_t size = w->text.size - begin;
    sheaf__utf8_strip(&at, &size);
    const size_t skipped = (size_t)(at - w->text.at) - begin;
    memmove(w->text.at + begin, at, size);
    w->text.size = begin + size;
    w->text.at[w->text.size] = '\0';
    for (int64_t i = first_span; i < w->spans; i++) {
        size_t *const end[2] = { &w->span[i].begin, &w->span[i].end };
        for (int k = 0; k < 2; k++) {
            *end[k] = *end[k] - begin > skipped ? *end[k] - skipped : begin;
            *end[k] = *end[k] < w->text.size ? *end[k] : w->text.size;
        }
    }
}

static void put_own_system(writing *w)
{
    const char *system = w->quiet ? w->style->quiet_system : w->style->system;
    put(w, w->style->system_open);
    sheaf__text_bytes(&w->text, system, strlen(system));
    put(w, w->style->system_close);
}

/* The user's turn; `system` is the index of the system message that stands in it, or -1: then the
 * template's own may, in the first. */
static void put_user(writing *w, int64_t i, int64_t system)
{
    const bool own =
        i == 0 && w->style->place == SHEAF__SYSTEM_FIRST_USER && w->style->system != NULL;
    const sheaf__style *s = w->style;
    put(w, s->user_open);
    const size_t begin = w->text.size;
    const int64_t span = w->spans;
    if (system >= 0)
        put_message(w, system, s->system_open, s->system_close, has(w, SHEAF__TRIM_SYSTEM));
    else if (own)
        put_own_system(w);
    put_content(w, i, w->message[i].content, w->message[i].size, has(w, SHEAF__TRIM_USER));
    if (has(w, SHEAF__TRIM_TOGETHER))
        strip_since(w, begin, span);
    put(w, s->user_close);
}

static bool begins(const sheaf__message *m, const char *words)
{
    const size_t n = strlen(words);
    return m->size >= n && memcmp(m->content, words, n) == 0;
}
static bool ends(const sheaf__message *m, const char *words)
{
    const size_t n = strlen(words);
    return m->size >= n && memcmp(m->content + m->size - n, words, n) == 0;
}

/* Qwen3: thoughts of answers before the last question are left out. Its index; without a question
 * that of the last message. */
static int64_t last_question(const writing *w)
{
    for (int64_t i = w->n - 1; i >= 0; i--)
        if (strcmp(w->message[i].role, "user") == 0 &&
            !(begins(&w->message[i], "<tool_response>") &&
              ends(&w->message[i], "</tool_response>")))
            return i;
    return w->n - 1;
}

static void lines_off(sheaf__text_piece *p, bool left, bool right)
{
    for (; left && p->size > 0 && *p->at == '\n'; p->at++)
        p->size--;
    while (right && p->size > 0 && p->at[p->size - 1] == '\n')
        p->size--;
}

/* Divides an answer into thoughts and the rest, as Qwen3's program splits and strips it. */
static void divide_thoughts(sheaf__text_piece *thoughts, sheaf__text_piece *rest)
{
    static const char open[] = "<think>", close[] = "</think>";
    *thoughts = (sheaf__text_piece){ rest->at, 0 };
    const char *end = memmem(rest->at, rest->size, close, sizeof close - 1);
    if (end == NULL)
        return;
    thoughts->size = (size_t)(end - rest->at);
    for (const char *next = end; next != NULL;) {
        const char *after = next + sizeof close - 1;
        rest->size -= (size_t)(after - rest->at);
        rest->at = after;
        next = memmem(after, rest->size, close, sizeof close - 1);
    }
    lines_off(thoughts, false, true);
    for (const char *begin;
         (begin = memmem(thoughts->at, thoughts->size, open, sizeof open - 1)) != NULL;) {
        const char *after = begin + sizeof open - 1;
        thoughts->size -= (size_t)(after - thoughts->at);
        thoughts->at = after;
    }
    lines_off(thoughts, true, true);
    lines_off(rest, true, false);
}

void sheaf__chat_divide(sheaf__text_piece *thoughts, sheaf__text_piece *rest,
                        const sheaf__chat_template *t)
{
    bool more;
    const size_t lead = sheaf__chat_no_thoughts(&more, t, rest->at, rest->size);
    *thoughts = (sheaf__text_piece){ rest->at, 0 };
    rest->at += lead;
    rest->size -= lead;
    if ((t->style.flags & SHEAF__THINK) != 0)
        divide_thoughts(thoughts, rest);
}

size_t sheaf__chat_no_thoughts(bool *more, const sheaf__chat_template *t, const char *text,
                               size_t size)
{
    static const char *const words[] = { "<think>", "</think>" };
    const bool thinks = (t->style.flags & (SHEAF__THINK | SHEAF__THINK_EACH | SHEAF__MODES)) != 0;
    size_t at = 0;
    *more = false;
    for (int i = 0; i < 2; i++) {
        while (at < size && strchr(" \t\n\v\f\r", text[at]) != NULL && text[at] != '\0')
            at++;
        const size_t n = strlen(words[i]), left = size - at < n ? size - at : n;
        if (!thinks || memcmp(text + at, words[i], left) != 0)
            return 0;
        if (left < n) {
            *more = true;
            return 0;
        }
        at += n;
    }
    return at;
}

static void put_thinking(writing *w, int64_t i)
{
    sheaf__text_piece thoughts, rest = { w->message[i].content, w->message[i].size };
    divide_thoughts(&thoughts, &rest);
    if (i > w->question && (i + 1 == w->n || thoughts.size > 0)) {
        lines_off(&rest, true, false);
        put(w, "<think>\n");
        put_content(w, i, thoughts.at, thoughts.size, false);
        put(w, "\n</think>\n\n");
    }
    put_content(w, i, rest.at, rest.size, false);
}

/* ---- SmolLM3 ---- */

/* Takes every `word` out of the text, as Python's replace(word, ""); is there one? */
static bool cut_out(char *text, size_t *size, const char *word)
{
    const size_t n = strlen(word);
    char *to = text, *from = text, *const end = text + *size;
    for (char *at; (at = memmem(from, (size_t)(end - from), word, n)) != NULL; from = at + n) {
        memmove(to, from, (size_t)(at - from));
        to += at - from;
    }
    const bool any = from != text;
    memmove(to, from, (size_t)(end - from));
    *size = (size_t)(to - text) + (size_t)(end - from);
    return any;
}

static size_t right_stripped(const char *text, size_t size)
{
    const char *at = text;
    sheaf__utf8_strip(&at, &size);
    return size == 0 ? 0 : (size_t)(at - text) + size;
}

/* The head: the system message says the mode, and what is left of it stands below the facts, or
 * instead of them. */
static void put_modes(writing *w, bool has_system)
{
    static const char begin[] = "<|im_start|>system\n", end[] = "<|im_end|>\n";
    static const char override[] = "/system_override";
    size_t size = has_system ? w->message[0].size : 0;
    const bool alone =
        has_system && memmem(w->message[0].content, size, override, sizeof override - 1) != NULL;
    char *text = malloc(size + 1);
    if (text == NULL) {
        w->failed = true;
        return;
    }
    if (size > 0)
        memcpy(text, w->message[0].content, size);
    w->quiet = cut_out(text, &size, "/no_think");
    cut_out(text, &size, "/think");
    size = right_stripped(text, size);
    if (alone) {
        cut_out(text, &size, override);
        size = right_stripped(text, size);
    }
    if (alone || size > 0) {
        put(w, alone ? begin : w->style->system_open);
        put_content(w, 0, text, size, false);
        put(w, alone ? end : w->style->system_close);
    } else if (w->style->system != NULL) {
        put_own_system(w);
    }
    free(text);
}

/* ---- answers ---- */

static void put_without_first_lines(writing *w, int64_t i)
{
    sheaf__text_piece rest = { w->message[i].content, w->message[i].size };
    lines_off(&rest, true, false);
    put_content(w, i, rest.at, rest.size, false);
}

static bool mentions(const sheaf__message *m, const char *word)
{
    return memmem(m->content, m->size, word, strlen(word)) != NULL;
}

static void put_answer(writing *w, int64_t i)
{
    const sheaf__style *s = w->style;
    put(w, s->answer_open);
    if (w->quiet)
        put(w, s->quiet_prompt);
    const int64_t span = open_span(w, i, SHEAF__ANSWER);
    put(w, s->answer_lead);
    if (has(w, SHEAF__THINK_EACH) && !mentions(&w->message[i], "<think>") &&
        !mentions(&w->message[i], "</think>"))
        put(w, "<think>\n\n</think>\n\n");
    if (has(w, SHEAF__THINK))
        put_thinking(w, i);
    else if (has(w, SHEAF__MODES))
        put_without_first_lines(w, i);
    else
        put_content(w, i, w->message[i].content, w->message[i].size, has(w, SHEAF__TRIM_ANSWER));
    put(w, i + 1 == w->n && s->last_end != NULL ? s->last_end : s->answer_end);
    close_span(w, span);
    put(w, i + 1 == w->n && s->last_close != NULL ? s->last_close : s->answer_close);
}

/* ---- roles ---- */

static bool is_role(const sheaf__message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

static sheaf_status *refuse(const writing *w, int64_t i, sheaf_code code, const char *expected)
{
    sheaf_status *st = sheaf_fail(code, "message %" PRId64, i + 1);
    sheaf_expected(st, "%s (chat template %s)", expected, w->style->name);
    return sheaf_found(st, "role '%s'", w->message[i].role);
}

static bool is_of_tools(const char *role)
{
    static const char *const roles[] = { "tool",          "function",   "tool_results", "ipython",
                                         "tool_response", "tool_calls", "function_call" };
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (strcmp(role, roles[k]) == 0)
            return true;
    return false;
}

static sheaf_status *check_role(const writing *w, int64_t i)
{
    const sheaf__message *m = &w->message[i];
    if (is_role(m, "system") || is_role(m, "user") || is_role(m, "assistant"))
        return NULL;
    if (is_of_tools(m->role))
        return sheaf_try_this(
            refuse(w, i, SHEAF_E_UNSUPPORTED, "system, user or assistant: no messages of tools"),
            "conversations without calls of tools");
    return refuse(w, i, SHEAF_E_DATA, "role system, user or assistant");
}

/* The order in which the published template wants them, `from` on: user, assistant, user, ... */
static sheaf_status *check_order(const writing *w, int64_t from)
{
    for (int64_t i = from; has(w, SHEAF__ALTERNATE) && i < w->n; i++)
        if (is_role(&w->message[i], "user") != ((i - from) % 2 == 0))
            return refuse(w, i, SHEAF_E_DATA,
                          from > 0 ? "user and assistant in turn after the system message"
                                   : "user and assistant in turn, the user first");
    return NULL;
}

/* ---- a conversation ---- */

static sheaf_status *put_later_system(writing *w, int64_t i)
{
    const sheaf__style *s = w->style;
    if (s->later == SHEAF__LATER_REFUSED)
        return refuse(w, i, SHEAF_E_DATA, "no system message but the first");
    if (s->later == SHEAF__LATER_LEFT_OUT ||
        (has(w, SHEAF__SKIP_EMPTY_SYSTEM) && w->message[i].size == 0))
        w->left_out++;
    else
        put_message(w, i, s->later_open, s->later_close, has(w, SHEAF__TRIM_LATER));
    return NULL;
}

static sheaf_status *put_head(writing *w, bool has_system)
{
    const sheaf__style *s = w->style;
    if (has_system && s->place == SHEAF__SYSTEM_REFUSED)
        return sheaf_try_this(refuse(w, 0, SHEAF_E_DATA, "no system message"),
                              "put its text into the first message of the user");
    put(w, s->head);
    if (s->place != SHEAF__SYSTEM_HEAD)
        return NULL;
    if (has(w, SHEAF__MODES)) {
        put_modes(w, has_system);
    } else if (has_system && ((has(w, SHEAF__SKIP_EMPTY_SYSTEM) && w->message[0].size == 0) ||
                              (has(w, SHEAF__SYSTEM_NEEDS_TURN) && w->n == 1))) {
        w->left_out++;
    } else if (has_system) {
        put_message(w, 0, s->system_open, s->system_close, has(w, SHEAF__TRIM_SYSTEM));
    } else if (s->system != NULL) {
        put_own_system(w);
    }
    return NULL;
}

static sheaf_status *put_turns(writing *w)
{
    const bool has_system = is_role(&w->message[0], "system");
    const int64_t from = has_system ? 1 : 0;
    const bool inside =
        w->style->place == SHEAF__SYSTEM_FIRST_USER || w->style->place == SHEAF__SYSTEM_LAST_USER;
    const int64_t bearer = !has_system || !inside                        ? -1
                           : w->style->place == SHEAF__SYSTEM_FIRST_USER ? from
                                                                         : w->n - 1;
    sheaf_status *st = check_order(w, from);
    TRY(st, put_head(w, has_system));
    w->question = has(w, SHEAF__THINK) ? last_question(w) : -1;
    bool written = false;
    for (int64_t i = from; i < w->n && st == NULL; i++) {
        const bool user = is_role(&w->message[i], "user");
        written |= user && i == bearer;
        if (user)
            put_user(w, i, i == bearer ? 0 : -1);
        else if (is_role(&w->message[i], "assistant"))
            put_answer(w, i);
        else
            st = put_later_system(w, i);
    }
    w->left_out += has_system && inside && !written;
    return st;
}

static sheaf_status *missing(const writing *w)
{
    if (w->needs_date)
        return sheaf__chat_template_undated(w->style->name);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template %s", w->style->name);
    sheaf_expected(st, "a tokenizer with %s token", w->needs_bos ? "a bos" : "an eos");
    return sheaf_found(st, "none in tokenizer_config.json or special_tokens_map.json");
}

sheaf_status *sheaf__chat_render(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const sheaf__message *message, int64_t n,
                                 const sheaf__chat_options *options)
{
    writing w = { .style = &t->style,
                  .date = sheaf__chat_template_date(t),
                  .message = message,
                  .n = n,
                  .options = options };
    *out = (sheaf__rendered){ 0 };
    sheaf_status *st =
        n > 0 ? NULL : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"), "at least one message");
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = check_role(&w, i);
    TRY(st, put_turns(&w));
    if (st == NULL) {
        const bool prompt = options->generation_prompt || has(&w, SHEAF__ALWAYS_PROMPT);
        put(&w, prompt ? t->style.prompt : t->style.tail);
        put(&w, prompt && w.quiet ? t->style.quiet_prompt : NULL);
    }
    if (st == NULL && (w.needs_bos || w.needs_eos || w.needs_date))
        st = missing(&w);
    out->size = w.text.size;
    if (st == NULL && w.failed)
        st = sheaf_fail(SHEAF_E_MEMORY, "chat template");
    TRY(st, sheaf__text_take(&out->text, &w.text));
    if (st != NULL) {
        sheaf__text_release(&w.text);
        free(w.span);
        *out = (sheaf__rendered){ 0 };
        return st;
    }
    out->span = w.span;
    out->spans = w.spans;
    out->left_out = w.left_out;
    st = t->program == NULL ? NULL : sheaf__chat_hold(out, t, message, n, options);
    if (st != NULL)
        sheaf__rendered_release(out);
    return st;
}

void sheaf__rendered_release(sheaf__rendered *r)
{
    free(r->text);
    free(r->span);
    *r = (sheaf__rendered){ 0 };
}
