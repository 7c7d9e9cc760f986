/* monitor_test.c - metrics.jsonl step by step. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "monitor/metrics.h"
#include "monitor/monitor.h"
#include "tests/monitored.h"

/* fdatasync() of this program: counted, and failing where it is asked to. */
static int syncs, sync_error;
int fdatasync(int fd)
{
    syncs++;
    errno = sync_error;
    return sync_error == 0 ? 0 : -1;
}

static sheaf_monitor *metrics(int64_t keep)
{
    sheaf_monitor *m;
    CHECK_OK(
        sheaf_monitor_open(&m, &(sheaf_monitor_options){ .metrics = path, .keep_steps = keep }));
    return m;
}

static void steps(sheaf_monitor *m, int64_t from, int64_t to)
{
    emit_steps(sheaf_monitor_events(m), from, to);
}

TEST(test_metrics__one_line_a_step)
{
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 3);
    CHECK_OK(sheaf_monitor_close(m));
    assert_string_equal(
        text_of(path),
        "{\"step\": 1, \"loss\": 6.099999904632568, \"grad_norm\": 0.3333333333333333, \"lr\": 0.02, \"tokens\": 60, \"tokens_per_s\": 120}\n"
        "{\"step\": 2, \"loss\": 3.049999952316284, \"grad_norm\": 0.3333333333333333, \"lr\": 0.02, \"tokens\": 60, \"tokens_per_s\": 120}\n"
        "{\"step\": 3, \"loss\": 2.0333333015441895, \"grad_norm\": 0.3333333333333333, \"lr\": 0.02, \"tokens\": 60, \"tokens_per_s\": 120, \"skipped\": true}\n");
}

static void count_warnings(void *count, const sheaf_event *event)
{
    *(int *)count += event->kind == SHEAF_EVENT_WARNING;
}

TEST(test_metrics__a_file_that_lacks_steps_is_a_warning)
{
    const struct {
        const char *metrics;
        int64_t keep;
        int warnings;
    } rows[] = { { path, 2, 0 }, { path, 3, 1 }, { NULL, 3, 0 } };
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 2);
    CHECK_OK(sheaf_monitor_close(m));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int warnings = 0;
        const sheaf_events events = { count_warnings, &warnings };
        CHECK_OK(sheaf_monitor_open(&m, &(sheaf_monitor_options){ .metrics = rows[i].metrics,
                                                                  .keep_steps = rows[i].keep,
                                                                  .events = &events }));
        CHECK_OK(sheaf_monitor_close(m));
        assert_int_equal(warnings, rows[i].warnings);
    }
}

TEST(test_metrics__ranks_are_told_with_their_step)
{
    sheaf_monitor *m = metrics(0);
    const sheaf_event_rank rank[2] = { { 0.5, 0.25, 0.1234567, 0.01, 2, 1000, 2000, 3000, 4000 },
                                       { .compute = 1 } };
    sheaf_emit(sheaf_monitor_events(m),
               &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                               .step = { .step = 1, .steps = 1, .tokens = 6, .seconds = 0.5 },
                               .rank = rank,
                               .ranks = 2 });
    CHECK_OK(sheaf_monitor_close(m));
    assert_string_equal(
        text_of(path),
        "{\"step\": 1, \"loss\": 0, \"grad_norm\": 0, \"lr\": 0, \"tokens\": 6, \"tokens_per_s\": 12, \"ranks\": ["
        "{\"compute\": 0.5, \"wait\": 0.25, \"exchange\": 0.123457, \"read\": 0.01, \"save\": 2, \"sent\": 1000, "
        "\"received\": 2000, \"memory\": 3000, \"process\": 4000}, "
        "{\"compute\": 1, \"wait\": 0, \"exchange\": 0, \"read\": 0, \"save\": 0, \"sent\": 0, \"received\": 0, "
        "\"memory\": 0, \"process\": 0}]}\n");
}

TEST(test_metrics__what_devices_did_is_told_with_ranks)
{
    sheaf_monitor *m = metrics(0);
    const sheaf_event_rank rank[2] = { { .compute = 1, .exchange = 0.5 }, { .compute = 1 } };
    const sheaf_event_spent spent[2] = { { .timed = true,
                                           .products = 0.5,
                                           .attention = 0.25,
                                           .transfers = 0.125,
                                           .kind = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
                                           .sent_to = { 0, 1000 } },
                                         { .sent_to = { 500 } } };
    sheaf_emit(sheaf_monitor_events(m), &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                                                        .step = { .step = 1, .steps = 1 },
                                                        .rank = rank,
                                                        .spent = spent,
                                                        .ranks = 2 });
    CHECK_OK(sheaf_monitor_close(m));
    assert_non_null(strstr(
        text_of(path),
        "\"process\": 0, \"products\": 0.5, \"attention\": 0.25, \"transfers\": 0.125, \"kinds\": "
        "{\"weights\": 1, \"trained\": 2, \"gradients\": 3, \"optimizer\": 4, \"activations\": 5, "
        "\"cache\": 6, \"scratch\": 7, \"exchange\": 8, \"inputs\": 9}, \"sent_to\": [0, 1000], "
        "\"bytes_per_s\": [0, 3000]}, {"));
    assert_non_null(strstr(text_of(path), "\"process\": 0, \"kinds\": {\"weights\": 0, "));
    assert_non_null(strstr(text_of(path), "\"sent_to\": [500, 0], \"bytes_per_s\": [0, 0]}]}\n"));
}

