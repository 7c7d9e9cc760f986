/* asked.c - see asked.h. */
#include "infer/asked.h"

#include <stdlib.h>
#include <string.h>

#include "infer/wording.h"
#include "base/status.h"

static bool has(const json_t *record, const char *name)
{
    return json_object_get(record, name) != NULL;
}

static bool is_list(const json_t *record)
{
    return has(record, "messages") || has(record, "conversations");
}

bool sheaf__asks(const json_t *record)
{
    return is_list(record) || has(record, "instruction") || has(record, "prompt");
}

sheaf_status *sheaf__text_whole(const char *text, size_t size, const char *what)
{
    return text == NULL || strlen(text) == size
               ? NULL
               : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", what), "text without NUL (\\u0000)");
}

/* Room for n messages and a system message, which is put where there is none. */
static sheaf_status *begin(sheaf__asked *out, int64_t n, const char *system, const char *first)
{
    out->said = malloc(((size_t)n + 1) * sizeof *out->said);
    if (out->said == NULL)
        return sheaf__no_memory("prompts");
    if (system != NULL && first != NULL && strcmp(first, SHEAF__SYSTEM) != 0)
        out->said[out->n++] = (sheaf__message){ SHEAF__SYSTEM, system, strlen(system) };
    return NULL;
}

/* An answer at the end is the one to compare with, but an empty one, which training refuses, is
 * none. Prompts and answers are kept as C strings. */
static sheaf_status *take_expected(sheaf__asked *out, const char *field)
{
    const sheaf__message *last = &out->said[out->n - 1];
    sheaf__text_piece answer = { last->content, last->size };
    if (out->n < 2 || strcmp(last->role, SHEAF__ASSISTANT) != 0)
        return NULL;
    sheaf__utf8_strip(&answer.at, &answer.size);
    out->expected = answer.size == 0 ? NULL : last->content;
    out->n--;
    return sheaf__text_whole(last->content, last->size, field);
}

/* Of forms that training reads the first counts, as there; tokens beside them would be a guess. */
static sheaf_status *check_one(const json_t *record)
{
    if (!has(record, "tokens") || !sheaf__asks(record))
        return NULL;
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field 'tokens'"),
                                   "a prompt as text or as tokens, one of the two"),
                    "both in one record"),
        "take one of them out: which is to be answered is not said");
}

static sheaf_status *take_pair(sheaf__asked *out, const char *system)
{
    const sheaf__text_record *r = &out->record;
    sheaf_status *st = begin(out, 1, system, SHEAF__USER);
    if (st != NULL)
        return st;
    out->said[out->n++] = (sheaf__message){ SHEAF__USER, r->prompt, r->prompt_size };
    out->expected = r->text_size == 0 ? NULL : r->text;
    out->text = true;
    st = sheaf__text_whole(r->prompt, r->prompt_size, "field 'prompt'");
    return st == NULL ? sheaf__text_whole(r->text, r->text_size, "field 'completion'") : st;
}

static sheaf_status *take_record(sheaf__asked *out, json_t *record, const char *system,
                                 bool pictures)
{
    const sheaf__text_record *r = &out->record;
    sheaf_status *st = is_list(record)
                           ? sheaf__text_record_list(&out->record, record, pictures, false)
                           : sheaf__text_record_ask(&out->record, record, pictures);
    if (st == NULL && r->tools != NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'tools'"),
                            "no tools: prompts are asked without them");
    if (st == NULL && r->messages == 0)
        return take_pair(out, system);
    TRY(st, begin(out, r->messages, system, r->message[0].role));
    if (st != NULL)
        return st;
    sheaf__text_said(out->said + out->n, r);
    out->n += r->messages;
    return take_expected(out, sheaf__text_form_name(r->form));
}

sheaf_status *sheaf__asked_read(sheaf__asked *out, json_t *record, const char *system,
                                bool pictures)
{
    *out = (sheaf__asked){ 0 };
    sheaf_status *st = check_one(record);
    return st != NULL ? st : take_record(out, record, system, pictures);
}

void sheaf__asked_release(sheaf__asked *asked)
{
    free(asked->said);
    sheaf__text_record_release(&asked->record);
    *asked = (sheaf__asked){ 0 };
}
