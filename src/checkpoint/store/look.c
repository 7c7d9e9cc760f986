/* look.c - see look.h. */
#include "base/status.h"
#include "checkpoint/store/look.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/store/own_catalog.h"
#include "dialects/common/dialects.h"
#include "dialects/open.h"
#include "formats/torch.h"

void sheaf__look_view(int64_t *rows, int64_t *cols, const sheaf_source_entry *e)
{
    *rows = *cols = 1;
    for (int i = 0; i < e->ndim; i++)
        *(i > 0 && i == e->ndim - 1 ? cols : rows) *= e->shape[i];
}

/* ---- telling what is there ---- */

/* *out = "dir/name" if there is such a thing, else NULL. */
static sheaf_status *inside(char **out, const char *dir, const char *name)
{
    sheaf_status *st = sheaf__path_join(out, dir, name);
    if (st == NULL && sheaf__path_kind(*out) == SHEAF_PATH_NONE) {
        free(*out);
        *out = NULL;
    }
    return st;
}

static sheaf_status *has(bool *yes, const char *dir, const char *name)
{
    char *path = NULL;
    sheaf_status *st = inside(&path, dir, name);
    *yes = path != NULL;
    free(path);
    return st;
}

static sheaf_status *kind_of_folder(sheaf_look_kind *out, const char *dir)
{
    static const struct {
        const char *name;
        sheaf_look_kind kind;
    } signs[] = {
        { "adapter_config.json", SHEAF_LOOK_ADAPTER },
        { "adapter_model.safetensors", SHEAF_LOOK_ADAPTER },
        { "adapter_model.bin", SHEAF_LOOK_ADAPTER },
        { "manifest.json", SHEAF_LOOK_CHECKPOINT },
        { "checkpoints", SHEAF_LOOK_RUN },
    };
    *out = SHEAF_LOOK_MODEL;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        bool yes;
        sheaf_status *st = has(&yes, dir, signs[i].name);
        if (st != NULL)
            return st;
        if (yes) {
            *out = signs[i].kind;
            return NULL;
        }
    }
    return NULL;
}

static void read_tied(sheaf_look *look, const sheaf_catalog *c)
{
    sheaf_config config;
    sheaf_status *st = sheaf__open_config(&config, c);
    if (st == NULL) {
        look->tied = config.tied;
        sheaf_config_release(&config);
    }
    /* A config sheaf cannot read is for the caller to report; the tensors are there. */
    sheaf_status_free(st);
}

static sheaf_status *open_tensors(sheaf_look *look, const char *path, bool all)
{
    const bool adapter = look->kind == SHEAF_LOOK_ADAPTER,
               bare = look->kind == SHEAF_LOOK_FILE && !sheaf__torch_is(path);
    const sheaf_dialect_hints hints = { .from = bare ? sheaf__dialect_hf.name : NULL,
                                        .want = adapter ? SHEAF_WANT_ADAPTER : SHEAF_WANT_ANY,
                                        .as_stored = true,
                                        .moments = all,
                                        .buffers = bare };
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__any_read(&c, path, &hints);
    if (st != NULL)
        return st;
    look->dialect = c->dialect->name;
    if (!adapter && !bare)
        read_tied(look, c);
    if (c->config_path != NULL && !bare && (look->config = strdup(c->config_path)) == NULL)
        st = sheaf__no_memory(path);
    if (st == NULL)
        return sheaf__catalog_source(&look->source, c, adapter || all);
    sheaf__catalog_free(c);
    return st;
}

static sheaf_status *open_folder(sheaf_look *look, const char *path, bool all)
{
    sheaf_status *st = kind_of_folder(&look->kind, path);
    if (st != NULL)
        return st;
    switch (look->kind) {
    case SHEAF_LOOK_CHECKPOINT:
        look->dialect = sheaf__dialect_own.name;
        st = sheaf_checkpoint_open(&look->checkpoint, path);
        return st != NULL ? st : sheaf__checkpoint_source(&look->source, look->checkpoint);
    case SHEAF_LOOK_RUN: look->dialect = sheaf__dialect_own.name; return NULL;
    default: return open_tensors(look, path, all);
    }
}

static sheaf_status *open_path(sheaf_look *out, const char *path, bool all)
{
    *out = (sheaf_look){ 0 };
    sheaf_status *st;
    switch (sheaf__path_kind(path)) {
    case SHEAF_PATH_DIR: st = open_folder(out, path, all); break;
    case SHEAF_PATH_FILE:
        out->kind = SHEAF_LOOK_FILE;
        st = open_tensors(out, path, all);
        break;
    default:
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "a folder or a .safetensors file");
        sheaf__path_hub(sheaf_found(st, "%s", sheaf__path_what(path)), path);
    }
    if (st != NULL)
        sheaf_look_close(out);
    return st;
}

sheaf_status *sheaf_look_open(sheaf_look *out, const char *path)
{
    return open_path(out, path, false);
}

sheaf_status *sheaf__look_open_all(sheaf_look *out, const char *path)
{
    return open_path(out, path, true);
}

void sheaf_look_close(sheaf_look *look)
{
    if (look->source != NULL)
        look->source->close(look->source);
    sheaf_checkpoint_close(look->checkpoint);
    free(look->config);
    *look = (sheaf_look){ 0 };
}

const char *sheaf_look_kind_name(sheaf_look_kind kind)
{
    static const char *const names[] = { "model", "adapter", "checkpoint", "run", "file" };
    return names[kind];
}
