/* temporary_test.c - what a process that was killed left is removed by the next, and nothing else.
 */
#include "tests/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/temporary.h"

static char folder[] = "/tmp/sheaf-temporary.XXXXXX";

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A process that makes one and is killed; its path. */
static void be_killed(char path[128], const char *kind, bool is_folder)
{
    int pipe_of[2], code = 0, lock;
    assert_int_equal(pipe(pipe_of), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(sheaf__temporary_make(path, 128, &lock, kind, is_folder));
        char more[160];
        snprintf(more, sizeof more, "%s/more", path); /* for a folder */
        const int fd = open(more, O_CREAT | O_WRONLY, 0600);
        assert_int_equal(fd >= 0, is_folder);
        (void)!write(pipe_of[1], path, 128);
        raise(SIGKILL);
    }
    assert_int_equal(read(pipe_of[0], path, 128), 128);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    close(pipe_of[0]);
    close(pipe_of[1]);
    assert_true(there(path));
}

TEST(test_temporary__of_the_dead)
{
    for (int is_folder = 0; is_folder < 2; is_folder++) {
        char dead[128], other[128], mine[128], next[128], foreign[128];
        int lock, again;
        struct stat about;
        CHECK_OK(sheaf__temporary_make(mine, sizeof mine, &lock, "kind", is_folder));
        be_killed(other, "another", is_folder);
        be_killed(dead, "kind", is_folder);
        snprintf(foreign, sizeof foreign, "%s/sheaf-kind.12345", folder); /* not such a name */
        close(open(foreign, O_CREAT | O_WRONLY, 0600));
        CHECK_OK(sheaf__temporary_make(next, sizeof next, &again, "kind", is_folder));
        assert_false(there(dead)); /* and the file in it */
        assert_true(there(mine) && there(next) && there(other) && there(foreign));
        assert_int_equal(stat(next, &about), 0);
        assert_int_equal(about.st_mode & 077, 0);
        close(lock);
        close(again);
        CHECK_OK(sheaf__remove_tree(other));
        CHECK_OK(sheaf__remove_tree(mine));
        CHECK_OK(sheaf__remove_tree(next));
    }
}

TEST(test_temporary__where)
{
    char small[32];
    int lock = -1;
    CHECK_OK(sheaf__temporary_make(small, sizeof small, &lock, "short", false));
    assert_int_equal(strncmp(small, "/tmp/sheaf-short.", 17), 0); /* the other does not fit */
    unlink(small);
    close(lock);
    char path[256];
    setenv("TMPDIR", "/nowhere", 1);
    CHECK_FAILS(sheaf__temporary_make(path, sizeof path, &lock, "kind", false), SHEAF_E_IO,
                "creating");
    assert_int_equal(lock, -1);
}

static int setup(void **state)
{
    return mkdtemp(folder) == NULL || setenv("TMPDIR", folder, 1) != 0;
}

static int teardown(void **state)
{
    sheaf_status_free(sheaf__remove_tree(folder));
    return 0;
}

FIXTURE(setup, teardown);
