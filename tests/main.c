/* main.c - main() of the test programs: runs each TEST() that was linked, in the order of the file;
 * or those whose names match $SHEAF_TESTS, as *rings*. */
#include <fnmatch.h>

#include "tests/check.h"

/* The bounds of the section, by the linker. */
extern const struct listed_test *__start_listed_tests[], *__stop_listed_tests[];
/* What runs before and after all of them, and each. */
extern const struct group_fixture group_fixture __attribute__((weak)),
    each_fixture __attribute__((weak));

static int by_place(const void *a, const void *b)
{
    return (*(const struct listed_test *const *)a)->place -
           (*(const struct listed_test *const *)b)->place;
}

int main(void)
{
    const size_t n = (size_t)(__stop_listed_tests - __start_listed_tests);
    const char *filter = getenv("SHEAF_TESTS");
    struct CMUnitTest tests[n];
    size_t chosen = 0;
    qsort(__start_listed_tests, n, sizeof *__start_listed_tests, by_place);
    for (size_t i = 0; i < n; i++)
        if (filter == NULL || fnmatch(filter, __start_listed_tests[i]->test.name, 0) == 0)
            tests[chosen++] = __start_listed_tests[i]->test;
    for (size_t i = 0; i < chosen && &each_fixture != NULL; i++) {
        tests[i].setup_func = each_fixture.before;
        tests[i].teardown_func = each_fixture.after;
    }
    if (chosen == 0) {
        fprintf(stderr, "SHEAF_TESTS: no test has a name such as '%s'\n", filter);
        return EXIT_FAILURE;
    }
    const int fixture = &group_fixture != NULL;
    return _cmocka_run_group_tests("tests", tests, chosen, fixture ? group_fixture.before : NULL,
                                   fixture ? group_fixture.after : NULL);
}
