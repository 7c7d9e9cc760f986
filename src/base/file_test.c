/* file_test.c - reading exactly, writing completely or not at all, at every failing call. */
#include "tests/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "base/file.h"
#include "base/output.h"
#include "tests/faults/faults.h"

static char *content(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, 1 << 20);
    sheaf_status_free(st);
    return text;
}

static void check_content(const char *path, const char *want)
{
    char *text = content(path);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

/* Nothing is in a folder but `name` and what bears the name of unfinished ones. */
static void check_leftovers(const char *folder, const char *name)
{
    char **names;
    int64_t count;
    CHECK_OK(sheaf__list_dir(&names, &count, folder));
    for (int64_t i = 0; i < count; i++)
        assert_true(strcmp(names[i], name) == 0 || sheaf__path_is_partial(names[i]));
    sheaf__names_free(names, count);
}

/* close() of this program, as on a file system that reports only there that bytes were lost. */
static bool close_fails;
int close(int fd)
{
    const int closed = (int)syscall(SYS_close, fd);
    errno = close_fails ? EIO : errno;
    return close_fails ? -1 : closed;
}

static void check_path(sheaf_status *st, char **got, const char *want)
{
    CHECK_OK(st);
    assert_string_equal(*got, want);
    free(*got);
}

TEST(test_paths__parents_and_joins)
{
    static const struct {
        const char *path, *parent;
    } rows[] = {
        { "a", "." },       { "a/b", "a" },  { "a/b/", "a" }, { "/a", "/" },  { "/", "/" },
        { "/a/b//", "/a" }, { "a//b", "a" }, { "", "." },     { "./x", "." },
    };
    char *got = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_path(sheaf__path_parent(&got, rows[i].path), &got, rows[i].parent);
    }
    check_path(sheaf__path_join(&got, "a", "b"), &got, "a/b");
    check_path(sheaf__path_join(&got, "a/", "b"), &got, "a/b");
}

TEST(test_paths__whole_and_seen_from_a_folder)
{
    static const struct {
        const char *folder, *path, *from;
    } rows[] = {
        { "/a/b", "/a/b/c.png", "c.png" },
        { "/a/b", "/a/b/../c.png", "../c.png" },
        { "/", "/c.png", "c.png" },
        { "/nowhere/b", "/nowhere/bc.png", "/nowhere/bc.png" },
        { "/", "/a/b", "a/b" },
    };
    char *got = NULL, *here = getcwd(NULL, 0), *want = NULL, *folder = strdup(at("x/y"));
    assert_non_null(here);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_path(sheaf__path_relative(&got, rows[i].folder, rows[i].path), &got, rows[i].from);
    }
    check_path(sheaf__path_absolute(&got, "/a//./b/../c.png"), &got, "/a/b/../c.png");
    CHECK_OK(sheaf__path_absolute(&got, "./a/./b"));
    CHECK_OK(sheaf__path_join(&want, here, "a/b"));
    assert_string_equal(got, want);
    free(got);
    free(want);
    static const char *const named[][2] = { { "/a/b", "b" },    { "a/b//", "b" }, { "b", "b" },
                                            { "a/./b/.", "b" }, { "..", ".." },   { "/", "/" } };
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        check_path(sheaf__path_name(&got, named[i][0]), &got, named[i][1]);
    }
    check_path(sheaf__path_name(&got, "."), &got, strrchr(here, '/') + 1);
    /* beside it, and through a link to its parent, which lies elsewhere */
    CHECK_OK(sheaf__make_dirs(folder));
    CHECK_OK(sheaf__make_dirs(at("z")));
    check_path(sheaf__path_relative(&got, folder, at("z/c.png")), &got, "../../z/c.png");
    assert_int_equal(symlink("x/y", at("link")), 0);
    CHECK_OK(sheaf__path_absolute(&want, at("link")));
    check_path(sheaf__path_relative(&got, want, at("z/c.png")), &got, "../../z/c.png");
    free(want);
    free(folder);
    free(here);
}

