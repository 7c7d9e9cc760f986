/* codec_open.c - chooses a model's tokenizer and template: see codec.h. */
#include "base/base.h"
#include "base/file.h"
#include "infer/codec.h"
#include "schema/family.h"

/* Token ids need no tokenizer, so a faulty one in the folder is a warning; a given one must work.
 */
static bool goes_without(const sheaf__codec_options *o, const sheaf_status *st)
{
    return st != NULL && o->tokenizer == NULL && !o->strict &&
           sheaf_status_code(st) != SHEAF_E_MEMORY;
}

static void warn_unused(const sheaf__codec_options *o, sheaf_status *st)
{
    const char *expected = sheaf_status_expected(st), *found = sheaf_status_found(st),
               *cure = sheaf_status_try(st);
    sheaf_warn(o->events, "the model's tokenizer is not used: %s%s%s%s%s%s%s",
               sheaf_status_where(st), *expected != '\0' ? ": expected " : "", expected,
               *found != '\0' ? ", found " : "", found, *cure != '\0' ? "; try: " : "", cure);
    sheaf_status_free(st);
}

/* The template of an adapter's folder, where it has one, in place of the tokenizer's. */
static sheaf_status *take_chat(sheaf__codec *w, const char *folder)
{
    sheaf__stored_chat own, base = w->stored;
    sheaf_status *st = sheaf__stored_chat_read(&own, folder);
    if (st == NULL && sheaf__stored_chat_has_program(&own)) {
        w->stored = own;
        w->stored.bos = base.bos;
        w->stored.eos = base.eos;
        base.bos = own.bos;
        base.eos = own.eos;
        own = base;
    }
    sheaf__stored_chat_release(&own);
    return st;
}

/* That of a model with prompts of its own (sheaf__choose_tokenizer()), or of a text model. */
static sheaf_status *find_tokenizer(sheaf__codec *w, const sheaf__codec_options *o, bool text)
{
    const char *path = o->tokenizer;
    sheaf_status *st = NULL;
    if (!text)
        st = sheaf__choose_tokenizer(&w->tokenizer, path, o->folder, w->config->vocab);
    else if (path == NULL)
        st = sheaf__tokenizer_folder(&path, o->folder);
    if (st == NULL && text && path != NULL)
        st = sheaf__stored_chat_open(&w->tokenizer, &w->stored, path, w->config->vocab);
    if ((text || !w->images) && goes_without(o, st)) {
        warn_unused(o, st);
        return NULL;
    }
    if (st == NULL && w->tokenizer != NULL && sheaf__is_given(o->chat))
        st = sheaf_in(take_chat(w, o->chat), "the adapter");
    if (st != NULL || w->tokenizer == NULL)
        return st;
    if (w->bos < 0)
        w->bos = sheaf__tokenizer_bos(w->tokenizer);
    if (w->eos < 0)
        w->eos = sheaf__tokenizer_eos(w->tokenizer);
    return NULL;
}

static sheaf_status *take_date(sheaf__codec *w, const sheaf__codec_options *o)
{
    sheaf_status *st = sheaf__chat_template_set_date(w->chat, o->date);
    w->today = o->today && sheaf__chat_template_wants_date(w->chat);
    return st == NULL && w->today ? sheaf__chat_template_set_today(w->chat) : st;
}

sheaf_status *sheaf__codec_set_today(sheaf__codec *w)
{
    if (w->chat == NULL || !sheaf__chat_template_wants_date(w->chat))
        return NULL;
    w->today = true;
    return sheaf__chat_template_set_today(w->chat);
}

void sheaf__codec_note_date(const sheaf__codec *w, bool used, const sheaf_events *events)
{
    if (used && w->chat != NULL && w->today)
        sheaf_note(events, "chat template %s writes a date: today's, %s (`date` changes it)",
                   sheaf__chat_template_name(w->chat), sheaf__chat_template_date(w->chat));
    if (w->dated && (!used || w->chat == NULL))
        sheaf_note(events, "`date` has no effect: no prompt is put in a chat template");
}

