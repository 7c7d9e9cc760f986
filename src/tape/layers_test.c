/* layers_test.c - what the parts of a layer do by themselves: scale what dropout keeps, add a
 * table's gradients, round norms. */
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/tape_ends.h"

#include "ops/math/round.h"
#include "ops/tensor/tensor.h"
#include "tape/layers.h"
#include "tape/linear_inner.h"
#include "tape/mixture.h"
#include "tape/rows.h"

/* Three devices: the processor, and those whose memory is elsewhere. */
static const sheaf__device_class *const devices[] = { &sheaf__cpu, &checked_device,
                                                      &copied_device };

static sheaf__context context_on(const sheaf__device_class *class, sheaf_dtype dtype)
{
    sheaf__context c = { .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = dtype };
    CHECK_OK(sheaf__device_open(&c.device, class, 1, NULL, 0));
    return c;
}

static sheaf__context context_of(sheaf_dtype dtype)
{
    return context_on(&sheaf__cpu, dtype);
}

/* 1 / (1 - p) in double, rounded once; and the share p, not 1 - p, goes. */
TEST(test_dropout__scales_what_it_keeps)
{
    enum { ROWS = 70, COLS = 64 };
    sheaf__context c = context_of(SHEAF_F32);
    float x[ROWS * COLS], y[ROWS * COLS];
    int64_t sample[ROWS], position[ROWS];
    int otherwise = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = 1;
    for (int i = 0; i < ROWS; i++)
        sample[i] = i, position[i] = 2 * i;
    for (int percent = 5; percent < 100; percent += 5) {
        const double p = percent / 100.0;
        const sheaf__lora_part lora = { .dropout = p, .purpose = 7 };
        const sheaf__step_info info = {
            .training = true, .seed = 3, .sample = sample, .position = position
        };
        int kept = 0;
        sheaf__lora_drop(&c, y, x, ROWS, COLS, 0, &lora, &info, SHEAF_F32);
        for (int i = 0; i < ROWS * COLS; i++) {
            assert_true(y[i] == 0 || y[i] == (float)(1 / (1 - p)));
            kept += y[i] != 0;
        }
        CHECK_NEAR("share kept", kept / (double)(ROWS * COLS), 1 - p,
                   5 * sqrt(0.25 / (ROWS * COLS)));
        otherwise += 1 / (1 - (float)p) != (float)(1 / (1 - p));
    }
    assert_true(otherwise > 0); /* or nothing would be shown */
    sheaf__device_close(c.device);
}

/* ---- the gradient of a table ---- */

enum { WIDTH = 3, TOKENS = 40, WORDS = 4 };

static float gradient_of(int token, int column)
{
    return sinf((float)(token * 13 + column)) * (float)(1 << token % 12);
}

static sheaf_status *nothing(sheaf__tape *tape, sheaf__op *op)
{
    return NULL;
}

static sheaf_status *give_gradients(sheaf__tape *tape, sheaf__op *op)
{
    float grad[TOKENS * WIDTH];
    for (int i = 0; i < TOKENS * WIDTH; i++)
        grad[i] = gradient_of(i / WIDTH, i % WIDTH);
    return sheaf__upload(sheaf__tape_context(tape)->device, op->arg[0].value->grad, grad,
                         sizeof grad);
}

