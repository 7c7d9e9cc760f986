/* structs.h - private: structs that a program fills, whatever version of the headers it knows. */
#pragma once

#include "base/base.h"
#include "base/control.h"
#include "base/thread.h"
#include "sheaf/dtype.h"

/* sheaf__struct_read - *to (`known` bytes): what `from` says, and zero in what it does not know;
 * all zero for NULL. `what` is the struct's name. Errors: SHEAF_E_ARG for a size that was not set,
 * and for fields of a later version that are not zero. */
sheaf_status *sheaf__struct_read(void *to, size_t known, const void *from, const char *what);
/* sheaf__struct_check - is it one that sheaf__struct_fill() can fill? NULL is. */
sheaf_status *sheaf__struct_check(const void *to, const char *what);
/* sheaf__struct_fill - fills what *to, which may be NULL, knows of the `known` bytes of `from`; its
 * size stays. */
void sheaf__struct_fill(void *to, const void *from, size_t known);

/* sheaf__check_dtype - is a dtype of the struct `what` float32, bfloat16, float16 or SHEAF_BOOL,
 * which names none? Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__check_dtype(const char *what, sheaf_dtype dtype);

/* sheaf__check_count - is a whole number of the struct `what` within 0 to `most`? Errors:
 * SHEAF_E_ARG with the field's name. */
sheaf_status *sheaf__check_count(const char *what, const char *field, int64_t value, int64_t most);
/* As of the command's flags: what is far beyond them would overflow. */
enum {
    SHEAF__MOST_THREADS = 4096,
    SHEAF__MOST_PARTS = 1024,
    SHEAF__MOST_ROWS = 1000000,
    SHEAF__MOST_POSITIONS = 100000000
};
