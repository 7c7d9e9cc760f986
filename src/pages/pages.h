/* pages.h - the files of this room, as the build has embedded them. */
#pragma once

#include <stddef.h>

typedef struct sheaf__page {
    const char *name; /* "chat.html" */
    const char *text; /* its bytes, and a NUL behind them */
    size_t size;      /* without the NUL */
} sheaf__page;

extern const sheaf__page sheaf__pages[]; /* ends with name NULL */

/* sheaf__page_find - by its name; NULL: there is none. */
const sheaf__page *sheaf__page_find(const char *name);
/* sheaf__page_type - what HTTP calls such a file, by the end of its name: "text/html;
 * charset=utf-8".
 */
const char *sheaf__page_type(const char *name);
