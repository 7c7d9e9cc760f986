/* chat_files.c - see chat_files.h. */
#include "dialects/hf/chat_files.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model_folder.h"
#include "inputs/chat/stored.h"

static const char program_name[] = "chat_template.jinja",
                  generation_name[] = "generation_config.json";

/* The text of the file, "{}" if there is none. */
static sheaf_status *read_text(char **out, const char *folder, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    size_t size;
    if (sheaf__path_has(folder, name, SHEAF_PATH_FILE))
        return sheaf__file_read_all(out, &size, sheaf__path_in(path, folder, name), 64 << 20);
    *out = strdup("{}");
    return *out == NULL ? sheaf__no_memory(name) : NULL;
}

/* Adds eos_token_id of a file, a number or a list, to the list; *any: it has some. */
static sheaf_status *add_ends(sheaf_text *list, bool *any, const char *folder, const char *name,
                              int32_t end)
{
    char path[SHEAF_PATH_SIZE];
    json_t *root = NULL;
    if (*any || !sheaf__path_has(folder, name, SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf__json_load(&root, sheaf__path_in(path, folder, name));
    const json_t *is = json_object_get(root, "eos_token_id");
    const size_t n = json_is_array(is) ? json_array_size(is) : json_is_integer(is);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(is) ? json_array_get(is, i) : is;
        *any = true;
        if (json_integer_value(id) != end)
            sheaf__text_add(list, "%lld, ", (long long)json_integer_value(id));
    }
    json_decref(root);
    return st;
}

/* generation_config.json with `end` among the ids that end an answer: those of the model, else
 * `eos`. */
static sheaf_status *put_end(sheaf_folder *folder, const sheaf__chat_files *files, int32_t eos,
                             int32_t end)
{
    char above[SHEAF_PATH_SIZE], *text = NULL, *changed = NULL;
    sheaf_text list = { 0 };
    bool any = false;
    const char *model = sheaf__path_kind(files->model) == SHEAF_PATH_DIR
                            ? files->model
                            : sheaf__path_above(above, files->model);
    sheaf__text_add(&list, "[");
    sheaf_status *st = read_text(&text, model, generation_name);
    TRY(st, add_ends(&list, &any, model, generation_name, end));
    TRY(st, add_ends(&list, &any, model, "config.json", end));
    if (!any && eos >= 0 && eos != end)
        sheaf__text_add(&list, "%" PRId32 ", ", eos);
    sheaf__text_add(&list, "%" PRId32 "]", end);
    TRY(st, list.failed ? sheaf__no_memory(generation_name)
                        : sheaf_hf_config_set(&changed, text, "eos_token_id", list.at));
    TRY(st, sheaf__folder_text(folder, generation_name, changed));
    sheaf__text_release(&list);
    free(changed);
    free(text);
    return st;
}

/* Does the tokenizer store a template that writes the same? */
static bool stores(const sheaf__stored_chat *stored, const char *name)
{
    sheaf__chat_template *own = NULL;
    sheaf_status *st = sheaf__stored_chat_has_program(stored)
                           ? sheaf__chat_template_choose(&own, NULL, stored)
                           : NULL;
    const bool same = own != NULL && strcmp(sheaf__chat_template_name(own), name) == 0;
    sheaf__chat_template_free(own);
    sheaf_status_free(st); /* one that cannot be run is another */
    return same;
}

sheaf_status *sheaf__chat_files_put(sheaf_folder *folder, const sheaf__chat_files *files)
{
    sheaf__chat_template *chat = NULL;
    sheaf__tokenizer *tokenizer = NULL;
    sheaf__stored_chat stored = { 0 };
    if (files->name == NULL || sheaf__chat_template_known(files->name) == NULL ||
        !sheaf__is_given(files->tokenizer))
        return NULL;
    const char *there = files->tokenizer;
    sheaf_status *st = sheaf__path_kind(there) == SHEAF_PATH_DIR
                           ? sheaf__tokenizer_folder(&there, files->tokenizer)
                           : NULL;
    if (st != NULL || there == NULL)
        return st;
    st = sheaf__stored_chat_open(&tokenizer, &stored, there, INT32_MAX);
    if (st == NULL && !stores(&stored, files->name)) {
        st = sheaf__chat_template_find(&chat, files->name);
        TRY(st, sheaf__folder_text(folder, program_name, sheaf__chat_template_program(chat)));
        const char *text = st == NULL ? sheaf__chat_template_stop(chat, stored.eos) : NULL;
        const int32_t end = text == NULL ? -1 : sheaf__tokenizer_find(tokenizer, text);
        TRY(st, end < 0 ? NULL : put_end(folder, files, sheaf__tokenizer_eos(tokenizer), end));
    }
    sheaf__chat_template_free(chat);
    sheaf__stored_chat_release(&stored);
    sheaf__tokenizer_close(tokenizer);
    return st;
}

sheaf_status *sheaf__chat_files_copy(sheaf_folder *folder, const char *from)
{
    if (!sheaf__path_has(from, program_name, SHEAF_PATH_FILE))
        return NULL;
    sheaf_status *st = sheaf__folder_copy(folder, from, program_name);
    return TRY(st, sheaf__folder_copy(folder, from, generation_name));
}
