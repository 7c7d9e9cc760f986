/* kept_test.c - activations in 8 bits between forward and backward: gradients within the bound that
 * the form has, the same for any slices that a rank owns, and nothing left behind; and activations
 * that lie elsewhere meanwhile, which changes nothing. */

#include "ops/offload.h"
#include "tests/tape_ends.h"
#include "tape/vision.h"

enum { ROWS = 64, FIRST = 40, COLS = 71, N = ROWS * COLS, BLOCK = 32 };
static const int64_t parts[] = { FIRST, COLS - FIRST };

typedef struct problem {
    float x[N], dy[N], y[N], dx[N];
    bool exact; /* another op keeps x as it is */
    bool fails; /* that op's backward pass does */
    bool away;  /* activations lie in a file between the passes */
    uint64_t read, written;
    size_t peak, left; /* bytes of activations at the fullest moment, and afterwards */
    bool dead, held;   /* of x after the forward pass: it has no memory of its own; it is shrunk */
    bool stored;       /* or away */
} problem;

static problem *now; /* read by a keeper's backward pass */

static void fill(problem *p, float size)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < N; i++) {
        p->x[i] = size * number(i, 1);
        p->dy[i] = number(i, 2);
    }
}

/* Recorded last, so its backward pass is the first. */
static sheaf_status *keeper_forward(sheaf__tape *tape, sheaf__op *op)
{
    return NULL;
}

static sheaf_status *keeper_backward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *x = *(sheaf__value **)op->params;
    now->dead = x->data == NULL;
    now->held = x->shrunk != NULL;
    now->stored = x->stored;
    return now->fails ? sheaf_fail(SHEAF_E_NUMBER, "a test") : NULL;
}

/* y = gelu(x), of columns [begin, end). */
static void run(problem *p, sheaf__kept kept, int64_t begin, int64_t end, const int64_t *part,
                int count)
{
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    sheaf__context c = {
        .device = device, .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32
    };
    sheaf__tape *tape;
    if (p->away)
        CHECK_OK(sheaf__offload_new(&c.activations, device, SHEAF_MEM_ACTIVATIONS, "/tmp"));
    CHECK_OK(sheaf__tape_new(&tape, &c));
    now = p;
    sheaf__value *x = source_of(tape, ROWS, end - begin, false, p->x, p->dx, COLS, begin);
    x->part = part;
    x->parts = count;
    sheaf__value *y = sheaf__record_gelu(tape, x, false);
    sink_of(tape, y, p->dy, p->y, COLS, begin);
    sheaf__op *op =
        sheaf__tape_op(tape, "keeper", keeper_forward, keeper_backward, sizeof(sheaf__value *));
    *(sheaf__value **)op->params = x;
    if (p->exact)
        sheaf__op_arg(op, x, SHEAF__READ | SHEAF__KEEP);
    CHECK_OK(sheaf__tape_compile(tape, true, kept));
    for (int i = 0; i < 2; i++) {
        sheaf_status *st = sheaf__tape_run(tape);
        assert_int_equal(st != NULL, p->fails);
        sheaf_status_free(st);
        p->left = device->in_use[SHEAF_MEM_ACTIVATIONS];
    }
    p->peak = device->peak_of[SHEAF_MEM_ACTIVATIONS];
    if (p->away) {
        const sheaf__offload_costs costs = sheaf__offload_costs_of(c.activations);
        p->read = costs.read;
        p->written = costs.written;
    }
    sheaf__tape_free(tape);
    sheaf__offload_free(c.activations);
    sheaf__device_close(device);
}

/* |dx' - dx| <= |dy| max |gelu''| |x' - x|, gelu'' = (2 - x^2) phi(x), 0.8 at most, and |x' - x| is
 * a 127th of the largest of the block at most (ops/shrink/shrink.h); of gradients of 1 some 1e-6
 * are the arithmetic's. */
