/* head_rows_test.c - rows that the head reads: which they are, that sums over them have the bytes
 * of sums over all rows, and that the others get a gradient of zero. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/check.h"

#include "tape/linear_inner.h"
#include "tape/head_rows.h"

enum { ALL = 1003, IN = 3, OUT = 5, UNIT = SHEAF__HEAD_ROWS_UNIT };

static sheaf__context context_on(const sheaf__device_class *class, sheaf_dtype dtype)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype };
    CHECK_OK(sheaf__device_open(&c.device, class, 2, NULL, 0));
    return c;
}

static sheaf__context context_of(sheaf_dtype dtype)
{
    return context_on(&sheaf__cpu, dtype);
}

/* The processor, and those whose memory is elsewhere. */
enum { DEVICES = 3 };
static const sheaf__device_class *const devices[DEVICES] = { &sheaf__cpu, &checked_device,
                                                             &copied_device };

/* Rows with a label: a span across blocks of 256, all, none, one alone, the last one, spans with
 * blocks between them. */
enum { WAYS = 6 };
static bool has_label(int way, int64_t row)
{
    switch (way) {
    case 0: return row >= 250 && row < 300;
    case 1: return true;
    case 2: return false;
    case 3: return row == 513;
    case 4: return row == ALL - 1;
    default: return row < 3 || (row > 600 && row % 100 < 40);
    }
}

static void label_rows(int32_t *label, int way)
{
    for (int64_t r = 0; r < ALL; r++)
        label[r] = has_label(way, r) ? (int32_t)r : SHEAF__IGNORED;
}

static float number(int64_t row, int64_t column)
{
    return sinf((float)(row * 13 + column)) * (float)(1 << row % 12);
}

static void put_row(const sheaf__context *c, void *x, int64_t at, int64_t row, int64_t cols)
{
    float wide[OUT];
    for (int64_t k = 0; k < cols; k++)
        wide[k] = number(row, k);
    c->device->kernels->round(sheaf__at(x, at * cols, c->dtype), c->dtype, wide, cols);
}

static sheaf_status *give_x(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    float x[ALL * IN];
    for (int64_t r = 0; r < ALL; r++)
        put_row(c, x, r, r + 3, IN);
    return sheaf__upload(c->device, op->arg[0].value->data, x,
                         ALL * IN * sheaf_dtype_bytes(c->dtype));
}

/* A tape with the rows of x that the head reads. */
typedef struct taken {
    sheaf__tape *tape;
    sheaf__head_rows wanted;
    sheaf__value *x, *y;
} taken;

static taken take_rows(sheaf__context *c, const sheaf__head_run *run)
{
    taken t;
    CHECK_OK(sheaf__tape_new(&t.tape, c));
    t.x = sheaf__tape_value(t.tape, "x", ALL, IN, c->dtype);
    sheaf__op_arg(sheaf__tape_op(t.tape, "x", give_x, NULL, 0), t.x, SHEAF__MAKE);
    t.wanted = sheaf__record_head_rows(t.tape, ALL, NULL, run);
    t.y = sheaf__record_index_select(t.tape, &t.wanted, t.x);
    sheaf__value *const pinned[] = { t.x, t.y, t.wanted.which };
    for (size_t i = 0; i < ARRAY_LEN(pinned); i++)
        pinned[i]->pinned = true;
    assert_int_equal(sheaf__rows_present(t.y), ALL); /* until it runs */
    CHECK_OK(sheaf__tape_compile(t.tape, false, false));
    CHECK_OK(sheaf__tape_run(t.tape));
    return t;
}

static void release(taken *t, sheaf__context *c)
{
    sheaf__tape_free(t->tape);
    sheaf__device_close(c->device);
}

