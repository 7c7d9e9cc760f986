/* device_test.c - dry and cpu hand out the same offsets and report the same peak;
 * what becomes resident never exceeds that peak and comes close to it. */
#include "tests/check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/device.h"

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static sheaf__device *open_device(const sheaf__device_class *class, int threads, size_t limit)
{
    sheaf__device *device = NULL;
    CHECK_OK(sheaf__device_open(&device, class, threads, "ref", limit));
    return device;
}

/* The first block a device hands out is the scratch of thread 0, at its base. */
static size_t offset_of(const sheaf__device *device, const void *block)
{
    return (uintptr_t)block - (uintptr_t)device->scratch[0];
}

static void check_same_counts(const sheaf__device *a, const sheaf__device *b)
{
    assert_int_equal(a->peak, b->peak);
    CHECK_BYTES("in use", a->in_use, b->in_use, sizeof a->in_use);
    CHECK_BYTES("peak of", a->peak_of, b->peak_of, sizeof a->peak_of);
    CHECK_BYTES("at peak", a->at_peak, b->at_peak, sizeof a->at_peak);
}

TEST(test_device__dry_and_cpu_agree)
{
    uint64_t seed = 3;
    sheaf__device *cpu = open_device(&sheaf__cpu, 2, 0), *dry = open_device(&sheaf__dry, 2, 0);
    assert_non_null(cpu->pool);
    assert_null(dry->pool);
    check_same_counts(cpu, dry);
    void *on_cpu[200], *on_dry[200];
    size_t size[200];
    int count = 0;
    for (int step = 0; step < 5000; step++) {
        if (count < 200 && (count == 0 || next(&seed) % 2 == 0)) {
            const size_t bytes = next(&seed) % 3 == 0 ? next(&seed) % 400000 : next(&seed) % 3000;
            const sheaf_memory kind = (sheaf_memory)(next(&seed) % SHEAF_MEM_KINDS);
            CHECK_OK(sheaf__device_alloc(&on_cpu[count], cpu, bytes, kind));
            CHECK_OK(sheaf__device_alloc(&on_dry[count], dry, bytes, kind));
            assert_int_equal(offset_of(cpu, on_cpu[count]), offset_of(dry, on_dry[count]));
            assert_int_equal((uintptr_t)on_cpu[count] % 64, 0);
            memset(on_cpu[count], count, bytes); /* overlap would show below */
            size[count++] = bytes;
        } else {
            const int i = (int)(next(&seed) % (uint64_t)count);
            const unsigned char *bytes = on_cpu[i];
            for (size_t b = 1; b < size[i]; b += 97)
                assert_int_equal(bytes[b], bytes[0]);
            sheaf__device_free(cpu, on_cpu[i]);
            sheaf__device_free(dry, on_dry[i]);
            count--;
            on_cpu[i] = on_cpu[count], on_dry[i] = on_dry[count], size[i] = size[count];
            if (i < count && size[i] > 0)
                memset(on_cpu[i], i, size[i]);
        }
        check_same_counts(cpu, dry);
    }
    for (int i = 0; i < SHEAF_MEM_KINDS; i++)
        assert_true(cpu->peak_of[i] >= cpu->at_peak[i]);
    sheaf__device_free(cpu, NULL);
    sheaf__device_close(cpu);
    sheaf__device_close(dry);
    sheaf__device_close(NULL);
}

#define BEYOND ((size_t)64 << 20) /* memory above the peak is checked, too */

static size_t resident_bytes(void *base, size_t bytes)
{
    const size_t pages = bytes / 4096;
    unsigned char *seen = malloc(pages);
    assert_int_equal(mincore(base, bytes, seen), 0);
    size_t sum = 0;
    for (size_t i = 0; i < pages; i++)
        sum += seen[i] & 1;
    free(seen);
    return sum * 4096;
}

/* The range of the device is the only thing measured, so other memory of the process
 * does not blur the claim. */
TEST(test_device__resident_memory_is_the_peak)
{
    uint64_t seed = 5;
    sheaf__device *cpu = open_device(&sheaf__cpu, 2, 0);
    void *block[64];
    memset(cpu->scratch[0], 1, SHEAF__THREAD_SCRATCH);
    memset(cpu->scratch[1], 1, SHEAF__THREAD_SCRATCH);
    for (int i = 0; i < 64; i++) {
        const size_t bytes = 100 + next(&seed) % ((size_t)17 << 20);
        CHECK_OK(sheaf__device_alloc(&block[i], cpu, bytes, SHEAF_MEM_ACTIVATIONS));
        memset(block[i], 1, bytes);
        if (i % 3 == 2) {
            sheaf__device_free(cpu, block[i - 1]);
            block[i - 1] = NULL;
        }
        const size_t resident = resident_bytes(cpu->scratch[0], cpu->peak + BEYOND);
        assert_true(resident <= cpu->peak);
    }
    assert_true(cpu->peak > (size_t)300 << 20);
    const size_t resident = resident_bytes(cpu->scratch[0], cpu->peak + BEYOND);
    print_message("peak %.1f MiB, resident %.1f MiB\n", (double)cpu->peak / (1 << 20),
                  (double)resident / (1 << 20));
    assert_true((double)cpu->peak <= 1.01 * (double)resident);
    size_t sum = 0;
    for (int i = 0; i < SHEAF_MEM_KINDS; i++)
        sum += cpu->at_peak[i];
    assert_true(sum <= cpu->peak);
    sheaf__device_close(cpu);
}

