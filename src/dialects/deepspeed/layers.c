/* layers.c - a pipeline saves its layers one by one: layer_NN[-model_TT]-model_states.pt.
 *
 * A file is the state dict of one layer of the pipeline, with names of its own. NN counts all
 * layers of the pipeline, so their kinds follow from their contents: attention and an MLP are a
 * decoder layer, a table before the first of them is the embedding, after the last come norm and
 * head. */
#include "base/base.h"
#include "dialects/common/save.h"
#include "dialects/common/dialects.h"
#include "dialects/deepspeed/private.h"

typedef enum layer_is { IS_UNKNOWN, IS_DECODER, IS_AROUND } layer_is;

static const sheaf_pickle_tensor *get(const ds_file *f, const char *name)
{
    return sheaf__pickle_tensor(f->torch->doc, sheaf__pickle_get(f->torch->doc->root, name));
}

/* The Hugging Face name of an entry before the decoder layers, or `after` them; NULL: unknown. */
static const char *name_around(const ds_file *f, bool after, const char *key)
{
    static const struct {
        bool after;
        const char *key;
        int ndim; /* 0: any */
        const char *name;
    } known[] = { { false, "weight", 2, "model.embed_tokens.weight" },
                  { false, "embed_tokens.weight", 0, "model.embed_tokens.weight" },
                  { false, "word_embeddings.weight", 0, "model.embed_tokens.weight" },
                  { true, "weight", 1, "model.norm.weight" },
                  { true, "norm.weight", 0, "model.norm.weight" },
                  { true, "weight", 2, "lm_head.weight" },
                  { true, "lm_head.weight", 0, "lm_head.weight" } };
    const sheaf_pickle_tensor *t = key != NULL ? get(f, key) : NULL;
    for (size_t i = 0; t != NULL && i < sizeof known / sizeof *known; i++)
        if (known[i].after == after && strcmp(known[i].key, key) == 0 &&
            (known[i].ndim == 0 || known[i].ndim == t->ndim))
            return known[i].name;
    return NULL;
}

static layer_is what_is(const ds_file *f, bool after)
{
    const sheaf_pickle *root = f->torch->doc->root;
    const int64_t n = sheaf__pickle_count(root);
    if (get(f, "self_attn.q_proj.weight") != NULL && get(f, "mlp.down_proj.weight") != NULL)
        return IS_DECODER;
    bool known = n == 1 || (n == 2 && get(f, "norm.weight") != NULL);
    for (int64_t i = 0; i < n && known; i++)
        known = name_around(f, after, sheaf__pickle_text(sheaf__pickle_key(root, i))) != NULL;
    return known ? IS_AROUND : IS_UNKNOWN;
}

/* `decoder`: number of the decoder layer; -1: another layer. */
static sheaf_status *add_layer(ds_reading *r, const ds_file *f, bool after, int decoder)
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
        char *name = NULL;
        if (decoder >= 0 ? asprintf(&name, "model.layers.%d.%s", decoder, key) < 0
                         : (name = strdup(name_around(f, after, key))) == NULL)
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
                 ? sheaf__missing_file(r->c, "", every, "%s/layer_%02d-model_%02d-model_states.pt",
                                       r->tag, n, absent)
                 : sheaf__missing_file(r->c, "", every, "%s/layer_%02d-model_states.pt", r->tag, n);
    }
    return st;
}

sheaf_status *sheaf__ds_layers(ds_reading *r)
{
    int ranks = 0, layers = 0, decoders = 0, now = -1;
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
            decoders += now >= 0 && decoder[now];
            now = f->layer;
        }
        const layer_is is = what_is(f, after);
        after |= is == IS_DECODER;
        decoder[now] |= is == IS_DECODER;
        if (is == IS_UNKNOWN)
            st = sheaf__defect(r->c, "unsupported", f->path, "", "a layer of a Llama model", "",
                               "a layer of another form");
        else
            st = sheaf__catalog_defect(r->c, f->path,
                                       add_layer(r, f, after, is == IS_DECODER ? decoders : -1));
    }
    TRY(st, check_layers(r, decoder, layers));
    TRY(st,
        sheaf__note(
            r->c, "inferred", r->tag, "", "", "",
            "which layer is which, from what the files hold: %d decoder layers; masters and moments of a pipeline "
            "are not read, its weights are those rounded to the training dtype",
            decoders + (now >= 0 && decoder[now])));
    free(decoder);
    return st;
}
