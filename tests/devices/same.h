/* same.h - for tests of operations: on each device, and in plain C.
 *
 * same_take() gives operands, which are filled. SAME_EACH(device) then goes through the devices,
 * each of which has a copy of all that was taken; SAME(p) is where it lies. After the loop the test
 * does to its own operands what the operation is to do, by plain loops and the reference column of
 * the kernels, and same_check() compares every byte, also those between the operands.
 *
 * Operands have space around them, and copies of them that are made by their extents end where a
 * page begins that may not be touched (the device `edges`), so an extent too small faults.
 *
 * `cuda` is the emulated one, once in order and once turned (tests/gpu/stand_in.h); a GPU that is
 * not emulated may be the only one, and takes part once. An operation that has a row in its table
 * has to run by its own kernels, or the test fails, unless same.may_decline. */
#pragma once

#include "base/thread.h"
#include "ops/call.h"
#include "ops/device.h"
#include "ops/devices/gpu/gpu.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/ops_twin.h"

enum { SAME_BYTES = 3 << 20, SAME_GAP = 192 };

/* Each operand alone, in memory that ends with its extent; but what overlaps stays together, so
 * these calls go the way of `copied`. */
static bool edges_run(sheaf__device *device, sheaf__reserved *range, const sheaf__call *call)
{
    char *was[4096], *copy[4096];
    assert_true((size_t)call->operands <= ARRAY_LEN(was));
    for (int i = 0; i < call->operands; i++)
        memcpy(&was[i], call->operand[i].field, sizeof was[i]);
    for (int i = 0; i < call->operands; i++)
        for (int e = 0; e < i; e++)
            if (was[i] != NULL && was[e] != NULL && was[i] < was[e] + call->operand[e].bytes &&
                was[e] < was[i] + call->operand[i].bytes)
                return false;
    for (int i = 0; i < call->operands; i++) {
        const size_t bytes = call->operand[i].bytes;
        copy[i] = was[i] == NULL ? NULL : twin_take(bytes);
        if (copy[i] != NULL)
            copied_download(range, copy[i], was[i], bytes);
        memcpy(call->operand[i].field, &copy[i], sizeof copy[i]);
    }
    sheaf__run_here(device, call);
    for (int i = 0; i < call->operands; i++) {
        const size_t bytes = call->operand[i].bytes;
        if (copy[i] != NULL && call->operand[i].written)
            copied_upload(range, was[i], copy[i], bytes);
        if (copy[i] != NULL)
            twin_give(copy[i], bytes);
        memcpy(call->operand[i].field, &was[i], sizeof was[i]);
    }
    return true;
}

static const sheaf__device_class same_edges = { .name = "edges",
                                                .reserve = copied_reserve,
                                                .release = copied_release,
                                                .upload = copied_upload,
                                                .download = copied_download,
                                                .run = edges_run };

/* As `copied`, but for its weights. */
static const sheaf__device_class same_rows = { .name = "rows",
                                               .row_major = true,
                                               .reserve = copied_reserve,
                                               .release = copied_release,
                                               .upload = copied_upload,
                                               .download = copied_download };

static const struct {
    const sheaf__device_class *class;
    int threads, unit;
} same_on[] = {
    { &sheaf__cpu, 1, 0 },        { &sheaf__cpu, 3, 0 },        { &checked_device, 3, 0 },
    { &copied_device, 2, 0 },     { &same_edges, 1, 0 },        { &same_rows, 2, 0 },
#ifndef SHEAF_NO_X86
    { &sheaf__cuda_class, 1, 0 }, { &sheaf__cuda_class, 1, 1 },
#endif
};

enum { SAME_DEVICES = sizeof same_on / sizeof *same_on };

static struct {
    sheaf__device *device[SAME_DEVICES];
    char *memory[SAME_DEVICES]; /* the device's copy of `host` */
    char *got[SAME_DEVICES];    /* and what became of it */
    char *host;
    const sheaf__kernels *ref;
    size_t used;
    int at; /* the device of the loop, from 1; 0: none */
    sheaf_dtype dtype;
    twin_numbers numbers;
    uint64_t salt;
    unsigned mode;
    bool may_decline;
    int devices;
} same;

/* Those of a list that take part; the last one listed may be a second GPU. */
static inline int same_devices(int listed, int last_unit)
{
    return last_unit == 0 || sheaf__driver_stands_in() ? listed : listed - 1;
}

static inline int same_open(void **state)
{
    same.host = malloc(SAME_BYTES);
    same.ref = sheaf__kernels_for("ref");
    same.devices = same_devices(SAME_DEVICES, same_on[SAME_DEVICES - 1].unit);
    for (int i = 0; i < same.devices; i++) {
        CHECK_OK(sheaf__device_open_of(&same.device[i], same_on[i].class,
                                       &(sheaf__reserved){ .unit = same_on[i].unit },
                                       same_on[i].threads, NULL, 4 * SMALL_DEVICE));
        CHECK_OK(sheaf__device_alloc((void **)&same.memory[i], same.device[i], SAME_BYTES,
                                     SHEAF_MEM_ACTIVATIONS));
        same.got[i] = malloc(SAME_BYTES);
    }
    return 0;
}

static inline int same_close(void **state)
{
    for (int i = 0; i < same.devices; i++) {
        sheaf__device_close(same.device[i]);
        free(same.got[i]);
    }
    free(same.host);
    return 0;
}

/* ---- operands ---- */

