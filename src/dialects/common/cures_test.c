/* Cures: commands that can be typed as they stand. */
#include "tests/made_llama.h"

TEST(test_cure__paths_as_a_shell_reads_them)
{
    static const struct {
        const char *root, *config, *cure, *want;
    } rows[] = {
        { "/a/run", NULL, "sheaf merge {} {+merged}", "sheaf merge /a/run /a/run-merged" },
        { "/a/run/", NULL, "{+merged}", "/a/run-merged" },
        { "it's one", NULL, "sheaf convert {} {+joined} --to sat",
          "sheaf convert 'it'\\''s one' 'it'\\''s one-joined' --to sat" },
        { ".", NULL, "{} {+hf}", ". ./../hf" },
        { "../..", NULL, "{+hf}", "../../../hf" },
        { "/", NULL, "{+hf}", "//../hf" },
        { "/a/run", "/a/run/config.json", "verify {}{config}", "verify /a/run" },
        { "/a/run", "/b/my config.json", "verify {}{config}",
          "verify /a/run --config '/b/my config.json'" },
        { "/a/m.safetensors", "/a/config.json", "verify {}{config}", "verify /a/m.safetensors" },
        { "/a", NULL, "no { such } thing {", "no { such } thing {" },
        { "/a", NULL, "", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_catalog *c = NULL;
        char *cure = NULL;
        CHECK_OK(sheaf__catalog_new(&c, &sheaf__dialect_hf, rows[i].root));
        c->config_path = rows[i].config != NULL ? strdup(rows[i].config) : NULL;
        CHECK_OK(sheaf__cure(&cure, c, rows[i].cure));
        assert_string_equal(cure, rows[i].want);
        free(cure);
        sheaf__catalog_free(c);
    }
}

FIXTURE(make_scratch, remove_scratch);
