/* segments.c - see segments.h. */
#include "comm/segments.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

enum { NAP_MS = 30 };

static bool is_of_ours(const char *name, const char *path)
{
    static const char *const kinds[] = { "vader_segment", "sm_segment" };
    char host[65] = "", begin[128];
    struct stat about;
    bool ours = false;
    if (gethostname(host, sizeof host - 1) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(begin, sizeof begin, "%s.%s.%u.", kinds[i], host, (unsigned)geteuid());
        ours = ours || strncmp(name, begin, strlen(begin)) == 0;
    }
    return ours && lstat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid();
}

/* Does a process have it mapped? */
static bool is_mapped_by(const char *process, const char *name)
{
    char maps[300], line[4608];
    bool found = false;
    snprintf(maps, sizeof maps, "/proc/%.255s/maps", process);
    FILE *file = fopen(maps, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        const char *last = strrchr(line, '/');
        const size_t n = strlen(name);
        found = last != NULL && strncmp(last + 1, name, n) == 0 &&
                (last[1 + n] == '\n' || last[1 + n] == ' ');
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static bool is_mapped(const char *name)
{
    char **process = NULL;
    int64_t count = 0;
    sheaf_status *st = sheaf__list_dir(&process, &count, "/proc");
    bool found = st != NULL;
    for (int64_t i = 0; i < count && !found; i++)
        found = process[i][0] >= '1' && process[i][0] <= '9' && is_mapped_by(process[i], name);
    sheaf__names_free(process, count);
    sheaf_status_free(st);
    return found;
}

void sheaf__segments_sweep(const char *folder)
{
    const struct timespec nap = { .tv_nsec = NAP_MS * 1000000 };
    char **name = NULL;
    int64_t count = 0;
    sheaf_status_free(sheaf__list_dir(&name, &count, folder));
    for (int64_t i = 0; i < count; i++) {
        char *path = NULL;
        sheaf_status_free(sheaf__path_join(&path, folder, name[i]));
        if (path != NULL && is_of_ours(name[i], path) && !is_mapped(name[i])) {
            nanosleep(&nap, NULL); /* it may just have been made */
            if (!is_mapped(name[i]))
                unlink(path);
        }
        free(path);
    }
    sheaf__names_free(name, count);
}
