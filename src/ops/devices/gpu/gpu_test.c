/* gpu_test.c - the runtime of the device `cuda` over a stand-in driver: transfers and launches in
 * order, and faults, each of which ends in a text that says where, what, and what to try. */
#include "tests/check.h"

#include <errno.h>
#include <unistd.h>

#include "base/thread.h"
#include "ops/device.h"
#include "ops/devices/gpu/cuda/cubins.h"
#include "ops/devices/gpu/gpu.h"
#include "tests/gpu/stand_in.h"
#include "tests/gpu/stand_in_state.h"
#include "ops/tensor/elements.h"
#include "ops/tensor/tensor.h"

static int begin(void **state)
{
    unsetenv("SHEAF_EMULATED_GPU");
    sheaf__stand_in_reset();
    return 0;
}

/* Nothing is left of what a test made, also where it failed. */
static int end(void **state)
{
    sheaf__stand_in_reset();
    assert_int_equal(sheaf__stand_in_left(), 0);
    return 0;
}

static void pretend(const char *gpus)
{
    setenv("SHEAF_EMULATED_GPU", gpus, 1);
    sheaf__stand_in_reset();
}

static sheaf__device *open_one(void)
{
    sheaf__device *device = NULL;
    CHECK_OK(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL));
    return device;
}

static void *take(sheaf__device *device, size_t bytes)
{
    void *block = NULL;
    CHECK_OK(sheaf__device_alloc(&block, device, bytes, SHEAF_MEM_ACTIVATIONS));
    return block;
}

/* An operation with a kernel: n float32 to zero. */
static void zero(sheaf__device *device, void *at, int64_t n)
{
    sheaf__op_zero(device, at, n, SHEAF_F32);
}

/* ---- what works ---- */

/* Also before any operation; of 4 elements by words of 16 bytes, of one by itself. */
TEST(test_cuda__an_exchange_gives_the_one_nan)
{
    const float x[2][5] = { { INFINITY, 1, -0.0f, INFINITY, INFINITY },
                            { -INFINITY, 2, -0.0f, 1, -INFINITY } };
    uint32_t sum[5];
    sheaf__device *device = open_one();
    float *at[2] = { take(device, sizeof x[0]), take(device, sizeof x[1]) };
    CHECK_OK(sheaf__upload(device, at[0], x[0], sizeof x[0]));
    CHECK_OK(sheaf__upload(device, at[1], x[1], sizeof x[1]));
    const sheaf__combining what = { .ranks = 1,
                                    .operands = 2,
                                    .steps = 1,
                                    .out = at,
                                    .operand = (const float *const *)at,
                                    .step = &(sheaf__combining_step){ SHEAF__COMBINED, 0, 1 },
                                    .end = 5 };
    CHECK_OK(device->class->peers->mover.lend(device->reserved)); /* the uploaded bytes */
    CHECK_OK(device->class->peers->mover.combine(device->reserved, &what));
    CHECK_OK(device->class->peers->mover.wait(device->reserved));
    CHECK_OK(sheaf__download(device, sum, at[0], sizeof sum));
    assert_memory_equal(
        sum, ((uint32_t[]){ 0x7fc00000, 0x40400000, 0x80000000, 0x7f800000, 0x7fc00000 }),
        sizeof sum);
    sheaf__device_close(device);
}

