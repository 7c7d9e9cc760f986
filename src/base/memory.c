/* memory.c - see memory.h. /proc/self/cgroup names the groups, /proc/self/mountinfo where they are
 * to be seen (proc(5), cgroups(7)). */
#include "base/memory.h"

#include <limits.h>

#include "base/base.h"

/* The files of a group in one of the two versions. */
typedef struct version {
    const char *limit, *usage, *inactive, *active;
} version;

static const version versions[] = {
    { "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
      "total_active_file" },
    { "memory.max", "memory.current", "inactive_file", "active_file" },
};

static FILE *open_at(const char *root, const char *path, const char *name)
{
    char whole[PATH_MAX];
    const int n =
        snprintf(whole, sizeof whole, "%s%s%s%s", root, path, name[0] == '\0' ? "" : "/", name);
    return n > 0 && (size_t)n < sizeof whole ? fopen(whole, "re") : NULL;
}

/* The number in a file of one; -1 where there is none ("max", no such file). */
static int64_t number_in(const char *root, const char *dir, const char *name)
{
    int64_t value = -1;
    FILE *file = open_at(root, dir, name);
    if (file == NULL)
        return -1;
    if (fscanf(file, "%" SCNd64, &value) != 1)
        value = -1;
    fclose(file);
    return value;
}

/* The sum of the values of two keys in lines "key value", with a unit or without. */
static int64_t values_in(FILE *file, const char *one, const char *two)
{
    char line[256], key[64];
    int64_t sum = 0, value;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%63s %" SCNd64, key, &value) == 2 &&
            (strcmp(key, one) == 0 || strcmp(key, two) == 0))
            sum += value;
    if (file != NULL)
        fclose(file);
    return sum;
}

/* The group at `dir` and those above it, up to the mount point. */
static void look_at_groups(sheaf__memory *m, const char *root, char *dir, size_t mount,
                           const version *v)
{
    for (;;) {
        const int64_t limit = number_in(root, dir, v->limit),
                      usage = number_in(root, dir, v->usage);
        if (limit >= 0 && usage >= 0) {
            const int64_t pages =
                values_in(open_at(root, dir, "memory.stat"), v->inactive, v->active);
            const int64_t held = usage > pages ? usage - pages : 0,
                          left = limit > held ? limit - held : 0;
            if (left < m->left)
                *m = (sheaf__memory){ .left = left, .by_group = true, .held = m->held };
        }
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= mount || slash == NULL)
            return;
        *slash = '\0';
    }
}

/* Does a list "a,b,c" hold `word`? */
static bool lists(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || p[n] == '\0' || p[n] == '\n'))
            return true;
    return false;
}

/* The path of this process's group in the hierarchy of version 1's memory controller, or of
 * version 2. */
static bool group_path(char path[PATH_MAX], const char *root, bool second)
{
    char line[PATH_MAX + 256];
    bool found = false;
    FILE *file = open_at(root, "/proc/self/cgroup", "");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *controllers++ = *group++ = '\0';
        if (second ? strcmp(line, "0") == 0 && controllers[0] == '\0'
                   : lists(controllers, "memory"))
            found = snprintf(path, PATH_MAX, "%s", group) < PATH_MAX;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* Mounted is the part of the hierarchy below `top`: in a container its own group is the root of
 * what it sees. */
static void look_at_mount(sheaf__memory *m, const char *root, const char *top, const char *mount,
                          bool second)
{
    char group[PATH_MAX], dir[PATH_MAX];
    const size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (!group_path(group, root, second))
        return;
    const bool below = strncmp(group, top, n) == 0 && (group[n] == '/' || group[n] == '\0') &&
                       strstr(group, "/..") == NULL;
    const char *rest = below && strcmp(group + n, "/") != 0 ? group + n : "";
    if (snprintf(dir, sizeof dir, "%s%s", mount, rest) < (int)sizeof dir)
        look_at_groups(m, root, dir, strlen(mount), &versions[second]);
}

sheaf__memory sheaf__memory_look(const char *root)
{
    char line[2 * PATH_MAX], top[PATH_MAX], mount[PATH_MAX], kind[64], options[512];
    const int64_t available = values_in(open_at(root, "/proc/meminfo", ""), "MemAvailable:", "");
    sheaf__memory m = { .left = available > 0 ? 1024 * available : INT64_MAX,
                        .held = 1024 *
                                values_in(open_at(root, "/proc/self/status", ""), "RssAnon:", "") };
    FILE *file = open_at(root, "/proc/self/mountinfo", "");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *after = strstr(line, " - ");
        if (after == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2 ||
            sscanf(after, " - %63s %*s %511s", kind, options) != 2)
            continue;
        if (strcmp(kind, "cgroup2") == 0)
            look_at_mount(&m, root, top, mount, true);
        else if (strcmp(kind, "cgroup") == 0 && lists(options, "memory"))
            look_at_mount(&m, root, top, mount, false);
    }
    if (file != NULL)
        fclose(file);
    return m;
}

void sheaf__system_text(char out[64], const char *path, const char *key)
{
    char line[256];
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *text = line + strcspn(line, ":");
            text += strspn(text, ": \t");
            snprintf(out, 64, "%.*s", (int)strcspn(text, "\n"), text);
        }
    if (file != NULL)
        fclose(file);
}
