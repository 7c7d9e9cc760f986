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