static void check_order_of_tokens(const sheaf__device_class *class)
{
    sheaf__context c = context_on(class, SHEAF_F32);
    sheaf__trained_set *set;
    enum { PADDING = 2 }; /* a word whose lookups teach nothing */
    sheaf__table table = { .name = "table",
                           .vocab = WORDS,
                           .width = WIDTH,
                           .padding = 1 + PADDING,
                           .cut = { .slices = 1, .nparts = 1, .part = { { WORDS, 1 } } } };
    sheaf__tape *tape;
    int32_t ids[TOKENS];
    float got[WORDS * WIDTH], want[WORDS * WIDTH] = { 0 }, falling[WORDS * WIDTH] = { 0 };
    int otherwise = 0;
    CHECK_OK(sheaf__trained_set_new(&set, &c));
    CHECK_OK(sheaf__trained_add(&table.trained, set, "table", 2, (int64_t[]){ WORDS, WIDTH },
                                &table.cut, true));
    CHECK_OK(sheaf__trained_allocate(set));
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = t * 7 % WORDS;
        for (int k = 0; k < WIDTH && ids[t] != PADDING; k++)
            want[ids[t] * WIDTH + k] += gradient_of(t, k);
    }
    for (int t = TOKENS - 1; t >= 0; t--)
        for (int k = 0; k < WIDTH; k++)
            falling[ids[t] * WIDTH + k] += gradient_of(t, k);
    const sheaf__rows_in in = { .ids = device_copy(c.device, ids, sizeof ids), .host.ids = ids };
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = sheaf__record_embedding(tape, &table, TOKENS, &in);
    sheaf__op_arg(sheaf__tape_op(tape, "loss", nothing, give_gradients, 0), x,
                  SHEAF__READ | SHEAF__GRAD_WRITE);
    CHECK_OK(sheaf__tape_compile(tape, true, false));
    CHECK_OK(sheaf__tape_run(tape));
    CHECK_OK(sheaf__download(c.device, got, table.trained->grad[0], sizeof got));
    for (int i = 0; i < WORDS * WIDTH; i++) {
        CHECK_NEAR("gradient", got[i], want[i], 0);
        otherwise += want[i] != falling[i];
    }
    assert_true(otherwise > 0); /* or nothing would be shown */
    sheaf__tape_free(tape);
    sheaf__trained_set_free(set);
    sheaf__device_close(c.device);
}

TEST(test_embedding__adds_gradients_in_the_order_of_tokens)
{
    for (size_t d = 0; d < ARRAY_LEN(devices); d++)
        check_order_of_tokens(devices[d]);
}

/* Factors beside a table, and what gradients of them are to be: in double. */
enum { RANK = 2, SKIPPED = 1 }; /* a word whose lookups teach its column of A nothing */
typedef struct factors {
    int32_t ids[TOKENS];
    float rows[WORDS * WIDTH], a[RANK * WORDS], b[WIDTH * RANK];
    double da[RANK * WORDS], db[WIDTH * RANK];
} factors;

static factors make_factors(void)
{
    factors f = { .da = { 0 } };
    for (int i = 0; i < WORDS * WIDTH; i++)
        f.rows[i] = (float)(i % 7 - 3) / 4;
    for (int i = 0; i < RANK * WORDS; i++)
        f.a[i] = (float)(i % 5 - 2) / 8;
    for (int i = 0; i < WIDTH * RANK; i++)
        f.b[i] = (float)(i % 4 - 1) / 2;
    for (int t = 0; t < TOKENS; t++) {
        const int id = f.ids[t] = t * 7 % WORDS;
        for (int k = 0; k < WIDTH; k++)
            for (int j = 0; j < RANK; j++) {
                f.da[j * WORDS + id] +=
                    id == SKIPPED ? 0 : 2.0 * gradient_of(t, k) * f.b[k * RANK + j];
                f.db[k * RANK + j] += 2.0 * gradient_of(t, k) * f.a[j * WORDS + id];
            }
    }
    return f;
}

static void check_made(const factors *f, const float *y, const float *da, const float *db)
{
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        const int id = f->ids[i / WIDTH], k = i % WIDTH;
        double want = f->rows[id * WIDTH + k];
        for (int j = 0; j < RANK; j++)
            want += 2.0 * f->a[j * WORDS + id] * f->b[k * RANK + j];
        CHECK_NEAR("row", y[i], want, 0);
    }
    for (int i = 0; i < RANK * WORDS; i++)
        CHECK_NEAR("dA", da[i], f->da[i], 1e-5 * (1 + fabs(f->da[i])));
    for (int i = 0; i < WIDTH * RANK; i++)
        CHECK_NEAR("dB", db[i], f->db[i], 1e-5 * (1 + fabs(f->db[i])));
}

