/* spell_test.c - fields in texts, as each face writes them. */
#include "tests/check.h"

#include "base/spell.h"
#include "base/status.h"

static const struct {
    const char *text, *flag, *key; /* of a caller who has the key top_k */
} spellings[] = {
    { "`lora-rank`", "--lora-rank", "--lora-rank" },
    { "`top-k 5`, `top-ks`", "--top-k 5, --top-ks", "\"top_k\": 5, --top-ks" },
    { "`tp 4` and `top-k`", "--tp 4 and --top-k", "--tp 4 and \"top_k\"" },
    { "`dtype bfloat16`, or less", "--dtype bfloat16, or less", "--dtype bfloat16, or less" },
    { "(`beta1`)", "(--beta1)", "(--beta1)" },
    { "", "", "" },
    /* no field: another word, a line that is not closed, what files say */
    { "`Tp` `4` `a.b` `a: b` ``", "`Tp` `4` `a.b` `a: b` ``", "`Tp` `4` `a.b` `a: b` ``" },
    { "`tp", "`tp", "`tp" },
    { "`tp 4", "`tp 4", "`tp 4" },
    { "`tp ` `tp 4\n`", "`tp ` `tp 4\n`", "`tp ` `tp 4\n`" },
    { "\"use `ls`\", `tp`", "\"use `ls`\", --tp", "\"use `ls`\", --tp" },
    { "5\" wide, `tp`", "5\" wide, --tp", "5\" wide, --tp" }, /* a quote without a partner */
};

static bool is_top_k(const char *name, size_t size)
{
    return size == 5 && memcmp(name, "top_k", 5) == 0;
}

TEST(test_spell__fields_as_the_caller_writes_them)
{
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char *flag = sheaf__spell_fields(spellings[i].text, NULL),
             *key = sheaf__spell_fields(spellings[i].text, is_top_k);
        assert_string_equal(flag, spellings[i].flag);
        assert_string_equal(key, spellings[i].key);
        free(flag);
        free(key);
    }
}

TEST(test_spell__all_four_answers_of_a_status)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`tp`");
    sheaf_try_this(sheaf_found(sheaf_expected(st, "`dp 1`"), "`slices`"), "`lora-alpha 16`");
    assert_ptr_equal(sheaf__status_spell(st, NULL), st);
    assert_string_equal(sheaf_status_where(st), "--tp");
    assert_string_equal(sheaf_status_expected(st), "--dp 1");
    assert_string_equal(sheaf_status_found(st), "--slices");
    assert_string_equal(sheaf_status_try(st), "--lora-alpha 16");
    sheaf_status_free(st);
    assert_null(sheaf__status_spell(NULL, NULL));
}