TEST(test_paths__unfinished_ones_are_recognised)
{
    static const char *const bases[] = { "out", "a/out", "a.b/step-00000004", "x.partial-7" };
    static const char *const words[] = { "partial", "replaced" };
    char *name = NULL, other[200];
    for (size_t i = 0; i < ARRAY_LEN(bases); i++)
        for (int k = 0; k < 6; k++) {
            CHECK_OK(sheaf__partial_path(&name, bases[i], words[k % 2], k / 2));
            snprintf(other, sizeof other, "%s/", name);
            assert_true(sheaf__path_is_partial(name) && sheaf__path_is_partial(other));
            snprintf(other, sizeof other, "%s/x", name);
            assert_false(sheaf__path_is_partial(other));
            snprintf(other, sizeof other, "y%s",
                     strrchr(name, '/') != NULL ? strrchr(name, '/') + 1
                                                : name); /* under another name it is not ours */
            assert_false(sheaf__path_is_partial(other));
            name[strlen(name) - 1] ^= 1;
            assert_false(sheaf__path_is_partial(name));
            free(name);
        }
    static const char *const others[] = {
        /* of somebody else */
        "out.partial-123",
        "out.partial-2024.11.05",
        "out.partial-1.2",
        "out.replaced-9",
        "out.partial-",
        "out.partial",
        "step-000123",
        "out.partial-5-0123456789abcdef",
        "out.partial-20241105-0000000000000000",
        "-0123456789abcdef",
        "",
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (sheaf__path_is_partial(others[i]))
            fail_msg("%s", others[i]);
}

TEST(test_read__names_offset_expected_and_found)
{
    int fd = -1;
    int64_t size = 0;
    char bytes[16] = { 0 };
    put(at("ten"), "0123456789");
    CHECK_OK(sheaf__file_open_read(&fd, &size, at("ten")));
    assert_int_equal(size, 10);
    CHECK_OK(sheaf__file_read_at(fd, bytes, 4, 3, "ten"));
    assert_memory_equal(bytes, "3456", 5);
    CHECK_OK(sheaf__file_read_at(fd, bytes, 0, 10, "ten"));
    CHECK_FAILS(sheaf__file_read_at(fd, bytes, 8, 5, "ten"), SHEAF_E_FORMAT,
                "ten: the file ends too early | 8 bytes at offset 5 | 5 bytes before the end");
    CHECK_FAILS(sheaf__file_read_at(fd, bytes, 1, -5, "ten"), SHEAF_E_IO,
                "ten: reading at byte -5");
    close(fd);
    CHECK_FAILS(sheaf__file_read_at(fd, bytes, 1, 0, "ten"), SHEAF_E_IO, "Bad file descriptor");
}

TEST(test_read__a_status_keeps_the_error_of_the_system)
{
    int fd;
    int64_t size;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, "no-such-folder/file");
    assert_non_null(st);
    sheaf_status *copy = sheaf_status_copy(sheaf_in(st, "opening"));
    assert_int_equal(sheaf_status_errno(copy), ENOENT);
    sheaf_status_free(copy);
    sheaf_status_free(st);
    st = sheaf_found(sheaf_fail(SHEAF_E_ARG, "a flag"), "%s", strerror(ENOENT));
    assert_int_equal(sheaf_status_errno(st), 0);
    sheaf_status_free(st);
}

TEST(test_read__only_regular_files)
{
    int fd;
    int64_t size;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    alarm(20); /* opening it must not block */
    CHECK_FAILS(sheaf__file_open_read(&fd, &size, at("pipe")), SHEAF_E_IO,
                "a regular file | a pipe");
    alarm(0);
    CHECK_FAILS(sheaf__file_open_read(&fd, &size, scratch.dir), SHEAF_E_IO,
                "a regular file | a folder");
    CHECK_FAILS(sheaf__file_open_read(&fd, &size, at("none")), SHEAF_E_IO, "No such file");
    put(at("pointer"), "version https://git-lfs.github.com/spec/v1\n"); /* cut short */
    CHECK_FAILS(sheaf__file_open_read(&fd, &size, at("pointer")), SHEAF_E_FORMAT,
                "the file itself | a pointer of git-lfs to 0 bytes | git lfs pull");
    char *text;
    size_t n;
    put(at("ten"), "0123456789");
    CHECK_FAILS(sheaf__file_read_all(&text, &n, at("ten"), 9), SHEAF_E_FORMAT,
                "at most 9 bytes | 10 bytes");
    CHECK_OK(sheaf__file_read_all(&text, &n, at("ten"), 10));
    assert_true(n == 10 && text[10] == '\0');
    free(text);
}

TEST(test_write__creates_once_and_reserves)
{
    sheaf_file file;
    CHECK_OK(sheaf__file_create(&file, at("new")));
    CHECK_OK(sheaf__file_reserve(&file, 100));
    CHECK_OK(sheaf__file_write_at(&file, "xy", 2, 98));
    CHECK_OK(sheaf__file_write_at(&file, "ab", 2, 0));
    CHECK_OK(sheaf__file_sync(&file));
    CHECK_OK(sheaf__file_close(&file));
    CHECK_OK(sheaf__file_close(&file)); /* twice is fine */
    char *text = content(at("new"));
    assert_true(memcmp(text, "ab\0", 3) == 0 && memcmp(text + 97, "\0xy", 4) == 0);
    free(text);
    CHECK_FAILS(sheaf__file_create(&file, at("new")), SHEAF_E_IO, "File exists");
    CHECK_OK(sheaf__file_open_write(&file, at("new")));
    CHECK_OK(sheaf__file_write_at(&file, "z", 1, 1));
    CHECK_OK(sheaf__file_close(&file));
    text = content(at("new"));
    assert_true(memcmp(text, "az\0", 3) == 0);
    free(text);
    CHECK_FAILS(sheaf__file_open_write(&file, at("none")), SHEAF_E_IO, "No such file");
}