TEST(test_cuda__transfers_of_any_size_come_back)
{
    static const size_t sizes[] = { 1,
                                    63,
                                    4096,
                                    SHEAF__GPU_SEGMENT - 1,
                                    SHEAF__GPU_SEGMENT + 1,
                                    3 * SHEAF__GPU_SEGMENT,
                                    6 * SHEAF__GPU_SEGMENT + 5 };
    sheaf__device *device = open_one();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *from = malloc(sizes[i]), *to = malloc(sizes[i]), *at = take(device, sizes[i] + 7);
        for (size_t k = 0; k < sizes[i]; k++)
            from[k] = (char)(k * 37 + i);
        CHECK_OK(sheaf__upload(device, at + 7, from, sizes[i]));
        char *was = malloc(sizes[i]);
        memcpy(was, from, sizes[i]);
        memset(from, 1, sizes[i]); /* it may change once the upload has returned */
        CHECK_OK(sheaf__download(device, to, at + 7, sizes[i]));
        CHECK_BYTES("there and back", to, was, sizes[i]);
        free(from);
        free(to);
        free(was);
        sheaf__device_free(device, at);
    }
    sheaf__device_close(device);
}

/* As on a GPU, of whose memory the host has addresses alone: what reads them would not go unseen.
 */
TEST(test_cuda__the_host_cannot_read_its_memory)
{
    int ends[2];
    sheaf__device *device = open_one();
    char *at = take(device, 8 << 20), byte = 1;
    CHECK_OK(sheaf__upload(device, at, &byte, 1));
    CHECK_OK(sheaf__download(device, &byte, at, 1));
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(ends[1], at + i * ((8 << 20) - 1), 1), -1);
        assert_int_equal(errno, EFAULT);
    }
    close(ends[0]);
    close(ends[1]);
    sheaf__device_close(device);
}

TEST(test_cuda__what_is_queued_stays_in_order)
{
    sheaf__device *device = open_one();
    float *at = take(device, 4096), host[1024];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1024; i++)
            host[i] = 1;
        CHECK_OK(sheaf__upload(device, at, host, sizeof host));
        zero(device, at + 1, 1000);
        CHECK_OK(sheaf__download(device, host, at, sizeof host));
        for (int i = 0; i < 1024; i++)
            assert_true(host[i] == (i < 1 || i > 1000 ? 1 : 0));
    }
    assert_true(sheaf__gpu_ran(device, SHEAF__OP_ZERO) == 3);
    sheaf__device_close(device);
}

/* So steps that are alike stage nothing: whatever copied a list again would fail here. */
TEST(test_cuda__a_list_is_copied_once)
{
    sheaf__device *device = open_one();
    float *at = take(device, 4096), host[4] = { 1, 2, 3, 4 };
    sheaf__squares two[2] = { { .x = at, .n = 2 }, { .x = at + 1, .n = 3 } };
    CHECK_OK(sheaf__upload(device, at, host, sizeof host));
    sheaf__op_squares(device, two, 2);
    sheaf__op_squares(device, two, 1); /* another list */
    sheaf__stand_in_fail("cuMemcpyHtoDAsync_v2", 0, SHEAF__GPU_ILLEGAL_ADDRESS, true);
    for (int n = 1; n <= 2; n++) {
        two[0].sum = two[1].sum = 0;
        sheaf__op_squares(device, two, n);
        assert_true(two[0].sum == 5 && two[1].sum == (n == 1 ? 0 : 29));
    }
    two[0].n = 3;
    sheaf__op_squares(device, two, 1);
    CHECK_FAILS(sheaf__download(device, host, at, sizeof host), SHEAF_E_IO, "copying to it");
    sheaf__device_close(device);
}

static uint64_t marks_of(sheaf__device *device, sheaf__spent *sum)
{
    const uint64_t before = sum->marks;
    sheaf__device_spent(device, sum);
    return sum->marks - before;
}

