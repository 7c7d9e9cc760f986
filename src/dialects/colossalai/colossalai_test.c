/* Folders as ColossalAI writes them: good ones, the save that lost rows, single ranks, moments by
 * number. */

#include <inttypes.h>

#include "base/file.h"
#include "dialects/common/dialects.h"
#include "dialects/hf/hf.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"

static const sheaf_finding *finding(const sheaf_catalog *c, const char *code, const char *tensor)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, code) == 0 &&
            (tensor == NULL || strcmp(c->finding[i].tensor, tensor) == 0))
            return &c->finding[i];
    return NULL;
}

static void show(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        print_message("%d %s %s %s: expected %s; found %s; cure %s\n", c->finding[i].severity,
                      c->finding[i].code, c->finding[i].path, c->finding[i].tensor,
                      c->finding[i].expected, c->finding[i].found, c->finding[i].cure);
}

/* Every tensor of the safetensors file `expected`, as the catalog has it. */
static void equals(const char *name, const sheaf_catalog *c, const char *expected, double tolerance,
                   bool all)
{
    sheaf_source *want = NULL;
    CHECK_OK(open_stored(&want, expected));
    int64_t compared = 0;
    for (int64_t i = 0; i < want->count(want); i++) {
        const sheaf_source_entry *e = want->entry(want, i);
        const sheaf_logical *t = sheaf__catalog_find(c, e->name);
        if (t == NULL && !all)
            continue;
        if (t == NULL || t->entry.ndim != e->ndim ||
            memcmp(t->entry.shape, e->shape, sizeof e->shape) != 0 || t->entry.dtype != SHEAF_F32 ||
            e->dtype != SHEAF_F32)
            fail_msg("%s: %s", name, e->name);
        const int64_t rows = e->shape[0], cols = e->ndim == 2 ? e->shape[1] : 1;
        float *a = malloc((size_t)(rows * cols) * 4 + 4),
              *b = malloc((size_t)(rows * cols) * 4 + 4);
        CHECK_OK(want->read(want, e->name, 0, rows, 0, cols, a));
        CHECK_OK(sheaf__catalog_read(c, t, 0, rows, 0, cols, b));
        for (int64_t k = 0; k < rows * cols; k++)
            CHECK_NEAR(e->name, b[k], a[k], tolerance);
        free(a);
        free(b);
        compared++;
    }
    if (compared == 0)
        fail_msg("%s: nothing was compared", name);
    want->close(want);
}

static void remove_catalog(sheaf_catalog **c)
{
    sheaf__catalog_free(*c);
    *c = NULL;
}

/* ---- made here ---- */

enum { WIDTH = 8 };

/* A folder with a config and one file: two tables with rows [from, from + rows) of tables whose
 * element (r, c) is r + c / 16 (zero from `vocab` on), and a norm whose elements are `mark`. */
static void make_save(const char *dir, const char *file, int64_t vocab, int64_t from, int64_t rows,
                      float mark)
{
    static const char *const names[] = { "lm_head.weight", "model.embed_tokens.weight",
                                         "model.norm.weight" };
    sheaf_safetensors_spec spec[3];
    sheaf_safetensors_writer *w = NULL;
    char path[600], config[600];
    CHECK_OK(sheaf__make_dirs(dir));
    snprintf(
        config, sizeof config,
        "{\"model_type\": \"llama\", \"vocab_size\": %" PRId64
        ", \"hidden_size\": %d, \"intermediate_size\": 8, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 1, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 64}",
        vocab, WIDTH);
    snprintf(path, sizeof path, "%s/config.json", dir);
    put(path, config);
    for (int i = 0; i < 3; i++)
        spec[i] = (sheaf_safetensors_spec){
            names[i], SHEAF_F32, i < 2 ? 2 : 1, { i < 2 ? rows : WIDTH, WIDTH }
        };
    float *table = calloc((size_t)rows * WIDTH, sizeof *table), norm[WIDTH];
    assert_non_null(table);
    for (int64_t r = 0; r < rows && from + r < vocab; r++)
        for (int c = 0; c < WIDTH; c++)
            table[r * WIDTH + c] = (float)(from + r) + (float)c / 16;
    for (int c = 0; c < WIDTH; c++)
        norm[c] = mark;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    CHECK_OK(sheaf__safetensors_begin(&w, path, spec, 3, NULL, 0));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, table, rows * WIDTH * 4));
    CHECK_OK(sheaf__safetensors_write(w, 1, 0, table, rows * WIDTH * 4));
    CHECK_OK(sheaf__safetensors_write(w, 2, 0, norm, sizeof norm));
    CHECK_OK(sheaf__safetensors_finish(w));
    free(table);
}

