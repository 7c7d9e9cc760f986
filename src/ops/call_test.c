/* call_test.c - an operation gives the same bytes on every device, however its operands lie; what
 * its list does not name is out of its reach; transfers, memory with two sides, failures. */
#include "tests/check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/call.h"
#include "ops/device.h"
#include "ops/tensor/tensor.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"

enum { ALL = 96 }; /* floats of the array that operands lie in */

static const sheaf__device_class *const real[] = { &sheaf__cpu, &checked_device, &copied_device };

static sheaf__device *open_device(const sheaf__device_class *class)
{
    sheaf__device *device = NULL;
    CHECK_OK(sheaf__device_open(&device, class, 2, NULL, 0));
    return device;
}

static float *take(sheaf__device *device, size_t bytes)
{
    void *at;
    CHECK_OK(sheaf__device_alloc(&at, device, bytes, SHEAF_MEM_ACTIVATIONS));
    return at;
}

static void fill(float *x)
{
    for (int i = 0; i < ALL; i++)
        x[i] = (float)(i * i % 31) - 7;
}

/* ---- operands ---- */

/* y[i] = 2 a[i] + b[i], of rows `ld` apart; one after the other, so that they may overlap. */
typedef struct arguments {
    float *y;
    const float *a, *b; /* NULL: 0 */
    int64_t rows, ld, cols;
} arguments;

static void add_rows(const sheaf__kernels *kernels, const void *arg, int64_t begin, int64_t end)
{
    const arguments *s = arg;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = r * s->ld; i < r * s->ld + s->cols; i++)
            s->y[i] = 2 * (s->a == NULL ? 0 : s->a[i]) + (s->b == NULL ? 0 : s->b[i]);
}

/* missing: an operand that the list lacks; -1: none. */
static void run_rows(sheaf__device *device, arguments s, int missing)
{
    const size_t bytes = sheaf__extent(s.rows, s.ld, s.cols, SHEAF_F32);
    const arguments was = s;
    sheaf__operand operand[] = { SHEAF__WRITES(s.y, bytes), SHEAF__READS(s.a, bytes),
                                 SHEAF__READS(s.b, bytes) };
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (i != missing)
            operand[n++] = operand[i];
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ADD, &s, operand, n, add_rows, s.rows, s.rows });
    assert_memory_equal(&s, &was, sizeof s); /* pointers are put back */
}

enum { NONE = -1 };

/* Begins of the operands in the array; NONE: NULL. */
static const struct {
    const char *name;
    int y, a, b;
    int64_t rows, ld, cols;
} layouts[] = {
    { "apart", 0, 32, 64, 4, 8, 8 },
    { "with gaps between rows", 0, 32, 64, 4, 8, 3 },
    { "side by side, columns of one matrix", 0, 2, 5, 8, 12, 2 },
    { "adjacent", 0, 16, 32, 2, 8, 8 },
    { "the result is an operand", 8, 8, 64, 4, 8, 8 },
    { "all are the same", 8, 8, 8, 4, 8, 7 },
    { "operands overlap", 64, 0, 5, 4, 8, 8 },
    { "the result overlaps, lower", 0, 3, 64, 4, 8, 8 },
    { "the result overlaps, higher", 9, 3, 64, 4, 8, 8 },
    { "a chain of three", 20, 0, 40, 3, 8, 8 },
    { "one is NULL", 0, 32, NONE, 4, 8, 8 },
    { "both are NULL", 40, NONE, NONE, 4, 8, 5 },
    { "no rows", 0, 32, 64, 0, 8, 8 },
    { "no columns", 0, 32, 64, 4, 8, 0 },
};

TEST(test_call__same_bytes_however_operands_lie)
{
    for (size_t l = 0; l < ARRAY_LEN(layouts); l++) {
        float want[ALL], got[ALL], before[ALL];
        fill(before);
        for (size_t d = 0; d < ARRAY_LEN(real); d++) {
            sheaf__device *device = open_device(real[d]);
            float *at = take(device, sizeof before);
            CHECK_OK(sheaf__upload(device, at, before, sizeof before));
            run_rows(device,
                     (arguments){ at + layouts[l].y,
                                  layouts[l].a == NONE ? NULL : at + layouts[l].a,
                                  layouts[l].b == NONE ? NULL : at + layouts[l].b, layouts[l].rows,
                                  layouts[l].ld, layouts[l].cols },
                     -1);
            CHECK_OK(sheaf__device_check(device));
            CHECK_OK(sheaf__download(device, d == 0 ? want : got, at, sizeof want));
            if (d > 0)
                CHECK_BYTES(layouts[l].name, got, want, sizeof want);
            sheaf__device_close(device);
        }
        assert_true((memcmp(want, before, sizeof want) != 0) ==
                    (layouts[l].rows * layouts[l].cols > 0));
    }
}

