/* text.c - tokenizers, and conversations by their chat template: sheaf/text.h. */
#include "base/base.h"
#include "base/numeric_env.h"
#include "data/complaints.h"
#include "data/json_items.h"
#include "data/preference.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/tokenizer.h"
#include "library/structs.h"

/* ---- tokens ---- */

sheaf_status *sheaf_tokenizer_open(sheaf_tokenizer **out, const char *path)
{
    SHEAF__NUMERIC_ENV;
    *out = NULL;
    return sheaf__tokenizer_open(out, path);
}

void sheaf_tokenizer_close(sheaf_tokenizer *t)
{
    sheaf__tokenizer_close(t);
}

sheaf_status *sheaf_tokenizer_encode(int32_t **ids, sheaf_text_range **where, int64_t *count,
                                     const sheaf_tokenizer *t, const char *text, size_t size,
                                     const sheaf_encode_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_encode_options o;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_encode_options");
    return st != NULL
               ? st
               : sheaf__tokenizer_encode(ids, where, count, t, text, size,
                                         &(sheaf__encode_options){ .add_special = o.add_special,
                                                                   .plain = !o.specials });
}

sheaf_status *sheaf_tokenizer_decode(char **text, size_t *size, const sheaf_tokenizer *t,
                                     const int32_t *ids, int64_t count, bool skip_special)
{
    SHEAF__NUMERIC_ENV;
    return sheaf__tokenizer_decode(text, size, t, ids, count, skip_special);
}

/* ---- conversations ---- */

typedef struct rendering {
    const sheaf_render_options *o;
    sheaf__stored_chat stored;
    sheaf__chat_template *template;
    bool taken;       /* the status of `take` */
    int64_t left_out; /* records with a message that is not in the text */
    int64_t unlearnt; /* records with an answer that cannot be learnt */
} rendering;

static sheaf_status *give(rendering *r, const sheaf__rendered *text, const char *side)
{
    sheaf__numeric_env before = sheaf__callback_env();
    sheaf_status *st = r->o->take(
        r->o->context, &(sheaf_rendered){ text->text, text->size, text->span, text->spans,
                                          sheaf__chat_template_name(r->template),
                                          sheaf__chat_template_date(r->template), side });
    sheaf__numeric_env_restore(&before);
    r->taken = st != NULL;
    return st;
}

/* Prompt and answer without a template. */
static sheaf_status *join(sheaf__rendered *out, const sheaf__text_record *c)
{
    sheaf_text text = { 0 };
    sheaf__text_bytes(&text, c->prompt, c->prompt_size);
    sheaf__text_bytes(&text, c->text, c->text_size);
    out->size = text.size;
    out->span = malloc(sizeof *out->span);
    sheaf_status *st = sheaf__text_take(&out->text, &text);
    if (st != NULL || out->span == NULL)
        return st != NULL ? st : sheaf__no_memory("text of a record");
    *out->span = (sheaf_span){ c->prompt_size, out->size, 0, SHEAF_SPAN_ANSWER };
    out->spans = 1;
    return NULL;
}

static sheaf_status *render_messages(sheaf__rendered *out, const rendering *r,
                                     const sheaf__text_record *c)
{
    sheaf__message *message = malloc((size_t)c->messages * sizeof *message);
    if (message == NULL)
        return sheaf__no_memory("text of a record");
    sheaf__text_chat_messages(message, c);
    for (int64_t i = 0; i < c->messages; i++)
        message[i].unlearnt = !c->message[i].trained;
    sheaf_status *st =
        sheaf__chat_render(out, r->template, message, c->messages,
                           &(sheaf__chat_options){ .answers = true,
                                                   .lenient = true,
                                                   .generation_prompt = r->o->generation_prompt,
                                                   .bos = r->stored.bos,
                                                   .eos = r->stored.eos,
                                                   .tools = c->tools,
                                                   .kwargs = c->kwargs });
    free(message);
    return st;
}

/* c: the record, or a side of it; is released. st: of reading it. */
static sheaf_status *render_one(sheaf__rendered *out, const rendering *r, sheaf__text_record *c,
                                sheaf_status *st)
{
    TRY(st, c->messages > 0 ? render_messages(out, r, c) : join(out, c));
    sheaf__text_record_release(c);
    return st;
}

static bool is_judged(const json_t *record)
{
    return json_is_boolean(json_object_get(record, "label")) ||
           json_is_boolean(json_object_get(record, "kto_tag"));
}

