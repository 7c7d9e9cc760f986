/* layers.c - a pipeline saves its layers one by one: layer_NN[-model_TT]-model_states.pt.
 *
 * A file is the state dict of one layer of the pipeline, with names of its own. NN counts all
 * layers of the pipeline, so which one is which follows from what it holds: attention and an MLP
 * are a decoder layer, a table before the first of them is the embedding, after the last come norm
 * and head. */
#include "base/base.h"
#include "dialects/common/save.h"
#include "dialects/common/dialects.h"
#include "dialects/deepspeed/private.h"

typedef enum layer_is {
    IS_UNKNOWN,
    IS_EMBEDDING,
    IS_DECODER,
    IS_NORM,
    IS_HEAD,
    IS_NORM_AND_HEAD
} layer_is;

static const sheaf_pickle_tensor *get(const ds_file *f, const char *name)
{
    return sheaf__pickle_tensor(f->torch->doc, sheaf__pickle_get(f->torch->doc->root, name));
}

/* `after`: decoder layers came before. */
static layer_is what_is(const ds_file *f, bool after)
{
    if (get(f, "self_attn.q_proj.weight") != NULL && get(f, "mlp.down_proj.weight") != NULL)
        return IS_DECODER;
    const sheaf_pickle_tensor *weight = get(f, "weight");
    const int64_t n = sheaf__pickle_count(f->torch->doc->root);
    if (!after)
        return n == 1 && ((weight != NULL && weight->ndim == 2) ||
                          get(f, "embed_tokens.weight") != NULL ||
                          get(f, "word_embeddings.weight") != NULL)
                   ? IS_EMBEDDING
                   : IS_UNKNOWN;
    if (n == 2 && get(f, "norm.weight") != NULL && get(f, "lm_head.weight") != NULL)
        return IS_NORM_AND_HEAD;
    if (n == 1 && ((weight != NULL && weight->ndim == 1) || get(f, "norm.weight") != NULL))
        return IS_NORM;
    return n == 1 && ((weight != NULL && weight->ndim == 2) || get(f, "lm_head.weight") != NULL)
               ? IS_HEAD
               : IS_UNKNOWN;
}

/* The Hugging Face name of an entry; malloc'd. */
static char *name_of(layer_is is, int decoder, const char *key)
{
    char *name = NULL;
    if (is == IS_DECODER) {
        if (asprintf(&name, "model.layers.%d.%s", decoder, key) < 0)
            return NULL;
        return name;
    }
    const bool head =
        is == IS_HEAD || (is == IS_NORM_AND_HEAD && strcmp(key, "lm_head.weight") == 0);
    return strdup(is == IS_EMBEDDING ? "model.embed_tokens.weight"
                  : head             ? "lm_head.weight"
                                     : "model.norm.weight");
}

static sheaf_status *add_layer(ds_reading *r, const ds_file *f, layer_is is, int decoder)
{
    const sheaf_pickle *root = sheaf__ds_root(f);
    sheaf_catalog *part = r->part[f->mp];
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(root); i++) {
        const char *key;
        const sheaf_pickle_tensor *t = sheaf__ds_tensor(&key, f, root, i);
        if (key != NULL && t == NULL)
            st = sheaf__dialect_unread(NULL, r->c, f->path, key, sheaf__pickle_value(root, i));
        if (key == NULL || t == NULL)
            continue;
        char *name = name_of(is, decoder, key);
        if (name == NULL)
            return sheaf__no_memory(f->path);
        st = sheaf__catalog_find(part, name) != NULL
                 ? sheaf__defect(r->c, "duplicate", f->path, name, "one layer of this kind", "",
                                 "a second one")
                 : sheaf__catalog_put(part,
                                      strstr(name, "rotary_emb.inv_freq") != NULL ? SHEAF_BUFFER
                                                                                  : SHEAF_WEIGHT,
                                      name, f->torch, t, f->mp);
        free(name);
    }
    return st;
}

/* Each layer has a file of each rank, and no number between two decoder layers is without one. */
static sheaf_status *check_layers(ds_reading *r, const bool *decoder, int count)
{
    static const char every[] = "every part of every layer";
    int first = count, last = -1;
    sheaf_status *st = NULL;
    for (int n = 0; n < count; n++)
        if (decoder[n]) {
            first = n < first ? n : first;
            last = n;
        }
    for (int n = 0; st == NULL && n < count; n++) {
        int have = 0, absent = -1;
        for (int64_t i = 0; i < r->nfiles; i++)
            have += r->file[i].what == DS_LAYER && r->file[i].layer == n;
        for (int mp = 0; mp < r->tp && absent < 0; mp++) {
            bool here = false;
            for (int64_t i = 0; i < r->nfiles; i++)
                here |= r->file[i].what == DS_LAYER && r->file[i].layer == n && r->file[i].mp == mp;
            absent = here ? -1 : mp;
        }
        if (absent < 0 || (have == 0 && (n < first || n > last)))
            continue;
        st = r->tp > 1
                 ? sheaf__not_there(r->c, "", every, "%s/layer_%02d-model_%02d-model_states.pt",
                                    r->tag, n, absent)
                 : sheaf__not_there(r->c, "", every, "%s/layer_%02d-model_states.pt", r->tag, n);
    }
    return st;
}

sheaf_status *sheaf__ds_layers(ds_reading *r)
{
    int ranks = 0, layers = 0, decoders = 0, now = -1;
    layer_is is = IS_UNKNOWN;
    bool after = false;
    for (int64_t i = 0; i < r->nfiles; i++)
        if (r->file[i].what == DS_LAYER) {
            ranks = r->file[i].mp + 1 > ranks ? r->file[i].mp + 1 : ranks;
            layers = r->file[i].layer + 1 > layers ? r->file[i].layer + 1 : layers;
        }
    bool *decoder = calloc((size_t)layers + 1, sizeof *decoder);
    r->part = calloc((size_t)ranks + 1, sizeof *r->part);
    r->c->tp = r->tp = r->part != NULL ? ranks : 0;
    r->layered = true;
    sheaf_status *st = decoder == NULL || r->part == NULL ? sheaf__no_memory(r->tag) : NULL;
    for (int mp = 0; st == NULL && mp < ranks; mp++)
        st = sheaf__catalog_new(&r->part[mp], r->c->dialect, r->tag);
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++) { /* by layer, then rank */
        const ds_file *f = &r->file[i];
        if (f->what != DS_LAYER || f->torch == NULL)
            continue;
        if (f->layer != now) {
            now = f->layer;
            decoders += is == IS_DECODER;
            is = what_is(f, after);
            after |= is == IS_DECODER;
            decoder[now] = is == IS_DECODER;
        }
        if (is == IS_UNKNOWN)
            st = sheaf__defect(r->c, "unsupported", f->path, "", "a layer of a Llama model", "",
                               "a layer of another form");
        else
            st = sheaf__catalog_defect(r->c, f->path, add_layer(r, f, is, decoders));
    }
    TRY(st, check_layers(r, decoder, layers));
    TRY(st,
        sheaf__note(
            r->c, "inferred", r->tag, "", "", "",
            "which layer is which, from what the files hold: %d decoder layers; masters and moments of a pipeline "
            "are not read, its weights are those rounded to the training dtype",
            decoders + (is == IS_DECODER)));
    free(decoder);
    return st;
}
