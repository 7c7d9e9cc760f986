/* unstack_test.c - parameters as transformers 5 has them in memory, in pieces of any shape over
 * several files, become the tensors of the model, and their moments theirs. */
#include "tests/files.h"

#include "dialects/common/model.h"

enum { FILES = 2, NUMBERS = 4096, EXPERTS = 3, WIDTH = 5, HIDDEN = 8 };

static const sheaf_dialect test_dialect = { .name = "test" };

static const struct {
    const char *config, *experts, *gate, *up, *down, *router;
} families[] = {
    { "\"model_type\":\"mixtral\",\"intermediate_size\":5", "block_sparse_moe.experts", "w1", "w3",
      "w2", "block_sparse_moe.gate.weight" },
    { "\"model_type\":\"qwen3_moe\",\"intermediate_size\":7,\"moe_intermediate_size\":5,"
      "\"head_dim\":4,\"num_experts_per_tok\":2",
      "mlp.experts", "gate_proj", "up_proj", "down_proj", "mlp.gate.weight" },
};

/* Both files hold 0, 1, 2, ..., the second one 10000 more of each. */
static sheaf_catalog *new_catalog(const char *config)
{
    static float number[NUMBERS];
    char text[512];
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    for (int f = 0; f < FILES; f++) {
        int is;
        for (int i = 0; i < NUMBERS; i++)
            number[i] = (float)(f * 10000 + i);
        const char *name = textf("file%d", f);
        CHECK_OK(sheaf__file_write_whole(at(name), number, sizeof number));
        CHECK_OK(sheaf__catalog_file(&is, c, at(name), NULL));
        assert_int_equal(is, f);
    }
    snprintf(text, sizeof text,
             "{%s,\"vocab_size\":16,\"hidden_size\":8,\"num_hidden_layers\":1,"
             "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_local_experts\":3}",
             config);
    c->config = strdup(text);
    return c;
}

/* A tensor whose numbers begin at `first`, cut along an axis in pieces of `each`, by turns from one
 * file and the other: number i of piece p is first + i + 10000 (p % 2). */
static void add(sheaf_catalog *c, const char *name, int64_t first, int ndim, const int64_t *shape,
                int axis, int64_t each)
{
    sheaf_logical *t;
    CHECK_OK(sheaf__catalog_tensor(&t, c, name, SHEAF_F32, ndim, shape));
    t->kind = sheaf__is_moment(name) ? SHEAF_MOMENT : SHEAF_WEIGHT;
    for (int64_t from = 0; from < shape[axis]; from += each) {
        sheaf_piece p =
            sheaf__piece_dense((int)(from / each % FILES), -1, SHEAF_F32, first * 4, ndim, shape);
        p.begin[axis] = from;
        p.size[axis] = from + each < shape[axis] ? each : shape[axis] - from;
        p.offset += from * p.stride[axis] * 4;
        CHECK_OK(sheaf__catalog_piece(c, t, &p));
    }
}

/* The number at [e, r, c] of such a tensor. */
static float number_at(int64_t first, const int64_t shape[3], int axis, int64_t each,
                       const int64_t index[3])
{
    return (float)(first + (index[0] * shape[1] + index[1]) * shape[2] + index[2] +
                   10000 * (index[axis] / each % FILES));
}

static void check(const sheaf_catalog *c, const char *name, int64_t rows, int64_t cols,
                  int64_t first, const int64_t shape[3], int axis, int64_t each, int64_t member,
                  int64_t row)
{
    float got[2 * WIDTH * HIDDEN];
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    if (t == NULL)
        fail_msg("%s is not there", name);
    assert_true(t->entry.ndim == 2 && t->entry.shape[0] == rows && t->entry.shape[1] == cols);
    assert_int_equal(t->kind, sheaf__is_moment(name) ? SHEAF_MOMENT : SHEAF_WEIGHT);
    CHECK_OK(sheaf__catalog_read(c, t, 0, rows, 0, cols, got));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            CHECK_NEAR(name, got[r * cols + k],
                       number_at(first, shape, axis, each, (int64_t[]){ member, row + r, k }), 0);
}