/* ---- limits and faults ---- */

TEST(test_device__limit_is_a_status)
{
    const sheaf__device_class *const classes[] = { &sheaf__cpu, &sheaf__dry };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        sheaf__device *device = open_device(classes[i], 1, (size_t)20 << 20);
        void *a, *b = &a;
        CHECK_OK(sheaf__device_alloc(&a, device, (size_t)10 << 20, SHEAF_MEM_WEIGHTS));
        const size_t in_use = device->in_use[SHEAF_MEM_OPTIMIZER], peak = device->peak;
        CHECK_FAILS(sheaf__device_alloc(&b, device, (size_t)5 << 20, SHEAF_MEM_OPTIMIZER),
                    SHEAF_E_MEMORY, "allocating 5.00 MiB for optimizer state");
        assert_ptr_equal(b, &a);
        assert_int_equal(device->in_use[SHEAF_MEM_OPTIMIZER], in_use);
        assert_int_equal(device->peak, peak);
        sheaf__device_free(device, a);
        CHECK_OK(sheaf__device_alloc(&b, device, (size_t)14 << 20, SHEAF_MEM_OPTIMIZER));
        sheaf__device_close(device);
    }
    sheaf__device *none = NULL;
    CHECK_FAILS(sheaf__device_open(&none, &sheaf__dry, 1, NULL, 1 << 20), SHEAF_E_MEMORY,
                "scratch of thread 0");
    CHECK_FAILS(sheaf__device_open(&none, &sheaf__dry, 0, NULL, 0), SHEAF_E_ARG, "threads");
    CHECK_FAILS(sheaf__device_open(&none, &sheaf__dry, 1, "sse2", 0), SHEAF_E_ARG, "sse2");
    assert_null(none);
}

static bool touching_faults(volatile char *at)
{
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not the handler of the test framework */
        signal(SIGBUS, SIG_DFL);
        *at = 1;
        _exit(0);
    }
    int how;
    waitpid(child, &how, 0);
    return WIFSIGNALED(how);
}

TEST(test_device__dry_memory_faults)
{
    sheaf__device *dry = open_device(&sheaf__dry, 1, 0), *cpu = open_device(&sheaf__cpu, 1, 0);
    void *block;
    CHECK_OK(sheaf__device_alloc(&block, dry, (size_t)14 << 40, SHEAF_MEM_WEIGHTS)); /* 14 TiB */
    assert_true(dry->peak >= (size_t)14 << 40);
    assert_true(touching_faults(block));
    assert_true(touching_faults((char *)block + ((size_t)14 << 40) - 1));
    assert_true(touching_faults(dry->scratch[0]));
    CHECK_OK(sheaf__device_alloc(&block, cpu, 0, SHEAF_MEM_WEIGHTS));
    assert_non_null(block);
    assert_false(touching_faults(block));
    sheaf__device_close(dry);
    sheaf__device_close(cpu);
}

TEST(test_device__sixty_four_of_each)
{
    sheaf__device *device[128];
    for (int i = 0; i < 128; i++) {
        device[i] = open_device(i % 2 ? &sheaf__cpu : &sheaf__dry, 1, 0);
        void *block;
        CHECK_OK(sheaf__device_alloc(&block, device[i], 100, SHEAF_MEM_INPUTS));
    }
    for (int i = 0; i < 128; i++)
        sheaf__device_close(device[i]);
}

/* Up to the huge page that was asked for, never over the limit, and what blocks hold stays. */
TEST(test_device__holds_what_will_be_used)
{
    const size_t mib = (size_t)1 << 20, limit = 100 * mib;
    sheaf__device *cpu = open_device(&sheaf__cpu, 2, limit),
                  *dry = open_device(&sheaf__dry, 2, limit);
    unsigned char *block;
    CHECK_OK(sheaf__device_alloc((void **)&block, cpu, 3 * mib, SHEAF_MEM_ACTIVATIONS));
    memset(block, 7, 3 * mib);
    const size_t peak = cpu->peak, from = offset_of(cpu, block) / 4096 * 4096;
    char *const base = cpu->scratch[0];
    sheaf__device_hold(dry, 60 * mib);
    sheaf__device_hold(cpu, 0);
    sheaf__device_hold(cpu, peak);
    assert_int_equal(resident_bytes(base + peak, limit - peak), 0);
    sheaf__device_hold(cpu, 59 * mib + 1);
    assert_int_equal(resident_bytes(base + peak, 60 * mib - peak), 60 * mib - peak);
    assert_int_equal(resident_bytes(base + 60 * mib, limit - 60 * mib), 0);
    sheaf__device_hold(cpu, SIZE_MAX);
    assert_int_equal(resident_bytes(base + from, limit - from), limit - from);
    assert_int_equal(cpu->peak, peak);
    for (size_t i = 0; i < 3 * mib; i++)
        assert_int_equal(block[i], 7);
    CHECK_OK(sheaf__device_alloc((void **)&block, cpu, 80 * mib, SHEAF_MEM_ACTIVATIONS));
    memset(block, 1, 80 * mib);
    sheaf__device_close(cpu);
    sheaf__device_close(dry);
}
