/* tensorboard.c - see tensorboard.h. */
#include "monitor/tensorboard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

/* ---- protobuf ---- */

typedef enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 } wire;

static void put_varint(sheaf_text *text, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        sheaf__text_little(text, (number & 0x7f) | 0x80, 1);
    sheaf__text_little(text, number, 1);
}

static void put_key(sheaf_text *text, int field, wire wire)
{
    put_varint(text, (uint64_t)field << 3 | wire);
}

static void put_int(sheaf_text *text, int field, int64_t number)
{
    put_key(text, field, VARINT);
    put_varint(text, (uint64_t)number);
}

static void put_double(sheaf_text *text, int field, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_key(text, field, FIXED64);
    sheaf__text_little(text, bits, 8);
}

static void put_float(sheaf_text *text, int field, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_key(text, field, FIXED32);
    sheaf__text_little(text, bits, 4);
}

static void put_bytes(sheaf_text *text, int field, const void *bytes, size_t size)
{
    put_key(text, field, BYTES);
    put_varint(text, size);
    sheaf__text_bytes(text, bytes, size);
}

/* A message within another; releases `inner`. */
static void put_message(sheaf_text *text, int field, sheaf_text *inner)
{
    put_bytes(text, field, inner->at, inner->size);
    text->failed = text->failed || inner->failed;
    sheaf__text_release(inner);
}

/* ---- records ---- */

uint32_t sheaf__crc32c(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (; size > 0; size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void put_checksum(sheaf_text *text, const void *bytes, size_t size)
{
    const uint32_t crc = sheaf__crc32c(bytes, size);
    sheaf__text_little(text, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

/* Releases `event`. */
static void put_record(sheaf_text *text, sheaf_text *event)
{
    const size_t before = text->size;
    sheaf__text_little(text, event->size, 8);
    if (!text->failed && !event->failed) {
        put_checksum(text, text->at + before, 8);
        sheaf__text_bytes(text, event->at, event->size);
        put_checksum(text, event->at, event->size);
    }
    text->failed = text->failed || event->failed;
    sheaf__text_release(event);
}

void sheaf__tensorboard_values(sheaf_text *text, double wall_time, int64_t step,
                               const sheaf__tensorboard_value *value, int n)
{
    sheaf_text event = { 0 }, summary = { 0 };
    for (int i = 0; i < n; i++) {
        sheaf_text one = { 0 };
        put_bytes(&one, 1, value[i].tag, strlen(value[i].tag));
        put_float(&one, 2, (float)value[i].value);
        put_message(&summary, 1, &one);
    }
    put_double(&event, 1, wall_time);
    put_int(&event, 2, step);
    put_message(&event, 5, &summary);
    put_record(text, &event);
}

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void put_head(sheaf_text *text, double now, int64_t first_step)
{
    static const char version[] = "brain.Event:2";
    sheaf_text event = { 0 }, start = { 0 };
    put_double(&event, 1, now);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(text, &event);
    put_int(&start, 1, 1);
    put_double(&event, 1, now);
    put_int(&event, 2, first_step);
    put_message(&event, 7, &start);
    put_record(text, &event);
}

/* ---- the file ---- */

static const char prefix[] = "events.out.tfevents.";

/* Later than `now` where a file of this second, or of a clock that was ahead, is there. */
static sheaf_status *next_second(int64_t *second, const char *folder)
{
    const int64_t last = INT64_C(9999999999); /* more digits are no longer in order */
    char **name = NULL;
    int64_t count = 0;
    sheaf_status *st = sheaf__list_dir(&name, &count, folder);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        if (strncmp(name[i], prefix, sizeof prefix - 1) != 0)
            continue;
        const int64_t there = strtoll(name[i] + sizeof prefix - 1, NULL, 10);
        if (there >= *second && there < last)
            *second = there + 1;
    }
    sheaf__names_free(name, count);
    return st;
}

sheaf_status *sheaf__tensorboard_open(sheaf__appended *out, const char *folder, int64_t keep_steps)
{
    const double now = wall_time();
    int64_t second = (int64_t)now;
    char host[256] = "", *path = NULL;
    sheaf_file file = { .fd = -1 };
    *out = (sheaf__appended){ 0 };
    gethostname(host, sizeof host - 1);
    sheaf_status *st = sheaf__make_dirs(folder);
    TRY(st, next_second(&second, folder));
    if (st == NULL && asprintf(&path, "%s/%s%010" PRId64 ".%s.%ld", folder, prefix, second, host,
                               (long)getpid()) < 0) {
        path = NULL;
        st = sheaf__no_memory(folder);
    }
    TRY(st, sheaf__file_create(&file, path));
    free(path);
    if (st != NULL)
        return st;
    *out = (sheaf__appended){ .fd = file.fd, .path = file.path };
    put_head(&out->pending, now, keep_steps + 1);
    if ((st = sheaf__appended_sync(out)) != NULL) {
        unlink(out->path);
        sheaf__appended_close(out);
    }
    return st;
}

enum { NAME = 64 };

/* Behind the first n of `value`; returns how many there are then. */
static int add_values(sheaf__tensorboard_value *value, int n, char name[][NAME], const char *kind,
                      const sheaf_event_value *more, int count)
{
    for (int i = 0; i < count; i++) {
        snprintf(name[i], NAME, "%s/%s", kind, more[i].name);
        value[n++] = (sheaf__tensorboard_value){ name[i], more[i].value };
    }
    return n;
}

void sheaf__tensorboard_step(sheaf__appended *file, const sheaf_event_step *step)
{
    if (!sheaf__appended_is_open(file))
        return;
    char name[SHEAF_EVENT_VALUES][NAME];
    sheaf__tensorboard_value value[6 + SHEAF_EVENT_VALUES] = {
        { "train/loss", step->loss },
        { "train/grad_norm", step->grad_norm },
        { "train/learning_rate", step->lr }
    };
    int n = 3;
    if (step->seconds > 0)
        value[n++] = (sheaf__tensorboard_value){ "train/tokens_per_s",
                                                 (double)step->tokens / step->seconds };
    if (step->memory > 0)
        value[n++] = (sheaf__tensorboard_value){ "train/memory", (double)step->memory };
    if (step->loss_scale > 0)
        value[n++] = (sheaf__tensorboard_value){ "train/loss_scale", step->loss_scale };
    n = add_values(value, n, name, "train", step->value, step->values);
    sheaf__tensorboard_values(&file->pending, wall_time(), step->step, value, n);
    sheaf__appended_write(file);
}

void sheaf__tensorboard_evaluation(sheaf__appended *file, const sheaf_event_evaluation *evaluation)
{
    if (!sheaf__appended_is_open(file))
        return;
    char name[SHEAF_EVENT_VALUES][NAME];
    sheaf__tensorboard_value value[2 + SHEAF_EVENT_VALUES] = {
        { "eval/loss", evaluation->loss }, { "eval/accuracy", evaluation->accuracy }
    };
    const int n = add_values(value, isnan(evaluation->accuracy) ? 1 : 2, name, "eval",
                             evaluation->value, evaluation->values);
    sheaf__tensorboard_values(&file->pending, wall_time(), evaluation->step, value, n);
    sheaf__appended_write(file);
}
