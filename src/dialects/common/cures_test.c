/* Cures: commands that can be typed as they stand. */
#include "tests/made_llama.h"

#include <unistd.h>

#include "dialects/common/model.h"
#include "dialects/common/dialects.h"
#include "dialects/open.h"

static void test_cure__paths_as_a_shell_reads_them(void **state)
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

static char *in(const char *dir, const char *name)
{
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Beside a model lie the configs of others, and its own. */
static void test_cure__a_config_that_fits_is_found(void **state)
{
    static const char *const links[][2] = {
        { "llama/tiny_llama/hf/model.safetensors", "near/model/model.safetensors" },
        { "llama/tiny_qwen2/hf/config.json", "near/a/config.json" },
        { "llama/tiny_llama3rope/hf/config.json", "near/b/config.json" },
        { "llama/tiny_llama/hf/config.json", "near/c/config.json" },
    };
    char want[900], root[400], *cure = NULL;
    sheaf_catalog *c = NULL;
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        char *dir = NULL;
        CHECK_OK(sheaf__path_parent(&dir, at(links[i][1])));
        CHECK_OK(sheaf__make_dirs(dir));
        char *real = realpath(golden(links[i][0]), NULL);
        assert_non_null(real);
        assert_int_equal(symlink(real, at(links[i][1])), 0);
        free(real);
        free(dir);
    }
    snprintf(root, sizeof root, "%s", at("near/model"));
    CHECK_OK(sheaf__open(&c, root, &(sheaf_dialect_hints){ .config = at("near/b/config.json") }));
    CHECK_OK(sheaf__config_cure(&cure, c));
    snprintf(want, sizeof want, "sheaf verify %s --config %s", root, at("near/c/config.json"));
    assert_string_equal(cure, want);
    free(cure);
    int64_t told = 0;
    for (int64_t i = 0; i < c->nfindings; i++)
        told += strcmp(c->finding[i].cure, want) == 0;
    assert_true(told > 0);
    sheaf__catalog_free(c);
}

static void test_cure__without_one_it_says_where_to_put_it(void **state)
{
    char *cure = NULL;
    sheaf_catalog *c = NULL;
    const char *dir = at("alone/model");
    CHECK_OK(sheaf__make_dirs(dir));
    put(in(dir, "config.json"), "{\"model_type\": \"llama\"}");
    CHECK_OK(sheaf__catalog_new(&c, &sheaf__dialect_hf, dir));
    CHECK_OK(sheaf__config_cure(&cure, c));
    assert_non_null(strstr(cure, "copy it into "));
    assert_non_null(strstr(cure, "alone/model"));
    free(cure);
    sheaf__catalog_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cure__paths_as_a_shell_reads_them),
        cmocka_unit_test(test_cure__a_config_that_fits_is_found),
        cmocka_unit_test(test_cure__without_one_it_says_where_to_put_it),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
