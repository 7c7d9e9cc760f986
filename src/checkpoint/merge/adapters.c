/* adapters.c - several adapters combined, written as one PEFT folder. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/store/look.h"
#include "checkpoint/merge/plan.h"
#include "dialects/peft/peft.h"

enum { BLOCK_ELEMENTS = 1 << 18 };

/* A combined B is [out, r]; beside the A of a convolution PEFT wants [out, r, 1, 1]. */
static sheaf_status *make_spec(sheaf_safetensors_spec *out, sheaf_source *source,
                               const sheaf_source_entry *e)
{
    static const char b_end[] = ".lora_B.weight", a_end[] = ".lora_A.weight";
    *out = (sheaf_safetensors_spec){ .name = e->name, .dtype = e->dtype, .ndim = e->ndim };
    memcpy(out->shape, e->shape, sizeof out->shape);
    if (!sheaf__ends_with(e->name, b_end))
        return NULL;
    char *name = NULL;
    if (asprintf(&name, "%.*s%s", (int)(strlen(e->name) - (sizeof b_end - 1)), e->name, a_end) < 0)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", e->name);
    const sheaf_source_entry *a = source->find(source, name);
    free(name);
    for (; a != NULL && out->ndim < a->ndim; out->ndim++)
        out->shape[out->ndim] = 1;
    return NULL;
}

static sheaf_status *write_tensor(sheaf_folder *folder, int64_t index, sheaf_source *source,
                                  const sheaf_source_entry *e, const sheaf_safetensors_spec *spec,
                                  void *buffer)
{
    int64_t rows, cols;
    sheaf__look_view(&rows, &cols, e);
    const int64_t wide = cols < BLOCK_ELEMENTS ? cols : BLOCK_ELEMENTS,
                  high = wide > 0 ? BLOCK_ELEMENTS / wide : 1;
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < rows && st == NULL; r += high)
        for (int64_t c = 0; c < cols && st == NULL; c += wide) {
            const int64_t h = rows - r < high ? rows - r : high,
                          w = cols - c < wide ? cols - c : wide;
            st = source->read(source, e->name, r, h, c, w, buffer);
            if (st == NULL && spec->ndim == e->ndim)
                st = sheaf__folder_write(folder, index, r, h, c, w, buffer);
            else if (st == NULL && w == cols) /* [out, r, 1, 1] is rows of one column */
                st = sheaf__folder_write(folder, index, r * cols, h * cols, 0, 1, buffer);
            else if (st == NULL)
                st = sheaf__folder_write(folder, index, r * cols + c, w, 0, 1, buffer); /* h is 1 */
        }
    return st;
}

/* Of adapters that are of one base, as far as they tell; "": not known of all. */
static sheaf_status *find_base(const char **print, const sheaf__merge_plan *p)
{
    const sheaf__merge_adapter *known = NULL;
    *print = "";
    bool all = true;
    for (int i = 0; i < p->nread; i++) {
        const sheaf__merge_adapter *a = &p->read[i];
        all = all && a->base_print[0] != '\0';
        if (known != NULL && a->base_print[0] != '\0' &&
            strcmp(a->base_print, known->base_print) != 0) {
            sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: its base", a->path);
            sheaf_expected(st, "fingerprint %s, as %s has it", known->base_print, known->path);
            return sheaf_try_this(sheaf_found(st, "another, %s", a->base_print),
                                  "adapters that were trained on one base");
        }
        known = a->base_print[0] != '\0' ? a : known;
    }
    *print = all ? known->base_print : "";
    return NULL;
}

static sheaf_status *write_adapter(const sheaf__merge_adapter *a, const char *print,
                                   const sheaf_weights_merge_options *o)
{
    sheaf_source *source = a->source;
    const int64_t n = source->count(source);
    sheaf_folder *folder = NULL;
    char *json = NULL;
    sheaf_safetensors_spec *specs = calloc((size_t)n + 1, sizeof *specs);
    void *buffer = malloc((size_t)BLOCK_ELEMENTS * 4);
    sheaf_status *st = specs == NULL || buffer == NULL ? sheaf__no_memory("combine") : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = make_spec(&specs[i], source, source->entry(source, i));
    TRY(st, sheaf_lora_options_json(&json, &a->options));
    TRY(st, sheaf__output_sweep(o->dst, o->events));
    TRY(st, sheaf_peft_begin(&folder, o->dst, json, print, specs, n, false));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        if (o->control != NULL && atomic_load(&o->control->stop) != 0)
            st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "merge"),
                             "a request to stop; nothing was left behind");
        else
            st = write_tensor(folder, i, source, source->entry(source, i), &specs[i], buffer);
        const sheaf_event event = {
            .kind = SHEAF_EVENT_PROGRESS, .text = "tensors combined", .done = i + 1, .total = n
        };
        sheaf_emit(o->events, &event);
    }
    if (st == NULL)
        st = sheaf__folder_commit(folder);
    else
        sheaf__folder_abandon(folder);
    free(specs);
    free(buffer);
    free(json);
    return st;
}

sheaf_status *sheaf_merge_adapters(const sheaf_weights_merge_options *o)
{
    sheaf__merge_plan plan = { 0 };
    const char *print = "";
    if (o->combine == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "combination"), "linear or cat");
    sheaf_status *st = sheaf__merge_check_dst(o);
    TRY(st, sheaf__merge_open_adapters(&plan, o));
    TRY(st, find_base(&print, &plan));
    TRY(st, sheaf__merge_combine(&plan, o));
    TRY(st, write_adapter(&plan.combined, print, o));
    sheaf__merge_plan_close(&plan);
    return st;
}
