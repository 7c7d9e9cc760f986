/* dialects.c - see dialects.h. */
#include "dialects/common/dialects.h"

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/model.h"
#include "dialects/hf/hf.h"

const sheaf_dialect *const sheaf__dialects[] = {
    &sheaf__dialect_megatron,
    &sheaf__dialect_dcp,
    &sheaf__dialect_sat, /* names its parts as DeepSpeed does */
    &sheaf__dialect_deepspeed,
    &sheaf__dialect_fsdp,
    &sheaf__dialect_peft,
    &sheaf__dialect_colossalai,
    &sheaf__dialect_gguf,
    &sheaf__dialect_gguf_lora,
    &sheaf__dialect_gguf_mmproj,
    &sheaf__dialect_hf, /* any folder with weights: the last */
    NULL,
};

const sheaf_dialect *sheaf__dialect_of(const char *path)
{
    for (const sheaf_dialect *const *d = sheaf__dialects; *d != NULL; d++)
        if ((*d)->is(path))
            return *d;
    return NULL;
}

const sheaf_dialect *sheaf__dialect_named(const char *name)
{
    for (const sheaf_dialect *const *d = sheaf__dialects; *d != NULL; d++)
        if (strcmp((*d)->name, name) == 0)
            return *d;
    return NULL;
}

sheaf_status *sheaf__dialect_read(sheaf_catalog **out, const sheaf_dialect *dialect,
                                  const char *path, const sheaf_dialect_hints *hints)
{
    sheaf_catalog *c = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__catalog_new(&c, dialect, path);
    TRY(st, dialect->read(c, path, hints));
    if (st == NULL)
        *out = c;
    else
        sheaf__catalog_free(c);
    return st;
}

/* Was the model checked against a config, or could it have been? */
static bool is_held(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, "unsupported") == 0 &&
            c->finding[i].severity == SHEAF_WARNING)
            return false;
    return true;
}

/* Weights of a supported model must have a dtype that can be converted to float32. Unsupported
 * models are reported elsewhere. */
static sheaf_status *check_dtypes(sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    if (sheaf__family_of(c) == NULL || !is_held(c))
        return NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        const sheaf_logical *t = &c->tensor[i];
        const sheaf_dtype d = t->entry.dtype;
        const char *path = sheaf__catalog_path_of(c, t);
        if (t->kind != SHEAF_WEIGHT || d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16)
            continue;
        st =
            d == SHEAF_F64
                ? sheaf__warning(c, "dtype", path, t->entry.name, "F32, BF16 or F16",
                                 "sheaf convert {} {+float32} --to hf --dtype float32{config}",
                                 "F64, which can be converted but not run")
                : sheaf__defect(
                      c, "unsupported", path, t->entry.name, "F32, BF16 or F16",
                      "quantized weights and other dtypes are not read; use the model in one of those",
                      "%s", sheaf_dtype_name(d));
    }
    return st;
}

/* A training checkpoint is checked against the config like any model; without a usable config,
 * which is a finding, its layers against each other. An optimizer alone is not checked. */
static sheaf_status *check_trained(sheaf_catalog *c)
{
    bool weights = false;
    for (int64_t i = 0; i < c->count && !weights; i++)
        weights = c->tensor[i].kind == SHEAF_WEIGHT;
    sheaf_status *st = weights ? sheaf__catalog_check_model(c, false) : NULL;
    return st != NULL || (c->config != NULL && is_held(c)) ? st : sheaf__catalog_check_layers(c);
}

/* Files that are copied with the weights must be regular files. */
static sheaf_status *check_extras(sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && sheaf_hf_extras[i] != NULL; i++) {
        char path[SHEAF_PATH_SIZE];
        const sheaf_path_kind kind =
            sheaf__path_kind(sheaf__path_in(path, c->root, sheaf_hf_extras[i]));
        if (kind == SHEAF_PATH_DIR || kind == SHEAF_PATH_OTHER)
            st = sheaf__defect(c, "damaged", path, "", "a regular file", "move it away", "%s",
                               kind == SHEAF_PATH_DIR ? "a folder" : "a pipe, socket or device");
    }
    return st;
}

sheaf_status *sheaf__dialect_check(sheaf_catalog *c, const sheaf_dialect_hints *hints)
{
    sheaf_status *st;
    if (c->as_stored) { /* each tensor is one piece */
        st = sheaf__catalog_sort(c);
        return st == NULL && sheaf__catalog_defects(c) > 0 ? sheaf__dialect_denied(c->root, c) : st;
    }
    st = sheaf__catalog_check(c);
    TRY(st, sheaf__catalog_ranks(c));
    for (int64_t i = 0; hints != NULL && hints->drop_unread && i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, "unread") == 0)
            c->finding[i].severity = SHEAF_WARNING;
    if (st == NULL && c->count == 0 && sheaf__catalog_defects(c) == 0)
        st = sheaf__defect(c, "missing", c->root, "", "tensors", "use a complete copy", "none");
    TRY(st, c->dialect->training && sheaf__catalog_defects(c) == 0 ? check_trained(c) : NULL);
    TRY(st, sheaf__catalog_tied_head(c));
    TRY(st, check_extras(c));
    TRY(st, sheaf__catalog_defects(c) > 0 ? sheaf__dialect_denied(c->root, c) : NULL);
    return st != NULL ? st : check_dtypes(c);
}
