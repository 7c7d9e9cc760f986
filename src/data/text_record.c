/* text_record.c - see text_record.h. */
#include "data/text_record.h"

#include "base/base.h"
#include "data/complaints.h"
#include "data/json_items.h"
#include "data/record_pictures.h"
#include "data/text_inner.h"

/* ---- instruction, input and output ---- */

static sheaf_status *take_history(sheaf__text_record *r, const json_t *record)
{
    const json_t *history = json_object_get(record, "history");
    if (history == NULL || json_is_null(history))
        return NULL;
    if (!json_is_array(history) || json_array_size(history) > SHEAF__MOST_MESSAGES)
        return sheaf__bad_field("history", "a list of pairs of question and answer", "%s",
                                json_is_array(history) ? "too long a list"
                                                       : sheaf__text_kind(history));
    sheaf_status *st = sheaf__text_room(r, 2 * json_array_size(history));
    for (size_t i = 0; i < json_array_size(history) && st == NULL; i++) {
        char name[SHEAF__TEXT_NAME];
        sheaf__text_piece part[2];
        const json_t *pair = json_array_get(history, i);
        snprintf(name, sizeof name, "history[%zu]", i);
        if (json_array_size(pair) != 2)
            return sheaf__bad_field(name, "a pair of question and answer", "%s",
                                    json_is_array(pair) ? "a list of another length"
                                                        : sheaf__text_kind(pair));
        for (size_t k = 0; k < 2 && st == NULL; k++)
            st = sheaf__text_string(&part[k], json_array_get(pair, k), name);
        if (st == NULL && sheaf__text_blank(part[1].at, part[1].size))
            st = sheaf__bad_field(name, "an answer", "none");
        if (st == NULL) {
            sheaf__text_put(r, "user", part[0], false);
            sheaf__text_put(r, "assistant", part[1], true);
        }
    }
    return st;
}

static sheaf_status *take_question(sheaf__text_piece *out, sheaf__text_record *r,
                                   const json_t *record)
{
    sheaf__text_piece input;
    const json_t *given = json_object_get(record, "input");
    sheaf_status *st =
        sheaf__text_string(out, json_object_get(record, "instruction"), "instruction");
    if (st != NULL || given == NULL || json_is_null(given))
        return st;
    st = sheaf__text_string(&input, given, "input");
    if (st != NULL || input.size == 0)
        return st;
    if (out->size == 0) {
        *out = input;
        return NULL;
    }
    sheaf_text whole = { 0 };
    sheaf__text_bytes(&whole, out->at, out->size);
    sheaf__text_bytes(&whole, "\n", 1);
    sheaf__text_bytes(&whole, input.at, input.size);
    st = sheaf__text_keep(out, r, &whole);
    sheaf__text_release(&whole);
    return st;
}

/* Is an optional answer missing? */
static bool lacks(const sheaf__text_record *r, const json_t *answer)
{
    return r->answer_optional && (answer == NULL || json_is_null(answer));
}

sheaf_status *sheaf__text_put_pair(sheaf__text_record *r, sheaf__text_piece question,
                                   sheaf__text_piece answer, const char *name)
{
    const bool blank = sheaf__text_blank(answer.at, answer.size);
    if (blank && !r->answer_optional)
        return sheaf__bad_field(name, "an answer",
                                answer.size == 0 ? "an empty string" : "nothing but blanks");
    sheaf_status *st = sheaf__text_room(r, 2);
    if (st != NULL)
        return st;
    sheaf__text_put(r, "user", question, false);
    if (!blank)
        sheaf__text_put(r, "assistant", answer, true);
    return NULL;
}

static sheaf_status *take_instruction(sheaf__text_record *r, const json_t *record)
{
    sheaf__text_piece question, answer = { "", 0 };
    sheaf_status *st = sheaf__text_beside(r, record);
    TRY(st, take_history(r, record));
    TRY(st, take_question(&question, r, record));
    if (!lacks(r, json_object_get(record, "output")))
        TRY(st, sheaf__text_string(&answer, json_object_get(record, "output"), "output"));
    return TRY(st, sheaf__text_put_pair(r, question, answer, "output"));
}