static void check_rows(const taken *t, const bool *read)
{
    static float x[ALL * IN], y[ALL * IN];
    static int32_t which[ALL];
    sheaf__device *device = sheaf__tape_context(t->tape)->device;
    const int32_t *place = t->wanted.place;
    const size_t there = (size_t)sheaf__rows_present(t->y);
    int64_t n = 0;
    CHECK_OK(sheaf__download(device, which, t->wanted.which->data, there * sizeof *which));
    CHECK_OK(sheaf__download(device, x, t->x->data, sizeof x));
    CHECK_OK(sheaf__download(device, y, t->y->data, there * IN * sizeof *y));
    for (int64_t r = 0; r < ALL; r++) {
        bool stays = false;
        for (int64_t i = r / UNIT * UNIT; i < r / UNIT * UNIT + UNIT && i < ALL; i++)
            stays |= read[i];
        assert_int_equal(place[r], stays ? n : -1);
        if (stays)
            assert_int_equal(which[n], r);
        if (stays)
            assert_memory_equal(y + n * IN, x + r * IN, IN * sizeof(float));
        n += stays;
    }
    assert_int_equal(there, n);
}

TEST(test_wanted__are_whole_units_with_a_row_that_is_read)
{
    static const int32_t pick[] = { 700, 2, 31, 32 };
    int32_t label[ALL];
    for (int i = 0; i < (WAYS + 2) * DEVICES; i++) {
        const int way = i / DEVICES;
        sheaf__context c = context_on(devices[i % DEVICES], SHEAF_F32);
        const bool picked = way == WAYS;
        bool read[ALL] = { false };
        label_rows(label, way);
        const sheaf__head_run run = { .label = label,
                                      .all_rows = way >= WAYS,
                                      .pick = picked ? pick : NULL,
                                      .npick = picked ? ARRAY_LEN(pick) : 0 };
        for (int64_t r = 0; r < ALL; r++)
            read[r] = way > WAYS || (way < WAYS && has_label(way, r));
        for (size_t k = 0; picked && k < ARRAY_LEN(pick); k++)
            read[pick[k]] = true;
        taken t = take_rows(&c, &run);
        check_rows(&t, read);
        release(&t, &c);
    }
}

/* dy^T x over the rows that are there, and over all, where dy of a row without a label is zero. */
static void compare_sums(sheaf__context *c, const taken *t, int way)
{
    static char some[ALL * OUT * 4], all[ALL * OUT * 4];
    float got[OUT * IN] = { 0 }, want[OUT * IN] = { 0 };
    const int32_t *which = t->wanted.which->data;
    const sheaf__value every = { .rows = ALL, .dtype = c->dtype };
    sheaf__batch *b;
    memset(some, 0, sizeof some);
    memset(all, 0, sizeof all);
    for (int64_t r = 0; r < ALL; r++)
        if (has_label(way, r))
            put_row(c, all, r, 2 * r, OUT);
    for (int64_t i = 0; i < sheaf__rows_present(t->y); i++)
        if (has_label(way, which[i]))
            put_row(c, some, i, 2 * which[i], OUT);
    CHECK_OK(sheaf__batch_new(&b, c));
    CHECK_OK(sheaf__batch_weight_gradient(b, got, OUT, IN, some, OUT, t->y->data, IN, t->y));
    CHECK_OK(sheaf__batch_weight_gradient(b, want, OUT, IN, all, OUT, t->x->data, IN, &every));
    sheaf__batch_run(c, b);
    sheaf__batch_free(b);
    assert_memory_equal(got, want, sizeof want);
}

TEST(test_wanted__sums_over_them_are_those_over_all_rows)
{
    static const struct {
        sheaf_dtype dtype;
        sheaf_sums sums;
    } orders[] = { { SHEAF_F32, SHEAF_SUMS_PAIRS },  { SHEAF_F16, SHEAF_SUMS_PAIRS },
                   { SHEAF_BF16, SHEAF_SUMS_PAIRS }, { SHEAF_BF16, SHEAF_SUMS_TILES },
                   { SHEAF_BF16, SHEAF_SUMS_MMA16 }, { SHEAF_F16, SHEAF_SUMS_MMA8 } };
    int32_t label[ALL];
    const sheaf__head_run run = { .label = label };
    for (size_t i = 0; i < ARRAY_LEN(orders); i++)
        for (int way = 0; way < WAYS; way++) {
            sheaf__context c = context_of(orders[i].dtype);
            c.device->sums = orders[i].sums;
            label_rows(label, way);
            taken t = take_rows(&c, &run);
            if (sheaf__rows_present(t.y) > 0)
                compare_sums(&c, &t, way);
            release(&t, &c);
        }
}