/* Only what is measured, and only when it has ended: nothing waits for it. */
TEST(test_cuda__time_is_that_of_its_own_clock)
{
    sheaf__device *device = open_one();
    float *at = take(device, 4096), host[1024] = { 0 };
    sheaf__spent sum = { 0 };
    for (int round = 0; round < 3; round++) {
        sum = (sheaf__spent){ 0 };
        CHECK_OK(sheaf__upload(device, at, host, sizeof host));
        assert_int_equal(marks_of(device, &sum), 0);
        sheaf__device_measure(device, true);
        CHECK_OK(sheaf__upload(device, at, host, sizeof host));
        zero(device, at, 1024);
        assert_int_equal(marks_of(device, &sum), 0); /* still queued */
        CHECK_OK(sheaf__download(device, host, at, sizeof host));
        assert_int_equal(marks_of(device, &sum), 4);
        sheaf__device_measure(device, false);
        CHECK_OK(sheaf__download(device, host, at, sizeof host));
        assert_int_equal(marks_of(device, &sum), 0);
        assert_true(sum.of[SHEAF__SPENT_TRANSFERS] > 0 &&
                    sum.of[SHEAF__SPENT_TRANSFERS] < UINT64_C(60000000000));
        assert_true(sum.of[SHEAF__SPENT_PRODUCTS] == 0 && sum.of[SHEAF__SPENT_ATTENTION] == 0);
    }
    sheaf__device_close(device);
}

/* It goes on without. */
TEST(test_cuda__a_clock_that_fails_stops_nothing)
{
    static const char *const names[] = { "cuEventCreate", "cuEventRecord", "cuEventElapsedTime" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        sheaf__device *device = open_one();
        float *at = take(device, 4096), host[1024] = { 0 };
        sheaf__spent sum = { 0 };
        sheaf__device_measure(device, true);
        sheaf__stand_in_fail(names[i], 0, SHEAF__GPU_UNKNOWN, true);
        CHECK_OK(sheaf__upload(device, at, host, sizeof host));
        CHECK_OK(sheaf__download(device, host, at, sizeof host));
        assert_int_equal(marks_of(device, &sum), 0);
        CHECK_OK(sheaf__device_check(device));
        sheaf__stand_in_fail("none", 0, 0, false);
        sheaf__device_close(device);
    }
}

typedef struct part {
    sheaf__device *device;
    char *at;
    int number;
} part;

static void *upload_part(void *arg)
{
    const part *p = arg;
    char from[5000];
    for (int round = 0; round < 50; round++) {
        memset(from, p->number + round, sizeof from);
        CHECK_OK(
            sheaf__upload(p->device, p->at + (size_t)p->number * sizeof from, from, sizeof from));
    }
    return NULL;
}

TEST(test_cuda__threads_upload_at_once)
{
    sheaf__device *device = open_one();
    char *at = take(device, 4 * 5000), got[4 * 5000];
    pthread_t thread[4];
    part parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = (part){ device, at, i };
        assert_int_equal(pthread_create(&thread[i], NULL, upload_part, &parts[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_OK(sheaf__download(device, got, at, sizeof got));
    for (int i = 0; i < 4 * 5000; i++)
        assert_int_equal(got[i], i / 5000 + 49);
    sheaf__device_close(device);
}

TEST(test_cuda__ranks_share_the_gpus_that_are_named)
{
    static const int want[] = { 2, 0, 2, 0 };
    pretend("9.0,9.0,9.0");
    for (int rank = 0; rank < 4; rank++) {
        sheaf__device *device = NULL;
        CHECK_OK(sheaf__device_for(&device, "cuda:2,0", rank, 4, 1, NULL));
        assert_int_equal(device->reserved->unit, want[rank]);
        sheaf__device_close(device);
    }
}

/* ---- GPUs that reach each other ---- */

TEST(test_cuda__gpus_of_a_run_alone_have_to_reach_each_other)
{
    static const struct {
        const char *name;
        int rank, ranks;
        bool reaches;
    } row[] = {
        { "cuda:0,1", 1, 2, true }, { "cuda:0,1", 3, 8, true }, { "cuda", 0, 2, true },
        { "cuda", 0, 3, false },    { "cuda", 2, 1, true },     { "cuda:1,2", 0, 2, false }
    };
    pretend("9.0,9.0,9.0");
    sheaf__stand_in_peers(2, false);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        sheaf__device *device = NULL;
        CHECK_OK(sheaf__device_for(&device, row[i].name, row[i].rank, row[i].ranks, 1, NULL));
        assert_int_equal(device->class->peers->reach(device->reserved), row[i].reaches);
        sheaf__device_close(device);
    }
}

TEST(test_cuda__memory_of_peers_is_asked_before_it_is_used)
{
    sheaf__device *device = NULL;
    pretend("9.0,9.0");
    sheaf__stand_in_peers(-1, true);
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 2, 1, NULL), SHEAF_E_UNSUPPORTED,
                "the memory of another GPU | the numbers that were written there | of 16384, 0 "
                "written, 0 read and 16384 copied are others | SHEAF_PEERS=off");
    CHECK_OK(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL)); /* it has no peers */
    sheaf__device_close(device);
    setenv("SHEAF_PEERS", "off", 1);
    CHECK_OK(sheaf__device_for(&device, "cuda", 0, 2, 1, NULL));
    assert_false(device->class->peers->reach(device->reserved));
    sheaf__device_close(device);
    unsetenv("SHEAF_PEERS");
}

