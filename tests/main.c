/* main.c - main() of the test programs: runs each TEST() that was linked, in the order of the file;
 * or those whose names match $SHEAF_TESTS, as *rings*. */
#include "tests/check.h"

/* The bounds of the section, by the linker. */
extern const struct listed_test *__start_listed_tests[], *__stop_listed_tests[];
extern const struct group_fixture group_fixture __attribute__((weak));

static int by_place(const void *a, const void *b)
{
    return (*(const struct listed_test *const *)a)->place -
           (*(const struct listed_test *const *)b)->place;
}

int main(void)
{
    const size_t n = (size_t)(__stop_listed_tests - __start_listed_tests);
    struct CMUnitTest tests[n];
    qsort(__start_listed_tests, n, sizeof *__start_listed_tests, by_place);
    for (size_t i = 0; i < n; i++)
        tests[i] = __start_listed_tests[i]->test;
    cmocka_set_test_filter(getenv("SHEAF_TESTS"));
    const int fixture = &group_fixture != NULL;
    return _cmocka_run_group_tests("tests", tests, n, fixture ? group_fixture.before : NULL,
                                   fixture ? group_fixture.after : NULL);
}