static void look(sheaf_catalog **c, const char *dir, const char *const *also)
{
    const sheaf_dialect_hints hints = { .also = also };
    CHECK_OK(sheaf__open(c, dir, &hints));
    assert_string_equal((*c)->dialect->name, "colossalai");
}

static const struct {
    int64_t vocab, rows;
    int ways;
    const char *said;
} lost[] = {
    { 511, 256, 2, "rank 0's part of a 2-way save, rows 256..510 are not in these files" },
    { 65535, 32768, 2, "rank 0's part of a 2-way save, rows 32768..65534 are not in these files" },
    { 128256, 16064, 8,
      "rank 0's part of a 8-way save, rows 16064..128255 are not in these files" },
    { 1000, 256, 4, "rank 0's part of a 4-way save, rows 256..999 are not in these files" },
    { 511, 255, 0, "255 rows" }, /* of no division */
};

TEST(test_colossalai__rows_that_were_lost_are_named)
{
    for (size_t i = 0; i < ARRAY_LEN(lost); i++) {
        sheaf_catalog *c = NULL;
        char dir[400];
        snprintf(dir, sizeof dir, "%s-%zu", at("lost"), i);
        make_save(dir, "model-00001.safetensors", lost[i].vocab, 0, lost[i].rows, 1);
        look(&c, dir, NULL);
        for (int t = 0; t < 2; t++) {
            const sheaf_finding *f =
                finding(c, "missing", t == 0 ? "lm_head.weight" : "model.embed_tokens.weight");
            if (f == NULL || f->severity != SHEAF_DEFECT || strstr(f->found, lost[i].said) == NULL)
                show(c);
            assert_non_null(f);
            assert_int_equal(f->severity, SHEAF_DEFECT);
            assert_non_null(strstr(f->found, lost[i].said));
            assert_int_equal(strstr(f->cure, "sheaf convert") != NULL, lost[i].ways > 0);
        }
        remove_catalog(&c);
    }
}

static void check_table(const sheaf_catalog *c, const char *name, int64_t vocab)
{
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    float row[WIDTH];
    assert_non_null(t);
    assert_int_equal(t->entry.shape[0], vocab);
    for (int64_t r = 0; r < vocab; r++) {
        CHECK_OK(sheaf__catalog_read(c, t, r, 1, 0, WIDTH, row));
        for (int k = 0; k < WIDTH; k++)
            CHECK_NEAR(name, row[k], (double)r + k / 16.0, 0);
    }
}

static bool rows_missing(const sheaf_catalog *c)
{
    return finding(c, "missing", "lm_head.weight") != NULL ||
           finding(c, "missing", "model.embed_tokens.weight") != NULL;
}

TEST(test_colossalai__the_other_ranks_complete_a_table)
{
    sheaf_catalog *c = NULL;
    char named[400], plain[400];
    make_save(at("base"), "model-00001.safetensors", 1000, 0, 256, 1);
    for (int r = 1; r < 4; r++) {
        char file[40];
        snprintf(file, sizeof file, "tp_rank_%02d.safetensors", r);
        make_save(at("ranks"), file, 1000, 256 * r, 256, 1);
    }
    snprintf(named, sizeof named, "%s/tp_rank_02.safetensors", at("ranks"));
    make_save(at("last"), "model-00001.safetensors", 1000, 768, 256, 1);
    snprintf(plain, sizeof plain, "%s", at("last"));
    look(&c, at("base"), (const char *const[]){ at("ranks"), NULL });
    assert_false(rows_missing(c));
    assert_int_equal(c->tp, 4);
    check_table(c, "lm_head.weight", 1000);
    check_table(c, "model.embed_tokens.weight", 1000);
    remove_catalog(&c);

    look(&c, at("base"),
         (const char *const[]){ named, plain,
                                NULL }); /* rank 1 is not there; the last is known by its padding */
    const sheaf_finding *f = finding(c, "missing", "lm_head.weight");
    assert_non_null(f);
    assert_non_null(strstr(f->found, "rank 1 of 4 with rows 256..511"));
    assert_non_null(finding(c, "inferred", NULL));
    assert_int_equal(sheaf__catalog_defects(c) > 0, 1);
    remove_catalog(&c);
}

