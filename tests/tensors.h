/* tensors.h - a .safetensors file written by hand, so that tests of readers do not lean on our own
 * writer. */
#pragma once

#include <inttypes.h>
#include <math.h>

#include "tests/files.h"

enum { NO_ROWS = -1 }; /* an axis of length 0 */

typedef struct tensor {
    const char *name, *dtype; /* BOOL, I32, I64 or F32 */
    int64_t shape[4];         /* up to the first 0 */
    const int64_t *value;     /* of whole numbers; NULL: 0, 1, 2, ... as F32, from `first` on */
    int first;
    int64_t wild; /* NaN at this index, but not at 0 */
} tensor;

/* tensors_file - the path of a file of n tensors, one behind the other. */
static inline const char *tensors_file(const tensor *list, int n)
{
    static char all[1 << 17], head[8192];
    static unsigned char data[1 << 16];
    size_t at = 0;
    int size = sprintf(head, "{");
    for (int i = 0; i < n; i++) {
        const size_t begin = at;
        const tensor *t = &list[i];
        const size_t item = strcmp(t->dtype, "BOOL") == 0 ? 1 : t->dtype[1] == '6' ? 8 : 4;
        int64_t count = 1;
        size += sprintf(head + size, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == 0 ? "" : ",",
                        t->name, t->dtype);
        for (int a = 0; a < 4 && t->shape[a] != 0; a++) {
            const int64_t length = t->shape[a] == NO_ROWS ? 0 : t->shape[a];
            size += sprintf(head + size, "%s%" PRId64, a == 0 ? "" : ",", length);
            count *= length;
        }
        for (int64_t k = 0; k < count; k++, at += item) {
            const float number = t->wild != 0 && k == t->wild ? NAN : (float)(t->first + k);
            memcpy(data + at, t->value != NULL ? (const void *)&t->value[k] : &number, item);
        }
        size += sprintf(head + size, "],\"data_offsets\":[%zu,%zu]}", begin, at);
    }
    size += sprintf(head + size, "}");
    const uint64_t length = (uint64_t)(size + 7) / 8 * 8;
    memcpy(all, &length, 8);
    sprintf(all + 8, "%-*s", (int)length, head);
    memcpy(all + 8 + length, data, at);
    return file_with("made.safetensors", all, 8 + length + at);
}

/* write_rows - a file of rows of token ids with a label for each. */
static inline void write_rows(const char *path, int64_t rows, int64_t length, const int64_t *ids,
                              const int64_t *labels)
{
    const tensor list[] = { { "input_ids", "I32", { rows, length }, ids },
                            { "labels", "I32", { rows, length }, labels } };
    CHECK_OK(sheaf__rename(tensors_file(list, 2), path));
}
