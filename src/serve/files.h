/* files.h - the files of a page that a browser gets: the page at /, its style and its script. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* sheaf__served_file - a file of the page "chat" or "report" by the path of its address; *type: its
 * media type. All is static. false: there is none. */
bool sheaf__served_file(const char **text, size_t *size, const char **type, const char *page,
                        const char *path);
