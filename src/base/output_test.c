/* Outputs whose folder is there: behind a link, and filled from within where it cannot be
 * replaced. */
#include "tests/files.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/output.h"
#include "tests/faults/faults.h"

static const char *const names[] = { "a.safetensors", "config.json", "model.safetensors.index.json",
                                     "latest", "z" };

static sheaf_status *write_all(const char *dst)
{
    sheaf_output *output = NULL;
    sheaf_status *st = sheaf__output_begin(&output, dst, false);
    for (size_t i = 0; i < ARRAY_LEN(names) && st == NULL; i++)
        st = sheaf__output_write(output, names[i], "text", 4);
    if (st == NULL)
        return sheaf__output_commit(output);
    sheaf__output_abandon(output);
    return st;
}

static void fresh(const char *dir, const char *dst)
{
    CHECK_OK(sheaf__remove_tree(dir));
    CHECK_OK(sheaf__make_dirs(dst));
}

static bool there(const char *dir, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return sheaf__path_kind(path) == SHEAF_PATH_FILE;
}

static void check_whole(const char *dir)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_true(there(dir, names[i]));
    assert_int_equal(entries(dir), ARRAY_LEN(names));
}

TEST(test_output__a_link_to_an_empty_folder_stays_a_link)
{
    struct stat about;
    char dst[300], link_name[300];
    snprintf(dst, sizeof dst, "%s", at("l/far/real"));
    snprintf(link_name, sizeof link_name, "%s", at("l/link"));
    fresh(at("l"), dst);
    assert_int_equal(symlink("far/real", link_name), 0);
    CHECK_OK(sheaf__output_check(link_name));
    CHECK_OK(write_all(link_name));
    assert_true(lstat(link_name, &about) == 0 && S_ISLNK(about.st_mode));
    check_whole(dst);
    assert_int_equal(entries(at("l")), 2);
    assert_int_equal(entries(at("l/far")), 1);
    CHECK_FAILS(write_all(link_name), SHEAF_E_ARG, "a folder that is not empty");
}

TEST(test_output__a_link_that_leads_nowhere_is_refused_first)
{
    sheaf_output *output = NULL;
    CHECK_OK(sheaf__make_dirs(at("d")));
    assert_int_equal(symlink("nowhere", at("d/link")), 0);
    CHECK_FAILS(
        sheaf__output_check(at("d/link")), SHEAF_E_ARG,
        "nothing there yet | a symbolic link that leads nowhere | make the folder it leads to");
    CHECK_FAILS(sheaf__output_check(at("d/link/")), SHEAF_E_ARG, "leads nowhere");
    for (int replace = 0; replace < 2; replace++)
        CHECK_FAILS(sheaf__output_begin(&output, at("d/link"), replace), SHEAF_E_ARG,
                    "leads nowhere");
    assert_int_equal(entries(at("d")), 1);
    CHECK_OK(sheaf__output_check(at("d/new")));
    CHECK_OK(sheaf__output_check(at("d/no/such/new")));
}

TEST(test_mount__is_told)
{
    CHECK_OK(sheaf__make_dirs(at("plain")));
    assert_true(sheaf__path_is_mount("/proc"));
    assert_false(sheaf__path_is_mount("/proc/self"));
    assert_false(sheaf__path_is_mount(at("plain")));
    assert_false(sheaf__path_is_mount(at("none")));
}

/* mkdir fails once: nothing can be made beside the folder. */
static sheaf_faults no_room(void)
{
    return (sheaf_faults){ .op = SHEAF_FAULT_MKDIR, .action = SHEAF_FAULT_FAIL, .n = 1 };
}

TEST(test_fill__a_folder_beside_which_nothing_can_be_made)
{
    sheaf_faults none = no_room();
    fresh(at("f"), at("f/dst"));
    CHECK_OK(UNDER(&none, write_all(at("f/dst/"))));
    check_whole(at("f/dst"));
    assert_int_equal(entries(at("f")), 1);
    none = no_room(); /* a folder that is not there needs one beside it */
    CHECK_FAILS(UNDER(&none, write_all(at("f/new"))), SHEAF_E_IO, "cannot make the folder");
}

