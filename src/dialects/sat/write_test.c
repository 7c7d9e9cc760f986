/* write_test.c - what is written is what SAT would have written, and comes back unchanged. */
#include "tests/made_sat.h"

#include "base/json.h"
#include "dialects/common/model_folder.h"
#include "formats/torch.h"
#include "tests/faults/faults.h"

/* Every tensor of one part of two files: the same names, shapes and bytes. */
static void same_part(const char *one, const char *two)
{
    sheaf_torch *a = NULL, *b = NULL;
    CHECK_OK(sheaf__torch_open(&a, one));
    CHECK_OK(sheaf__torch_open(&b, two));
    CHECK_OK(sheaf__torch_check_data(b));
    const sheaf_pickle *x = sheaf__pickle_get(a->doc->root, "module"),
                       *y = sheaf__pickle_get(b->doc->root, "module");
    assert_true(sheaf__pickle_count(x) > 50);
    assert_int_equal(sheaf__pickle_count(x), sheaf__pickle_count(y));
    for (int64_t i = 0; i < sheaf__pickle_count(x); i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(x, i));
        assert_string_equal(name, sheaf__pickle_text(sheaf__pickle_key(y, i))); /* SAT's order */
        const sheaf_pickle_tensor *s = sheaf__pickle_tensor(a->doc, sheaf__pickle_value(x, i));
        const sheaf_pickle_tensor *t = sheaf__pickle_tensor(b->doc, sheaf__pickle_value(y, i));
        if (s->dtype != t->dtype || s->ndim != t->ndim ||
            memcmp(s->shape, t->shape, (size_t)s->ndim * sizeof *s->shape) != 0)
            fail_msg("%s: %s: shape", two, name);
        size_t bytes = sheaf_dtype_bytes(s->dtype);
        for (int d = 0; d < s->ndim; d++)
            bytes *= (size_t)s->shape[d];
        char *p = malloc(bytes + 1), *q = malloc(bytes + 1);
        CHECK_OK(sheaf__torch_read(a, s, p, bytes));
        CHECK_OK(sheaf__torch_read(b, t, q, bytes));
        CHECK_BYTES(name, p, q, bytes);
        free(p);
        free(q);
    }
    sheaf__torch_close(a);
    sheaf__torch_close(b);
}

/* The recorded folders "mpN" against what is written from "mp1" of the same model. */
static int check_splits(const char *model)
{
    int n = 0;
    for (int ways = 1; ways <= 16; ways++) {
        const char *one = textf("%s/mp1", model);
        const char *many = textf("%s/mp%d", model, ways);
        if (sheaf__path_kind(one) != SHEAF_PATH_DIR || sheaf__path_kind(many) != SHEAF_PATH_DIR)
            continue;
        sheaf_catalog *c = sat_read_at(one);
        char *config = strdup(c->config);
        sheaf_source *source = as_source(c);
        CHECK_OK(sheaf_sat_write(
            at("split"), source,
            &(sheaf_sat_write_options){ .config = config, .ways = ways, .replace = true }));
        for (int rank = 0; rank < ways; rank++)
            same_part(textf("%s/1/mp_rank_%02d_model_states.pt", many, rank),
                      textf("%s/1/mp_rank_%02d_model_states.pt", at("split"), rank));
        assert_int_equal(entries(at("split/1")), ways);
        source->close(source);
        free(config);
        n++;
    }
    return n;
}

TEST(test_write__equals_every_recorded_split)
{
    assert_true(golden_each("*/", check_splits) >= (golden_is_full() ? 4 : 1));
}

/* Part k of a tensor divided in `blocks` blocks along `axis`, by the definition, element by
 * element. */
static void check_part(made *m, const char *dir, int ways, int rank, const char *name, int axis,
                       int blocks)
{
    sheaf_torch *file = NULL;
    CHECK_OK(sheaf__torch_open(&file, textf("%s/7/mp_rank_%02d_model_states.pt", dir, rank)));
    const sheaf_pickle_tensor *t =
        sheaf__pickle_tensor(file->doc, sheaf__pickle_path(file->doc->root, "module", name, NULL));
    const sheaf_source_entry *e = made_find(&m->source, name);
    const int64_t rows = e->shape[0] / (axis == 0 ? ways : 1),
                  cols = e->shape[1] / (axis == 1 ? ways : 1);
    assert_true(t != NULL && t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols);
    float *part = malloc((size_t)(rows * cols) * 4), want;
    CHECK_OK(sheaf__torch_read(file, t, part, (size_t)(rows * cols) * 4));
    const int64_t local = blocks == 0 ? 0 : t->shape[axis] / blocks;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t at_axis = axis == 0 ? r : c,
                          whole = blocks == 0 ? at_axis
                                              : at_axis / local * (local * ways) + rank * local +
                                                    at_axis % local;
            made_value(&want, SHEAF_F32, made_key(name, m->seed),
                       axis == 0 ? whole * e->shape[1] + c : r * e->shape[1] + whole);
            CHECK_NEAR(name, part[r * cols + c], want, 0);
        }
    free(part);
    sheaf__torch_close(file);
}

