/* tiles_test.c - the order `tiles` of bfloat16 sums is what the tile unit computes.
 *
 * amx/tdpbf16ps.safetensors of $SHEAF_GOLDEN (or of the committed subset: single elements) was
 * recorded on a processor that has the unit: eight TDPBF16PS steps on an accumulator. Where that
 * started from zero the result is a product of 256 summed elements, and the reference and all
 * kernels must give it. Which NaN comes out is not defined, that one does is. */
#include "tests/parity/recorded.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "ops/matmul/matmul.h"
#include "tests/golden.h"

enum { STEPS = 8, DEEP = 32 * STEPS, MOST = 16 };

/* cases of A [cases, 8, rows, 32], B [cases, 8, 16, 2 * cols] (word n of row q is the pair 2q, 2q +
 * 1 of column n), c and d [cases, rows, cols] */
typedef struct recording {
    int64_t cases, rows, cols;
    uint16_t *a, *b;
    uint32_t *c, *d;
} recording;

static int load(void **state)
{
    static recording r;
    const sheaf_safetensors *file = record(golden("amx/tdpbf16ps.safetensors"));
    const sheaf_safetensors_entry *a, *b, *d;
    r = (recording){ .a = raw_of(file, "a", &a),
                     .b = raw_of(file, "b", &b),
                     .c = raw_of(file, "c", NULL),
                     .d = raw_of(file, "d", &d) };
    r.cases = d->shape[0];
    r.rows = d->shape[1];
    r.cols = d->shape[2];
    assert_int_equal(a->bytes, r.cases * r.rows * DEEP * 2);
    assert_int_equal(b->bytes, r.cases * r.cols * DEEP * 2);
    assert_true(r.rows <= MOST && r.cols <= MOST);
    *state = &r;
    return 0;
}

static int drop(void **state)
{
    release_kept(0);
    return 0;
}

/* The case as a product: A [rows, 256] and B [256, cols]. */
static sheaf__term term_of(const recording *r, int64_t i, uint16_t a[MOST][DEEP],
                           uint16_t b[DEEP][MOST])
{
    for (int64_t k = 0; k < DEEP; k++) {
        const int64_t step = k / 32, q = k % 32 / 2;
        for (int64_t m = 0; m < r->rows; m++)
            a[m][k] = r->a[((i * STEPS + step) * r->rows + m) * 32 + k % 32];
        for (int64_t n = 0; n < r->cols; n++)
            b[k][n] = r->b[((i * STEPS + step) * 16 + q) * 2 * r->cols + 2 * n + k % 2];
    }
    return (
        sheaf__term){ .a = a, .lda = DEEP, .form = SHEAF__B_KN, .b = b, .ldb = MOST, .k = DEEP };
}

TEST(test_tiles__every_kernel_gives_what_the_unit_gave)
{
    static const char *const columns[] = { "ref", "avx2", "avx512", "avx512bf16", "amx" };
    const recording *r = *state;
    int64_t compared = 0, nans = 0;
    for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
        sheaf__device *device;
        if (sheaf__kernels_for(columns[c]) == NULL) {
            print_message("%s: not on this machine, not compared\n", columns[c]);
            continue;
        }
        CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, columns[c], 0));
        device->sums = SHEAF_SUMS_TILES;
        for (int64_t i = 0; i < r->cases; i++) {
            uint16_t a[MOST][DEEP], b[DEEP][MOST];
            uint32_t got[MOST * MOST];
            const uint32_t *start = r->c + i * r->rows * r->cols,
                           *want = r->d + i * r->rows * r->cols;
            if (start[0] != 0)
                continue;
            const sheaf__term term = term_of(r, i, a, b);
            const sheaf__product job = { .m = r->rows,
                                         .n = r->cols,
                                         .dtype = SHEAF_BF16,
                                         .nslices = 1,
                                         .term = &term,
                                         .nterms = 1,
                                         .y = got,
                                         .ldy = r->cols,
                                         .out = SHEAF_F32,
                                         .alpha = 1,
                                         .round_to = SHEAF_F32 };
            sheaf__products(device, &job, 1);
            for (int64_t e = 0; e < r->rows * r->cols; e++, compared++) {
                const bool nan = (want[e] & 0x7fffffffu) > 0x7f800000u;
                nans += nan;
                if (nan ? got[e] != 0xffc00000u : got[e] != want[e])
                    fail_msg("%s, case %d, element %d: %08x, recorded %08x", columns[c], (int)i,
                             (int)e, got[e], want[e]);
            }
        }
        sheaf__device_close(device);
    }
    assert_true(compared >= 10 && nans > 0);
}

/* ---- a system that does not let a process use the tiles ---- */

static void refuse_arch_prctl(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { ARRAY_LEN(code), code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(90);
}

static int without_permission(void)
{
    sheaf__device *device = NULL;
    refuse_arch_prctl();
    sheaf_status *st = sheaf__device_open(&device, &sheaf__cpu, 1, "amx", 0);
    if (st == NULL)
        return 1;
    sheaf_status_free(st);
    if (sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0) != NULL)
        return 2;
    if (device->units.tiles)
        return 3;
    uint16_t a[64], b[64];
    float y = 0;
    for (int i = 0; i < 64; i++)
        a[i] = b[i] = 0x3f80;
    const sheaf__term term = { .a = a, .lda = 64, .form = SHEAF__B_NK, .b = b, .ldb = 64, .k = 64 };
    const sheaf__product job = { .m = 1,
                                 .n = 1,
                                 .dtype = SHEAF_BF16,
                                 .nslices = 1,
                                 .term = &term,
                                 .nterms = 1,
                                 .y = &y,
                                 .ldy = 1,
                                 .out = SHEAF_F32,
                                 .alpha = 1,
                                 .round_to = SHEAF_F32 };
    device->sums = SHEAF_SUMS_TILES;
    sheaf__products(device, &job, 1);
    sheaf__device_close(device);
    return y == 64 ? 0 : 4;
}

TEST(test_tiles__a_refused_permission_leaves_the_other_kernels)
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(without_permission());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 90)
        print_message("this system takes no filter of system calls: not tried\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

FIXTURE(load, drop);