/* ---- prompt and completion, text ---- */

/* A dialogue in two lists: only answers of the completion are trained. */
static sheaf_status *take_message_pair(sheaf__text_record *r, const json_t *record)
{
    sheaf_status *st =
        sheaf__text_list(r, json_object_get(record, "prompt"), &sheaf__text_openai, "prompt");
    const int64_t read = r->messages;
    for (int64_t i = 0; i < read; i++)
        r->message[i].trained = false;
    if (st == NULL && !lacks(r, json_object_get(record, "completion")))
        st = sheaf__text_list(r, json_object_get(record, "completion"), &sheaf__text_openai,
                              "completion");
    return st == NULL ? sheaf__text_end(r, "completion", &sheaf__text_openai) : st;
}

static sheaf_status *string_field(sheaf__text_piece *out, const json_t *record, const char *name,
                                  bool may_be_empty)
{
    const json_t *value = json_object_get(record, name);
    if (value == NULL)
        return sheaf__bad_field(name, "a record has \"prompt\" and \"completion\", or \"text\"",
                                "no such field");
    sheaf_status *st = sheaf__text_string(out, value, name);
    if (st == NULL && !may_be_empty && out->size == 0)
        st = sheaf__bad_field(name, "at least one byte to train", "an empty string");
    return st;
}

static sheaf_status *take_pair(sheaf__text_record *r, const json_t *record)
{
    sheaf__text_piece prompt, completion = { 0 };
    const bool named = json_object_get(record, "completion") != NULL,
               other = json_object_get(record, "answer") != NULL;
    const char *name = other && !named ? "answer" : "completion";
    const json_t *answer = json_object_get(record, name);
    if (json_is_array(json_object_get(record, "prompt")) &&
        (json_is_array(answer) || lacks(r, answer)))
        return take_message_pair(r, record);
    if (named && other && r->pairs)
        return sheaf__bad_field("answer", "either \"completion\" or \"answer\"", "both");
    sheaf_status *st = string_field(&prompt, record, "prompt", true);
    if (!lacks(r, answer))
        TRY(st, string_field(&completion, record, name, r->answer_optional || r->pairs));
    if (st == NULL && r->pairs)
        return sheaf__text_put_pair(r, prompt, completion, name);
    if (st == NULL) {
        r->prompt = prompt.at;
        r->prompt_size = prompt.size;
        r->text = completion.at;
        r->text_size = completion.size;
    }
    return st;
}

static sheaf_status *take_text(sheaf__text_record *r, const json_t *record)
{
    sheaf__text_piece whole;
    if (r->pairs)
        return sheaf__bad_field("text", "a conversation, or a prompt and its completion",
                                "a whole text");
    sheaf_status *st = string_field(&whole, record, "text", false);
    if (st == NULL) {
        r->text = whole.at;
        r->text_size = whole.size;
    }
    return st;
}

/* ---- one record ---- */

/* The fields of each form; the first one identifies it. Earlier forms win: real data sets of
 * messages also have a prompt, and those of instructions a text. */
static const struct {
    const char *name, *fields[6];
} forms[] = {
    [SHEAF__FORM_MESSAGES] = { "messages", { "messages", "system", "tools", "functions" } },
    [SHEAF__FORM_CONVERSATIONS] = { "conversations",
                                    { "conversations", "system", "tools", "functions" } },
    [SHEAF__FORM_INSTRUCTION] = { "instruction",
                                  { "instruction", "input", "output", "system", "history",
                                    "tools" } },
    [SHEAF__FORM_PROMPT] = { "prompt", { "prompt", "completion" } },
    [SHEAF__FORM_TEXT] = { "text", { "text" } },
};

const char *sheaf__text_form_name(sheaf__text_form form)
{
    return form == SHEAF__FORM_NONE ? "no form" : forms[form].name;
}