/* The mark that ends an answer; a tokenizer that has no token for it spells it out. */
static void find_end(sheaf__codec *w)
{
    const char *end = sheaf__chat_template_stop(w->chat, w->stored.eos);
    w->end = end == NULL || w->tokenizer == NULL ? -1 : sheaf__tokenizer_find(w->tokenizer, end);
    w->end_text = w->end >= 0 || end == NULL || end[0] == '\0' ? NULL : end;
}

/* Encoding by tokenizer and template, once both are open. */
static void set_chat_encoder(sheaf__codec *w)
{
    w->chat_encoder.tokenizer = w->tokenizer;
    w->chat_encoder.chat = w->chat;
    w->chat_encoder.specials = w->specials;
    w->chat_encoder.bos = w->stored.bos;
    w->chat_encoder.eos = w->stored.eos;
    w->chat_encoder.bos_id = (int32_t)w->bos;
    w->chat_encoder.eos_id = (int32_t)w->eos;
    find_end(w);
}

/* For a text model: the named template, else the tokenizer's. */
static sheaf_status *find_chat(sheaf__codec *w, const char *name, bool of_run)
{
    sheaf_status *st = NULL;
    if (name != NULL && of_run)
        st = sheaf__chat_template_of_run(&w->chat, name, &w->stored);
    else if (name != NULL || sheaf__stored_chat_has_program(&w->stored))
        st = sheaf__chat_template_choose(&w->chat, name, &w->stored);
    if (st == NULL && w->chat != NULL)
        set_chat_encoder(w);
    return st;
}

static bool is_old_template(const char *name)
{
    sheaf__template which;
    sheaf_status *st = sheaf__template_find(&which, name, NULL);
    const bool is = st == NULL;
    sheaf_status_free(st);
    return is;
}

/* Plain texts are laid out by a named template, or if they are questions. The tokenizer's own is
 * for conversations, where one that cannot be used is reported. */
