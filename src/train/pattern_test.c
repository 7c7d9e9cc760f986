/* pattern_test.c - patterns and names a reader can check by eye. */
#include "tests/check.h"
#include "train/select.h"

#define VIT "mixins.eva.vit_model.transformer.layers."

static const struct {
    const char *pattern, *name;
    bool want, want_any;
} by_hand[] = {
    { "a.b", "a.b", true, true },
    { "a.b", "a.b.c", false, false },
    { "a.b", "xa.b", false, false },
    { "*", "", true, true },
    { "*", "anything.at.all", true, true },
    { "?", "", false, false },
    { "l?yer", "layer", true, true },
    { "*norm*", "norm", true, true },
    { "*a*b", "aXaYbZb", true, true },
    { "*a*b", "aXaYbZ", false, false },
    { "a*", "ab", true, true },
    { "a.c", "aXc", false, false },
    { "layers.{3}.x", "layers.3.x", true, true },
    { "layers.{1..9}.x", "layers.12.x", false, true },
    { "*{1..9}.x", "layers.12.x", false, true },
    { "*{2}.x", "layers.12.x", false, true },
    { "*{1}*", "layers.12.x", false, true },
    { "*{12}*", "layers.12.x", true, true },
    { "*{5..7}*", "a.1.b.6.c", true, true },
    { "*.{0,2,5..7}.*", "a.2.b", true, true },
    { "*.{0,2,5..7}.*", "a.7.b", true, true },
    { "*.{0,2,5..7}.*", "a.3.b", false, true },
    { "*.{7}.*", "a.007.b", true, true },
    { "*.{7}.*", "a.b.c", false, false },
    { "*{0..999999999}", "x1234567890", false, false },
    { "*vit*.{46..54}.mlp*", VIT "46.mlp.dense_h_to_4h.weight", true, true },
    { "*vit*.{46..54}.mlp*", VIT "54.mlp.dense_4h_to_h.bias", true, true },
    { "*vit*.{46..54}.mlp*", VIT "55.mlp.dense_4h_to_h.bias", false, true },
    { "*vit*.{46..54}.mlp*", VIT "45.mlp.dense_4h_to_h.bias", false, true },
    { "*vit*.{46..54}.mlp*", VIT "4.mlp.dense_4h_to_h.bias", false, true },
    { "*vit*.{46..54}.mlp*", VIT "46.attention.dense.weight", false, false },
    { "*vit*.{46..54}.mlp*", "transformer.layers.46.mlp.dense_h_to_4h.weight", false, false },
};

TEST(test_pattern__matches_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        CHECK_OK(sheaf__pattern_check(by_hand[i].pattern));
        for (int any = 0; any < 2; any++)
            if (sheaf__pattern_match(by_hand[i].pattern, by_hand[i].name, any) !=
                (any ? by_hand[i].want_any : by_hand[i].want))
                fail_msg("'%s' with '%s', any %d", by_hand[i].pattern, by_hand[i].name, any);
    }
}

/* Stars that all could end anywhere: a search that tries all ways would not end. */
TEST(test_pattern__many_stars_take_no_time)
{
    char pattern[201], name[4001];
    for (int i = 0; i < 200; i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    pattern[199] = 'b';
    pattern[200] = '\0';
    memset(name, 'a', 4000);
    name[4000] = '\0';
    assert_false(sheaf__pattern_match(pattern, name, false));
}

TEST(test_pattern__unsound_ones_are_named)
{
    static const char *const bad[] = { "",          "a{",           "a}",     "{}",
                                       "{a}",       "{1..}",        "{2..1}", "{1,}",
                                       "{1",        "{1..2",        "{1}}",   "{-1}",
                                       "{1..2..3}", "{1234567890}", "{{1}}",  "{ 1 }" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(sheaf__pattern_check(bad[i]), SHEAF_E_ARG, "pattern");
}

TEST(test_pattern__a_list_is_cut_at_commas_outside_braces)
{
    assert_int_equal(sheaf__pattern_length("a{1,2},b"), 6);
    assert_int_equal(sheaf__pattern_length("b"), 1);
    assert_int_equal(sheaf__pattern_length(",b"), 0);
    assert_int_equal(sheaf__pattern_length("{1,2"), 4);
    assert_int_equal(sheaf__pattern_length("a},b"), 2);
}
