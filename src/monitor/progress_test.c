/* progress_test.c - progress on a file and on a terminal, in every style. */
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/events.h"
#include "base/number.h"
#include "monitor/progress.h"
#include "tests/monitored.h"

static void emit_rows(const sheaf_events *events, int64_t done, int64_t total)
{
    sheaf_emit(events,
               &(sheaf_event){
                   .kind = SHEAF_EVENT_PROGRESS, .text = "rows", .done = done, .total = total });
}

static void steps(sheaf_progress *m, int64_t from, int64_t to)
{
    emit_steps(sheaf_progress_events(m), from, to);
}

/* Progress on a file, and what is in it at the end. */
static FILE *out;

static sheaf_progress *on_file(sheaf__progress_style style, const char *command, int interval_ms)
{
    sheaf_progress *p;
    out = fopen(path, "wb");
    assert_non_null(out);
    CHECK_OK(sheaf_progress_open(&p, out));
    sheaf__progress_use(p, style, command, interval_ms);
    return p;
}

static const char *written(sheaf_progress *p)
{
    sheaf_progress_close(p);
    fclose(out);
    return text_of(path);
}

/* A slow step counts a tenth: 0.9 * 1 s + 0.1 * 10 s for each of the eight that are left. */
TEST(test_progress__the_time_left_is_smoothed)
{
    sheaf_progress *m = on_file(SHEAF__PROGRESS_PLAIN, NULL, 1);
    for (int step = 1; step <= 2; step++, usleep(20000))
        sheaf_emit(sheaf_progress_events(m),
                   &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                                   .step = { .step = step,
                                             .steps = 10,
                                             .tokens = 60,
                                             .seconds = step == 1 ? 1 : 10 } });
    const char *text = written(m);
    assert_non_null(strstr(text, "  9 s left"));
    assert_non_null(strstr(text, "  15 s left"));
}

/* Of two ranks' seconds together; shares under a hundredth say nothing. */
TEST(test_progress__what_took_the_time_of_a_step)
{
    sheaf_progress *m = on_file(SHEAF__PROGRESS_PLAIN, NULL, 1);
    sheaf_emit(sheaf_progress_events(m),
               &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                               .step = { .step = 1, .steps = 1, .tokens = 60, .seconds = 1 },
                               .ranks = 2,
                               .rank = (sheaf_event_rank[]){ { .exchange = 0.03 },
                                                             { .exchange = 0.01, .wait = 0.2 } },
                               .spent = (sheaf_event_spent[]){
                                   { .timed = true, .products = 0.9, .attention = 0.009 },
                                   { .timed = true, .products = 0.7, .transfers = 0.004 } } });
    assert_non_null(strstr(written(m), "  products 80%  exchange 2%  waiting 10%\n"));
}

TEST(test_progress__plain_lines_are_rate_limited)
{
    sheaf_progress *m = on_file(SHEAF__PROGRESS_AUTO, NULL, 0);
    in_all = 40; /* every fourth step ends a tenth */
    steps(m, 1, 7);
    sheaf_note(sheaf_progress_events(m), "saved %s", "step-00000007");
    steps(m, 8, 11);
    steps(m, 39, 40);
    in_all = 10;
    sheaf_warn(sheaf_progress_events(m), "full soon");
    assert_string_equal(written(m),
                        "step 1/40  loss 6.1000  grad 0.333  lr 0.02  120 tokens/s  20 s left\n"
                        "step 4/40  loss 1.5250  grad 0.333  lr 0.02  120 tokens/s  18 s left\n"
                        "saved step-00000007\n"
                        "step 8/40  loss 0.7625  grad 0.333  lr 0.02  120 tokens/s  16 s left\n"
                        "step 40/40  loss 0.1525  grad 0.333  lr 0.02  120 tokens/s\n"
                        "warning: full soon\n");
}

