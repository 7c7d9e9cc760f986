/* optim_test.c - moments by number without the model's config: nothing but the groups and the index
 * tells what should be there. */
#include "tests/made_llama.h"

#include "formats/pickle_inner.h"

enum { PARAMETERS = 6 };

static double step_of[3] = { 7, 7, 7 }; /* that file 1, 2 and 3 say */
static int last = PARAMETERS - 1;       /* the last number in the groups */

static void put_moments(const char *dir, int file, int from, int to)
{
    made_file *f = made_begin();
    for (int id = from; id < to; id++) {
        sheaf_pickle *state = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
        sheaf__pickle_set(f->doc, state, "step",
                          sheaf__pickle_make_float(f->doc, step_of[file - 1]));
        for (int k = 0; k < 2; k++) {
            float *data = calloc(4, sizeof *data);
            assert_non_null(data);
            sheaf__pickle_set(f->doc, state, k == 0 ? "exp_avg" : "exp_avg_sq",
                              made_put(f, SHEAF_F32, 1, (int64_t[]){ 4 }, data));
        }
        assert_true(sheaf__pickle_push(f->doc, f->root, sheaf__pickle_make_int(f->doc, id), state));
    }
    made_end(f, textf("%s/pytorch_optim-%05d.bin", dir, file));
}

/* Two files with three parameters each, groups of four and two. */
static void put_optimizer(char dir[400], const char *name)
{
    snprintf(dir, 400, "%s/%s", scratch.dir, name);
    CHECK_OK(sheaf__make_dirs(dir));
    put_moments(dir, 1, 0, 3);
    put_moments(dir, 2, 3, PARAMETERS);
    made_file *f = made_begin();
    f->root = sheaf__pickle_make(f->doc, SHEAF_PICKLE_LIST);
    for (int g = 0; g < 2; g++) {
        sheaf_pickle *group = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT),
                     *params = made_set(f, group, "params", SHEAF_PICKLE_LIST);
        for (int id = 4 * g; id < (g == 0 ? 4 : PARAMETERS); id++)
            sheaf__pickle_append(f->doc, params,
                                 sheaf__pickle_make_int(f->doc, id == PARAMETERS - 1 ? last : id));
        sheaf__pickle_append(f->doc, f->root, group);
    }
    made_end(f, textf("%s/pytorch_optim_group.bin", dir));
    put(textf("%s/pytorch_optim.bin.index.json", dir),
        "{\"metadata\": {\"total_size\": 0.5}, \"weight_map\": {"
        "\"0\": \"pytorch_optim-00001.bin\", \"3\": \"pytorch_optim-00002.bin\", "
        "\"4\": \"pytorch_optim-00002.bin\"}}");
}

TEST(test_optimizer__without_a_config_groups_and_index_tell)
{
    char dir[400];
    put_optimizer(dir, "whole");
    sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "missing", "names of parameters are not in these files");
    assert_int_equal(c->count, 2 * PARAMETERS);
    sheaf__catalog_free(c);

    put_optimizer(dir, "file-gone");
    assert_int_equal(unlink(textf("%s/pytorch_optim-00002.bin", dir)), 0);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no pytorch_optim-00002.bin");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no exp_avg of number 3");
    check_found(c, SHEAF_DEFECT, "missing", "no exp_avg_sq of number 5");

    put_optimizer(dir, "one-gone"); /* of a file that is there */
    assert_int_equal(unlink(textf("%s/pytorch_optim-00002.bin", dir)), 0);
    put_moments(dir, 2, 4, PARAMETERS);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    want_found(c, 2, "missing", "no exp_avg of number 3");

    put_optimizer(dir, "one-more"); /* left from another save */
    put_moments(dir, 3, PARAMETERS, PARAMETERS + 1);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    want_found(c, 2, "foreign", "one more, where the groups have 6");
}

TEST(test_optimizer__steps_are_whole_and_alike)
{
    static const struct {
        double step[2];
        int64_t is;
        const char *stale;
    } cases[] = { { { 0, 0 }, 0, NULL },
                  { { 0, 1 }, 0, "moments of step 1" },
                  { { 2.5, 3 }, 3, NULL }, /* no program writes it: not taken for a step */
                  { { 3, 2.5 }, 3, NULL },
                  { { 1e15, 3 }, 3, NULL } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char dir[400];
        const char *name = textf("step%zu", i);
        step_of[0] = cases[i].step[0];
        step_of[1] = cases[i].step[1];
        put_optimizer(dir, name);
        step_of[0] = step_of[1] = 7;
        sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, dir, NULL);
        assert_int_equal(c->step, cases[i].is);
        if (cases[i].stale != NULL)
            CHECK_FINDING(c, SHEAF_DEFECT, "stale", cases[i].stale);
        else
            assert_null(finding(c, SHEAF_DEFECT, "stale", ""));
        sheaf__catalog_free(c);
    }
}

/* running_states.json counts where nothing else says a step. */
TEST(test_optimizer__its_step_comes_before_the_runs)
{
    char dir[400], path[600];
    put_optimizer(dir, "training/optimizer");
    snprintf(path, sizeof path, "%s/training/modeling", scratch.dir);
    CHECK_OK(sheaf__make_dirs(path));
    snprintf(path, sizeof path, "%s/training/running_states.json", scratch.dir);
    put(path, "{\"epoch\": 0, \"step\": 9}");
    *strrchr(path, '/') = '\0';
    sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, path, NULL);
    assert_int_equal(c->step, 7);
    sheaf__catalog_free(c);
}

