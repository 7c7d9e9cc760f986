/* names.c - what a file is, by its name; see colossalai.h. */
#include <string.h>

#include "dialects/colossalai/colossalai.h"

static bool numbered(const char *name, const char *begin, const char *end)
{
    const size_t n = strlen(begin);
    if (strncmp(name, begin, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, end) == 0;
}

bool sheaf__colossalai_is_rank(const char *name)
{
    return numbered(name, "tp_rank_", ".safetensors") || numbered(name, "tp_rank_", ".bin") ||
           numbered(name, "tp_rank_", ".pt");
}

bool sheaf__colossalai_is_model(const char *name)
{
    return numbered(name, "model-", ".safetensors") || numbered(name, "pytorch_model-", ".bin") ||
           strncmp(name, "model-stage-", 12) == 0 || strncmp(name, "pytorch_model-stage-", 20) == 0;
}

bool sheaf__colossalai_is_optimizer(const char *name)
{
    return strcmp(name, "pytorch_optim.bin.index.json") == 0 ||
           strcmp(name, "pytorch_optim_group.bin") == 0 ||
           numbered(name, "pytorch_optim-", ".bin") ||
           strncmp(name, "pytorch_optim-stage-", 20) == 0;
}
