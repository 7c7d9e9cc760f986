/* self.c - see self.h. */
#include "comm/watch/self.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/hash.h"

/* The 22nd field of /proc/PID/stat; the second, a name in parentheses, may hold anything. -1: there
 * is none, or it is dead and not yet buried. */
static int64_t began_of(int64_t pid)
{
    char path[64], text[1024] = "";
    long long began = -1;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    const char *at = strrchr(text, ')');
    if (at != NULL && (strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0))
        return -1;
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        began = strtoll(at, NULL, 10);
    return began;
}

uint64_t sheaf__self_kernel(const char *host)
{
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const size_t size = file == NULL ? 0 : fread(boot, 1, sizeof boot, file);
    if (file != NULL)
        fclose(file);
    return size > 0 ? sheaf__fnv(SHEAF__FNV, boot, size)
                    : sheaf__fnv(SHEAF__FNV, host, strlen(host));
}

void sheaf__self_look(sheaf__self *out)
{
    struct stat space = { 0 };
    memset(out, 0, sizeof *out);
    gethostname(out->host, sizeof out->host - 1);
    if (stat("/proc/self/ns/pid", &space) != 0)
        space.st_ino = 0;
    const uint64_t inode = space.st_ino;
    out->machine = sheaf__fnv(sheaf__self_kernel(out->host), &inode, sizeof inode);
    out->pid = getpid();
    out->began = began_of(out->pid);
}

bool sheaf__self_lives(const sheaf__self *process)
{
    return process->pid > 1 && process->began >= 0 && began_of(process->pid) == process->began;
}

bool sheaf__self_kill(const sheaf__self *process)
{
    return sheaf__self_lives(process) && kill((pid_t)process->pid, SIGKILL) == 0;
}

static double seconds_of(clockid_t clock)
{
    struct timespec t = { 0 };
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t sheaf__self_busy(void)
{
    const double s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - seconds_of(CLOCK_THREAD_CPUTIME_ID);
    return s > 0 ? (uint64_t)s : 0;
}
