/* verify_test.c - what is read of a catalog to tell whether it is sound. */
#include "tests/check.h"
#include "tests/files.h"

#include "checkpoint/verify.h"

static const sheaf_finding *finding(const sheaf_catalog *c, const char *code)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, code) == 0)
            return &c->finding[i];
    return NULL;
}

/* ZeRO 3 leaves tensors of no elements in every part: copies without a piece. */
static void test_verify__copies_of_no_elements_are_nothing_to_read(void **state)
{
    sheaf_catalog *c = NULL;
    sheaf_verify_report report = { 0 };
    sheaf_logical *t = NULL;
    CHECK_OK(sheaf__catalog_new(&c, "sat", scratch.dir));
    CHECK_OK(sheaf__catalog_tensor(&t, c, "empty", SHEAF_F32, 2, (int64_t[]){ 0, 4 }));
    t->replicated = true;
    CHECK_OK(sheaf__catalog_tensor(&t, c, "flat", SHEAF_F32, 1, (int64_t[]){ 0 }));
    CHECK_OK(sheaf__catalog_check(c));
    CHECK_OK(sheaf_verify_catalog(&report, c, &(sheaf_verify_options){ 0 }));
    assert_int_equal(report.read, 0);
    assert_null(finding(c, "missing"));
    sheaf__catalog_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__copies_of_no_elements_are_nothing_to_read),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
