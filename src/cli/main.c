/* main.c - the command. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"
#include "cli/lib/cli.h"

/* Without this a stream that the caller closed would be the number of the next file that is opened:
 * weights read as questions, progress written into a checkpoint. Input is then at its end, output
 * takes nothing. */
static bool occupy_streams(void)
{
    static const int how[] = { O_RDONLY, O_RDONLY, O_WRONLY };
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", how[fd]) != fd)
            return false;
    return true;
}

/* glibc keeps what was freed once a large piece was, and by how much depends on the threads' order.
 * Held at its first value, the size from which pieces go back at once, peaks are as planned. */
static void return_large_pieces(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

typedef struct call {
    int argc;
    char **argv;
    int code;
} call;

static void *run(void *context)
{
    call *c = context;
    c->code = cli_main(c->argc, c->argv, stdout, stderr);
    return NULL;
}

/* Under a small `ulimit -s` the first thread's stack ends early: the command then runs on a thread
 * with one of its own, which takes all signals. */
static void run_with_stack(call *c)
{
    struct rlimit stack;
    sigset_t all;
    pthread_t thread;
    if ((getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur >= SHEAF__STACK_BYTES) ||
        sheaf__thread_start(&thread, run, c) != 0) {
        run(c);
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    call c = { argc, argv, DRIVER_FAILED };
    return_large_pieces();
    signal(SIGXFSZ,
           SIG_IGN); /* a write past `ulimit -f` fails, and the partial output is removed */
    if (occupy_streams())
        run_with_stack(&c);
    return c.code;
}
