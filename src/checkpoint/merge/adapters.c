/* adapters.c - several adapters combined, written as one PEFT folder. */
#include "base/base.h"
#include "checkpoint/store/stream.h"
#include "checkpoint/merge/plan.h"
#include "dialects/peft/peft.h"

/* A combined B is [out, r]; beside the A of a convolution PEFT wants [out, r, 1, 1]. */
static sheaf_status *make_spec(sheaf_safetensors_spec *out, sheaf_source *source,
                               const sheaf_source_entry *e)
{
    static const char b_end[] = ".lora_B.weight", a_end[] = ".lora_A.weight";
    *out = *e;
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

typedef struct writing {
    sheaf_folder *folder;
    sheaf_source_entry *entry;
    sheaf_safetensors_spec *spec;
} writing;

/* [out, r, 1, 1] is rows of one column; of a box that is narrower than [out, r] there is one row.
 */
static sheaf_status *put(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                         int64_t cols, const void *src)
{
    const writing *w = context;
    const sheaf_source_entry *e = &w->entry[index];
    if (w->spec[index].ndim == e->ndim)
        return sheaf__folder_write(w->folder, index, row0, rows, col0, cols, src);
    return sheaf__folder_write(w->folder, index, row0 * e->shape[1] + col0, rows * cols, 0, 1, src);
}

/* The fingerprint of the base that the adapters share; "" unless all of them state it. */
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
    char *json = NULL;
    int64_t total = 0;
    _Atomic int64_t done = 0;
    writing w = { NULL, calloc((size_t)n + 1, sizeof *w.entry),
                  calloc((size_t)n + 1, sizeof *w.spec) };
    sheaf_status *st = w.entry == NULL || w.spec == NULL ? sheaf__no_memory("combine") : NULL;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        w.entry[i] = *source->entry(source, i);
        total += sheaf__entry_bytes(&w.entry[i]);
        st = make_spec(&w.spec[i], source, &w.entry[i]);
    }
    TRY(st, sheaf_lora_options_json(&json, &a->options));
    TRY(st, sheaf__output_sweep(o->dst, o->events));
    TRY(st, sheaf_peft_begin(&w.folder, o->dst, json, print, w.spec, n, false));
    TRY(st, sheaf__copy_all(&(sheaf_copy_job){ .source = source,
                                               .entry = w.entry,
                                               .count = n,
                                               .put = put,
                                               .context = &w,
                                               .stop = sheaf__control_stop(o->control),
                                               .command = "merge",
                                               .events = o->events,
                                               .done = &done,
                                               .total = total,
                                               .what = "bytes combined" }));
    st = sheaf__folder_end(w.folder, st);
    free(w.entry);
    free(w.spec);
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
