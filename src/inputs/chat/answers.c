/* answers.c - which bytes of a conversation's text a model learns to write.
 *
 * Where the program has {% generation %} blocks they say it, as for transformers'
 * return_assistant_tokens_mask. Else an answer begins where a prompt for it ends: the program is
 * run on the messages before it, with the generation prompt. What it writes there behind the
 * question stands in front of every answer, so one run is enough as long as that is so. An answer
 * ends behind what the same turn of the program's loop writes after the content, without blanks at
 * its end. */
#include "inputs/chat/named.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

typedef struct search {
    sheaf__rendered *out;
    const sheaf__jinja_text *text;
    const sheaf__chat_template *t;
    const sheaf__message *message;
    int64_t n;
    const sheaf__chat_options *options;
    char *lead; /* what stands between a question and its answer, or NULL */
    size_t lead_size;
    sheaf__span *span; /* [spans] of answers */
    int64_t spans;
} search;

/* ---- places in a text ---- */

/* The last piece of a message; NULL: none. */
static const sheaf__jpiece *last_piece(const sheaf__jinja_text *text, int64_t message)
{
    for (int64_t i = text->pieces - 1; i >= 0; i--)
        if (text->piece[i].message == message)
            return &text->piece[i];
    return NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t sheaf__chat_answer_end(const sheaf__jinja_text *text, size_t begin, size_t end, size_t limit)
{
    size_t stop = limit;
    for (int64_t i = text->cuts - 1; i >= 0 && text->cut[i] >= end; i--)
        if (text->cut[i] > begin && text->cut[i] < stop)
            stop = text->cut[i];
    while (stop > end && is_blank(text->text[stop - 1]))
        stop--;
    return stop;
}

/* ---- where an answer begins ---- */

static sheaf_status *changes(const search *s, int64_t i, const char *how)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, i + 1);
    sheaf_expected(
        st, "an answer that stands in the text as a model is asked for it (chat template %s)",
        s->t->name);
    sheaf_found(st, "%s", how);
    return sheaf_try_this(st, "learn the last answer alone (--loss-on last), a record for each "
                              "answer, or a template that writes all turns alike, as "
                              "--template qwen3-thoughts");
}

static bool continues(const search *s, size_t at, const char *with, size_t size)
{
    return s->text->size - at >= size && memcmp(s->text->text + at, with, size) == 0;
}

/* By what a prompt for it is. */
static sheaf_status *begin_by_prompt(size_t *begin, search *s, int64_t i)
{
    sheaf__chat_options asked = *s->options;
    sheaf__jinja_text prompt = { 0 };
    asked.generation_prompt = true;
    sheaf_status *st = sheaf__chat_run(&prompt, s->t, s->message, i, &asked);
    const sheaf__jpiece *in_prompt = last_piece(&prompt, i - 1),
                        *in_text = last_piece(s->text, i - 1);
    if (st == NULL && in_prompt != NULL && in_text != NULL) {
        s->lead_size = prompt.size - in_prompt->end;
        free(s->lead);
        s->lead = malloc(s->lead_size + 1);
        if (s->lead == NULL)
            st = sheaf__no_memory("chat template");
        else
            memcpy(s->lead, prompt.text + in_prompt->end, s->lead_size);
    }
    if (st == NULL && continues(s, 0, prompt.text, prompt.size)) {
        *begin = prompt.size;
    } else if (st == NULL && !s->t->unsteady && s->options->tools == NULL && s->lead != NULL &&
               in_text != NULL && continues(s, in_text->end, s->lead, s->lead_size)) {
        *begin = in_text->end + s->lead_size; /* a system message moves to the last question */
    } else if (st == NULL) {
        st = changes(s, i, "what is before it is written otherwise once it is there");
    }
    sheaf__jinja_text_release(&prompt);
    return st;
}

static sheaf_status *find_begin(size_t *begin, search *s, int64_t i)
{
    const sheaf__jpiece *question = last_piece(s->text, i - 1);
    const bool plain = !s->t->unsteady && s->options->tools == NULL && question != NULL &&
                       sheaf__chat_is_role(&s->message[i - 1], "user");
    if (plain && s->lead != NULL && continues(s, question->end, s->lead, s->lead_size)) {
        *begin = question->end + s->lead_size;
        return NULL;
    }
    return begin_by_prompt(begin, s, i);
}

/* ---- what it says ---- */

static size_t said(const sheaf__jinja_text *text, int64_t message)
{
    size_t n = 0;
    for (int64_t i = 0; i < text->pieces; i++)
        if (text->piece[i].message == message)
            n += text->piece[i].end - text->piece[i].begin;
    return n;
}

