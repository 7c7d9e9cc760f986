/* files.h - a scratch folder for a test program, gone at its end; and did it leak descriptors? */
#pragma once

#include "tests/check.h"

#include <dirent.h>

#include "base/file.h"

static struct {
    char dir[64];
    int open_files;
} scratch;

static inline int count_open_files(void)
{
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list != NULL && readdir(list) != NULL)
        n++;
    if (list != NULL)
        closedir(list);
    return n;
}

/* at_format - "scratch folder/" and a name by a format. */
static inline const char *at_format(const char *format, ...) SHEAF_PRINTF(1, 2);
static inline const char *at_format(const char *format, ...)
{
    char name[400];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    return textf("%s/%s", scratch.dir, name);
}

static inline const char *at(const char *name)
{
    return textf("%s/%s", scratch.dir, name);
}

/* put - a file that holds `text`. */
static inline void put(const char *path, const char *text)
{
    CHECK_OK(sheaf__file_write_whole(path, text, strlen(text)));
}

/* held_by - what a file of text holds (malloc'd). */
static inline char *held_by(const char *path)
{
    char *text;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, path, 1 << 20));
    return text;
}

/* file_with - the path of a file in the scratch folder that holds these bytes. */
static inline const char *file_with(const char *name, const void *content, size_t size)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return at(name);
}

/* check_same_file - `name` has the same bytes in two folders. */
static inline void check_same_file(const char *a, const char *b, const char *name)
{
    char *of[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        char path[1600];
        snprintf(path, sizeof path, "%s/%s", i == 0 ? a : b, name);
        CHECK_OK(sheaf__file_read_all(&of[i], &size[i], path, 1 << 28));
    }
    if (size[0] != size[1])
        fail_msg("%s: %zu and %zu bytes", name, size[0], size[1]);
    CHECK_BYTES(name, of[1], of[0], size[0]);
    free(of[0]);
    free(of[1]);
}

/* entries - how many names a folder has. */
static inline int64_t entries(const char *path)
{
    char **names = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, path));
    sheaf__names_free(names, n);
    return n;
}

/* ---- files that are there ---- */

static inline void copy_file(const char *to, const char *from)
{
    char *bytes = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, from, SIZE_MAX));
    CHECK_OK(sheaf__file_write_whole(to, bytes, size));
    free(bytes);
}

/* A folder and all in it, copied. */
static inline void copy_tree(const char *to, const char *from)
{
    char **names = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__make_dirs(to));
    CHECK_OK(sheaf__list_dir(&names, &n, from));
    for (int64_t i = 0; i < n; i++) {
        const char *a = textf("%s/%s", from, names[i]);
        const bool folder = sheaf__path_kind(a) == SHEAF_PATH_DIR;
        (folder ? copy_tree : copy_file)(textf("%s/%s", to, names[i]), a);
    }
    sheaf__names_free(names, n);
}

static inline void cut_file(const char *path, double share)
{
    char *bytes = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, SIZE_MAX));
    CHECK_OK(sheaf__file_write_whole(path, bytes, (size_t)((double)size * share)));
    free(bytes);
}

static inline void swap_files(const char *a, const char *b)
{
    const char *third = textf("%s.third", a);
    assert_int_equal(rename(a, third), 0);
    assert_int_equal(rename(b, a), 0);
    assert_int_equal(rename(third, b), 0);
}

/* ---- the folder ---- */

/* For FIXTURE(): before and after all tests. */
static inline int make_scratch(void **state)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch.dir, sizeof scratch.dir, "%.40s/sheaf-test-XXXXXX",
             tmp == NULL || *tmp == '\0' ? "/tmp" : tmp);
    const bool made = mkdtemp(scratch.dir) != NULL;
    scratch.open_files = count_open_files();
    return made ? 0 : 1;
}

static inline int remove_scratch(void **state)
{
    sheaf_status *st = sheaf__remove_tree(scratch.dir);
    sheaf_status_free(st);
    const int left = count_open_files() - scratch.open_files;
    if (left != 0)
        print_error("%d descriptors were left open\n", left);
    return st != NULL || left != 0;
}
