/* paths_test.c - sets of paths as expressions. */
#include "tests/check.h"

#include "schema/paths.h"

static const struct {
    const char *paths[6], *want;
} cases[] = {
    { { "lm_head" }, "lm_head" },
    { { "a.layers.0.dense", "a.layers.1.dense", "a.layers.11.dense" },
      "a\\.layers\\.(0|1|11)\\.dense" },
    { { "a.layers.3.dense" }, "a\\.layers\\.3\\.dense" },
    { { "a.0.x", "b.0.x", "a.1.x", "a.0.y" }, "a\\.(0|1)\\.x|b\\.0\\.x|a\\.0\\.y" },
    { { "mlp.gate_proj.0", "mlp.gate_proj.2", "mlp.gate_proj" },
      "mlp\\.gate_proj\\.(0|2)|mlp\\.gate_proj" },
    { { "w1.0", "w1.x" }, "w1\\.0|w1\\.x" },                     /* only a whole part is a number */
    { { "a.0.b.1", "a.0.b.2" }, "a\\.0\\.b\\.1|a\\.0\\.b\\.2" }, /* the first number only */
    { { "a.0.c", "a.bb.1.c" }, "a\\.0\\.c|a\\.bb\\.1\\.c" },     /* one begins as the other does */
    { { "a.1x.c", "a.2x.c" }, "a\\.1x\\.c|a\\.2x\\.c" },
    { { "a+b" }, "a\\+b" },
};

TEST(test_paths__as_one_expression)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_text text = { 0 };
        char *got = NULL;
        int64_t n = 0;
        while (n < 6 && cases[i].paths[n] != NULL)
            n++;
        sheaf__paths_pattern(&text, cases[i].paths, n);
        CHECK_OK(sheaf__text_take(&got, &text));
        assert_string_equal(got, cases[i].want);
        free(got);
    }
}
