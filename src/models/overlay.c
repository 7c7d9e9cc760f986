/* overlay.c - what lies over the files of a base: hashes of what is read, and some tensors of an
 * adapter in place of its own (open_layers.h). */
#include "models/open_layers.h"

#include "base/base.h"
#include "models/hashed.h"
#include "schema/config_text.h"
#include "ops/quant/quant.h"

typedef struct overlay {
    sheaf_source source;
    sheaf_source *base, *adapter; /* adapter may be NULL */
    const sheaf_lora *lora;
    const sheaf__family *untied; /* the base stores one table for two tensors, by this one's names;
                                    else NULL */
} overlay;

/* The adapter's name of a tensor that it stores in full, or NULL. */
static const char *replaced(const overlay *o, const char *name)
{
    for (int i = 0; o->adapter != NULL && i < o->lora->nsaved; i++)
        if (strcmp(o->lora->saved[i]->name, name) == 0)
            return o->adapter->find(o->adapter, o->lora->saved_name[i]) == NULL
                       ? NULL
                       : o->lora->saved_name[i];
    return NULL;
}

static const char *in_base(const overlay *o, const char *name)
{
    return o->untied != NULL && strcmp(name, o->untied->head) == 0 ? o->untied->table : name;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const overlay *o = (const overlay *)self;
    const char *instead = replaced(o, name);
    return instead != NULL ? o->adapter->find(o->adapter, instead)
                           : o->base->find(o->base, in_base(o, name));
}

static int64_t count(sheaf_source *self)
{
    return ((overlay *)self)->base->count(((overlay *)self)->base);
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return ((overlay *)self)->base->entry(((overlay *)self)->base, i);
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const overlay *o = (const overlay *)self;
    const char *instead = replaced(o, name);
    return instead != NULL ? o->adapter->read(o->adapter, instead, row0, rows, col0, cols, dst)
                           : o->base->read(o->base, in_base(o, name), row0, rows, col0, cols, dst);
}

static sheaf_source *behind(sheaf_source *self, const char **name)
{
    const overlay *o = (const overlay *)self;
    if (replaced(o, *name) != NULL)
        return NULL;
    *name = in_base(o, *name);
    return o->base;
}

static const sheaf__quantised_source quantised = { .behind = behind };

static void close_overlay(sheaf_source *self)
{
    free(self);
}

sheaf_status *sheaf__overlay_new(sheaf_source **out, sheaf_source *base, sheaf_source *adapter,
                                 const sheaf_lora *lora, const sheaf__family *untied)
{
    overlay *o = calloc(1, sizeof *o);
    if (o == NULL)
        return sheaf__no_memory("adapter");
    *o = (overlay){
        { find, count, entry, read_box, close_overlay, &quantised }, base, adapter, lora, untied
    };
    *out = &o->source;
    return NULL;
}

void sheaf__overlay_rebase(sheaf_source *over, sheaf_source *base)
{
    ((overlay *)over)->base = base;
}

sheaf_status *sheaf__opened_lay_print(sheaf__opened *o, bool shared, sheaf_comm *all)
{
    sheaf_config of_base = o->config; /* without tokens that an adapter adds; borrowed */
    of_base.vocab = o->base_vocab;
    sheaf_status *st = sheaf__config_text(&o->config_text, &of_base);
    TRY(st, sheaf__hashed_new(&o->hashed, o->base, &of_base));
    if (st == NULL) {
        o->stored = o->base;
        o->base = sheaf__hashed_source(o->hashed);
        if (shared)
            sheaf__hashed_share(o->hashed, all);
    }
    return st;
}
