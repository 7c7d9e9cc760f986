/* embedded.h - files that are part of the program: embed.sh writes them as C when it is built. */
#pragma once

#include "base/base.h"

typedef struct sheaf__embedded {
    const char *name; /* "chat.html"; NULL ends a list */
    const char *text; /* its bytes, and a NUL behind them */
    size_t size;      /* without the NUL */
} sheaf__embedded;

/* sheaf__embedded_find - by its name; NULL: there is none. */
static inline const sheaf__embedded *sheaf__embedded_find(const sheaf__embedded *file,
                                                          const char *name)
{
    while (file->name != NULL && strcmp(file->name, name) != 0)
        file++;
    return file->name != NULL ? file : NULL;
}
