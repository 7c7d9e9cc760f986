/* stored.c - see stored.h. */
#include "inputs/chat/stored.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "inputs/tokenizer/gguf_files.h"
#include "inputs/tokenizer/tokenizer_config.h"

static const size_t MOST = (size_t)1 << 20; /* bytes of a program */
static const char CONFIG[] = "tokenizer_config.json", JINJA[] = "chat_template.jinja",
                  PROCESSORS[] = "chat_template.json";

static sheaf_status *keep(char **to, const char *text)
{
    free(*to);
    *to = text == NULL ? NULL : strdup(text);
    return text != NULL && *to == NULL ? sheaf__no_memory("chat template") : NULL;
}

static void drop_programs(sheaf__stored_chat *s)
{
    free(s->program);
    s->program = NULL;
    for (int64_t i = 0; i < s->others; i++) {
        free(s->other[i].name);
        free(s->other[i].program);
    }
    free(s->other);
    s->other = NULL;
    s->others = s->capacity = 0;
}

/* A later one of a name counts. */
static sheaf_status *put_program(sheaf__stored_chat *s, const char *name, const char *program)
{
    if (strcmp(name, "default") == 0)
        return keep(&s->program, program);
    int64_t at = 0;
    while (at < s->others && strcmp(s->other[at].name, name) != 0)
        at++;
    if (at == s->others && !SHEAF_GROW(&s->other, &s->capacity, at + 1))
        return sheaf__no_memory("chat template");
    sheaf_status *st = NULL;
    if (at == s->others) {
        s->other[s->others++] = (sheaf__other_template){ 0 };
        st = keep(&s->other[at].name, name);
    }
    return TRY(st, keep(&s->other[at].program, program));
}

/* [{"name": "default", "template": "..."}, ...] */
static sheaf_status *read_list(sheaf__stored_chat *out, const json_t *list)
{
    sheaf_status *st = NULL;
    for (size_t i = 0; i < json_array_size(list) && st == NULL; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *program = json_string_value(json_object_get(entry, "template"));
        if (name == NULL || program == NULL)
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'chat_template[%zu]'", i),
                                  "an object with name and template");
        st = put_program(out, name, program);
    }
    return st;
}

static sheaf_status *read_program(sheaf__stored_chat *out, const json_t *object, const char *file)
{
    char shown[96];
    const json_t *value = json_object_get(object, "chat_template");
    if (value == NULL || json_is_null(value))
        return NULL;
    out->file = file;
    if (json_is_array(value))
        return read_list(out, value);
    if (json_is_string(value))
        return keep(&out->program, json_string_value(value));
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'chat_template'"),
                                      "a template, or a list of templates with names"),
                       "%s", sheaf__json_show(shown, value));
}