TEST(test_write__reserved_blocks_are_claimed)
{
    sheaf_file file;
    struct stat about;
    CHECK_OK(sheaf__file_create(&file, at("probe")));
    const bool supported = fallocate(file.fd, 0, 0, 1 << 20) == 0;
    CHECK_OK(sheaf__file_close(&file));
    CHECK_OK(sheaf__file_create(&file, at("claimed")));
    CHECK_OK(sheaf__file_reserve(&file, 1 << 20));
    assert_int_equal(fstat(file.fd, &about), 0);
    assert_int_equal(about.st_size, 1 << 20);
    assert_true(!supported || about.st_blocks * 512 >= 1 << 20);
    CHECK_OK(sheaf__file_reserve(&file, 0));
    CHECK_FAILS(sheaf__file_reserve(&file, -1), SHEAF_E_IO, "claiming space");
    CHECK_OK(sheaf__file_close(&file));
}

TEST(test_write__what_cannot_be_claimed_is_given_back)
{
    sheaf_faults faults = { .op = SHEAF_FAULT_WRITE, .action = SHEAF_FAULT_ENOSPC, .n = 2 };
    sheaf_file file;
    struct stat about;
    CHECK_OK(sheaf__file_create(&file, at("half")));
    faults_use(&faults);
    CHECK_OK(sheaf__file_reserve(&file, 1 << 20));
    CHECK_FAILS(sheaf__file_reserve(&file, 1 << 21), SHEAF_E_IO,
                "room for 2097152 bytes | No space left on device; ");
    faults_use(NULL);
    assert_int_equal(fstat(file.fd, &about), 0);
    assert_int_equal(about.st_size, 0);
    assert_int_equal(about.st_blocks, 0);
    CHECK_OK(sheaf__file_close(&file));
}

TEST(test_write_whole__removes_what_killed_processes_left_of_it)
{
    mkdir(at("left"), 0700);
    char *mine = NULL;
    sheaf_file file;
    int lock;
    for (int i = 0; i < 4; i++) { /* of our number; the last ones of another file */
        char *left = NULL;
        CHECK_OK(sheaf__partial_path(&left, at(i < 2 ? "left/f" : "left/ff"), "partial", i));
        CHECK_OK(sheaf__file_create(&file, left));
        CHECK_OK(sheaf__file_close(&file));
        free(left);
    }
    CHECK_OK(sheaf__file_create_partial(&file, &mine, &lock, at("left/f")));
    assert_int_equal(entries(at("left")), 3);
    put(at("left/f"), "text"); /* by another thread, as it were: nothing of what is being written */
    assert_int_equal(entries(at("left")), 4);
    CHECK_OK(sheaf__file_close(&file));
    put(at("left/f"), "text");
    assert_int_equal(access(mine, F_OK), 0);
    close(lock);
    put(at("left/f"), "other");
    assert_int_equal(entries(at("left")), 3);
    check_content(at("left/f"), "other");
    free(mine);
}

TEST(test_write__goes_on_after_short_and_interrupted_calls)
{
    sheaf_fault_action actions[] = { SHEAF_FAULT_SHORT, SHEAF_FAULT_EINTR };
    for (size_t a = 0; a < ARRAY_LEN(actions); a++)
        for (int n = 1; n < 12; n++) {
            sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = actions[a], .n = n };
            CHECK_OK(UNDER(&faults, sheaf__file_write_whole(at("whole"), "0123456789", 10)));
            check_content(at("whole"), "0123456789");
        }
    sheaf_faults always = {
        .op = SHEAF_FAULT_WRITE, .action = SHEAF_FAULT_SHORT, .n = 1, .from_then_on = true
    };
    CHECK_OK(UNDER(&always, sheaf__file_write_whole(at("whole"), "abcdefghij", 10)));
    assert_int_equal(always.seen, 10);
    check_content(at("whole"), "abcdefghij");
}

