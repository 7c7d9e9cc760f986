/* faults.c - see faults.h. */
#include "tests/faults/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const op_names[] = { "any",    "open",  "read",   "write", "fsync",
                                        "rename", "mkdir", "unlink", "malloc" };
static const char *const action_names[] = { "",      "fail", "enospc", "kill", "torn",  "short",
                                            "eintr", "stop", "hang",   "slow", "enosys" };

static _Atomic(sheaf_faults *) in_use;

void faults_use(sheaf_faults *faults)
{
    atomic_store(&in_use, faults);
}

sheaf_status *faults_end(sheaf_status *st)
{
    faults_use(NULL);
    return st;
}

static int index_of(const char *const *names, size_t n, const char *text, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == size && size > 0 && memcmp(names[i], text, size) == 0)
            return (int)i;
    return -1;
}

sheaf_status *faults_parse(sheaf_faults *out, const char *text)
{
    const char *first = strchr(text, ':');
    const char *second = first == NULL ? NULL : strchr(first + 1, ':');
    char *end = NULL;
    if (second != NULL) {
        const int op =
            index_of(op_names, sizeof op_names / sizeof *op_names, text, (size_t)(first - text));
        const int action = index_of(action_names, sizeof action_names / sizeof *action_names,
                                    second + 1, strlen(second + 1));
        const long long n = strtoll(first + 1, &end, 10);
        const bool plus = *end == '+';
        if (op >= 0 && action > 0 && n > 0 && end + plus == second) {
            *out =
                (sheaf_faults){ (sheaf_fault_op)op, (sheaf_fault_action)action, n, plus, 0, NULL };
            return NULL;
        }
    }
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "SHEAF_FAULT"), "op:n:action, as write:3:enospc"),
        "%s", text);
}

static bool counts(const sheaf_faults *f, sheaf_fault_op op)
{
    return f->op == op ||
           (f->op == SHEAF_FAULT_ANY && op != SHEAF_FAULT_READ && op != SHEAF_FAULT_MALLOC);
}

/* What the call that is about to be made should do. Does not return for KILL. */
static sheaf_fault_action ask(sheaf_faults *f, sheaf_fault_op op)
{
    if (f == NULL)
        return SHEAF_FAULT_NONE;
    const sheaf_fault_action first = ask(f->also, op);
    if (first != SHEAF_FAULT_NONE || !counts(f, op))
        return first;
    const int64_t seen = ++f->seen;
    if (seen != f->n && !(f->from_then_on && seen > f->n))
        return SHEAF_FAULT_NONE;
    if (f->action == SHEAF_FAULT_KILL || (f->action == SHEAF_FAULT_TORN && op != SHEAF_FAULT_WRITE))
        kill(getpid(), SIGKILL);
    if (f->action == SHEAF_FAULT_STOP)
        kill(getpid(), SIGSTOP);
    while (f->action == SHEAF_FAULT_HANG)
        pause();
    if (f->action == SHEAF_FAULT_SLOW)
        sleep(1);
    return f->action;
}

static bool fails(sheaf_fault_action action)
{
    const int error = action == SHEAF_FAULT_FAIL     ? EIO
                      : action == SHEAF_FAULT_ENOSPC ? ENOSPC
                      : action == SHEAF_FAULT_EINTR  ? EINTR
                      : action == SHEAF_FAULT_ENOSYS ? ENOSYS
                                                     : 0;
    if (error != 0)
        errno = error;
    return error != 0;
}

/* ---- the calls, by the names that 64-bit offsets give them ---- */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, unsigned) : 0;
    va_end(args);
    if ((flags & (O_WRONLY | O_DIRECTORY)) != 0 && fails(ask(in_use, SHEAF_FAULT_OPEN)))
        return -1;
    return __real_open64(path, flags, mode);
}

#define WRAP(op, type, name, parameters, arguments)                                                \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails(ask(in_use, op)) ? -1 : __real_##name arguments;                              \
    }
WRAP(SHEAF_FAULT_WRITE, int, ftruncate64, (int fd, off_t size), (fd, size))
WRAP(SHEAF_FAULT_FSYNC, int, fsync, (int fd), (fd))
WRAP(SHEAF_FAULT_RENAME, int, rename, (const char *from, const char *to), (from, to))
WRAP(SHEAF_FAULT_RENAME, int, renameat2,
     (int from_dir, const char *from, int to_dir, const char *to, unsigned flags),
     (from_dir, from, to_dir, to, flags))
WRAP(SHEAF_FAULT_MKDIR, int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(SHEAF_FAULT_UNLINK, int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))

ssize_t __real_pread64(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t at)
{
    const sheaf_fault_action action = ask(in_use, SHEAF_FAULT_READ);
    return fails(action) ? -1 : __real_pread64(fd, to, action == SHEAF_FAULT_SHORT ? 1 : size, at);
}

static size_t part_of(size_t size, sheaf_fault_action action)
{
    return action == SHEAF_FAULT_TORN ? size / 2 : action == SHEAF_FAULT_SHORT ? 1 : size;
}

static ssize_t written(ssize_t moved, sheaf_fault_action action)
{
    if (action == SHEAF_FAULT_TORN)
        kill(getpid(), SIGKILL);
    return moved;
}

ssize_t __real_pwrite64(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t size, off_t at)
{
    const sheaf_fault_action action = ask(in_use, SHEAF_FAULT_WRITE);
    return fails(action) ? -1
                         : written(__real_pwrite64(fd, from, part_of(size, action), at), action);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return fails(ask(in_use, SHEAF_FAULT_MALLOC)) ? NULL : __real_calloc(count, size);
}
