/* segments_test.c - of files in /dev/shm those go that killed processes of this user left. */
#include "tests/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/plugins.h"

static void test_sweep__takes_what_no_process_has(void **state)
{
    static const struct {
        const char *kind, *end; /* around HOST.UID */
        bool mapped, goes;
    } files[] = { { "vader_segment", ".7e9d0001.0", false, true },
                  { "sm_segment", ".7e9d0001.0", false, true },
                  { "vader_segment", ".7e9d0001.2", true, false },
                  { "vader_segment", "1.7e9d0001.3", false, false }, /* another user's */
                  { "vader_segments", ".7e9d0001.4", false, false } };
    char host[65] = "", *name[ARRAY_LEN(files)];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_true(asprintf(&name[i], "%s.%s.%u%s", files[i].kind, host, (unsigned)geteuid(),
                             files[i].end) > 0);
        put(at(name[i]), "a page or so");
        const int fd = open(at(name[i]), O_RDWR);
        if (files[i].mapped)
            assert_ptr_not_equal(mmap(NULL, 12, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
        close(fd);
    }
    sheaf__segments_sweep(scratch.dir);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_int_equal(sheaf__path_kind(at(name[i])),
                         files[i].goes ? SHEAF_PATH_NONE : SHEAF_PATH_FILE);
        free(name[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sweep__takes_what_no_process_has) };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
