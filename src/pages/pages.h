/* pages.h - the files of this room, as the build has embedded them. */
#pragma once

#include "base/embedded.h"

extern const sheaf__embedded sheaf__pages[]; /* "chat.html", ... */

/* sheaf__page_type - the media type of such a file, by the end of its name: "text/html;
 * charset=utf-8".
 */
const char *sheaf__page_type(const char *name);
