/* calls.h - the n-th system call of a test program fails, moves less, or is its last one; and
 * what was written but not synced is known.
 *
 * Replaces the calls of the C library that open, read, write, sync, rename, make and remove files,
 * whoever makes them, with and without the hook of faults.h: what bypasses that hook is caught
 * too. Include in one file of a test. One thread at a time. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum call_kind {
    CALL_ANY,
    CALL_OPEN,
    CALL_READ,
    CALL_WRITE,
    CALL_SYNC,
    CALL_RENAME,
    CALL_MKDIR,
    CALL_UNLINK,
    CALL_MMAP,
    CALL_KINDS
} call_kind;

typedef enum call_fate {
    FATE_PASS,
    FATE_FAIL,  /* with `error` */
    FATE_SHORT, /* a read or write moves one byte, which is legal; otherwise nothing */
    FATE_DIE,   /* the process ends before the call */
    FATE_TORN,  /* a write puts half of its bytes, then the process ends; otherwise as DIE */
} call_fate;

enum { CALL_DIED = 77, CALL_FILES = 64, CALL_PATH = 256, CALL_FDS = 256 };

/* A file or folder that was changed and not synced since. */
typedef struct call_unsynced {
    char path[CALL_PATH];
    bool folder;
} call_unsynced;

static struct {
    bool watching;
    call_kind kind;
    long n; /* the n-th call of this kind, from 1; 0: none */
    bool from_then_on;
    call_fate fate;
    int error;
    long seen[CALL_KINDS];
    /* what a power failure could lose */
    char fd[CALL_FDS][CALL_PATH]; /* "" = not opened while watching */
    char newest[CALL_PATH];       /* the last file that was made */
    int unsynced_count;
    call_unsynced unsynced[CALL_FILES];
    bool overflow;
    char lost[2 * CALL_PATH]; /* first rename to a final name of what was not synced, "" if there
                                 was none */
} calls;

static bool calls_no_exchange; /* as on a file system that cannot exchange two names */

/* calls_begin - counts from now on; n = 0: only that. */
static inline void calls_begin(call_kind kind, long n, bool from_then_on, call_fate fate, int error)
{
    memset(&calls, 0, sizeof calls);
    calls.kind = kind;
    calls.n = n;
    calls.from_then_on = from_then_on;
    calls.fate = fate;
    calls.error = error;
    calls.watching = true;
}

static inline void calls_end(void)
{
    calls.watching = false;
}

/* ---- what is not on disk yet ---- */

static void call_forget(const char *path)
{
    for (int i = 0; i < calls.unsynced_count; i++)
        if (strcmp(calls.unsynced[i].path, path) == 0)
            calls.unsynced[i--] = calls.unsynced[--calls.unsynced_count];
}

static void call_changed(const char *path, bool folder)
{
    if (*path == '\0')
        return;
    call_forget(path);
    if (calls.unsynced_count == CALL_FILES || strlen(path) >= CALL_PATH) {
        calls.overflow = true;
        return;
    }
    strcpy(calls.unsynced[calls.unsynced_count].path, path);
    calls.unsynced[calls.unsynced_count++].folder = folder;
}

/* The folder of `path` has another entry. */
static void call_entry(const char *path)
{
    char parent[CALL_PATH] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL && (size_t)(slash - path) < sizeof parent)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    call_changed(parent, true);
}

static bool call_inside(const char *path, const char *dir)
{
    const size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static void call_removed(const char *path)
{
    for (int i = 0; i < calls.unsynced_count; i++)
        if (call_inside(calls.unsynced[i].path, path))
            calls.unsynced[i--] = calls.unsynced[--calls.unsynced_count];
}

/* Under a final name all must be on disk; under ".partial-" or ".replaced-" nothing has to be. */
static void call_renamed(const char *from, const char *to, bool exchanged)
{
    const bool final = strstr(to, ".partial-") == NULL && strstr(to, ".replaced-") == NULL;
    for (int i = 0; i < calls.unsynced_count && !exchanged; i++) { /* what lay at `to` is gone */
        if (call_inside(calls.unsynced[i].path, to))
            calls.unsynced[i--] = calls.unsynced[--calls.unsynced_count];
    }
    for (int i = 0; i < calls.unsynced_count; i++) {
        char moved[2 * CALL_PATH];
        call_unsynced *u = &calls.unsynced[i];
        if (!call_inside(u->path, from))
            continue;
        if (final && calls.lost[0] == '\0')
            snprintf(calls.lost, sizeof calls.lost, "%s", u->path);
        snprintf(moved, sizeof moved, "%s%s", to, u->path + strlen(from));
        snprintf(u->path, sizeof u->path, "%.*s", CALL_PATH - 1, moved);
    }
    if (final)
        call_entry(to);
}

/* ---- the fate of a call ---- */

static void call_die(void)
{
    _exit(CALL_DIED);
}

static call_fate call_about(call_kind kind)
{
    if (!calls.watching)
        return FATE_PASS;
    calls.seen[CALL_ANY]++;
    const long seen = kind == CALL_ANY ? 0 : ++calls.seen[kind];
    const long at = calls.kind == CALL_ANY ? calls.seen[CALL_ANY] : seen;
    if (calls.n == 0 || (calls.kind != CALL_ANY && calls.kind != kind) ||
        (at != calls.n && !(calls.from_then_on && at > calls.n)))
        return FATE_PASS;
    if (calls.fate == FATE_DIE || (calls.fate == FATE_TORN && kind != CALL_WRITE))
        call_die();
    if (calls.fate == FATE_FAIL)
        errno = calls.error;
    return calls.fate;
}

static const char *call_path(int fd)
{
    return fd >= 0 && fd < CALL_FDS ? calls.fd[fd] : "";
}

/* ---- the calls ---- */

#define SEEN_BY_ALL __attribute__((visibility("default")))

static int call_open(int dir, const char *path, int flags, unsigned mode)
{
    if (call_about(CALL_OPEN) == FATE_FAIL)
        return -1;
    const bool new = calls.watching && (flags & O_CREAT) != 0 &&
                     dir == AT_FDCWD &&syscall(SYS_faccessat, dir, path, F_OK) != 0;
    const int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (calls.watching && fd >= 0 && fd < CALL_FDS) {
        snprintf(calls.fd[fd], CALL_PATH, "%s", dir == AT_FDCWD ? path : "");
        if (new) {
            snprintf(calls.newest, sizeof calls.newest, "%s", path);
            call_changed(path, false);
            call_entry(path);
        }
    }
    return fd;
}

SEEN_BY_ALL int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, unsigned) : 0;
    va_end(args);
    return call_open(AT_FDCWD, path, flags, mode);
}