static sheaf_status *render(rendering *r, const char *line, size_t size)
{
    const char *name[] = { "chosen", "rejected" };
    json_t *record = NULL;
    sheaf__text_record c = { 0 };
    sheaf__rendered text[2] = { { 0 } };
    int texts = 1;
    bool desirable = false;
    sheaf_status *st = sheaf__record_parse(&record, line, size, NULL);
    if (st == NULL && is_judged(record)) {
        st = sheaf__preference_read(&c, &(sheaf_data_options){ .judged = true }, &desirable, record,
                                    0);
        st = render_one(&text[0], r, &c, st);
        name[0] = desirable ? "desirable" : "undesirable";
    } else if (st == NULL && sheaf__preference_is_pair(record)) {
        for (texts = 0; texts < 2 && st == NULL; texts++) {
            st = sheaf__preference_read(&c, &(sheaf_data_options){ .pairs = true }, &desirable,
                                        record, texts);
            st = render_one(&text[texts], r, &c, st);
        }
    } else if (st == NULL) {
        st = sheaf__text_record_list(&c, record, false, true);
        st = render_one(&text[0], r, &c, st);
        name[0] = NULL;
    }
    if (st == NULL) {
        r->left_out += text[0].left_out > 0 || text[1].left_out > 0;
        r->unlearnt += text[0].unlearnt > 0 || text[1].unlearnt > 0;
    }
    for (int i = 0; i < texts && st == NULL; i++) /* a pair whole */
        st = give(r, &text[i], name[i]);
    for (int i = 0; i < 2; i++)
        sheaf__rendered_release(&text[i]);
    json_decref(record);
    return st;
}

static sheaf_status *render_all(rendering *r, const char *path)
{
    sheaf__json_items items = { 0 };
    sheaf__complaints complaints = { 0 };
    int64_t records = 0;
    bool more = true;
    sheaf_status *st = sheaf__json_items_open(&items, path);
    while (st == NULL && complaints.fatal == NULL &&
           (st = sheaf__json_items_next(&more, &items)) == NULL && more) {
        records++;
        sheaf_status *bad = render(r, items.text, items.size);
        if (r->taken || (bad != NULL && sheaf_status_code(bad) == SHEAF_E_ARG))
            st = bad; /* for all records: the tokenizer lacks a token that the template writes */
        else
            sheaf__complain(&complaints, sheaf_in(bad, "%s %" PRId64, items.unit, items.place));
    }
    sheaf__json_items_close(&items);
    TRY(st,
        sheaf__complaints_verdict(&complaints, r->o->name != NULL ? r->o->name : path, records));
    sheaf__complaints_release(&complaints);
    return st;
}

/* bos and eos come from files, else from the tokenizer's class, if there is a tokenizer. */
static sheaf_status *complete(sheaf__stored_chat *stored, const char *path)
{
    sheaf__tokenizer *t = NULL;
    if (stored->bos != NULL && stored->eos != NULL)
        return NULL;
    sheaf_status *st =
        sheaf__only_memory(sheaf__tokenizer_open(&t, path)); /* the template may need neither */
    if (t != NULL)
        st = sheaf__stored_chat_complete(stored, t);
    sheaf__tokenizer_close(t);
    return st;
}

static sheaf_status *take_date(const rendering *r)
{
    sheaf_status *st = sheaf__chat_template_set_date(r->template, r->o->date);
    if (st != NULL || !sheaf__chat_template_wants_date(r->template))
        return st;
    st = sheaf__chat_template_set_today(r->template);
    if (st == NULL)
        sheaf_note(r->o->events, "chat template %s writes a date: today's, %s (`date` changes it)",
                   sheaf__chat_template_name(r->template), sheaf__chat_template_date(r->template));
    return st;
}

static void warn(const rendering *r, int64_t records, const char *what, const char *how)
{
    if (records > 0)
        sheaf_warn(r->o->events, "%" PRId64 " record%s with %s that chat template %s %s", records,
                   records == 1 ? "" : "s", what, sheaf__chat_template_name(r->template), how);
}

sheaf_status *sheaf_render(const char *path, const sheaf_render_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_render_options o;
    rendering r = { .o = &o };
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_render_options");
    if (st == NULL && (o.tokenizer == NULL || o.take == NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_render_options"),
                            "a tokenizer and a callback for the records");
    TRY(st, sheaf__stored_chat_read(&r.stored, o.tokenizer));
    TRY(st, complete(&r.stored, o.tokenizer));
    TRY(st, sheaf__chat_template_choose(&r.template, o.chat_template, &r.stored));
    TRY(st, take_date(&r));
    TRY(st, render_all(&r, path));
    warn(&r, r.left_out, "a message", "leaves out");
    warn(&r, r.unlearnt, "an answer",
         "writes otherwise once messages follow: no span has it, and no run learns it");
    sheaf__chat_template_free(r.template);
    sheaf__stored_chat_release(&r.stored);
    return st;
}