sheaf_status *sheaf__text_preference(const json_t *record)
{
    const char *name = NULL;
    if (json_object_get(record, "chosen") != NULL && json_object_get(record, "rejected") != NULL)
        name = "rejected";
    else if (json_object_get(record, "completion") != NULL &&
             json_is_false(json_object_get(record, "label")))
        name = "label";
    else if (json_is_false(json_object_get(record, "kto_tag")))
        name = "kto_tag";
    if (name == NULL)
        return NULL;
    sheaf_status *st = sheaf__bad_field(name, "none: every answer is learned",
                                        "an answer to be avoided, as for DPO or KTO");
    return sheaf_try_this(st, "`objective dpo` learns from pairs; or keep only the good answers, a "
                              "pair's \"chosen\" as \"completion\" or as the last message");
}

static sheaf_status *choose_form(sheaf__text_form *out, const json_t *record, bool answer_optional)
{
    static const char expected[] =
        "an object, {\"prompt\": ..., \"completion\": ...} or {\"text\": ...}, or with \"messages\", "
        "\"conversations\" or \"instruction\"";
    if (!json_is_object(record))
        return sheaf__bad_field(NULL, expected, "%s", sheaf__text_kind(record));
    const bool completion = json_object_get(record, "completion") != NULL,
               pair = completion || json_object_get(record, "prompt") != NULL;
    *out = SHEAF__FORM_NONE;
    for (int f = SHEAF__FORM_TEXT; f > SHEAF__FORM_NONE; f--)
        if (json_object_get(record, forms[f].name) != NULL)
            *out = (sheaf__text_form)f;
    sheaf_status *st = answer_optional ? NULL : sheaf__text_preference(record);
    if (st != NULL)
        return st;
    if (*out == SHEAF__FORM_MESSAGES && json_object_get(record, "conversations") != NULL)
        return sheaf__bad_field("conversations", "either \"messages\" or \"conversations\"",
                                "both in one record");
    if (pair && (*out == SHEAF__FORM_NONE || *out == SHEAF__FORM_TEXT))
        *out = SHEAF__FORM_PROMPT;
    if (*out == SHEAF__FORM_PROMPT && json_object_get(record, "text") != NULL && !answer_optional)
        return sheaf__bad_field("text", "either \"text\", or \"prompt\" and \"completion\"",
                                "both in one record");
    if (*out == SHEAF__FORM_NONE)
        return sheaf__bad_field("prompt",
                                "a record has \"prompt\" and \"completion\", or \"text\", or "
                                "\"messages\", \"conversations\" or \"instruction\"",
                                "no such field");
    return NULL;
}

const char *sheaf__text_other_field(json_t *record, const char *const *known, int n)
{
    const char *key;
    json_t *value;
    json_object_foreach(record, key, value)
    {
        bool other = strcmp(key, "id") != 0;
        for (int i = 0; i < n && known[i] != NULL; i++)
            other = other && strcmp(key, known[i]) != 0;
        if (other)
            return key;
    }
    return "";
}

static void find_ignored(sheaf__text_record *r, json_t *record)
{
    enum { FIELDS = sizeof forms->fields / sizeof *forms->fields };
    const char *known[FIELDS + 9];
    int n = 0;
    while (n < FIELDS && forms[r->form].fields[n] != NULL) {
        known[n] = forms[r->form].fields[n];
        n++;
    }
    if (r->form == SHEAF__FORM_PROMPT && json_object_get(record, "completion") == NULL)
        known[n++] = "answer";
    if (r->form < SHEAF__FORM_PROMPT && !r->pictures && (!r->answer_optional || r->any_parts))
        known[n++] = sheaf__text_kwargs;
    known[n++] = "image";
    known[n++] = "images";
    if (r->pictures) {
        known[n++] = "video";
        known[n++] = "videos";
        known[n++] = "times";
        known[n++] = "target_fps";
        known[n++] = "temporal_ids";
        known[n++] = "fps";
    }
    r->lost = r->pictures ? NULL : sheaf__record_pictures_field(record);
    if (r->lost == NULL && sheaf__record_pictures_spelled(record))
        r->lost = SHEAF__PICTURE_SPELLED;
    snprintf(r->ignored, sizeof r->ignored, "%s", sheaf__text_other_field(record, known, n));
}

