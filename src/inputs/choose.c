/* choose.c - see choose.h. */
#include "inputs/choose.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static sheaf_status *open_tokenizer(sheaf__sentencepiece **out, const char *path,
                                    const sheaf_config *config)
{
    sheaf__sentencepiece *model = NULL;
    sheaf_status *st = sheaf__sentencepiece_open(&model, path);
    if (st != NULL)
        return st;
    const int64_t pieces = sheaf__sentencepiece_pieces(model);
    if (pieces <= config->vocab) {
        *out = model;
        return NULL;
    }
    sheaf__sentencepiece_close(model);
    st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", path),
                        "at most %" PRId64 " pieces, the model's vocabulary", config->vocab);
    return sheaf_try_this(sheaf_found(st, "%" PRId64, pieces),
                          "the tokenizer of this model: --tokenizer FILE");
}

sheaf_status *sheaf__choose_tokenizer(sheaf__sentencepiece **out, const char *given,
                                      const char *folder, const sheaf_config *config)
{
    char *path = NULL;
    *out = NULL;
    if (is_given(given)) {
        sheaf_status *st = open_tokenizer(out, given, config);
        return st == NULL ? NULL : sheaf__path_hub(st, given);
    }
    if (!is_given(folder) || sheaf__path_kind(folder) != SHEAF_PATH_DIR)
        return NULL;
    sheaf_status *st = sheaf__path_join(&path, folder, "tokenizer.model");
    if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE)
        st = open_tokenizer(out, path, config);
    free(path);
    return st;
}

sheaf_status *sheaf__choose_template(sheaf__template *out, bool *from_model, const char *given,
                                     const sheaf_config *config, const sheaf_events *events)
{
    json_t *object = NULL;
    *out = SHEAF__BASE;
    *from_model = false;
    if (is_given(given))
        return sheaf__template_find(out, given);
    sheaf_status *st = config->json == NULL
                           ? NULL
                           : sheaf__json_parse(&object, config->json, strlen(config->json));
    const char *name = json_string_value(json_object_get(object, "text_processor_version"));
    if (st == NULL && name != NULL) {
        sheaf_status *unknown = sheaf__template_find(out, name);
        *from_model = unknown == NULL;
        if (unknown != NULL) /* other programs may know it */
            sheaf_warn(
                events,
                "the config's text_processor_version '%s' is none of base, chat, vqa and chat_old",
                name);
        sheaf_status_free(unknown);
    }
    json_decref(object);
    return st;
}
