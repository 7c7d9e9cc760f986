/* joined_file.c - see joined_file.h. */
#include "formats/joined_file.h"

#include <inttypes.h>
#include <sys/stat.h>

sheaf_status *sheaf__joined_length(const sheaf_file *file, int64_t expected)
{
    struct stat about;
    if (fstat(file->fd, &about) == 0 && about.st_size == expected)
        return NULL;
    return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", file->path),
                          "the %" PRId64 " bytes of the tensors that are to be written", expected);
}

sheaf_status *sheaf__joined_leave(sheaf_file *file)
{
    sheaf_status *st = sheaf__file_sync(file), *closed = sheaf__file_close(file);
    if (st == NULL)
        return closed;
    sheaf_status_free(closed);
    return st;
}
