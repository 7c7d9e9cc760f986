/* structs.h - private: structs with a size, filled by programs of any version of the headers. */
#pragma once

#include "base/base.h"
#include "base/control.h"
#include "base/thread.h"
#include "sheaf/dtype.h"

/* sheaf__struct_read - copies `from` to *to (`known` bytes), with zeros in fields beyond its size;
 * all zero for NULL. `what` is the struct's name. Errors: SHEAF_E_ARG for a size that was not set,
 * and for fields of a later version that are not zero. */
sheaf_status *sheaf__struct_read(void *to, size_t known, const void *from, const char *what);
/* sheaf__struct_check - is the size of a report set, for sheaf__struct_fill()? NULL is fine. */
sheaf_status *sheaf__struct_check(const void *to, const char *what);
/* sheaf__struct_fill - copies `from` (`known` bytes) to *to, up to the size of *to, which stays;
 * `to` may be NULL. */
void sheaf__struct_fill(void *to, const void *from, size_t known);

/* sheaf__check_dtype - is a dtype of the struct `what` float32, bfloat16, float16 or SHEAF_BOOL,
 * which names none? Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__check_dtype(const char *what, sheaf_dtype dtype);

/* sheaf__check_count - is a whole number of the struct `what` within 0 to `most`? Errors:
 * SHEAF_E_ARG with the field's name. */
sheaf_status *sheaf__check_count(const char *what, const char *field, int64_t value, int64_t most);
/* Limits as for the command's flags, so that nothing overflows. */
enum {
    SHEAF__MOST_THREADS = 4096,
    SHEAF__MOST_PARTS = 1024,
    SHEAF__MOST_ROWS = 1000000,
    SHEAF__MOST_POSITIONS = 100000000
};
