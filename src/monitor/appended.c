/* appended.c - see appended.h. */
#include "monitor/appended.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

int sheaf__appended_write(sheaf__appended *file)
{
    const char *at = file->pending.at;
    size_t left = file->pending.size;
    while (left > 0) {
        const ssize_t n = pwrite(file->fd, at, left, (off_t)(file->end + (at - file->pending.at)));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            const int error = n < 0 ? errno : ENOSPC;
            if (ftruncate(file->fd, (off_t)file->end) != 0)
                return errno; /* a half piece stays until it is overwritten */
            return error;
        }
        at += n;
        left -= (size_t)n;
    }
    file->end += (int64_t)file->pending.size;
    file->pending.size = 0;
    return 0;
}

sheaf_status *sheaf__appended_sync(sheaf__appended *file)
{
    if (!sheaf__appended_is_open(file))
        return NULL;
    if (file->pending.failed)
        return sheaf__no_memory(file->path);
    const int error = sheaf__appended_write(file);
    if (error != 0)
        return sheaf_try_this(sheaf__io_fail(error, file->path, "writing metrics of steps"),
                              "make room on the disk; nothing is lost yet");
    if (fdatasync(file->fd) != 0)
        return sheaf__io_fail(errno, file->path, "writing to disk");
    return NULL;
}

void sheaf__appended_close(sheaf__appended *file)
{
    if (sheaf__appended_is_open(file))
        close(file->fd);
    free(file->path);
    sheaf__text_release(&file->pending);
    *file = (sheaf__appended){ 0 };
}