/* Bytes tell their pace and the time left, once there is something to measure. */
TEST(test_progress__bytes_have_a_pace)
{
    sheaf_progress *m = on_file(SHEAF__PROGRESS_PLAIN, NULL, 1);
    const sheaf_events *events = sheaf_progress_events(m);
    const int64_t whole = 100000000000;
    sheaf_emit(events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                       .text = "bytes read",
                                       .done = 1000000000,
                                       .total = whole });
    usleep(250000);
    sheaf_emit(events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                       .text = "bytes read",
                                       .done = 2000000000,
                                       .total = whole });
    const char *text = written(m), *second = strchr(text, '\n');
    assert_non_null(second);
    assert_null(strstr(text, "left\nbytes")); /* none in the first line */
    const char *pace = strstr(second, "  ");
    assert_non_null(pace);
    const double rate = strtod(pace, NULL);
    assert_true(rate > 0 && rate <= 4.01 && strstr(pace, " GiB/s  ") != NULL &&
                strstr(pace, " left\n") != NULL);
}

TEST(test_progress__bytes_are_shown_as_such)
{
    sheaf_progress *m = on_file(SHEAF__PROGRESS_AUTO, NULL, 0);
    const sheaf_events *events = sheaf_progress_events(m);
    sheaf_emit(events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                       .text = "bytes read",
                                       .done = 3 << 20,
                                       .total = 12 << 20 });
    emit_rows(events, 11, 12);
    emit_rows(events, 12, 12);
    emit_rows(events, 0, 0);
    assert_string_equal(written(m),
                        "bytes read: 3.00 MiB of 12.0 MiB (25%)\nrows: 12 of 12 (100%)\n");
}

/* Progress on a terminal of so many columns, and what the terminal was given. */
typedef struct typed {
    sheaf_progress *progress;
    FILE *out;
    int master;
    char text[2000];
} typed;

static void type_on(typed *t, unsigned short columns)
{
    int slave;
    struct winsize size = { .ws_col = columns };
    *t = (typed){ 0 };
    assert_int_equal(openpty(&t->master, &slave, NULL, NULL, &size), 0);
    t->out = fdopen(slave, "w");
    CHECK_OK(sheaf_progress_open(&t->progress, t->out));
}

/* The system hands over what was written bit by bit. */
static void check_typed(typed *t, const char *expected)
{
    size_t n = 0;
    sheaf_progress_close(t->progress);
    for (struct pollfd there = { .fd = t->master, .events = POLLIN };
         n < strlen(expected) && poll(&there, 1, 10000) == 1;) {
        const ssize_t got = read(t->master, t->text + n, sizeof t->text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_string_equal(t->text, expected);
    fclose(t->out);
    close(t->master);
}

/* Blanks end what a longer line left behind; there is no escape sequence. */
TEST(test_progress__a_terminal_line_is_rewritten)
{
    typed t;
    type_on(&t, 60);
    steps(t.progress, 1, 1);
    sheaf_note(sheaf_progress_events(t.progress), "hello");
    steps(t.progress, 10, 10);
    check_typed(&t, "\rstep 1/10 [=         ]  loss 6.1000  120 tokens/s  5 s left"
                    "\r                                                           \rhello\r\n"
                    "\rstep 1/10 [=         ]  loss 6.1000  120 tokens/s  5 s left"
                    "\rstep 10/10 [=======]  loss 0.6100  grad 0.333  120 tokens/s\r\n");
}

/* The last column stays empty, so a line has one less. */
TEST(test_progress__a_narrow_terminal_keeps_the_time_left)
{
    static const struct {
        unsigned short columns;
        const char *line;
    } by_hand[] = {
        { 117,
          "step 1105/20000 [=                     ]  loss 4.5766  grad 2.41  lr 4.72e-05  16.1 k tokens/s  16.0 MiB  10:30 left" },
        { 101,
          "step 1105/20000 [      ]  loss 4.5766  grad 2.41  lr 4.72e-05  16.1 k tokens/s  16.0 MiB  10:30 left" },
        { 93,
          "step 1105/20000 [        ]  loss 4.5766  grad 2.41  lr 4.72e-05  16.1 k tokens/s  10:30 left" },
        { 80, "step 1105/20000 [        ]  loss 4.5766  grad 2.41  16.1 k tokens/s  10:30 left" },
        { 60, "step 1105/20000  loss 4.5766  16.1 k tokens/s  10:30 left" },
        { 50, "step 1105/20000  loss 4.5766  10:30 left" },
        { 40, "step 1105/20000  10:30 left" },
        { 24, "step 1105/20000" },
        { 10, "step 1105" },
    };
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        typed t;
        char expected[200];
        type_on(&t, by_hand[i].columns);
        sheaf_emit(sheaf_progress_events(t.progress),
                   &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                                   .step = { .step = 1105,
                                             .steps = 20000,
                                             .loss = 4.5766f,
                                             .grad_norm = 2.41,
                                             .lr = 4.72e-5,
                                             .tokens = 537,
                                             .seconds = 630.0 / 18895,
                                             .memory = 16 << 20 } });
        snprintf(expected, sizeof expected, "\r%s\r\n", by_hand[i].line);
        check_typed(&t, expected);
    }
}

