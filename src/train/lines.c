/* lines.c - see lines.h. */
#include "train/lines.h"

#include <string.h>

static const char *next(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static const char *value_of(const char *text, const char *key, size_t n, char separator)
{
    for (const char *line = text; *line != '\0'; line = next(line))
        if (strncmp(line, key, n) == 0 && line[n] == separator)
            return line + n + 1 + (line[n + 1] == ' ');
    return NULL;
}

int sheaf__line_size(const char *value)
{
    return value == NULL ? 0 : (int)strcspn(value, "\n");
}

bool sheaf__lines_differ(sheaf__line_change *out, const char *was, const char *is, char separator)
{
    const char ends[] = { separator, '\n', '\0' };
    int64_t n = 0;
    if (strcmp(was, is) == 0)
        return false;
    for (int side = 0; side < 2; side++)
        for (const char *line = side == 0 ? was : is; *line != '\0'; line = next(line)) {
            const size_t key = strcspn(line, ends);
            const char *a = value_of(was, line, key, separator),
                       *b = value_of(is, line, key, separator);
            const int size = sheaf__line_size(a);
            const bool same = a != NULL && b != NULL && size == sheaf__line_size(b) &&
                              strncmp(a, b, (size_t)size) == 0;
            if (same || (side == 1 && a != NULL))
                continue;
            if (n++ == 0)
                *out = (sheaf__line_change){ line, key, a, b, 0 };
        }
    if (n > 0)
        out->more = n - 1;
    return n > 0;
}
