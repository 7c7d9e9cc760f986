/* tensorboard_test.c - files of events to the byte, one a start, and what happens on a full disk.
 */
#include <unistd.h>

#include "monitor/monitor.h"
#include "monitor/tensorboard.h"
#include "tests/monitored.h"

/* The check value of the catalogue of parametrised CRC algorithms, and RFC 3720's, B.4. */
TEST(test_crc32c__known_values)
{
    static const unsigned char zeros[32];
    assert_int_equal(sheaf__crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(sheaf__crc32c(zeros, sizeof zeros), 0x8a9136aa);
    assert_int_equal(sheaf__crc32c("", 0), 0);
}

/* 51 bytes, whose parts are: wall_time 1.5; step 300 (ac 02); a summary of 37 bytes with two values
 * of 17 and 16, 2.5 (00 00 20 40) and -0.75. */
TEST(test_record__by_hand)
{
    static const char wanted[] = "\x33\x00\x00\x00\x00\x00\x00\x00"
                                 "\x0c\xa7\x20\x56"
                                 "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"
                                 "\x10\xac\x02"
                                 "\x2a\x25"
                                 "\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x20\x40"
                                 "\x0a\x10\x0a\x09"
                                 "eval/loss\x15\x00\x00\x40\xbf"
                                 "\xd2\xdd\xcd\x4e";
    static const sheaf__tensorboard_value value[] = { { "train/loss", 2.5 },
                                                      { "eval/loss", -0.75 } };
    sheaf_text text = { 0 };
    sheaf__tensorboard_values(&text, 1.5, 300, value, 2);
    assert_false(text.failed);
    assert_int_equal(text.size, sizeof wanted - 1);
    assert_memory_equal(text.at, wanted, sizeof wanted - 1);
    sheaf__text_release(&text);
}

static sheaf_monitor *board(int64_t keep)
{
    sheaf_monitor *m = NULL;
    CHECK_OK(sheaf_monitor_open(
        &m, &(sheaf_monitor_options){ .tensorboard = path, .keep_steps = keep }));
    return m;
}

static void steps(sheaf_monitor *m, int64_t from, int64_t to)
{
    for (int64_t s = from; s <= to; s++)
        sheaf_emit(sheaf_monitor_events(m), &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                                                            .step = { .step = s,
                                                                      .steps = 10,
                                                                      .loss = 6,
                                                                      .grad_norm = 2,
                                                                      .lr = 0.02,
                                                                      .tokens = 60,
                                                                      .seconds = 0.5,
                                                                      .memory = 1 << 20 } });
}

/* The file at this place in the order of names, whose records must be whole, as text: "S5 " where a
 * run starts at step 5, "6 " for step 6, "E6 " for an evaluation after it. */
static const char *read_file(int64_t place, int64_t files)
{
    static char out[256];
    char **name = NULL, *bytes = NULL;
    int64_t count = 0;
    size_t size = 0, used = 0;
    CHECK_OK(sheaf__list_dir(&name, &count, path));
    assert_int_equal(count, files);
    CHECK_OK(sheaf__file_read_all(&bytes, &size, at_format("written/%s", name[place]), 1 << 20));
    out[0] = '\0';
    for (size_t at = 0; at < size;) {
        assert_true(size - at >= 16);
        const unsigned char *record = (unsigned char *)bytes + at, *event = record + 12;
        const size_t length = sheaf__little(record, 8);
        assert_true(size - at - 16 >= length && length >= 11 && event[0] == 9);
        if (at == 0)
            assert_non_null(memmem(event, length,
                                   "\x1a\x0d"
                                   "brain.Event:2",
                                   15));
        else
            used += (size_t)snprintf(out + used, sizeof out - used, "%s%d ",
                                     memmem(event, length, "\x3a\x02\x08\x01", 4) != NULL ? "S"
                                     : memmem(event, length,
                                              "\x0a\x09"
                                              "eval/loss",
                                              11) != NULL
                                         ? "E"
                                         : "",
                                     event[10]);
        at += 16 + length;
    }
    free(bytes);
    sheaf__names_free(name, count);
    return out;
}

/* Within one second, too, and after a file of a clock that was ahead, the names are in the order of
 * the starts. */
TEST(test_tensorboard__a_file_a_start)
{
    char **name = NULL;
    int64_t count = 0;
    CHECK_OK(sheaf__remove_tree(path));
    sheaf_monitor *m = board(0);
    steps(m, 1, 5);
    sheaf_emit(sheaf_monitor_events(m), &(sheaf_event){ .kind = SHEAF_EVENT_EVALUATION,
                                                        .evaluation = { .step = 5, .loss = 1 } });
    assert_string_equal(read_file(0, 1), "S1 1 2 3 4 5 E5 "); /* while the run goes on */
    CHECK_OK(sheaf_monitor_close(m));
    m = board(3);
    steps(m, 4, 4);
    CHECK_OK(sheaf_monitor_close(m));
    assert_string_equal(read_file(1, 2), "S4 4 ");
    put(at("written/events.out.tfevents.9999999990.x.1"), "");
    CHECK_OK(sheaf_monitor_close(board(4)));
    assert_string_equal(read_file(3, 4), "S5 ");
    CHECK_OK(sheaf__list_dir(&name, &count, path));
    assert_non_null(strstr(name[3], "events.out.tfevents.9999999991."));
    sheaf__names_free(name, count);
}

/* A file-size limit plays the full disk: 71 bytes are the head, a step takes 148. */
TEST(test_tensorboard__steps_wait_for_room)
{
    CHECK_OK(sheaf__remove_tree(path));
    sheaf_monitor *m = board(0);
    limit_files(450);
    steps(m, 1, 6);
    sheaf_status *st = sheaf_monitor_sync(m);
    limit_files(0);
    assert_string_equal(read_file(0, 1), "S1 1 2 "); /* no half record */
    CHECK_FAILS(st, SHEAF_E_IO, "events.out.tfevents.");
    steps(m, 7, 7);
    CHECK_OK(sheaf_monitor_close(m));
    assert_string_equal(read_file(0, 1), "S1 1 2 3 4 5 6 7 ");
}

TEST(test_tensorboard__trouble_at_open_is_a_status)
{
    sheaf_monitor *m = NULL;
    CHECK_OK(sheaf__remove_tree(path));
    CHECK_FAILS(sheaf_monitor_open(&m, &(sheaf_monitor_options){ .tensorboard = "/proc/nowhere" }),
                SHEAF_E_IO, "/proc/nowhere");
    CHECK_FAILS(sheaf_monitor_open(&m, &(sheaf_monitor_options){ .tensorboard = "/proc/version" }),
                SHEAF_E_IO, "/proc/version");
    limit_files(40);
    sheaf_status *st = sheaf_monitor_open(&m, &(sheaf_monitor_options){ .tensorboard = path });
    limit_files(0);
    CHECK_FAILS(st, SHEAF_E_IO, path);
    assert_null(m);
    assert_int_equal(rmdir(path), 0); /* no part of a file stays */
}

FIXTURE(make_path, remove_scratch);
