/* pages.c - see pages.h. */
#include "pages/pages.h"

#include "base/base.h"

const sheaf__page *sheaf__page_find(const char *name)
{
    for (const sheaf__page *page = sheaf__pages; page->name != NULL; page++)
        if (strcmp(page->name, name) == 0)
            return page;
    return NULL;
}

const char *sheaf__page_type(const char *name)
{
    return sheaf__ends_with(name, ".html")  ? "text/html; charset=utf-8"
           : sheaf__ends_with(name, ".css") ? "text/css; charset=utf-8"
           : sheaf__ends_with(name, ".js")  ? "text/javascript; charset=utf-8"
                                            : "application/octet-stream";
}