TEST(test_write__full_disk_says_what_is_free)
{
    sheaf_faults faults = { .op = SHEAF_FAULT_WRITE, .action = SHEAF_FAULT_ENOSPC, .n = 1 };
    CHECK_FAILS(UNDER(&faults, sheaf__file_write_whole(at("full"), "0123456789", 10)), SHEAF_E_IO,
                "MB are free there | free space");
    assert_int_equal(sheaf__path_kind(at("full")), SHEAF_PATH_NONE);
    sheaf_file file; /* a disk that is truly full */
    CHECK_OK(sheaf__file_open_write(&file, "/dev/full"));
    CHECK_FAILS(sheaf__file_write_at(&file, "x", 1, 0), SHEAF_E_IO, "No space left on device");
    CHECK_OK(sheaf__file_close(&file));
}

/* Fails each call in turn: `path` must hold the old or the new text, and nothing else be left. */
TEST(test_write_whole__any_failing_call_leaves_old_or_new)
{
    mkdir(at("d"), 0700);
    for (int n = 1;; n++) {
        put(at("d/f"), "old");
        sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = SHEAF_FAULT_FAIL, .n = n };
        sheaf_status *st = UNDER(&faults, sheaf__file_write_whole(at("d/f"), "new text", 8));
        char *text = content(at("d/f"));
        assert_int_equal(entries(at("d")), 1);
        if (st == NULL) {
            assert_string_equal(text, "new text");
            free(text);
            assert_true(n > 5); /* open, write, fsync, rename, open and fsync of the folder */
            break;
        }
        assert_true(strcmp(text, "old") == 0 || (strcmp(text, "new text") == 0 && n > 4));
        CHECK_FAILS(st, SHEAF_E_IO, "Input/output error");
        free(text);
    }
}

/* Runs `body` in a child with the fault; returns true when it died of SIGKILL. */
static bool killed(void (*body)(sheaf_faults *), sheaf_faults faults)
{
    const pid_t child = fork();
    if (child == 0) {
        body(&faults);
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how))
        return WTERMSIG(how) == SIGKILL;
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    return false;
}

static void write_f(sheaf_faults *faults)
{
    if (UNDER(faults, sheaf__file_write_whole(at("k/f"), "new text", 8)) != NULL)
        _exit(1);
}

TEST(test_write_whole__a_kill_at_any_call_leaves_old_or_new)
{
    const sheaf_fault_action actions[] = { SHEAF_FAULT_KILL, SHEAF_FAULT_TORN };
    for (size_t a = 0; a < ARRAY_LEN(actions); a++) {
        int deaths = 0, olds = 0;
        for (int n = 1;; n++) {
            CHECK_OK(sheaf__remove_tree(at("k")));
            mkdir(at("k"), 0700);
            put(at("k/f"), "old");
            const bool died = killed(write_f, (sheaf_faults){ .action = actions[a], .n = n });
            char *text = content(at("k/f"));
            assert_true(strcmp(text, "old") == 0 || strcmp(text, "new text") == 0);
            olds += strcmp(text, "old") == 0;
            free(text);
            if (!died)
                break;
            deaths++;
            check_leftovers(at("k"), "f");
        }
        assert_true(deaths >= 6 && olds >= 4 && olds < deaths);
    }
}

/* ---- output folders ---- */

static sheaf_status *make_output(const char *dst, bool replace)
{
    sheaf_output *output = NULL;
    sheaf_status *st = sheaf__output_begin(&output, dst, replace);
    if (st != NULL)
        return st;
    st = sheaf__output_write(output, "a", "new a", 5);
    TRY(st, sheaf__output_write(output, "b", "new b", 5));
    if (st != NULL) {
        sheaf__output_abandon(output);
        return st;
    }
    return sheaf__output_commit(output);
}

TEST(test_output__appears_at_commit)
{
    sheaf_output *output = NULL;
    CHECK_OK(sheaf__output_begin(&output, at("o1/deep/dst/"), false));
    CHECK_OK(sheaf__output_write(output, "a", "text", 4));
    assert_true(sheaf__path_is_partial(sheaf__output_dir(output)));
    assert_int_equal(sheaf__path_kind(at("o1/deep/dst")), SHEAF_PATH_NONE);
    CHECK_OK(sheaf__output_commit(output));
    check_content(at("o1/deep/dst/a"), "text");
    assert_int_equal(entries(at("o1/deep")), 1);
    CHECK_FAILS(make_output(at("o1/deep/dst"), false), SHEAF_E_ARG, "a folder that is not empty");
    CHECK_FAILS(make_output(at("o1/deep/dst/a"), false), SHEAF_E_ARG, "a file");
    CHECK_FAILS(make_output(at("o1/deep/dst/a"), true), SHEAF_E_ARG, "a file");
    for (size_t i = 0; i < 5; i++)
        CHECK_FAILS(make_output((const char *[]){ "", ".", "..", "/", "x/.." }[i], false),
                    SHEAF_E_ARG, "the name of a new folder");
    mkdir(at("empty"), 0700);
    CHECK_OK(make_output(at("empty"), false));
    assert_int_equal(entries(at("empty")), 2);
}

