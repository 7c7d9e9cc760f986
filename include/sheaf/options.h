/* options.h - how structs of options and reports grow without breaking programs.
 *
 * Each begins with its size, as the program that fills it was compiled:
 *
 *     sheaf_weights_verify_options how;
 *     SHEAF_INIT(&how);
 *     how.quick = true;
 *
 * Zero, or NULL, means the default of a field unless its comment says otherwise. Later versions add
 * fields at the end: a library reads no more than the program knows, and refuses (SHEAF_E_ARG) what
 * a program asks of it by a field that it does not know itself. Where a function takes options,
 * NULL means all defaults; where it fills a report, NULL means that none is wanted. */
#pragma once

#include <stddef.h>
#include <string.h>

/* SHEAF_INIT - zeroes *struct_pointer and sets its size. A macro, because sizeof must be the
 * program's own. */
#define SHEAF_INIT(struct_pointer)                                                                 \
    ((void)memset((struct_pointer), 0, sizeof *(struct_pointer)),                                  \
     (void)((struct_pointer)->size = sizeof *(struct_pointer)))
