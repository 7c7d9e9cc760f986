/* template.c - see template.h. */
#include "inputs/template.h"

#include "base/base.h"
#include "base/json.h"
#include "schema/family.h"

/* A prompt is `open`, then for each earlier turn: query, `middle`, answer, `again`; then the query
 * and `close`. */
static const struct {
    const char *name, *open, *middle, *again, *close;
    const char *separator; /* between prompt and answer */
    bool asks, says;       /* of families with `questions`; of others */
} templates[SHEAF__TEMPLATES] = {
    [SHEAF__BASE] = { "base", "", NULL, NULL, "", "<unk>", true, true },
    [SHEAF__CHAT] = { "chat", " [INST] ", " [/INST] ", " [INST] ", " [/INST] ", "[/INST]", false,
                      true },
    [SHEAF__VQA] = { "vqa", "Question: ", NULL, NULL, " Short answer:", " Short answer:", false,
                     true },
    [SHEAF__CHAT_OLD] = { "chat_old", "Question: ", " Answer: ", "\nQuestion: ", " Answer:",
                          " Answer:", false, true },
    [SHEAF__QUESTION] = { "chat", "Question: ", " Answer: ", "\nQuestion: ", " Answer:", " Answer:",
                          true, false },
    [SHEAF__SHORT_QUESTION] = { "vqa", "Question: ", " Short answer: ", "\nQuestion: ",
                                " Short answer:", " Short answer:", true, false },
};

sheaf_status *sheaf__template_find(sheaf__template *out, const char *name,
                                   const sheaf_config *config)
{
    const char *names[SHEAF__TEMPLATES];
    const bool asks = config != NULL && sheaf__family_for(config)->questions;
    int n = 0;
    for (int i = 0; i < SHEAF__TEMPLATES; i++) {
        if (!(asks ? templates[i].asks : templates[i].says))
            continue;
        names[n++] = templates[i].name;
        if (strcmp(name, templates[i].name) == 0) {
            *out = (sheaf__template)i;
            return NULL;
        }
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "prompt template");
    sheaf_expected(st, asks ? "base, chat or vqa" : "base, chat, vqa or chat_old");
    sheaf_found(st, "'%s'", name);
    const char *near = sheaf__nearest(name, names, n);
    return near == NULL ? st : sheaf_try_this(st, "%s", near);
}

const char *sheaf__template_name(sheaf__template which)
{
    return templates[which].name;
}
bool sheaf__template_has_history(sheaf__template which)
{
    return templates[which].middle != NULL;
}

sheaf_status *sheaf__choose_template(sheaf__template *out, const char *given,
                                     const sheaf_config *config, const sheaf_events *events)
{
    json_t *object = NULL;
    bool from_model = false;
    *out = sheaf__image_positions(config) > 0 ? SHEAF__BASE : SHEAF__CHAT;
    if (given != NULL && *given != '\0')
        return sheaf__template_find(out, given, config);
    sheaf_status *st = config->json == NULL
                           ? NULL
                           : sheaf__json_parse(&object, config->json, strlen(config->json));
    const char *key = sheaf__template_key(config),
               *name = json_string_value(json_object_get(object, key));
    if (st == NULL && name != NULL) {
        sheaf_status *unknown = sheaf__template_find(out, name, config);
        from_model = unknown == NULL;
        if (unknown != NULL) /* another program may support it */
            sheaf_warn(events, "the config's %s '%s' is not %s", key, name,
                       sheaf_status_expected(unknown));
        sheaf_status_free(unknown);
    }
    json_decref(object);
    if (st == NULL)
        sheaf_note(
            events, "prompt template %s, %s (`template` changes it)", sheaf__template_name(*out),
            from_model ? "which the model's config names" : "as the model's config names none");
    return st;
}

static void add(sheaf_text *text, const char *words)
{
    sheaf__text_bytes(text, words, strlen(words));
}

sheaf_status *sheaf__template_prompt(char **out, sheaf__template which, const sheaf__turn *history,
                                     int64_t turns, const char *query)
{
    sheaf_text text = { 0 };
    add(&text, templates[which].open);
    for (int64_t i = 0; i < turns && sheaf__template_has_history(which); i++) {
        add(&text, history[i].query);
        add(&text, templates[which].middle);
        add(&text, history[i].answer);
        add(&text, templates[which].again);
    }
    add(&text, query);
    add(&text, templates[which].close);
    return sheaf__text_take(out, &text);
}

/* ---- the answer ---- */

sheaf_status *sheaf__template_answer(char **out, sheaf__template which, const char *decoded)
{
    static const char eos[] = "</s>";
    const char *separator = templates[which].separator;
    sheaf_text text = { 0 };
    for (const char *p = decoded;;) { /* upstream removes the mark before it splits */
        const char *mark = strstr(p, eos);
        sheaf__text_bytes(&text, p, mark == NULL ? strlen(p) : (size_t)(mark - p));
        if (mark == NULL)
            break;
        p = mark + strlen(eos);
    }
    const char *from = text.failed ? "" : text.at;
    for (const char *at; (at = strstr(from, separator)) != NULL;)
        from = at + strlen(separator);
    size_t size = strlen(from);
    sheaf__utf8_strip(&from, &size);
    *out = text.failed ? NULL : strndup(from, size);
    sheaf__text_release(&text);
    return *out == NULL ? sheaf__no_memory("an answer") : NULL;
}
