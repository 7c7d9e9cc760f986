/* output.c - see plan.h. */
#include "checkpoint/merge/plan.h"

#include "base/output.h"
#include "base/base.h"
#include "catalog/over_source.h"
#include "dialects/hf/chat_files.h"
#include "dialects/hf/hf.h"
#include "dialects/open.h"
#include "lora/names.h"

static sheaf_status *begin_sat(sheaf__merge_output *out, const sheaf__merge_plan *plan,
                               const char *config, const sheaf_weights_merge_options *o)
{
    sheaf__over_source list = {
        0
    }; /* the tensors as SAT's writer lists them; it does not read their data */
    const sheaf_sat_write_options how = { .config = config, .ways = o->tp };
    out->index = calloc((size_t)plan->count + 1, sizeof *out->index);
    sheaf_status *st = sheaf__over_init(&list, plan->count);
    TRY(st, out->index == NULL ? sheaf__no_memory("merge") : NULL);
    for (int64_t i = 0; st == NULL && i < plan->count; i++)
        st = sheaf__over_add(&list, strdup(plan->specs[i].name), plan->specs[i]);
    TRY(st, sheaf_sat_begin(&out->sat, o->dst, &list.source, &how));
    for (int64_t i = 0; st == NULL && i < sheaf_sat_count(out->sat);
         i++) /* exactly these tensors */
        out->index[sheaf__over_find(&list, sheaf_sat_name(out->sat, i))] = i;
    sheaf__over_release(&list);
    return st;
}

/* ---- the tokenizer ---- */

/* Does the adapter replace an embedding table, or rows of one? */
static bool changes_tokens(const sheaf__merge_plan *p, int number)
{
    bool yes = p->resized > 0;
    for (int64_t i = 0; i < p->count && !yes; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        for (int s = 0; s < t->nsteps && !yes; s++)
            yes = t->step[s].number == number && t->step[s].kind == SHEAF__MERGE_PICKS;
        yes |= t->whole != NULL && t->whole_number == number && t->saved &&
               sheaf__lora_is_table(t->name, t->ndim);
    }
    return yes;
}

/* The folder of the adapter whose tokenizer has the new tokens; NULL: the base's tokenizer is
 * copied. */
static const char *find_tokenizer(const sheaf__merge_plan *p, const sheaf_events *events)
{
    const char *path = NULL;
    for (int i = 0; i < p->nread; i++)
        if (changes_tokens(p, i) && sheaf_hf_has_tokenizer(p->read[i].path))
            path = p->read[i].path;
    if (path != NULL)
        sheaf_note(events, "the tokenizer is that of %s, which changes rows of tokens", path);
    else if (p->resized > 0)
        sheaf_warn(
            events,
            "the vocabulary has %lld rows now, and no tokenizer lies beside the adapter: the base's knows no new tokens; copy the one that it was trained with",
            (long long)p->resized);
    return path;
}

/* ---- the output ---- */

sheaf_status *sheaf__merge_output_begin(sheaf__merge_output *out, const sheaf__merge_plan *plan,
                                        const char *config, const sheaf_weights_merge_options *o)
{
    sheaf_folder_options how = { .stem = "model",
                                 .shard_bytes = 50000000000, /* as transformers 5 */
                                 .file_names = plan->file_names };
    const sheaf_safetensors_spec *specs = plan->specs;
    int64_t count = plan->count;
    sheaf_status *st = sheaf__output_sweep(o->dst, o->events);
    const sheaf_dialect *to = o->to != NULL ? sheaf__dialect_named(o->to) : NULL;
    if (st == NULL && to != NULL && (to->writes & SHEAF_WRITES_RANKS) != 0)
        return begin_sat(out, plan, config, o);
    TRY(st, plan->requantise ? sheaf__merge_requantise_begin(out, plan) : NULL);
    if (st == NULL && plan->requantise)
        specs = sheaf__packer_specs(&count, &how.late, out->quantising);
    TRY(st, config != NULL ? sheaf_hf_begin(&out->folder, o->dst, config, specs, count, &how)
                           : sheaf__folder_begin(&out->folder, o->dst, specs, count, &how));
    TRY(st, plan->requantise ? sheaf__packer_begin(out->quantising, out->folder) : NULL);
    for (int i = plan->nread; i > 0 && o->base != NULL && st == NULL; i--) /* the last one's */
        st = sheaf__chat_files_copy(out->folder, plan->read[i - 1].path);
    if (st == NULL && o->base != NULL)
        st = sheaf_hf_copy_extras(out->folder, o->base, find_tokenizer(plan, o->events));
    return st;
}

sheaf_status *sheaf__merge_put(const sheaf__merge_output *out, int64_t tensor, int64_t row0,
                               int64_t rows, int64_t col0, int64_t cols, const void *src)
{
    if (out->sat != NULL)
        return sheaf_sat_put(out->sat, out->index[tensor], row0, rows, col0, cols, src);
    return out->quantising != NULL
               ? sheaf__packer_put(out->quantising, out->index[tensor], row0, rows, col0, cols, src)
               : sheaf__folder_write(out->folder, tensor, row0, rows, col0, cols, src);
}

sheaf_status *sheaf__merge_output_finish(sheaf__merge_output *out)
{
    return out->sat != NULL ? sheaf_sat_finish(out->sat) : sheaf__folder_settle(out->folder);
}
sheaf_status *sheaf__merge_output_sync(sheaf__merge_output *out)
{
    return out->folder != NULL ? sheaf__folder_sync(out->folder) : NULL;
}

sheaf_status *sheaf__merge_output_open(sheaf_source **written, const sheaf__merge_output *out)
{
    const sheaf_dialect_hints hints = { .from = out->sat != NULL ? "sat" : "hf",
                                        .as_stored = true };
    return sheaf__open_source(
        written, out->sat != NULL ? sheaf_sat_dir(out->sat) : sheaf__folder_dir(out->folder),
        &hints);
}

sheaf_status *sheaf__merge_output_commit(sheaf__merge_output *out)
{
    sheaf__merge_output it = *out;
    out->folder = NULL;
    out->sat = NULL;
    sheaf__merge_output_abandon(out);
    return it.sat != NULL ? sheaf_sat_commit(it.sat) : sheaf__folder_commit(it.folder);
}

void sheaf__merge_output_abandon(sheaf__merge_output *out)
{
    sheaf__folder_abandon(out->folder);
    sheaf_sat_abandon(out->sat);
    sheaf__packer_free(out->quantising);
    free(out->kept.entry);
    free(out->index);
    *out = (sheaf__merge_output){ 0 };
}