static void emit_bytes(sheaf_progress *p, int64_t done)
{
    sheaf_emit(sheaf_progress_events(p), &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                         .text = "bytes read",
                                                         .done = done << 20,
                                                         .total = 12 << 20 });
}

/* Of progress the bar is kept longest, after the share; COLUMNS is obeyed where it is less. */
TEST(test_progress__a_bar_shortens)
{
    static const struct {
        unsigned short columns;
        const char *environment, *line;
    } by_hand[] = {
        { 80, NULL, "bytes read: 25% [=======                      ]  3.00 MiB of 12.0 MiB" },
        { 60, NULL, "bytes read: 25% [====               ]  3.00 MiB of 12.0 MiB" },
        { 40, NULL, "bytes read: 25% [=====                ]" },
        { 40, "100", "bytes read: 25% [=====                ]" },
        { 20, NULL, "25% [===          ]" },
        { 80, "20", "25% [===          ]" },
        { 12, NULL, "25% [=    ]" },
        { 11, NULL, "25%" },
        { 3, NULL, "25" },
        { 2, NULL, "2" },
        /* terminals that do not know how wide they are */
        { 1, NULL, "bytes read: 25% [=======                      ]  3.00 MiB of 12.0 MiB" },
        { 0, NULL, "bytes read: 25% [=======                      ]  3.00 MiB of 12.0 MiB" },
        { 0, "60", "bytes read: 25% [====               ]  3.00 MiB of 12.0 MiB" },
        { 0, "1", "bytes read: 25% [=======                      ]  3.00 MiB of 12.0 MiB" },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        typed t;
        char expected[200];
        type_on(&t, by_hand[i].columns);
        if (by_hand[i].environment != NULL)
            setenv("COLUMNS", by_hand[i].environment, 1);
        emit_bytes(t.progress, 3);
        snprintf(expected, sizeof expected, "\r%s\r\n", by_hand[i].line);
        check_typed(&t, expected);
        unsetenv("COLUMNS");
    }
}

/* A terminal that was made narrower meanwhile. */
TEST(test_progress__a_terminal_changes_its_width)
{
    typed t;
    type_on(&t, 40);
    emit_bytes(t.progress, 3);
    assert_int_equal(ioctl(t.master, TIOCSWINSZ, &(struct winsize){ .ws_col = 20 }), 0);
    emit_bytes(t.progress, 12);
    assert_int_equal(ioctl(t.master, TIOCSWINSZ, &(struct winsize){ .ws_col = 40 }), 0);
    sheaf__progress_clear(t.progress);
    emit_bytes(t.progress, 12);
    check_typed(&t, "\rbytes read: 25% [=====                ]"
                    "\r100% [============]"
                    "\r                   \r"
                    "\rbytes read: 100% [====================]\r\n");
}

