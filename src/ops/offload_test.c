/* offload_test.c - blocks come back as they were, in any order of use; failures are statuses. */
#include "ops/offload.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/check.h"
#include "tests/devices/copied.h"

enum { BLOCKS = 7 };
static const size_t bytes_of[BLOCKS] = { 4096, 100, 20000, 65536, 1, 40960, 12289 };

typedef struct held {
    sheaf__device *device;
    sheaf__offload *offload;
    int64_t block[BLOCKS];
} held;

static unsigned char value_of(int block, size_t at, int round)
{
    return (unsigned char)(block * 31 + (int)at * 7 + (int)(at >> 8) + round);
}

static void open_held(held *h, const sheaf__device_class *class, const char *folder)
{
    CHECK_OK(sheaf__device_open(&h->device, class, 1, "ref", 0));
    CHECK_OK(sheaf__offload_new(&h->offload, h->device, SHEAF_MEM_WEIGHTS, folder));
    for (int i = 0; i < BLOCKS; i++)
        CHECK_OK(sheaf__offload_add(&h->block[i], h->offload, bytes_of[i]));
    CHECK_OK(sheaf__offload_claim(h->offload));
}

static void close_held(held *h)
{
    sheaf__offload_free(h->offload);
    sheaf__device_close(h->device);
}

static void fill(held *h)
{
    for (int i = 0; i < BLOCKS; i++) {
        void *at;
        CHECK_OK(sheaf__offload_fill(&at, h->offload, h->block[i]));
        for (size_t k = 0; k < bytes_of[i]; k++)
            ((unsigned char *)at)[k] = value_of(i, k, 0);
        CHECK_OK(sheaf__offload_filled(h->offload, h->block[i]));
    }
}

/* The list of blocks [0, n), or those of `which`. */
static void list_of(sheaf__offload_use *list, const held *h, const int *which, int n, bool writes)
{
    for (int i = 0; i < n; i++)
        list[i] = (sheaf__offload_use){ h->block[which == NULL ? i : which[i]], true, writes };
}

/* Takes `n` together, and looks at them; round: how often each was changed. */
static void use(held *h, const int *which, int n, int round, bool changes)
{
    unsigned char *at[BLOCKS];
    for (int i = 0; i < n; i++) {
        void *taken;
        CHECK_OK(sheaf__offload_take(&taken, h->offload));
        at[i] = taken;
        for (int j = 0; j < i; j++)
            assert_true(at[i] >= at[j] + bytes_of[which[j]] || at[j] >= at[i] + bytes_of[which[i]]);
    }
    usleep(500); /* the helper reads ahead as far as it can */
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < bytes_of[which[i]]; k++) {
            if (at[i][k] != value_of(which[i], k, round))
                fail_msg("block %d, byte %zu: %d", which[i], k, at[i][k]);
            if (changes)
                at[i][k] = value_of(which[i], k, round + 1);
        }
    for (int i = 0; i < n; i++)
        sheaf__offload_give(h->offload);
}

static size_t together(const held *h, const int *which, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += sheaf__offload_size(h->offload, h->block[which[i]]);
    return sum;
}

TEST(test_offload__blocks_are_as_they_were_in_any_order)
{
    const int lists[][8] = { { 0, 1, 2, 3, 4, 5, 6, 6 },
                             { 3, 3, 2, 2, 3, 5, 5, 0 },
                             { 6, 5, 4, 3, 2, 1, 0, 0 } };
    for (int pair = 1; pair <= 2; pair++) {
        held h;
        open_held(&h, &sheaf__cpu, "/tmp");
        fill(&h);
        for (size_t l = 0; l < ARRAY_LEN(lists); l++)
            for (int run = 0; run < 5; run++) {
                sheaf__offload_use list[8];
                size_t most = 0;
                list_of(list, &h, lists[l], 8, false);
                for (int i = 0; i < 8; i += pair)
                    most = together(&h, lists[l] + i, pair) > most
                               ? together(&h, lists[l] + i, pair)
                               : most;
                CHECK_OK(sheaf__offload_begin(h.offload, list, 8, most));
                for (int i = 0; i < 8; i += pair)
                    use(&h, lists[l] + i, pair, 0, false);
            }
        const sheaf__offload_costs costs = sheaf__offload_costs_of(h.offload);
        assert_true(costs.read > 15 * 40000 && costs.written == 142982);
        close_held(&h);
    }
}

