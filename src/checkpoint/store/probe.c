/* probe.c - see probe.h. */
#include "checkpoint/store/probe.h"

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/dialects.h"
#include "dialects/open.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

void sheaf__entry_view(int64_t *rows, int64_t *cols, const sheaf_source_entry *e)
{
    sheaf__safetensors_view(rows, cols, e->ndim, e->shape);
}

/* ---- recognition ---- */

static sheaf_weights_kind kind_of_folder(const char *dir)
{
    static const struct {
        const char *name;
        sheaf_weights_kind kind;
    } signs[] = {
        { "adapter_config.json", SHEAF_WEIGHTS_ADAPTER },
        { "adapter_model.safetensors", SHEAF_WEIGHTS_ADAPTER },
        { "adapter_model.bin", SHEAF_WEIGHTS_ADAPTER },
        { "manifest.json", SHEAF_WEIGHTS_CHECKPOINT },
        { "checkpoints", SHEAF_WEIGHTS_RUN },
    };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (sheaf__path_has(dir, signs[i].name, SHEAF_PATH_NONE))
            return signs[i].kind;
    return SHEAF_WEIGHTS_MODEL;
}

static void read_tied(sheaf_probe *probe, const sheaf_catalog *c)
{
    sheaf_config config;
    sheaf_status *st = sheaf__open_config(&config, c);
    if (st == NULL) {
        probe->tied = config.tied;
        sheaf_config_release(&config);
    }
    /* A config that sheaf cannot read is the caller's error to report; the tensors can be read. */
    sheaf_status_free(st);
}

/* Takes c over. bare: a file of tensors of no known model. */
static sheaf_status *take_tensors(sheaf_probe *probe, sheaf_catalog *c, bool bare, bool all)
{
    const bool adapter = probe->kind == SHEAF_WEIGHTS_ADAPTER;
    probe->dialect = c->dialect->name;
    if (!adapter && !bare)
        read_tied(probe, c);
    if (c->config_path == NULL || bare || (probe->config = strdup(c->config_path)) != NULL)
        return sheaf__catalog_source(&probe->source, c, adapter || all);
    sheaf__catalog_free(c);
    return sheaf__no_memory("path of a config");
}

static sheaf_status *open_tensors(sheaf_probe *probe, const char *path, bool all)
{
    const bool adapter = probe->kind == SHEAF_WEIGHTS_ADAPTER,
               bare = probe->kind == SHEAF_WEIGHTS_FILE && !sheaf__torch_is(path);
    const sheaf_dialect_hints hints = { .from = bare ? sheaf__dialect_hf.name : NULL,
                                        .want = adapter ? SHEAF_WANT_ADAPTER : SHEAF_WANT_ANY,
                                        .as_stored = true,
                                        .moments = all,
                                        .buffers = bare };
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__any_read(&c, path, &hints);
    return st == NULL ? take_tensors(probe, c, bare, all) : st;
}

static sheaf_status *open_folder(sheaf_probe *probe, const char *path, bool all)
{
    probe->kind = kind_of_folder(path);
    if (probe->kind != SHEAF_WEIGHTS_CHECKPOINT && probe->kind != SHEAF_WEIGHTS_RUN)
        return open_tensors(probe, path, all);
    probe->dialect = sheaf__dialect_own.name;
    if (probe->kind == SHEAF_WEIGHTS_RUN)
        return NULL;
    sheaf_status *st = sheaf_checkpoint_open(&probe->checkpoint, path);
    return st != NULL ? st : sheaf__checkpoint_source(&probe->source, probe->checkpoint);
}

sheaf_status *sheaf_probe_open(sheaf_probe *out, const char *path, bool all)
{
    *out = (sheaf_probe){ 0 };
    const sheaf_path_kind kind = sheaf__path_kind(path);
    char gguf[SHEAF_PATH_SIZE];
    sheaf_status *st;
    if (kind == SHEAF_PATH_DIR)
        st = open_folder(out, path, all);
    else if (kind == SHEAF_PATH_FILE) {
        out->kind = sheaf__gguf_at(gguf, path) != NULL ? SHEAF_WEIGHTS_MODEL : SHEAF_WEIGHTS_FILE;
        st = open_tensors(out, path, all);
    } else {
        st = sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "a folder or a .safetensors file");
        sheaf__path_hub(sheaf_found(st, "%s", sheaf__path_what(path)), path);
    }
    if (st != NULL)
        sheaf_probe_close(out);
    return st;
}

sheaf_status *sheaf_probe_open_as(sheaf_probe *out, const char *path,
                                  const sheaf_dialect_hints *hints)
{
    sheaf_catalog *c = NULL;
    *out = (sheaf_probe){ 0 };
    sheaf_status *st = sheaf__any_read(&c, path, hints);
    if (st != NULL)
        return st;
    out->kind = c->dialect->adapter    ? SHEAF_WEIGHTS_ADAPTER
                : c->dialect->manifest ? SHEAF_WEIGHTS_CHECKPOINT
                                       : SHEAF_WEIGHTS_MODEL;
    st = take_tensors(out, c, false, false);
    if (st != NULL)
        sheaf_probe_close(out);
    return st;
}

void sheaf_probe_close(sheaf_probe *probe)
{
    if (probe->source != NULL)
        probe->source->close(probe->source);
    sheaf_checkpoint_close(probe->checkpoint);
    free(probe->config);
    *probe = (sheaf_probe){ 0 };
}

const char *sheaf_probe_kind_name(sheaf_weights_kind kind)
{
    static const char *const names[] = { "model", "adapter", "checkpoint", "run", "file" };
    return names[kind];
}