static sheaf_status *take(sheaf__text_record *out)
{
    switch (out->form) {
    case SHEAF__FORM_MESSAGES:
        return sheaf__text_conversation(out, out->json, "messages", &sheaf__text_openai);
    case SHEAF__FORM_CONVERSATIONS:
        return sheaf__text_conversation(out, out->json, "conversations", &sheaf__text_sharegpt);
    case SHEAF__FORM_INSTRUCTION: return take_instruction(out, out->json);
    case SHEAF__FORM_PROMPT: return take_pair(out, out->json);
    default: return take_text(out, out->json);
    }
}

sheaf_status *sheaf__text_record_take(sheaf__text_record *out)
{
    sheaf_status *st = choose_form(&out->form, out->json, out->answer_optional);
    if (st != NULL)
        return st;
    find_ignored(out, out->json);
    st = take(out);
    if (st == NULL && out->pictures != SHEAF__PARTS_NONE && out->lost == NULL &&
        sheaf__text_said_picture(out) >= 0)
        out->lost = SHEAF__PICTURE_SAID;
    return st;
}

sheaf_status *sheaf__text_record_json(json_t **out, const char *json, size_t size,
                                      const sheaf__fields *fields)
{
    for (size_t i = 0; i < size;) {
        const size_t n = sheaf__utf8_length(json + i, size - i);
        if (n == 0)
            return sheaf__bad_field(NULL, "UTF-8", "byte 0x%02X at column %zu",
                                    (unsigned char)json[i], i + 1);
        i += n;
    }
    return sheaf__record_parse(out, json, size, fields);
}

sheaf_status *sheaf__text_nothing_learned(const sheaf__text_record *r, bool only_last)
{
    char name[SHEAF__TEXT_NAME];
    const char *form = sheaf__text_form_name(r->form);
    if (!only_last || r->messages == 0 || r->message[r->messages - 1].trained)
        return sheaf__bad_field(form, "a token to learn behind the first one", "none");
    const bool system = json_object_get(r->json, "system") != NULL &&
                        strcmp(r->message[0].role, "system") == 0; /* it stands beside the list */
    snprintf(name, sizeof name, "%s[%" PRId64 "].weight", form, r->messages - 1 - system);
    return sheaf__bad_field(name, "1: with `loss-on last` nothing else is learned", "0");
}

sheaf_status *sheaf__text_record_prompt(sheaf__text_record *out, json_t *json,
                                        sheaf__picture_parts pictures)
{
    *out = (sheaf__text_record){ .answer_optional = true,
                                 .pictures = pictures,
                                 .json = json_incref(json) };
    return sheaf__text_record_take(out);
}

sheaf_status *sheaf__text_record_list(sheaf__text_record *out, json_t *json,
                                      sheaf__picture_parts pictures, bool any_parts)
{
    *out = (sheaf__text_record){ .answer_optional = true,
                                 .pictures = pictures,
                                 .any_order = true,
                                 .any_parts = any_parts,
                                 .json = json_incref(json) };
    if (json_object_get(json, "messages") == NULL && json_object_get(json, "conversations") == NULL)
        return sheaf__bad_field("messages", "a list of messages, or \"conversations\"",
                                "no such field");
    return sheaf__text_record_take(out);
}

void sheaf__text_chat_messages(sheaf__message *out, const sheaf__text_record *r)
{
    for (int64_t i = 0; i < r->messages; i++)
        out[i] = (sheaf__message){ .role = r->message[i].role,
                                   .content = r->message[i].content,
                                   .size = r->message[i].size,
                                   .json = r->message[i].json };
}

void sheaf__text_record_release(sheaf__text_record *r)
{
    for (int64_t i = 0; i < r->nowned; i++)
        free(r->owned[i]);
    free(r->owned);
    free(r->message);
    json_decref(r->json);
    *r = (sheaf__text_record){ 0 };
}
