/* Folders as ColossalAI writes them: good ones, the save that lost rows, single ranks, moments by
 * number. */

#include <inttypes.h>

#include "base/file.h"
#include "dialects/common/dialects.h"
#include "dialects/hf/hf.h"
#include "tests/files.h"
#include "tests/findings.h"
#include "tests/golden.h"
#include "tests/opened.h"
#include "tests/put_tensors.h"
#include "tests/same_sources.h"

/* ---- made here ---- */

enum { WIDTH = 8 };
static const char one_file[] = "model-00001.safetensors";

/* A folder with a config and one file: two tables with rows [from, from + rows) of tables whose
 * element (r, c) is r + c / 16 (zero from `vocab` on), and a norm whose elements are `mark`. */
static void make_save(const char *dir, const char *file, int64_t vocab, int64_t from, int64_t rows,
                      float mark)
{
    static const char *const names[] = { "lm_head.weight", "model.embed_tokens.weight",
                                         "model.norm.weight" };
    sheaf_safetensors_spec spec[3];
    CHECK_OK(sheaf__make_dirs(dir));
    put(textf("%s/config.json", dir),
        textf(
            "{\"model_type\": \"llama\", \"vocab_size\": %" PRId64
            ", \"hidden_size\": %d, \"intermediate_size\": 8, \"num_hidden_layers\": 1,"
            " \"num_attention_heads\": 1, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 64}",
            vocab, WIDTH));
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
    put_tensors(textf("%s/%s", dir, file), spec, 3, (const void *const[]){ table, table, norm });
    free(table);
}

static void make_rank(const char *dir, int rank, int64_t vocab, int64_t from, int64_t rows,
                      float mark)
{
    make_save(dir, textf("tp_rank_%02d.safetensors", rank), vocab, from, rows, mark);
}

#define ALSO(...) ((const char *const[]){ __VA_ARGS__, NULL })

static sheaf_catalog *look(const char *dir, const char *const *also)
{
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__open(&c, dir, &(sheaf_dialect_hints){ .also = also }));
    assert_string_equal(c->dialect->name, "colossalai");
    return c;
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
        const char *dir = textf("%s-%zu", at("lost"), i);
        make_save(dir, one_file, lost[i].vocab, 0, lost[i].rows, 1);
        sheaf_catalog *c = look(dir, NULL);
        for (int t = 0; t < 2; t++) {
            const char *what = textf(
                "=%s | %s", t == 0 ? "lm_head.weight" : "model.embed_tokens.weight", lost[i].said);
            CHECK_FINDING(c, SHEAF_DEFECT, "missing", what);
            const sheaf_finding *f = finding(c, SHEAF_DEFECT, "missing", what);
            assert_int_equal(strstr(f->cure, "sheaf convert") != NULL, lost[i].ways > 0);
        }
        sheaf__catalog_free(c);
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

/* The parts make whole tables. Frees `c`. */
static void check_whole(sheaf_catalog *c, int64_t vocab)
{
    assert_null(finding(c, -1, "missing", "lm_head.weight"));
    assert_null(finding(c, -1, "missing", "model.embed_tokens.weight"));
    check_table(c, "lm_head.weight", vocab);
    check_table(c, "model.embed_tokens.weight", vocab);
    sheaf__catalog_free(c);
}

TEST(test_colossalai__the_other_ranks_complete_a_table)
{
    make_save(at("base"), one_file, 1000, 0, 256, 1);
    for (int r = 1; r < 4; r++)
        make_rank(at("ranks"), r, 1000, 256 * r, 256, 1);
    make_save(at("last"), one_file, 1000, 768, 256, 1);
    sheaf_catalog *c = look(at("base"), ALSO(at("ranks")));
    assert_int_equal(c->tp, 4);
    check_whole(c, 1000);
    /* rank 1 is not there; the last is known by its padding */
    c = look(at("base"), ALSO(at("ranks/tp_rank_02.safetensors"), at("last")));
    CHECK_FINDING(c, SHEAF_NOTE, "inferred", "");
    want_defect(c, -1, "missing", "=lm_head.weight | rank 1 of 4 with rows 256..511");
}

