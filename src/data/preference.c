/* preference.c - see preference.h. */
#include "data/preference.h"

#include <math.h>

#include "base/base.h"
#include "data/complaints.h"
#include "data/text_inner.h"

static const char *const sides[] = { "chosen", "rejected" };

/* A new list of the messages [begin, end) of `list`. */
static json_t *slice(const json_t *list, size_t begin, size_t end)
{
    json_t *out = json_array();
    for (size_t i = begin; i < end; i++)
        json_array_append(out, json_array_get(list, i));
    return out;
}

/* An answer's messages: a list as it is, one message or a text as a list. */
static json_t *messages_of(const json_t *answer)
{
    if (json_is_array(answer))
        return slice(answer, 0, json_array_size(answer));
    return json_is_string(answer)
               ? json_pack("[{s:s, s:O}]", "role", "assistant", "content", answer)
               : json_pack("[O]", answer);
}

/* Leaves out of the loss what a prompt's assistant said. */
static void unlearn(json_t *message)
{
    if (json_is_object(message))
        json_object_set_new(message, "weight", json_integer(0));
}

/* Is it a message of `role`? The reader checks messages without one. */
static bool is_of(const json_t *message, const char *role)
{
    const json_t *given = json_object_get(message, "role");
    const char *name = json_string_value(given != NULL ? given : json_object_get(message, "from"));
    name = name == NULL ? NULL : sheaf__text_role(name);
    return name != NULL && strcmp(name, role) == 0;
}

static bool is_answer(const json_t *message)
{
    return is_of(message, "assistant");
}

/* The record without the fields that are of preferences, or hold its messages. */
static json_t *rest_of(json_t *record)
{
    static const char *const own[] = { "chosen",   "rejected",        "rejected_response",
                                       "prompt",   "conversations",   "rejected_messages",
                                       "messages", "rejected_images", "label",
                                       "margin" };
    json_t *out = json_copy(record);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(out, own[i]);
    return out;
}

/* Gives back prompt and answer. */
static sheaf_status *converse(json_t **out, json_t *record, json_t *prompt, json_t *answer,
                              const char *name)
{
    sheaf_status *st = NULL;
    json_t *list = json_array();
    if (json_array_size(answer) == 0)
        st = sheaf__bad_field(name, "an answer behind the prompt", "none");
    else if (json_array_size(prompt) == 0)
        st = sheaf__bad_field(name, "messages that both sides begin with, the prompt", "none");
    else if (is_answer(json_array_get(prompt, json_array_size(prompt) - 1)))
        st = sheaf__bad_field("prompt", "a user's message at its end, or a tool's",
                              "the assistant's");
    else if (!json_is_object(json_array_get(answer, 0)))
        st = sheaf__bad_field(name, "a message, a list of them, or a text", "%s",
                              sheaf__text_kind(json_array_get(answer, 0)));
    const size_t all = json_array_size(prompt) + json_array_size(answer);
    for (size_t i = 0; i < json_array_size(prompt) && st == NULL; i++) {
        json_t *one = json_copy(json_array_get(prompt, i));
        if (is_answer(one))
            unlearn(one);
        json_array_append_new(list, one);
    }
    if (st == NULL)
        json_array_extend(list, answer);
    json_decref(prompt);
    json_decref(answer);
    if (st == NULL)
        *out = rest_of(record);
    if (st == NULL &&
        (json_array_size(list) != all || json_object_set(*out, "messages", list) != 0))
        st = sheaf__no_memory("data set");
    json_decref(list);
    return st;
}

/* How many messages both lists begin with. */
static size_t common(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) &&
           json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

static sheaf_status *implicit(json_t **out, json_t *record, const json_t *const side[2], int k)
{
    const size_t n = common(side[0], side[1]);
    return converse(out, record, slice(side[k], 0, n), slice(side[k], n, json_array_size(side[k])),
                    sides[k]);
}

/* A record of texts whose answer is the field `as`, and called `name` in the file. */
static sheaf_status *texts(json_t **out, json_t *record, const json_t *answer, const char *as,
                           const char *name)
{
    if (!json_is_string(answer))
        return sheaf__bad_field(name, "a string", "%s", sheaf__text_kind(answer));
    if (json_string_length(answer) == 0)
        return sheaf__bad_field(name, "an answer", "an empty string");
    *out = rest_of(record);
    json_object_set(*out, as, (json_t *)answer);
    return NULL;
}

