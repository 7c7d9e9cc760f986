/* pages.h - the files of this room, as the build has embedded them. */
#pragma once

#include "base/embedded.h"

extern const sheaf__embedded sheaf__pages[]; /* "chat.html", ... */

/* sheaf__page_type - the media type of such a file, by the end of its name: "text/html; ...". */
const char *sheaf__page_type(const char *name);
/* sheaf__page_file - a file of the page "chat" or "report" by the path of its address: the page at
 * /, its style or its script. NULL: there is none. */
const sheaf__embedded *sheaf__page_file(const char *page, const char *path);
