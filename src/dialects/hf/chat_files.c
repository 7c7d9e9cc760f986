/* chat_files.c - see chat_files.h. */
#include "dialects/hf/chat_files.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "inputs/chat/stored.h"

static const char program_name[] = "chat_template.jinja",
                  generation_name[] = "generation_config.json";

/* The object in this file, empty if there is none. */
static sheaf_status *read_object(json_t **out, const char *folder, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    *out = NULL;
    if (sheaf__path_has(folder, name, SHEAF_PATH_FILE))
        return sheaf__json_load(out, sheaf__path_in(path, folder, name));
    *out = json_object();
    return *out == NULL ? sheaf__no_memory(name) : NULL;
}

/* eos_token_id of generation_config.json, else of config.json, else `eos`, and `end`. */
static sheaf_status *list_ends(json_t *generation, const char *model, int32_t eos, int32_t end)
{
    json_t *config = NULL, *ends = json_array();
    sheaf_status *st = read_object(&config, model, "config.json");
    const json_t *is = json_object_get(generation, "eos_token_id");
    if (is == NULL)
        is = json_object_get(config, "eos_token_id");
    bool listed = false, good = ends != NULL;
    for (size_t i = 0; i < (json_is_array(is) ? json_array_size(is) : json_is_integer(is)); i++) {
        const json_t *id = json_is_array(is) ? json_array_get(is, i) : is;
        listed |= json_integer_value(id) == end;
        good = good && json_array_append(ends, (json_t *)id) == 0;
    }
    if (good && json_array_size(ends) == 0 && eos >= 0 && eos != end)
        good = json_array_append_new(ends, json_integer(eos)) == 0;
    if (!listed)
        good = good && json_array_append_new(ends, json_integer(end)) == 0;
    if (st == NULL && (!good || json_object_set(generation, "eos_token_id", ends) != 0))
        st = sheaf__no_memory(generation_name);
    json_decref(ends);
    json_decref(config);
    return st;
}

static sheaf_status *put_end(sheaf_folder *folder, const sheaf__chat_files *files, int32_t eos,
                             int32_t end)
{
    json_t *generation = NULL;
    char above[SHEAF_PATH_SIZE], *text = NULL;
    sheaf_text line = { 0 };
    const char *model = sheaf__path_kind(files->model) == SHEAF_PATH_DIR
                            ? files->model
                            : sheaf__path_above(above, files->model);
    sheaf_status *st = read_object(&generation, model, generation_name);
    TRY(st, list_ends(generation, model, eos, end));
    TRY(st, sheaf__json_text(&text, generation, JSON_INDENT(2)));
    sheaf__text_add(&line, "%s\n", text == NULL ? "" : text);
    TRY(st, line.failed ? sheaf__no_memory(generation_name)
                        : sheaf__folder_text(folder, generation_name, line.at));
    sheaf__text_release(&line);
    free(text);
    json_decref(generation);
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
