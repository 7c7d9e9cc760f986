/* megatron_test.c */
#include "dialects/made_test.h"

#include "dialects/megatron.h"

/* "tp2_legacy_tiny_llama" was made from "tiny_llama/hf". */
static void test_golden__every_folder_gives_the_model_it_was_made_from(void **state)
{
    char root[600];
    int found = 0;
    snprintf(root, sizeof root, "%s", golden("llama/megatron"));
    DIR *list = opendir(root);
    if (list == NULL && !golden_is_full())
        skip();
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[1200], hf[1200], config[1300], weights[1300];
        const char *name = strstr(entry->d_name, "_legacy_");
        if (name == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        snprintf(hf, sizeof hf, "%s/../%s/hf", root, name + 8);
        snprintf(config, sizeof config, "%s/config.json", hf);
        snprintf(weights, sizeof weights, "%s/model.safetensors", hf);
        assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_megatron);

        sheaf_catalog *c = read_made(&sheaf__dialect_megatron, path, config);
        CHECK_SOUND(c);
        CHECK_OK(sheaf__catalog_compare(c));
        assert_int_equal(check_against(c, weights, false), c->count);
        assert_int_equal(c->step, 5);
        print_findings(c);
        sheaf__catalog_free(c);

        c = read_made(&sheaf__dialect_megatron, path, NULL); /* the vocabulary is not in the files */
        CHECK_SOUND(c);
        CHECK_FINDING(c, SHEAF_WARNING, "padded", "rows are kept");
        assert_int_equal(check_against(c, weights, true), c->count);
        sheaf__catalog_free(c);
        found++;
    }
    closedir(list);
    assert_true(found >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__every_folder_gives_the_model_it_was_made_from),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
