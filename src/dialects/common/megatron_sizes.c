/* megatron_sizes.c - the sizes of a model of Megatron's that says none itself; see
 * megatron_model.h. */
#include "dialects/common/megatron_model.h"

#include <stdlib.h>
#include <string.h>

#include "dialects/common/partition.h"
#include "base/status.h"

sheaf_status *sheaf__megatron_of_config(sheaf__megatron *m, sheaf_catalog *c, const char *path)
{
    sheaf_config config = { 0 };
    *m = (sheaf__megatron){ .vocab = -1, .padded = -1 };
    if (c->config == NULL)
        return sheaf__catalog_defects(c) > 0
                   ? NULL
                   : sheaf__catalog_note(
                         c, SHEAF_DEFECT, "missing", path, "",
                         "the sizes of the model: `args` in common.pt, or the model's config.json",
                         "neither: Megatron-Bridge and NeMo keep them elsewhere",
                         "give the config.json of the model with --config");
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf__partition_new(&m->rows, &config));
    if (st == NULL) {
        m->layers = config.layers;
        m->hidden = config.hidden;
        m->ffn = config.ffn;
        m->heads = config.heads;
        m->groups = config.kv_heads;
        m->head_dim = config.head_dim;
        m->vocab = config.vocab;
    }
    sheaf_config_release(&config);
    return sheaf__catalog_defect(c, c->config_path, st);
}