/* y = E + scale A^T B^T by rows, dA by tokens ascending, dB = dy^T h: against the formula. */
static void check_factors(const sheaf__device_class *class)
{
    const factors f = make_factors();
    sheaf__context c = context_on(class, SHEAF_F32);
    float made[TOKENS * WIDTH], da[RANK * WORDS] = { 0 }, db[WIDTH * RANK] = { 0 };
    sheaf__trained ta = { .count = 1, .grad[0] = device_copy(c.device, da, sizeof da) },
                   tb = { .count = 1, .grad[0] = device_copy(c.device, db, sizeof db) };
    sheaf__lora_part lora = { .rank = RANK, .scale = 2, .a = &ta, .b = &tb };
    lora.a_copy[0] = device_copy(c.device, f.a, sizeof f.a);
    lora.b_copy[0] = device_copy(c.device, f.b, sizeof f.b);
    const sheaf__table table = { .name = "table",
                                 .vocab = WORDS,
                                 .width = WIDTH,
                                 .cut = { .slices = 1, .nparts = 1, .part = { { WORDS, 1 } } },
                                 .rows = device_copy(c.device, f.rows, sizeof f.rows),
                                 .lora = &lora,
                                 .padding = 1 + SKIPPED };
    const sheaf__rows_in in = { .ids = device_copy(c.device, f.ids, sizeof f.ids),
                                .host.ids = f.ids };
    sheaf__tape *tape;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = sheaf__record_embedding(tape, &table, TOKENS, &in),
                 *y = sheaf__record_embedding_lora(tape, x, &table, &in);
    sheaf__op_arg(sheaf__tape_op(tape, "loss", nothing, give_gradients, 0), y,
                  SHEAF__READ | SHEAF__GRAD_WRITE);
    y->pinned = true;
    CHECK_OK(sheaf__tape_compile(tape, true, false));
    CHECK_OK(sheaf__tape_run(tape));
    CHECK_OK(sheaf__device_check(c.device));
    CHECK_OK(sheaf__download(c.device, made, y->data, sizeof made));
    CHECK_OK(sheaf__download(c.device, da, ta.grad[0], sizeof da));
    CHECK_OK(sheaf__download(c.device, db, tb.grad[0], sizeof db));
    check_made(&f, made, da, db);
    sheaf__tape_free(tape);
    sheaf__device_close(c.device);
}

TEST(test_embedding__with_factors_beside_it)
{
    for (size_t d = 0; d < ARRAY_LEN(devices); d++)
        check_factors(devices[d]);
}

/* ---- sums over rows that took an expert ---- */

enum { ALL = 701, IN = 3, OUT = 5 };

/* Rows that take it: few, all, none of a block, an odd number, one. */
static bool takes(int way, int row)
{
    switch (way) {
    case 0: return row * 7919 % 11 < 3;
    case 1: return true;
    case 2: return row >= 520 && row % 5 != 0;
    case 3: return row % 256 < 31 || row * 31 % 7 == 0;
    default: return row == 257;
    }
}

static int way_taken;

static sheaf_status *give_weights(sheaf__tape *tape, sheaf__op *op)
{
    float w[ALL];
    for (int r = 0; r < ALL; r++)
        w[r] = takes(way_taken, r);
    return sheaf__upload(sheaf__tape_context(tape)->device, op->arg[0].value->data, w, sizeof w);
}

static sheaf_status *give_inputs(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__value *x = op->arg[0].value;
    float all[ALL * IN];
    for (int r = 0; r < ALL; r++)
        for (int k = 0; k < IN; k++)
            all[r * IN + k] = gradient_of(r + 3, k);
    return sheaf__upload_rounded(sheaf__tape_context(tape)->device, x->data, x->dtype, all,
                                 SHEAF_F32, ALL * IN);
}

