/* readers.h - what reads bytes from outside, each as a function of those bytes.
 *
 * A reader must return a status or a result; a crash, a leak, a hang or an allocation out of
 * proportion to the bytes is a fault, and so is a result that contradicts itself (abort()).
 * fuzz.c gives them to libFuzzer (./run fuzz), replay.c gives them seeds (./run test);
 * seeds.sh knows where the seeds of each are. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_reader {
    const char *name;
    void (*read)(const uint8_t *bytes, size_t size);
} fuzz_reader;

extern const fuzz_reader fuzz_readers[]; /* ends with name NULL */

/* fuzz_reader_named - NULL when there is none. */
const fuzz_reader *fuzz_reader_named(const char *name);
