/* export.c - see export.h. */
#include "train/export.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/look.h"
#include "dialects/hf.h"
#include "dialects/peft.h"
#include "ops/kernels.h"

/* Where the tensors of the folder being written come from: the checkpoint's masters, for
 * what was trained, and the base for the rest. */
typedef struct origin {
    sheaf_source *masters, *base;
    const sheaf_safetensors_spec *spec;
    const char *const *master_name; /* [specs] name in the checkpoint, where it differs */
    const sheaf__kernels *kernels;
} origin;

static sheaf_status *rows(void *self, int64_t index, int64_t row0, int64_t n, void *dst)
{
    const origin *o = self;
    const sheaf_safetensors_spec *spec = &o->spec[index];
    const int64_t cols = spec->ndim == 1 ? 1 : spec->shape[1];
    const char *name = o->master_name != NULL ? o->master_name[index] : spec->name;
    char master[512];
    snprintf(master, sizeof master, "master/%s", name);
    if (o->masters->find(o->masters, master) == NULL)
        return o->base->read(o->base, name, row0, n, 0, cols, dst);
    if (spec->dtype == SHEAF_F32)
        return o->masters->read(o->masters, master, row0, n, 0, cols, dst);
    float *full = malloc((size_t)(n * cols) * sizeof *full);
    if (full == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s", name);
    sheaf_status *st = o->masters->read(o->masters, master, row0, n, 0, cols, full);
    if (st == NULL)
        o->kernels->convert(dst, spec->dtype, full, SHEAF_F32, n * cols);
    free(full);
    return st;
}

enum { CHUNK = 1 << 20 }; /* bytes at a time */

static sheaf_status *write_adapter(const char *dst, const sheaf__opened *opened, const char *model, sheaf_source *masters)
{
    const sheaf_lora *lora = opened->lora;
    const int64_t count = 2 * (int64_t)lora->nmodules + lora->nsaved;
    sheaf_safetensors_spec *spec = calloc((size_t)count + 1, sizeof *spec);
    const char **name = calloc((size_t)count + 1, sizeof *name);
    char *config = NULL;
    sheaf_folder *folder = NULL;
    sheaf_lora_options options = lora->options;
    options.base_name = (char *)model;
    sheaf_status *st = spec == NULL || name == NULL ? sheaf_fail(SHEAF_E_MEMORY, "adapter") : sheaf_lora_options_json(&config, &options);
    int64_t n = 0;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        name[n] = m->a_name;
        spec[n++] = (sheaf_safetensors_spec){ m->a_name, SHEAF_F32, 2, { m->a_shape[0], m->a_shape[1] } };
        name[n] = m->b_name;
        spec[n++] = (sheaf_safetensors_spec){ m->b_name, SHEAF_F32, 2, { m->b_shape[0], m->b_shape[1] } };
    }
    for (int i = 0; i < lora->nsaved && st == NULL; i++) {
        const sheaf_tensor *t = lora->saved[i];
        name[n] = t->name;
        spec[n++] = (sheaf_safetensors_spec){ lora->saved_name[i], SHEAF_F32, t->ndim, { t->shape[0], t->shape[1] } };
    }
    if (st == NULL)
        st = sheaf_peft_begin(&folder, dst, config, spec, n, true, NULL);
    if (st == NULL) {
        origin from = { masters, opened->base, spec, name, sheaf__kernels_for(NULL) };
        st = sheaf__folder_write_all(folder, rows, &from, CHUNK);
        if (st == NULL)
            st = sheaf__folder_commit(folder);
        else
            sheaf__folder_abandon(folder);
    }
    free(config);
    free(name);
    free(spec);
    return st;
}

static sheaf_status *write_model(const char *dst, const sheaf__opened *opened, const char *model, sheaf_source *masters)
{
    sheaf_safetensors_spec *spec = NULL;
    int64_t count = 0;
    sheaf_folder *folder = NULL;
    sheaf_status *st = sheaf_hf_specs(&spec, &count, opened->schema, opened->base, SHEAF_F32);
    if (st == NULL)
        st = sheaf_hf_begin(&folder, dst, opened->config.json, spec, count, 0, true, NULL);
    if (st == NULL) {
        origin from = { masters, opened->base, spec, NULL, sheaf__kernels_for(NULL) };
        st = sheaf_hf_copy_extras(folder, model);
        if (st == NULL)
            st = sheaf__folder_write_all(folder, rows, &from, CHUNK);
        if (st == NULL)
            st = sheaf__folder_commit(folder);
        else
            sheaf__folder_abandon(folder);
    }
    free(spec);
    return st;
}

sheaf_status *sheaf__export(char **result, char **checkpoint, const sheaf_train_options *o, const sheaf__opened *opened, int64_t step)
{
    sheaf_checkpoint *from = NULL;
    sheaf_source *masters = NULL;
    const bool lora = o->method == SHEAF_METHOD_LORA;
    sheaf_status *st = NULL;
    if (asprintf(result, "%s/%s", o->out, lora ? "adapter" : "model") < 0)
        *result = NULL;
    if (asprintf(checkpoint, "%s/checkpoints/step-%08lld", o->out, (long long)step) < 0)
        *checkpoint = NULL;
    if (*result == NULL || *checkpoint == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "result of the run");
    if (st == NULL)
        st = sheaf_checkpoint_open(&from, *checkpoint);
    if (st == NULL)
        st = sheaf__checkpoint_source(&masters, from);
    if (st == NULL)
        st = lora ? write_adapter(*result, opened, o->model, masters) : write_model(*result, opened, o->model, masters);
    if (masters != NULL)
        masters->close(masters);
    sheaf_checkpoint_close(from);
    return st;
}
