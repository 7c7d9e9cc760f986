/* scored.c - the base of a reward model's adapter: in place of the head that gives logits one of a
 * single row, "score.weight", whose numbers the adapter has; and the config says so. */
#include "base/base.h"
#include "catalog/over_source.h"
#include "checkpoint/merge/plan.h"
#include "dialects/hf/hf.h"
#include "dialects/peft/peft.h"
#include "ops/quant/quant.h"
#include "schema/family.h"

static bool is_score(const char *name)
{
    return strcmp(name, SHEAF__SCORE) == 0;
}

/* The score's are zero until the adapter's take their place. */
static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    sheaf_source *base = ((const sheaf__over_source *)self)->under;
    if (!is_score(name))
        return base->read(base, name, row0, rows, col0, cols, dst);
    const sheaf_source_entry *e = self->find(self, name);
    memset(dst, 0, (size_t)(rows * cols) * sheaf_dtype_bytes(e->dtype));
    return NULL;
}

static sheaf_source *behind(sheaf_source *self, const char **name)
{
    return is_score(*name) ? NULL : ((const sheaf__over_source *)self)->under;
}

static const sheaf__quantised_source quantised = { .behind = behind };

/* Its type is that of the table of embeddings. *base: taken on success. */
static sheaf_status *lay(sheaf_source **base, const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    sheaf_source *under = *base;
    const int64_t n = under->count(under);
    const sheaf_source_entry *table = under->find(under, family->table);
    sheaf__over_source *s = sheaf__over_new(sizeof *s, under, n + 1, read_box, NULL);
    if (s == NULL)
        return sheaf__no_memory("merge");
    sheaf_status *st = NULL;
    s->alone = true;
    s->source.quantised = &quantised;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = under->entry(under, i);
        if (strcmp(e->name, family->head) != 0)
            st = sheaf__over_add(s, strdup(e->name), *e);
    }
    TRY(st, sheaf__over_add(s, strdup(SHEAF__SCORE),
                            (sheaf_source_entry){ .dtype = table == NULL ? SHEAF_F32 : table->dtype,
                                                  .ndim = 2,
                                                  .shape = { 1, config->hidden } }));
    sheaf__over_sort(s);
    return sheaf__over_end(base, s, st);
}

static sheaf_status *of_reward_model(bool *yes, const char *adapter)
{
    sheaf_lora_options options = { 0 };
    char *path = NULL;
    sheaf_status *st = sheaf_peft_config_path(&path, adapter);
    TRY(st, sheaf_lora_options_read(&options, path, NULL));
    *yes |= st == NULL && options.scores;
    sheaf_lora_options_release(&options);
    free(path);
    return sheaf__only_memory(st); /* it is read again, and reported then */
}

sheaf_status *sheaf__merge_score(sheaf__merge_plan *p, const sheaf_weights_merge_options *o)
{
    sheaf_config config = { 0 };
    char *text = NULL;
    bool scores = false;
    sheaf_status *st = NULL;
    for (int i = 0; i < o->nadapters && st == NULL && p->config != NULL; i++)
        st = of_reward_model(&scores, o->adapters[i]);
    if (st != NULL || !scores)
        return st;
    st = sheaf__only_memory(sheaf_config_parse(&config, p->config, strlen(p->config)));
    if (st == NULL && config.json != NULL && !config.scores && sheaf__may_score(&config)) {
        sheaf__config_score(&config);
        st = sheaf_hf_config_whole(&text, p->config, &config, false);
        TRY(st, lay(&p->base, &config));
    }
    if (st == NULL && text != NULL) {
        free(p->config);
        p->config = text;
        text = NULL;
    }
    free(text);
    sheaf_config_release(&config);
    return st;
}