/* dy^T x over the rows that took it, and over all in which the others' dy is zero. */
static void compare_sums(sheaf__context *c, const sheaf__value *y, const sheaf__value *listed,
                         const sheaf__value *x)
{
    enum { BYTES = ALL * OUT * 4 };
    static char some[BYTES], all[BYTES];
    float got[OUT * IN] = { 0 }, want[OUT * IN] = { 0 }, row[OUT];
    int32_t which[ALL];
    const int64_t n = sheaf__rows_present(y);
    CHECK_OK(sheaf__download(c->device, which, listed->data, sizeof which));
    const sheaf__value every = { .rows = ALL, .dtype = c->dtype };
    sheaf__batch *b;
    memset(all, 0, sizeof all);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < OUT; k++)
            row[k] = gradient_of(2 * which[i], k);
        c->device->kernels->round(sheaf__at(some, i * OUT, c->dtype), c->dtype, row, OUT);
        memcpy(sheaf__at(all, which[i] * OUT, c->dtype), sheaf__at(some, i * OUT, c->dtype),
               OUT * sheaf_dtype_bytes(c->dtype));
    }
    float *sums = device_copy(c->device, got, sizeof got),
          *sums_of_all = device_copy(c->device, want, sizeof want);
    CHECK_OK(sheaf__batch_new(&b, c));
    CHECK_OK(sheaf__batch_weight_gradient(b, sums, OUT, IN, device_copy(c->device, some, BYTES),
                                          OUT, y->data, IN, y));
    CHECK_OK(sheaf__batch_weight_gradient(
        b, sums_of_all, OUT, IN, device_copy(c->device, all, BYTES), OUT, x->data, IN, &every));
    sheaf__batch_run(c, b);
    sheaf__batch_free(b);
    CHECK_OK(sheaf__device_check(c->device));
    CHECK_OK(sheaf__download(c->device, got, sums, sizeof got));
    CHECK_OK(sheaf__download(c->device, want, sums_of_all, sizeof want));
    assert_memory_equal(got, want, sizeof want);
}

TEST(test_mixture__sums_over_its_rows_are_those_over_all)
{
    for (int i = 0; i < 45; i++) {
        const sheaf_dtype dtype = i % 3 == 0 ? SHEAF_F32 : i % 3 == 1 ? SHEAF_BF16 : SHEAF_F16;
        sheaf__context c = context_on(devices[i / 15], dtype);
        sheaf__tape *tape;
        way_taken = i / 3 % 5;
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *w = sheaf__tape_value(tape, "weights", ALL, 1, SHEAF_F32),
                     *x = sheaf__tape_value(tape, "x", ALL, IN, dtype), *which;
        sheaf__op_arg(sheaf__tape_op(tape, "weights", give_weights, NULL, 0), w, SHEAF__MAKE);
        sheaf__op_arg(sheaf__tape_op(tape, "x", give_inputs, NULL, 0), x, SHEAF__MAKE);
        sheaf__value *y = sheaf__record_expert_rows(tape, &which, x, w, 0, x->rows, true);
        x->pinned = true;
        y->pinned = true;
        which->pinned = true;
        CHECK_OK(sheaf__tape_compile(tape, false, false));
        CHECK_OK(sheaf__tape_run(tape));
        compare_sums(&c, y, which, x);
        sheaf__tape_free(tape);
        sheaf__device_close(c.device);
    }
}

TEST(test_copies__are_rounded_to_the_dtype)
{
    for (int half = 0; half < 2; half++) {
        sheaf__context c = context_of(half ? SHEAF_BF16 : SHEAF_F32);
        float weight[300];
        sheaf__trained_set *set;
        sheaf__norm norm = { .name = "norm", .width = 300, .weight = weight };
        CHECK_OK(sheaf__trained_set_new(&set, &c));
        CHECK_OK(
            sheaf__trained_add(&norm.trained, set, "norm", 1, (int64_t[]){ 300 }, NULL, false));
        CHECK_OK(sheaf__trained_allocate(set));
        for (int i = 0; i < 300; i++)
            norm.trained->master[0][i] = 1 + (float)i / 1000;
        sheaf__norm_refresh(&c, &norm);
        for (int i = 0; i < 300; i++) {
            const float master = norm.trained->master[0][i];
            CHECK_NEAR("weight", weight[i], half ? sheaf__from_bf16(sheaf__bf16(master)) : master,
                       0);
        }
        for (int n = 1; n < 300; n += 37) {
            memset(weight, 0, sizeof weight);
            sheaf__refresh(&c, weight, norm.trained->master[0], n, false);
            for (int i = 0; i < 300; i++) {
                const float master = norm.trained->master[0][i];
                CHECK_NEAR("refreshed", weight[i],
                           i >= n ? 0
                           : half ? sheaf__from_bf16(sheaf__bf16(master))
                                  : master,
                           0);
            }
        }
        sheaf__trained_set_free(set);
        sheaf__device_close(c.device);
    }
}