/* 192 rows are a third of 553 with padding, and a quarter too: the names of the others say it. */
TEST(test_colossalai__padding_may_fill_a_whole_rank)
{
    for (int ranks = 3; ranks <= 4; ranks++) {
        sheaf_catalog *c = NULL;
        CHECK_OK(sheaf__remove_tree(at("filled")));
        CHECK_OK(sheaf__remove_tree(at("filled-0")));
        make_save(at("filled-0"), "model-00001.safetensors", 553, 0, 192, 1);
        for (int r = 1; r < ranks; r++) {
            char file[40];
            snprintf(file, sizeof file, "tp_rank_%02d.safetensors", r);
            make_save(at("filled"), file, 553, 192 * r, 192, 1);
        }
        look(&c, at("filled-0"), (const char *const[]){ at("filled"), NULL });
        assert_false(rows_missing(c));
        assert_int_equal(c->tp, ranks);
        check_table(c, "lm_head.weight", 553);
        check_table(c, "model.embed_tokens.weight", 553);
        remove_catalog(&c);
    }
}

TEST(test_colossalai__one_part_that_is_left_needs_no_name)
{
    sheaf_catalog *c = NULL;
    make_save(at("third-0"), "model-00001.safetensors", 700, 0, 256,
              1); /* the last is known by its padding, then the other is left */
    make_save(at("third-1"), "model-00001.safetensors", 700, 256, 256, 1);
    make_save(at("third-2"), "model-00001.safetensors", 700, 512, 256, 1);
    look(&c, at("third-0"), (const char *const[]){ at("third-1"), at("third-2"), NULL });
    assert_false(rows_missing(c));
    check_table(c, "lm_head.weight", 700);
    remove_catalog(&c);
    make_save(at("quarter-0"), "model-00001.safetensors", 1024, 0, 256,
              1); /* no padding, and three are left */
    make_save(at("quarter-1"), "model-00001.safetensors", 1024, 256, 256, 1);
    look(&c, at("quarter-0"), (const char *const[]){ at("quarter-1"), NULL });
    assert_non_null(finding(c, "conflict", NULL));
    assert_true(sheaf__catalog_defects(c) > 0);
    remove_catalog(&c);
    make_save(at("half-0"), "model-00001.safetensors", 512, 0, 256, 1); /* no padding to tell by */
    make_save(at("half-1"), "model-00001.safetensors", 512, 256, 256, 1);
    look(&c, at("half-0"), (const char *const[]){ at("half-1"), NULL });
    assert_false(rows_missing(c));
    check_table(c, "lm_head.weight", 512);
    remove_catalog(&c);
}

TEST(test_colossalai__a_part_of_another_save_is_refused)
{
    sheaf_catalog *c = NULL;
    make_save(at("one"), "model-00001.safetensors", 511, 0, 256, 1);
    make_save(at("two"), "tp_rank_01.safetensors", 511, 256, 256, 2);
    look(&c, at("one"), (const char *const[]){ at("two"), NULL });
    const sheaf_finding *f = finding(c, "stale", NULL);
    assert_non_null(f);
    assert_string_equal(f->tensor, "model.norm.weight");
    remove_catalog(&c);
    make_save(at("three"), "tp_rank_01.safetensors", 511, 256, 256, 1);
    look(&c, at("one"), (const char *const[]){ at("three"), at("three"), NULL });
    assert_non_null(finding(c, "duplicate", NULL));
    remove_catalog(&c);
}

/* Single ranks alone: their norms are copies. `mark` is the value of a norm throughout, so two of
 * them tell nothing. */
