/* file.c - paths and reading; see file.h. */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* Linux moves at most 2^31 - 4096 bytes per call; whole blocks below that. */
enum { MOST_PER_CALL = 1 << 30 };

const char *sheaf__temporary_parent(void)
{
    const char *folder = getenv("TMPDIR");
    return folder == NULL || *folder == '\0' ? "/tmp" : folder;
}

#define HUB_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

sheaf_path_kind sheaf__path_kind(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return SHEAF_PATH_NONE;
    return S_ISREG(about.st_mode)   ? SHEAF_PATH_FILE
           : S_ISDIR(about.st_mode) ? SHEAF_PATH_DIR
                                    : SHEAF_PATH_OTHER;
}

static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/'), *dot = strrchr(path, '.');
    const bool ending = dot != NULL && strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz") > 1 &&
                        dot[1 + strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz")] == '\0';
    if (slash == NULL || slash == path || slash[1] == '\0' || path[0] == '.' || ending ||
        strspn(slash + 1, HUB_LETTERS) < strlen(slash + 1) ||
        strspn(path, HUB_LETTERS) < (size_t)(slash - path))
        return false;
    if (sheaf__is_listed("adapter model checkpoints", slash + 1, strlen(slash + 1)))
        return false; /* of a run */
    char *org = strndup(path, (size_t)(slash - path));
    const bool here = org == NULL || sheaf__path_kind(org) != SHEAF_PATH_NONE;
    free(org);
    return !here;
}

sheaf_status *sheaf__path_hub(sheaf_status *st, const char *path)
{
    static const char *const hubs[] = { "https://huggingface.co/", "https://hf.co/", "hf.co/",
                                        "hf://" };
    bool is = false;
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs && !is; i++)
        if (strncmp(path, hubs[i], strlen(hubs[i])) == 0 &&
            strchr(path + strlen(hubs[i]), '/') != NULL) {
            path += strlen(hubs[i]);
            is = true;
        }
    if (!is && !is_hub_name(path))
        return st;
    const char *name = strchr(path, '/') + 1;
    return sheaf_try_this(
        st,
        "sheaf downloads nothing: hf download %s --local-dir %s (a data set: with "
        "--repo-type dataset), then give %s",
        path, name, name);
}