TEST(test_offload__what_was_changed_is_read_changed)
{
    const int all[BLOCKS] = { 0, 1, 2, 3, 4, 5, 6 };
    for (size_t most = 65536; most < 1000000; most *= 8) {
        held h;
        sheaf__offload_use list[BLOCKS];
        open_held(&h, &sheaf__cpu, "/tmp");
        fill(&h);
        list_of(list, &h, NULL, BLOCKS, true);
        for (int run = 0; run < 4; run++) {
            CHECK_OK(sheaf__offload_begin(h.offload, list, BLOCKS, most));
            for (int i = 0; i < BLOCKS; i++)
                use(&h, all + i, 1, run, true);
        }
        for (int i = 0; i < BLOCKS; i++) { /* in parts: from the middle of a unit on */
            unsigned char part[5000];
            const size_t from = bytes_of[i] / 3,
                         n = bytes_of[i] - from < 5000 ? bytes_of[i] - from : 5000;
            CHECK_OK(sheaf__offload_read(h.offload, h.block[i], from, part, n));
            for (size_t k = 0; k < n; k++)
                assert_int_equal(part[k], value_of(i, from + k, 4));
            for (size_t k = 0; k < n; k++)
                part[k] = value_of(i, from + k, 5);
            CHECK_OK(sheaf__offload_write(h.offload, h.block[i], from, part, n));
            for (size_t k = 0; k < n; k++)
                part[k] = value_of(i, from + k, 4);
            CHECK_OK(sheaf__offload_write(h.offload, h.block[i], from, part, n));
        }
        CHECK_OK(sheaf__offload_begin(h.offload, list, BLOCKS, most));
        for (int i = 0; i < BLOCKS; i++)
            use(&h, all + i, 1, 4, false);
        close_held(&h);
    }
}

/* As activations: all are made, of some only the first bytes, and come back, the last one first;
 * then others take their space. */
TEST(test_offload__what_is_made_comes_back)
{
    enum { RUNS = 6 };
    static const struct {
        const sheaf__device_class *class;
        const char *folder;
        size_t most;
    } cases[] = { { &sheaf__cpu, "/tmp", 65536 },
                  { &sheaf__cpu, "/tmp", 300000 },
                  { &copied_device, "/tmp", 65536 },
                  { &copied_device, NULL, 65536 } };
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        held h;
        uint64_t bytes = 0;
        CHECK_OK(sheaf__device_open(&h.device, cases[c].class, 1, "ref", 0));
        CHECK_OK(sheaf__offload_new(&h.offload, h.device, SHEAF_MEM_ACTIVATIONS, cases[c].folder));
        for (int run = 0; run < RUNS; run++) {
            static unsigned char host[65536];
            size_t part[BLOCKS];
            sheaf__offload_use list[2 * BLOCKS];
            void *at;
            CHECK_OK(sheaf__offload_clear(h.offload));
            for (int i = 0; i < BLOCKS; i++) {
                CHECK_OK(sheaf__offload_add(&h.block[i], h.offload, bytes_of[(i + run) % BLOCKS]));
                list[i] = (sheaf__offload_use){ h.block[i], .writes = true };
                list[2 * BLOCKS - 1 - i] = (sheaf__offload_use){ h.block[i], .reads = true };
            }
            CHECK_OK(sheaf__offload_claim(h.offload));
            CHECK_OK(sheaf__offload_begin(h.offload, list, 2 * BLOCKS, cases[c].most));
            for (int i = 0; i < BLOCKS; i++) {
                part[i] = bytes_of[(i + run) % BLOCKS] / (size_t)(1 + (i + run) % 3);
                for (size_t k = 0; k < part[i]; k++)
                    host[k] = value_of(i, k, run);
                CHECK_OK(sheaf__offload_take(&at, h.offload));
                CHECK_OK(sheaf__upload(h.device, at, host, part[i]));
                sheaf__offload_give_part(h.offload, part[i]);
                bytes += part[i];
            }
            for (int i = BLOCKS - 1; i >= 0; i--) {
                CHECK_OK(sheaf__offload_take(&at, h.offload));
                CHECK_OK(sheaf__download(h.device, host, at, part[i]));
                sheaf__offload_give(h.offload);
                for (size_t k = 0; k < part[i]; k++)
                    assert_int_equal(host[k], value_of(i, k, run));
            }
            CHECK_OK(sheaf__offload_rest(h.offload));
            assert_int_equal(h.device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
        }
        const sheaf__offload_costs costs = sheaf__offload_costs_of(h.offload);
        assert_true(costs.written == bytes && costs.read == bytes);
        close_held(&h);
    }
}