static void check_steps(int64_t count)
{
    int64_t n = 0;
    for (char *line = strtok((char *)text_of(path), "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        assert_int_equal(json_integer_value(json_object_get(object, "step")), ++n);
        json_decref(object);
    }
    assert_int_equal(n, count);
}

static void append(const char *text)
{
    FILE *f = fopen(path, "ab");
    fputs(text, f);
    fclose(f);
}

TEST(test_metrics__a_resumed_run_shows_every_step_once)
{
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 8);
    CHECK_OK(sheaf_monitor_close(m));
    append("{\"step\": 9, \"lo"); /* the process died while writing */
    m = metrics(5);               /* and goes on from the checkpoint of step 5 */
    check_steps(5);
    steps(m, 6, 10);
    CHECK_OK(sheaf_monitor_close(m));
    check_steps(10);
    CHECK_OK(sheaf_monitor_close(metrics(99))); /* nothing to remove */
    check_steps(10);
    append("garbage\n{\"step\": 11}\n{\"step\": 12}\n");
    CHECK_OK(sheaf_monitor_close(metrics(12)));
    assert_non_null(strstr(text_of(path), "garbage\n{\"step\": 11}\n{\"step\": 12}\n"));
    CHECK_OK(sheaf_monitor_close(metrics(0))); /* a new run starts an empty file */
    check_steps(0);
}

/* Of many ranks a step's line is long, and so is the file of weeks: here it is one of 1.5 GiB, of
 * which the disk holds the beginning. */
TEST(test_metrics__a_file_of_any_size_is_gone_on_with)
{
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 8);
    CHECK_OK(sheaf_monitor_close(m));
    assert_int_equal(truncate(path, (off_t)3 << 29), 0);
    m = metrics(8);
    steps(m, 9, 10);
    CHECK_OK(sheaf_monitor_close(m));
    check_steps(10);
}

/* An evaluation after step 4 was due; the one after step 5 was the end of a run that now goes on.
 */
TEST(test_metrics__evaluations_are_lines_of_their_own)
{
    sheaf_monitor *m = metrics(0);
    for (int step = 1; step <= 5; step++) {
        steps(m, step, step);
        if (step > 3)
            sheaf_emit(
                sheaf_monitor_events(m),
                &(sheaf_event){
                    .kind = SHEAF_EVENT_EVALUATION,
                    .evaluation = { .step = step, .loss = 1.5, .accuracy = .25, .tokens = 8 } });
    }
    CHECK_OK(sheaf_monitor_close(m));
    static const char line[] =
        "{\"step\": 4, \"eval_loss\": 1.5, \"eval_accuracy\": 0.25, \"eval_tokens\": 8}\n{\"step\": 5, \"loss\"";
    assert_non_null(strstr(text_of(path), line));
    CHECK_OK(sheaf_monitor_open(
        &m, &(sheaf_monitor_options){ .metrics = path, .keep_steps = 5, .keep_evaluations = 4 }));
    CHECK_OK(sheaf_monitor_close(m));
    assert_non_null(strstr(text_of(path), line));
    assert_null(strstr(text_of(path), "\"step\": 5, \"eval"));
    assert_non_null(strstr(text_of(path), "\"step\": 5, \"loss\""));
    append("{\"step\": 4, \"eval_loss\": 2}\n"); /* not after its step */
    CHECK_OK(sheaf_monitor_open(
        &m, &(sheaf_monitor_options){ .metrics = path, .keep_steps = 5, .keep_evaluations = 9 }));
    CHECK_OK(sheaf_monitor_close(m));
    assert_null(strstr(text_of(path), "\"eval_loss\": 2"));
    CHECK_OK(sheaf_monitor_close(metrics(4)));
    assert_null(strstr(text_of(path), "eval"));
}

/* As a failing disk leaves it: those behind it are good, and stay. */
TEST(test_metrics__a_damaged_line_cuts_no_good_ones)
{
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 6);
    CHECK_OK(sheaf_monitor_close(m));
    const int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\x01\x02?", 3, strchr(text_of(path), '\n') + 1 - text_of(path)),
                     3);
    close(fd);
    append("{\"step\": 7,\n"); /* the last one, which goes */
    CHECK_OK(sheaf_monitor_close(metrics(5)));
    const char *text = text_of(path);
    assert_non_null(strstr(text, "{\"step\": 1, "));
    assert_null(strstr(text, "{\"step\": 2, "));
    assert_non_null(strstr(text, "{\"step\": 3, "));
    assert_non_null(strstr(text, "{\"step\": 5, "));
    assert_null(strstr(text, "{\"step\": 6, "));
    assert_null(strstr(text, "{\"step\": 7"));
}

