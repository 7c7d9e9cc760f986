/* peak.c - runs a command and prints the most memory it ever had resident, in bytes:
 *     peak COMMAND ARGUMENT...
 * What it prints is dropped, but not its errors; its exit code becomes this program's. What
 * wait4() tells is the kernel's high-water mark of the process, the VmHWM of /proc. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage usage;
    int status;
    const pid_t child = argc < 2 ? -1 : vfork();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 1);
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child)
        return 126;
    printf("%lld\n", (long long)usage.ru_maxrss * 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
