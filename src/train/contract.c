/* contract.c - see contract.h. */
#include "train/contract.h"

#include "models/rope.h"

static bool trains_table(const sheaf__job *job, const sheaf_tensor *table)
{
    if (sheaf__selected((void *)job->selection, table))
        return true;
    for (int i = 0; job->lora != NULL && i < job->lora->nmodules; i++)
        if (job->lora->module[i].base == table)
            return true;
    for (int i = 0; job->lora != NULL && i < job->lora->nsaved; i++)
        if (job->lora->saved[i] == table)
            return true;
    return false;
}

sheaf_status *sheaf__pads(bool *out, const sheaf__job *job, const sheaf_data *data)
{
    const int64_t padding = job->schema->config.padding;
    *out = false;
    return padding == 0 || !trains_table(job, sheaf_schema_get(job->schema, SHEAF_EMBED, -1, false))
               ? NULL
               : sheaf_data_sees(out, data, padding - 1);
}

int sheaf__contract_of(const sheaf__job *job, bool pads)
{
    const sheaf_train_options *o = job->options;
    const bool drops = job->lora != NULL && job->lora->options.dropout > 0;
    if (job->lora != NULL && o->slices > 1)
        return 6;
    if (pads)
        return 5;
    if (sheaf__rope_looks(&job->schema->config))
        return 4;
    if (o->dtype == SHEAF_F16 || o->label_smoothing > 0 || o->neftune_alpha > 0 ||
        o->eval_split > 0 || o->pack || o->by_length)
        return o->pack && (o->eval_split > 0 || o->neftune_alpha > 0 || drops) ? 4 : 3;
    return 2;
}