/* 192 rows are a third of 553 with padding, and a quarter too: the names of the others say it. */
TEST(test_colossalai__padding_may_fill_a_whole_rank)
{
    for (int ranks = 3; ranks <= 4; ranks++) {
        CHECK_OK(sheaf__remove_tree(at("filled")));
        CHECK_OK(sheaf__remove_tree(at("filled-0")));
        make_save(at("filled-0"), one_file, 553, 0, 192, 1);
        for (int r = 1; r < ranks; r++)
            make_rank(at("filled"), r, 553, 192 * r, 192, 1);
        sheaf_catalog *c = look(at("filled-0"), ALSO(at("filled")));
        assert_int_equal(c->tp, ranks);
        check_whole(c, 553);
    }
}

TEST(test_colossalai__one_part_that_is_left_needs_no_name)
{
    for (int r = 0; r < 3; r++) /* the last is known by its padding, then the other is left */
        make_save(at(textf("third-%d", r)), one_file, 700, 256 * r, 256, 1);
    check_whole(look(at("third-0"), ALSO(at("third-1"), at("third-2"))), 700);
    for (int r = 0; r < 2; r++) { /* no padding, and three are left; or one */
        make_save(at(textf("quarter-%d", r)), one_file, 1024, 256 * r, 256, 1);
        make_save(at(textf("half-%d", r)), one_file, 512, 256 * r, 256, 1);
    }
    want_found(look(at("quarter-0"), ALSO(at("quarter-1"))), -1, "conflict", "");
    check_whole(look(at("half-0"), ALSO(at("half-1"))), 512);
}

TEST(test_colossalai__a_part_of_another_save_is_refused)
{
    make_save(at("one"), one_file, 511, 0, 256, 1);
    make_rank(at("two"), 1, 511, 256, 256, 2);
    make_rank(at("three"), 1, 511, 256, 256, 1);
    want_found(look(at("one"), ALSO(at("two"))), -1, "stale", "=model.norm.weight");
    sheaf_catalog *c = look(at("one"), ALSO(at("three"), at("three")));
    CHECK_FINDING(c, SHEAF_DEFECT, "duplicate", "");
    sheaf__catalog_free(c);
}

/* Single ranks alone: their norms are copies. `mark` is the value of a norm throughout, so two of
 * them tell nothing. */
