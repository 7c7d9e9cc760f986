/* sources.h - for tests: files of the sources. */
#pragma once

#include "base/file.h"
#include "tests/kept.h"

static inline const char *source_root(void)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    return root == NULL ? "." : root;
}

/* The path of a file of the sources, by a format. */
#define in_sources(...) textf("%s/%s", source_root(), textf(__VA_ARGS__))

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
