/* save.c - see save.h. */
#include "dialects/common/save.h"

#include <ctype.h>
#include <stdarg.h>

#include "base/base.h"
#include "base/file.h"

const char sheaf__iteration_tracker[] = "latest_checkpointed_iteration.txt";

/* ---- names ---- */

const char *sheaf__last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

bool sheaf__has_file(const char *dir, const char *name)
{
    return sheaf__path_has(dir, name, SHEAF_PATH_FILE);
}

bool sheaf__take_word(const char **at, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

bool sheaf__take_number(int *out, const char **at)
{
    int n = 0;
    const char *p = *at;
    for (; isdigit((unsigned char)*p); p++) {
        n = n * 10 + *p - '0';
        if (n >= SHEAF__MOST_RANKS)
            return false;
    }
    const bool any = p > *at;
    *at = p;
    *out = n;
    return any;
}

int64_t sheaf__step_of_name(const char **rest, const char *path, const char *before)
{
    const char *at = sheaf__last_part(path);
    if (!sheaf__take_word(&at, before))
        return -1;
    const size_t digits = strspn(at, "0123456789");
    *rest = at + digits;
    return digits == 0 || digits > 18 ? -1 : strtoll(at, NULL, 10);
}

/* ---- trackers ---- */

sheaf_status *sheaf__tracker_read(char **out, const char *dir, const char *name)
{
    char path[SHEAF_PATH_SIZE], *text = NULL;
    size_t size = 0;
    sheaf_status *st = NULL;
    *out = NULL;
    if (sheaf__has_file(dir, name))
        st = sheaf__file_read_all(&text, &size, sheaf__path_in(path, dir, name), 4096);
    if (text == NULL || strlen(text) != size) { /* missing, or not text */
        free(text);
        return sheaf__only_memory(st);
    }
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        text[--size] = '\0';
    const size_t blank = strspn(text, " \t\r\n");
    memmove(text, text + blank, size - blank + 1);
    *out = text;
    return NULL;
}

bool sheaf__tracker_iteration(char folder[SHEAF_PATH_SIZE], const char *dir)
{
    char *word = NULL, name[40] = "";
    sheaf_status_free(sheaf__tracker_read(&word, dir, sheaf__iteration_tracker));
    if (word == NULL)
        return false;
    word[strcspn(word, " \t\r\n")] = '\0';
    const size_t digits = strspn(word, "0123456789");
    if (digits > 0 && digits < 18 && word[digits] == '\0')
        snprintf(name, sizeof name, "iter_%07lld", strtoll(word, NULL, 10));
    else if (strcmp(word, "release") == 0)
        snprintf(name, sizeof name, "release");
    free(word);
    sheaf__path_in(folder, dir, name);
    return name[0] != '\0';
}

/* ---- missing files ---- */

sheaf_status *sheaf__missing_file(sheaf_catalog *c, const char *tensor, const char *expected,
                                  const char *path, ...)
{
    char whole[SHEAF_PATH_SIZE];
    va_list args;
    va_start(args, path);
    vsnprintf(whole, sizeof whole, path, args);
    va_end(args);
    return sheaf__defect(c, "missing", whole, tensor, expected,
                         "copy it from where this checkpoint was written", "no such file");
}

bool sheaf__holds_file(const char *path, bool (*is)(const char *name))
{
    char **names = NULL;
    int64_t n = 0;
    bool yes = false;
    const sheaf_path_kind kind = sheaf__path_kind(path);
    if (kind == SHEAF_PATH_FILE)
        return is(sheaf__last_part(path));
    if (kind == SHEAF_PATH_DIR)
        sheaf_status_free(sheaf__list_dir(&names, &n, path));
    for (int64_t i = 0; i < n && !yes; i++)
        yes = is(names[i]);
    sheaf__names_free(names, n);
    return yes;
}
