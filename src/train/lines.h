/* lines.h - two texts of lines "key: value", of which each key stands once: what differs? */
#pragma once

#include "base/base.h"

/* The first line that differs, and how many more do. Its texts end at a line
 * feed, or with the text. */
typedef struct sheaf__line_change {
    const char *line;     /* begins with the key */
    size_t key;           /* bytes of that */
    const char *was, *is; /* the values; NULL: no such line */
    int64_t more;
} sheaf__line_change;

/* sheaf__lines_differ - false: they say the same, in whatever order. separator: behind a key. */
bool sheaf__lines_differ(sheaf__line_change *out, const char *was, const char *is, char separator);
/* sheaf__line_size - bytes of a value; 0 of NULL. */
int sheaf__line_size(const char *value);