TEST(test_colossalai__ranks_of_two_runs_are_told_by_their_copies)
{
    for (int odd = 0; odd < 4; odd++) {
        sheaf_catalog *c = NULL;
        CHECK_OK(sheaf__remove_tree(at("of-runs")));
        for (int r = 0; r < 4; r++) {
            char file[40];
            snprintf(file, sizeof file, "tp_rank_%02d.safetensors", r);
            make_save(at("of-runs"), file, 1000, 256 * r, 256, r == odd && odd > 0 ? 2 : 1);
        }
        look(&c, at("of-runs"), NULL);
        assert_true(c->by_names && c->tp == 4);
        const sheaf_finding *f = finding(c, "foreign", NULL);
        assert_int_equal(f != NULL && f->severity == SHEAF_DEFECT, odd > 0);
        assert_true(odd == 0 || f->path[strlen(f->path) - strlen("0.safetensors")] == '0' + odd);
        remove_catalog(&c);
    }
}

/* Two ranks' files, each with all of these in this shape. */
TEST(test_colossalai__ranks_are_joined_as_the_schema_cuts)
{
    static const struct {
        const char *name;
        int64_t rows, cols; /* of the whole; cols 0: one axis */
    } whole[] = {
        { "model.layers.0.self_attn.q_proj.weight", 4, 4 },
        { "model.layers.0.self_attn.q_proj.bias", 4, 0 },
        { "model.layers.0.self_attn.o_proj.weight", 2, 8 },
        { "model.layers.0.self_attn.o_proj.bias", 2, 0 },
        { "model.layers.0.mlp.up_proj.weight", 4, 4 },
        { "model.layers.0.mlp.down_proj.weight", 2, 8 },
        { "model.layers.0.input_layernorm.weight", 2, 0 },
        { "model.layers.0.other.weight", 0, 4 }, /* the cut of this one is unknown */
        /* without heads and widths the ends of their parts are unknown */
        { "model.layers.0.self_attn.qkv_proj.weight", 0, 4 },
        { "model.layers.0.mlp.gate_up_proj.weight", 0, 4 },
    };
    enum { TENSORS = sizeof whole / sizeof *whole };
    static const float zero[8];
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__make_dirs(at("cuts")));
    for (int r = 0; r < 2; r++) {
        sheaf_safetensors_spec spec[TENSORS];
        sheaf_safetensors_writer *w = NULL;
        char path[600];
        for (int i = 0; i < TENSORS; i++)
            spec[i] = (sheaf_safetensors_spec){
                whole[i].name, SHEAF_F32, whole[i].cols > 0 ? 2 : 1, { 2, 4 }
            };
        snprintf(path, sizeof path, "%s/tp_rank_%02d.safetensors", at("cuts"), r);
        CHECK_OK(sheaf__safetensors_begin(&w, path, spec, TENSORS, NULL, 0));
        for (int i = 0; i < TENSORS; i++)
            CHECK_OK(sheaf__safetensors_write(w, i, 0, zero, whole[i].cols > 0 ? 32 : 8));
        CHECK_OK(sheaf__safetensors_finish(w));
    }
    look(&c, at("cuts"), NULL);
    for (int i = 0; i < TENSORS; i++) {
        const sheaf_logical *t = sheaf__catalog_find(c, whole[i].name);
        if (whole[i].rows == 0) {
            assert_null(t);
            assert_non_null(finding(c, "unsupported", whole[i].name));
        } else if (t == NULL || t->entry.shape[0] != whole[i].rows ||
                   (whole[i].cols > 0 && t->entry.shape[1] != whole[i].cols))
            fail_msg("%s", whole[i].name);
    }
    remove_catalog(&c);
}

