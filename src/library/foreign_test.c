/* foreign_test.c - the rules for settings of other trainers name ours, and a file of theirs is
 * known by its keys. */
#include "library/settings.h"
#include "sheaf/foreign.h"
#include "sheaf/train.h"
#include "tests/files.h"

TEST(test_rules__name_settings_of_train)
{
    for (int i = 0; i < 2; i++) {
        const char *sign = i == 0 ? "base_model" : "model_name_or_path";
        const sheaf_foreign_program *p = sheaf_foreign_program_of(sign);
        int rules = 0;
        assert_non_null(p);
        for (const sheaf_foreign_rule *r = p->rule; r->keys != NULL; r++, rules++) {
            sheaf_status *st =
                r->setting == NULL ? NULL : sheaf_run_setting_check(r->setting, "no value");
            if (st != NULL && strcmp(sheaf_status_expected(st), "a setting of sheaf train") == 0)
                fail_msg("%s: %s", r->keys, r->setting);
            sheaf_status_free(st);
        }
        assert_true(rules > 40);
        for (const sheaf_foreign_default *d = p->always; d->setting != NULL; d++) {
            char value[32];
            snprintf(value, sizeof value, "%.*s",
                     (int)strcspn(d->value == NULL ? "8" : d->value, " "),
                     d->value == NULL ? "8" : d->value);
            CHECK_OK(sheaf_run_setting_check(d->setting, value));
        }
    }
}

TEST(test_rules__of_keys)
{
    const sheaf_foreign_program *axolotl = sheaf_foreign_program_of("datasets[0].path");
    assert_string_equal(axolotl->name, "Axolotl");
    assert_null(sheaf_foreign_program_of("learning_rate"));
    assert_null(sheaf_foreign_program_of("base_model_config"));
    assert_string_equal(sheaf_foreign_rule_of(axolotl, "learning_rate")->setting, "lr");
    assert_string_equal(sheaf_foreign_rule_of(axolotl, "datasets[12].roles_to_train")->words,
                        "assistant|gpt");
    assert_null(sheaf_foreign_rule_of(axolotl, "cutoff_len"));
    assert_string_equal(sheaf_foreign_rule_of(NULL, "cutoff_len")->setting, "seq");
    assert_null(sheaf_foreign_rule_of(NULL, "cutoff"));
}

TEST(test_check__values)
{
    CHECK_OK(sheaf_run_setting_check("template", "llama3"));
    CHECK_OK(sheaf_run_setting_check("lr", "1.0e-4"));
    const char *const bad[][3] = { { "template", "llama4", "llama2, " },
                                   { "schedule", "rex", "constant, linear" },
                                   { "lora-rank", "0", "at least 1" },
                                   { "pizza", "1", "a setting of sheaf train" } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf_status *st = sheaf_run_setting_check(bad[i][0], bad[i][1]);
        assert_int_equal(sheaf_status_code(st), SHEAF_E_ARG);
        assert_non_null(strstr(sheaf_status_expected(st), bad[i][2]));
        sheaf_status_free(st);
    }
}

TEST(test_files__are_known_by_their_keys)
{
    static const struct {
        const char *name, *program, *text;
    } files[] = {
        { "comments first", "LLaMA-Factory", "### model\n\nmodel_name_or_path: a\n" },
        { "any key", "LLaMA-Factory", "seed: 1\nnested:\n  - a: b\nlist: [\n  c\n]\nstage: sft" },
        { "a list at the depth of its key", "Axolotl", "datasets:\n- path: a\nbase_model: b\n" },
        { "quoted", "Axolotl", "'base_model' : a\n" },
        { "without a value", "LLaMA-Factory", "stage:\r\n" },
        { "a document, marked", "Axolotl",
          "\xef\xbb\xbf%YAML 1.1\n---\n  a: b\n  base_model: c\n" },
        { "JSON", "LLaMA-Factory", "{\"a\": {\"b\": 1}, \"stage\": \"sft\"}" },
        { "over lines", "Axolotl", "\n {\n  \"base_model\": \"a\"\n}\n" },
        { "nested", NULL, "job:\n  stage: test\n" },
        { "nested in JSON", NULL, "{\"zero_optimization\": {\n\"stage\": 3}}" },
        { "a longer key", NULL, "base_model_name_or_path: a\nstaged: b\n" },
        { "no key", NULL, "stage:sft\n" },
        { "behind text", NULL, "what follows\nstage: two\n" },
        { "no JSON", NULL, "{\"stage\": 3" },
        { "nothing", NULL, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char wanted[64] = "";
        put(at("file"), files[i].text);
        sheaf_status *st = sheaf__peer_advise_file(sheaf_fail(SHEAF_E_ARG, "x"), at("file"));
        if (files[i].program != NULL)
            snprintf(wanted, sizeof wanted, "a file of %s", files[i].program);
        if (strcmp(sheaf_status_found(st), wanted) != 0)
            fail_msg("%s: '%s'", files[i].name, sheaf_status_found(st));
        assert_int_equal(sheaf_status_try(st)[0] != '\0', files[i].program != NULL);
        sheaf_status_free(st);
    }
    sheaf_status *st = sheaf__peer_advise_file(sheaf_fail(SHEAF_E_ARG, "x"), at("none"));
    assert_string_equal(sheaf_status_found(st), "");
    sheaf_status_free(st);
}

FIXTURE(make_scratch, remove_scratch);
