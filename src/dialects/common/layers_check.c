/* layers_check.c - checks of a Llama's tensors against each other, without a config: see model.h.
 *
 * Every layer has the tensors that every other has, in the same shapes; the table of embeddings,
 * the last norm and a head are as wide as the layers are. */
#include "base/base.h"
#include "dialects/common/model.h"

enum { NAME_MOST = 512 };

/* PREFIX layers.N.REST */
typedef struct layered {
    size_t prefix;
    int64_t layer;
    const char *rest;
} layered;

static bool split(layered *out, const char *name)
{
    const char *at = strstr(name, "layers.");
    if (at == NULL || at[7] < '0' || at[7] > '9' || strlen(name) >= NAME_MOST - 24)
        return false;
    char *end;
    out->prefix = (size_t)(at - name);
    out->layer = strtoll(at + 7, &end, 10);
    out->rest = end;
    return *end == '.' && out->layer < INT32_MAX;
}

static sheaf_status *note(sheaf_catalog *c, const char *code, const char *name,
                          const char *expected, const char *found)
{
    return sheaf__defect(c, code, c->root, name, expected, "use a complete copy of the checkpoint",
                         "%s", found);
}

/* Checks the same tensor of the next layer, cyclically, so that all layers have what one has. */
static sheaf_status *check_next(sheaf_catalog *c, const sheaf_logical *t, const layered *is,
                                int64_t layers)
{
    char name[NAME_MOST], want[128], found[128];
    snprintf(name, sizeof name, "%.*slayers.%" PRId64 "%s", (int)is->prefix, t->entry.name,
             (is->layer + 1) % layers, is->rest);
    const sheaf_logical *next = sheaf__catalog_find(c, name);
    sheaf__show_shape(want, t->entry.ndim, t->entry.shape);
    if (next == NULL)
        return note(c, "missing", name, "in every layer what is in one", "no tensor of this name");
    return sheaf__same_shape(t->entry.ndim, t->entry.shape, next->entry.ndim, next->entry.shape)
               ? NULL
               : note(c, "shape", name, want,
                      sheaf__show_shape(found, next->entry.ndim, next->entry.shape));
}

static sheaf_status *check_width(sheaf_catalog *c, const char *prefix, size_t size,
                                 const char *rest, bool needed, int ndim, int64_t width)
{
    char name[NAME_MOST], want[64], found[128];
    snprintf(name, sizeof name, "%.*s%s", (int)size, prefix, rest);
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    if (t == NULL)
        return needed ? note(c, "missing", name, "this tensor, which every Llama has",
                             "no tensor of this name")
                      : NULL;
    if (t->entry.ndim == ndim && t->entry.shape[ndim - 1] == width)
        return NULL;
    snprintf(want, sizeof want, "%" PRId64 " columns, as wide as the layers are", width);
    return note(c, "shape", name, want, sheaf__show_shape(found, t->entry.ndim, t->entry.shape));
}

sheaf_status *sheaf__catalog_check_layers(sheaf_catalog *c)
{
    const char *family = sheaf__family_of(c);
    int64_t layers = 0, width = -1;
    layered is, one = { 0 };
    const char *name = NULL;
    if (family == NULL || (strcmp(family, "llama") != 0 && strcmp(family, "qwen2") != 0))
        return NULL;
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_WEIGHT && split(&is, c->tensor[i].entry.name)) {
            layers = is.layer + 1 > layers ? is.layer + 1 : layers;
            if (strcmp(is.rest, ".self_attn.q_proj.weight") == 0 && c->tensor[i].entry.ndim == 2) {
                width = c->tensor[i].entry.shape[1];
                name = c->tensor[i].entry.name;
                one = is;
            }
        }
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        if (c->tensor[i].kind == SHEAF_WEIGHT && split(&is, c->tensor[i].entry.name))
            st = check_next(c, &c->tensor[i], &is, layers);
    if (st != NULL || name == NULL)
        return st;
    static const char *const beside[] = { "embed_tokens.weight",
                                          "norm.weight",
                                          "layers.0.input_layernorm.weight",
                                          "layers.0.post_attention_layernorm.weight",
                                          "layers.0.mlp.gate_proj.weight",
                                          "layers.0.mlp.up_proj.weight" };
    for (size_t i = 0; st == NULL && i < sizeof beside / sizeof *beside; i++)
        st = check_width(c, name, one.prefix, beside[i], true, i > 0 && i < 4 ? 1 : 2, width);
    if (st == NULL && sheaf__catalog_find(c, "lm_head.weight") == NULL)
        st = sheaf__note(
            c, "inferred", c->root, "lm_head.weight",
            "a head, or a config that ties it to the table of embeddings", "",
            "no tensor of this name: the table is used as the head; these files do not show whether a head was lost");
    return st != NULL ? st : check_width(c, "", 0, "lm_head.weight", false, 2, width);
}