/* A table of `copied` whose transfers are counted, and fail when told to. */
static struct {
    int uploads, downloads, left; /* left: transfers before the one that fails; -1: none does */
    size_t uploaded, downloaded;
} seen;

static sheaf_status *transfer_fails(const char *what)
{
    return seen.left >= 0 && seen.left-- == 0 ? sheaf_fail(SHEAF_E_IO, "%s", what) : NULL;
}

static sheaf_status *counted_upload(sheaf__reserved *range, void *to, const void *from,
                                    size_t bytes)
{
    sheaf_status *st = transfer_fails("the upload");
    seen.uploads++;
    seen.uploaded += bytes;
    return st != NULL ? st : copied_upload(range, to, from, bytes);
}

static sheaf_status *counted_download(sheaf__reserved *range, void *to, const void *from,
                                      size_t bytes)
{
    sheaf_status *st = transfer_fails("the download");
    seen.downloads++;
    seen.downloaded += bytes;
    return st != NULL ? st : copied_download(range, to, from, bytes);
}

static const sheaf__device_class counted_device = { .name = "counted",
                                                    .reserve = copied_reserve,
                                                    .release = copied_release,
                                                    .upload = counted_upload,
                                                    .download = counted_download };

/* Overlapping operands are one copy; only written ones go back; these are not the run's transfers.
 */
TEST(test_call__copies_are_as_few_as_can_be)
{
    static const struct {
        const char *name;
        int y, a, b, downloads;
        size_t downloaded, uploaded; /* floats */
    } table[] = {
        { "apart", 0, 40, 80, 3, 30, 10 },        { "adjacent", 10, 0, 20, 3, 30, 10 },
        { "the same", 5, 5, 5, 1, 10, 10 },       { "overlap, written", 0, 9, 40, 2, 29, 19 },
        { "overlap, read", 40, 0, 9, 2, 29, 10 }, { "one is NULL", 0, 40, NONE, 2, 20, 10 },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        sheaf__device *device = open_device(&counted_device);
        float *at = take(device, ALL * sizeof(float));
        memset(&seen, 0, sizeof seen);
        seen.left = -1;
        run_rows(device,
                 (arguments){ at + table[i].y, at + table[i].a,
                              table[i].b == NONE ? NULL : at + table[i].b, 1, 10, 10 },
                 -1);
        if (seen.downloads != table[i].downloads || seen.uploads != 1 ||
            seen.downloaded != table[i].downloaded * 4 || seen.uploaded != table[i].uploaded * 4)
            fail_msg("%s: %d downloads of %zu bytes, %d uploads of %zu", table[i].name,
                     seen.downloads, seen.downloaded, seen.uploads, seen.uploaded);
        assert_int_equal(device->uploaded, 0);
        assert_int_equal(device->downloaded, 0);
        sheaf__device_close(device);
    }
}

/* An operation that divides itself. */
static void whole_doubles(sheaf__device *device, void *arg)
{
    const arguments *s = arg;
    for (int64_t i = 0; i < s->cols; i++)
        s->y[i] = 2 * s->a[i];
}

TEST(test_call__many_rows_and_whole_operations)
{
    enum { N = 200003 };
    float *x = malloc(N * sizeof *x), *got = malloc(N * sizeof *got),
          *want = malloc(N * sizeof *want);
    for (int64_t i = 0; i < N; i++)
        x[i] = (float)(i % 1009) / 8;
    for (size_t d = 0; d < ARRAY_LEN(real); d++) {
        sheaf__device *device = open_device(real[d]);
        float *a = take(device, N * sizeof *x), *y = take(device, N * sizeof *x);
        CHECK_OK(sheaf__upload(device, a, x, N * sizeof *x));
        arguments s = { .y = y, .a = a, .rows = 1, .cols = N };
        const sheaf__operand operand[] = { SHEAF__WRITES(s.y, N * sizeof *x),
                                           SHEAF__READS(s.a, N * sizeof *x) };
        sheaf__run(device, &(sheaf__call){ SHEAF__OP_ADD, &s, SHEAF__OPERANDS(operand),
                                           .whole = whole_doubles });
        sheaf__op_add(device, y, a, N);
        CHECK_OK(sheaf__device_check(device));
        CHECK_OK(sheaf__download(device, d == 0 ? want : got, y, N * sizeof *x));
        if (d > 0)
            CHECK_BYTES(real[d]->name, got, want, N * sizeof *x);
        sheaf__device_close(device);
    }
    for (int64_t i = 0; i < N; i++)
        assert_true(want[i] == 3 * x[i]);
    free(x);
    free(got);
    free(want);
}

