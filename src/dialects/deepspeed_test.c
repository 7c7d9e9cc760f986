/* deepspeed_test.c */
#include "dialects/made_test.h"

#include "dialects/deepspeed.h"

/* The expected_*.safetensors of a folder; of NAME_universal that of NAME. */
static bool expected_of(char *out, size_t size, const char *root, const char *name)
{
    char dir[1000];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    for (int i = 0; i < 2; i++) {
        char **names = NULL;
        int64_t n = 0;
        bool found = false;
        sheaf_status *st = sheaf__list_dir(&names, &n, dir);
        for (int64_t k = 0; st == NULL && k < n && !found; k++)
            if (strncmp(names[k], "expected", 8) == 0) {
                snprintf(out, size, "%s/%s", dir, names[k]);
                found = true;
            }
        sheaf__names_free(names, n);
        sheaf_status_free(st);
        char *end = strstr(dir, "_universal");
        if (found || end == NULL)
            return found;
        *end = '\0';
    }
    return false;
}

static void test_golden__every_folder_gives_its_expected_tensors(void **state)
{
    int found = 0;
    char root[600];
    snprintf(root, sizeof root, "%s", golden("llama/deepspeed"));
    DIR *list = opendir(root);
    if (list == NULL && !golden_is_full())
        skip();
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[1200], expected[1200];
        if (entry->d_name[0] == '.' || !expected_of(expected, sizeof expected, root, entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_deepspeed);
        sheaf_catalog *c = read_made(&sheaf__dialect_deepspeed, path, NULL);
        CHECK_SOUND(c);
        CHECK_OK(sheaf__catalog_compare(c));
        print_findings(c);
        assert_true(check_against(c, expected, false) > 0);
        assert_int_equal(c->step, 3);
        sheaf__catalog_free(c);
        found++;
    }
    closedir(list);
    assert_true(found >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__every_folder_gives_its_expected_tensors),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
