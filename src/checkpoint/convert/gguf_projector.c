/* gguf_projector.c - the tower and the resampler of a model as a GGUF file, which llama.cpp reads
 * beside that of its text model (--mmproj); see gguf.h and docs/gguf.md. */
#include "checkpoint/convert/gguf.h"

#include <assert.h>

#include "base/base.h"
#include "schema/paths.h"

typedef struct listing {
    const sheaf__converter *k;
    sheaf__gguf_view *view;
    sheaf__gguf_file file;
} listing;

static sheaf_status *add_grid(listing *l, const char *name)
{
    const int64_t shape[] = { SHEAF__GGUF_GRID * SHEAF__GGUF_GRID, l->k->parsed.hidden };
    return sheaf__gguf_view_add(
        l->view, name, 2, shape,
        (sheaf__gguf_made){ .grid = SHEAF__GGUF_GRID, .type = SHEAF__GGML_F32 });
}

static sheaf_status *add_tensor(listing *l, const sheaf__gguf_piece *p, int64_t block)
{
    char name[SHEAF__SPELLED], from[SHEAF__SPELLED];
    sheaf__numbered_name(name, sizeof name, p->name, block);
    if (p->from == NULL)
        return add_grid(l, name);
    sheaf__numbered_name(from, sizeof from, p->from, block);
    const sheaf_tensor *t = sheaf_schema_find(l->k->schema, from);
    assert(t != NULL);
    int64_t shape[SHEAF_TENSOR_MAX_DIMS];
    memcpy(shape, t->shape, sizeof shape);
    if (p->third > 0)
        shape[0] /= 3;
    if (p->turned) {
        shape[0] = t->shape[1];
        shape[1] = t->shape[0];
    }
    sheaf__gguf_made made = { .first = p->third > 0 ? (p->third - 1) * shape[0] : 0,
                              .turned = p->turned,
                              .type = sheaf__gguf_projector_type(l->file, name, t->ndim) };
    sheaf_status *st = sheaf__gguf_view_add(l->view, name, t->ndim, shape, made);
    return TRY(st, sheaf__gguf_view_part(l->view, name, from));
}

static bool of_block(const sheaf__gguf_piece *p)
{
    return p->name != NULL && strchr(p->name, '#') != NULL;
}

static sheaf_status *list_tower(listing *l)
{
    const sheaf_config *c = &l->k->parsed;
    const sheaf__gguf_piece *p = sheaf__gguf_projector_of(c)->pieces;
    sheaf_status *st =
        sheaf__gguf_view_new(&l->view, l->k->source, 1 + 3 * l->k->source->count(l->k->source));
    while (st == NULL && p->name != NULL) {
        const sheaf__gguf_piece *end = p;
        while (of_block(end))
            end++;
        for (int64_t i = 0; i < c->vit.layers; i++)
            for (const sheaf__gguf_piece *one = p; st == NULL && one < end; one++)
                st = add_tensor(l, one, i);
        st = p < end ? st : add_tensor(l, p, 0);
        p = p < end ? end : p + 1;
    }
    return st;
}

static sheaf_status *check_options(const sheaf__converter *k)
{
    if (k->o->quantize != SHEAF_QUANTIZE_NONE || k->o->dtype == SHEAF_BF16)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dtype`"),
                              "float16 or float32 for a tower, as llama.cpp's own script has it");
    return k->o->modelfile ? sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`modelfile`"), "`to gguf`")
                           : NULL;
}

sheaf_status *sheaf__convert_to_gguf_mmproj(sheaf__converter *k)
{
    sheaf__gguf_keys keys = { 0 };
    listing l = { .k = k,
                  .file = k->o->dtype == SHEAF_F32 ? SHEAF__GGUF_FILE_F32 : SHEAF__GGUF_FILE_F16 };
    sheaf_status *st = check_options(k);
    TRY(st, sheaf__gguf_needs_model(k));
    TRY(st, sheaf_in(sheaf__gguf_can_project(&k->parsed, k->o->events), "%s", k->o->src));
    TRY(st, list_tower(&l));
    if (st == NULL)
        sheaf__gguf_projector_keys(&keys, &k->parsed, l.file);
    TRY(st, sheaf__gguf_view_write(k, l.view, &keys, &(sheaf__gguf_beside){ 0 }));
    sheaf__gguf_view_free(l.view);
    sheaf__gguf_keys_release(&keys);
    return st;
}
