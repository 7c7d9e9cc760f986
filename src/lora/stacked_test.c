/* stacked_test.c - factors on parameters that hold all experts of a layer, as PEFT's versions save
 * them, give the change that PEFT's get_delta_weight() computes. */
#include "tests/fake_source.h"
#include "tests/resolved.h"

#include "base/base.h"
#include "lora/stacked.h"

enum { EXPERTS = 3, RANK = 2, HIDDEN = 8, MOST = EXPERTS * 2 * HIDDEN * HIDDEN };

static float numbers[FAKE_MOST][MOST];

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const fake_source *f = (fake_source *)self;
    const int i = fake_index(f, name);
    const int64_t wide = f->entry[i].shape[f->entry[i].ndim - 1];
    float *out = dst;
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++)
            *out++ = numbers[i][r * wide + c];
    return NULL;
}

static void nothing(sheaf_source *self)
{
    (void)self;
}

static void add(fake_source *f, const char *name, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++)
        numbers[f->n][i] = (float)((i * 37 + f->n * 11) % 19 - 9);
    f->entry[f->n++] = (sheaf_source_entry){ name, SHEAF_F32, 2, { rows, cols } };
}

static const sheaf_schema *mixture(sheaf_family family, int64_t experts, int64_t width)
{
    sheaf_config c = small_config(family, 5, HIDDEN, width, 1, 2, 2, 4);
    c.expert_ffn = width, c.num_experts = experts, c.top_k = 1;
    return schema_of(c, 1);
}

#define LAYER "base_model.model.model.layers.0.mlp."
#define OUTER LAYER "experts."
#define INNER LAYER "experts.base_layer."

/* An adapter file: A and B of a parameter [experts, rows, cols]. */
static void add_factors(fake_source *f, bool inner, bool in_first, int64_t experts, int64_t rows,
                        int64_t cols)
{
    add(f, inner ? INNER "lora_A.weight" : OUTER "lora_A.weight", experts * RANK,
        in_first ? rows : cols);
    add(f, inner ? INNER "lora_B.weight" : OUTER "lora_B.weight", in_first ? cols : rows,
        experts * RANK);
}

/* sum over r of what einsum("o r e, e r i -> e i o") takes up to 0.19.0, "-> e o i" since. */
static float change(const float *a, const float *b, bool in_first, int64_t experts, int64_t rows,
                    int64_t cols, int64_t e, int64_t row, int64_t col)
{
    const int64_t out = in_first ? col : row, in = in_first ? row : col,
                  wide = in_first ? rows : cols;
    float sum = 0;
    for (int64_t r = 0; r < RANK; r++)
        sum += b[out * RANK * experts + r * experts + e] * a[(e * RANK + r) * wide + in];
    return sum;
}

static const char *both[] = { "gate_up_proj", "down_proj" };

typedef struct trial {
    const char *version;
    int64_t experts, width;
    int parameters; /* of gate_up_proj and down_proj, the first so many */
    bool in_first;  /* the file has it so */
    bool refused, misfit;
} trial;

static void check_values(const trial *t, const sheaf_lora *lora, sheaf_source *own)
{
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const bool down = strstr(m->base->stack.of, "down_proj") != NULL;
        const float *a = numbers[down && t->parameters == 2 ? 2 : 0], *b = a + MOST;
        float x[RANK * 2 * HIDDEN], y[2 * HIDDEN * RANK], whole[2 * HIDDEN * RANK];
        CHECK_OK(own->read(own, m->a_name, 0, RANK, 0, m->a_shape[1], x));
        for (int64_t r = 0; r < m->b_shape[0]; r++) /* in boxes: a row, a column at a time */
            for (int64_t k = 0; k < RANK; k++)
                CHECK_OK(own->read(own, m->b_name, r, 1, k, 1, &y[r * RANK + k]));
        CHECK_OK(own->read(own, m->b_name, 0, m->b_shape[0], 0, RANK, whole));
        CHECK_BYTES(m->b_name, whole, y, (size_t)(m->b_shape[0] * RANK) * sizeof *y);
        for (int64_t r = 0; r < m->b_shape[0]; r++)
            for (int64_t c = 0; c < m->a_shape[1]; c++) {
                float sum = 0;
                for (int64_t k = 0; k < RANK; k++)
                    sum += y[r * RANK + k] * x[k * m->a_shape[1] + c];
                CHECK_NEAR(m->b_name, sum,
                           change(a, b, t->in_first && t->experts > 1, t->experts,
                                  m->base->stack.rows, m->a_shape[1], m->base->stack.member,
                                  m->base->stack.row + r, c),
                           0);
            }
    }
}