/* Texts alone: what both begin with is the prompt, less a blank at its end, as TRL has it. */
static sheaf_status *implicit_texts(json_t **out, json_t *record, const json_t *const side[2],
                                    int k)
{
    const char *a = json_string_value(side[0]), *b = json_string_value(side[1]);
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n])
        n++;
    const bool parted = a[n] != '\0' && b[n] != '\0';
    while (n > 0 && ((unsigned char)a[n] & 0xc0) == 0x80) /* within a character */
        n--;
    n -= n > 0 && a[n - 1] == ' ';
    if (!parted || n == 0)
        return sheaf__bad_field(sides[k],
                                parted ? "a text that both sides begin with, the prompt"
                                       : "an answer behind the text that both sides begin with",
                                "none");
    json_t *prompt = json_stringn(a, n), *answer = json_string((k == 0 ? a : b) + n);
    sheaf_status *st = texts(out, record, answer, "completion", sides[k]);
    if (st == NULL && json_object_set(*out, "prompt", prompt) != 0)
        st = sheaf__no_memory("data set");
    json_decref(prompt);
    json_decref(answer);
    return st;
}

/* Both sides are lists, and a prompt stands beside them as text: that of the first user's message.
 */
static sheaf_status *check_prompt(const json_t *prompt, const json_t *chosen)
{
    size_t i = 0;
    while (i < json_array_size(chosen) && !is_of(json_array_get(chosen, i), "user"))
        i++;
    const json_t *first = json_array_get(chosen, i), *content = json_object_get(first, "content");
    return json_equal(prompt, content == NULL ? json_object_get(first, "value") : content)
               ? NULL
               : sheaf__bad_field("prompt", "the text of the first user's message in \"chosen\"",
                                  "another text");
}

/* Lists that begin with the prompt, whose text may stand beside them. */
static sheaf_status *from_lists(json_t **out, json_t *record, const json_t *const side[2], int k)
{
    const json_t *prompt = json_object_get(record, "prompt");
    sheaf_status *st = json_is_string(prompt) ? check_prompt(prompt, side[0]) : NULL;
    return st == NULL ? implicit(out, record, side, k) : st;
}

/* name: of the answer, in the file. */
static sheaf_status *from_pair(json_t **out, json_t *record, const json_t *const side[2], int k,
                               const char *name)
{
    const json_t *prompt = json_object_get(record, "prompt"),
                 *list = json_object_get(record, "conversations");
    if (common(side[0], side[1]) > 0 && !is_answer(json_array_get(side[0], 0)))
        return from_lists(out, record, side, k);
    if (list == NULL)
        list = json_object_get(record, "messages");
    if (list == NULL && json_is_array(prompt))
        list = prompt;
    if (json_is_array(list))
        return converse(out, record, slice(list, 0, json_array_size(list)), messages_of(side[k]),
                        sides[k]);
    if (json_object_get(record, "instruction") != NULL)
        return texts(out, record, side[k], "output", name);
    if (json_is_string(prompt) && json_is_string(side[0]) && json_is_string(side[1])) {
        sheaf_status *st = texts(out, record, side[k], "completion", name);
        if (st == NULL)
            json_object_set(*out, "prompt", (json_t *)prompt);
        return st;
    }
    if (prompt == NULL && json_is_string(side[0]) && json_is_string(side[1]))
        return implicit_texts(out, record, side, k);
    if (json_is_array(side[0]) && json_is_array(side[1]))
        return from_lists(out, record, side, k);
    return sheaf__bad_field("prompt",
                            "a prompt beside \"chosen\" and \"rejected\", or lists of messages "
                            "that begin with it in both",
                            prompt == NULL ? "none" : "another kind of value");
}

/* ms-swift: the answer at the end of the messages is the chosen one. */
static sheaf_status *from_swift(json_t **out, json_t *record, int k)
{
    const json_t *messages = json_object_get(record, "messages"),
                 *other = json_object_get(record, "rejected_messages"),
                 *answer = json_object_get(record, "rejected_response");
    const json_t *const both[] = { messages, other };
    if (json_is_array(other))
        return implicit(out, record, both, k);
    if (json_is_string(json_array_get(answer, 0)))
        return sheaf_try_this(
            sheaf__bad_field("rejected_response", "one answer", "a list of texts"),
            "a record with the same messages for each of them");
    const size_t n = json_array_size(messages);
    return converse(out, record, slice(messages, 0, n == 0 ? 0 : n - 1),
                    k == 0 ? slice(messages, n == 0 ? 0 : n - 1, n) : messages_of(answer),
                    k == 0 ? "messages" : "rejected_response");
}