TEST(test_int8__gradients_are_within_the_bound_of_the_form)
{
    static problem exact, near;
    double most = 0;
    fill(&exact, 3);
    fill(&near, 3);
    run(&exact, SHEAF__KEPT_ALL, 0, COLS, parts, 2);
    run(&near, SHEAF__KEPT_INT8, 0, COLS, parts, 2);
    CHECK_BYTES("what is computed forward", near.y, exact.y, sizeof near.y);
    assert_true(!exact.dead && !exact.held && near.dead && near.held);
    assert_int_equal(near.left, 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            const int first = c < FIRST ? 0 : FIRST, last = c < FIRST ? FIRST : COLS,
                      begin = first + (c - first) / BLOCK * BLOCK,
                      end = begin + BLOCK < last ? begin + BLOCK : last;
            double largest = 0;
            for (int i = begin; i < end; i++)
                largest = fmax(largest, fabs(exact.x[r * COLS + i]));
            const double off = fabs(near.dx[r * COLS + c] - exact.dx[r * COLS + c]);
            assert_true(off <= fabs(near.dy[r * COLS + c]) * 0.8 * largest / 127 + 1e-6);
            most = fmax(most, off);
        }
    assert_true(most > 1e-4); /* it is rounded */
}

/* A rank that owns one slice, and one that owns both. */
TEST(test_int8__a_slice_does_not_know_its_neighbours)
{
    static problem both, each;
    fill(&both, 3);
    fill(&each, 3);
    run(&both, SHEAF__KEPT_INT8, 0, COLS, parts, 2);
    run(&each, SHEAF__KEPT_INT8, 0, FIRST, parts, 1);
    run(&each, SHEAF__KEPT_INT8, FIRST, COLS, parts + 1, 1);
    CHECK_BYTES("gradients", each.dx, both.dx, sizeof each.dx);
    fill(&each, 3);
    run(&each, SHEAF__KEPT_INT8, 0, COLS, NULL, 0);
    assert_memory_not_equal(each.dx, both.dx, sizeof each.dx); /* of what is whole, others */
}

TEST(test_int8__what_an_op_keeps_exactly_stays)
{
    static problem all, exact;
    fill(&all, 3);
    fill(&exact, 3);
    exact.exact = true;
    run(&all, SHEAF__KEPT_ALL, 0, COLS, parts, 2);
    run(&exact, SHEAF__KEPT_INT8, 0, COLS, parts, 2);
    assert_false(exact.dead || exact.held);
    CHECK_BYTES("gradients", exact.dx, all.dx, sizeof all.dx);
}

TEST(test_int8__infinity_and_nan_reach_the_gradient)
{
    static const float bad[] = { INFINITY, NAN };
    static problem p;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int found = 0;
        fill(&p, 3);
        p.x[COLS + 3] = bad[i];
        run(&p, SHEAF__KEPT_INT8, 0, COLS, parts, 2);
        for (int k = 0; k < N; k++)
            found += !isfinite(p.dx[k]);
        assert_int_equal(found, BLOCK); /* no other block */
    }
}

TEST(test_int8__a_failure_leaves_nothing)
{
    static problem p;
    fill(&p, 3);
    p.fails = true;
    run(&p, SHEAF__KEPT_INT8, 0, COLS, parts, 2);
    assert_true(p.held);
    assert_int_equal(p.left, 0);
}

/* Backward reads x, in one form or the other. */
TEST(test_away__gradients_are_those_of_a_run_without)
{
    static problem here, away;
    static const sheaf__kept forms[] = { SHEAF__KEPT_ALL, SHEAF__KEPT_INT8 };
    const size_t bytes[] = { sizeof here.x, ROWS * (COLS + (FIRST + 31) / 32 + 1) };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        fill(&here, 3);
        fill(&away, 3);
        away.away = true;
        run(&here, forms[i], 0, COLS, parts, 2);
        run(&away, forms[i], 0, COLS, parts, 2);
        CHECK_BYTES("what is computed forward", away.y, here.y, sizeof away.y);
        CHECK_BYTES("gradients", away.dx, here.dx, sizeof away.dx);
        assert_true(away.dead && away.stored && !away.held);
        assert_true(away.written == 2 * bytes[i] && away.read == away.written);
        assert_int_equal(away.left, 0);
    }
}

TEST(test_away__a_failure_leaves_nothing)
{
    static problem p;
    fill(&p, 3);
    p.fails = p.away = true;
    run(&p, SHEAF__KEPT_ALL, 0, COLS, parts, 2);
    assert_true(p.stored);
    assert_int_equal(p.left, 0);
}