/* A save that was killed has neither index nor config: the names tell which stages there are. */
TEST(test_colossalai__a_stage_that_is_missing_is_named)
{
    static const struct {
        int there; /* bits of stages 1 to 4 */
        const char *said;
    } rows[] = {
        { 0xf, NULL },
        { 0xe, "no stages 1..1 before" },
        { 0xd, "no stages 2..2 before" },
        { 0x9, "no stages 2..3 before that of model-stage-00004-shard-00001.safetensors" },
        { 0x8, "no stages 1..3 before" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_catalog *c = NULL;
        int told = 0;
        CHECK_OK(sheaf__remove_tree(at("stages")));
        CHECK_OK(sheaf__make_dirs(at("stages")));
        for (int s = 1; s <= 4; s++)
            for (int shard = 1; shard <= 2 && (rows[i].there >> (s - 1) & 1); shard++) {
                static const float value[2] = { 1, 2 };
                char path[600], name[40];
                sheaf_safetensors_writer *w = NULL;
                snprintf(name, sizeof name, "norm.%d.%d", s, shard);
                const sheaf_safetensors_spec spec = { name, SHEAF_F32, 1, { 2 } };
                snprintf(path, sizeof path, "%s/model-stage-%05d-shard-%05d.safetensors",
                         at("stages"), s, shard);
                CHECK_OK(sheaf__safetensors_begin(&w, path, &spec, 1, NULL, 0));
                CHECK_OK(sheaf__safetensors_write(w, 0, 0, value, sizeof value));
                CHECK_OK(sheaf__safetensors_finish(w));
            }
        look(&c, at("stages"), NULL);
        for (int64_t k = 0; k < c->nfindings; k++)
            if (c->finding[k].severity == SHEAF_DEFECT) {
                assert_non_null(rows[i].said);
                assert_non_null(strstr(c->finding[k].found, rows[i].said));
                told++;
            }
        assert_int_equal(told, rows[i].said != NULL);
        remove_catalog(&c);
    }
}

/* Without a config nothing but the parts themselves tells what each should hold. */
TEST(test_colossalai__parts_hold_the_same_tensors_in_one_size)
{
    static const float values[19] = { 1,  2,  3,  4,  5,  6,  7,  8,  9, 10,
                                      11, 12, 13, 14, 15, 16, 17, 18, 19 };
    static const char *const names[] = { "model.layers.0.mlp.up_proj.weight",
                                         "model.layers.1.mlp.up_proj.weight" };
    /* of rank 0, 1, 2: one tensor less; of 1: a larger one; of all: the same values */
    for (int harm = 0; harm < 5; harm++) {
        sheaf_catalog *c = NULL;
        CHECK_OK(sheaf__remove_tree(at("uneven")));
        CHECK_OK(sheaf__make_dirs(at("uneven")));
        for (int r = 0; r < 3; r++) {
            sheaf_safetensors_spec spec[2];
            sheaf_safetensors_writer *w = NULL;
            char path[600];
            const int n = r == harm ? 1 : 2;
            for (int i = 0; i < n; i++)
                spec[i] = (sheaf_safetensors_spec){
                    names[i], SHEAF_F32, 2, { harm == 3 && r == 1 && i == 1 ? 4 : 2, 4 }
                };
            snprintf(path, sizeof path, "%s/tp_rank_%02d.safetensors", at("uneven"), r);
            CHECK_OK(sheaf__safetensors_begin(&w, path, spec, n, NULL, 0));
            for (int i = 0; i < n; i++)
                CHECK_OK(sheaf__safetensors_write(w, i, 0, values + (harm == 4 && i == 1 ? 0 : r),
                                                  spec[i].shape[0] * 16));
            CHECK_OK(sheaf__safetensors_finish(w));
        }
        look(&c, at("uneven"), NULL);
        const char *code = harm < 3 ? "missing" : harm == 3 ? "shape" : "conflict";
        const sheaf_finding *f = finding(c, code, names[1]);
        if (f == NULL)
            fail_msg("harm %d: not reported", harm);
        else {
            assert_int_equal(f->severity, harm == 3 ? SHEAF_WARNING : SHEAF_DEFECT);
            assert_int_equal(f->path[strlen(f->path) - strlen("0.safetensors")] - '0',
                             harm < 3    ? harm
                             : harm == 3 ? 1
                                         : 0);
            assert_true(harm != 3 ||
                        strstr(f->found, "2 rows in the part of rank 0, 4 in") != NULL);
        }
        assert_null(finding(c, code, names[0]));
        remove_catalog(&c);
    }
}

TEST(test_colossalai__padding_tells_ranks_that_changed_names)
{
    static const int order[][4] = {
        { 0, 1, 2, 3 }, { 3, 1, 2, 0 }, { 0, 3, 2, 1 }, { 1, 0, 2, 3 }
    }; /* the last: unknown */
    for (size_t i = 0; i < 4; i++) {
        sheaf_catalog *c = NULL;
        CHECK_OK(sheaf__remove_tree(at("turned")));
        for (int r = 0; r < 4; r++) {
            char file[40];
            snprintf(file, sizeof file, "tp_rank_%02d.safetensors", r);
            make_save(at("turned"), file, 1000, 256 * order[i][r], 256, 1);
        }
        look(&c, at("turned"), NULL);
        const sheaf_finding *f = finding(c, "conflict", NULL);
        assert_int_equal(f != NULL, i == 1 || i == 2);
        assert_true(f == NULL ||
                    strstr(f->found, i == 1 ? "named rank 0 of 4" : "named rank 1 of 4") != NULL);
        remove_catalog(&c);
    }
}

TEST(test_colossalai__padding_is_cut_off)
{
    sheaf_catalog *c = NULL;
    make_save(at("padded"), "model-00001.safetensors", 511, 0, 512, 1);
    look(&c, at("padded"), NULL);
    assert_non_null(finding(c, "padded", "lm_head.weight"));
    assert_int_equal(c->vocab, 511);
    assert_int_equal(c->padded_vocab, 512);
    check_table(c, "lm_head.weight", 511);
    remove_catalog(&c);
    make_save(at("more"), "model-00001.safetensors", 511, 0, 513, 1);
    look(&c, at("more"), NULL);
    assert_non_null(finding(c, "shape", "lm_head.weight"));
    remove_catalog(&c);
}

TEST(test_colossalai__names_of_files_have_numbers)
{
    static const struct {
        const char *name;
        bool is;
    } rows[] = { { "tp_rank_07.safetensors", true },      { "tp_rank_.safetensors", false },
                 { "tp_rank_07.safetensors.tmp", false }, { "model-00001.safetensors", true },
                 { "model-.safetensors", false },         { "pytorch_optim-.bin", false } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char dir[500], path[700];
        snprintf(dir, sizeof dir, "%s/%zu", at("names"), i);
        CHECK_OK(sheaf__make_dirs(dir));
        snprintf(path, sizeof path, "%s/%s", dir, rows[i].name);
        put(path, "x");
        if (sheaf__dialect_colossalai.is(dir) != rows[i].is)
            fail_msg("%s", rows[i].name);
    }
}

/* The step of a training folder, which may be its first. */
TEST(test_colossalai__the_first_step_is_one)
{
    char dir[500];
    snprintf(dir, sizeof dir, "%s", at("first"));
    make_save(at("first/modeling"), "model-00001.safetensors", 511, 0, 511, 1);
    snprintf(dir, sizeof dir, "%s", at("first/running_states.json"));
    put(dir, "{\"epoch\": 0, \"step\": 0}");
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_colossalai, at("first"),
                                 &(sheaf_dialect_hints){ 0 }));
    assert_int_equal(c->step, 0);
    sheaf__catalog_free(c);
}