/* ---- names ---- */

TEST(test_cuda__names_of_devices)
{
    static const char *const wrong[] = { "cuda:",    "cuda:a",  "cuda:0,", "cuda:,0", "cuda:0,0",
                                         "cuda:-1",  "cuda:0 ", "cuda0",   "cpu:0",   "CUDA",
                                         "cuda:0;1", "",        "gpu" };
    sheaf__device_choice choice;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        CHECK_FAILS(sheaf__device_choose(&choice, wrong[i]), SHEAF_E_ARG, "cpu, cuda");
    CHECK_OK(sheaf__device_choose(&choice, "cuda:3,11"));
    assert_true(choice.units == 2 && choice.unit[0] == 3 && choice.unit[1] == 11);
    CHECK_FAILS(sheaf__device_present("cuda:3,11"), SHEAF_E_ARG,
                "numbers from 0 to 1, those that this process sees | cuda:3");
    pretend("8.6");
    CHECK_FAILS(sheaf__device_present("cuda:1"), SHEAF_E_ARG, "cuda:0, the only one");
    CHECK_OK(sheaf__device_present("cuda"));
}

TEST(test_cuda__an_order_is_computed_by_its_own_tensor_cores)
{
    static const struct {
        const char *gpu;
        sheaf_sums own, other;
        const char *advice;
    } row[] = { { "8.0", SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA16, "`sums mma8`" },
                { "8.9", SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA16, "`device cpu`" },
                { "9.0", SHEAF_SUMS_MMA16, SHEAF_SUMS_MMA8, "`sums mma16`" } };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        pretend(row[i].gpu);
        sheaf_sums native;
        assert_true(sheaf__device_native(&native, "cuda") && native == row[i].own);
        sheaf__device *device = open_one();
        CHECK_OK(sheaf__device_order(device, row[i].own, SHEAF_F16));
        CHECK_OK(sheaf__device_order(device, SHEAF_SUMS_PAIRS, SHEAF_BF16));
        CHECK_OK(sheaf__device_order(device, SHEAF_SUMS_TILES, SHEAF_BF16));
        CHECK_OK(sheaf__device_order(device, row[i].other, SHEAF_F32));
        CHECK_FAILS(sheaf__device_order(device, row[i].other, SHEAF_BF16), SHEAF_E_UNSUPPORTED,
                    row[i].advice);
        sheaf__device_close(device);
    }
    assert_false(sheaf__device_native(&(sheaf_sums){ 0 }, "cpu"));
}

/* ---- the driver ---- */

static void *all_but_one(void *missing, const char *name)
{
    sheaf__gpu_error (*version)(int *) = sheaf__stand_in_driver()->version;
    void *any;
    memcpy(&any, &version, sizeof any);
    return strcmp(missing, name) == 0 ? NULL : any;
}

