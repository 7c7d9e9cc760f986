/* replay.c - seeds and small changes of them through a reader, without libFuzzer.
 *
 * usage: replay              prints the names of the readers
 *        replay READER FILE...
 * Each file as it is, cut at eight places, and with a few bytes changed, the same ones on
 * every run. Whatever is wrong ends the program: sanitizers, a signal, abort(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "tests/fuzz/readers.h"

enum { MOST = 16 << 10, CUTS = 8, CHANGES = 60 };

/* From a copy of exactly `size` bytes, so that reading past the end is seen. */
static void give(const fuzz_reader *reader, const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + (size == 0));
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, size);
    reader->read(copy, size);
    free(copy);
}

/* What often matters to a parser, or any byte. */
static uint8_t other_byte(uint32_t u)
{
    static const char marks[] = "\"\\{}[]:,-.0189eEtfn#'\n\r\t \x7f\x80\xc3\xff";
    return u % 4 == 0 ? (uint8_t)(u >> 8)
                      : (uint8_t)marks[u / 4 % sizeof marks]; /* NUL is one of them */
}

static void replay(const fuzz_reader *reader, uint8_t *bytes, size_t size, uint64_t file)
{
    uint8_t before[4];
    size_t at[4];
    give(reader, bytes, size);
    for (size_t cut = 0; cut < CUTS && size > 0; cut++)
        give(reader, bytes, size * cut / CUTS);
    for (uint64_t n = 0; n < CHANGES && size > 0; n++) {
        const int count = 1 + (int)n % 4;
        for (int i = 0; i < count; i++) {
            const uint64_t index = n * 16 + (uint64_t)i * 2;
            at[i] = sheaf__random_tensor_u32(file, 1, index) % size;
            before[i] = bytes[at[i]];
            bytes[at[i]] = other_byte(sheaf__random_tensor_u32(file, 1, index + 1));
        }
        give(reader, bytes, size);
        for (int i = count - 1; i >= 0; i--)
            bytes[at[i]] = before[i];
    }
}

int main(int argc, char **argv)
{
    for (const fuzz_reader *r = fuzz_readers; argc == 1 && r->name != NULL; r++)
        puts(r->name);
    const fuzz_reader *reader = argc < 3 ? NULL : fuzz_reader_named(argv[1]);
    for (int i = 2; reader != NULL && i < argc; i++) {
        char *text = NULL;
        size_t size = 0;
        sheaf_status *st = sheaf__file_read_all(&text, &size, argv[i], MOST);
        if (st != NULL) {
            sheaf_status_print(st, stderr);
            return 3;
        }
        replay(reader, (uint8_t *)text, size, (uint64_t)i);
        free(text);
    }
    return argc > 1 && reader == NULL ? 2 : 0;
}
