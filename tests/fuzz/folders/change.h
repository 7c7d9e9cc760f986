/* change.h - one change of a file of a checkpoint, with its structure: tensors are removed,
 * swapped, copied, emptied, retyped and renamed in safetensors and PyTorch files, keys and numbers
 * in JSON; any file may lose or change bytes.
 *
 * A change is told by a file and four numbers, which are taken modulo what there is to choose from,
 * so that any numbers are a change and a line of text is a seed. What is made is as whole as its
 * format asks for (offsets, checksums), so that the readers get to see what it says. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_bytes {
    char *at;
    size_t size;
} fuzz_bytes; /* at: malloc'd */

typedef enum fuzz_format {
    FUZZ_SAFETENSORS,
    FUZZ_TORCH,
    FUZZ_PICKLE,
    FUZZ_JSON,
    FUZZ_OTHER
} fuzz_format;

/* fuzz_format_of - by the name and the first bytes. */
fuzz_format fuzz_format_of(const char *name, const char *bytes, size_t size);

/* Each: *bytes is replaced; false: there is nothing of the sort to change. *consistent is set where
 * another model, or the same in other values, may be what comes of it, which no file contradicts.
 */
bool fuzz_change_safetensors(fuzz_bytes *bytes, const uint32_t n[4], bool *consistent);
bool fuzz_change_torch(fuzz_bytes *bytes, const char *path, const uint32_t n[4], bool *consistent);
bool fuzz_change_pickle(fuzz_bytes *bytes, const uint32_t n[4], bool *consistent);
bool fuzz_change_json(fuzz_bytes *bytes, const uint32_t n[4], bool *consistent);
bool fuzz_change_bytes(fuzz_bytes *bytes, const uint32_t n[4], bool *consistent);

/* fuzz_pickle_again - a pickle of the same values (pickle.c); a change with n[0] of UINT32_MAX
 * makes none but that. */
#define FUZZ_NO_CHANGE UINT32_MAX
