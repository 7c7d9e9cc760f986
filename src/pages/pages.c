/* pages.c - see pages.h. */
#include "pages/pages.h"

#include "base/base.h"

const char *sheaf__page_type(const char *name)
{
    return sheaf__ends_with(name, ".html")  ? "text/html; charset=utf-8"
           : sheaf__ends_with(name, ".css") ? "text/css; charset=utf-8"
           : sheaf__ends_with(name, ".js")  ? "text/javascript; charset=utf-8"
                                            : "application/octet-stream";
}

const sheaf__embedded *sheaf__page_file(const char *page, const char *path)
{
    const size_t n = strlen(page);
    char name[32];
    snprintf(name, sizeof name, "/%s.html", page);
    if (strcmp(path, "/") == 0)
        path = name;
    const bool is_part = path[0] == '/' && strncmp(path + 1, page, n) == 0 && path[n + 1] == '.';
    return is_part ? sheaf__embedded_find(sheaf__pages, path + 1) : NULL;
}