TEST(test_tape__finite_is_below_infinity_in_every_type)
{
    static const struct {
        sheaf_dtype dtype;
        uint32_t largest, infinity, nan;
    } table[] = {
        { SHEAF_F32, 0x7f7fffff, 0x7f800000, 0xffc00001 },
        { SHEAF_BF16, 0x7f7f, 0xff80, 0x7fc0 },
        { SHEAF_F16, 0x7bff, 0x7c00, 0xfe01 },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        uint32_t x[3] = { table[i].largest }, bad[2] = { table[i].infinity, table[i].nan };
        const bool half = table[i].dtype != SHEAF_F32;
        if (half)
            x[0] |= x[0] << 16;
        assert_true(sheaf__is_finite(x, half ? 6 : 3, table[i].dtype));
        for (int k = 0; k < 2; k++) {
            x[2] = half ? bad[k] << 16 : bad[k];
            assert_false(sheaf__is_finite(x, half ? 6 : 3, table[i].dtype));
        }
    }
}

/* ---- the choice of experts ---- */

enum { EXPERTS = 4 };
static const float logits_of[][EXPERTS] = {
    { 1, 3, 2, 0 }, { 2, 2, 2, 2 }, { -1000, 5, -1000, -1000 }, { 0, 7, 0, 7 }, { 0, NAN, 1, 2 },
};

static sheaf_status *give_logits(sheaf__tape *tape, sheaf__op *op)
{
    return sheaf__upload(sheaf__tape_context(tape)->device, op->arg[0].value->data, logits_of,
                         sizeof logits_of);
}

TEST(test_choice__largest_first_and_the_first_of_equals)
{
    static const double want[][EXPERTS] = { { 0, 0.7310585786300049, 0.2689414213699951, 0 },
                                            { 0.5, 0.5, 0, 0 },
                                            { 0, 1, 0, 0 },
                                            { 0, 0.5, 0, 0.5 } };
    for (int way = 0; way < 6; way++) {
        const int chosen = way % 2 == 0 ? 2 : EXPERTS;
        float all[5 * EXPERTS];
        sheaf__context c = context_on(devices[way / 2], SHEAF_F32);
        sheaf__tape *tape;
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *x = sheaf__tape_value(tape, "logits", 5, EXPERTS, SHEAF_F32);
        sheaf__op_arg(sheaf__tape_op(tape, "logits", give_logits, NULL, 0), x, SHEAF__MAKE);
        sheaf__value *w = sheaf__record_router(tape, x, chosen, false, NULL, 0);
        w->pinned = true;
        CHECK_OK(sheaf__tape_compile(tape, false, false));
        CHECK_OK(sheaf__tape_run(tape));
        CHECK_OK(sheaf__download(c.device, all, w->data, sizeof all));
        for (int r = 0; r < 5; r++) {
            const float *got = all + r * EXPERTS;
            double sum = 0;
            for (int i = 0; i < EXPERTS; i++) {
                sum += got[i];
                if (chosen == 2 && r < 4)
                    CHECK_NEAR("weight", got[i], want[r][i], 1e-7);
            }
            assert_true(r == 4 ? isnan(sum) : fabs(sum - 1) < 1e-6); /* reported, not passed over */
        }
        sheaf__tape_free(tape);
        sheaf__device_close(c.device);
    }
}

enum { WIDE = 2 };
static float back_of_x[5 * WIDE];

static sheaf_status *give_rows(sheaf__tape *tape, sheaf__op *op)
{
    float x[5 * WIDE];
    for (int i = 0; i < 5 * WIDE; i++)
        x[i] = (float)(i + 1);
    return sheaf__upload(sheaf__tape_context(tape)->device, op->arg[0].value->data, x, sizeof x);
}

static sheaf_status *keep_back(sheaf__tape *tape, sheaf__op *op)
{
    return sheaf__download(sheaf__tape_context(tape)->device, back_of_x, op->arg[0].value->grad,
                           sizeof back_of_x);
}

