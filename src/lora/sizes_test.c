/* sizes_test.c - what an adapter's file holds, counted from the config alone. */
#include "tests/resolved.h"

#include "lora/sizes.h"

static bool is_norm(void *self, const sheaf_tensor *t)
{
    return strcmp(t->name, self) == 0;
}

static const struct {
    const char *targets, *saved, *trains;
    int64_t factors, copies;
    const char *text;
} rows[] = {
    /* rank 2: (32 + 32) 2 of each q_proj, (32 + 16) 2 of each v_proj */
    { "q_proj,v_proj", "", NULL, 3 * 2 * (64 + 48), 0, "" },
    { "q_proj", "embed_tokens,lm_head", NULL, 3 * 2 * 64, 2 * 3200,
      "the adapter's file takes 0.026 MiB: 0.001 MiB of LoRA, and full copies of embed_tokens "
      "(3200) and lm_head (3200), which are 94.3 % of it" },
    { "q_proj", "mlp", "model.norm.weight", 3 * 2 * 64, 9 * 32 * 48 + 32,
      "the adapter's file takes 0.054 MiB: 0.001 MiB of LoRA, and full copies of mlp (13824) and "
      "others (32), which are 97.3 % of it" },
    /* nine entries: two share the last place */
    { "q_proj",
      "layers.0.mlp,layers.1.mlp.gate_proj,layers.1.mlp.up_proj,layers.1.mlp.down_proj,"
      "layers.2.mlp.gate_proj,layers.2.mlp.up_proj,layers.2.self_attn.k_proj,"
      "layers.2.self_attn.v_proj,norm",
      NULL, 3 * 2 * 64, 8 * 32 * 48 + 2 * 32 * 16 + 7 * 32, NULL },
};

TEST(test_sizes__of_factors_and_copies)
{
    const sheaf_schema *schema = schema_of(small_config(SHEAF_LLAMA, 100, 32, 48, 3, 4, 2, 8), 4);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__lora_sizes sizes;
        sheaf_text text = { 0 };
        int64_t sum = 0;
        sheaf_lora_options *o = options_of(rows[i].targets);
        o->rank = 2;
        CHECK_OK(sheaf__lora_set_saved(o, rows[i].saved));
        sheaf_lora *lora = resolved(schema, o);
        sheaf__lora_sizes_of(&sizes, lora, schema, rows[i].trains != NULL ? is_norm : NULL,
                             (void *)rows[i].trains);
        assert_int_equal(sizes.factors, rows[i].factors);
        assert_int_equal(sizes.copies, rows[i].copies);
        assert_int_equal(sizes.bytes, 4 * (rows[i].factors + rows[i].copies));
        for (int k = 0; k < sizes.n; k++)
            sum += sizes.copy[k].elements;
        assert_int_equal(sum, sizes.copies);
        sheaf__lora_sizes_text(&text, &sizes);
        if (rows[i].text != NULL)
            assert_string_equal(text.at != NULL ? text.at : "", rows[i].text);
        else
            assert_string_equal(sizes.copy[SHEAF__LORA_COPIES - 1].name, "others");
        sheaf__text_release(&text);
    }
}
