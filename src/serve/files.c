/* files.c - see serve/files.h. */
#include "serve/files.h"

#include <stdio.h>
#include <string.h>

#include "pages/pages.h"

bool sheaf__served_file(const char **text, size_t *size, const char **type, const char *page,
                        const char *path)
{
    static const char *const kinds[] = { "html", "css", "js" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%s", page, kinds[i]);
        if (path[0] != '/' || strcmp(path + 1, i == 0 && path[1] == '\0' ? "" : name) != 0)
            continue;
        const sheaf__embedded *file = sheaf__embedded_find(sheaf__pages, name);
        *text = file->text;
        *size = file->size;
        *type = sheaf__page_type(name);
        return true;
    }
    return false;
}
