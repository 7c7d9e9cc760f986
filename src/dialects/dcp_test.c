/* dcp_test.c */
#include "dialects/made_test.h"

#include "dialects/dcp.h"

/* "tp2_tiny_llama3rope" was made from "tiny_llama3rope/hf". */
static void test_golden__every_folder_gives_the_model_it_was_made_from(void **state)
{
    char root[600];
    int found = 0;
    snprintf(root, sizeof root, "%s", golden("llama/torch_dcp"));
    DIR *list = opendir(root);
    if (list == NULL && !golden_is_full())
        skip();
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[1200], weights[1300];
        const char *name = strchr(entry->d_name, '_');
        if (entry->d_name[0] == '.' || name == NULL)
            continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        snprintf(weights, sizeof weights, "%s/../%s/hf/model.safetensors", root, name + 1);
        assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_dcp);
        sheaf_catalog *c = read_made(&sheaf__dialect_dcp, path, NULL);
        CHECK_SOUND(c);
        assert_int_equal(check_against(c, weights, false), c->count);
        assert_int_equal(c->step, 3);
        assert_true(c->vocab > 0);
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
