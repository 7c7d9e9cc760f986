/* folder.h - for tests: a folder to write in, and what lies in one. */
#pragma once

#include <inttypes.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "tests/check.h"

/* new_folder - in memory where there is such a file system: these tests sync a lot. Returns its
 * path. */
static inline char *new_folder(char path[64])
{
    const char *tmp = getenv("TMPDIR");
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                       : tmp != NULL && *tmp != '\0' ? tmp
                                                     : "/tmp";
    snprintf(path, 64, "%.40s/sheaf-faults-XXXXXX", base);
    if (mkdtemp(path) == NULL)
        fail_msg("no folder for the test");
    return path;
}

/* list_tree - adds a line for what is at `path`, if anything, and each thing below it: its path
 * behind the first `skip` characters, and of a file its size and hash. */
static inline void list_tree(FILE *out, const char *path, size_t skip)
{
    const sheaf_path_kind kind = sheaf__path_kind(path);
    char **names = NULL, *bytes = NULL;
    size_t size = 0;
    int64_t n = 0;
    if (kind == SHEAF_PATH_DIR) {
        CHECK_OK(sheaf__list_dir(&names, &n, path));
        fprintf(out, "%s/\n", path + skip);
    } else if (kind != SHEAF_PATH_NONE) {
        CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 1 << 24));
        fprintf(out, "%s %zu %016" PRIx64 "\n", path + skip, size, sheaf__hash(bytes, size).high);
    }
    for (int64_t i = 0; i < n; i++) {
        char *below = NULL;
        CHECK_OK(sheaf__path_join(&below, path, names[i]));
        list_tree(out, below, skip);
        free(below);
    }
    sheaf__names_free(names, n);
    free(bytes);
}

/* listing_of - that of `path` (malloc'd), as if it were a file system of its own; "" where nothing
 * is. */
static inline char *listing_of(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    list_tree(out, path, strlen(path));
    fclose(out);
    return text;
}
