/* sources.h - for tests: files of the sources. */
#pragma once

#include "base/file.h"
#include "tests/check.h"

/* The path of a file of the sources, by a format. */
static inline const char *in_sources(const char *format, ...) SHEAF_PRINTF(1, 2);
static inline const char *in_sources(const char *format, ...)
{
    char name[400];
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    return textf("%s/%s", root == NULL ? "." : root, name);
}

/* The config of a published model (malloc'd), with `more` before its keys. */
static inline char *published_config(const char *name, const char *more)
{
    char *file, *text = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&file, &size, in_sources("tests/data/configs/%s.json", name),
                                  1 << 20));
    if (asprintf(&text, "{%s%s", more, strchr(file, '{') + 1) < 0)
        fail_msg("%s: no memory", name);
    free(file);
    return text;
}
