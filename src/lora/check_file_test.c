/* check_file_test.c - checks of an adapter without its base. */
#include "tests/check.h"
#include "tests/fake_source.h"

#include "lora/check_file.h"
#include "lora/adapter.h"

#define L "base_model.model.model.layers."

enum { MOST = 8 };

/* `modules` have A and B, ascending; `missing` lists the tensors that are reported. */
static const struct {
    const char *name, *targets, *modules[MOST], *missing;
    const char *exclude; /* an expression; NULL */
} rows[] = {
    { "the same in both layers", "q,v", { "0.attn.q", "0.attn.v", "1.attn.q", "1.attn.v" }, "" },
    { "one in one layer alone", "q,v", { "0.attn.q", "0.attn.v", "1.attn.q" }, L "1.attn.v" },
    { "none in the last layers", "q,v", { "0.attn.q", "0.attn.v" }, "" },
    { "a target that is nowhere", "q,v", { "0.attn.q", "1.attn.q" }, "v" },
    { "one that is excluded wherever it is", "q,v", { "0.attn.q", "1.attn.q" }, "", ".*tower.*" },
    { "experts in all layers but the first, and a gate beside them",
      "up,down,gate",
      { "0.mlp.down", "0.mlp.up", "1.mlp.expert.down", "1.mlp.expert.up", "1.mlp.gate" },
      "" },
    { "experts in both, and a gate in one",
      "up,gate,x",
      { "0.mlp.expert.up", "0.mlp.gate", "1.mlp.expert.up", "1.mlp.x" },
      L "1.mlp.gate" L "0.mlp.x" },
};

static sheaf_status *tell(void *self, const char *code, const char *tensor, sheaf_status *wrong)
{
    char *told = self;
    const char *end = strstr(tensor, ".lora_A");
    assert_string_equal(code, "missing");
    strncat(told, tensor, end == NULL ? strlen(tensor) : (size_t)(end - tensor));
    sheaf_status_free(wrong);
    return NULL;
}

TEST(test_alone__gaps_between_layers_of_one_kind)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        static char names[2 * MOST][128];
        sheaf_lora_options options = { 0 };
        char told[512] = "";
        fake_source f = { .source = { fake_find, fake_count, fake_entry, NULL, NULL } };
        for (int k = 0; rows[i].modules[k] != NULL; k++)
            for (int b = 0; b < 2; b++) {
                snprintf(names[f.n], sizeof names[f.n], L "%s.lora_%c.weight", rows[i].modules[k],
                         'A' + b);
                f.entry[f.n] = (sheaf_source_entry){ .name = names[f.n], .ndim = 2 };
                f.n++;
            }
        CHECK_OK(sheaf__lora_set_targets(&options, rows[i].targets));
        options.exclude.regex = rows[i].exclude != NULL ? strdup(rows[i].exclude) : NULL;
        CHECK_OK(sheaf_lora_check_alone(&options, &f.source, tell, told));
        if (strcmp(told, rows[i].missing) != 0)
            fail_msg("%s: told '%s'", rows[i].name, told);
        sheaf_lora_options_release(&options);
    }
}
