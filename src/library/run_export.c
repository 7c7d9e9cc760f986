/* run_export.c - see run_export.h. */
#include "library/run_export.h"

#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/output.h"
#include "checkpoint/store/probe.h"
#include "library/run_model.h"
#include "sheaf/checkpoint.h"
#include "train/export.h"

sheaf_status *sheaf__run_export_is(bool *is, bool *adapter, const char *path)
{
    sheaf__run_reading r = { 0 };
    sheaf_status *st = sheaf__run_read(&r, is, path, true);
    *adapter = r.options.method == SHEAF_METHOD_LORA;
    sheaf__run_reading_release(&r);
    return st;
}

static sheaf_status *find_base(sheaf__run_export_result *out, const sheaf__run_reading *r,
                               const sheaf__run_export_options *how)
{
    const char *base = how->base != NULL ? how->base : r->options.model;
    if (base == NULL || base[0] == '\0' || sheaf__path_kind(base) == SHEAF_PATH_NONE) {
        sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: the base of this run", r->step);
        if (base == NULL || base[0] == '\0')
            sheaf_found(sheaf_expected(st, "the run's settings beside it, which name it"), "none");
        else
            sheaf_found(sheaf_expected(st, "a model at %s%s", base,
                                       how->base != NULL ? "" : ", as its settings say"),
                        "nothing there");
        return sheaf_try_this(st, "where it lies now: `base BASE`");
    }
    sheaf_status *st = sheaf__run_copy(&out->base, base);
    return st == NULL ? sheaf__run_copy(&out->config,
                                        how->config != NULL ? how->config : r->options.config)
                      : st;
}

static sheaf_status *write_step(sheaf__run_export_result *out, const sheaf__run_reading *r,
                                const sheaf__run_base *t, const sheaf__run_export_options *how)
{
    sheaf_checkpoint *checkpoint = NULL;
    sheaf_source *masters = NULL;
    const sheaf_train_options *o = &r->options;
    const char *name = o->base_name != NULL && o->base_name[0] != '\0' ? o->base_name : out->base;
    const sheaf__chat_files chat = sheaf__run_chat_files(o, out->base, t->tokenizer.folder);
    sheaf_status *st = sheaf_checkpoint_open(&checkpoint, r->step);
    TRY(st, sheaf_in(sheaf__run_check_base(checkpoint->manifest->progress, &t->opened,
                                           &(sheaf__origin_from){ .model = out->base,
                                                                  .tokenizer = o->tokenizer,
                                                                  .tokens = t->tokenizer.tokens,
                                                                  .out = r->out },
                                           NULL, false),
                     "%s", r->step));
    TRY(st, sheaf__checkpoint_source(&masters, checkpoint));
    TRY(st, out->adapter
                ? sheaf__export_adapter(how->dst, false, t->opened.lora, name, masters,
                                        t->opened.weights, checkpoint->manifest->progress,
                                        t->tokenizer.folder, &chat)
                : sheaf__export_model(how->dst, false, &t->opened, out->base, masters, &chat));
    if (st == NULL)
        out->step = checkpoint->manifest->step;
    if (masters != NULL)
        masters->close(masters);
    sheaf_checkpoint_close(checkpoint);
    return st;
}

sheaf_status *sheaf__run_export(sheaf__run_export_result *out, const sheaf__run_export_options *how)
{
    sheaf__run_reading r = { 0 };
    sheaf__run_base trained = { 0 };
    bool is = false;
    *out = (sheaf__run_export_result){ 0 };
    sheaf_status *st = sheaf__run_read(&r, &is, how->path, true);
    if (st == NULL && !is)
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", how->path),
                            "a run, or a checkpoint of training");
    TRY(st, find_base(out, &r, how));
    TRY(st, sheaf__output_outside(how->dst, how->path));
    TRY(st, sheaf__output_outside(how->dst, out->base));
    TRY(st,
        sheaf__run_base_open(&trained, &r.options,
                             &(sheaf__open_options){
                                 .model = out->base, .config = out->config, .as_stored = true }));
    out->adapter = r.options.method == SHEAF_METHOD_LORA;
    if (!trained.opened.has_codes)
        out->quantize = r.options.quantize;
    if (st == NULL) {
        sheaf_note(how->events, "%s, on %s", r.step, out->base);
        out->family = trained.opened.config.family;
        st = write_step(out, &r, &trained, how);
    }
    sheaf__run_base_release(&trained);
    sheaf__run_reading_release(&r);
    return st;
}

sheaf_status *sheaf__run_export_count(int64_t *tensors, int64_t *bytes, const char *dst)
{
    sheaf_weights *weights = NULL;
    sheaf_weights_facts facts = { .size = sizeof facts };
    sheaf_status *st = sheaf_weights_open(&weights, dst, NULL);
    TRY(st, sheaf_weights_info(&facts, weights));
    *tensors = facts.tensors;
    *bytes = facts.bytes;
    sheaf_weights_close(weights);
    return st;
}

void sheaf__run_export_result_release(sheaf__run_export_result *e)
{
    free(e->base);
    free(e->config);
    *e = (sheaf__run_export_result){ 0 };
}

/* From the last to the first: "x-1" begins "x-10". */
static void emit_named(void *context, const sheaf_event *event)
{
    const sheaf__run_export_names *names = context;
    sheaf_event named = *event;
    char *text = event->text == NULL ? NULL : strdup(event->text);
    for (int i = names->count - 1; text != NULL && i >= 0; i--) {
        char *next = sheaf__replaced(text, names->temporary[i], names->path[i]);
        free(text);
        text = next;
    }
    named.text = text == NULL ? event->text : text;
    sheaf_emit(names->to, &named);
    free(text);
}

void sheaf__run_export_named(sheaf__run_export_names *names, const char *temporary,
                             const char *path)
{
    names->events = (sheaf_events){ emit_named, names };
    names->temporary[names->count] = temporary;
    names->path[names->count++] = path;
}

sheaf_status *sheaf__run_export_status(const sheaf__run_export_names *names, sheaf_status *st)
{
    for (int i = names->count - 1; i >= 0; i--)
        sheaf__status_replace(st, names->temporary[i], names->path[i]);
    return st;
}