const char *sheaf__path_what(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return "nothing of that name";
    switch (about.st_mode & S_IFMT) {
    case S_IFREG: return "a file";
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

bool sheaf__path_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool sheaf__path_holds(const char *path, int fd)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

sheaf_status *sheaf__path_join(char **out, const char *dir, const char *name)
{
    const size_t n = strlen(dir);
    char *path = NULL;
    if (asprintf(&path, "%s%s%s", dir, n > 0 && dir[n - 1] != '/' ? "/" : "", name) < 0)
        return sheaf__no_memory(name);
    *out = path;
    return NULL;
}

const char *sheaf__path_in(char path[SHEAF_PATH_SIZE], const char *dir, const char *name)
{
    const size_t n = strlen(dir);
    snprintf(path, SHEAF_PATH_SIZE, "%s%s%s", dir, n > 0 && dir[n - 1] != '/' ? "/" : "", name);
    return path;
}

bool sheaf__path_has(const char *dir, const char *name, sheaf_path_kind kind)
{
    char path[SHEAF_PATH_SIZE];
    const sheaf_path_kind is = sheaf__path_kind(sheaf__path_in(path, dir, name));
    return is != SHEAF_PATH_NONE && (kind == SHEAF_PATH_NONE || is == kind);
}

/* The length of the folder that `path` is in; 0: it names none. */
static size_t parent_size(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') /* "a/b/" is in "a" */
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

sheaf_status *sheaf__path_parent(char **out, const char *path)
{
    const size_t n = parent_size(path);
    char *parent = n == 0 ? strdup(".") : strndup(path, n);
    if (parent == NULL)
        return sheaf__no_memory(path);
    *out = parent;
    return NULL;
}

const char *sheaf__path_above(char path[SHEAF_PATH_SIZE], const char *of)
{
    const size_t n = parent_size(of);
    snprintf(path, SHEAF_PATH_SIZE, "%.*s", n == 0 ? 1 : (int)n, n == 0 ? "." : of);
    return path;
}

/* The next part of a path, without the slashes before it; 0: there is none. */
static size_t next_part(const char **part)
{
    *part += strspn(*part, "/");
    return strcspn(*part, "/");
}

static void add_parts(sheaf_text *text, const char *path)
{
    for (size_t n; (n = next_part(&path)) > 0; path += n)
        if (n > 1 || *path != '.') {
            sheaf__text_add(text, "/");
            sheaf__text_bytes(text, path, n);
        }
}

sheaf_status *sheaf__path_absolute(char **out, const char *path)
{
    sheaf_text text = { 0 };
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (path[0] == '/' || here != NULL) {
        add_parts(&text, here == NULL ? "" : here);
        add_parts(&text, path);
        sheaf__text_add(&text, "%s", text.size == 0 ? "/" : "");
    } else {
        sheaf__text_add(&text, "%s", path);
    }
    free(here);
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf__path_name(char **out, const char *path)
{
    char *whole;
    sheaf_status *st = sheaf__path_absolute(&whole, path);
    if (st != NULL)
        return st;
    const char *slash = strrchr(whole, '/');
    *out = strdup(slash == NULL || slash[1] == '\0' ? whole : slash + 1);
    free(whole);
    return *out == NULL ? sheaf__no_memory(path) : NULL;
}

/* Up from `folder` and down to the parts of `path`; neither has links. */
static sheaf_status *climb(char **out, const char *folder, const char *path)
{
    sheaf_text text = { 0 };
    size_t n, m;
    while ((n = next_part(&folder)) > 0 && (m = next_part(&path)) == n &&
           memcmp(folder, path, n) == 0) {
        folder += n;
        path += n;
    }
    for (; (n = next_part(&folder)) > 0; folder += n)
        sheaf__text_add(&text, "../");
    next_part(&path);
    sheaf__text_add(&text, "%s", path);
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf__path_relative(char **out, const char *folder, const char *path)
{
    const size_t n = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    char *parent = NULL, *whole = NULL;
    *out = NULL;
    if (strncmp(path, folder, n) == 0 && path[n] == '/') {
        *out = strdup(path + n + 1);
        return *out == NULL ? sheaf__no_memory(path) : NULL;
    }
    sheaf_status *st = sheaf__path_parent(&parent, path);
    char *from = realpath(folder, NULL), *real = st == NULL ? realpath(parent, NULL) : NULL;
    if (st == NULL && from != NULL && real != NULL) {
        st = sheaf__path_join(&whole, real,
                              strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1);
        TRY(st, climb(out, from, whole));
    } else if (st == NULL && (*out = strdup(path)) == NULL) {
        st = sheaf__no_memory(path);
    }
    free(parent);
    free(whole);
    free(from);
    free(real);
    return st;
}

/* 64-bit FNV-1a of the name up to its mark: no typed name and no date looks like it. */
static uint64_t mark_of(const char *name, size_t size)
{
    static const char salt[] = "sheaf: not finished: ";
    return sheaf__fnv(sheaf__fnv(SHEAF__FNV, salt, sizeof salt - 1), name, size);
}

sheaf_status *sheaf__partial_path(char **out, const char *path, const char *word, int try)
{
    char *name = NULL, *whole = NULL, number[16] = "";
    if (try > 0)
        snprintf(number, sizeof number, ".%d", try);
    if (asprintf(&name, "%s.%s-%ld%s-", path, word, (long)getpid(), number) >= 0) {
        const char *last = strrchr(name, '/');
        last = last == NULL ? name : last + 1;
        if (asprintf(&whole, "%s%016" PRIx64, name, mark_of(last, strlen(last))) < 0)
            whole = NULL;
        free(name);
    }
    *out = whole;
    return whole != NULL ? NULL : sheaf__no_memory(path);
}

bool sheaf__path_is_partial(const char *path)
{
    enum { DIGITS = 16 };
    char mark[DIGITS + 1];
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    const char *slash = memrchr(path, '/', n), *name = slash == NULL ? path : slash + 1;
    n -= (size_t)(name - path);
    if (n <= DIGITS)
        return false;
    snprintf(mark, sizeof mark, "%016" PRIx64, mark_of(name, n - DIGITS));
    return memcmp(mark, name + n - DIGITS, DIGITS) == 0; /* no other name has it */
}

sheaf_status *sheaf__list_dir(char ***out, int64_t *out_count, const char *path)
{
    DIR *list = opendir(path);
    if (list == NULL)
        return sheaf__found_errno(sheaf_fail(errno == ENOMEM ? SHEAF_E_MEMORY : SHEAF_E_IO,
                                             "%s: cannot list the folder", path),
                                  errno);
    char **names = NULL;
    int64_t count = 0, capacity = 0;
    sheaf_status *st = NULL;
    for (struct dirent *entry; st == NULL && (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (SHEAF_GROW(&names, &capacity, count + 1) &&
            (names[count] = strdup(entry->d_name)) != NULL)
            count++;
        else
            st = sheaf__no_memory(path);
    }
    closedir(list);
    if (st != NULL) {
        sheaf__names_free(names, count);
        return st;
    }
    if (count > 0)
        qsort(names, (size_t)count, sizeof *names, sheaf__by_name);
    *out = names;
    *out_count = count;
    return NULL;
}

void sheaf__names_free(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* git's placeholder for a large file that git-lfs has not fetched: a text of three lines. */
static sheaf_status *refuse_pointer(int fd, int64_t size, const char *path)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/v1\n";
    char text[1024];
    if (size >= (int64_t)sizeof text || size < (int64_t)sizeof begin - 1 ||
        pread(fd, text, (size_t)size, 0) != size || memcmp(text, begin, sizeof begin - 1) != 0)
        return NULL;
    text[size] = '\0';
    const char *bytes = strstr(text, "\nsize ");
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "the file itself");
    sheaf_found(st, "a pointer of git-lfs to %lld bytes",
                bytes == NULL ? 0 : strtoll(bytes + 6, NULL, 10));
    return sheaf_try_this(st, "git lfs pull, in the repository that it lies in");
}

int sheaf__file_lock(int fd, int most_ms)
{
    enum { NAP_MS = 20 };
    const struct timespec nap = { .tv_nsec = NAP_MS * 1000000 };
    int error;
    for (; (error = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK && most_ms > 0;
         most_ms -= NAP_MS)
        nanosleep(&nap, NULL);
    return error;
}

int sheaf__lock_named(int *out, const char *path)
{
    const int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    int error = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    if (error == 0 && !sheaf__path_holds(path, fd))
        error = ENOENT;
    if (error == 0)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return error;
}

void sheaf__file_mark(sheaf_file_mark *mark, int fd)
{
    struct stat is = { 0 };
    (void)!fstat(fd, &is); /* of an open file it does not fail */
    *mark = (sheaf_file_mark){ is.st_dev, is.st_ino, is.st_size, is.st_mtim };
}

bool sheaf__file_mark_equal(const sheaf_file_mark *a, const sheaf_file_mark *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

sheaf_status *sheaf__file_open_read(int *out, int64_t *size, const char *path)
{
    /* O_NONBLOCK: opening a pipe must not wait for a writer */
    const int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0)
        return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s: cannot open for reading", path),
                                  errno);
    struct stat about;
    sheaf_status *st = NULL;
    if (fstat(fd, &about) != 0)
        st = sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s", path), errno);
    else if (!S_ISREG(about.st_mode))
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", path), "a regular file"),
                         S_ISDIR(about.st_mode) ? "a folder" : "a pipe, socket or device");
    else
        st = refuse_pointer(fd, about.st_size, path);
    if (st != NULL) {
        close(fd);
        return st;
    }
    *out = fd;
    *size = about.st_size;
    return NULL;
}

sheaf_status *sheaf__file_read_at(int fd, void *dst, size_t size, int64_t offset, const char *path)
{
    char *at = dst;
    size_t done = 0;
    while (done < size) {
        const size_t want = size - done < MOST_PER_CALL ? size - done : MOST_PER_CALL;
        const ssize_t got =
            TEMP_FAILURE_RETRY(pread(fd, at + done, want, (off_t)(offset + (int64_t)done)));
        if (got < 0)
            return sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s: reading at byte %" PRId64, path,
                                                 offset + (int64_t)done),
                                      errno);
        if (got == 0) {
            sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: the file ends too early", path);
            sheaf_expected(st, "%zu bytes at offset %" PRId64, size, offset);
            return sheaf_found(st, "%zu bytes before the end", done);
        }
        done += (size_t)got;
    }
    return NULL;
}

sheaf_status *sheaf__file_hash(sheaf_hash *out, int fd, int64_t offset, int64_t size,
                               const char *path, char *into, const atomic_int *stop)
{
    enum { BUFFER = 1 << 20 };
    char *buffer = into == NULL ? malloc(BUFFER) : NULL;
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st =
        (buffer == NULL && into == NULL) || hasher == NULL ? sheaf__no_memory(path) : NULL;
    for (int64_t at = 0; at < size && st == NULL;) {
        const size_t n = size - at < BUFFER ? (size_t)(size - at) : BUFFER;
        char *to = into == NULL ? buffer : into + at;
        st = sheaf__file_read_at(fd, to, n, offset + at, path);
        if (st == NULL)
            sheaf__hasher_add(hasher, to, n);
        at += (int64_t)n;
        if (st == NULL && stop != NULL && atomic_load(stop) != 0)
            st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "%s", path), "a request to stop");
    }
    if (st == NULL)
        *out = sheaf__hasher_end(hasher);
    sheaf__hasher_free(hasher);
    free(buffer);
    return st;
}

sheaf_status *sheaf__path_hash(sheaf_hash *out, const char *path, const atomic_int *stop)
{
    int fd = -1;
    int64_t size = 0;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    TRY(st, sheaf__file_hash(out, fd, 0, size, path, NULL, stop));
    if (fd >= 0)
        close(fd);
    return st;
}

sheaf_status *sheaf__file_read_all(char **out, size_t *out_size, const char *path, size_t limit)
{
    int fd = -1;
    int64_t size = 0;
    char *text = NULL;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL)
        return st;
    if (size < 0 || (uint64_t)size > limit)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: file size", path),
                                        "at most %zu bytes", limit),
                         "%" PRId64 " bytes", size);
    else if ((text = malloc((size_t)size + 1)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory for %" PRId64 " bytes", path, size);
    TRY(st, sheaf__file_read_at(fd, text, (size_t)size, 0, path));
    close(fd);
    if (st != NULL) {
        free(text);
        return st;
    }
    text[size] = '\0';
    *out = text;
    *out_size = (size_t)size;
    return NULL;
}