/* Chains of tensor cores end after 4096 rows, of which some may not be there. */
TEST(test_wanted__chains_end_where_those_of_all_rows_do)
{
    enum { LONG = 9000 };
    static float all_dy[LONG * OUT], all_x[LONG * IN], some_dy[LONG * OUT], some_x[LONG * IN];
    static int32_t which[LONG];
    int64_t begin[LONG / 256 + 2], count = 0;
    sheaf__context c = context_of(SHEAF_BF16);
    c.device->sums = SHEAF_SUMS_MMA16;
    memset(all_dy, 0, sizeof all_dy);
    for (int64_t r = 0; r < LONG; r++) {
        put_row(&c, all_x, r, r, IN);
        if (r / UNIT % 3 == 1)
            continue;
        put_row(&c, all_dy, r, 2 * r, OUT);
        put_row(&c, some_x, count, r, IN);
        put_row(&c, some_dy, count, 2 * r, OUT);
        which[count++] = (int32_t)r;
    }
    const sheaf__row_blocks blocks = { sheaf__blocks_fill(begin, which, count, &c), begin, true };
    assert_int_equal(blocks.n, 3);
    const sheaf__value every = { .rows = LONG, .dtype = c.dtype }, some = {
        .rows = LONG, .dtype = c.dtype, .there = &count, .blocks = &blocks
    };
    float got[OUT * IN] = { 0 }, want[OUT * IN] = { 0 };
    sheaf__batch *b;
    CHECK_OK(sheaf__batch_new(&b, &c));
    CHECK_OK(sheaf__batch_weight_gradient(b, got, OUT, IN, some_dy, OUT, some_x, IN, &some));
    CHECK_OK(sheaf__batch_weight_gradient(b, want, OUT, IN, all_dy, OUT, all_x, IN, &every));
    sheaf__batch_run(&c, b);
    sheaf__batch_free(b);
    assert_memory_equal(got, want, sizeof want);
    sheaf__device_close(c.device);
}

/* Lists grow with the rows: of a long context, of many prompts. */
TEST(test_wanted__any_number_of_rows)
{
    enum { MANY = 1 << 20 };
    static const int32_t pick[] = { 5, MANY - 1 };
    const sheaf__head_run run = { .all_rows = true, .pick = pick, .npick = ARRAY_LEN(pick) };
    sheaf__context c = context_of(SHEAF_F32);
    sheaf__tape *tape;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    const sheaf__head_rows wanted = sheaf__record_head_rows(tape, MANY, NULL, &run);
    wanted.which->pinned = true;
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_OK(sheaf__tape_run(tape));
    assert_int_equal(*wanted.count, 2 * UNIT);
    assert_int_equal(((const int32_t *)wanted.which->data)[2 * UNIT - 1], MANY - 1);
    assert_int_equal(wanted.blocks->n, 2);
    sheaf__tape_free(tape);
    sheaf__device_close(c.device);
}