TEST(test_colossalai__ranks_of_two_runs_are_told_by_their_copies)
{
    for (int odd = 0; odd < 4; odd++) {
        CHECK_OK(sheaf__remove_tree(at("of-runs")));
        for (int r = 0; r < 4; r++)
            make_rank(at("of-runs"), r, 1000, 256 * r, 256, r == odd && odd > 0 ? 2 : 1);
        sheaf_catalog *c = look(at("of-runs"), NULL);
        assert_true(c->by_names && c->tp == 4);
        assert_int_equal(
            finding(c, SHEAF_DEFECT, "foreign", textf("/tp_rank_0%d.safetensors", odd)) != NULL,
            odd > 0);
        assert_int_equal(finding(c, -1, "foreign", "") != NULL, odd > 0);
        sheaf__catalog_free(c);
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
    sheaf_safetensors_spec spec[TENSORS];
    CHECK_OK(sheaf__make_dirs(at("cuts")));
    for (int i = 0; i < TENSORS; i++)
        spec[i] = (sheaf_safetensors_spec){
            whole[i].name, SHEAF_F32, whole[i].cols > 0 ? 2 : 1, { 2, 4 }
        };
    for (int r = 0; r < 2; r++)
        put_tensors(textf("%s/tp_rank_%02d.safetensors", at("cuts"), r), spec, TENSORS, NULL);
    sheaf_catalog *c = look(at("cuts"), NULL);
    for (int i = 0; i < TENSORS; i++) {
        const sheaf_logical *t = sheaf__catalog_find(c, whole[i].name);
        if (whole[i].rows == 0) {
            assert_null(t);
            CHECK_FINDING(c, -1, "unsupported", textf("=%s", whole[i].name));
        } else if (t == NULL || t->entry.shape[0] != whole[i].rows ||
                   (whole[i].cols > 0 && t->entry.shape[1] != whole[i].cols))
            fail_msg("%s", whole[i].name);
    }
    sheaf__catalog_free(c);
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
        int told = 0;
        CHECK_OK(sheaf__remove_tree(at("stages")));
        CHECK_OK(sheaf__make_dirs(at("stages")));
        for (int s = 1; s <= 4; s++)
            for (int shard = 1; shard <= 2 && (rows[i].there >> (s - 1) & 1); shard++) {
                const sheaf_safetensors_spec spec = {
                    textf("norm.%d.%d", s, shard), SHEAF_F32, 1, { 2 }
                };
                put_tensors(
                    textf("%s/model-stage-%05d-shard-%05d.safetensors", at("stages"), s, shard),
                    &spec, 1, (const void *const[]){ (const float[]){ 1, 2 } });
            }
        sheaf_catalog *c = look(at("stages"), NULL);
        for (int64_t k = 0; k < c->nfindings; k++)
            if (c->finding[k].severity == SHEAF_DEFECT) {
                assert_non_null(rows[i].said);
                assert_non_null(strstr(c->finding[k].found, rows[i].said));
                told++;
            }
        assert_int_equal(told, rows[i].said != NULL);
        sheaf__catalog_free(c);
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
        CHECK_OK(sheaf__remove_tree(at("uneven")));
        CHECK_OK(sheaf__make_dirs(at("uneven")));
        for (int r = 0; r < 3; r++) {
            const sheaf_safetensors_spec spec[] = {
                { names[0], SHEAF_F32, 2, { 2, 4 } },
                { names[1], SHEAF_F32, 2, { harm == 3 && r == 1 ? 4 : 2, 4 } },
            };
            put_tensors(textf("%s/tp_rank_%02d.safetensors", at("uneven"), r), spec,
                        r == harm ? 1 : 2,
                        (const void *const[]){ values + r, values + (harm == 4 ? 0 : r) });
        }
        sheaf_catalog *c = look(at("uneven"), NULL);
        const char *code = harm < 3 ? "missing" : harm == 3 ? "shape" : "conflict";
        CHECK_FINDING(c, harm == 3 ? SHEAF_WARNING : SHEAF_DEFECT, code,
                      textf("=%s | /tp_rank_0%d.safetensors%s", names[1],
                            harm < 3    ? harm
                            : harm == 3 ? 1
                                        : 0,
                            harm == 3 ? " | 2 rows in the part of rank 0, 4 in" : ""));
        assert_null(finding(c, -1, code, names[0]));
        sheaf__catalog_free(c);
    }
}

TEST(test_colossalai__padding_tells_ranks_that_changed_names)
{
    static const int order[][4] = {
        { 0, 1, 2, 3 }, { 3, 1, 2, 0 }, { 0, 3, 2, 1 }, { 1, 0, 2, 3 }
    }; /* the last: unknown */
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(sheaf__remove_tree(at("turned")));
        for (int r = 0; r < 4; r++)
            make_rank(at("turned"), r, 1000, 256 * order[i][r], 256, 1);
        sheaf_catalog *c = look(at("turned"), NULL);
        const bool told = i == 1 || i == 2;
        assert_int_equal(finding(c, -1, "conflict", "") != NULL, told);
        if (told)
            CHECK_FINDING(c, -1, "conflict", i == 1 ? "named rank 0 of 4" : "named rank 1 of 4");
        sheaf__catalog_free(c);
    }
}

TEST(test_colossalai__padding_is_cut_off)
{
    make_save(at("padded"), one_file, 511, 0, 512, 1);
    sheaf_catalog *c = look(at("padded"), NULL);
    CHECK_FINDING(c, SHEAF_WARNING, "padded", "=lm_head.weight");
    assert_int_equal(c->vocab, 511);
    assert_int_equal(c->padded_vocab, 512);
    check_whole(c, 511);
    make_save(at("more"), one_file, 511, 0, 513, 1);
    c = look(at("more"), NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "shape", "=lm_head.weight");
    sheaf__catalog_free(c);
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
        const char *dir = textf("%s/%zu", at("names"), i);
        CHECK_OK(sheaf__make_dirs(dir));
        put(textf("%s/%s", dir, rows[i].name), "x");
        if (sheaf__dialect_colossalai.is(dir) != rows[i].is)
            fail_msg("%s", rows[i].name);
    }
}

