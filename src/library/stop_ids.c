/* stop_ids.c - see stop_ids.h. */
#include "library/stop_ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static void take_eos(int64_t *stop, int *n, const json_t *eos)
{
    if (json_is_integer(eos)) {
        stop[0] = json_integer_value(eos);
        *n = 1;
    } else if (json_is_array(eos) && json_array_size(eos) <= SHEAF_MAX_EOS) {
        *n = 0;
        for (size_t i = 0; i < json_array_size(eos); i++)
            stop[(*n)++] = json_integer_value(json_array_get(eos, i));
    }
}

sheaf_status *sheaf__stop_ids(int64_t stop[SHEAF_MAX_EOS], int *n, const char *model,
                              const sheaf__wording *w)
{
    *n = w->config->neos;
    memcpy(stop, w->config->eos, sizeof w->config->eos);
    if (*n == 0 && w->eos >= 0)
        stop[(*n)++] = w->eos;
    char *path = NULL;
    json_t *object = NULL;
    sheaf_status *st = sheaf__path_join(&path, model, "generation_config.json");
    if (st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE)
        st = sheaf__json_load(&object, path);
    take_eos(stop, n, json_object_get(object, "eos_token_id"));
    json_decref(object);
    free(path);
    return st;
}
