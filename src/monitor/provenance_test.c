/* provenance_test.c - run.json over a start, a resume and a damaged file. */
#include <jansson.h>
#include <unistd.h>

#include "monitor/provenance.h"
#include "tests/monitored.h"

static char told[512];

static void listen(void *context, const sheaf_event *event)
{
    snprintf(told, sizeof told, "%s", event->text);
}

static const char *const words[] = { "sheaf", "train", "--data", "a \"b\"\n\xC3\xBC" };

static void add(int64_t step)
{
    const sheaf_events events = { listen, NULL };
    const sheaf_provenance run = { .step = step,
                                   .steps = 40,
                                   .ranks = 2,
                                   .threads = 8,
                                   .transport = "threads",
                                   .nwords = 4,
                                   .word = words };
    told[0] = '\0';
    CHECK_OK(sheaf_provenance_add(path, &run, &events));
}

static void check_entries(size_t count, const int64_t *steps)
{
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const json_t *runs = json_object_get(root, "runs");
    assert_int_equal(json_array_size(runs), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(runs, i), *command = json_object_get(entry, "command");
        assert_int_equal(json_integer_value(json_object_get(entry, "step")), steps[i]);
        assert_int_equal(json_integer_value(json_object_get(entry, "steps")), 40);
        assert_int_equal(json_integer_value(json_object_get(entry, "ranks")), 2);
        assert_int_equal(json_integer_value(json_object_get(entry, "threads")), 8);
        assert_int_equal(json_integer_value(json_object_get(entry, "pid")), getpid());
        assert_string_equal(json_string_value(json_object_get(entry, "transport")), "threads");
        assert_int_equal(strlen(json_string_value(json_object_get(entry, "started"))), 20);
        assert_true(strlen(json_string_value(json_object_get(entry, "host"))) > 0);
        assert_int_equal(json_array_size(command), 4);
        for (size_t w = 0; w < 4; w++)
            assert_string_equal(json_string_value(json_array_get(command, w)), words[w]);
    }
    json_decref(root);
}

TEST(test_provenance__every_start_has_an_entry)
{
    static const int64_t steps[] = { 0, 10, 25 };
    unlink(path);
    for (size_t i = 0; i < 3; i++) {
        add(steps[i]);
        check_entries(i + 1, steps);
    }
    assert_string_equal(told, "");
}

TEST(test_provenance__a_damaged_file_does_not_stop_a_run)
{
    static const char *const damaged[] = { "", "{\"runs\": [{}", "{\"runs\": 5}", "[]" };
    static const int64_t steps[] = { 7 };
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        put(path, damaged[i]);
        add(7);
        check_entries(1, steps);
        assert_non_null(strstr(told, "starts anew"));
    }
    const sheaf_provenance run = { .transport = "self" };
    CHECK_FAILS(sheaf_provenance_add("/nowhere/run.json", &run, NULL), SHEAF_E_IO,
                "/nowhere/run.json");
}

FIXTURE(make_path, remove_scratch);
