/* shared_out_test.c - a rank that has another folder than the first is told, and nothing is left.
 */
#include "train/shared_out.h"

#include <sys/stat.h>
#include <unistd.h>

#include "comm/grid.h"
#include "tests/files.h"

typedef struct run {
    char folder[4][500];
    int blind[4];
} run;

static sheaf_status *body(void *context, const sheaf__grid *grid)
{
    run *r = context;
    const int me = sheaf_comm_rank(grid->all);
    return sheaf__out_shared(&r->blind[me], grid->all, r->folder[me], 0);
}

/* The first that does not see it, which all say. */
static int ask(run *r, int ranks)
{
    CHECK_OK(sheaf__grid_run(
        &(sheaf__grid_options){ .groups = 1, .ranks = ranks, .messages = true }, body, r));
    for (int i = 1; i < ranks; i++)
        assert_int_equal(r->blind[i], r->blind[0]);
    return r->blind[0];
}

static void test_out__one_folder_under_any_name_is_shared(void **state)
{
    run r;
    assert_int_equal(mkdir(at("one"), 0777), 0);
    assert_int_equal(symlink(at("one"), at("link")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "link" : "one"));
    for (int ranks = 1; ranks <= 4; ranks++)
        assert_int_equal(ask(&r, ranks), -1);
    assert_int_equal(entries(at("one")), 0);
}

static void test_out__another_folder_is_noticed(void **state)
{
    run r;
    assert_int_equal(mkdir(at("mine"), 0777), 0);
    assert_int_equal(mkdir(at("theirs"), 0777), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "theirs" : "mine"));
    assert_int_equal(ask(&r, 2), -1);
    assert_int_equal(ask(&r, 4), 2);
    char *path = NULL; /* of a file that another run left, of the same name by chance */
    CHECK_OK(sheaf__partial_path(&path, at("theirs/seen"), "partial", 0));
    put(path, "00000000000000000000000000000000");
    assert_int_equal(ask(&r, 4), 2);
    unlink(path);
    free(path);
    snprintf(r.folder[2], sizeof r.folder[2], "%s", at("nowhere"));
    assert_int_equal(ask(&r, 3), 2);
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

/* The nearest folder above it tells. */
static void test_out__before_it_is_there(void **state)
{
    run r;
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at("one/deep/run"));
    assert_int_equal(ask(&r, 4), -1);
    assert_int_equal(entries(at("one")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s",
                 at(i == 2 ? "theirs/deep/run" : "mine/deep/run"));
    assert_int_equal(ask(&r, 2), -1);
    assert_int_equal(ask(&r, 4), 2);
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

/* A folder that cannot be made there. */
static void test_out__where_nothing_can_be_written(void **state)
{
    run r;
    put(at("file"), "no folder");
    for (int i = 0; i < 2; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at("file/run"));
    CHECK_FAILS(sheaf__grid_run(&(sheaf__grid_options){ .groups = 1, .ranks = 2, .messages = true },
                                body, &r),
                SHEAF_E_IO, "/file/run: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out__one_folder_under_any_name_is_shared),
        cmocka_unit_test(test_out__another_folder_is_noticed),
        cmocka_unit_test(test_out__before_it_is_there),
        cmocka_unit_test(test_out__where_nothing_can_be_written),
    };
    return cmocka_run_group_tests_name("train/shared_out", tests, make_scratch, remove_scratch);
}
