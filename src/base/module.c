/* module.c - see module.h. */
#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

/* Folders that may hold modules, directly or in a folder below: the user's, that of the program,
 * and that of the library it is linked with. Empty: not known. */
enum { FOLDERS = 3 };

static void find_folders(char folder[FOLDERS][PATH_MAX])
{
    static const char here = 0;
    Dl_info library;
    const char *named = getenv("SHEAF_PLUGINS");
    memset(folder, 0, (size_t)FOLDERS * PATH_MAX);
    snprintf(folder[0], PATH_MAX, "%s", named == NULL ? "" : named);
    if (readlink("/proc/self/exe", folder[1], PATH_MAX - 1) < 0)
        folder[1][0] = '\0';
    if (dladdr(&here, &library) != 0 && library.dli_fname != NULL)
        snprintf(folder[2], PATH_MAX, "%s", library.dli_fname);
    for (int i = 1; i < FOLDERS; i++) {
        char *end = strrchr(folder[i], '/');
        *(end == NULL ? folder[i] : end) = '\0';
    }
}

char *sheaf__module_find(const char *name)
{
    static const char *const below[] = { "", "sheaf/", "../" SHEAF_LIBDIR "/sheaf/" };
    char folder[FOLDERS][PATH_MAX];
    find_folders(folder);
    for (int i = 0; i < FOLDERS; i++)
        for (size_t k = 0; k < sizeof below / sizeof *below && folder[i][0] != '\0'; k++) {
            char *path = NULL;
            if (asprintf(&path, "%s/%ssheaf-%s.so", folder[i], below[k], name) < 0)
                return NULL;
            if (sheaf__path_kind(path) == SHEAF_PATH_FILE)
                return path;
            free(path);
        }
    return NULL;
}

sheaf_status *sheaf__module_searched(sheaf_status *st)
{
    char folder[FOLDERS][PATH_MAX];
    find_folders(folder);
    return sheaf_found(st, "neither beside the program nor in the library's folder: %s %s %s",
                       folder[0], folder[1], folder[2]);
}
