/* memory_test.c - what is left to a process, by the machine and by its control groups, from made-up
 * files of /proc and /sys. */
#include "tests/files.h"

#include "base/memory.h"

static void lay(const char *root, const char *path, const char *text)
{
    char whole[300], parent[300];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(whole, '/') - whole), whole);
    CHECK_OK(sheaf__make_dirs(parent));
    put(whole, text);
}

#define MEMINFO                                                                                    \
    "MemTotal:       2000000 kB\nMemFree:          10000 kB\nMemAvailable:   1000000 kB\nBuffers: 5 kB\n"
#define V2 "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
#define V1                                                                                         \
    "30 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory\n"
enum { ALL = 1024000000 };

/* `at` a group's folder, one more for a group above. */
static const struct {
    const char *name, *groups, *mounts, *at, *limit, *usage, *stat, *above, *above_limit;
    int64_t left;
    bool by_group;
} cases[] = {
    { "no groups", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ALL, false },
    { "version 2", "0::/a/b\n", V2, "/sys/fs/cgroup/a/b/memory", "300000000\n", "100000000\n",
      "anon 5\ninactive_file 20000000\nactive_file 1000000\n", NULL, NULL, 221000000, true },
    { "version 2 without a limit", "0::/a/b\n", V2, "/sys/fs/cgroup/a/b/memory", "max\n",
      "100000000\n", "", NULL, NULL, ALL, false },
    { "a limit above", "0::/a/b\n", V2, "/sys/fs/cgroup/a/b/memory", "max\n", "7\n", "",
      "/sys/fs/cgroup/a/memory", "5000000\n", 4999993, true },
    { "a limit at the mount point, as in a container", "0::/\n", V2, "/sys/fs/cgroup/memory",
      "600000000\n", "100000000\n", "", NULL, NULL, 500000000, true },
    { "a larger limit than the machine", "0::/\n", V2, "/sys/fs/cgroup/memory", "9000000000\n",
      "1\n", "", NULL, NULL, ALL, false },
    { "used up", "0::/\n", V2, "/sys/fs/cgroup/memory", "1000\n", "4000\n", "inactive_file 10\n",
      NULL, NULL, 0, true },
    { "version 1", "5:cpu,cpuacct:/x\n4:memory:/y\n0::/\n", V1, "/sys/fs/cgroup/memory/y/memory",
      "400000000\n", "100000000\n",
      "inactive_file 3\ntotal_inactive_file 50000000\ntotal_active_file 1\n", NULL, NULL, 350000001,
      true },
    { "version 1, another controller's group", "5:cpu:/y\n4:memory:/z\n", V1,
      "/sys/fs/cgroup/memory/y/memory", "400000000\n", "100000000\n", "", NULL, NULL, ALL, false },
    { "version 1 without a limit", "4:memory:/\n", V1, "/sys/fs/cgroup/memory/memory",
      "9223372036854771712\n", "100000000\n", "", NULL, NULL, ALL, false },
    { "a container's part of the hierarchy", "4:memory:/docker/c1\n",
      "35 31 0:32 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
      "/sys/fs/cgroup/memory/memory", "400000000\n", "100000000\n", "", NULL, NULL, 300000000,
      true },
    { "a group outside what is mounted", "0::/../other\n", V2, "/sys/fs/cgroup/memory",
      "400000000\n", "100000000\n", "", NULL, NULL, 300000000, true },
    { "nonsense", "0::\n::::\n\n7\n", "x - \n - cgroup2\n\n", NULL, NULL, NULL, NULL, NULL, NULL,
      ALL, false },
};

TEST(test_memory__is_what_machine_and_groups_leave)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char root[100], path[200];
        snprintf(root, sizeof root, "%s/%zu", scratch.dir, i);
        lay(root, "/proc/meminfo", MEMINFO);
        if (cases[i].groups != NULL) {
            lay(root, "/proc/self/cgroup", cases[i].groups);
            lay(root, "/proc/self/mountinfo", cases[i].mounts);
        }
        const bool first = cases[i].groups != NULL && strcmp(cases[i].mounts, V2) != 0;
        for (int k = 0; k < 2; k++) {
            const char *at = k == 0 ? cases[i].at : cases[i].above;
            if (at == NULL)
                continue;
            snprintf(path, sizeof path, "%s.%s", at, first ? "limit_in_bytes" : "max");
            lay(root, path, k == 0 ? cases[i].limit : cases[i].above_limit);
            snprintf(path, sizeof path, "%s.%s", at, first ? "usage_in_bytes" : "current");
            lay(root, path, cases[i].usage);
            snprintf(path, sizeof path, "%s.stat", at);
            lay(root, path, cases[i].stat);
        }
        const sheaf__memory m = sheaf__memory_look(root);
        if (m.left != cases[i].left || m.by_group != cases[i].by_group)
            fail_msg("%s: %lld left%s, wanted %lld", cases[i].name, (long long)m.left,
                     m.by_group ? " by a group" : "", (long long)cases[i].left);
    }
}

TEST(test_memory__of_nothing_known_is_no_limit)
{
    const sheaf__memory m = sheaf__memory_look(at("nowhere"));
    assert_true(m.left == INT64_MAX && !m.by_group);
}

TEST(test_memory__of_this_machine_is_some)
{
    const sheaf__memory m = sheaf__memory_look("");
    assert_true(m.left > 0 && m.left < INT64_MAX && m.held > 0);
}

FIXTURE(make_scratch, remove_scratch);