TEST(test_driver__that_cannot_be_used_says_why)
{
    sheaf__device *device = NULL;
    sheaf__driver table;
    CHECK_FAILS(sheaf__driver_fill(&table, "cuMemMap", all_but_one), SHEAF_E_UNSUPPORTED,
                "without cuMemMap");
    sheaf__stand_in_version(11010);
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                "one for CUDA 11.2 or later | one for CUDA 11.1 | update the driver");
    sheaf__stand_in_reset();
    sheaf__stand_in_fail("cuInit", 0, SHEAF__GPU_NONE, true);
    CHECK_FAILS(sheaf__device_present("cuda"), SHEAF_E_UNSUPPORTED, "CUDA_VISIBLE_DEVICES");
    sheaf__stand_in_fail("cuInit", 0, SHEAF__GPU_MISMATCH, true);
    CHECK_FAILS(sheaf__device_present("cuda"), SHEAF_E_UNSUPPORTED, "restart of the machine");
    sheaf__stand_in_fail("cuInit", 0, SHEAF__GPU_NO_FABRIC, true);
    CHECK_FAILS(sheaf__device_present("cuda"), SHEAF_E_UNSUPPORTED, "nvidia-fabricmanager");
    sheaf__stand_in_fail("cuDevicePrimaryCtxRetain", 0, SHEAF__GPU_IN_USE, true);
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                "nvidia-smi -c DEFAULT");
    pretend("7.5");
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                "compute capability 8.0 or later (Ampere)");
    assert_null(device);
}

TEST(test_cubins__the_best_that_a_gpu_runs)
{
    static const sheaf__cubin table[] = { { .kind = "sm_80" },  { .kind = "sm_86" },
                                          { .kind = "sm_89" },  { .kind = "sm_90a" },
                                          { .kind = "sm_120" }, { 0 } };
    static const struct {
        int major, minor;
        const char *kind;
    } row[] = { { 8, 0, "sm_80" },  { 8, 6, "sm_86" }, { 8, 7, "sm_86" },   { 8, 9, "sm_89" },
                { 9, 0, "sm_90a" }, { 9, 1, NULL },    { 12, 0, "sm_120" }, { 12, 1, "sm_120" },
                { 10, 0, NULL },    { 7, 5, NULL } };
    static const sheaf__cubin older[] = { { .kind = "sm_90" }, { .kind = "sm_100" }, { 0 } };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const char *kind = sheaf__cubin_kind(table, row[i].major, row[i].minor);
        assert_true((kind == NULL) == (row[i].kind == NULL));
        if (kind != NULL)
            assert_string_equal(kind, row[i].kind);
    }
    assert_string_equal(sheaf__cubin_kind(older, 9, 0), "sm_90");
    assert_string_equal(sheaf__cubin_kind(older, 10, 3), "sm_100");
}

