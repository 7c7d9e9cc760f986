/* files.c - see files.h. */
#include "serve/files.h"

/* No page is built in yet. */
bool sheaf__served_file(const char **text, size_t *size, const char **type, const char *path)
{
    (void)path;
    *text = *type = NULL;
    *size = 0;
    return false;
}
