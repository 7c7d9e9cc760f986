/* report_test.c - exit codes, the error as JSON, and results that could not be written. */
#include <errno.h>
#include <unistd.h>

#include "tests/files.h"

#include "driver/driver.h"

/* Of a process by itself, and of one that launch.h started, which is begun again where that may
 * help. */
static const struct {
    const char *name;
    sheaf_code code;
    int number, want, launched;
} ends[] = {
    { "usage", SHEAF_E_ARG, 0, 2, 2 },
    { "memory", SHEAF_E_MEMORY, 0, 3, DRIVER_AGAIN },
    { "io", SHEAF_E_IO, ENOENT, 3, 3 },
    { "io", SHEAF_E_IO, ENOSPC, 3, 3 },
    { "io", SHEAF_E_IO, EIO, 3, DRIVER_AGAIN },
    { "io", SHEAF_E_IO, ESTALE, 3, DRIVER_AGAIN },
    { "io", SHEAF_E_IO, EHOSTUNREACH, 3, DRIVER_AGAIN },
    { "format", SHEAF_E_FORMAT, EIO, 3, 3 },
    { "layout", SHEAF_E_LAYOUT, 0, 3, 3 },
    { "unsupported", SHEAF_E_UNSUPPORTED, 0, 3, 3 },
    { "data", SHEAF_E_DATA, 0, 3, 3 },
    { "number", SHEAF_E_NUMBER, 0, 3, 3 },
    { "peer", SHEAF_E_PEER, 0, 3, DRIVER_AGAIN },
    { "stopped", SHEAF_E_STOPPED, 0, 3, 3 },
    { "unsafe", SHEAF_E_UNSAFE, 0, 3, 3 },
    { "changed", SHEAF_E_CHANGED, 0, 3, 3 },
};

TEST(test_report__a_code_says_what_a_caller_can_do)
{
    assert_int_equal(driver_exit_code(NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char want[100];
        sheaf_status *st = sheaf_fail(ends[i].code, "a \"file\"");
        if (ends[i].number != 0)
            st = sheaf__found_errno(st, ends[i].number);
        const int alone = driver_exit_code(st);
        setenv(DRIVER_NOTE, "note", 1);
        const int launched = driver_exit_code(st);
        unsetenv(DRIVER_NOTE);
        if (alone != ends[i].want || launched != ends[i].launched)
            fail_msg("%s, %d: %d and %d", ends[i].name, ends[i].number, alone, launched);
        char *json = driver_error_json(st);
        snprintf(want, sizeof want,
                 "{\"error\": {\"code\": \"%s\", \"where\": \"a \\\"file\\\"\", ", ends[i].name);
        if (strncmp(json, want, strlen(want)) != 0 || json[strlen(json) - 1] != '\n')
            fail_msg("%s: %s", ends[i].name, json);
        free(json);
        sheaf_status_free(st);
    }
}

/* Its output on each stream, and its code. */
static const struct {
    const char *name;
    bool fails, yes, json, helped;
    const char *out_path;
    int want;
    const char *out, *err;
} answers[] = {
    { "yes", false, true, false, false, NULL, DRIVER_DONE, "", "" },
    { "no", false, false, false, false, NULL, DRIVER_NO, "", "" },
    { "an error", true, true, false, false, NULL, DRIVER_FAILED, "", "sheaf: a\n  found:    b\n" },
    { "an error as JSON", true, true, true, false, NULL, DRIVER_FAILED,
      "{\"error\": {\"code\": \"data\", \"where\": \"a\", \"expected\": \"\", \"found\": \"b\", "
      "\"try\": \"\"}}\n",
      "sheaf: a\n  found:    b\n" },
    { "help was asked for", true, false, true, true, NULL, DRIVER_DONE, "", "" },
    { "a full disk", false, true, false, false, "/dev/full", DRIVER_FAILED, "",
      "sheaf: standard output\n  found:    No space left on device\n" },
};

TEST(test_report__an_answer_reaches_its_streams)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        char *out = NULL, *err = NULL;
        size_t out_size, err_size;
        driver d = { .json = answers[i].json, .helped = answers[i].helped };
        d.out = answers[i].out_path == NULL ? open_memstream(&out, &out_size)
                                            : fopen(answers[i].out_path, "we");
        d.err = open_memstream(&err, &err_size);
        if (answers[i].out_path != NULL)
            fputs("a result", d.out);
        sheaf_status *st =
            answers[i].fails ? sheaf_found(sheaf_fail(SHEAF_E_DATA, "a"), "b") : NULL;
        const int code = driver_answer(&d, st, answers[i].yes);
        if (answers[i].out_path != NULL)
            CHECK_FAILS(driver_written(&d), SHEAF_E_IO, "standard output");
        else
            CHECK_OK(driver_written(&d));
        fclose(d.out);
        fclose(d.err);
        if (code != answers[i].want || strcmp(err, answers[i].err) != 0 ||
            (out != NULL && strcmp(out, answers[i].out) != 0))
            fail_msg("%s: %d, '%s', '%s'", answers[i].name, code, out, err);
        free(out);
        free(err);
    }
}

/* A stop ends the run for the one that launched it, whatever code its mpirun has; other errors do
 * where ranks wait. */
TEST(test_report__a_stop_is_noted)
{
    for (int stops = 0; stops < 2; stops++) {
        driver d = { .helped = false };
        put(at("note"), "");
        setenv(DRIVER_NOTE, at("note"), 1);
        d.out = fopen("/dev/null", "we");
        d.err = fopen("/dev/null", "we");
        const int code =
            driver_answer(&d, sheaf_fail(stops ? SHEAF_E_STOPPED : SHEAF_E_DATA, "a"), true);
        unsetenv(DRIVER_NOTE);
        fclose(d.out);
        fclose(d.err);
        assert_int_equal(code, DRIVER_FAILED);
        assert_int_equal(access(at("note"), F_OK) == 0, !stops);
    }
}

/* A process that is not the first prints nothing, but for what the first cannot know. */
TEST(test_report__only_the_first_process_speaks)
{
    char *err = NULL;
    size_t size;
    driver d = { .out = stdout, .err = open_memstream(&err, &size) };
    FILE *own = d.err;
    driver_hush(&d);
    assert_true(d.out == d.nowhere && d.err == d.nowhere && d.aside == own);
    assert_int_equal(driver_report(&d, sheaf_fail(SHEAF_E_DATA, "not told")), DRIVER_FAILED);
    assert_int_equal(driver_report(&d, sheaf_fail(SHEAF_E_IO, "missing here")), DRIVER_FAILED);
    fclose(own);
    assert_null(strstr(err, "not told"));
    assert_non_null(strstr(err, ": missing here\n"));
    free(err);
    driver_release(&d);
}

FIXTURE(make_scratch, remove_scratch);
