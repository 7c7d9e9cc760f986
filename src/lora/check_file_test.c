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

/* sheaf__lora_find_part() takes a name that it cannot hold for one that is not there. */
TEST(test_parts__names_are_as_long_as_can_be_asked_for)
{
    static char name[4096];
    sheaf_lora_options options = { .rank = 1 };
    fake_source f = { .source = { fake_find, fake_count, fake_entry, NULL, NULL }, .n = 1 };
    CHECK_OK(sheaf__lora_set_targets(&options, "q"));
    for (int longest = 3000; longest <= 3001; longest++) {
        const int n = snprintf(name, sizeof name, L "0.%0*d.q.lora_A.weight",
                               longest - (int)strlen(L "0..q.lora_A.weight"), 0);
        assert_int_equal(n, longest);
        f.entry[0] = (sheaf_source_entry){ .name = name, .ndim = 2, .shape = { 1, 1 } };
        const char *path = name + strlen("base_model.model.");
        assert_ptr_equal(sheaf__lora_find_part(&f.source, path, strlen(path), ""), f.entry);
        CHECK_FAILS(sheaf_lora_check_file(&options, &f.source),
                    longest == 3000 ? SHEAF_E_LAYOUT : SHEAF_E_UNSUPPORTED,
                    longest == 3000 ? "q.lora_B.weight" : "names of at most 3000 bytes | 3001");
    }
    sheaf_lora_options_release(&options);
}