/* Of processors of transformers 4; only where nothing else has a template. */
static sheaf_status *read_json(sheaf__stored_chat *out, const char *folder)
{
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL;
    if (out->file != NULL || !sheaf__path_has(folder, PROCESSORS, SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf__json_load(&root, sheaf__path_in(path, folder, PROCESSORS));
    TRY(st, sheaf_in(read_program(out, root, PROCESSORS), "%s", path));
    json_decref(root);
    return st;
}

/* A file with one program. The first takes the place of all that tokenizer_config.json has. */
static sheaf_status *read_jinja(sheaf__stored_chat *out, bool *any, const char *folder,
                                const char *file, const char *name)
{
    char path[SHEAF_PATH_SIZE], *text = NULL;
    size_t size = 0;
    if (!sheaf__path_has(folder, file, SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf__file_read_all(&text, &size, sheaf__path_in(path, folder, file), MOST);
    if (st == NULL && (strlen(text) != size || !sheaf__is_utf8(text)))
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "UTF-8 without NUL");
    if (st == NULL && !*any)
        drop_programs(out);
    *any = true;
    out->file = JINJA;
    TRY(st, put_program(out, name, text));
    free(text);
    return st;
}

static sheaf_status *read_additional(sheaf__stored_chat *out, bool *any, const char *folder)
{
    char within[SHEAF_PATH_SIZE], **names = NULL;
    int64_t count = 0;
    if (!sheaf__path_has(folder, SHEAF__MORE_TEMPLATES, SHEAF_PATH_DIR))
        return NULL;
    sheaf_status *st =
        sheaf__list_dir(&names, &count, sheaf__path_in(within, folder, SHEAF__MORE_TEMPLATES));
    for (int64_t i = 0; i < count && st == NULL; i++) {
        const size_t n = strlen(names[i]);
        char *name = sheaf__ends_with(names[i], ".jinja") ? strndup(names[i], n - 6) : NULL;
        if (name != NULL)
            st = read_jinja(out, any, within, names[i], name);
        free(name);
    }
    sheaf__names_free(names, count);
    return st;
}

sheaf_status *sheaf__stored_chat_read(sheaf__stored_chat *out, const char *path)
{
    char *folder = NULL, gguf[SHEAF_PATH_SIZE];
    sheaf__tokenizer_config names = { 0 };
    bool any = false;
    *out = (sheaf__stored_chat){ 0 };
    const bool beside =
        sheaf__path_kind(path) != SHEAF_PATH_DIR && sheaf__gguf_at(gguf, path) == NULL;
    sheaf_status *st = beside ? sheaf__path_parent(&folder, path) : keep(&folder, path);
    TRY(st, sheaf__tokenizer_config_read(&names, folder));
    TRY(st, keep(&out->bos, sheaf__tokenizer_config_text(names.name[SHEAF__BOS])));
    TRY(st, keep(&out->eos, sheaf__tokenizer_config_text(names.name[SHEAF__EOS])));
    TRY(st, sheaf_in(read_program(out, names.config, CONFIG), "%s/%s", folder, CONFIG));
    TRY(st, read_json(out, folder));
    TRY(st, read_jinja(out, &any, folder, JINJA, "default"));
    TRY(st, read_additional(out, &any, folder));
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
    *out = NULL;
    if (sheaf__is_given(folder) && sheaf__gguf_at(gguf, folder) != NULL) {
        char *there = NULL; /* without tokens it has no such file */
        size_t size;
        sheaf_status_free(sheaf__gguf_file(&there, &size, gguf, "tokenizer_config.json"));
        *out = there != NULL ? folder : NULL;
        free(there);
        return NULL;
    }
    for (int i = 0; i < 3 && sheaf__is_given(folder); i++)
        if (sheaf__path_has(folder, names[i], SHEAF_PATH_FILE))
            *out = folder;
    return NULL;
}

/* Does the model have a row for each token? */
static sheaf_status *check_size(const sheaf__tokenizer *t, const char *path, int64_t vocab)
{
    if (sheaf__tokenizer_size(t) <= vocab)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", path),
                                      "at most %" PRId64 " tokens, the model's vocabulary", vocab);
    return sheaf_try_this(sheaf_found(st, "%" PRId64, sheaf__tokenizer_size(t)),
                          "the tokenizer of this model: `tokenizer PATH`");
}

static sheaf_status *closed_unless(sheaf_status *st, sheaf__tokenizer **out)
{
    if (st != NULL) {
        sheaf__tokenizer_close(*out);
        *out = NULL;
    }
    return st;
}

sheaf_status *sheaf__stored_chat_open(sheaf__tokenizer **out, sheaf__stored_chat *stored,
                                      const char *path, int64_t vocab)
{
    sheaf_status *st = sheaf__tokenizer_open(out, path);
    TRY(st, check_size(*out, path, vocab));
    TRY(st, sheaf__stored_chat_read(stored, path));
    TRY(st, sheaf__stored_chat_complete(stored, *out));
    return closed_unless(st, out);
}

sheaf_status *sheaf__choose_tokenizer(sheaf__tokenizer **out, const char *given, const char *folder,
                                      int64_t vocab)
{
    static const char model[] = "tokenizer.model", json[] = "tokenizer.json";
    const bool is_given = sheaf__is_given(given);
    const char *where = is_given ? given : folder;
    char path[SHEAF_PATH_SIZE];
    *out = NULL;
    if (!sheaf__is_given(where))
        return NULL;
    const bool is_folder = sheaf__path_kind(where) == SHEAF_PATH_DIR,
               is_model = is_folder ? sheaf__path_has(where, model, SHEAF_PATH_FILE)
                                    : !sheaf__ends_with(where, ".json");
    const bool is_there = is_model || !is_folder || sheaf__path_has(where, json, SHEAF_PATH_FILE);
    if (!is_given && (!is_folder || !is_there))
        return NULL;
    if (!is_there)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", given),
                                          "a tokenizer.model or tokenizer.json in the folder"),
                           "neither");
    if (is_model && is_folder)
        where = sheaf__path_in(path, where, model);
    sheaf_status *st =
        is_model ? sheaf__tokenizer_open_pieces(out, where) : sheaf__tokenizer_open(out, where);
    TRY(st, check_size(*out, where, vocab));
    st = closed_unless(st, out);
    return st == NULL || is_folder ? st : sheaf__path_hub(st, given);
}