static sheaf_status *open_text(sheaf__codec *w, const sheaf__codec_options *o)
{
    const char *name = o->version;
    sheaf_status *st = find_tokenizer(w, o, !w->config->byte_vocab);
    w->templated = name != NULL && o->asks >= 0;
    if (st != NULL)
        return st;
    st = find_chat(w, name, o->of_run);
    if (st == NULL && w->chat != NULL && name == NULL && o->asks > 0) {
        w->templated = w->by_default = true;
        sheaf_note(o->events,
                   "texts are questions, laid out by the template %s, which the model's tokenizer "
                   "stores (raw: they are continued)",
                   sheaf__chat_template_name(w->chat));
    }
    if (st == NULL && w->chat != NULL)
        return take_date(w, o);
    if (st == NULL || name != NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    if (o->asks > 0)
        sheaf_warn(
            o->events,
            "texts are continued, not answered, as the model's chat template cannot be used: "
            "%s: %s (another one: `template NAME`)",
            sheaf_status_where(st), sheaf_status_found(st));
    sheaf_status_free(st);
    return NULL;
}

/* The family's own template if none is named and the tokenizer stores none that works. */
static sheaf_status *own_chat(sheaf__codec *w, const sheaf__codec_options *o)
{
    const sheaf__picture_form *form = &w->chat_encoder.form;
    sheaf_status *st =
        sheaf__chat_template_find(&w->chat, w->config->byte_vocab ? form->byte_chat : form->chat);
    if (st == NULL)
        sheaf_note(o->events, "prompt template %s, the family's own (`template` changes it)",
                   sheaf__chat_template_name(w->chat));
    if (st != NULL)
        return st;
    set_chat_encoder(w);
    return take_date(w, o);
}

/* For a family with pictures in conversations: all prompts are conversations. */
static sheaf_status *open_placed(sheaf__codec *w, const sheaf__codec_options *o)
{
    sheaf_status *st = open_text(w, o);
    sheaf__family_for(w->config)->pictures(&w->chat_encoder.form, w->config);
    if (st != NULL || (w->tokenizer == NULL && !w->config->byte_vocab))
        return st;
    if (w->chat == NULL)
        st = own_chat(w, o);
    if (st != NULL)
        return st;
    w->templated = true;
    w->by_default = false; /* all prompts are conversations */
    st = sheaf__chat_encoder_marks(&w->chat_encoder, w->config);
    if (st != NULL && o->tokenizer == NULL && sheaf_status_code(st) == SHEAF_E_LAYOUT &&
        w->config->byte_vocab) { /* token ids need none */
        sheaf_warn(o->events, "pictures cannot stand in texts: %s: expected %s",
                   sheaf_status_where(st), sheaf_status_expected(st));
        sheaf_status_free(st);
        return NULL;
    }
    w->placed = st == NULL;
    return st;
}

static sheaf_status *open_any(sheaf__codec *out, const sheaf_config *config,
                              const sheaf__codec_options *options)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    *out = (sheaf__codec){ .config = config,
                           .max_length = options->max_length,
                           .bos = config->bos,
                           .eos = config->neos > 0 ? config->eos[0] : -1,
                           .images = sheaf__towers_of(tower, config) > 0,
                           .dated = options->date != NULL && options->date[0] != '\0',
                           .specials = options->specials,
                           .end = -1 };
    const char *name = options->version;
    /* a byte vocabulary works with both kinds of templates; without a tokenizer any may be named */
    const bool placed = sheaf__pictures_of(config) != NULL,
               old = !placed && name != NULL && config->byte_vocab && is_old_template(name);
    if (options->asks < 0 && (placed || out->images || old))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "raw"),
                                          "a model of text, which can continue one"),
                           "%s, whose questions need a template",
                           sheaf_family_name(config->family));
    if (placed)
        return open_placed(out, options);
    if (!out->images && !old)
        return open_text(out, options);
    out->templated = true;
    sheaf_status *st = sheaf__choose_template(&out->version, name, config, options->events);
    return st == NULL ? find_tokenizer(out, options, false) : st;
}

sheaf_status *sheaf__codec_open(sheaf__codec *out, const sheaf_config *config,
                                const sheaf__codec_options *options)
{
    sheaf_status *st = open_any(out, config, options);
    sheaf__codec_set_stops(out, config->eos, config->neos);
    return st;
}

sheaf_status *sheaf__codec_open_chat(sheaf__codec *out, const sheaf__codec *w,
                                     const sheaf_events *events)
{
    *out = *w;
    out->borrowed = true;
    out->by_default = false;
    if (w->templated || w->tokenizer == NULL || w->chat != NULL)
        sheaf__codec_note_date(w, true, events);
    if (w->templated || sheaf__pictures_of(w->config) != NULL)
        return NULL;
    out->templated = true;
    if (w->tokenizer == NULL)
        return sheaf__choose_template(&out->version, NULL, w->config,
                                      w->config->byte_vocab ? events : NULL);
    if (w->chat == NULL) { /* the reason */
        sheaf_status *st = find_chat(out, NULL, false);
        return st != NULL
                   ? st /* lists the names */
                   : sheaf__chat_template_advise(
                         sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a conversation"),
                                                    "a chat template"),
                                     "none: the model's tokenizer stores none"),
                         w->tokenizer);
    }
    sheaf_note(events,
               "prompt template %s, which the model's tokenizer stores (`template` changes it)",
               sheaf__chat_template_name(out->chat));
    return NULL;
}

void sheaf__codec_close(sheaf__codec *w)
{
    if (!w->borrowed) {
        sheaf__tokenizer_close(w->tokenizer);
        sheaf__chat_template_free(w->chat);
        sheaf__stored_chat_release(&w->stored);
    }
    *w = (sheaf__codec){ 0 };
}