/* n elements that nothing was written to yet: no number of them is what an operation makes. */
static inline void *same_blank(int64_t n, sheaf_dtype dtype)
{
    const size_t bytes = (size_t)n * sheaf_dtype_bytes(dtype),
                 taken = (bytes + 2 * SAME_GAP) / 64 * 64;
    assert_true(n >= 0 && same.used + taken <= SAME_BYTES);
    char *at = same.host + same.used;
    memset(at, 0x5a, taken);
    same.used += taken;
    return at + SAME_GAP / 2;
}

static inline void *same_take(int64_t n, sheaf_dtype dtype)
{
    void *at = same_blank(n, dtype);
    twin_fill(at, n, dtype, same.numbers, ++same.salt);
    return at;
}

/* A list of n of the rows [0, wide), none twice and in no order. */
static inline int32_t *same_list(int64_t n, int64_t wide)
{
    int32_t *list = same_blank(n, SHEAF_F32);
    assert_true(n <= wide && (wide % 37 != 0 || n <= 1));
    for (int64_t i = 0; i < n; i++)
        list[i] = (int32_t)((i * 37 + 5) % wide);
    return list;
}

/* ---- running and comparing ---- */

/* Had `cuda` a function for all that it left to the processor? */
static inline void same_ran(const sheaf__device *device)
{
#define SAME_NAME(name) #name,
    static const char *const names[] = { SHEAF__OPERATION_LIST(SAME_NAME) };
#undef SAME_NAME
    for (int i = 0; i < SHEAF__OPERATIONS && device->class == &sheaf__cuda_class; i++)
        if (sheaf__gpu_operations[i] != NULL && !same.may_decline &&
            sheaf__gpu_declined(device, (sheaf__operation)i) > 0)
            fail_msg("%s has a function on cuda, which did not run it", names[i]);
}

static inline sheaf__device *same_next(void)
{
    if (same.at > 0) {
        const int i = same.at - 1;
        CHECK_OK(sheaf__device_check(same.device[i]));
        same_ran(same.device[i]);
        CHECK_OK(sheaf__download(same.device[i], same.got[i], same.memory[i], same.used));
    }
    if (same.at == same.devices) {
        same.at = 0;
        same.mode = sheaf__compute_mode_enter(); /* of the reference */
        return NULL;
    }
    sheaf__device *device = same.device[same.at];
    CHECK_OK(sheaf__upload(device, same.memory[same.at], same.host, same.used));
    same.at++;
    return device;
}

#define SAME_EACH(device) for (sheaf__device * device; (device = same_next()) != NULL;)

static inline void *same_there(const void *host)
{
    return host == NULL ? NULL : same.memory[same.at - 1] + ((const char *)host - same.host);
}

#define SAME(p) ((__typeof__(p))same_there(p))

static inline void same_check(const char *what)
{
    sheaf__compute_mode_leave(same.mode);
    for (int i = 0; i < same.devices; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s, %s, numbers %d, on %s with %d threads%s", what,
                 sheaf_dtype_name(same.dtype), same.numbers, same_on[i].class->name,
                 same_on[i].threads, same_on[i].unit == 1 ? ", turned" : "");
        CHECK_BYTES(name, same.got[i], same.host, same.used);
    }
    same.used = 0;
}

/* After a test that failed, too. */
static inline void same_begin(sheaf_dtype dtype, twin_numbers numbers)
{
    same.dtype = dtype;
    same.numbers = numbers;
    same.used = 0;
    same.at = 0;
}

static const sheaf_dtype same_dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };

/* same_types - `check` for every type of activations with some kinds of numbers, among them all
 * edges; in ./run soak with all kinds, with sanitizers for each type and each kind once. */
static inline void same_types(void (*check)(sheaf_dtype dtype))
{
    static const twin_numbers kind[3][3] = {
        { TWIN_PLAIN, TWIN_ALL_EDGES, TWIN_FINITE_EDGES },
        { TWIN_ALL_EDGES, TWIN_FINITE_EDGES, TWIN_ALL_EDGES },
        { TWIN_FINITE_EDGES, TWIN_PLAIN, TWIN_PLAIN },
    };
    for (int i = 0; i < (every(2) > 1 ? 3 : in_soak(9, 6)); i++) {
        same_begin(same_dtypes[i % 3], kind[i / 3][i % 3]);
        check(same.dtype);
    }
}

/* same_plain - `check` for every type, with plain numbers. */
static inline void same_plain(void (*check)(sheaf_dtype dtype))
{
    for (int i = 0; i < 3; i++) {
        same_begin(same_dtypes[i], TWIN_PLAIN);
        check(same.dtype);
    }
}

/* same_numbers - for operations on float32 alone. */
static inline void same_numbers(void (*check)(void))
{
    for (int i = 0; i < TWIN_KINDS; i++) {
        same_begin(SHEAF_F32, (twin_numbers)i);
        check();
    }
}

/* SAME_TYPES - defines a test whose body is run by same_types(). SAME_NUMBERS: by same_numbers().
 */
#define SAME_TYPES(name, dtype)                                                                    \
    static void name##_of(sheaf_dtype dtype);                                                      \
    TEST(name)                                                                                     \
    {                                                                                              \
        same_types(name##_of);                                                                     \
    }                                                                                              \
    static void name##_of(sheaf_dtype dtype)
#define SAME_NUMBERS(name)                                                                         \
    static void name##_of(void);                                                                   \
    TEST(name)                                                                                     \
    {                                                                                              \
        same_numbers(name##_of);                                                                   \
    }                                                                                              \
    static void name##_of(void)

/* Rows or columns. */
static const int64_t same_sizes[] = { 0, 1, 17, 33, 300 };
