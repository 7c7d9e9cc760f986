/* shared_out_test.c - a rank that has another folder than the first is refused, and nothing is
 * left.
 */
#include "train/out_folder.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/grid.h"
#include "tests/files.h"

typedef struct run {
    char folder[4][500];
    double wait;
} run;

static sheaf_status *body(void *context, const sheaf__grid *grid)
{
    run *r = context;
    const int me = sheaf_comm_rank(grid->all);
    return sheaf__out_shared(grid->all, r->folder[me], r->wait);
}

static sheaf_status *ask(run *r, int ranks)
{
    return sheaf__grid_run(&(sheaf__grid_options){ .groups = 1, .ranks = ranks, .messages = true },
                           body, r);
}

TEST(test_out__one_folder_under_any_name_is_shared)
{
    run r = { .wait = 0 };
    assert_int_equal(mkdir(at("one"), 0777), 0);
    assert_int_equal(symlink(at("one"), at("link")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "link" : "one"));
    for (int ranks = 1; ranks <= 4; ranks++)
        CHECK_OK(ask(&r, ranks));
    assert_int_equal(entries(at("one")), 0);
}

TEST(test_out__another_folder_is_noticed)
{
    run r = { .wait = 0 };
    assert_int_equal(mkdir(at("mine"), 0777), 0);
    assert_int_equal(mkdir(at("theirs"), 0777), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at(i == 2 ? "theirs" : "mine"));
    CHECK_OK(ask(&r, 2));
    CHECK_FAILS(ask(&r, 4), SHEAF_E_ARG, "first process wrote is not there");
    snprintf(r.folder[2], sizeof r.folder[2], "%s", at("nowhere"));
    CHECK_FAILS(ask(&r, 3), SHEAF_E_ARG, "first process wrote is not there");
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

/* The content of a folder while the ranks look. */
static void *spy(void *folder)
{
    static char names[2][200];
    for (int i = 0; i < 400 && names[1][0] == '\0'; i++) {
        char **name = NULL;
        int64_t count = 0;
        for (int k = 0; k < 2; k++) {
            char path[600];
            snprintf(path, sizeof path, "%s%s", (const char *)folder, k == 0 ? "" : "/deep/run");
            sheaf_status_free(sheaf__list_dir(&name, &count, path));
            for (int64_t n = 0; n < count; n++)
                if (strcmp(name[n], "deep") != 0)
                    snprintf(names[k], sizeof names[k], "%s", name[n]);
            sheaf__names_free(name, count);
            name = NULL;
            count = 0;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return names;
}

/* A run that is killed meanwhile leaves nothing above OUT. */
TEST(test_out__the_file_lies_in_it)
{
    run r = { .wait = 0.3 };
    pthread_t thread;
    char(*names)[200];
    assert_int_equal(mkdir(at("spied"), 0777), 0);
    char *folder = strdup(at("spied"));
    assert_int_equal(pthread_create(&thread, NULL, spy, folder), 0);
    snprintf(r.folder[0], sizeof r.folder[0], "%s", at("spied/deep/run"));
    snprintf(r.folder[1], sizeof r.folder[1], "%s", at("nowhere"));
    CHECK_FAILS(ask(&r, 2), SHEAF_E_ARG, "first process wrote is not there");
    assert_int_equal(pthread_join(thread, (void **)&names), 0);
    assert_string_equal(names[0], "");
    assert_memory_equal(names[1], "seen-", 5);
    assert_true(sheaf__path_is_partial(names[1]));
    assert_int_equal(entries(at("spied")), 0);
    free(folder);
}

TEST(test_out__before_it_is_there)
{
    run r = { .wait = 0 };
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at("one/deep/run"));
    CHECK_OK(ask(&r, 4));
    assert_int_equal(entries(at("one")), 0);
    for (int i = 0; i < 4; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s",
                 at(i == 2 ? "theirs/deep/run" : "mine/deep/run"));
    CHECK_OK(ask(&r, 2));
    CHECK_FAILS(ask(&r, 4), SHEAF_E_ARG, "first process wrote is not there");
    assert_int_equal(entries(at("mine")), 0);
    assert_int_equal(entries(at("theirs")), 0);
}

/* A folder that cannot be made there. */
TEST(test_out__where_nothing_can_be_written)
{
    run r = { .wait = 0 };
    put(at("file"), "no folder");
    for (int i = 0; i < 2; i++)
        snprintf(r.folder[i], sizeof r.folder[i], "%s", at("file/run"));
    CHECK_FAILS(ask(&r, 2), SHEAF_E_IO, "/file/run`: ");
}

FIXTURE(make_scratch, remove_scratch);