TEST(test_write__puts_blocks_where_sat_puts_them)
{
    static const struct {
        const char *name;
        int axis, blocks;
    } rows[] = {
        { "transformer.layers.1.attention.query_key_value.weight", 0, 3 },
        { "transformer.layers.1.attention.dense.weight", 1, 1 },
        { "transformer.layers.0.cross_attention.key_value.weight", 0, 2 },
        { "transformer.layers.0.cross_attention.query.weight", 0, 1 },
        { "mixins.mlp.vision_dense_4h_to_h_list.1.weight", 1, 1 },
        { "mixins.eva.vit_model.transformer.layers.0.attention.query_key_value.weight", 0, 3 },
        { "mixins.lm.lm_head.weight", 0, 1 },
        { "transformer.word_embeddings.weight", 0, 1 },
    };
    made m = { .agent = true, .seed = 5 };
    made_init(&m);
    made_write(&m, at("by-hand"), 4, 7);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int rank = 0; rank < 4; rank++)
            check_part(&m, at("by-hand"), 4, rank, rows[i].name, rows[i].axis, rows[i].blocks);
    made_release(&m);
    /* 999 rows: SAT keeps the table whole, but divides the head (here in 3). */
    made small = { .vocab = 999, .heads = 3, .vit_heads = 3, .vit_ffn = 6, .seed = 6 };
    made_init(&small);
    made_write(&small, at("by-hand"), 3, 7);
    check_part(&small, at("by-hand"), 1, 2, "transformer.word_embeddings.weight", 0, 0);
    check_part(&small, at("by-hand"), 3, 2, "mixins.lm.lm_head.weight", 0, 1);
    equals(at("by-hand"), &small.source);
    made_release(&small);
}

/* a -> b -> a: logical tensors, dtypes, step; over classes, sizes, dtypes and numbers of parts. */
TEST(test_write__there_and_back_changes_nothing)
{
    static const struct {
        made m;
        int ways[4];
    } rows[] = {
        { { .seed = 1 }, { 1, 2, 4, 1 } },
        { { .agent = true, .seed = 2, .dtype = SHEAF_BF16 }, { 4, 1, 2, 4 } },
        { LIST(.seed = 3, .dtype = SHEAF_F16, .heads = 6, .vit_heads = 3, .ffn = 9, .vit_ffn = 12,
               .vocab = 1002),
          LIST(3, 1, 3, 1) },
        { LIST(.agent = true, .seed = 4, .heads = 16, .head = 2, .vit_heads = 16, .ffn = 32,
               .vit_ffn = 16, .vocab = 2000, .layers = 3, .cross = 3),
          LIST(16, 8, 4, 16) },
        { { .seed = 5, .vocab = 40, .heads = 2, .vit_heads = 2, .vit_layers = 1, .layers = 1 },
          { 2, 1, 2, 2 } },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        made m = rows[i].m;
        made_init(&m);
        made_write(&m, at("step0"), rows[i].ways[0], 300 + (int64_t)i);
        for (int k = 1; k < 4; k++) {
            const char *to = textf("step%d", k);
            sheaf_catalog *c = sat_read_at(at(textf("step%d", k - 1)));
            assert_int_equal(c->tp, rows[i].ways[k - 1]);
            assert_int_equal(c->step, 300 + (int64_t)i);
            assert_string_equal(c->model, m.agent ? "cogagent" : "cogvlm");
            char *config = strdup(c->config);
            const int64_t step = c->step;
            sheaf_source *source = as_source(c);
            same_sources(&m.source, source, 0);
            CHECK_OK(sheaf_sat_write(
                at(to), source,
                &(sheaf_sat_write_options){
                    .config = config, .ways = rows[i].ways[k], .step = step, .replace = true }));
            source->close(source);
            free(config);
        }
        equals(at("step3"), &m.source);
        made_release(&m);
    }
}

