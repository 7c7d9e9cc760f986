/* names.c - names of tensors, by a family's rules; see model.h. */
#include "base/base.h"
#include "dialects/gguf/model.h"

/* "model.layers.3.mlp.experts.7.gate_proj.weight", with "mlp.experts.", is the layer 3, expert 7
 * and "gate_proj.weight"; NULL: it is none of an expert. */
static const char *of_expert(const char *name, const char *experts, int64_t *layer, int64_t *expert)
{
    char *end;
    const char *at = strstr(name, experts), *layers = strstr(name, "layers.");
    if (at == NULL || layers == NULL || layers > at)
        return NULL;
    *layer = strtoll(layers + strlen("layers."), &end, 10);
    if (end + 1 != at)
        return NULL;
    *expert = strtoll(at + strlen(experts), &end, 10);
    return *end == '.' && end != at + strlen(experts) ? end + 1 : NULL;
}

bool sheaf__gguf_name(char out[SHEAF__SPELLED], int64_t *expert, const sheaf__gguf_form *form,
                      const char *name)
{
    char inside[SHEAF__SPELLED];
    int64_t layer = 0;
    const char *rest =
        form->experts == NULL ? NULL : of_expert(name, form->experts, &layer, expert);
    if (rest != NULL && sheaf__respell(inside, form->expert_names, false, rest, 0))
        return snprintf(out, SHEAF__SPELLED, "blk.%" PRId64 ".%s", layer, inside) < SHEAF__SPELLED;
    *expert = -1;
    return sheaf__respell(out, form->names, false, name, 0);
}

bool sheaf__gguf_name_back(char out[SHEAF__SPELLED], const sheaf__gguf_form *form, const char *name,
                           int64_t expert)
{
    char inside[SHEAF__SPELLED], *end;
    if (expert < 0)
        return sheaf__respell(out, form->names, true, name, 0);
    if (form->experts == NULL || strncmp(name, "blk.", 4) != 0)
        return false;
    const int64_t layer = strtoll(name + 4, &end, 10);
    return *end == '.' && sheaf__respell(inside, form->expert_names, true, end + 1, 0) &&
           snprintf(out, SHEAF__SPELLED, "model.layers.%" PRId64 ".%s%" PRId64 ".%s", layer,
                    form->experts, expert, inside) < SHEAF__SPELLED;
}
