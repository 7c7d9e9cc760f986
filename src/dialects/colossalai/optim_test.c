/* optim_test.c - moments by number without the model's config: nothing but the groups and the index
 * tells what should be there. */
#include "dialects/common/made_test.h"

#include "dialects/colossalai/colossalai.h"
#include "formats/pickle_inner.h"

enum { PARAMETERS = 6 };

static double step_of[3] = { 7, 7, 7 }; /* that file 1, 2 and 3 say */
static int last = PARAMETERS - 1;       /* the last number in the groups */

static void put_moments(const char *dir, int file, int from, int to)
{
    char path[600];
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
    snprintf(path, sizeof path, "%s/pytorch_optim-%05d.bin", dir, file);
    made_write(f, path);
}

/* Two files with three parameters each, groups of four and two. */
static void put_optimizer(char dir[400], const char *name)
{
    char path[600];
    snprintf(dir, 400, "%s/%s", scratch.dir, name);
    CHECK_OK(sheaf__make_dirs(dir, NULL));
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
    snprintf(path, sizeof path, "%s/pytorch_optim_group.bin", dir);
    made_write(f, path);
    snprintf(path, sizeof path, "%s/pytorch_optim.bin.index.json", dir);
    put(path, "{\"metadata\": {\"total_size\": 0.5}, \"weight_map\": {"
              "\"0\": \"pytorch_optim-00001.bin\", \"3\": \"pytorch_optim-00002.bin\", "
              "\"4\": \"pytorch_optim-00002.bin\"}}");
}

static void test_optimizer__without_a_config_groups_and_index_tell(void **state)
{
    char dir[400], path[600];
    put_optimizer(dir, "whole");
    sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "missing", "names of parameters are not in these files");
    assert_int_equal(c->count, 2 * PARAMETERS);
    sheaf__catalog_free(c);

    put_optimizer(dir, "file-gone");
    snprintf(path, sizeof path, "%s/pytorch_optim-00002.bin", dir);
    assert_int_equal(unlink(path), 0);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no pytorch_optim-00002.bin");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no exp_avg of number 3");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no exp_avg_sq of number 5");
    check_no_source(c);

    put_optimizer(dir, "one-gone"); /* of a file that is there */
    snprintf(path, sizeof path, "%s/pytorch_optim-00002.bin", dir);
    assert_int_equal(unlink(path), 0);
    put_moments(dir, 2, 4, PARAMETERS);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no exp_avg of number 3");
    assert_int_equal(sheaf__catalog_defects(c), 2);
    sheaf__catalog_free(c);

    put_optimizer(dir, "one-more"); /* left from another save */
    put_moments(dir, 3, PARAMETERS, PARAMETERS + 1);
    c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "foreign", "one more, where the groups have 6");
    assert_int_equal(sheaf__catalog_defects(c), 2);
    sheaf__catalog_free(c);
}

static void test_optimizer__steps_are_whole_and_alike(void **state)
{
    static const struct {
        double step[2];
        int64_t is;
        const char *stale;
    } cases[] = { { { 0, 0 }, 0, NULL },
                  { { 0, 1 }, 0, "moments of step 1" },
                  { { 2.5, 3 }, 3, NULL }, /* which no program writes: not taken for a step */
                  { { 3, 2.5 }, 3, NULL },
                  { { 1e15, 3 }, 3, NULL } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char dir[400], name[32];
        snprintf(name, sizeof name, "step%zu", i);
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
static void test_optimizer__its_step_comes_before_the_runs(void **state)
{
    char dir[400], path[600];
    put_optimizer(dir, "training/optimizer");
    snprintf(path, sizeof path, "%s/training/modeling", scratch.dir);
    CHECK_OK(sheaf__make_dirs(path, NULL));
    snprintf(path, sizeof path, "%s/training/running_states.json", scratch.dir);
    put(path, "{\"epoch\": 0, \"step\": 9}");
    *strrchr(path, '/') = '\0';
    sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, path, NULL);
    assert_int_equal(c->step, 7);
    sheaf__catalog_free(c);
}

static void test_optimizer__groups_count_from_0(void **state)
{
    char dir[400];
    last = PARAMETERS;
    put_optimizer(dir, "skipped");
    last = PARAMETERS - 1;
    sheaf_catalog *c = read_made(&sheaf__dialect_colossalai, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "damaged", "something else");
    sheaf__catalog_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer__steps_are_whole_and_alike),
        cmocka_unit_test(test_optimizer__its_step_comes_before_the_runs),
        cmocka_unit_test(test_optimizer__groups_count_from_0),
        cmocka_unit_test(test_optimizer__without_a_config_groups_and_index_tell),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