/* The advice names a choice of meson_options.txt. */
TEST(test_cubins__a_gpu_without_code_learns_which_to_build)
{
    static const sheaf__cubin table[] = { { .kind = "sm_86" }, { .kind = "sm_120" }, { 0 } };
    static const struct {
        int major, minor;
        const char *says;
    } row[] = {
        { 8, 0, "capability 8.0 | sm_86, sm_120 | build sheaf for this GPU (GPU_KINDS=sm_80 ." },
        { 9, 0, "(GPU_KINDS=sm_90a ./run build)" },
        { 10, 3, "capability 10.3 | sm_86, sm_120 | build sheaf for this GPU (GPU_KINDS=sm_100 ." },
        { 11, 0, "another GPU (`device cuda:N`), or `device cpu`: sheaf has no kernels" },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        CHECK_FAILS(sheaf__cubins_refuse(
                        table, &(sheaf__gpu){ .major = row[i].major, .minor = row[i].minor }),
                    SHEAF_E_UNSUPPORTED, row[i].says);
}

/* ---- faults ---- */

static void may_fail(int ranks)
{
    int opened = 0;
    for (int n = 0; opened == 0; n++) {
        sheaf__device *device = NULL;
        sheaf__stand_in_fail(NULL, n, SHEAF__GPU_UNKNOWN, false);
        sheaf_status *st = sheaf__device_for(&device, "cuda", 0, ranks, 1, NULL);
        sheaf__stand_in_reset();
        if (st != NULL) {
            assert_null(device);
            assert_non_null(sheaf_status_where(st));
            if (strstr(sheaf_status_found(st), "CUDA_ERROR_UNKNOWN") == NULL &&
                strstr(sheaf_status_expected(st), "CUDA_ERROR_UNKNOWN") == NULL)
                fail_msg("call %d: %s: %s", n, sheaf_status_where(st), sheaf_status_found(st));
        }
        opened = st == NULL && n > 40 * ranks;   /* calls that are not needed may fail */
        const bool kept = st == NULL && !opened; /* a mate's, too */
        sheaf_status_free(st);
        sheaf__device_close(device);
        if (kept)
            atomic_store(&sheaf__stand_in.made, 0);
        assert_int_equal(sheaf__stand_in_left(), 0);
    }
}

TEST(test_cuda__each_call_of_opening_may_fail)
{
    may_fail(1);
    may_fail(2);
}

TEST(test_cuda__a_wrong_image_and_a_missing_kernel)
{
    sheaf__device *device = NULL;
    sheaf__stand_in_fail("cuModuleLoadData", 0, SHEAF__GPU_NO_IMAGE, false);
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                "CUDA_ERROR_NO_BINARY_FOR_GPU (209)");
    device = open_one();
    sheaf__stand_in_fail("cuModuleGetFunction", 0, SHEAF__GPU_NOT_FOUND, true);
    zero(device, take(device, 4), 1);
    CHECK_FAILS(sheaf__device_check(device), SHEAF_E_UNSUPPORTED, "launching zero_f32");
    sheaf__device_close(device);
}

/* A kernel is not cached under its launch's text. */
TEST(test_cuda__a_name_may_end_with_its_launch)
{
    char name[] = "zero_f32";
    sheaf__device *device = open_one();
    sheaf__gpu *gpu = device->reserved->own;
    const sheaf__pair none = { .to = SHEAF_F32 };
    const sheaf__launch launch = {
        .kernel = name, .blocks = { 1 }, .threads = 1, .arguments = &none, .bytes = sizeof none
    };
    CHECK_OK(sheaf__gpu_queue(gpu, &launch));
    memcpy(name, "zero_b16", sizeof name);
    assert_string_equal(gpu->last, "zero_f32");
    CHECK_FAILS(sheaf__gpu_queue(gpu, &launch), SHEAF_E_UNSUPPORTED, "launching zero_b16");
    sheaf__stand_in_fail("cuModuleGetFunction", 0, SHEAF__GPU_NOT_FOUND, true);
    memcpy(name, "zero_f32", sizeof name);
    CHECK_OK(sheaf__gpu_queue(gpu, &launch));
    sheaf__stand_in_reset();
    sheaf__device_close(device);
}

TEST(test_cuda__memory_that_is_refused_names_who_asked)
{
    void *block = NULL;
    pretend("9.0:1");
    sheaf__device *device = open_one();
    sheaf__stand_in_use(0, (size_t)900 << 20); /* another process */
    CHECK_FAILS(sheaf__device_alloc(&block, device, (size_t)200 << 20, SHEAF_MEM_WEIGHTS),
                SHEAF_E_MEMORY,
                "allocating 200.00 MiB for weights | room in 1024.00 MiB, and GPU 0 "
                "(Emulated GPU) to grant it: 52.00 of its 1024.00 MiB are left");
    CHECK_OK(sheaf__device_alloc(&block, device, (size_t)40 << 20, SHEAF_MEM_WEIGHTS));
    sheaf__stand_in_fail("cuMemMap", 0, SHEAF__GPU_UNKNOWN, false);
    CHECK_FAILS(sheaf__device_alloc(&block, device, (size_t)6 << 20, SHEAF_MEM_WEIGHTS),
                SHEAF_E_MEMORY, "which says CUDA_ERROR_UNKNOWN (999)");
    CHECK_OK(sheaf__device_alloc(&block, device, (size_t)6 << 20, SHEAF_MEM_WEIGHTS));
    sheaf__device_close(device);
}