TEST(test_call__dry_runs_nothing)
{
    sheaf__device *dry = open_device(&sheaf__dry);
    float *at = take(dry, ALL * sizeof(float));
    run_rows(dry, (arguments){ at, at + 32, at + 64, 4, 8, 8 }, -1);
    CHECK_OK(sheaf__device_check(dry));
    sheaf__device_close(dry);
}

/* ---- memory that is out of reach ---- */

/* Is the process ended by a signal that does it? */
static bool faults(void (*it)(sheaf__device *device, float *at, int how), sheaf__device *device,
                   float *at, int how)
{
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not the handler of the test framework */
        signal(SIGBUS, SIG_DFL);
        alarm(20);
        it(device, at, how);
        _exit(0);
    }
    int end;
    waitpid(child, &end, 0);
    return WIFSIGNALED(end) && (WTERMSIG(end) == SIGSEGV || WTERMSIG(end) == SIGBUS);
}

static void touch(sheaf__device *device, float *at, int write)
{
    if (write)
        *(volatile float *)at = 1;
    else
        (void)*(volatile float *)at;
}

/* In the child there are no other threads: one row runs in its own. */
static void lacks(sheaf__device *device, float *at, int missing)
{
    run_rows(device, (arguments){ at, at + 32, at + 64, 1, 8, 8 }, missing);
}

TEST(test_call__memory_is_reached_by_operands_only)
{
    for (size_t d = 1; d < ARRAY_LEN(real); d++) {
        sheaf__device *device = open_device(real[d]);
        float *at = take(device, ALL * sizeof(float));
        assert_true(faults(touch, device, at, 0));
        assert_true(faults(touch, device, at, 1));
        run_rows(device, (arguments){ at, at + 32, at + 64, 1, 8, 8 }, -1);
        assert_true(faults(touch, device, at + ALL - 1, 0)); /* also after an operation */
        assert_false(faults(lacks, device, at, -1));
        for (int missing = 0; missing < 3; missing++)
            if (!faults(lacks, device, at, missing))
                fail_msg("%s: operand %d is not missed", real[d]->name, missing);
        sheaf__device_close(device);
    }
}

/* ---- failures ---- */

/* The first stays, nothing runs after it, and who looks at it, or downloads, gets it once. */
TEST(test_call__a_failure_stays)
{
    static const char *const what[] = { "the download", "the upload" };
    for (int when = 0; when < 2; when++) {
        sheaf__device *device = open_device(&counted_device);
        float *at = take(device, ALL * sizeof(float)), x[ALL], y[ALL];
        const arguments s = { at, at + 32, NULL, 4, 8, 8 };
        fill(x);
        seen.left = -1;
        CHECK_OK(sheaf__upload(device, at, x, sizeof x));
        CHECK_OK(sheaf__device_check(device));
        seen.left = when == 0 ? 1 : 2; /* of two downloads, the second; the upload */
        run_rows(device, s, -1);
        assert_int_equal(seen.left, -1);
        const int before = seen.downloads + seen.uploads;
        run_rows(device, s, -1);
        sheaf__op_zero(device, at, ALL, SHEAF_F32);
        assert_int_equal(seen.downloads + seen.uploads, before);
        sheaf__device_fail(device, sheaf_fail(SHEAF_E_IO, "another failure"));
        CHECK_FAILS(when == 0 ? sheaf__device_check(device)
                              : sheaf__download(device, y, at, sizeof y),
                    SHEAF_E_IO, what[when]);
        CHECK_OK(sheaf__device_check(device));
        CHECK_OK(sheaf__download(device, y, at, sizeof y));
        CHECK_BYTES("what was there", y, x, sizeof y);
        run_rows(device, s, -1);
        CHECK_OK(sheaf__device_check(device));
        CHECK_OK(sheaf__download(device, y, at, sizeof y));
        assert_true(y[0] == 2 * x[32] && y[31] == 2 * x[63]);
        seen.left = 0;
        run_rows(device, s, -1);
        sheaf__device_close(device); /* a failure at which nothing looks is no leak */
    }
}