/* Boxes of any shape and order give the same files. */
TEST(test_put__takes_boxes_of_any_shape)
{
    made m = { .agent = true, .seed = 12, .dtype = SHEAF_BF16 };
    made_init(&m);
    made_write(&m, at("in-order"), 2, 7);
    for (int64_t tall = 1; tall <= 7; tall += 3)
        for (int64_t wide = 1; wide <= 1000; wide = wide * 9 + 2) {
            sheaf_sat_writer *w = NULL;
            CHECK_OK(
                sheaf_sat_begin(&w, at("boxes"), &m.source,
                                &(sheaf_sat_write_options){
                                    .config = m.json, .ways = 2, .step = 7, .replace = true }));
            for (int64_t i = sheaf_sat_count(w); i-- > 0;) {
                const sheaf_source_entry *e = made_find(&m.source, sheaf_sat_name(w, i));
                int64_t rows = 1, cols = 1;
                for (int d = 0; d < e->ndim; d++)
                    *(d > 0 && d == e->ndim - 1 ? &cols : &rows) *= e->shape[d];
                for (int64_t r = 0; r < rows; r += tall)
                    for (int64_t c = 0; c < cols; c += wide) {
                        char box[7 * 1000 * 2];
                        const int64_t h = rows - r < tall ? rows - r : tall,
                                      n = cols - c < wide ? cols - c : wide;
                        CHECK_OK(made_read(&m.source, e->name, r, h, c, n, box));
                        CHECK_OK(sheaf_sat_put(w, i, r, h, c, n, box));
                    }
                CHECK_FAILS(sheaf_sat_put(w, i, rows, 1, 0, 1, ""), SHEAF_E_ARG, "a box outside");
                CHECK_FAILS(sheaf_sat_put(w, i, 0, 1, 1, cols, ""), SHEAF_E_ARG, "a box outside");
            }
            CHECK_OK(sheaf_sat_commit(w));
            same_part(at("in-order/7/mp_rank_00_model_states.pt"),
                      at("boxes/7/mp_rank_00_model_states.pt"));
            same_part(at("in-order/7/mp_rank_01_model_states.pt"),
                      at("boxes/7/mp_rank_01_model_states.pt"));
        }
    sheaf_sat_writer *w = NULL; /* nothing put: nothing there */
    CHECK_OK(sheaf_sat_begin(&w, at("holes"), &m.source,
                             &(sheaf_sat_write_options){ .config = m.json }));
    CHECK_FAILS(sheaf_sat_put(w, -1, 0, 1, 0, 1, ""), SHEAF_E_ARG, "tensor -1");
    CHECK_FAILS(sheaf_sat_commit(w), SHEAF_E_LAYOUT, "");
    assert_int_equal(sheaf__path_kind(at("holes")), SHEAF_PATH_NONE);
    CHECK_OK(sheaf_sat_begin(&w, at("holes"), &m.source,
                             &(sheaf_sat_write_options){ .config = m.json }));
    sheaf_sat_abandon(w);
    sheaf_sat_abandon(NULL);
    assert_int_equal(sheaf__path_kind(at("holes")), SHEAF_PATH_NONE);
    made_release(&m);
}

TEST(test_write__keeps_the_config)
{
    made m = { .seed = 9 };
    json_t *was, *now;
    made_init(&m);
    made_write(&m, at("config"), 2, 20);
    CHECK_OK(sheaf__json_parse(&was, m.json, strlen(m.json)));
    CHECK_OK(sheaf__json_load(&now, at("config/model_config.json")));
    assert_int_equal(json_integer_value(json_object_get(now, "model_parallel_size")), 2);
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(now, "eva_args"), "model_parallel_size")),
                     2);
    json_object_set_new(json_object_get(was, "eva_args"), "model_parallel_size", json_integer(2));
    json_object_set_new(was, "model_parallel_size", json_integer(2));
    assert_true(json_equal(was, now));
    json_decref(now);
    char *named = NULL; /* the key that sheaf puts into a config.json goes again */
    CHECK_OK(sheaf_hf_config_set(&named, m.json, "model_type", "\"cogvlm\""));
    CHECK_OK(sheaf_sat_write(at("named"), &m.source,
                             &(sheaf_sat_write_options){ .config = named, .ways = 2 }));
    CHECK_OK(sheaf__json_load(&now, at("named/model_config.json")));
    assert_true(json_equal(was, now));
    json_decref(was);
    json_decref(now);
    free(named);
    char *latest = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&latest, &size, at("config/latest"), 100));
    assert_true(size == 2 && memcmp(latest, "20", 2) == 0); /* no newline: SAT reads it whole */
    free(latest);
    assert_int_equal(entries(at("config")), 3);
    made_release(&m);
}

