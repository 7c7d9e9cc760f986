/* tensorboard.h - private: files of events that TensorBoard reads.
 *
 * A start of a run opens DIR/events.out.tfevents.SECONDS.HOST.PID. TensorBoard reads the files of a
 * folder in the order of their names, so SECONDS is the time, or one more than that of the last
 * file there. A file is a sequence of records, all numbers little endian:
 *   uint64 size, uint32 masked CRC-32C of these 8 bytes, `size` bytes, uint32 masked CRC-32C of
 * them where masked is ((crc >> 15) | (crc << 17)) + 0xa282ead8. A record holds a protobuf message:
 *   Event { double wall_time = 1; int64 step = 2; string file_version = 3;
 *           Summary summary = 5; SessionLog session_log = 7; }
 *   Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
 *   SessionLog { int32 status = 1; }   START = 1: earlier files' steps from `step` on are void
 *
 * Sources: TensorFlow's record writer, tensorboard/compat/proto/event.proto and summary.proto. The
 * first record is file_version "brain.Event:2", the second START. */
#pragma once

#include "base/events.h"
#include "monitor/appended.h"

typedef struct sheaf__tensorboard_value {
    const char *tag;
    double value; /* stored as float */
} sheaf__tensorboard_value;

/* sheaf__tensorboard_open - after `keep_steps` steps of the run. Errors: SHEAF_E_IO. */
sheaf_status *sheaf__tensorboard_open(sheaf__appended *out, const char *folder, int64_t keep_steps);
/* Nothing on a closed one. */
void sheaf__tensorboard_step(sheaf__appended *file, const sheaf_event_step *step);
void sheaf__tensorboard_evaluation(sheaf__appended *file, const sheaf_event_evaluation *evaluation);

/* sheaf__tensorboard_values - appends a record with n values. wall_time: seconds since 1970. */
void sheaf__tensorboard_values(sheaf_text *text, double wall_time, int64_t step,
                               const sheaf__tensorboard_value *value, int n);
/* sheaf__crc32c - Castagnoli's polynomial 0x1edc6f41, reflected. */
uint32_t sheaf__crc32c(const void *bytes, size_t size);
