/* files.h - a scratch folder for a test program, gone at its end; and did it leak descriptors? */
#pragma once

#include "tests/kept.h"

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

/* at - "scratch folder/name"; at_format - the same by a format. */
static inline const char *at(const char *name)
{
    return textf("%s/%s", scratch.dir, name);
}

#define at_format(...) at(textf(__VA_ARGS__))

/* put - a file that holds `text`. */
static inline void put(const char *path, const char *text)
{
    CHECK_OK(sheaf__file_write_whole(path, text, strlen(text)));
}

/* file_text - what a file holds, with a 0 behind it; stays. size: out (NULL: not asked). */
static inline char *file_text(const char *path, size_t *size)
{
    char **text = room(sizeof *text);
    size_t n;
    CHECK_OK(sheaf__file_read_all(text, size == NULL ? &n : size, path, 1 << 28));
    return kept(*text, free);
}

/* check_same_files - two files hold the same bytes; check_same_file - `name` in two folders. */
static inline void check_same_files(const char *a, const char *b)
{
    size_t n, m;
    const char *x = file_text(a, &n), *y = file_text(b, &m);
    assert_int_equal(n, m);
    CHECK_BYTES(a, x, y, n);
}

static inline void check_same_file(const char *a, const char *b, const char *name)
{
    check_same_files(textf("%s/%s", a, name), textf("%s/%s", b, name));
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

/* copy_edited - a copy with `with` in the place of `find` (NULL: as it is). */
static inline void copy_edited(const char *to, const char *from, const char *find, const char *with)
{
    const char *text = file_text(from, NULL), *there = find == NULL ? NULL : strstr(text, find);
    if (find != NULL && there == NULL)
        fail_msg("%s: no '%s'", from, find);
    if (find == NULL)
        copy_file(to, from);
    else
        put(to, textf("%.*s%s%s", (int)(there - text), text, with, there + strlen(find)));
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
    release_kept(0);
    const int left = count_open_files() - scratch.open_files;
    if (left != 0)
        print_error("%d descriptors were left open\n", left);
    return st != NULL || left != 0;
}