static const trial trials[] = {
    /* shapes tell: 2 x 3 and 3 are not 8 */
    { "0.18.1", EXPERTS, 3, 2, true, false, false },
    { NULL, EXPERTS, 3, 2, true, false, false },
    { "0.21.2", EXPERTS, 3, 2, true, false, false },
    { "0.18.1", EXPERTS, 3, 2, false, false, false },
    { NULL, EXPERTS, 3, 1, false, false, false },
    /* gate_up_proj is square, down_proj tells */
    { NULL, EXPERTS, HIDDEN / 2, 2, true, false, false },
    { NULL, EXPERTS, HIDDEN / 2, 2, false, false, false },
    /* the version tells */
    { "0.17.0", EXPERTS, HIDDEN / 2, 1, true, false, false },
    { "0.19.0", EXPERTS, HIDDEN / 2, 1, true, false, false },
    { "0.19.0.dev0@abc", EXPERTS, HIDDEN / 2, 1, true, false, false },
    { "0.18.2.dev0@UNKNOWN", EXPERTS, HIDDEN / 2, 1, true, false, false },
    { "0.9", EXPERTS, HIDDEN / 2, 1, true, false, false },
    { "0.19.1", EXPERTS, HIDDEN / 2, 1, false, false, false },
    { "0.19.1.post1", EXPERTS, HIDDEN / 2, 1, false, false, false },
    { "0.19.2.dev0", EXPERTS, HIDDEN / 2, 1, false, false, false },
    { "0.21.2", EXPERTS, HIDDEN / 2, 1, false, false, false },
    { "1.0", EXPERTS, HIDDEN / 2, 1, false, false, false },
    /* nothing does */
    { NULL, EXPERTS, HIDDEN / 2, 1, false, true, false },
    { "0.19.1.dev0@abc", EXPERTS, HIDDEN / 2, 1, false, true, false },
    { "0.19", EXPERTS, HIDDEN / 2, 1, false, true, false },
    { "main", EXPERTS, HIDDEN / 2, 1, false, true, false },
    /* one expert is a layer to PEFT: out, in always */
    { "0.18.1", 1, HIDDEN / 2, 1, false, false, false },
    { NULL, 1, HIDDEN / 2, 1, false, false, false },
    { "0.18.1", 1, 3, 1, true, false, true },
};

TEST(test_factors__are_those_of_the_version)
{
    for (size_t i = 0; i < ARRAY_LEN(trials); i++) {
        const trial *t = &trials[i];
        const sheaf_schema *schema = mixture(SHEAF_QWEN3_MOE, t->experts, t->width);
        sheaf_lora_options o = { .rank = RANK,
                                 .alpha = RANK,
                                 .tolerant = true,
                                 .whole_rank = true,
                                 .parameters = { (char **)both, t->parameters, NULL },
                                 .peft_version = (char *)t->version };
        fake_source file = { .source = { fake_find, fake_count, fake_entry, read_box, nothing } };
        sheaf_source *own = &file.source;
        add_factors(&file, t->parameters == 2, t->in_first, t->experts, 2 * t->width, HIDDEN);
        if (t->parameters == 2)
            add_factors(&file, false, t->in_first, t->experts, HIDDEN, t->width);
        sheaf_lora *lora = resolved(schema, &o);
        sheaf_status *st = sheaf__lora_unstack(&own, lora, false);
        if ((st != NULL) != (t->refused || t->misfit))
            fail_msg("trial %zu: %s", i, st == NULL ? "taken" : sheaf_status_found(st));
        if (st == NULL) {
            CHECK_OK(sheaf_lora_check(lora, own));
            check_values(t, lora, own);
            own->close(own);
        } else if (t->refused)
            assert_non_null(strstr(sheaf_status_expected(st), "peft_version"));
        sheaf_status_free(st);
    }
}

/* Of several parameters one has another order than the other. */
TEST(test_factors__of_two_orders_fit_nothing)
{
    const sheaf_schema *schema = mixture(SHEAF_QWEN3_MOE, EXPERTS, 3);
    const sheaf_lora_options o = { .rank = RANK,
                                   .alpha = RANK,
                                   .tolerant = true,
                                   .whole_rank = true,
                                   .parameters = { (char **)both, 2, NULL } };
    fake_source file = { .source = { fake_find, fake_count, fake_entry, read_box, nothing } };
    sheaf_source *own = &file.source;
    add_factors(&file, true, true, EXPERTS, 6, HIDDEN);
    add_factors(&file, false, false, EXPERTS, HIDDEN, 3);
    sheaf_lora *lora = resolved(schema, &o);
    CHECK_FAILS(sheaf__lora_unstack(&own, lora, false), SHEAF_E_LAYOUT,
                "shape [6, 8], of all experts");
}