TEST(test_metrics__what_is_not_finite_is_null)
{
    sheaf_monitor *m = metrics(0);
    sheaf_emit(sheaf_monitor_events(m),
               &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                               .step = { .step = 1, .loss = NAN, .grad_norm = INFINITY } });
    CHECK_OK(sheaf_monitor_close(m));
    assert_string_equal(text_of(path),
                        "{\"step\": 1, \"loss\": null, \"grad_norm\": null, \"lr\": 0, "
                        "\"tokens\": 0, \"tokens_per_s\": 0}\n");
}

static void append_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

#define STEP(n, loss, rate)                                                                        \
    "{\"step\": " #n ", \"loss\": " #loss ", \"tokens\": 60, \"tokens_per_s\": " #rate "}\n"
TEST(test_metrics__the_end_is_read)
{
    sheaf__metrics_last last;
    put(path, STEP(1, 9.5, 60) STEP(2, 9, 60) "{\"step\": 2, \"eval_loss\": 7.5}\n" STEP(
                  3, 8.5, 20) "{\"step\": 4, \"lo");
    CHECK_OK(sheaf__metrics_read(&last, path));
    assert_int_equal(last.step, 3);
    assert_int_equal(last.eval_step, 2);
    assert_true(last.loss == 8.5 && last.eval_loss == 7.5);
    CHECK_NEAR("seconds of a step", last.seconds_per_step, 5.0 / 3, 1e-12); /* 1, 1 and 3 */
    CHECK_NEAR("tokens a second", last.tokens_per_s, 36, 1e-9);
    put(path, STEP(1, null, 60));
    CHECK_OK(sheaf__metrics_read(&last, path));
    assert_true(last.step == 1 && isnan(last.loss) && last.eval_step == 0);
    static const char *const none[] = { "", "{\"step\": 1" };
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        put(path, none[i]);
        CHECK_OK(sheaf__metrics_read(&last, path));
        assert_true(last.step == 0 && last.tokens_per_s == 0);
    }
    static const char other[] = "something else\n", zeros[] = "\0\0\0\n";
    put(path, STEP(1, 1, 60));
    append_bytes(other, sizeof other - 1);
    CHECK_FAILS(sheaf__metrics_read(&last, path), SHEAF_E_FORMAT, "the last line");
    assert_true(last.step == 1 && last.loss == 1);
    put(path, STEP(1, 1, 60));
    append_bytes(zeros, sizeof zeros - 1);
    append_bytes(STEP(2, 4, 60), strlen(STEP(2, 4, 60)));
    CHECK_OK(sheaf__metrics_read(&last, path));
    assert_true(last.step == 2 && last.loss == 4);
}

/* Of a file of any size only its end is looked at. */
TEST(test_metrics__the_end_of_a_long_file_is_read)
{
    sheaf__metrics_last last;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 1; i <= 40000; i++)
        fprintf(f, "{\"step\": %d, \"loss\": 1.5, \"tokens\": 60, \"tokens_per_s\": 60}\n", i);
    assert_int_equal(fclose(f), 0);
    CHECK_OK(sheaf__metrics_read(&last, path));
    assert_int_equal(last.step, 40000);
    assert_true(last.seconds_per_step == 1);
}

TEST(test_metrics__lines_wait_for_room)
{
    sheaf_monitor *m = metrics(0);
    limit_files(300); /* two lines and a part of the third */
    steps(m, 1, 6);
    sheaf_status *st = sheaf_monitor_sync(m);
    const char *half = text_of(path);
    const size_t size = strlen(half);
    limit_files(0);
    assert_int_equal(half[size - 1], '\n'); /* no half line */
    check_steps(2);
    CHECK_FAILS(st, SHEAF_E_IO, path);
    steps(m, 7, 7);
    CHECK_OK(sheaf_monitor_close(m));
    check_steps(7);
}

TEST(test_metrics__trouble_at_open_is_a_status)
{
    sheaf_monitor *m = NULL;
    CHECK_FAILS(sheaf_monitor_open(&m, &(sheaf_monitor_options){ .metrics = "/nowhere/m" }),
                SHEAF_E_IO, "/nowhere/m");
    CHECK_FAILS(sheaf_monitor_open(&m, &(sheaf_monitor_options){ .metrics = "/tmp" }), SHEAF_E_IO,
                "/tmp");
    assert_null(m);
}

TEST(test_metrics__a_sync_reaches_the_disk)
{
    sheaf_monitor *m = metrics(0);
    steps(m, 1, 2);
    syncs = 0;
    CHECK_OK(sheaf_monitor_sync(m));
    assert_int_equal(syncs, 1);
    sync_error = EIO;
    CHECK_FAILS(sheaf_monitor_sync(m), SHEAF_E_IO, "writing to disk");
    sync_error = 0;
    CHECK_OK(sheaf_monitor_close(m));
}

FIXTURE(make_path, remove_scratch);