TEST(test_colossalai__what_a_killed_save_leaves_is_named)
{
    sheaf_catalog *c = NULL;
    char inner[500];
    make_save(at("killed"), "model-stage-00001-shard-00001.safetensors", 511, 0, 511, 1);
    snprintf(inner, sizeof inner, "%s/tmp_index_files", at("killed"));
    CHECK_OK(sheaf__make_dirs(inner));
    look(&c, at("killed"), NULL);
    assert_non_null(finding(c, "stale", NULL));
    remove_catalog(&c);
}

/* ---- the real program's folders ---- */

static bool sound(const sheaf_catalog *c)
{
    return sheaf__catalog_defects(c) == 0;
}

/* Reads DIR with the config of the model that it is named after. */
static void look_golden(sheaf_catalog **c, const char *dir, const char *config,
                        const char *const *also)
{
    const sheaf_dialect_hints hints = { .config = config, .also = also };
    CHECK_OK(sheaf__open(c, dir, &hints));
}

static void same_catalogs(const char *name, const sheaf_catalog *a, const sheaf_catalog *b)
{
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const sheaf_logical *t = &a->tensor[i], *u = sheaf__catalog_find(b, t->entry.name);
        char x[512], y[512];
        if (u == NULL || memcmp(t->entry.shape, u->entry.shape, sizeof t->entry.shape) != 0)
            fail_msg("%s: %s", name, t->entry.name);
        const int64_t rows = t->entry.shape[0], cols = t->entry.ndim == 2 ? t->entry.shape[1] : 1,
                      w = cols < 64 ? cols : 64;
        for (int64_t r = 0; r < rows; r++) {
            CHECK_OK(sheaf__catalog_read(a, t, r, 1, 0, w, x));
            CHECK_OK(sheaf__catalog_read(b, u, r, 1, 0, w, y));
            CHECK_BYTES(t->entry.name, x, y, w * 4);
        }
    }
}

