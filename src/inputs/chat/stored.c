/* stored.c - see stored.h. */
#include "inputs/chat/stored.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "inputs/tokenizer/gguf_files.h"
#include "inputs/tokenizer/tokenizer_config.h"

static const size_t MOST = (size_t)1 << 20; /* bytes of a program */
static const char CONFIG[] = "tokenizer_config.json", JINJA[] = "chat_template.jinja";

static sheaf_status *keep(char **to, const char *text)
{
    free(*to);
    *to = text == NULL ? NULL : strdup(text);
    return text != NULL && *to == NULL ? sheaf__no_memory("chat template") : NULL;
}

/* [{"name": "default", "template": "..."}, ...] */
static sheaf_status *read_list(sheaf__stored_chat *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *program = json_string_value(json_object_get(entry, "template"));
        if (name == NULL || program == NULL)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'chat_template[%zu]'", i),
                                  "an object with name and template");
        if (strcmp(name, "default") == 0)
            return keep(&out->program, program);
    }
    out->no_default = true;
    return NULL;
}

static sheaf_status *read_program(sheaf__stored_chat *out, const json_t *object)
{
    char shown[96];
    const json_t *value = json_object_get(object, "chat_template");
    if (value == NULL || json_is_null(value))
        return NULL;
    out->file = CONFIG;
    if (json_is_array(value))
        return read_list(out, value);
    if (json_is_string(value))
        return keep(&out->program, json_string_value(value));
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'chat_template'"),
                                      "a template, or a list of templates with names"),
                       "%s", sheaf__json_show(shown, value));
}

static sheaf_status *read_jinja(sheaf__stored_chat *out, const char *folder)
{
    char *path = NULL, *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__path_join(&path, folder, JINJA);
    if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE) {
        st = sheaf__file_read_all(&text, &size, path, MOST);
        if (st == NULL && (strlen(text) != size || !sheaf__is_utf8(text)))
            st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "UTF-8 without NUL");
        if (st == NULL) {
            free(out->program);
            out->program = text;
            text = NULL;
            out->file = JINJA;
            out->no_default = false;
        }
        free(text);
    }
    free(path);
    return st;
}

sheaf_status *sheaf__stored_chat_read(sheaf__stored_chat *out, const char *path)
{
    char *folder = NULL, gguf[SHEAF_PATH_SIZE];
    sheaf__tokenizer_config names = { 0 };
    *out = (sheaf__stored_chat){ 0 };
    const bool beside =
        sheaf__path_kind(path) != SHEAF_PATH_DIR && sheaf__gguf_at(gguf, path) == NULL;
    sheaf_status *st = beside ? sheaf__path_parent(&folder, path) : keep(&folder, path);
    TRY(st, sheaf__tokenizer_config_read(&names, folder));
    TRY(st, keep(&out->bos, sheaf__tokenizer_config_text(names.name[SHEAF__BOS])));
    TRY(st, keep(&out->eos, sheaf__tokenizer_config_text(names.name[SHEAF__EOS])));
    TRY(st, sheaf_in(read_program(out, names.config), "%s/%s", folder, CONFIG));
    TRY(st, read_jinja(out, folder));
    sheaf__tokenizer_config_release(&names);
    free(folder);
    return st;
}

static sheaf_status *complete(char **name, const sheaf__tokenizer *t, int32_t id)
{
    return *name != NULL || id < 0 ? NULL : keep(name, sheaf__tokenizer_token(t, id));
}

sheaf_status *sheaf__stored_chat_complete(sheaf__stored_chat *s, const sheaf__tokenizer *t)
{
    sheaf_status *st = complete(&s->bos, t, sheaf__tokenizer_bos(t));
    return st == NULL ? complete(&s->eos, t, sheaf__tokenizer_eos(t)) : st;
}

sheaf_status *sheaf__tokenizer_folder(const char **out, const char *folder)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model", "vocab.json" };
    char gguf[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    *out = NULL;
    if (folder != NULL && *folder != '\0' && sheaf__gguf_at(gguf, folder) != NULL) {
        char *there = NULL; /* without tokens it has no such file */
        size_t size;
        sheaf_status_free(sheaf__gguf_file(&there, &size, gguf, "tokenizer_config.json"));
        *out = there != NULL ? folder : NULL;
        free(there);
        return NULL;
    }
    for (size_t i = 0; i < 3 && *out == NULL && folder != NULL && *folder != '\0' && st == NULL;
         i++) {
        char *path = NULL;
        st = sheaf__path_join(&path, folder, names[i]);
        if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE)
            *out = folder;
        free(path);
    }
    return st;
}

sheaf_status *sheaf__stored_chat_open(sheaf__tokenizer **out, sheaf__stored_chat *stored,
                                      const char *path, int64_t vocab)
{
    sheaf_status *st = sheaf__tokenizer_open(out, path);
    if (st == NULL && sheaf__tokenizer_size(*out) > vocab) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", path),
                            "at most %" PRId64 " tokens, the model's vocabulary", vocab);
        sheaf_try_this(sheaf_found(st, "%" PRId64, sheaf__tokenizer_size(*out)),
                       "the tokenizer of this model: --tokenizer PATH");
    }
    TRY(st, sheaf__stored_chat_read(stored, path));
    TRY(st, sheaf__stored_chat_complete(stored, *out));
    if (st != NULL) {
        sheaf__tokenizer_close(*out);
        *out = NULL;
    }
    return st;
}

void sheaf__stored_chat_release(sheaf__stored_chat *s)
{
    free(s->program);
    free(s->bos);
    free(s->eos);
    *s = (sheaf__stored_chat){ 0 };
}

/* ---- which template ---- */

sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored)
{
    const bool any = given == NULL || *given == '\0' || strcmp(given, "stored") == 0;
    *out = NULL;
    if (!any)
        return sheaf__chat_template_find(out, given);
    if (stored->program != NULL)
        return sheaf__chat_template_stored(out, stored->program, stored->file);
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--template"), "%s", sheaf__chat_template_names());
    sheaf_found(st, "none, and the tokenizer stores %s",
                stored->no_default ? "several, none of them called default" : "none");
    return sheaf_try_this(st, "--template NAME");
}

sheaf_status *sheaf__chat_template_of_run(sheaf__chat_template **out, const char *name,
                                          const sheaf__stored_chat *stored)
{
    *out = NULL;
    sheaf_status *st = stored->program == NULL
                           ? NULL
                           : sheaf__chat_template_stored(out, stored->program, stored->file);
    if (*out != NULL && strcmp(sheaf__chat_template_name(*out), name) == 0)
        return NULL;
    sheaf__chat_template_free(*out);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return sheaf__chat_template_choose(out, name, stored);
}
