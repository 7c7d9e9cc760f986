/* modelfile.c - what Ollama is told of a file; see model.h. */
#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/gguf/model.h"
#include "inputs/chat/stored.h"
#include "inputs/tokenizer/listing.h"

/* How answers are drawn, as the model's generation_config.json has it, where it draws at all. */
static sheaf_status *put_drawing(sheaf_text *out, const char *folder)
{
    static const struct {
        const char *key, *there;
    } names[] = { { "temperature", "temperature" },
                  { "top_k", "top_k" },
                  { "top_p", "top_p" },
                  { "min_p", "min_p" },
                  { "repetition_penalty", "repeat_penalty" } };
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL;
    if (!sheaf__path_has(folder, "generation_config.json", SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st =
        sheaf__json_load(&root, sheaf__path_in(path, folder, "generation_config.json"));
    const bool draws = json_is_true(json_object_get(root, "do_sample"));
    for (size_t i = 0; draws && i < sizeof names / sizeof *names; i++) {
        const json_t *value = json_object_get(root, names[i].key);
        if (json_is_number(value))
            sheaf__text_add(out, "PARAMETER %s %.9g\n", names[i].there, json_number_value(value));
    }
    json_decref(root);
    return st;
}

/* A text that ends an answer, once. */
static void add_stop(sheaf_text *out, const char *text)
{
    sheaf_text line = { 0 };
    sheaf__text_add(&line, "PARAMETER stop ");
    sheaf__text_json(&line, text);
    sheaf__text_add(&line, "\n");
    out->failed |= line.failed;
    if (!out->failed && strstr(out->at, line.at) == NULL)
        sheaf__text_add(out, "%s", line.at);
    sheaf__text_release(&line);
}

/* Tokens that end an answer. */
static sheaf_status *put_stops(sheaf_text *out, const sheaf_config *c, const char *folder)
{
    const char *there = NULL;
    sheaf__listing l = { 0 };
    sheaf_status *st = sheaf__tokenizer_folder(&there, folder);
    if (st != NULL || there == NULL)
        return st;
    st = sheaf__listing_read(&l, folder);
    for (int i = 0; st == NULL && i < c->neos; i++) {
        const int64_t id = c->eos[i];
        if (id < 0 || id >= l.count || l.token[id].text == NULL)
            continue;
        add_stop(out, l.token[id].text);
    }
    sheaf__listing_release(&l);
    return st;
}

/* ---- the template ---- */

#define SYSTEM "{{ .System }}"
#define PROMPT "{{ .Prompt }}"
#define RESPONSE "{{ .Response }}"

/* The template's output for messages with Ollama's words as contents, without the bos, which Ollama
 * writes itself; *out NULL: it refuses them. */
static sheaf_status *render(char **out, const sheaf__chat_template *chat,
                            const sheaf__stored_chat *stored, const sheaf__message *message,
                            int64_t n)
{
    sheaf__rendered text = { 0 };
    sheaf_status *st = sheaf__only_memory(sheaf__chat_render(
        &text, chat, message, n,
        &(sheaf__chat_options){
            .generation_prompt = true, .bos = stored->bos, .eos = stored->eos }));
    *out = NULL;
    if (st == NULL && text.text != NULL) {
        const size_t bos = stored->bos == NULL ? 0 : strlen(stored->bos);
        const bool begins = bos > 0 && strncmp(text.text, stored->bos, bos) == 0;
        *out = strdup(text.text + (begins ? bos : 0));
        st = *out == NULL ? sheaf__no_memory("Modelfile") : NULL;
    }
    sheaf__rendered_release(&text);
    return st;
}

/* Cuts `text` in place before and behind `word`; NULL: it is not there. */
static char *cut(char *text, const char *word)
{
    char *at = text == NULL ? NULL : strstr(text, word);
    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + strlen(word);
}

/* Cuts `tail` off. */
static bool cut_tail(char *text, const char *tail)
{
    const bool ends = sheaf__ends_with(text, tail);
    if (ends)
        text[strlen(text) - strlen(tail)] = '\0';
    return ends;
}

/* Is it no mark of Ollama's? */
static bool is_plain(const char *text)
{
    return strstr(text, "\"\"\"") == NULL && strstr(text, "{{") == NULL;
}

/* A turn of Ollama is system message, prompt and response, with one layout: only templates
 * that do so are written, and Ollama finds what suits the others in the GGUF file. */
static sheaf_status *put_turn(sheaf_text *out, const sheaf__chat_template *chat,
                              const sheaf__stored_chat *stored)
{
#define MESSAGE(role, text)                                                                        \
    {                                                                                              \
        role, text, sizeof(text) - 1, NULL, false                                                  \
    }
    const sheaf__message system[] = { MESSAGE("system", SYSTEM), MESSAGE("user", PROMPT) },
                         turns[] = { MESSAGE("user", PROMPT), MESSAGE("assistant", RESPONSE),
                                     MESSAGE("user", PROMPT) };
#undef MESSAGE
    char *once = NULL, *with = NULL, *all = NULL;
    sheaf_status *st = render(&once, chat, stored, turns, 1);
    TRY(st, render(&with, chat, stored, system, 2));
    TRY(st, render(&all, chat, stored, turns, 3));
    char *ask = cut(once, PROMPT), *behind = cut(with, SYSTEM), *rest = cut(behind, PROMPT),
         *end = cut(all, RESPONSE), *next = cut(end, PROMPT);
    if (ask != NULL && rest != NULL && next != NULL && strcmp(ask, rest) == 0 &&
        strcmp(ask, next) == 0 && cut_tail(behind, once) && cut_tail(end, once) && is_plain(with) &&
        is_plain(behind) && is_plain(once) && is_plain(ask) && is_plain(end))
        sheaf__text_add(out,
                        "TEMPLATE \"\"\"{{ if .System }}%s" SYSTEM "%s{{ end }}{{ if .Prompt "
                        "}}%s" PROMPT "%s{{ end }}" RESPONSE "%s\"\"\"\n",
                        with, behind, once, ask, end);
    free(once);
    free(with);
    free(all);
    return st;
}

static sheaf_status *put_template(sheaf_text *out, const char *folder)
{
    sheaf__chat_template *chat = NULL;
    sheaf__tokenizer *tokenizer = NULL;
    sheaf__stored_chat stored = { 0 };
    const char *there = NULL;
    sheaf_status *st = sheaf__tokenizer_folder(&there, folder);
    if (st != NULL || there == NULL)
        return st;
    st = sheaf__stored_chat_open(&tokenizer, &stored, there, INT32_MAX);
    if (st == NULL && sheaf__stored_chat_has_program(&stored))
        st = sheaf__only_memory(sheaf__chat_template_choose(&chat, NULL, &stored));
    if (chat != NULL) {
        const char *end = sheaf__chat_template_stop(chat, stored.eos);
        st = put_turn(out, chat, &stored);
        if (end != NULL && *end != '\0')
            add_stop(out, end);
    }
    sheaf__chat_template_free(chat);
    sheaf__stored_chat_release(&stored);
    sheaf__tokenizer_close(tokenizer);
    return st;
}

sheaf_status *sheaf__gguf_modelfile(char **out, const char *file, const sheaf_config *c,
                                    const char *folder)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "FROM ./%s\n", file);
    sheaf_status *st = put_drawing(&text, folder);
    TRY(st, put_stops(&text, c, folder));
    TRY(st, put_template(&text, folder));
    TRY(st, sheaf__text_take(out, &text));
    sheaf__text_release(&text);
    return st;
}