/* The step of a training folder, which may be its first. */
TEST(test_colossalai__the_first_step_is_one)
{
    make_save(at("first/modeling"), one_file, 511, 0, 511, 1);
    put(at("first/running_states.json"), "{\"epoch\": 0, \"step\": 0}");
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_colossalai, at("first"),
                                 &(sheaf_dialect_hints){ 0 }));
    assert_int_equal(c->step, 0);
    sheaf__catalog_free(c);
}

TEST(test_colossalai__what_a_killed_save_leaves_is_named)
{
    make_save(at("killed"), "model-stage-00001-shard-00001.safetensors", 511, 0, 511, 1);
    CHECK_OK(sheaf__make_dirs(at("killed/tmp_index_files")));
    sheaf_catalog *c = look(at("killed"), NULL);
    CHECK_FINDING(c, -1, "stale", "");
    sheaf__catalog_free(c);
}

/* ---- the real program's folders ---- */

/* Reads DIR with the config of the model that it is named after. */
static sheaf_catalog *look_golden(const char *dir, const char *config, const char *const *also)
{
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__open(&c, dir, &(sheaf_dialect_hints){ .config = config, .also = also }));
    return c;
}

typedef struct golden_set {
    const char *base, *config, *good[64], *ranks[64], *broken[64];
    int ngood, nranks, nbroken;
} golden_set;

static void look_around(golden_set *set, const char *folder)
{
    char **names = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, golden(folder)));
    for (int64_t i = 0; i < n && i < 64; i++) {
        const char *path = textf("%s/%s", golden(folder), names[i]);
        if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
            continue;
        sheaf_catalog *c = look_golden(path, set->config, NULL);
        bool weights = false, moments = false;
        for (int64_t k = 0; k < c->count; k++) {
            weights = weights || c->tensor[k].kind == SHEAF_WEIGHT;
            moments = moments || c->tensor[k].kind == SHEAF_MOMENT;
        }
        if (moments) {
            CHECK_FINDING(c, SHEAF_NOTE, "inferred", "");
            want_defects(c, 0);
            assert_true(c->step > 0);
            for (int64_t k = 0; k < c->count; k++) /* none is left with a number for a name */
                assert_true(strstr(c->tensor[k].entry.name, "weight") != NULL ||
                            strstr(c->tensor[k].entry.name, "bias") != NULL);
            sheaf_source *want = NULL, *got = all_of(c);
            CHECK_OK(open_stored(
                &want, textf("%s/full_train/final_adam_state_part.safetensors", set->base)));
            assert_true(want->count(want) > 0);
            check_holds(got, want, 1e-6);
            want->close(want);
            got->close(got);
            continue;
        }
        if (weights && sheaf__catalog_defects(c) == 0) {
            set->good[set->ngood++] = path;
        } else if (c->tp > 1 && strncmp(c->file[0].path + strlen(path), "/tp_rank_", 9) == 0) {
            set->ranks[set->nranks++] = path;
        } else {
            CHECK_FINDING(c, -1, "missing", "");
            set->broken[set->nbroken++] = path;
        }
        sheaf__catalog_free(c);
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
        if (strncmp(names[i], "colossalai_", 11) != 0)
            continue;
        golden_set set = { .base = textf("%s/llama/%s", golden("."), names[i] + 11) };
        set.config = textf("%s/hf/config.json", set.base);
        look_around(&set, textf("llama/%s", names[i]));
        folders++;
        assert_true(set.ngood > 0 && set.nbroken > 0);
        for (int b = 0; b < set.nbroken; b++) { /* the parts make one of the good ones of it */
            bool equal = false;
            sheaf_catalog *c = look_golden(set.broken[b], NULL, ALSO(set.ranks[0]));
            want_defects(c, 0);
            sheaf_source *joined = all_of(c);
            for (int g = 0; g < set.ngood && !equal; g++) {
                float p[4], q[4];
                sheaf_source *good = all_of(look_golden(set.good[g], NULL, NULL));
                CHECK_OK(joined->read(joined, "model.norm.weight", 0, 4, 0, 1, p));
                CHECK_OK(good->read(good, "model.norm.weight", 0, 4, 0, 1, q));
                equal = memcmp(p, q, sizeof p) == 0;
                if (equal)
                    same_sources(joined, good, 0);
                good->close(good);
            }
            assert_true(equal);
            joined->close(joined);
        }
    }
    sheaf__names_free(names, n);
    assert_true(folders > 0);
}

FIXTURE(make_scratch, remove_scratch);