/* Mixtral, whose router and experts transformers 5 holds under other names than files have. */
TEST(test_names__are_those_in_memory)
{
    static const char *parameters[] = { "gate.weight", "experts.down_proj" };
    static char *saved[] = { "w1", "w3" };
    sheaf_pattern alpha[] = { { "gate", 8, true }, { "mlp.gate.weight", 6, true } };
    const sheaf_schema *schema = mixture(SHEAF_MIXTRAL, EXPERTS, 3);
    const sheaf_lora_options o = { .rank = RANK,
                                   .alpha = RANK,
                                   .tolerant = true,
                                   .whole_rank = true,
                                   .exclude = { (char *[]){ "gate" }, 1, NULL },
                                   .alpha_pattern = { alpha, 2 },
                                   .modules_to_save = { saved, 2, NULL },
                                   .parameters = { (char **)parameters, 2, NULL } };
    fake_source file = { .source = { fake_find, fake_count, fake_entry, read_box, nothing } };
    sheaf_source *own = &file.source;
    float row[HIDDEN];
    add(&file, LAYER "gate.lora_A.weight", RANK, HIDDEN);
    add(&file, LAYER "gate.lora_B.weight", EXPERTS, RANK);
    add(&file, LAYER "experts.gate_up_proj", EXPERTS * 6, HIDDEN);
    file.entry[2] =
        (sheaf_source_entry){ file.entry[2].name, SHEAF_F32, 3, { EXPERTS, 6, HIDDEN } };
    add_factors(&file, false, true, EXPERTS, HIDDEN, 3);
    sheaf_lora *lora = resolved(schema, &o);
    assert_int_equal(lora->nmodules, 1 + EXPERTS);
    assert_int_equal(lora->nsaved, 2 * EXPERTS);
    CHECK_NEAR("by the parameter's path", lora->module[0].alpha, 6, 0);
    CHECK_OK(sheaf__lora_unstack(&own, lora, false));
    CHECK_OK(sheaf_lora_check(lora, own));
    CHECK_OK(own->read(own, "base_model.model.model.layers.0.block_sparse_moe.gate.lora_B.weight",
                       1, 1, 0, RANK, row));
    CHECK_BYTES("B", row, numbers[1] + RANK, RANK * sizeof *row);
    CHECK_OK(own->read(own, "base_model.model.model.layers.0.block_sparse_moe.experts.2.w3.weight",
                       1, 1, 0, HIDDEN, row));
    CHECK_BYTES("up of the third", row, numbers[2] + (2 * 6 + 3 + 1) * HIDDEN, sizeof row);
    own->close(own);
}

/* A parameter among the targets, or what holds it, becomes one of target_parameters. */
TEST(test_targets__may_be_parameters)
{
    static const struct {
        const char *targets, *parameters, *layers;
        int modules;
    } trials[] = {
        { "q_proj,experts", "experts.gate_up_proj,experts.down_proj", "q_proj", 1 + 3 * EXPERTS },
        { "mlp.experts.down_proj", "mlp.experts.down_proj", "", EXPERTS },
        { "mlp.experts", "mlp.experts.gate_up_proj,mlp.experts.down_proj", "", 3 * EXPERTS },
        { "down_proj", "", "down_proj", EXPERTS }, /* each by itself */
    };
    const sheaf_schema *schema = mixture(SHEAF_QWEN3_MOE, EXPERTS, 6);
    for (size_t i = 0; i < ARRAY_LEN(trials); i++) {
        char found[2][128] = { "", "" };
        sheaf_lora_options *o = options_of(trials[i].targets);
        sheaf_lora *lora = resolved(schema, o);
        const sheaf_lora_names *const is[] = { &lora->options.parameters, &lora->options.targets };
        for (int k = 0; k < 2; k++)
            for (int n = 0; n < is[k]->n; n++) {
                strcat(found[k], n == 0 ? "" : ",");
                strcat(found[k], is[k]->list[n]);
            }
        assert_string_equal(found[0], trials[i].parameters);
        assert_string_equal(found[1], trials[i].layers);
        assert_int_equal(lora->nmodules, trials[i].modules);
        assert_true(lora->module[lora->nmodules - 1].stacked == (found[0][0] != '\0'));
        o->dropout = 0.1;
        if (found[0][0] != '\0')
            CHECK_FAILS(sheaf_lora_resolve(&lora, schema, o), SHEAF_E_ARG, "no dropout");
        o->tolerant = true; /* in a file PEFT ignores them */
        lora = NULL;
        sheaf_status_free(sheaf_lora_resolve(&lora, schema, o)); /* of these none may be left */
        assert_int_equal(lora == NULL ? 0 : lora->nmodules, i == 0                ? 1
                                                            : found[0][0] != '\0' ? 0
                                                                                  : EXPERTS);
        sheaf_lora_free(lora);
    }
}
