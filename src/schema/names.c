/* names.c - identifies family and version by the names of tensors. */
#include "base/base.h"
#include "schema/family.h"

/* "begin:inside" of sheaf__family.signature. */
static bool any(const sheaf__tensor_names *names, char *word)
{
    char *inside = strchr(word, ':');
    *inside++ = '\0';
    for (int64_t i = 0; i < names->count; i++) {
        const char *at = strstr(names->name(names->self, i), word);
        if (at != NULL && strstr(at, inside) != NULL)
            return true;
    }
    return false;
}

static bool holds(const sheaf__tensor_names *names, const char *signature)
{
    char text[512], *rest = NULL, *other;
    snprintf(text, sizeof text, "%s", signature);
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        const bool without = *word == '!';
        bool found = false;
        for (char *one = strtok_r(word + without, "|", &other); one != NULL;
             one = strtok_r(NULL, "|", &other))
            found = found || any(names, one);
        if (found == without)
            return false;
    }
    return true;
}

const char *sheaf__spelled(char out[SHEAF__SPELLED], const sheaf__family *family, const char *name)
{
    return family->spelling != NULL && sheaf__respell(out, family->spelling, false, name, 0) ? out
                                                                                             : name;
}

const sheaf__family *sheaf__other_family(const sheaf__family *family)
{
    return family->other == NULL ? NULL : sheaf__family_named(family->other->family);
}

bool sheaf__spell_form(char out[SHEAF__SPELLED], const sheaf__family *to, bool there,
                       const char *name)
{
    const bool own = to->spelling != NULL;
    return sheaf__respell(out, own ? to->spelling : sheaf__other_family(to)->spelling, own == there,
                          name, 0);
}

const sheaf__family *sheaf__family_by_names(const sheaf__tensor_names *names)
{
    const sheaf__family *family, *found = NULL;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->signature != NULL && holds(names, family->signature))
            found = family;
    return found;
}

sheaf__identity sheaf__model_by_names(const sheaf__tensor_names *names)
{
    const sheaf__family *family = sheaf__family_by_names(names);
    const sheaf__variant *one = family == NULL ? NULL : family->variants;
    while (one != NULL && one->title != NULL && !holds(names, one->signature))
        one++;
    return (sheaf__identity){ family, one == NULL ? NULL : one->title };
}

const char *sheaf__config_title(const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->variant_of != NULL ? family->variant_of(config) : family->title;
}

bool sheaf__may_be(const sheaf__identity *is, const sheaf_config *config)
{
    return is->family == sheaf__family_for(config) &&
           (is->variant == NULL || strcmp(is->variant, sheaf__config_title(config)) == 0);
}

/* Kin of Llama that tensors do not identify have its names. */
static bool has_names_of(const sheaf__family *family, const sheaf__family *other)
{
    return other->id == SHEAF_LLAMA && family->form != NULL && family->signature == NULL;
}

void sheaf__identity_title(sheaf_text *out, const sheaf__identity *is)
{
    const sheaf__family *family;
    int more = 0;
    sheaf__text_add(out, "%s", is->variant != NULL ? is->variant : is->family->title);
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        more += has_names_of(family, is->family);
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (has_names_of(family, is->family))
            sheaf__text_add(out, "%s%s", --more == 0 ? " or " : ", ", family->title);
}

bool sheaf__is_spare(const sheaf_config *config, const char *name)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->spare != NULL && family->spare(name, config);
}