TEST(test_optimizer__groups_count_from_0)
{
    char dir[400];
    last = PARAMETERS;
    put_optimizer(dir, "skipped");
    last = PARAMETERS - 1;
    check_found(read_made(&sheaf__dialect_colossalai, dir, NULL), SHEAF_DEFECT, "damaged",
                "something else");
}

/* ---- with the model's config ---- */

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 8, "
    "\"intermediate_size\": 11, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 1, \"vocab_size\": 13, \"max_position_embeddings\": 64, "
    "\"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
/* embed_tokens, then q, k, v, o, gate, up, down, two norms, the last norm, lm_head */
static const int64_t shapes[][2] = {
    { 13, 8 }, { 8, 8 },  { 8, 8 }, { 8, 8 }, { 8, 8 }, { 11, 8 },
    { 11, 8 }, { 8, 11 }, { 8 },    { 8 },    { 8 },    { 13, 8 }
};
enum { ALL = ARRAY_LEN(shapes), NORMS = 3 };

/* Moments of the whole model in the order of `id`, tables with so many rows and columns, in groups
 * of these sizes. */
static sheaf_catalog *read_named(const int *id, const int *groups, int64_t rows, int64_t columns)
{
    char dir[400];
    snprintf(dir, sizeof dir, "%s/named", scratch.dir);
    CHECK_OK(sheaf__remove_tree(dir));
    CHECK_OK(sheaf__make_dirs(dir));
    put(textf("%s/config.json", scratch.dir), config);
    made_file *f = made_begin(), *g = made_begin();
    g->root = sheaf__pickle_make(g->doc, SHEAF_PICKLE_LIST);
    for (int i = 0; i < ALL; i++) {
        const bool table = id[i] == 0 || id[i] == ALL - 1;
        const int64_t shape[2] = { table ? rows : shapes[id[i]][0],
                                   table ? columns : shapes[id[i]][1] };
        sheaf_pickle *state = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
        for (int k = 0; k < 2; k++)
            sheaf__pickle_set(f->doc, state, k == 0 ? "exp_avg" : "exp_avg_sq",
                              made_put(f, SHEAF_F32, shape[1] > 0 ? 2 : 1, shape,
                                       calloc((size_t)(shape[0] * (shape[1] + 1)), 4)));
        assert_true(sheaf__pickle_push(f->doc, f->root, sheaf__pickle_make_int(f->doc, i), state));
    }
    for (int n = 0, i = 0; groups[n] > 0; n++) {
        sheaf_pickle *group = sheaf__pickle_make(g->doc, SHEAF_PICKLE_DICT),
                     *params = made_set(g, group, "params", SHEAF_PICKLE_LIST);
        for (const int end = i + groups[n]; i < end; i++)
            sheaf__pickle_append(g->doc, params, sheaf__pickle_make_int(g->doc, i));
        sheaf__pickle_append(g->doc, g->root, group);
    }
    made_end(f, textf("%s/pytorch_optim-00001.bin", dir));
    made_end(g, textf("%s/pytorch_optim_group.bin", dir));
    return read_made(&sheaf__dialect_colossalai, dir, textf("%s/config.json", scratch.dir));
}

TEST(test_names__follow_from_groups_and_shapes)
{
    static const int plain[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 },
                     decayed[] = { 0, 1, 2, 3, 4, 5, 6, 7, 11, 8, 9, 10 },
                     last[] = { 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 11 };
    static const struct {
        const int *id;
        int groups[4];
        int64_t rows, columns;
        const char *order; /* NULL: none fits */
    } cases[] = {
        { plain, { ALL }, 13, 8, "one group in the model's order" },
        { decayed, { ALL - NORMS, NORMS }, 13, 8, "first the decayed group" },
        { last, { NORMS, ALL - NORMS }, 13, 8, "first norms and biases" },
        { decayed, { ALL - NORMS, NORMS - 1, 1 }, 13, 8, NULL },
        { decayed, { ALL - NORMS - 1, NORMS + 1 }, 13, 8, NULL },
        { plain, { ALL - 1, 1 }, 13, 8, NULL },
        { decayed, { ALL }, 13, 8, NULL },
        { plain, { ALL }, 64, 8, "one group in the model's order" }, /* rows that pad */
        { plain, { ALL }, 13, 9, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_catalog *c =
            read_named(cases[i].id, cases[i].groups, cases[i].rows, cases[i].columns);
        const sheaf_logical *t = sheaf__catalog_find(c, "exp_avg.lm_head.weight");
        if (cases[i].order == NULL) {
            CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "shapes that fit in no order");
            assert_null(t);
        } else {
            CHECK_SOUND(c);
            CHECK_FINDING(c, SHEAF_NOTE, "inferred", cases[i].order);
            assert_true(t != NULL && t->entry.shape[0] == 13);
            assert_true((finding(c, SHEAF_WARNING, "padded", "51 of them") != NULL) ==
                        (cases[i].rows == 64));
        }
        sheaf__catalog_free(c);
    }
}

FIXTURE(make_scratch, remove_scratch);
