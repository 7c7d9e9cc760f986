/* fuzz.c - libFuzzer's door to the readers: the program's name, fuzz-READER, says which; as
 * plain fuzz it prints their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/readers.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const fuzz_reader *reader;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    const char *slash = strrchr((*argv)[0], '/'), *name = slash == NULL ? (*argv)[0] : slash + 1;
    for (const fuzz_reader *r = fuzz_readers; strcmp(name, "fuzz") == 0; r++) {
        if (r->name == NULL)
            exit(0);
        puts(r->name);
    }
    reader = strncmp(name, "fuzz-", 5) == 0 ? fuzz_reader_named(name + 5) : NULL;
    if (reader == NULL) {
        fprintf(stderr, "%s: no reader of this name\n", name);
        exit(2);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    reader->read(bytes, size);
    return 0;
}
