/* host_cache.c - see host_cache.h. */
#include "train/host_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

/* In a folder that all users share, another's name for ours could hold other tokens. */
static sheaf_status *check_owner(const char *path)
{
    struct stat look;
    if (mkdir(path, 0700) == 0)
        return NULL;
    if (errno != EEXIST || lstat(path, &look) != 0)
        return sheaf__io_fail(errno, path, "creating");
    if (S_ISDIR(look.st_mode) && look.st_uid == geteuid() && (look.st_mode & 022) == 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s", path);
    sheaf_expected(st, "nothing, or a folder that this user alone writes to: a run that does not "
                       "see --out here keeps tokenised texts there while it begins");
    sheaf_found(st, "something else");
    return sheaf_try_this(st, "remove it, name another folder for what is temporary (TMPDIR), or "
                              "one for tokenised texts: --data-cache");
}

sheaf_status *sheaf__host_cache_path(char **out, const char *first_host, const char *run)
{
    char *here = run[0] == '/' ? NULL : getcwd(NULL, 0), key[33];
    sheaf_text text = { 0 };
    sheaf_status *st = NULL;
    sheaf__text_add(&text, "%ld\n%s\n%s\n%s", (long)geteuid(), first_host, here == NULL ? "" : here,
                    run);
    *out = NULL;
    if (text.at == NULL || text.failed ||
        asprintf(out, "%s/sheaf-cache-%s", sheaf__temporary_parent(),
                 sheaf__hash_text(key, sheaf__hash(text.at, text.size))) < 0) {
        *out = NULL;
        st = sheaf__no_memory("tokenised texts");
    }
    sheaf__text_release(&text);
    free(here);
    return st == NULL ? check_owner(*out) : st;
}

sheaf_status *sheaf__host_cache_remove(const char *folder)
{
    return folder == NULL ? NULL : sheaf__remove_tree(folder);
}