TEST(test_mixture__a_plan_has_as_many_rows_as_are_taken)
{
    for (int64_t experts = 2; experts < 130; experts = 2 * experts + 1)
        for (int64_t top_k = 1; top_k <= experts; top_k += 3)
            for (int64_t rows = 1; rows < 40; rows += 6) {
                int64_t all = 0;
                for (int64_t e = 0; e < experts; e++) {
                    const int64_t n = sheaf__expert_rows(rows, top_k, experts, e);
                    assert_in_range(n, 0, rows);
                    all += n;
                }
                assert_true(all >= top_k * rows && all < top_k * rows + experts);
                assert_int_equal(sheaf__expert_rows(rows, top_k, experts, experts - 1), rows);
            }
}

static sheaf_status *give_ones(sheaf__tape *tape, sheaf__op *op)
{
    float x[5 * WIDE];
    for (int i = 0; i < 5 * WIDE; i++)
        x[i] = 1;
    return sheaf__upload(sheaf__tape_context(tape)->device, op->arg[0].value->grad, x, sizeof x);
}

/* The expert gives what it gets: sums and gradients are weights, at the rows that took it. */
TEST(test_mixture__an_expert_sees_the_rows_that_took_it)
{
    static const struct {
        int count, row[5];
    } taken[EXPERTS] = { { 2, { 1, 4 } }, { 5, { 0, 1, 2, 3, 4 } }, { 1, { 0 } }, { 1, { 3 } } };
    for (int way = 0; way < 3 * EXPERTS; way++) {
        const int e = way % EXPERTS;
        sheaf__context c = context_on(devices[way / EXPERTS], SHEAF_F32);
        sheaf__tape *tape;
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *logits = sheaf__tape_value(tape, "logits", 5, EXPERTS, SHEAF_F32),
                     *x = sheaf__tape_value(tape, "x", 5, WIDE, SHEAF_F32), *which;
        x->needs_grad = true;
        sheaf__op_arg(sheaf__tape_op(tape, "logits", give_logits, NULL, 0), logits, SHEAF__MAKE);
        sheaf__op_arg(sheaf__tape_op(tape, "x", give_rows, keep_back, 0), x,
                      SHEAF__MAKE | SHEAF__GRAD_READ);
        sheaf__value *w = sheaf__record_router(tape, logits, 2, false, NULL, 0),
                     *sum = sheaf__record_mixture(tape, 5, WIDE, true),
                     *y = sheaf__record_expert_rows(tape, &which, x, w, e, x->rows, false);
        sheaf__record_add_expert(tape, sum, y, which, w, e);
        sheaf__op_arg(sheaf__tape_op(tape, "loss", nothing, give_ones, 0), sum,
                      SHEAF__READ | SHEAF__GRAD_WRITE);
        w->pinned = true;
        sum->pinned = true;
        which->pinned = true;
        assert_int_equal(sheaf__rows_present(y), 5); /* on dry it stays so */
        CHECK_OK(sheaf__tape_compile(tape, true, false));
        CHECK_OK(sheaf__tape_run(tape));
        assert_int_equal(sheaf__rows_present(y), taken[e].count);
        int32_t list[5];
        float weights[5 * EXPERTS], sums[5 * WIDE];
        CHECK_OK(sheaf__download(c.device, list, which->data, sizeof list));
        CHECK_OK(sheaf__download(c.device, weights, w->data, sizeof weights));
        CHECK_OK(sheaf__download(c.device, sums, sum->data, sizeof sums));
        for (int i = 0; i < taken[e].count; i++)
            assert_int_equal(list[i], taken[e].row[i]);
        for (int r = 0; r < 4; r++)
            for (int k = 0; k < WIDE; k++) {
                const float of = weights[r * EXPERTS + e];
                CHECK_NEAR("share", sums[r * WIDE + k], of * (float)(r * WIDE + k + 1), 0);
                CHECK_NEAR("gradient", back_of_x[r * WIDE + k], of, 0);
            }
        sheaf__tape_free(tape);
        sheaf__device_close(c.device);
    }
}
