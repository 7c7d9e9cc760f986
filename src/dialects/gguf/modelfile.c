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
        sheaf__text_add(out, "PARAMETER stop ");
        sheaf__text_json(out, l.token[id].text);
        sheaf__text_add(out, "\n");
    }
    sheaf__listing_release(&l);
    return st;
}

sheaf_status *sheaf__gguf_modelfile(char **out, const char *file, const sheaf_config *c,
                                    const char *folder)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "FROM ./%s\n", file);
    sheaf_status *st = put_drawing(&text, folder);
    TRY(st, put_stops(&text, c, folder));
    TRY(st, sheaf__text_take(out, &text));
    sheaf__text_release(&text);
    return st;
}