SEEN_BY_ALL int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, unsigned) : 0;
    va_end(args);
    return call_open(dir, path, flags, mode);
}

SEEN_BY_ALL ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    const call_fate fate = call_about(CALL_READ);
    return fate == FATE_FAIL
               ? -1
               : syscall(SYS_pread64, fd, to, fate == FATE_SHORT && size > 1 ? 1 : size, at);
}

/* A write at `at`, or where the file stands when it is -1. */
static ssize_t call_write(int fd, const void *from, size_t size, off_t at)
{
    const call_fate fate = call_about(CALL_WRITE);
    if (fate == FATE_FAIL)
        return -1;
    const size_t n = fate == FATE_TORN ? size / 2 : fate == FATE_SHORT && size > 1 ? 1 : size;
    if (calls.watching)
        call_changed(call_path(fd), false);
    const ssize_t moved =
        at < 0 ? syscall(SYS_write, fd, from, n) : syscall(SYS_pwrite64, fd, from, n, at);
    if (fate == FATE_TORN)
        call_die();
    return moved;
}

SEEN_BY_ALL ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
    return call_write(fd, from, size, at);
}
SEEN_BY_ALL ssize_t write(int fd, const void *from, size_t size)
{
    return call_write(fd, from, size, -1);
}

SEEN_BY_ALL ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t size,
                                    unsigned flags)
{
    const call_fate fate = call_about(CALL_WRITE);
    if (fate == FATE_FAIL)
        return -1;
    const size_t n = fate == FATE_TORN ? size / 2 : fate == FATE_SHORT && size > 1 ? 1 : size;
    if (calls.watching)
        call_changed(call_path(to), false);
    const ssize_t moved = syscall(SYS_copy_file_range, from, from_at, to, to_at, n, flags);
    if (fate == FATE_TORN)
        call_die();
    return moved;
}

SEEN_BY_ALL int ftruncate(int fd, off_t size)
{
    const call_fate fate = call_about(CALL_WRITE);
    if (fate == FATE_FAIL)
        return -1;
    if (fate == FATE_TORN) /* all or nothing */
        call_die();
    if (calls.watching)
        call_changed(call_path(fd), false);
    return (int)syscall(SYS_ftruncate, fd, size);
}

SEEN_BY_ALL int fallocate(int fd, int mode, off_t at, off_t size)
{
    const call_fate fate = call_about(CALL_WRITE);
    if (fate == FATE_FAIL)
        return -1;
    if (fate == FATE_TORN) /* all or nothing */
        call_die();
    if (calls.watching)
        call_changed(call_path(fd), false);
    return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

static int call_sync(int fd, long number)
{
    if (call_about(CALL_SYNC) == FATE_FAIL)
        return -1;
    const int failed = (int)syscall(number, fd);
    if (calls.watching && failed == 0)
        call_forget(call_path(fd));
    return failed;
}

SEEN_BY_ALL int fsync(int fd)
{
    return call_sync(fd, SYS_fsync);
}
SEEN_BY_ALL int fdatasync(int fd)
{
    return call_sync(fd, SYS_fdatasync);
}

SEEN_BY_ALL int renameat2(int from_dir, const char *from, int to_dir, const char *to,
                          unsigned flags)
{
    if (call_about(CALL_RENAME) == FATE_FAIL)
        return -1;
    if (calls.watching && calls_no_exchange && (flags & RENAME_EXCHANGE) != 0) {
        errno = EINVAL;
        return -1;
    }
    const int failed = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (calls.watching && failed == 0)
        call_renamed(from, to, (flags & RENAME_EXCHANGE) != 0);
    return failed;
}

SEEN_BY_ALL int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

SEEN_BY_ALL int mkdir(const char *path, mode_t mode)
{
    if (call_about(CALL_MKDIR) == FATE_FAIL)
        return -1;
    const int failed = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (calls.watching && failed == 0) {
        call_changed(path, true);
        call_entry(path);
    }
    return failed;
}

SEEN_BY_ALL int unlinkat(int dir, const char *path, int flags)
{
    if (call_about(CALL_UNLINK) == FATE_FAIL)
        return -1;
    const int failed = (int)syscall(SYS_unlinkat, dir, path, flags);
    if (calls.watching && failed == 0 && dir == AT_FDCWD)
        call_removed(path);
    return failed;
}

SEEN_BY_ALL int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}
SEEN_BY_ALL int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

SEEN_BY_ALL void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (call_about(CALL_MMAP) == FATE_FAIL)
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