TEST(test_output__not_into_what_is_read)
{
    CHECK_OK(sheaf__make_dirs(at("in/src/deep")));
    CHECK_OK(sheaf__make_dirs(at("in/src-2")));
    assert_int_equal(symlink("src", at("in/link")), 0);
    assert_int_equal(symlink("../src/deep", at("in/src-2/into")), 0);
    static const struct {
        const char *dst;
        bool inside;
    } rows[] = {
        { "in/src", true },
        { "in/src/", true },
        { "in/src/new", true },
        { "in/src/no/such/new", true },
        { "in/link/new", true },
        { "in/src-2/into/new", true },
        { "in/src-2/into/../../none/../src/new", true },
        { "in/none/../link/new", true },
        { "in/src/deep", true },
        { "in/src/.hidden", true },
        { "in/./src/./new", true },
        { "in/src//new", true },
        { "in/new", false },
        { "in/src-2/new", false },
        { "in/src2", false },
        { "in/src/../new", false },
        { "in/link/../new", false },
        { "in", false },
        { "in/none/src/new", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int k = 0; k < 2; k++) {
            char dst[500];
            snprintf(dst, sizeof dst, "%s", at(rows[i].dst));
            sheaf_status *st = sheaf__output_outside(dst, at(k == 0 ? "in/src" : "in/link"));
            if ((st != NULL) != rows[i].inside)
                fail_msg("%s: %s", rows[i].dst, st != NULL ? "inside" : "outside");
            if (st != NULL)
                CHECK_FAILS(st, SHEAF_E_ARG, "which is read");
        }
    char *cwd = getcwd(NULL, 0);
    assert_non_null(cwd);
    assert_int_equal(chdir(at("in/src")), 0);
    CHECK_FAILS(sheaf__output_outside("new", "."), SHEAF_E_ARG, "which is read");
    CHECK_FAILS(sheaf__output_outside(".new/er", "../link"), SHEAF_E_ARG, "which is read");
    CHECK_FAILS(sheaf__output_outside("./new", "."), SHEAF_E_ARG, "which is read");
    CHECK_OK(sheaf__output_outside("../new", "."));
    CHECK_OK(sheaf__output_outside("new", "deep"));
    assert_int_equal(chdir(cwd), 0);
    free(cwd);
    put(at("in/file"), "text");
    CHECK_OK(sheaf__output_outside(at("in/file-2"), at("in/file")));
    CHECK_OK(sheaf__output_outside(at("in/file-2"), at("in/nothing")));
}

TEST(test_output__abandon_leaves_nothing)
{
    sheaf_output *output = NULL;
    CHECK_OK(sheaf__output_begin(&output, at("o2/dst"), false));
    CHECK_OK(sheaf__output_write(output, "a", "text", 4));
    sheaf__output_abandon(output);
    sheaf__output_abandon(NULL);
    assert_int_equal(entries(at("o2")), 0);
    CHECK_OK(sheaf__output_begin(&output, at("o2/dst"), false)); /* two at once do not meet */
    sheaf_output *other = NULL;
    CHECK_OK(sheaf__output_begin(&other, at("o2/dst"), false));
    assert_string_not_equal(sheaf__output_dir(output), sheaf__output_dir(other));
    CHECK_OK(sheaf__output_write(output, "a", "first", 5));
    CHECK_OK(sheaf__output_write(other, "a", "other", 5));
    CHECK_OK(sheaf__output_commit(output));
    sheaf_status *late = sheaf__output_commit(other); /* not replaced */
    assert_string_equal(sheaf_status_expected(late), "nothing there yet");
    assert_string_equal(sheaf_status_found(late), "a folder that another process made meanwhile");
    assert_non_null(strstr(sheaf_status_try(late), "choose another name"));
    CHECK_FAILS(late, SHEAF_E_ARG, "o2/dst");
    assert_int_equal(entries(at("o2")), 1);
    check_content(at("o2/dst/a"), "first");
}

static char told[2000];
static void listen_to(void *context, const sheaf_event *event)
{
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s\n", event->text);
}

/* Files that no process writes any more are removed, with a note; a file being written, or with a
 * similar name, stays. */
TEST(test_output__removes_what_a_killed_process_left)
{
    static const char *const stays[] = {
        "o5/dst.partial-backup", "o5/dst2.partial-77",        "o5/dst.replaced-77",
        "o5/dst.partial-77",     "o5/dst.partial-2024.11.05", "o5/dst.partial-77-0123456789abcdef",
    };
    const sheaf_events events = { listen_to, NULL };
    sheaf_output *output = NULL;
    char *dead[4] = { NULL }, mine[300];
    for (size_t i = 0; i < ARRAY_LEN(stays); i++) {
        CHECK_OK(sheaf__make_dirs(at(stays[i])));
        snprintf(mine, sizeof mine, "%s/thesis", stays[i]);
        put(at(mine), "years of work");
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(sheaf__partial_path(&dead[i], at("o5/dst"), "partial", i));
        snprintf(mine, sizeof mine, "%s/deep", dead[i]);
        CHECK_OK(sheaf__make_dirs(mine));
    }
    CHECK_OK(sheaf__partial_path(&dead[2], at("o5/dst2"), "partial", 0)); /* of another output */
    CHECK_OK(sheaf__make_dir(dead[2]));
    CHECK_OK(sheaf__partial_path(&dead[3], at("o5/dst"), "replaced",
                                 0)); /* maybe all that is left of the old one */
    CHECK_OK(sheaf__make_dir(dead[3]));
    CHECK_OK(sheaf__output_begin(&output, at("o5/dst"),
                                 false)); /* by itself it removes nothing: it could not say so */
    assert_int_equal(entries(at("o5")), ARRAY_LEN(stays) + 5);
    told[0] = '\0';
    CHECK_OK(sheaf__output_sweep(at("o5/dst/"), &events));
    assert_int_equal(entries(at("o5")), ARRAY_LEN(stays) + 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sheaf__path_kind(dead[i]), i < 2 ? SHEAF_PATH_NONE : SHEAF_PATH_DIR);
        assert_true((strstr(told, dead[i]) != NULL) == (i < 2));
        free(dead[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(stays); i++) {
        snprintf(mine, sizeof mine, "%s/thesis", stays[i]);
        check_content(at(mine), "years of work");
    }
    CHECK_OK(sheaf__output_sweep(at("o5/no/such"), NULL));
    CHECK_OK(sheaf__output_commit(output));
    assert_int_equal(entries(at("o5")), ARRAY_LEN(stays) + 3);
}

TEST(test_rename_new__replaces_nothing)
{
    for (int unknown = 0; unknown < 2; unknown++) { /* with and without RENAME_NOREPLACE */
        sheaf_faults faults = { .op = SHEAF_FAULT_RENAME,
                                .action = unknown ? SHEAF_FAULT_ENOSYS : SHEAF_FAULT_NONE,
                                .n = 1,
                                .from_then_on = true };
        CHECK_OK(sheaf__remove_tree(at("rn")));
        mkdir(at("rn"), 0700);
        put(at("rn/one"), "first");
        put(at("rn/two"), "other");
        CHECK_OK(UNDER(&faults, sheaf__rename_new(at("rn/one"), at("rn/dst"))));
        CHECK_FAILS(UNDER(&faults, sheaf__rename_new(at("rn/two"), at("rn/dst"))), SHEAF_E_ARG,
                    "rn/dst | nothing there yet | something that came there meanwhile");
        CHECK_FAILS(UNDER(&faults, sheaf__rename_new(at("rn/none"), at("rn/dst2"))), SHEAF_E_IO,
                    "No such file");
        check_content(at("rn/dst"), "first");
        assert_int_equal(entries(at("rn")), 2);
        assert_int_equal(symlink("nowhere", at("rn/link")), 0);
        CHECK_FAILS(UNDER(&faults, sheaf__rename_new(at("rn/two"), at("rn/link"))), SHEAF_E_ARG,
                    "rn/link");
    }
}

static void prepare(const char *base, bool old)
{
    char path[256];
    CHECK_OK(sheaf__remove_tree(base));
    mkdir(base, 0700);
    if (!old)
        return;
    snprintf(path, sizeof path, "%s/dst", base);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/dst/a", base);
    put(path, "old a");
}

/* dst holds all of the new files, or what was there before. Says which: 1 new, 0 before. */
static int what_is_there(const char *base, bool old)
{
    char path[256];
    snprintf(path, sizeof path, "%s/dst", base);
    if (sheaf__path_kind(path) == SHEAF_PATH_NONE) {
        assert_false(old);
        return 0;
    }
    const int64_t n = entries(path);
    snprintf(path, sizeof path, "%s/dst/a", base);
    char *a = content(path);
    snprintf(path, sizeof path, "%s/dst/b", base);
    char *b = content(path);
    const bool new =
        n == 2 && a != NULL &&strcmp(a, "new a") == 0 && b != NULL &&strcmp(b, "new b") == 0;
    assert_true(new || (old && n == 1 && a != NULL && strcmp(a, "old a") == 0));
    free(a);
    free(b);
    return new;
}

TEST(test_output__any_failing_call_leaves_old_or_new)
{
    for (int old = 0; old < 2; old++) {
        const char *base = at("o3");
        for (int n = 1;; n++) {
            base = at("o3");
            prepare(base, old);
            sheaf_faults faults = { .action = SHEAF_FAULT_FAIL, .n = n };
            sheaf_status *st = UNDER(&faults, make_output(at("o3/dst"), old));
            const int is_new = what_is_there(base, old);
            if (st == NULL && faults.seen < n) {
                assert_true(is_new && n > 10);
                assert_int_equal(entries(base), 1);
                break;
            }
            if (st != NULL && !is_new) /* cleaned up, except when cleaning was what failed */
                assert_int_equal(entries(base), old);
            sheaf_status_free(st);
        }
    }
}

static void new_output(sheaf_faults *faults)
{
    sheaf_status_free(UNDER(faults, make_output(at("o4/dst"), false)));
}

static void replacing_output(sheaf_faults *faults)
{
    sheaf_status_free(UNDER(faults, make_output(at("o4/dst"), true)));
}

TEST(test_output__a_kill_at_any_call_leaves_old_or_new)
{
    for (int old = 0; old < 2; old++) {
        int kept = 0, changed = 0;
        for (int n = 1;; n++) {
            prepare(at("o4"), old);
            const bool died = killed(old ? replacing_output : new_output,
                                     (sheaf_faults){ .action = SHEAF_FAULT_KILL, .n = n });
            const int is_new = what_is_there(at("o4"), old);
            kept += !is_new;
            changed += is_new;
            check_leftovers(at("o4"), "dst");
            if (!died)
                break;
        }
        assert_true(kept >= 8 && changed >= 2);
    }
}

/* Without renameat2()'s flags: the old folder must be whole somewhere at every moment. */
TEST(test_output__replaces_where_exchanging_is_unknown)
{
    sheaf_faults unknown = { .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_ENOSYS, .n = 1 };
    prepare(at("o4"), true);
    CHECK_OK(UNDER(&unknown, make_output(at("o4/dst"), true)));
    assert_int_equal(what_is_there(at("o4"), true), 1);
    assert_int_equal(entries(at("o4")), 1);
    unknown.seen = 0;
    prepare(at("o4"), false);
    CHECK_OK(UNDER(&unknown, make_output(at("o4/dst"), false)));
    assert_int_equal(what_is_there(at("o4"), false), 1);
    unknown.seen = 0; /* without replacing, what is there is still not touched */
    sheaf_output *output = NULL;
    prepare(at("o4"), false);
    CHECK_OK(UNDER(&unknown, sheaf__output_begin(&output, at("o4/dst"), false)));
    mkdir(at("o4/dst"), 0700);
    put(at("o4/dst/a"), "old a");
    CHECK_FAILS(sheaf__output_commit(output), SHEAF_E_ARG, "another process made meanwhile");
    assert_int_equal(what_is_there(at("o4"), true), 0);
}

TEST(test_output__a_kill_while_replacing_in_steps_keeps_the_old_one)
{
    for (int n = 1;; n++) {
        sheaf_faults unknown = { .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_ENOSYS, .n = 1 };
        prepare(at("o4"), true);
        const bool died =
            killed(replacing_output,
                   (sheaf_faults){ .action = SHEAF_FAULT_KILL, .n = n, .also = &unknown });
        if (sheaf__path_kind(at("o4/dst")) != SHEAF_PATH_NONE) {
            what_is_there(at("o4"), true);
        } else { /* between the two renames: both are beside it, under names that say so */
            char **names;
            int64_t count;
            assert_true(died);
            CHECK_OK(sheaf__list_dir(&names, &count, at("o4")));
            assert_int_equal(count, 2);
            assert_non_null(strstr(names[0], "dst.partial-"));
            assert_non_null(strstr(names[1], "dst.replaced-"));
            char path[1000];
            snprintf(path, sizeof path, "%s/%s/a", at("o4"), names[1]);
            check_content(path, "old a");
            sheaf__names_free(names, count);
        }
        if (!died)
            break;
    }
}

TEST(test_output__a_failed_step_puts_the_old_one_back)
{
    /* rename 1: exchange, unknown; 2: old away; 3: new in place, fails; 4: old back */
    sheaf_faults unknown = { .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_ENOSYS, .n = 1 };
    for (int n = 1; n <= 2; n++) {
        sheaf_faults faults = {
            .op = SHEAF_FAULT_RENAME, .action = SHEAF_FAULT_FAIL, .n = n, .also = &unknown
        };
        unknown.seen = 0;
        prepare(at("o4"), true);
        CHECK_FAILS(UNDER(&faults, make_output(at("o4/dst"), true)), SHEAF_E_IO,
                    "Input/output error");
        assert_int_equal(what_is_there(at("o4"), true), 0);
        assert_int_equal(entries(at("o4")), 1);
    }
}

TEST(test_remove_tree__does_not_follow_links)
{
    mkdir(at("keep"), 0700);
    put(at("keep/f"), "x");
    mkdir(at("gone"), 0700);
    mkdir(at("gone/sub"), 0700);
    put(at("gone/sub/f"), "x");
    assert_int_equal(symlink(at("keep"), at("gone/link")), 0);
    CHECK_OK(sheaf__remove_tree(at("gone")));
    assert_int_equal(sheaf__path_kind(at("gone")), SHEAF_PATH_NONE);
    assert_int_equal(sheaf__path_kind(at("keep/f")), SHEAF_PATH_FILE);
    CHECK_OK(sheaf__remove_tree(at("gone")));
    char deep[8192];
    size_t n = (size_t)snprintf(deep, sizeof deep, "%s", at("deep"));
    for (int i = 0; i < 66; i++, n += 2)
        strcpy(deep + n, "/d");
    CHECK_OK(sheaf__make_dirs(deep));
    CHECK_FAILS(sheaf__remove_tree(at("deep")), SHEAF_E_IO, "at most 64 levels");
    CHECK_OK(sheaf__remove_tree(at("deep/d/d/d")));
    CHECK_OK(sheaf__remove_tree(at("deep")));
    put(at("file"), "x");
    CHECK_OK(sheaf__remove_tree(at("file")));
    assert_int_equal(sheaf__path_kind(at("file")), SHEAF_PATH_NONE);
}

TEST(test_make_dirs__parents_and_files_in_the_way)
{
    CHECK_OK(sheaf__make_dirs(at("m/n/o")));
    CHECK_OK(sheaf__make_dirs(at("m/n/o/")));
    assert_int_equal(sheaf__path_kind(at("m/n/o")), SHEAF_PATH_DIR);
    CHECK_FAILS(sheaf__make_dir(at("m")), SHEAF_E_IO, "File exists");
    put(at("plain"), "x");
    CHECK_FAILS(sheaf__make_dirs(at("plain/x")), SHEAF_E_IO, "plain");
}

TEST(test_check_new__names_the_folder_that_is_missing_or_in_the_way)
{
    put(at("in_the_way"), "x");
    CHECK_OK(sheaf__path_check_new(at("new"), false));
    CHECK_OK(sheaf__path_check_new(at("a/b/c"), true));
    CHECK_FAILS(sheaf__path_check_new(at("a/b/c"), false), SHEAF_E_IO,
                "/a/b/c | a folder that is there and may be written | ");
    CHECK_FAILS(sheaf__path_check_new(at("in_the_way/b"), false), SHEAF_E_IO,
                "in_the_way: Not a directory | another name, or move ");
    CHECK_FAILS(sheaf__path_check_new(at("in_the_way/b/c/d"), true), SHEAF_E_IO,
                "in_the_way: Not a directory | another name");
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    CHECK_FAILS(sheaf__path_check_new(at("dangling/c"), true), SHEAF_E_IO,
                "dangling: Not a directory");
    CHECK_FAILS(sheaf__output_check(at("in_the_way/b/c")), SHEAF_E_IO, "in_the_way: Not a");
}

/* The process's one, in a process of its own; the environment is nothing to the library. */
static int exit_of_a_write(const char *spec, bool environment)
{
    const pid_t child = fork();
    if (child == 0) {
        sheaf_faults faults;
        if (environment)
            setenv("SHEAF_FAULT", spec, 1);
        else if (faults_parse(&faults, spec) == NULL)
            faults_use(&faults);
        sheaf_status *st = sheaf__file_write_whole(at("env"), "x", 1);
        _exit(st != NULL);
    }
    int how = 0;
    waitpid(child, &how, 0);
    return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

TEST(test_faults__of_the_process)
{
    assert_int_equal(exit_of_a_write("write:1:kill", false), 128 + SIGKILL);
    assert_int_equal(exit_of_a_write("fsync:1:fail", false), 1);
    assert_int_equal(exit_of_a_write("fsync:9:fail", false), 0);
    assert_int_equal(exit_of_a_write("write:1:kill", true), 0);
}

TEST(test_write_whole__an_error_of_close_is_one_of_the_write)
{
    CHECK_OK(sheaf__file_write_whole(at("closed"), "old", 3));
    close_fails = true;
    sheaf_status *st = sheaf__file_write_whole(at("closed"), "new", 3);
    close_fails = false;
    CHECK_FAILS(st, SHEAF_E_IO, "closing");
    check_content(at("closed"), "old");
}

FIXTURE(make_scratch, remove_scratch);
