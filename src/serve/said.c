/* said.c - see said.h. */
#include "serve/said.h"

#include "base/base.h"
#include "infer/answer_stream.h"

/* Tokens at the end of a prompt that its mark of thoughts, and a line feed, have at most: bytes. */
enum { MARK_TOKENS = sizeof SHEAF__THINK };

sheaf_status *sheaf__said_prompt(sheaf__said_rules *rules, const sheaf__prompt *p)
{
    const int64_t n = p->n < MARK_TOKENS ? p->n : MARK_TOKENS;
    char *text = NULL;
    sheaf_status *st = sheaf__codec_decode(&text, rules->codec, p->ids + p->n - n, n);
    if (text != NULL) {
        sheaf__text_piece end = { text, strlen(text) };
        sheaf__utf8_strip(&end.at, &end.size);
        text[end.at + end.size - text] = '\0';
        rules->begun = sheaf__ends_with(text, SHEAF__THINK);
    }
    free(text);
    return st;
}

/* An answer, or the beginning of one that is not `over`, as models write it: perhaps thoughts
 * between their marks, of which the prompt may have the first, and the rest. */
static void divide(sheaf__text_piece *thoughts, sheaf__text_piece *rest, bool begun, bool over)
{
    static const char open[] = SHEAF__THINK, close[] = SHEAF__THOUGHT;
    const size_t mark = sizeof open - 1, n = rest->size < mark ? rest->size : mark;
    const bool written = memcmp(rest->at, open, n) == 0 && (n == mark || !over);
    *thoughts = (sheaf__text_piece){ rest->at, 0 };
    if (!written && !begun)
        return;
    if (n < mark && written) { /* perhaps the mark */
        rest->size = 0;
        return;
    }
    *thoughts =
        (sheaf__text_piece){ rest->at + (written ? mark : 0), rest->size - (written ? mark : 0) };
    const char *end = memmem(thoughts->at, thoughts->size, close, sizeof close - 1);
    *rest = (sheaf__text_piece){ thoughts->at + thoughts->size, 0 };
    if (end != NULL) {
        end += sizeof close - 1;
        *rest = (sheaf__text_piece){ end, (size_t)(rest->at - end) };
        thoughts->size = (size_t)(end - thoughts->at) - (sizeof close - 1);
        sheaf__utf8_strip(&rest->at, &rest->size);
    } else if (!over) {
        thoughts->size -= sheaf__text_held(thoughts->at, thoughts->size, close, sizeof close - 1);
    }
    sheaf__utf8_strip(&thoughts->at, &thoughts->size);
}

/* Looks for the special token that begins a call, which the text does not show. */
static void find_mark(sheaf__said *s, const sheaf__said_rules *rules, const sheaf__continuation *o)
{
    if (rules->tools == NULL || rules->form.mark < 0 || s->marked)
        return;
    while (s->unmarked < o->n && o->ids[s->unmarked] != rules->form.mark)
        s->unmarked++;
    s->marked = s->unmarked < o->n;
    s->sure = s->text.size;
}

/* The calls behind that token; with some, the text is what stands before it. */
static sheaf_status *take_marked(sheaf__said *s, const sheaf__said_rules *rules,
                                 const sheaf__continuation *o)
{
    const int64_t from = s->unmarked + 1, n = o->n - (o->ending == SHEAF_ENDS_TOKEN) - from;
    char *behind = NULL, *before = NULL, *answer = NULL;
    size_t content;
    sheaf_status *st = sheaf__codec_decode(&behind, rules->codec, o->ids + from, n);
    if (behind != NULL)
        TRY(st, sheaf__tool_calls(&s->calls, &content, &rules->form, rules->tools, behind));
    if (s->calls != NULL) {
        TRY(st, sheaf__codec_decode(&before, rules->codec, o->ids, s->unmarked));
        TRY(st, sheaf__codec_answer(&answer, rules->codec, true, before));
        s->text.size = 0;
        sheaf__text_add(&s->text, "%s", answer == NULL ? "" : answer);
    }
    free(behind);
    free(before);
    free(answer);
    return st;
}

sheaf_status *sheaf__said_more(sheaf__said *s, const sheaf__said_rules *rules,
                               const sheaf__delta *d, bool over)
{
    sheaf_status *st = NULL;
    size_t size;
    find_mark(s, rules, d->output);
    if (over && rules->whole)
        s->text.size = 0;
    sheaf__text_add(&s->text, "%s",
                    !(over && rules->whole) ? d->piece
                    : d->text == NULL       ? ""
                                            : d->text);
    if (s->marked && over)
        st = take_marked(s, rules, d->output);
    s->content = (sheaf__text_piece){ s->text.size == 0 ? "" : s->text.at,
                                      s->marked && !over ? s->sure : s->text.size };
    s->thoughts.size = 0;
    if (rules->thoughts)
        divide(&s->thoughts, &s->content, rules->begun, over);
    size = s->content.size;
    if (rules->tools != NULL && !over)
        s->content.size = sheaf__tool_sure(&rules->form, s->content.at, size);
    else if (rules->tools != NULL && s->calls == NULL)
        TRY(st, sheaf__tool_calls(&s->calls, &s->content.size, &rules->form, rules->tools,
                                  s->content.at));
    while (rules->one_call && json_array_size(s->calls) > 1)
        json_array_remove(s->calls, 1);
    return st;
}

char *sheaf__said_unsent(sheaf__text_piece text, size_t *sent)
{
    char *rest = text.size > *sent ? strndup(text.at + *sent, text.size - *sent) : NULL;
    *sent = text.size > *sent ? text.size : *sent;
    return rest;
}

void sheaf__said_release(sheaf__said *s)
{
    sheaf__text_release(&s->text);
    json_decref(s->calls);
}