TEST(test_transfers__failures_are_statuses)
{
    sheaf__device *device = open_device(&counted_device);
    float *at = take(device, ALL * sizeof(float)), x[ALL], *host = x;
    fill(x);
    seen.left = 0;
    CHECK_FAILS(sheaf__upload(device, at, x, sizeof x), SHEAF_E_IO, "the upload");
    seen.left = 0;
    CHECK_FAILS(sheaf__download(device, x, at, sizeof x), SHEAF_E_IO, "the download");
    seen.left = 0;
    CHECK_FAILS(sheaf__borrow(&host, device, at, sizeof x, true), SHEAF_E_IO, "the download");
    assert_null(host);
    CHECK_OK(sheaf__return(host, device, at, sizeof x, true));
    CHECK_OK(sheaf__borrow(&host, device, at, sizeof x, true));
    seen.left = 0;
    CHECK_FAILS(sheaf__return(host, device, at, sizeof x, true), SHEAF_E_IO, "the upload");
    seen.left = 0;
    CHECK_FAILS(sheaf__upload_rounded(device, at, SHEAF_BF16, x, SHEAF_F32, 8), SHEAF_E_IO,
                "the upload");
    CHECK_OK(sheaf__device_check(device)); /* not the operations' */
    sheaf__device_close(device);
}

/* ---- transfers ---- */

static const sheaf__device_class *const all[] = { &sheaf__cpu, &checked_device, &copied_device,
                                                  &sheaf__dry };

static void check_counts(const sheaf__device *device, size_t up, size_t down)
{
    if (device->uploaded != up || device->downloaded != down)
        fail_msg("%s: %zu bytes up, %zu down; wanted %zu, %zu", device->class->name,
                 (size_t)device->uploaded, (size_t)device->downloaded, up, down);
}

/* Bytes go where they should, and are counted, on every device in the same way. */
TEST(test_transfers__move_and_count)
{
    for (size_t d = 0; d < ARRAY_LEN(all); d++) {
        sheaf__device *device = open_device(all[d]);
        const bool dry = all[d]->counts;
        float *at = take(device, ALL * sizeof(float)), x[ALL], y[ALL] = { 0 }, *host;
        uint16_t half[8];
        fill(x);
        CHECK_OK(sheaf__upload(device, at, x, sizeof x));
        CHECK_OK(sheaf__upload(device, at + 1, x + 5, 12));
        CHECK_OK(sheaf__upload(device, at, x, 0));
        check_counts(device, sizeof x + 12, 0);
        CHECK_OK(sheaf__download(device, y + 1, at + 1, 16));
        check_counts(device, sizeof x + 12, 16);
        assert_true(dry || (y[0] == 0 && y[1] == x[5] && y[3] == x[7] && y[4] == x[4]));

        CHECK_OK(sheaf__borrow(&host, device, at, 16, true));
        assert_true(dry ? host == NULL : host[0] == x[0] && host[1] == x[5]);
        assert_true((host == at) == (all[d]->shared && !dry));
        if (!dry)
            host[2] = 77;
        CHECK_OK(sheaf__return(host, device, at, 16, true));
        CHECK_OK(sheaf__borrow(&host, device, at, 16, false));
        CHECK_OK(sheaf__return(host, device, at, 16, false));
        check_counts(device, sizeof x + 12 + 16, 16 + 16);
        CHECK_OK(sheaf__download(device, y, at, 16));
        assert_true(dry || y[2] == 77);

        CHECK_OK(sheaf__upload_rounded(device, at, SHEAF_BF16, x, SHEAF_F32, 8));
        CHECK_OK(sheaf__download(device, half, at, sizeof half));
        for (int i = 0; i < 8 && !dry; i++) { /* small whole numbers: nothing is rounded away */
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            assert_int_equal(half[i], bits >> 16);
        }
        check_counts(device, sizeof x + 12 + 16 + 16, 16 + 16 + 16 + 16);
        sheaf__device_close(device);
    }
}