TEST(test_cuda__a_failed_launch_stays_and_names_the_kernel)
{
    char host[64];
    sheaf__device *device = open_one();
    void *at = take(device, 64);
    sheaf__stand_in_fail("cuLaunchKernel", 0, SHEAF__GPU_ILLEGAL_ADDRESS, false);
    zero(device, at, 16);
    zero(device, at, 16); /* does nothing: the failure stays */
    CHECK_FAILS(
        sheaf__download(device, host, at, 64), SHEAF_E_IO,
        "launching zero_f32 |  | CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was "
        "encountered; the last kernel launched was zero_f32");
    CHECK_OK(sheaf__download(device, host, at, 64));
    sheaf__device_close(device);
}

TEST(test_cuda__a_lost_device_ends_all_calls)
{
    char host[64] = { 0 };
    sheaf__device *device = open_one();
    void *at = take(device, 64);
    zero(device, at, 16);
    sheaf__stand_in_fail(NULL, 0, SHEAF__GPU_ECC, true);
    CHECK_FAILS(
        sheaf__download(device, host, at, 64), SHEAF_E_IO,
        "uncorrectable ECC error encountered; the last kernel launched was zero_f32 | the GPU's "
        "memory is damaged");
    CHECK_FAILS(sheaf__upload(device, at, host, 64), SHEAF_E_IO, "ECC");
    zero(device, at, 16);
    CHECK_FAILS(sheaf__device_check(device), SHEAF_E_IO, "GPU 0 (Emulated GPU)");
    sheaf__stand_in_reset(); /* so that its memory is given back, which a lost one's is not */
    sheaf__device_close(device);
}

/* ---- the probe ---- */

TEST(test_probe__a_gpu_that_computes_otherwise_is_refused)
{
    static const struct {
        const char *gpu;
        int group;
        bool flushes;
        const char *says;
    } row[] = { { "9.0", 0, false, "results near 2^-126 differ" },
                { "9.0", 8, true, "but those of the other order" },
                { "8.6", 16, true, "in the order mma8, that of compute capability 8.6" } };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        sheaf__device *device = NULL;
        pretend(row[i].gpu);
        sheaf__stand_in_arithmetic(row[i].group, row[i].flushes);
        CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                    row[i].says);
        assert_null(device);
    }
    for (int i = 0; i < 3; i++) { /* and those that compute as they should are not */
        pretend(i == 0 ? "8.0" : i == 1 ? "8.9" : "12.0");
        sheaf__device_close(open_one());
    }
}

/* Of a build with a search for leaks: what is allocated in between is none. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

TEST(test_probe__that_does_not_end_is_given_up)
{
    sheaf__device *device = NULL;
    if (__lsan_disable != NULL)
        __lsan_disable();
    sheaf__stand_in_fail("cuEventQuery", 0, SHEAF__GPU_NOT_READY, true);
    CHECK_FAILS(sheaf__device_for(&device, "cuda", 0, 1, 1, NULL), SHEAF_E_UNSUPPORTED,
                "its probe | an end after milliseconds | none after 10 seconds; the last kernel "
                "launched was probe_floats | another GPU");
    if (__lsan_enable != NULL)
        __lsan_enable();
    assert_int_not_equal(sheaf__stand_in_left(), 0); /* the driver frees it, with the process */
    atomic_store(&sheaf__stand_in.made, 0);
}

const struct group_fixture each_fixture = { begin, end };
