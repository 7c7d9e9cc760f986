/* partition.c - see partition.h. */
#include "dialects/common/partition.h"

#include <string.h>

sheaf_status *sheaf__partition_new(sheaf_schema **out, const sheaf_config *sizes)
{
    static const sheaf_config any = {
        .hidden = 2, .ffn = 1, .heads = 1, .kv_heads = 1, .head_dim = 2
    };
    sheaf_config one = sizes != NULL ? *sizes : any;
    one.family = SHEAF_LLAMA;
    one.vocab = 1;
    one.layers = 1;
    one.qkv_bias = one.o_bias = one.mlp_bias = true;
    one.tied = false;
    return sheaf_schema_new(out, &one, 1);
}

/* "q_proj.weight" */
static const char *end_of(const char *name)
{
    const char *kind = strrchr(name, '.'), *at = kind;
    while (at != NULL && at > name && at[-1] != '.')
        at--;
    return at == NULL ? name : at;
}

const sheaf_tensor *sheaf__partition_find(const sheaf_schema *rows, const char *name)
{
    for (int64_t i = 0; i < rows->count; i++)
        if (strcmp(end_of(rows->tensor[i].name), end_of(name)) == 0)
            return &rows->tensor[i];
    return NULL;
}
