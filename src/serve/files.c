/* files.c - see serve/files.h. */
#include "serve/files.h"

#include <string.h>

#include "pages/pages.h"

bool sheaf__served_file(const char **text, size_t *size, const char **type, const char *path)
{
    static const char *const served[] = { "chat.html", "chat.css", "chat.js" };
    const char *name = strcmp(path, "/") == 0 ? served[0] : path + (path[0] == '/');
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        const sheaf__page *page = strcmp(name, served[i]) == 0 ? sheaf__page_find(name) : NULL;
        if (page == NULL)
            continue;
        *text = page->text;
        *size = page->size;
        *type = sheaf__page_type(name);
        return true;
    }
    return false;
}
