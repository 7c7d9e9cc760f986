/* golden.h - where the recorded outputs of the original programs are. */
#pragma once

#include <glob.h>
#include <stdbool.h>

#include "tests/sources.h"

/* golden_root - $SHEAF_GOLDEN (the full collection), else $SHEAF_TEST_DATA, else tests/data of the
 * sources. */
static inline const char *golden_root(char buffer[512])
{
    const char *root = getenv("SHEAF_GOLDEN");
    if (root == NULL || *root == '\0')
        root = getenv("SHEAF_TEST_DATA");
    if (root != NULL && *root != '\0')
        snprintf(buffer, 512, "%s", root);
    else
        snprintf(buffer, 512, "%s/tests/data", source_root());
    return buffer;
}

/* golden - "ROOT/name". */
static inline const char *golden(const char *name)
{
    char root[512];
    return textf("%s/%s", golden_root(root), name);
}

/* golden_each - visits all that a pattern as of a shell finds there (of "X/" folders alone), and
 * returns the sum of what that gives. */
static inline int golden_each(const char *pattern, int (*visit)(const char *path))
{
    int sum = 0;
    glob_t found = { 0 };
    if (glob(golden(pattern), 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            sum += visit(found.gl_pathv[i]);
    globfree(&found);
    return sum;
}

/* golden_is_full - the full collection is there, not only the committed subset. */
static inline bool golden_is_full(void)
{
    const char *root = getenv("SHEAF_GOLDEN");
    return root != NULL && *root != '\0';
}