/* Rows that known labels leave, or the most that labels or picked rows can. */
TEST(test_wanted__a_plan_counts_what_is_known)
{
    static const int32_t pick[] = { 0 };
    int32_t label[ALL];
    label_rows(label, 0); /* rows 250 to 299 */
    const struct {
        sheaf__head_run run;
        int64_t want;
    } cases[] = { { { .unknown = true }, ALL },
                  { { .label = label }, 3 * UNIT },
                  { { .label = label, .all_rows = true }, ALL },
                  { { .unknown = true, .most = 100 }, 100 },
                  { { .unknown = true, .most = INT64_MAX }, ALL },
                  { { .unknown = true, .all_rows = true, .pick = pick, .npick = 7 }, 7 * UNIT },
                  { { .unknown = true, .all_rows = true, .pick = pick, .npick = ALL }, ALL } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32 };
        sheaf__tape *tape;
        CHECK_OK(sheaf__device_open(&c.device, &sheaf__dry, 1, NULL, 0));
        CHECK_OK(sheaf__tape_new(&tape, &c));
        const sheaf__head_rows wanted = sheaf__record_head_rows(tape, ALL, NULL, &cases[i].run);
        CHECK_OK(sheaf__tape_compile(tape, false, false));
        CHECK_OK(sheaf__tape_run(tape));
        assert_int_equal(*wanted.count, cases[i].want);
        sheaf__tape_free(tape);
        sheaf__device_close(c.device);
    }
}

/* ---- the way back ---- */

static float back[ALL * IN];

static sheaf_status *keep_back(sheaf__tape *tape, sheaf__op *op)
{
    return sheaf__download(sheaf__tape_context(tape)->device, back, op->arg[0].value->grad,
                           sizeof back);
}

static sheaf_status *nothing(sheaf__tape *tape, sheaf__op *op)
{
    return NULL;
}

static sheaf_status *give_numbers(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *y = op->arg[0].value;
    const int64_t n = sheaf__rows_present(y) * y->cols;
    float all[ALL * IN];
    for (int64_t i = 0; i < n; i++)
        all[i] = (float)(i + 1);
    return sheaf__upload(sheaf__tape_context(tape)->device, y->grad, all,
                         (size_t)n * sizeof(float));
}

static sheaf_status *add_ones(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *x = op->arg[0].value;
    float all[ALL * IN];
    for (int64_t i = 0; i < ALL * IN; i++)
        all[i] = 1;
    return sheaf__upload(sheaf__tape_context(tape)->device, x->grad, all, sizeof all);
}

TEST(test_wanted__others_get_no_gradient)
{
    int32_t label[ALL];
    const sheaf__head_run run = { .label = label };
    for (int i = 0; i < 2 * WAYS * DEVICES; i++) {
        const int way = i / DEVICES;
        const bool added = way >= WAYS; /* to the gradient of a later reader */
        sheaf__context c = context_on(devices[i % DEVICES], SHEAF_F32);
        sheaf__tape *tape;
        label_rows(label, way % WAYS);
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *x = sheaf__tape_value(tape, "x", ALL, IN, SHEAF_F32);
        x->needs_grad = true;
        sheaf__op_arg(sheaf__tape_op(tape, "x", give_x, keep_back, 0), x,
                      SHEAF__MAKE | SHEAF__GRAD_READ);
        const sheaf__head_rows wanted = sheaf__record_head_rows(tape, ALL, NULL, &run);
        sheaf__value *y = sheaf__record_index_select(tape, &wanted, x);
        sheaf__op_arg(sheaf__tape_op(tape, "loss", nothing, give_numbers, 0), y,
                      SHEAF__READ | SHEAF__GRAD_WRITE);
        if (added)
            sheaf__op_arg(sheaf__tape_op(tape, "more", nothing, add_ones, 0), x,
                          SHEAF__READ | SHEAF__GRAD_WRITE);
        CHECK_OK(sheaf__tape_compile(tape, true, false));
        CHECK_OK(sheaf__tape_run(tape));
        const int32_t *place = wanted.place;
        for (int64_t r = 0; r < ALL; r++)
            for (int64_t k = 0; k < IN; k++)
                CHECK_NEAR("gradient", back[r * IN + k],
                           (added ? 1.0 : 0.0) +
                               (place[r] < 0 ? 0.0 : (double)(place[r] * IN + k + 1)),
                           0);
        sheaf__tape_free(tape);
        sheaf__device_close(c.device);
    }
}