TEST(test_write__says_which_sizes_are_possible)
{
    made m = { .agent = true, .seed = 9 };
    made_init(&m);
    static const struct {
        int ways;
        const char *part;
    } rows[] = {
        { 3, "1, 2, 4 | 3; 'mixins.lm.lm_head.weight' has 1000 rows or columns" },
        { 8,
          "1, 2, 4 | 8; 'mixins.eva.vit_model.transformer.layers.0.attention.query_key_value.weight' has 4 heads" },
        { 17, "1, 2, 4 | 17" },
        { -1, "1, 2, 4 | -1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(
            sheaf_sat_write(at("never"), &m.source,
                            &(sheaf_sat_write_options){ .config = m.json, .ways = rows[i].ways }),
            SHEAF_E_ARG, rows[i].part);
    assert_int_equal(sheaf__path_kind(at("never")), SHEAF_PATH_NONE);
    made_release(&m);
}

static sheaf_status *write_as(made *m, sheaf_source *source)
{
    return sheaf_sat_write(at("never"), source, &(sheaf_sat_write_options){ .config = m->json });
}

TEST(test_write__refuses_what_is_not_the_model)
{
    made vlm = { .seed = 9 }, agent = { .agent = true, .seed = 9 }, wide = { .seed = 9, .ffn = 16 };
    made_init(&vlm);
    made_init(&agent);
    made_init(&wide);
    CHECK_FAILS(write_as(&vlm, &agent.source), SHEAF_E_LAYOUT, "only tensors of cogvlm");
    CHECK_FAILS(write_as(&agent, &vlm.source), SHEAF_E_LAYOUT, "every tensor of cogagent");
    CHECK_FAILS(write_as(&vlm, &wide.source), SHEAF_E_LAYOUT, "by the config");
    CHECK_FAILS(
        sheaf_sat_write(at("never"), &vlm.source, &(sheaf_sat_write_options){ .config = NULL }),
        SHEAF_E_ARG, "`config`");
    CHECK_FAILS(
        sheaf_sat_write(
            at("never"), &vlm.source,
            &(sheaf_sat_write_options){
                .config =
                    "{\"model_type\":\"llama\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
                    "\"num_attention_heads\":8}" }),
        SHEAF_E_UNSUPPORTED, "a model of family llama");
    assert_int_equal(sheaf__path_kind(at("never")), SHEAF_PATH_NONE);
    made_release(&vlm);
    made_release(&agent);
    made_release(&wide);
}

static sheaf_status *failing_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, void *dst)
{
    if (strcmp(name, "transformer.final_layernorm.weight") == 0)
        return sheaf_fail(SHEAF_E_IO, "the last tensor");
    return made_read(self, name, row0, rows, col0, cols, dst);
}

TEST(test_write__leaves_nothing_when_it_fails)
{
    made m = { .seed = 9 };
    made_init(&m);
    m.source.read = failing_read;
    const int64_t before = entries(scratch.dir);
    CHECK_FAILS(write_as(&m, &m.source), SHEAF_E_IO, "the last tensor");
    assert_int_equal(entries(scratch.dir), before);
    made_release(&m);
}

/* Each call of the file layer fails once: the folder is what it was, or whole. */
TEST(test_write__is_all_or_nothing)
{
    made old = { .seed = 10, .layers = 1, .vit_layers = 1 },
         new = { .seed = 11, .layers = 1, .vit_layers = 1 };
    made_init(&old);
    made_init(&new);
    made_write(&old, at("faulty"), 2, 5);
    const int64_t before = entries(scratch.dir);
    for (int64_t n = 1, seen = n; n <= seen; n += 1 + n / 8) {
        sheaf_faults faults = { .op = SHEAF_FAULT_ANY,
                                .action = n % 2 ? SHEAF_FAULT_FAIL : SHEAF_FAULT_ENOSPC,
                                .n = n };
        sheaf_status *st =
            UNDER(&faults,
                  sheaf_sat_write(at("faulty"), &new.source,
                                  &(sheaf_sat_write_options){
                                      .config = new.json, .ways = 2, .step = 6, .replace = true }));
        seen = faults.seen;
        sheaf_catalog *c = sat_read_at(at("faulty"));
        const int64_t step = c->step;
        sheaf__catalog_free(c);
        if (step != 5 && step != 6)
            fail_msg("call %d: step %d", (int)n, (int)step);
        equals(at("faulty"), step == 5 ? &old.source : &new.source);
        if (step == 6) /* it was committed: the last calls, or none failed */
            made_write(&old, at("faulty"), 2, 5);
        else
            assert_non_null(st);
        sheaf_status_free(st);
        if (entries(scratch.dir) !=
            before) { /* files that cannot be removed are known by their names */
            char **names = NULL;
            int64_t count = 0;
            CHECK_OK(sheaf__list_dir(&names, &count, scratch.dir));
            for (int64_t i = 0; i < count; i++)
                if (strcmp(names[i], "faulty") != 0 && strncmp(names[i], "faulty", 6) == 0) {
                    assert_true(sheaf__path_is_partial(names[i]));
                    CHECK_OK(sheaf__remove_tree(at(names[i])));
                }
            sheaf__names_free(names, count);
        }
    }
    made_release(&old);
    made_release(&new);
}

FIXTURE(make_scratch, remove_scratch);