/* Thoughts of an answer that are cut where another message follows. */
static sheaf_status *check_whole(const search *s, int64_t i)
{
    const size_t here = said(s->text, i);
    if (i + 1 == s->n || here >= s->message[i].size)
        return NULL;
    sheaf__jinja_text alone = { 0 };
    sheaf_status *st = sheaf__chat_run(&alone, s->t, s->message, i + 1, s->options);
    if (st == NULL && said(&alone, i) > here)
        st = changes(s, i, "a part of it is cut as other messages follow");
    sheaf__jinja_text_release(&alone);
    return st;
}

static sheaf_status *add_answer(search *s, int64_t i)
{
    size_t begin = 0;
    sheaf_status *st = find_begin(&begin, s, i);
    TRY(st, check_whole(s, i));
    if (st != NULL)
        return st;
    size_t end = begin, limit = s->text->size;
    for (int64_t k = 0; k < s->text->pieces; k++) {
        const sheaf__jpiece *p = &s->text->piece[k];
        if (p->message == i && p->begin >= begin)
            end = p->end;
        else if (p->message > i && p->begin >= begin && p->begin < limit)
            limit = p->begin;
    }
    if (s->text->cuts > 0 && s->text->cut[s->text->cuts - 1] >= end)
        end = sheaf__chat_answer_end(s->text, begin, end, limit);
    else if (s->t->end != NULL) {
        const char *mark = strcmp(s->t->end, SHEAF__EOS) == 0 ? s->options->eos : s->t->end;
        size_t at = end;
        while (at < limit && is_blank(s->text->text[at]))
            at++;
        end = mark != NULL && continues(s, at, mark, strlen(mark)) ? at + strlen(mark) : end;
    }
    s->span[s->spans++] = (sheaf__span){ begin, end, i, SHEAF__ANSWER };
    return NULL;
}

/* Counts an answer that changes. */
static sheaf_status *unless_unlearnt(search *s, sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    s->out->unlearnt++;
    sheaf_status_free(st);
    return NULL;
}

/* ---- {% generation %} ---- */

/* A mark is of the message that speaks in it; of an answer that says nothing the next one. */
static void take_marks(search *s)
{
    int64_t next = 0;
    for (int64_t k = 0; k < s->text->marks; k++) {
        const sheaf__jpiece *mark = &s->text->mark[k];
        int64_t i = next;
        while (i < s->n && !sheaf__chat_is_role(&s->message[i], "assistant"))
            i++;
        for (int64_t p = 0; p < s->text->pieces; p++)
            if (s->text->piece[p].begin >= mark->begin && s->text->piece[p].end <= mark->end) {
                i = s->text->piece[p].message;
                break;
            }
        next = i + 1;
        if (i < s->n && !s->message[i].unlearnt)
            s->span[s->spans++] = (sheaf__span){ mark->begin, mark->end, i, SHEAF__ANSWER };
    }
}

/* Answers in front of the contents that they enclose. */
static int by_place(const void *x, const void *y)
{
    const sheaf__span *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->kind != b->kind ? (a->kind == SHEAF__ANSWER ? -1 : 1)
                              : (a->end > b->end) - (a->end < b->end);
}

sheaf_status *sheaf__chat_answers(sheaf__rendered *out, const sheaf__jinja_text *text,
                                  const sheaf__chat_template *t, const sheaf__message *message,
                                  int64_t n, const sheaf__chat_options *options)
{
    sheaf__jinja_text bare = { 0 }; /* a prompt behind it is no part of the last turn */
    sheaf__chat_options how = *options;
    search s = { out, text, t, message, n, &how, NULL, 0, NULL, 0 };
    const int64_t most = text->marks + n;
    how.generation_prompt = false;
    sheaf_status *st = options->generation_prompt && !sheaf__jinja_has_marks(t->program)
                           ? sheaf__chat_run(&bare, t, message, n, &how)
                           : NULL;
    if (bare.text != NULL)
        s.text = &bare;
    s.span = malloc((size_t)most * sizeof *s.span);
    if (st == NULL && (s.span == NULL || !SHEAF_GROW(&out->span, NULL, out->spans + most + 1)))
        st = sheaf__no_memory("chat template");
    if (st == NULL && sheaf__jinja_has_marks(t->program))
        take_marks(&s);
    /* an answer that comes first answers nothing */
    for (int64_t i = 1; i < n && st == NULL && !sheaf__jinja_has_marks(t->program); i++)
        if (sheaf__chat_is_role(&message[i], "assistant") && !message[i].unlearnt)
            st = options->lenient ? unless_unlearnt(&s, add_answer(&s, i)) : add_answer(&s, i);
    if (st == NULL) {
        memcpy(out->span + out->spans, s.span, (size_t)s.spans * sizeof *s.span);
        out->spans += s.spans;
        qsort(out->span, (size_t)out->spans, sizeof *out->span, by_place);
    }
    free(s.lead);
    free(s.span);
    sheaf__jinja_text_release(&bare);
    return st;
}