TEST(test_offload__dry_has_the_peak_of_cpu)
{
    size_t peak[2];
    uint64_t read[2];
    for (int dry = 0; dry < 2; dry++) {
        held h;
        sheaf__offload_use list[BLOCKS];
        open_held(&h, dry ? &sheaf__dry : &sheaf__cpu, dry ? NULL : "/tmp");
        list_of(list, &h, NULL, BLOCKS, false);
        CHECK_OK(sheaf__offload_begin(h.offload, list, BLOCKS, 3 << 20));
        for (int i = 0; i < BLOCKS; i++) {
            void *at;
            CHECK_OK(sheaf__offload_take(&at, h.offload));
            sheaf__offload_give(h.offload);
        }
        CHECK_OK(sheaf__offload_stop(h.offload));
        peak[dry] = h.device->peak;
        read[dry] = sheaf__offload_costs_of(h.offload).read;
        close_held(&h);
    }
    assert_true(peak[0] == peak[1] && peak[0] >= 6 << 20);
    assert_int_equal(read[1], 142982);
    assert_true(read[0] >= read[1]);
}

TEST(test_offload__a_full_disk_is_told_before_anything_is_written)
{
    held h;
    struct rlimit was, few;
    open_held(&h, &sheaf__cpu, "/tmp");
    getrlimit(RLIMIT_FSIZE, &was);
    few = was;
    few.rlim_cur = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &few);
    int64_t more;
    CHECK_OK(sheaf__offload_add(&more, h.offload, 2 << 20));
    CHECK_FAILS(sheaf__offload_claim(h.offload), SHEAF_E_IO, "`offload-dir`");
    setrlimit(RLIMIT_FSIZE, &was);
    close_held(&h);
}

static void check_block(held *h, int i)
{
    void *at;
    CHECK_OK(sheaf__offload_fetch(&at, h->offload, h->block[i]));
    for (size_t k = 0; k < bytes_of[i]; k++)
        assert_int_equal(((unsigned char *)at)[k], value_of(i, k, 0));
}

TEST(test_offload__another_size_leaves_other_blocks)
{
    enum { WHICH = 1, LARGER = 50000 };
    held h;
    void *at;
    open_held(&h, &sheaf__cpu, "/tmp");
    fill(&h);
    CHECK_OK(sheaf__offload_resize(h.offload, h.block[WHICH], LARGER));
    assert_true(sheaf__offload_size(h.offload, h.block[WHICH]) >= LARGER);
    CHECK_OK(sheaf__offload_fill(&at, h.offload, h.block[WHICH]));
    memset(at, 77, LARGER);
    CHECK_OK(sheaf__offload_filled(h.offload, h.block[WHICH]));
    for (int i = 0; i < BLOCKS; i++)
        if (i != WHICH)
            check_block(&h, i);
    CHECK_OK(sheaf__offload_fetch(&at, h.offload, h.block[WHICH]));
    for (size_t k = 0; k < LARGER; k++)
        assert_int_equal(((unsigned char *)at)[k], 77);
    close_held(&h);
}

/* The file of the offload, which has no name. */
static int find_file(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int found = -1;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat about;
        const int fd = atoi(e->d_name);
        if (fd > 2 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 0)
            found = fd;
    }
    closedir(dir);
    return found;
}

TEST(test_offload__a_short_file_is_a_status)
{
    held h;
    void *at;
    open_held(&h, &sheaf__cpu, "/tmp");
    fill(&h);
    const int fd = find_file();
    assert_true(fd >= 0 && ftruncate(fd, 30000) == 0);
    sheaf__offload_use list[BLOCKS];
    list_of(list, &h, NULL, BLOCKS, false);
    CHECK_OK(sheaf__offload_begin(h.offload, list, BLOCKS, 65536));
    sheaf_status *st = NULL;
    for (int i = 0; i < BLOCKS && st == NULL; i++) {
        st = sheaf__offload_take(&at, h.offload);
        if (st == NULL)
            sheaf__offload_give(h.offload);
    }
    CHECK_FAILS(st, SHEAF_E_FORMAT, "ends too early");
    CHECK_FAILS(sheaf__offload_take(&at, h.offload), SHEAF_E_IO, "failed before");
    close_held(&h);
}

TEST(test_offload__no_folder_is_a_status)
{
    held h;
    CHECK_OK(sheaf__device_open(&h.device, &sheaf__cpu, 1, "ref", 0));
    CHECK_FAILS(sheaf__offload_new(&h.offload, h.device, SHEAF_MEM_WEIGHTS, "/nonexistent/folder"),
                SHEAF_E_IO, "/nonexistent/folder");
    sheaf__device_close(h.device);
}