/* On the processor a place is its own copy. */
TEST(test_transfers__to_itself_cost_nothing)
{
    sheaf__device *cpu = open_device(&sheaf__cpu);
    float *at = take(cpu, 64), *host;
    at[3] = 5;
    CHECK_OK(sheaf__upload(cpu, at, at, 64));
    CHECK_OK(sheaf__download(cpu, at, at, 64));
    CHECK_OK(sheaf__borrow(&host, cpu, at, 64, false));
    assert_ptr_equal(host, at);
    CHECK_OK(sheaf__return(host, cpu, at, 64, true));
    assert_true(at[3] == 5);
    sheaf__device_close(cpu);
}

/* ---- memory with two sides, and the host's own ---- */

TEST(test_mirror__two_sides)
{
    for (size_t d = 0; d < ARRAY_LEN(all); d++) {
        sheaf__device *device = open_device(all[d]);
        const bool dry = all[d]->counts, one = all[d]->shared && !dry;
        sheaf__mirror m;
        CHECK_OK(sheaf__mirror_alloc(&m, device, 40, SHEAF_MEM_INPUTS));
        assert_int_equal(m.bytes, 40);
        assert_int_equal(device->in_use[SHEAF_MEM_INPUTS], 64);
        assert_true((m.host == m.device) == one);
        float *host = m.host; /* memory also on dry */
        for (int i = 0; i < 10; i++)
            host[i] = (float)i;
        CHECK_OK(sheaf__mirror_upload(&m, device, 20));
        if (!dry)
            sheaf__op_add(device, m.device, m.device, 5);
        assert_true(host[4] == (one ? 8 : 4));
        CHECK_OK(sheaf__download(device, m.host, m.device, 16));
        assert_true(dry || (host[3] == 6 && host[4] == (one ? 8 : 4)));
        check_counts(device, 20, 16);
        sheaf__mirror_free(&m, device);
        assert_null(m.host);
        assert_null(m.device);
        sheaf__mirror_free(&m, device);
        assert_int_equal(device->in_use[SHEAF_MEM_INPUTS], 0);
        CHECK_OK(sheaf__mirror_alloc(&m, device, 0, SHEAF_MEM_INPUTS));
        CHECK_OK(sheaf__mirror_upload(&m, device, 0));
        sheaf__mirror_free(&m, device);
        sheaf__device_close(device);
    }
}

/* Planned as the device's where that is the host's; else it takes none of it. */
TEST(test_host_alloc__is_the_devices_where_that_is_the_hosts)
{
    for (size_t d = 0; d < ARRAY_LEN(all); d++) {
        sheaf__device *device = open_device(all[d]);
        void *block;
        CHECK_OK(sheaf__host_alloc(&block, device, 100, SHEAF_MEM_INPUTS));
        assert_int_equal(device->in_use[SHEAF_MEM_INPUTS], device->planned->shared ? 128 : 0);
        if (!all[d]->counts)
            memset(block, 1, 100);
        sheaf__host_free(device, block);
        assert_int_equal(device->in_use[SHEAF_MEM_INPUTS], 0);
        sheaf__host_free(device, NULL);
        sheaf__device_close(device);
    }
    sheaf__device *plan;
    void *block = NULL;
    CHECK_OK(sheaf__device_plan(&plan, &copied_device, 1, NULL));
    CHECK_OK(sheaf__host_alloc(&block, plan, (size_t)1 << 50, SHEAF_MEM_INPUTS));
    assert_non_null(block); /* as where there is memory; not to be touched */
    assert_int_equal(plan->in_use[SHEAF_MEM_INPUTS], 0);
    sheaf__host_free(plan, block);
    sheaf__device_close(plan);
}

/* ---- classes ---- */

const sheaf__device_class *const sheaf__more_devices[] = { &copied_device, NULL };

TEST(test_class__is_found_by_its_name)
{
    const sheaf__device_class *class = NULL;
    CHECK_OK(sheaf__device_find(&class, NULL));
    assert_ptr_equal(class, &sheaf__cpu);
    CHECK_OK(sheaf__device_find(&class, "cpu"));
    assert_ptr_equal(class, &sheaf__cpu);
    CHECK_FAILS(sheaf__device_find(&class, "dry"), SHEAF_E_ARG, "dry"); /* plans only */
    CHECK_OK(sheaf__device_find(&class, "copied"));
    assert_ptr_equal(class, &copied_device);
    CHECK_FAILS(sheaf__device_find(&class, "checked"), SHEAF_E_ARG, "checked");
}