/* Steps that came too soon after another to be shown: a note, and the end, have the newest. */
TEST(test_progress__what_stands_below_a_note_is_the_newest)
{
    typed t;
    type_on(&t, 40);
    steps(t.progress, 1, 1);
    steps(t.progress, 6, 8);
    sheaf_note(sheaf_progress_events(t.progress), "saved");
    steps(t.progress, 9, 9);
    check_typed(&t, "\rstep 1/10  loss 6.1000  5 s left"
                    "\r                                \rsaved\r\n"
                    "\rstep 8/10  loss 0.7625  1 s left"
                    "\rstep 9/10  loss 0.6778  1 s left\r\n");
}

/* ---- other styles ---- */

/* Everything that may be said, in one style: what a file then holds. */
static const char *said(sheaf__progress_style style, const char *command)
{
    sheaf_progress *p = on_file(style, command, 0);
    const sheaf_events *events = sheaf_progress_events(p);
    sheaf_note(events, "a \"note\"");
    emit_bytes(p, 3);
    emit_bytes(p, 4); /* too soon to be shown */
    emit_bytes(p, 12);
    steps(p, 10, 10);
    sheaf_emit(
        events,
        &(sheaf_event){ .kind = SHEAF_EVENT_EVALUATION,
                        .evaluation = { .step = 4, .loss = 1.5, .accuracy = .25, .tokens = 8 } });
    sheaf_warn(events, "full soon");
    return written(p);
}

TEST(test_progress__plain_says_an_evaluation)
{
    assert_non_null(strstr(said(SHEAF__PROGRESS_PLAIN, NULL),
                           "after step 4/0: evaluation loss 1.5000, 25.00 % of 8 tokens right"));
}

TEST(test_progress__quiet_leaves_warnings)
{
    assert_string_equal(said(SHEAF__PROGRESS_QUIET, NULL), "warning: full soon\n");
}