TEST(test_pieces__of_any_cut_are_those_of_the_matrices)
{
    static const int64_t gate_up[] = { EXPERTS, 2 * WIDTH, HIDDEN },
                         down[] = { EXPERTS, HIDDEN, WIDTH };
    static const char *const words[] = { "", "exp_avg.", "exp_avg_sq." };
    for (size_t f = 0; f < ARRAY_LEN(families); f++)
        for (int axis = 0; axis < 3; axis++)
            for (int64_t each = 1; each <= 4; each++) {
                sheaf_catalog *c = new_catalog(families[f].config);
                for (int w = 0; w < 3; w++) {
                    add(c, textf("%smodel.layers.0.mlp.experts.gate_up_proj", words[w]), 100 * w, 3,
                        gate_up, axis, each);
                    add(c, textf("%smodel.layers.0.mlp.experts.down_proj", words[w]),
                        1000 + 100 * w, 3, down, axis, each);
                }
                add(c, "model.layers.0.mlp.gate.weight", 7, 2, (int64_t[]){ EXPERTS, HIDDEN },
                    axis % 2, each);
                CHECK_OK(sheaf__catalog_sort(c));
                CHECK_OK(sheaf__catalog_unstack(c));
                assert_int_equal(c->count, 3 * 3 * EXPERTS + 1);
                CHECK_OK(sheaf__catalog_check(c)); /* they are tiled */
                assert_int_equal(c->nfindings, 0);
                for (int i = 0; i < 3 * 3 * EXPERTS; i++) {
                    const int w = i / 9, e = i / 3 % 3, k = i % 3;
                    check(c,
                          textf("%smodel.layers.0.%s.%d.%s.weight", words[w], families[f].experts,
                                e,
                                k == 0   ? families[f].gate
                                : k == 1 ? families[f].up
                                         : families[f].down),
                          k == 2 ? HIDDEN : WIDTH, k == 2 ? WIDTH : HIDDEN,
                          (k == 2 ? 1000 : 0) + 100 * w, k == 2 ? down : gate_up, axis, each, e,
                          k == 1 ? WIDTH : 0);
                }
                check(c, textf("model.layers.0.%s", families[f].router), EXPERTS, HIDDEN, 7,
                      (int64_t[]){ 1, EXPERTS, HIDDEN }, 1 + axis % 2, each, 0, 0);
                sheaf__catalog_free(c);
            }
}

/* A hole in the parameter is one in the matrices that it would have held, and in no others. */
TEST(test_pieces__that_are_missing_stay_missing)
{
    sheaf_catalog *c = new_catalog(families[0].config);
    const char *name = "model.layers.0.mlp.experts.gate_up_proj";
    add(c, name, 0, 3, (int64_t[]){ EXPERTS, 2 * WIDTH, HIDDEN }, 1, WIDTH);
    sheaf_logical *t = sheaf__catalog_find(c, name);
    t->npieces--; /* up of all experts */
    CHECK_OK(sheaf__catalog_sort(c));
    CHECK_OK(sheaf__catalog_unstack(c));
    CHECK_OK(sheaf__catalog_check(c));
    assert_int_equal(c->nfindings, EXPERTS);
    for (int i = 0; i < EXPERTS; i++)
        assert_non_null(strstr(c->finding[i].tensor, ".w3.weight"));
    sheaf__catalog_free(c);
}

TEST(test_shapes__of_another_config_are_said_once)
{
    sheaf_catalog *c = new_catalog(families[1].config);
    add(c, "model.layers.0.mlp.experts.down_proj", 0, 3, (int64_t[]){ EXPERTS, HIDDEN, 6 }, 0, 3);
    CHECK_OK(sheaf__catalog_sort(c));
    CHECK_OK(sheaf__catalog_unstack(c));
    assert_int_equal(c->nfindings, 1);
    assert_string_equal(c->finding[0].code, "shape");
    assert_non_null(strstr(c->finding[0].expected, "[3, 8, 5]"));
    sheaf__catalog_free(c);
}

FIXTURE(make_scratch, remove_scratch);
