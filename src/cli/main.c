/* main.c - the command. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli.h"

/* Without this a stream that the caller closed would be the number of the next file that is opened: weights read as
 * questions, progress written into a checkpoint. Input is then at its end, output takes nothing. */
static bool occupy_streams(void)
{
    static const int how[] = { O_RDONLY, O_RDONLY, O_WRONLY };
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", how[fd]) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    return occupy_streams() ? cli_main(argc, argv, stdout, stderr) : CLI_FAILED;
}