void sheaf__stored_chat_release(sheaf__stored_chat *s)
{
    drop_programs(s);
    free(s->bos);
    free(s->eos);
    *s = (sheaf__stored_chat){ 0 };
}

/* ---- which template ---- */

/* As transformers takes it where there are tools; NULL: none. */
static const char *tool_use(const sheaf__stored_chat *s)
{
    for (int64_t i = 0; i < s->others; i++)
        if (strcmp(s->other[i].name, "tool_use") == 0)
            return s->other[i].program;
    return NULL;
}

bool sheaf__stored_chat_has_program(const sheaf__stored_chat *s)
{
    return s->program != NULL || tool_use(s) != NULL;
}

sheaf_status *sheaf__chat_template_choose(sheaf__chat_template **out, const char *given,
                                          const sheaf__stored_chat *stored)
{
    const bool any = given == NULL || *given == '\0' || strcmp(given, "stored") == 0;
    *out = NULL;
    if (!any)
        return sheaf__chat_template_find(out, given);
    if (sheaf__stored_chat_has_program(stored))
        return sheaf__chat_template_stored_pair(out, stored->program, tool_use(stored),
                                                stored->file);
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`template`"), "%s", sheaf__chat_template_names());
    sheaf_found(st, "none, and the tokenizer stores %s",
                stored->others > 0 ? "several, none of them called default" : "none");
    return sheaf_try_this(st, "`template NAME`");
}

static const char *suitable(const sheaf__tokenizer *t)
{
    static const char *const marked[] = { "chatml", "llama3", "gemma", "phi3" };
    for (size_t i = 0; i < sizeof marked / sizeof *marked && t != NULL; i++) {
        sheaf__chat_template *own = NULL;
        sheaf_status_free(sheaf__chat_template_find(&own, marked[i]));
        const char *end = own == NULL ? NULL : sheaf__chat_template_stop(own, NULL);
        const bool is = end != NULL && sheaf__tokenizer_find(t, end) >= 0;
        sheaf__chat_template_free(own);
        if (is)
            return marked[i];
    }
    return "vicuna";
}

sheaf_status *sheaf__chat_template_advise(sheaf_status *st, const sheaf__tokenizer *t)
{
    return sheaf_try_this(st, "`template %s`, which suits this tokenizer, or another of %s",
                          suitable(t), sheaf__chat_template_names());
}

sheaf_status *sheaf__chat_template_of_run(sheaf__chat_template **out, const char *name,
                                          const sheaf__stored_chat *stored)
{
    *out = NULL;
    sheaf_status *st = !sheaf__stored_chat_has_program(stored)
                           ? NULL
                           : sheaf__chat_template_stored_pair(out, stored->program,
                                                              tool_use(stored), stored->file);
    if (*out != NULL && strcmp(sheaf__chat_template_name(*out), name) == 0)
        return NULL;
    sheaf__chat_template_free(*out);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf_status_free(st);
    return sheaf__chat_template_choose(out, name, stored);
}
