/* kinds.c - the kinds of steps, by the "type" that tokenizer.json gives, and what all have: their
 * keys, and their end. */
#include "kinds.h"

#include <string.h>

static const sheaf__step_kind *const normalizers[] = { &sheaf__nfc, &sheaf__prepend,
                                                       &sheaf__replace, NULL };
static const sheaf__step_kind *const pre_tokenizers[] = { &sheaf__byte_level_splitting,
                                                          &sheaf__digits, &sheaf__metaspace,
                                                          &sheaf__split, NULL };
static const sheaf__step_kind *const decoders[] = {
    &sheaf__byte_fallback_decoder, &sheaf__byte_level_decoder, &sheaf__fuse_decoder,
    &sheaf__replace_decoder,       &sheaf__strip_decoder,      NULL
};
static const sheaf__step_kind *const posts[] = { &sheaf__byte_level_post, &sheaf__template_post,
                                                 NULL };
const sheaf__step_kind *const *const sheaf__step_kinds[SHEAF__LISTS] = { normalizers,
                                                                         pre_tokenizers, decoders,
                                                                         posts };

void sheaf__steps_close(sheaf__steps *steps)
{
    for (int64_t i = 0; i < steps->count; i++)
        if (steps->step[i].kind->close != NULL)
            steps->step[i].kind->close(steps->step[i].state);
    steps->count = 0;
}

void sheaf__only_keys(sheaf_json_reader *r, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        bool found = strcmp(key, "type") == 0 || json_is_null(value);
        for (const char *const *k = known; !found && *k != NULL; k++)
            found = strcmp(key, *k) == 0;
        if (!found)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "no such option, or null");
    }
}