/* The next line of `text`, of which `keys` are all keys in their order. */
static json_t *next_object(const char **text, const char *keys)
{
    char got[256] = "";
    const char *end = strchr(*text, '\n');
    assert_non_null(end);
    json_t *object = json_loadb(*text, (size_t)(end - *text), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", key);
    assert_string_equal(got, keys);
    assert_string_equal(json_string_value(json_object_get(object, "command")), "merge");
    *text = end + 1;
    return object;
}

TEST(test_progress__json_is_an_object_a_line)
{
    static const char of_progress[] = "command what unit done total rate eta_s elapsed_s ";
    const char *text = said(SHEAF__PROGRESS_JSON, "merge");
    json_t *one = next_object(&text, "command note ");
    assert_string_equal(json_string_value(json_object_get(one, "note")), "a \"note\"");
    json_decref(one);
    one = next_object(&text, of_progress);
    assert_string_equal(json_string_value(json_object_get(one, "what")), "bytes read");
    assert_string_equal(json_string_value(json_object_get(one, "unit")), "bytes");
    assert_int_equal(json_integer_value(json_object_get(one, "done")), 3 << 20);
    assert_int_equal(json_integer_value(json_object_get(one, "total")), 12 << 20);
    assert_true(json_is_null(json_object_get(one, "rate")));
    assert_true(json_is_null(json_object_get(one, "eta_s")));
    assert_true(json_is_number(json_object_get(one, "elapsed_s")));
    json_decref(one);
    one = next_object(&text, of_progress);
    assert_int_equal(json_integer_value(json_object_get(one, "done")), 12 << 20);
    assert_true(json_number_value(json_object_get(one, "eta_s")) == 0);
    json_decref(one);
    one = next_object(&text, "command what unit done total rate eta_s elapsed_s loss grad_norm lr "
                             "tokens_per_s ");
    assert_string_equal(json_string_value(json_object_get(one, "unit")), "steps");
    assert_true(json_number_value(json_object_get(one, "rate")) == 2);
    assert_true(json_number_value(json_object_get(one, "tokens_per_s")) == 120);
    json_decref(one);
    json_decref(next_object(&text, "command step eval_loss eval_accuracy eval_tokens "));
    one = next_object(&text, "command warning ");
    assert_string_equal(json_string_value(json_object_get(one, "warning")), "full soon");
    json_decref(one);
    assert_string_equal(text, "");
}

/* One second of four at 4 of 12 rows a second. */
TEST(test_progress__json_has_rate_and_time_left)
{
    sheaf_progress *p = on_file(SHEAF__PROGRESS_JSON, "eval", 1);
    for (int done = 1; done <= 5; done += 4, usleep(done == 5 ? 300000 : 0))
        emit_rows(sheaf_progress_events(p), done, 12);
    json_t *last = json_loads(strchr(written(p), '\n') + 1, 0, NULL);
    const double rate = json_number_value(json_object_get(last, "rate")),
                 left = json_number_value(json_object_get(last, "eta_s"));
    assert_true(rate > 0.5 && rate <= 4 / 0.3);
    CHECK_NEAR("left", rate * left, 7, 1e-6);
    json_decref(last);
}

/* Undrawn, results in between make no lines more frequent. */
TEST(test_progress__lines_have_nothing_to_clear)
{
    sheaf_progress *p = on_file(SHEAF__PROGRESS_AUTO, NULL, 0);
    for (int done = 1; done <= 12; done++) {
        emit_rows(sheaf_progress_events(p), done, 12);
        sheaf__progress_clear(p);
    }
    assert_string_equal(written(p), "rows: 1 of 12 (8%)\nrows: 12 of 12 (100%)\n");
}

/* A second one of the same rows, of which the end comes at once: 0.3 s are of the first. */
TEST(test_progress__each_has_a_rate_of_its_own)
{
    static const int totals[] = { 12, 13 };
    for (size_t i = 0; i < ARRAY_LEN(totals); i++) {
        sheaf_progress *p = on_file(SHEAF__PROGRESS_JSON, "train", 0);
        const sheaf_events *events = sheaf_progress_events(p);
        emit_rows(events, 1, 12);
        usleep(300000);
        emit_rows(events, 8, 12);
        emit_rows(events, i == 0 ? 1 : 2, totals[i]);
        emit_rows(events, totals[i], totals[i]);
        json_t *last = json_loads(strchr(written(p), '\n') + 1, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(last, "done")), totals[i]);
        assert_true(json_is_null(json_object_get(last, "rate")));
        json_decref(last);
    }
}

/* ---- numbers ---- */

TEST(test_number__texts_by_hand)
{
    char b[SHEAF__NUMBER];
    assert_string_equal(sheaf__number_bytes(b, 812), "812 B");
    assert_string_equal(sheaf__number_bytes(b, 3435973837u), "3.20 GiB");
    assert_string_equal(sheaf__number_bytes(b, 1024 * 1024 - 1), "1.00 MiB");
    assert_string_equal(sheaf__number_rate(b, 81234), "81.2 k");
    assert_string_equal(sheaf__number_rate(b, INFINITY), "?");
    assert_string_equal(sheaf__number_time(b, 59.4), "59 s");
    assert_string_equal(sheaf__number_time(b, 725), "12:05");
    assert_string_equal(sheaf__number_time(b, 11220), "3:07:00");
    assert_string_equal(sheaf__number_time(b, 183600), "2d 03:00");
    assert_string_equal(sheaf__number_time(b, 135300), "1d 13:35");
    assert_string_equal(sheaf__number_time(b, NAN), "?");
}

static int begin(void **state)
{
    setenv("TERM", "xterm", 1);
    unsetenv("COLUMNS");
    return make_path(state);
}

FIXTURE(begin, remove_scratch);