static bool has(const json_t *record, const char *name)
{
    return json_object_get(record, name) != NULL;
}

bool sheaf__preference_is_pair(const json_t *record)
{
    return has(record, "rejected") || has(record, "rejected_response") ||
           has(record, "rejected_messages") ||
           json_array_size(json_object_get(record, "output")) == 2;
}

/* ms-swift's pictures of the rejected answer: those of the prompt, which both have. */
static sheaf_status *check_pictures(const json_t *record)
{
    const json_t *own = json_object_get(record, "rejected_images"),
                 *list = json_object_get(record, "images");
    return own == NULL || json_is_null(own) || json_equal(own, list)
               ? NULL
               : sheaf__bad_field("rejected_images",
                                  "the pictures of \"images\": both answers are "
                                  "about one prompt",
                                  "others");
}

sheaf_status *sheaf__preference_side(json_t **out, json_t *record, int side)
{
    const json_t *both[] = { json_object_get(record, "chosen"),
                             json_object_get(record, "rejected") },
                 *output = json_object_get(record, "output");
    *out = NULL;
    if (!json_is_object(record))
        return sheaf__bad_field(NULL, "an object with \"chosen\" and \"rejected\"", "%s",
                                sheaf__text_kind(record));
    sheaf_status *st = check_pictures(record);
    if (st != NULL)
        return st;
    if (json_is_array(json_object_get(record, "messages")) && both[1] == NULL &&
        (json_object_get(record, "rejected_response") != NULL ||
         json_object_get(record, "rejected_messages") != NULL))
        return from_swift(out, record, side);
    const bool old = json_array_size(output) == 2; /* LLaMA-Factory's old files */
    if (old) {
        both[0] = json_array_get(output, 0);
        both[1] = json_array_get(output, 1);
    }
    for (int k = 0; k < 2; k++)
        if (both[k] == NULL)
            return sheaf__bad_field(sides[k], "two answers, \"chosen\" and \"rejected\"",
                                    "no such field");
    return from_pair(out, record, both, side,
                     !old        ? sides[side]
                     : side == 0 ? "output[0]"
                                 : "output[1]");
}

sheaf_status *sheaf__preference_judged(json_t **out, bool *desirable, json_t *record)
{
    const char *name = json_object_get(record, "kto_tag") != NULL ? "kto_tag" : "label";
    const json_t *value = json_object_get(record, name);
    if (!json_is_boolean(value))
        return sheaf__bad_field(name, "true or false: is the answer desirable?", "%s",
                                value == NULL ? "no such field" : sheaf__text_kind(value));
    *desirable = json_is_true(value);
    *out = json_copy(record);
    if (*out == NULL)
        return sheaf__no_memory("data set");
    json_object_del(*out, name);
    return NULL;
}

sheaf_status *sheaf__preference_margin(float *out, const json_t *record)
{
    const json_t *margin = json_object_get(record, "margin");
    *out = (float)json_number_value(margin);
    return margin == NULL || json_is_null(margin) || (json_is_number(margin) && isfinite(*out))
               ? NULL
               : sheaf__bad_field("margin", "a number", "%s", sheaf__text_kind(margin));
}

sheaf_status *sheaf__preference_part(json_t **out, bool *desirable, json_t *record, int side,
                                     bool pairs, bool judged)
{
    if (judged && !sheaf__preference_is_pair(record))
        return sheaf__preference_judged(out, desirable, record);
    *desirable = side == 0;
    if (pairs || judged)
        return sheaf__preference_side(out, record, side);
    *out = json_incref(record);
    return NULL;
}

sheaf_status *sheaf__preference_read(sheaf__text_record *out, const sheaf_data_options *options,
                                     bool *desirable, json_t *record, int side)
{
    const bool judged = options->judged && !sheaf__preference_is_pair(record),
               pair = options->pairs || (options->judged && !judged);
    sheaf_status *st = sheaf__preference_part(&out->json, desirable, record, side, options->pairs,
                                              options->judged);
    TRY(st, sheaf__text_record_take(out));
    if (st != NULL || out->form == SHEAF__FORM_PROMPT)
        return st;
    for (int64_t i = 0;
         (judged || (pair && out->form == SHEAF__FORM_INSTRUCTION)) && i + 1 < out->messages; i++)
        out->message[i].trained = false; /* answers within the prompt */
    return NULL;
}
