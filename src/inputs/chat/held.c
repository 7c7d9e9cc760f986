/* held.c - see held.h. */
#include "inputs/chat/held.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inputs/chat/date.h"
#include "inputs/chat/jinja.h"
#include "inputs/chat/style.h"

json_t *sheaf__chat_variables(const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options, const char *date_string)
{
    static const char *const others[] = { "unk_token", "sep_token", "pad_token", "cls_token",
                                          "mask_token" };
    json_t *messages = json_array(), *out = json_object();
    bool failed = messages == NULL;
    for (int64_t i = 0; i < n && !failed; i++) {
        json_t *one = json_object();
        failed = json_object_set_new(one, "role", json_string(message[i].role)) != 0;
        failed |=
            json_object_set_new(one, "content",
                                json_stringn_nocheck(message[i].content, message[i].size)) != 0;
        failed |= json_array_append_new(messages, one) != 0;
    }
    failed |= json_object_set_new(out, "messages", messages) != 0;
    failed |= json_object_set_new(out, "tools", json_null()) != 0;
    failed |= json_object_set_new(out, "documents", json_null()) != 0;
    failed |= json_object_set_new(out, "add_generation_prompt",
                                  json_boolean(options->generation_prompt)) != 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        failed |= json_object_set_new(out, others[i], json_string(others[i])) != 0;
    if (options->bos != NULL)
        failed |= json_object_set_new(out, "bos_token", json_string(options->bos)) != 0;
    if (options->eos != NULL)
        failed |= json_object_set_new(out, "eos_token", json_string(options->eos)) != 0;
    if (date_string != NULL)
        failed |= json_object_set_new(out, "date_string", json_string(date_string)) != 0;
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Some characters of a text from a byte on, within quotes: malloc'd, NULL without memory. */
static char *quoted(const char *text, size_t size, size_t at)
{
    enum { MOST = 40 };
    size_t n = size - at < MOST ? size - at : MOST;
    if (n == 0)
        return strdup("nothing more");
    while (n > 0 && at + n < size && continues(text[at + n]))
        n--;
    json_t *piece = json_stringn_nocheck(text + at, n);
    char *out = piece == NULL ? NULL : json_dumps(piece, JSON_ENCODE_ANY);
    json_decref(piece);
    return out;
}

/* The message, from 1, whose content begins last before the byte, or which it stands in front of.
 */
static int64_t near_message(const sheaf__rendered *r, size_t at)
{
    int64_t near = 0;
    for (int64_t i = 0; i < r->spans; i++)
        if (r->span[i].kind == SHEAF__CONTENT && r->span[i].begin <= at)
            near = r->span[i].message;
    return near + 1;
}

/* The name of a variation is held to the program as well. */
static sheaf_status *advise(sheaf_status *st, const sheaf__chat_template *t)
{
    static const char leave[] = "leave this conversation out, or if the model was trained on";
    if (t->style.name == t->style.stored)
        return sheaf_try_this(st, "%s what one of these writes, --template NAME: %s", leave,
                              sheaf__chat_template_names());
    return sheaf_try_this(st, "%s what %s writes, --template %s", leave, t->style.name,
                          t->style.name);
}

static sheaf_status *differs(const sheaf__rendered *r, const sheaf__chat_template *t,
                             const char *text, size_t size)
{
    const size_t shorter = size < r->size ? size : r->size;
    size_t at = 0;
    while (at < shorter && text[at] == r->text[at])
        at++;
    while (at > 0 &&
           ((at < size && continues(text[at])) || (at < r->size && continues(r->text[at]))))
        at--;
    char *wanted = quoted(text, size, at), *found = quoted(r->text, r->size, at);
    sheaf_status *st = NULL;
    if (wanted == NULL || found == NULL) {
        st = sheaf_fail(SHEAF_E_MEMORY, "chat template");
    } else {
        st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64 ", byte %zu of the text",
                        near_message(r, at), at);
        sheaf_expected(st, "%s, which %s writes", wanted, t->file);
        sheaf_found(st, "%s, which the chat template %s writes that it was taken for", found,
                    t->style.name);
    }
    free(wanted);
    free(found);
    return st;
}

sheaf_status *sheaf__chat_hold(const sheaf__rendered *r, const sheaf__chat_template *t,
                               const sheaf__message *message, int64_t n,
                               const sheaf__chat_options *options)
{
    /* A program that asks for a day where its row writes none: any but the one that it names. */
    static const sheaf__date some_day = { 2003, 2, 4 };
    const bool clock = t->day.year != 0 && t->style.date == NULL;
    const char *date_string = (t->style.flags & SHEAF__DATE_TEXT) != 0 && !clock ? t->date : NULL;
    char *text = NULL;
    size_t size = 0;
    json_t *variables = sheaf__chat_variables(message, n, options, date_string);
    sheaf_status *st = variables == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "chat template")
                           : sheaf_in(sheaf__jinja_render(&text, &size, t->program, variables,
                                                          t->day.year != 0 ? &t->day : &some_day),
                                      "%s", t->file);
    json_decref(variables);
    if (st == NULL && (size != r->size || memcmp(text, r->text, size) != 0))
        st = differs(r, t, text, size);
    free(text);
    return st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY ? st : advise(st, t);
}
