/* shared_out_test.c - a rank that has another folder than the first is told, and nothing is left.
 */
#include "train/shared_out.h"

#include <sys/stat.h>
#include <unistd.h>

#include "comm/grid.h"
#include "tests/files.h"

typedef struct run {
    char folder[4][500];
} run;

static sheaf_status *body(void *context, const sheaf__grid *grid)
{
    const run *r = context;
    const int me = sheaf_comm_rank(grid->all);
    char host[8];
    snprintf(host, sizeof host, "h%d", me);
    return sheaf__out_shared(grid->all, r->folder[me], host, 0);
}

static sheaf_status *ask(run *r, int ranks)
{
    return sheaf__grid_run(&(sheaf__grid_options){ .groups = 1, .ranks = ranks, .messages = true },
                           body, r);
}

static void test_out__one_folder_under_any_name_is_shared(void **state)
{
    run r;
    assert_int_equal(mkdir(at("one"), 0777), 0);
    assert_int_equal(symlink(at("one"), at("link")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "link" : "one"));
    for (int ranks = 1; ranks <= 4; ranks++)
        CHECK_OK(ask(&r, ranks));
    assert_int_equal(entries(at("one")), 0);
}

static void test_out__another_folder_is_refused_by_host(void **state)
{
    run r;
    assert_int_equal(mkdir(at("mine"), 0777), 0);
    assert_int_equal(mkdir(at("theirs"), 0777), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "theirs" : "mine"));
    CHECK_OK(ask(&r, 2));
    CHECK_FAILS(ask(&r, 4), SHEAF_E_IO, "on host h2");
    char *path = NULL; /* of a file that another run left, of the same name by chance */
    CHECK_OK(sheaf__partial_path(&path, at("theirs/seen"), "partial", 0));
    put(path, "00000000000000000000000000000000");
    CHECK_FAILS(ask(&r, 4), SHEAF_E_IO, "on host h2");
    unlink(path);
    free(path);
    snprintf(r.folder[2], sizeof r.folder[2], "%s", at("nowhere"));
    CHECK_FAILS(ask(&r, 3), SHEAF_E_IO, "on host h2");
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

/* The nearest folder above it tells. */
static void test_out__before_it_is_there(void **state)
{
    run r;
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at("one/deep/run"));
    CHECK_OK(ask(&r, 4));
    assert_int_equal(entries(at("one")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s",
                 at(i == 2 ? "theirs/deep/run" : "mine/deep/run"));
    CHECK_OK(ask(&r, 2));
    CHECK_FAILS(ask(&r, 4), SHEAF_E_IO, "run on host h2");
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out__one_folder_under_any_name_is_shared),
        cmocka_unit_test(test_out__another_folder_is_refused_by_host),
        cmocka_unit_test(test_out__before_it_is_there),
    };
    return cmocka_run_group_tests_name("train/shared_out", tests, make_scratch, remove_scratch);
}
