/* golden.h - where the recorded outputs of the original programs are. */
#pragma once

#include <glob.h>
#include <stdbool.h>
#include <sys/stat.h>

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

/* golden_pattern - a pattern as of a shell, for what is there. */
static inline const char *golden_pattern(const char *pattern)
{
    char root[512], plain[2 * sizeof root];
    size_t n = 0;
    for (const char *c = golden_root(root); *c != '\0'; c++) {
        if (strchr("*?[]\\", *c) != NULL)
            plain[n++] = '\\';
        plain[n++] = *c;
    }
    return textf("%.*s/%s", (int)n, plain, pattern);
}

/* golden_each - visits all that such a pattern finds (of "X/" folders alone), and returns the sum
 * of what that gives. Fails where the root is no folder. */
static inline int golden_each(const char *pattern, int (*visit)(const char *path))
{
    int sum = 0;
    glob_t found = { 0 };
    struct stat root;
    if (stat(golden(""), &root) != 0 || !S_ISDIR(root.st_mode))
        fail_msg("%s is no folder of recordings", golden(""));
    const int failed = glob(golden_pattern(pattern), 0, NULL, &found);
    if (failed != 0 && failed != GLOB_NOMATCH)
        fail_msg("%s: cannot be read", golden(pattern));
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
