/* files.h - the files that a browser gets: the page at / and what it loads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* sheaf__served_file - by the path of its address, of the page "chat" or "report"; *type: what HTTP
 * calls it. All is static. false: there is none. */
bool sheaf__served_file(const char **text, size_t *size, const char **type, const char *page,
                        const char *path);