typedef struct golden_set {
    char base[600], config[700], good[64][800], ranks[64][800], broken[64][800];
    int ngood, nranks, nbroken;
} golden_set;

static void look_around(golden_set *set, const char *folder)
{
    char **names = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, golden(folder)));
    for (int64_t i = 0; i < n && i < 64; i++) {
        sheaf_catalog *c = NULL;
        char path[800];
        snprintf(path, sizeof path, "%s/%s", golden(folder), names[i]);
        if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
            continue;
        look_golden(&c, path, set->config, NULL);
        bool weights = false, moments = false;
        for (int64_t k = 0; k < c->count; k++) {
            weights = weights || c->tensor[k].kind == SHEAF_WEIGHT;
            moments = moments || c->tensor[k].kind == SHEAF_MOMENT;
        }
        if (moments) {
            if (!sound(c) || finding(c, "inferred", NULL) == NULL || c->step <= 0)
                show(c);
            assert_true(sound(c));
            for (int64_t k = 0; k < c->count; k++) /* none is left with a number for a name */
                assert_true(strstr(c->tensor[k].entry.name, "weight") != NULL ||
                            strstr(c->tensor[k].entry.name, "bias") != NULL);
            char expected[900];
            snprintf(expected, sizeof expected, "%s/full_train/final_adam_state_part.safetensors",
                     set->base);
            equals(path, c, expected, 1e-6, true);
        } else if (weights && sound(c)) {
            snprintf(set->good[set->ngood++], 800, "%s", path);
        } else if (c->tp > 1 && strncmp(c->file[0].path + strlen(path), "/tp_rank_", 9) == 0) {
            snprintf(set->ranks[set->nranks++], 800, "%s", path);
        } else {
            assert_non_null(finding(c, "missing", NULL));
            snprintf(set->broken[set->nbroken++], 800, "%s", path);
        }
        remove_catalog(&c);
    }
    sheaf__names_free(names, n);
}

TEST(test_colossalai__what_the_program_wrote)
{
    char **names = NULL;
    int64_t n = 0, folders = 0;
    if (!golden_is_full())
        skip();
    CHECK_OK(sheaf__list_dir(&names, &n, golden("llama")));
    for (int64_t i = 0; i < n; i++) {
        golden_set *set = calloc(1, sizeof *set);
        char folder[300];
        if (strncmp(names[i], "colossalai_", 11) != 0) {
            free(set);
            continue;
        }
        snprintf(set->base, sizeof set->base, "%s/llama/%s", golden("."), names[i] + 11);
        snprintf(set->config, sizeof set->config, "%s/hf/config.json", set->base);
        snprintf(folder, sizeof folder, "llama/%s", names[i]);
        look_around(set, folder);
        folders++;
        assert_true(set->ngood > 0 && set->nbroken > 0);
        for (int b = 0; b < set->nbroken; b++) { /* the parts make one of the good ones of it */
            sheaf_catalog *c = NULL, *good = NULL;
            bool equal = false;
            look_golden(&c, set->broken[b], NULL, (const char *const[]){ set->ranks[0], NULL });
            if (!sound(c))
                show(c);
            assert_true(sound(c));
            for (int g = 0; g < set->ngood && !equal; g++) {
                const sheaf_logical *x, *y;
                float p[4], q[4];
                look_golden(&good, set->good[g], NULL, NULL);
                x = sheaf__catalog_find(c, "model.norm.weight");
                y = sheaf__catalog_find(good, "model.norm.weight");
                CHECK_OK(sheaf__catalog_read(c, x, 0, 4, 0, 1, p));
                CHECK_OK(sheaf__catalog_read(good, y, 0, 4, 0, 1, q));
                equal = memcmp(p, q, sizeof p) == 0;
                if (equal)
                    same_catalogs(set->good[g], c, good);
                remove_catalog(&good);
            }
            assert_true(equal);
            remove_catalog(&c);
        }
        free(set);
    }
    sheaf__names_free(names, n);
    assert_true(folders > 0);
}

FIXTURE(make_scratch, remove_scratch);
