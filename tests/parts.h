/* parts.h - for tables about JSON: texts with ' in place of ", and parts that a text has in an
 * order. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline void swap_quotes(char *text, char from, char to)
{
    for (; *text != '\0'; text++)
        *text = *text == from ? to : *text;
}

/* has_parts - does `text` have these parts, which * divides, one after the other? */
static inline bool has_parts(const char *text, const char *parts)
{
    char part[600];
    for (size_t n; *parts != '\0'; parts += n + (parts[n] == '*')) {
        n = strcspn(parts, "*");
        snprintf(part, sizeof part, "%.*s", (int)n, parts);
        if ((text = strstr(text, part)) == NULL)
            return false;
        text += n;
    }
    return true;
}
