/* look.c - see look.h. */
#include "checkpoint/store/look.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/store/own_catalog.h"
#include "dialects/hf/hf.h"
#include "dialects/hf/catalog.h"
#include "dialects/peft/peft.h"
#include "dialects/peft/catalog.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

void sheaf__look_view(int64_t *rows, int64_t *cols, const sheaf_source_entry *e)
{
    *rows = *cols = 1;
    for (int i = 0; i < e->ndim; i++)
        *(i > 0 && i == e->ndim - 1 ? cols : rows) *= e->shape[i];
}

/* ---- one file ---- */

typedef struct file_source {
    sheaf_source source;
    sheaf_safetensors *file;
    sheaf_source_entry *entry; /* in the order of file->header.by_name */
} file_source;

static const sheaf_source_entry *file_find(sheaf_source *self, const char *name)
{
    file_source *f = (file_source *)self;
    int64_t low = 0, high = f->file->header.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(name, f->entry[middle].name);
        if (order == 0)
            return &f->entry[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static int64_t file_count(sheaf_source *self)
{
    return ((file_source *)self)->file->header.count;
}
static const sheaf_source_entry *file_entry(sheaf_source *self, int64_t i)
{
    return &((file_source *)self)->entry[i];
}

static sheaf_status *file_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const file_source *f = (file_source *)self;
    const sheaf_source_entry *e = file_find(self, name);
    const sheaf_safetensors_entry *stored = sheaf__safetensors_find(f->file, name);
    if (e == NULL || stored == NULL)
        return sheaf_fail(SHEAF_E_LAYOUT, "no tensor '%s'", name);
    if (e->ndim == 1 || e->ndim == 2)
        return sheaf__safetensors_read_box(f->file, stored, row0, rows, col0, cols, dst);
    int64_t all_rows, all_cols;
    sheaf__look_view(&all_rows, &all_cols, e);
    const int64_t size = (int64_t)sheaf_dtype_bytes(e->dtype);
    if (size == 0 || col0 != 0 || cols != all_cols)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': a part of a tensor of %d axes", name,
                          e->ndim);
    return sheaf__safetensors_read(f->file, stored, row0 * cols * size, dst, rows * cols * size);
}

static void file_close(sheaf_source *self)
{
    file_source *f = (file_source *)self;
    sheaf__safetensors_close(f->file);
    free(f->entry);
    free(f);
}

sheaf_status *sheaf__file_source(sheaf_source **out, const char *path)
{
    sheaf_safetensors *file;
    sheaf_status *st = sheaf__safetensors_open(&file, path);
    if (st != NULL)
        return st;
    file_source *f = calloc(1, sizeof *f);
    sheaf_source_entry *entry = calloc((size_t)file->header.count + 1, sizeof *entry);
    if (f == NULL || entry == NULL) {
        sheaf__safetensors_close(file);
        free(f);
        free(entry);
        return sheaf_fail(SHEAF_E_MEMORY, "%s", path);
    }
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[file->header.by_name[i]];
        entry[i] = (sheaf_source_entry){ e->name, e->dtype, e->ndim, { 0 } };
        memcpy(entry[i].shape, e->shape, sizeof e->shape);
    }
    *f = (file_source){ { file_find, file_count, file_entry, file_read, file_close }, file, entry };
    *out = &f->source;
    return NULL;
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

static void read_tied(sheaf_look *look, const char *text)
{
    sheaf_config config;
    sheaf_status *st = sheaf_config_parse(&config, text, strlen(text));
    if (st == NULL) {
        look->tied = config.tied;
        sheaf_config_release(&config);
    }
    /* A config sheaf cannot read is for the caller to report; the tensors are there. */
    sheaf_status_free(st);
}

/* What only a catalog can open. */
static sheaf_status *open_catalog(sheaf_look *look, const char *path)
{
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__any_read(&c, path, NULL, NULL);
    if (st != NULL)
        return st;
    look->dialect = c->dialect->name;
    if (c->config != NULL)
        read_tied(look, c->config);
    if (c->config_path != NULL && (look->config = strdup(c->config_path)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s", path);
    if (st == NULL)
        return sheaf__catalog_source(&look->source, c, false);
    sheaf__catalog_free(c);
    return st;
}

static sheaf_status *open_model(sheaf_look *look, const char *path)
{
    if (sheaf__dialect_is_foreign(path))
        return open_catalog(look, path);
    look->dialect = sheaf__dialect_hf.name;
    sheaf_status *st = sheaf_hf_open(&look->source, path);
    if (st != NULL && sheaf__dialect_hf.is(path) &&
        sheaf_status_code(st) != SHEAF_E_MEMORY) { /* pickled weights, variants */
        sheaf_status *second = open_catalog(look, path);
        sheaf_status_free(second == NULL ? st : second);
        return second == NULL ? NULL : st;
    }
    if (st == NULL)
        st = inside(&look->config, path, "config.json");
    char *text = NULL;
    size_t size;
    if (st != NULL || look->config == NULL)
        return st;
    sheaf_status_free(sheaf__file_read_all(&text, &size, look->config, 16 << 20));
    if (text != NULL)
        read_tied(look, text);
    free(text);
    return NULL;
}

static sheaf_status *open_folder(sheaf_look *look, const char *path)
{
    sheaf_status *st = kind_of_folder(&look->kind, path);
    if (st != NULL)
        return st;
    switch (look->kind) {
    case SHEAF_LOOK_ADAPTER:
        look->dialect = sheaf__dialect_peft.name;
        st = sheaf_peft_open(&look->source, path);
        return st != NULL ? st : inside(&look->config, path, "adapter_config.json");
    case SHEAF_LOOK_CHECKPOINT:
        look->dialect = sheaf__dialect_own.name;
        st = sheaf_checkpoint_open(&look->checkpoint, path);
        return st != NULL ? st : sheaf__checkpoint_source(&look->source, look->checkpoint);
    case SHEAF_LOOK_RUN: look->dialect = sheaf__dialect_own.name; return NULL;
    default: return open_model(look, path);
    }
}

sheaf_status *sheaf_look_open(sheaf_look *out, const char *path)
{
    *out = (sheaf_look){ 0 };
    sheaf_status *st;
    switch (sheaf__path_kind(path)) {
    case SHEAF_PATH_DIR: st = open_folder(out, path); break;
    case SHEAF_PATH_FILE:
        out->kind = SHEAF_LOOK_FILE;
        out->dialect = sheaf__dialect_hf.name;
        st = sheaf__torch_is(path) ? open_catalog(out, path)
                                   : sheaf__file_source(&out->source, path);
        break;
    default:
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "a folder or a .safetensors file"),
            "nothing of that name");
    }
    if (st != NULL)
        sheaf_look_close(out);
    return st;
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
