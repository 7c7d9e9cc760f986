/* memory.h - how much memory this process may still take before the system kills it. */
#pragma once

#include "base/base.h"

typedef struct sheaf__memory {
    int64_t left;  /* bytes; INT64_MAX where nothing is known */
    bool by_group; /* a control group leaves less than the machine has */
    int64_t held;  /* bytes of memory of its own that this process has already; 0 where that is not
                      known */
} sheaf__memory;

/* sheaf__memory_look - the least of the machine's available memory (MemAvailable) and the rest in
 * each control group of this process and each group above it: version 1 and 2, limit less
 * usage, pages of files not counted as they can be given back. A limit that cannot be read is
 * ignored. root  put before /proc and the mount points, "" but for tests */
sheaf__memory sheaf__memory_look(const char *root);

/* sheaf__system_text - what stands behind `key` and its colon in a file of the system, as
 * /proc/cpuinfo, without blanks around; "": nothing. */
void sheaf__system_text(char out[64], const char *path, const char *key);