TEST(test_fill__a_failed_move_takes_all_back)
{
    for (int n = 1; n <= (int)ARRAY_LEN(names); n++) {
        sheaf_faults none = no_room(), fails = {
            .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_FAIL, .n = n, .also = &none
        };
        fresh(at("g"), at("g/dst"));
        CHECK_FAILS(UNDER(&fails, write_all(at("g/dst"))), SHEAF_E_IO, "moving it into the folder");
        assert_int_equal(entries(at("g/dst")), 0);
    }
}

TEST(test_fill__what_says_that_it_is_whole_comes_last)
{
    static const char *const order[] = { "a.safetensors", "z", "model.safetensors.index.json",
                                         "config.json", "latest" };
    for (int n = 1; n <= (int)ARRAY_LEN(names); n++) {
        fresh(at("k"), at("k/dst"));
        const pid_t child = fork();
        if (child == 0) {
            sheaf_faults none = no_room(), dies = {
                .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_KILL, .n = n, .also = &none
            };
            sheaf_status_free(UNDER(&dies, write_all(at("k/dst"))));
            _exit(0);
        }
        int how = 0;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        for (int i = 0; i < (int)ARRAY_LEN(order); i++)
            assert_int_equal(there(at("k/dst"), order[i]), i < n - 1);
    }
}

TEST(test_fill__one_at_a_time_and_what_died_goes)
{
    sheaf_faults none = no_room(), again = no_room();
    sheaf_output *output = NULL, *other = NULL;
    char mine[400];
    fresh(at("o"), at("o/dst"));
    CHECK_OK(UNDER(&none, sheaf__output_begin(&output, at("o/dst"), false)));
    CHECK_FAILS(UNDER(&again, sheaf__output_begin(&other, at("o/dst"), false)), SHEAF_E_ARG,
                "an empty folder that no process writes");
    CHECK_OK(sheaf__output_sweep(at("o/dst"), NULL)); /* it is written */
    assert_int_equal(sheaf__path_kind(sheaf__output_dir(output)), SHEAF_PATH_DIR);
    snprintf(mine, sizeof mine, "%s/mine", at("o/dst"));
    CHECK_OK(sheaf__output_write(output, "a", "text", 4));
    CHECK_OK(sheaf__file_write_whole(mine, "my own", 6));
    CHECK_FAILS(sheaf__output_commit(output), SHEAF_E_ARG, "a folder that is not empty");
    assert_int_equal(entries(at("o/dst")), 1);
    assert_true(there(at("o/dst"), "mine"));
    fresh(at("o"), at("o/dst")); /* left by a killed process */
    char *dead = NULL;
    CHECK_OK(sheaf__partial_path(&dead, at("o/dst/dst"), "partial", 0));
    CHECK_OK(sheaf__make_dir(dead));
    CHECK_OK(sheaf__output_check(at("o/dst")));
    none = no_room();
    CHECK_OK(sheaf__output_sweep(at("o/dst"), NULL));
    assert_int_equal(entries(at("o/dst")), 0);
    CHECK_OK(UNDER(&none, write_all(at("o/dst"))));
    check_whole(at("o/dst"));
    free(dead);
}

static void *commit_slowly(void *output)
{
    return sheaf__output_commit(output);
}

/* Of two that replace one folder, which is not there yet, both succeed, whoever looked first. */
TEST(test_output__two_at_once_that_may_replace)
{
    sheaf_faults slow = { .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_SLOW, .n = 1 };
    sheaf_output *first = NULL, *second = NULL;
    pthread_t thread;
    void *failed = NULL;
    CHECK_OK(sheaf__output_begin(&first, at("two/dst"), true));
    CHECK_OK(sheaf__output_write(first, "of", "first", 5));
    CHECK_OK(sheaf__output_begin(&second, at("two/dst"), true));
    CHECK_OK(sheaf__output_write(second, "of", "second", 6));
    faults_use(&slow);
    assert_int_equal(pthread_create(&thread, NULL, commit_slowly, first), 0);
    usleep(300000); /* it has looked, and renames after a second */
    CHECK_OK(sheaf__output_commit(second));
    assert_int_equal(pthread_join(thread, &failed), 0);
    faults_use(NULL);
    CHECK_OK(failed);
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, at("two/dst/of"), 100));
    assert_string_equal(text, "first"); /* the last one */
    assert_int_equal(entries(at("two")), 1);
    free(text);
}

FIXTURE(make_scratch, remove_scratch);
