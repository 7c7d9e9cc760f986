/* output_fill.h - an output whose folder is there and cannot be replaced: a mount point, or one
 * beside which nothing can be made. It is filled from within, for output.c. */
#pragma once

#include "base/file.h"

/* sheaf__path_is_mount - is a file system mounted at this folder? False where the system cannot
 * tell. */
bool sheaf__path_is_mount(const char *path);
/* sheaf__fill - moves all that is in `from` into `dst`, on the same file system, then removes
 * `from` and syncs `dst`. Nothing is replaced. What says that the rest is whole goes last: an
 * index, then a config, then latest or manifest.json. On failure what was moved is moved back. */
sheaf_status *sheaf__fill(const char *dst, const char *from);
