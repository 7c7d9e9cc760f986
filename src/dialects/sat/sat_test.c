/* sat_test.c - SAT checkpoints as they are found: whole, scattered over stamped folders, and
 * broken. */
#include "tests/made_sat.h"

#include <jansson.h>
#include <unistd.h>

#include "dialects/sat/parts.h"
#include "formats/zip.h"
#include "tests/faults/denied_memory.h"

/* ---- recorded ---- */

static bool is_dir(const char *path)
{
    return sheaf__path_kind(path) == SHEAF_PATH_DIR;
}

/* A folder with parts in stamped folders, from itself and from each of them. */
static int check_scattered(const char *path, const char *whole)
{
    char **names = NULL, inside[2000];
    int64_t n = 0;
    int found = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, path));
    sheaf_source *want = as_source(sat_read_at(whole));
    for (int64_t i = 0; i < n; i++) {
        if (!sheaf__sat_stamp_of(names[i]).has)
            continue;
        snprintf(inside, sizeof inside, "%s/%s", path, names[i]);
        sheaf_catalog *c = sat_read_at(inside);
        CHECK_FINDING(c, SHEAF_WARNING, "time-stamp", textf("--to sat --tp 1 | %s", names[i]));
        want_found(c, 0, NULL, NULL);
        equals(inside, want);
        found++;
    }
    if (found > 0)
        equals(path, want);
    want->close(want);
    sheaf__names_free(names, n);
    return found;
}

static int check_model(const char *model)
{
    char **names = NULL, whole[1200], path[1200];
    int64_t n = 0;
    int found = 0;
    snprintf(whole, sizeof whole, "%s/mp1", model);
    if (!is_dir(model) || !is_dir(whole))
        return 0;
    CHECK_OK(sheaf__list_dir(&names, &n, model));
    for (int64_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", model, names[i]);
        if (!is_dir(path))
            continue;
        sheaf_catalog *c = sat_read_at(path);
        want_defects(c, 0);
        CHECK_OK(sheaf__catalog_compare(c));
        assert_true(finding(c, -1, "replica", "") == NULL && c->step > 0 && c->vocab > 0);
        const int ways = c->tp;
        sheaf__catalog_free(c);
        int said = 0, end = 0;
        if (sscanf(names[i], "mp%d%n", &said, &end) == 1 && names[i][end] == '\0') {
            assert_int_equal(ways, said);
            sheaf_source *want = as_source(sat_read_at(whole));
            equals(path, want);
            want->close(want);
            found++;
        }
        const char *bf16 = textf("%s/mp1_bf16", model);
        if (is_dir(bf16))
            found += check_scattered(path, bf16);
    }
    sheaf__names_free(names, n);
    return found;
}

TEST(test_read__joins_every_recorded_checkpoint)
{
    assert_true(golden_each("*/", check_model) >= (golden_is_full() ? 8 : 1));
}

/* ---- stamps ---- */

TEST(test_stamps__are_read_and_compared_over_midnight_and_new_year)
{
    static const struct {
        const char *a, *b;
        int64_t apart;
    } rows[] = {
        { "x-01-02-12-36", "x-01-02-12-37", 1 },
        { "x-01-02-12-59", "x-01-02-13-00", 1 },
        { "x-01-02-23-59", "x-01-03-00-01", 2 },
        { "x-01-31-23-59", "x-02-01-00-00", 1 },
        { "x-12-31-23-59", "x-01-01-00-00", 1 },
        { "x-02-28-23-59", "x-03-01-00-00", 1 }, /* no leap year */
        { "x-02-29-23-59", "x-03-01-00-00", 1 },
        { "x-02-28-23-59", "x-02-29-00-00", 1 }, /* one */
        { "x-04-30-23-58", "x-05-01-00-00", 2 },
        { "x-01-02-12-36", "x-01-02-12-36", 0 },
        { "x-01-02-12-36", "x-01-03-12-36", 1440 },
        { "x-12-31-00-00", "x-01-01-00-00", 1440 },
    };
    static const char *const none[] = { "",
                                        "x",
                                        "x-1-02-12-36",
                                        "x-13-02-12-36",
                                        "x-00-02-12-36",
                                        "x-01-32-12-36",
                                        "x-01-00-12-36",
                                        "x-01-02-24-36",
                                        "x-01-02-12-60",
                                        "x-01-02-12-3a",
                                        "x-01-02-12-36.old",
                                        "x_01-02-12-36" };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf__sat_stamp a = sheaf__sat_stamp_of(rows[i].a),
                               b = sheaf__sat_stamp_of(rows[i].b);
        assert_true(a.has && b.has && a.stem == 1);
        if (sheaf__sat_minutes(&a, &b) != rows[i].apart ||
            sheaf__sat_minutes(&b, &a) != rows[i].apart)
            fail_msg("%s, %s: %d", rows[i].a, rows[i].b, (int)sheaf__sat_minutes(&a, &b));
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        if (sheaf__sat_stamp_of(none[i]).has)
            fail_msg("'%s' has a stamp", none[i]);
}

static const char *part_of(const char *save, int step, int rank)
{
    return textf("%s/%d/mp_rank_%02d_model_states.pt", at(save), step, rank);
}

/* Parts of scratch/from at step `step` into scratch/to; config and latest with rank 0, latest
 * everywhere. */
static void move_parts(const char *from, const char *to, int step, unsigned ranks)
{
    CHECK_OK(sheaf__make_dirs(textf("%s/%d", at(to), step)));
    put(textf("%s/latest", at(to)), textf("%d", step));
    for (int rank = 0; rank < 16; rank++)
        if ((ranks >> rank & 1) != 0)
            CHECK_OK(sheaf__rename(part_of(from, step, rank), part_of(to, step, rank)));
    if ((ranks & 1) != 0)
        CHECK_OK(sheaf__rename(textf("%s/model_config.json", at(from)),
                               textf("%s/model_config.json", at(to))));
}

/* A folder "runs" without anything; parts of a model put into stamped folders below it. */
static void clear(void)
{
    CHECK_OK(sheaf__remove_tree(at("runs")));
    CHECK_OK(sheaf__make_dirs(at("runs")));
}

static void scatter(made *m, int ways, int step, const char *first, unsigned first_ranks,
                    const char *second)
{
    made_write(m, at("whole"), ways, step);
    move_parts("whole", first, step, first_ranks);
    if (second != NULL)
        move_parts("whole", second, step, ((1u << ways) - 1) & ~first_ranks);
}

TEST(test_read__joins_folders_whose_clocks_differ)
{
    static const char *const pairs[][2] = {
        { "runs/ft-01-02-12-36", "runs/ft-01-02-12-37" },
        { "runs/ft-01-02-12-37", "runs/ft-01-02-12-36" },
        { "runs/ft-01-31-23-59", "runs/ft-02-01-00-01" },
        { "runs/a-b-12-31-23-59", "runs/a-b-01-01-00-00" },
        { "runs/ft-01-01-00-00", "runs/ft-12-31-23-59" },
        { "runs/-02-29-23-59", "runs/-03-01-00-00" },
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        made m = { .agent = i % 2 == 0, .seed = 20 + i };
        made_init(&m);
        clear();
        scatter(&m, 4, 30, pairs[i][0], 1, pairs[i][1]);
        for (int k = 0; k < 2; k++) {
            equals(at(pairs[i][k]), &m.source);
            equals(textf("%s/", at(pairs[i][k])), &m.source);
            equals(textf("%s/30", at(pairs[i][k])), &m.source);
            equals(textf("%s/30/mp_rank_%02d_model_states.pt", at(pairs[i][k]), 2 * k), &m.source);
        }
        equals(at("runs"), &m.source);
        sheaf_catalog *c = sat_read_at(at("runs")); /* in order of ranks, not of clocks */
        assert_non_null(strstr(c->file[0].path, "mp_rank_00"));
        assert_non_null(strstr(c->file[3].path, "mp_rank_03"));
        sheaf__catalog_free(c);
        char was[500];
        assert_non_null(getcwd(was, sizeof was));
        assert_int_equal(chdir(at(pairs[i][0])), 0);
        equals(".", &m.source);
        equals("30", &m.source);
        assert_int_equal(chdir("30"), 0);
        equals(".", &m.source);
        equals("mp_rank_00_model_states.pt", &m.source);
        assert_int_equal(chdir(was), 0);
        made_release(&m);
    }
}

TEST(test_read__does_not_join_what_is_far_unless_told)
{
    made m = { .seed = 31 };
    made_init(&m);
    clear();
    scatter(&m, 2, 30, "runs/ft-01-02-12-36", 2, "runs/ft-01-02-12-39");
    sheaf_catalog *c = sat_read_at(at("runs/ft-01-02-12-36"));
    want_defect(c, -1, "missing",
                "no mp_rank_00_model_states.pt; a part 0 of the same step lies in  | 12-39/30");
    const char *also[] = { at("runs/ft-01-02-12-39"), NULL };
    sheaf_source *source =
        as_source(sat_read_with(at("runs/ft-01-02-12-36"), &(sheaf_dialect_hints){ .also = also }));
    same_sources(&m.source, source, 0);
    source->close(source);
    /* also as files, in any order */
    const char *one = textf("%s/30/mp_rank_01_model_states.pt", at("runs/ft-01-02-12-36"));
    also[0] = textf("%s/30/mp_rank_00_model_states.pt", at("runs/ft-01-02-12-39"));
    source = as_source(sat_read_with(one, &(sheaf_dialect_hints){ .also = also }));
    same_sources(&m.source, source, 0);
    source->close(source);
    made_release(&m);
}

TEST(test_read__tells_runs_side_by_side_apart)
{
    made x = { .seed = 41 }, y = { .seed = 42 }, wide = { .seed = 43, .ffn = 16 };
    made_init(&x);
    made_init(&y);
    made_init(&wide);
    clear();
    scatter(&x, 4, 30, "runs/ft-01-02-12-36", 14, "runs/ft-01-02-12-37"); /* 1, 2, 3 and 0 */
    scatter(&y, 4, 30, "runs/ft-01-02-12-38", 15, NULL);                  /* another run, whole */
    equals(at("runs/ft-01-02-12-36"), &x.source);
    equals(at("runs/ft-01-02-12-37"), &x.source);
    equals(at("runs/ft-01-02-12-38"), &y.source);
    scatter(&wide, 1, 30, "runs/ft-01-02-12-39", 1, NULL);
    sheaf_catalog *c = sat_read_at(at("runs")); /* all lie there: none is meant */
    assert_int_equal(c->count, 0);
    want_found(c, 3, "conflict", "several complete ones; number 1 has 4 parts");
    clear(); /* two broken runs, one folder in common: 37 holds X's part 0 and Y's others */
    scatter(&x, 4, 30, "runs/ft-01-02-12-36", 14, NULL);
    move_parts("whole", "runs/ft-01-02-12-37", 30, 1);
    scatter(&y, 4, 30, "runs/ft-01-02-12-37", 14, "runs/ft-01-02-12-38");
    equals(at("runs/ft-01-02-12-36"), &x.source);
    equals(at("runs/ft-01-02-12-38"), &y.source);
    c = sat_read_at(at("runs/ft-01-02-12-37"));
    assert_int_equal(c->count, 0);
    want_found(c, 2, NULL, NULL);
    clear(); /* by name */
    scatter(&x, 2, 30, "runs/ft-01-02-12-36", 2, "runs/ft-01-02-12-37");
    scatter(&x, 2, 30, "runs/gt-01-02-12-36", 1, "runs/gt-01-02-12-37");
    scatter(&x, 2, 30, "runs/ft-x-01-02-12-35", 1, NULL);
    equals(at("runs/ft-01-02-12-36"), &x.source);
    equals(at("runs/gt-01-02-12-36"), &x.source);
    clear(); /* by shape, and by step */
    scatter(&x, 2, 30, "runs/ft-01-02-12-36", 2, "runs/ft-01-02-12-37");
    scatter(&wide, 2, 30, "runs/ft-01-02-12-35", 1, NULL);
    scatter(&y, 2, 20, "runs/ft-01-02-12-38", 1, NULL);
    equals(at("runs/ft-01-02-12-36"), &x.source);
    made_release(&x);
    made_release(&y);
    made_release(&wide);
}

TEST(test_read__refuses_where_the_evidence_cannot_tell)
{
    made x = { .seed = 41 }, y = { .seed = 42 },
         near = { .seed = 41, .twist = "mixins.lm.lm_head.weight" };
    made_init(&x);
    made_init(&y);
    made_init(&near);
    clear();
    scatter(&x, 4, 30, "runs/ft-01-02-12-36", 14, "runs/ft-01-02-12-37");
    scatter(&near, 4, 30, "runs/ft-01-02-12-35", 1,
            NULL); /* a part 0 that is another only in what is divided */
    sheaf_catalog *c = sat_read_at(at("runs/ft-01-02-12-36"));
    want_defect(c, -1, "conflict",
                "part 0 could be any of:  | 12-35/30/mp_rank_00 | 12-37/30/mp_rank_00");
    made_release(&near);
    /* A folder that needs all it has lends nothing. */
    move_parts("whole", "runs/ft-01-02-12-35", 30, 14);
    equals(at("runs/ft-01-02-12-36"), &x.source);
    clear(); /* the only part 0 is another run's */
    scatter(&x, 4, 30, "runs/ft-01-02-12-36", 14, NULL);
    scatter(&y, 4, 30, "runs/ft-01-02-12-37", 1, NULL);
    c = sat_read_at(at("runs/ft-01-02-12-36"));
    CHECK_FINDING(c, SHEAF_DEFECT, "foreign", "12-37/30/mp_rank_00 | of another run");
    want_found(c, -1, "missing", "no mp_rank_00_model_states.pt");
    clear(); /* parts of two steps, even where they are named */
    scatter(&x, 2, 30, "runs/ft-01-02-12-36", 2, NULL);
    scatter(&x, 2, 20, "runs/ft-01-02-12-37", 1, NULL);
    c = sat_read_at(at("runs"));
    assert_int_equal(c->count, 0);
    want_found(c, 2, NULL, NULL);
    const char *also[] = { at("runs/ft-01-02-12-37"), NULL };
    c = sat_read_with(at("runs/ft-01-02-12-36"), &(sheaf_dialect_hints){ .also = also });
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "no mp_rank_00_model_states.pt");
    want_found(c, -1, "stale", "a part of step 20, not used");
    clear(); /* two saves of two names */
    scatter(&x, 2, 30, "runs/one-01-02-12-36", 3, NULL);
    scatter(&y, 2, 30, "runs/two-01-02-12-36", 3, NULL);
    c = sat_read_at(at("runs"));
    assert_int_equal(c->count, 0);
    want_found(c, 2, "conflict",
               "2 checkpoints lie here; number 1 has 2 of 2 parts | one-01-02-12-36 ");
    made_release(&x);
    made_release(&y);
}

/* The same file in two folders needs no choice, and the config is found wherever it lies. */
TEST(test_read__one_file_in_two_folders_is_one_part)
{
    static const char one[] = "runs/ft-01-02-12-36", two[] = "runs/ft-01-02-12-37";
    made m = { .seed = 45 };
    made_init(&m);
    for (int both = 0; both < 2; both++) { /* part 0 alone, or all parts */
        clear();
        scatter(&m, 4, 30, one, 14, two);
        for (int rank = 0; rank < 4; rank++)
            if (rank == 0 || both)
                copy_file(part_of(rank == 0 ? one : two, 30, rank),
                          part_of(rank == 0 ? two : one, 30, rank));
        for (int k = 0; k < 3; k++) {
            const char *path = at(k == 0 ? "runs" : k == 1 ? one : two);
            sheaf_catalog *c = sat_read_at(path);
            want_defects(c, 0);
            assert_non_null(c->config);
            assert_true((finding(c, -1, "duplicate", "which is used") != NULL) ==
                        !(both && k == 2));
            sheaf__catalog_free(c);
            equals(path, &m.source);
        }
    }
    made_release(&m);
}

/* Copies that drifted from rank to rank are no evidence, and are reported by compare. */
TEST(test_read__joins_what_drifted_when_there_is_no_choice)
{
    made m[3] = { { .seed = 51 },
                  { .seed = 51, .twist = "transformer.final_layernorm.weight" },
                  { .seed = 51, .twist = "mixins.eva.boi" } };
    clear();
    for (int i = 0; i < 3; i++) {
        m[i].heads = m[i].vit_heads = 3;
        m[i].vit_ffn = 6;
        m[i].vocab = 999;
        made_init(&m[i]);
        made_write(&m[i], at("whole"), 3, 30);
        move_parts("whole", i == 0 ? "runs/ft-01-02-12-37" : "runs/ft-01-02-12-36", 30, 1u << i);
    }
    sheaf_catalog *c = sat_read_at(at("runs/ft-01-02-12-36"));
    want_says(c, 0, "time-stamp", "there is no other part to choose");
    CHECK_OK(sheaf__catalog_compare(c));
    assert_non_null(finding(c, -1, "replica", ""));
    sheaf__catalog_free(c);
    equals(at("runs/ft-01-02-12-37"), &m[0].source); /* rank 0's copies are used */
    made wide = { .seed = 51, .heads = 3, .vit_heads = 3, .vit_ffn = 6, .vocab = 999, .ffn = 15 };
    made_init(&wide);
    scatter(&wide, 3, 30, "runs/ft-01-02-12-35", 1, NULL); /* no part 0 of this model */
    want_found(sat_read_at(at("runs/ft-01-02-12-36")), 0, NULL, NULL);
    made_release(&wide);
    for (int i = 0; i < 3; i++)
        made_release(&m[i]);
}

/* ---- one folder, broken ---- */

/* The model at MP 4, step 30, in scratch/save. */
static void save_it(made *m)
{
    CHECK_OK(sheaf__remove_tree(at("save")));
    made_write(m, at("save"), 4, 30);
}

TEST(test_read__names_missing_damaged_and_foreign_parts)
{
    made m = { .seed = 61 };
    made_init(&m);
    save_it(&m);
    CHECK_OK(sheaf__make_dirs(at("save/20")));
    CHECK_OK(sheaf__rename(part_of("save", 30, 2), part_of("save", 20, 2)));
    sheaf_catalog *c = sat_read_at(at("save"));
    assert_int_equal(c->tp, 4);
    want_found(c, -1, "missing",
               "=parts 0 to 3 | no mp_rank_02_model_states.pt; a part 2 of step 20 lies in  | "
               "and is stale");
    save_it(&m);
    cut_file(part_of("save", 30, 1), 0.9);
    c = sat_read_at(at("save"));
    assert_int_equal(c->tp, 4);
    want_defect(c, -1, "damaged", textf("=%s | part 1: ", part_of("save", 30, 1)));
    put(part_of("save", 30, 1), "no zip file");
    want_found(sat_read_at(at("save")), -1, NULL, NULL);
    save_it(&m);
    put(at("save/30/mp_rank_00_model_states.pt.tmp"), "x");
    CHECK_OK(sheaf__rename(part_of("save", 30, 3), part_of("save", 30, 7)));
    c = sat_read_at(at("save"));
    want_says(c, -1, "missing", "");
    want_says(c, -1, "foreign", "'mp_rank_00_model_states.pt.tmp'");
    want_found(c, -1, "foreign", "part 7 of a save in 4 parts");
    made_release(&m);
}

TEST(test_read__tells_duplicates_and_copies_that_differ)
{
    made m = { .seed = 62 },
         twin = { .seed = 62, .twist = "mixins.eva.vit_model.mixins.patch_embedding.proj.weight" };
    made_init(&m);
    made_init(&twin);
    save_it(&m);
    copy_file(at("save/30/mp_rank_1_model_states.pt"), part_of("save", 30, 1));
    want_found(sat_read_at(at("save")), 0, "duplicate", "");
    equals(at("save"), &m.source);
    CHECK_OK(sheaf__remove_tree(at("save/30/mp_rank_1_model_states.pt")));
    made_write(&twin, at("twin"), 4, 30);
    copy_file(part_of("save", 30, 3), part_of("twin", 30, 3));
    sheaf_catalog *c = sat_read_at(at("save"));
    CHECK_OK(sheaf__catalog_compare(c));
    want_found(c, 0, "replica", textf("=%s | part 3 differs", twin.twist));
    made_release(&m);
    made_release(&twin);
}

/* The zip file again with another folder inside, as torch names it after the file. */
static void rename_inside(const char *path, const char *top)
{
    sheaf_zip zip;
    char *bytes = NULL, *part = NULL;
    size_t size, n;
    int fd;
    int64_t length, at = 0;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 1 << 26));
    CHECK_OK(sheaf__file_open_read(&fd, &length, path));
    CHECK_OK(sheaf__zip_open(&zip, fd, 0, length, path));
    close(fd);
    FILE *to = fopen(path, "wb");
    sheaf_zip_entry *entry = calloc((size_t)zip.count, sizeof *entry);
    char(*name)[200] = malloc((size_t)zip.count * sizeof *name);
    for (int64_t i = 0; i < zip.count; i++) {
        snprintf(name[i], sizeof *name, "%s%s", top, strchr(zip.entry[i].name, '/'));
        entry[i] = zip.entry[i];
        entry[i].name = name[i];
        entry[i].header = at;
        CHECK_OK(sheaf__zip_place(&entry[i]));
        CHECK_OK(sheaf__zip_local(&part, &n, &entry[i]));
        fwrite(part, 1, n, to);
        fwrite(bytes + zip.entry[i].offset, 1, (size_t)zip.entry[i].bytes, to);
        at = entry[i].offset + entry[i].bytes;
        free(part);
    }
    CHECK_OK(sheaf__zip_tail(&part, &n, entry, zip.count, at));
    fwrite(part, 1, n, to);
    assert_int_equal(fclose(to), 0);
    free(part);
    free(entry);
    free(name);
    free(bytes);
    sheaf__zip_release(&zip);
}

/* save/30 of four parts, part r written as `was`[r]; then what is found. */
static sheaf_catalog *named(made *m, const int *was)
{
    save_it(m);
    for (int r = 0; r < 4; r++) {
        if (was[r] >= 0)
            rename_inside(part_of("save", 30, r), textf("mp_rank_%02d_model_states", was[r]));
    }
    return sat_read_at(at("save"));
}

TEST(test_order__is_that_of_the_names_parts_were_saved_under)
{
    made m = { .seed = 73 };
    made_init(&m);
    sheaf_catalog *c = named(&m, (int[]){ 0, 1, 2, 3 });
    assert_false(c->by_names);
    want_found(c, 0, NULL, NULL);
    equals(at("save"), &m.source);
    c = named(&m, (int[]){ 1, 0, 2, 3 });
    CHECK_FINDING(c, SHEAF_DEFECT, "conflict",
                  textf("=%s | =part 0 was saved as mp_rank_01_model_states.pt, part 1 as "
                        "mp_rank_00_model_states.pt",
                        part_of("save", 30, 0)));
    want_defects(c, 1);
    assert_int_equal(system(finding(c, SHEAF_DEFECT, "conflict", "")->cure), 0);
    sheaf__catalog_free(c);
    want_found(sat_read_at(at("save")), 0, NULL, NULL);
    assert_true(sheaf__path_kind(at("save/30/mp_rank_00_model_states.pt.saved")) ==
                SHEAF_PATH_NONE);
    want_defect(named(&m, (int[]){ 0, 2, 2, 3 }), 1, "conflict", /* not to be cured by names */
                "copy part by part again");
    c = named(&m, (int[]){ 0, -1, 2, 3 }); /* one does not say */
    assert_true(c->by_names);
    want_found(c, 0, NULL, NULL);
    made_release(&m);
}

static void set_config(const char *save, const char *object, const char *key, json_t *value)
{
    json_t *config = NULL;
    const char *path = textf("%s/model_config.json", at(save));
    config = json_load_file(path, 0, NULL);
    json_t *in = object == NULL ? config : json_object_get(config, object);
    if (value == NULL)
        json_object_del(in, key);
    else
        json_object_set_new(in, key, value);
    char *text = json_dumps(config, JSON_REAL_PRECISION(15));
    put(path, text);
    free(text);
    json_decref(config);
}

TEST(test_class__comes_from_the_tensors)
{
    made agent = { .agent = true, .seed = 63 }, vlm = { .seed = 64 };
    made_init(&agent);
    made_init(&vlm);
    save_it(&agent);
    set_config("save", NULL, "model_class", json_string("FineTuneTestCogVLMModel"));
    sheaf_catalog *c = sat_read_at(at("save"));
    assert_string_equal(c->model, "cogagent");
    want_found(c, 1, "class",
               "FineTuneTestCogVLMModel, which would have lost | mixins.encoder.* | "
               "8 of cross-attention | --model-class CogAgentModel");
    /* The cure. */
    c = sat_read_with(at("save"), &(sheaf_dialect_hints){ .model = "CogAgentModel" });
    assert_non_null(strstr(c->config, "\"CogAgentModel\""));
    char *config = strdup(c->config);
    sheaf_source *source = as_source(c);
    same_sources(&agent.source, source, 0);
    CHECK_OK(sheaf_sat_write(
        at("cured"), source,
        &(sheaf_sat_write_options){ .config = config, .ways = 1, .replace = true }));
    source->close(source);
    free(config);
    equals(at("cured"), &agent.source);
    save_it(&vlm);
    set_config("save", NULL, "model_class", json_string("CogAgentModel"));
    c = sat_read_at(at("save"));
    assert_string_equal(c->model, "cogvlm");
    want_found(c, 1, "class", "these are CogVLM's | --model-class CogVLMModel");
    made_release(&agent);
    made_release(&vlm);
}

/* A class of somebody's own: the tensors are CogAgent's, and no program can open them by that
 * name. */
TEST(test_class__that_nobody_knows_is_a_defect)
{
    for (int agent = 0; agent < 2; agent++) {
        made m = { .seed = 68, .agent = agent };
        made_init(&m);
        save_it(&m);
        set_config("save", NULL, "model_class", json_string("MyOwnModel"));
        want_defect(sat_read_at(at("save")), 1, agent ? "class" : "unsupported", "MyOwnModel");
        if (agent) { /* the cure */
            sheaf_source *source = as_source(
                sat_read_with(at("save"), &(sheaf_dialect_hints){ .model = "CogAgentModel" }));
            same_sources(&m.source, source, 0);
            source->close(source);
        }
        made_release(&m);
    }
}

TEST(test_class__sees_a_tower_that_was_lost)
{
    /* A CogVLM config with is_decoder writes cross-attention and no tower. */
    made m = { .seed = 65 };
    made_init(&m);
    json_t *config = json_loads(m.json, 0, NULL);
    json_object_set_new(config, "is_decoder", json_true());
    json_object_set_new(config, "cross_attn_hidden_size", json_integer(8));
    char *text = json_dumps(config, JSON_REAL_PRECISION(15));
    json_decref(config);
    made_release(&m);
    made lost = { .seed = 65 };
    made_init(&lost);
    free(lost.json);
    lost.json = text;
    sheaf_schema_free(lost.schema);
    sheaf_config_release(&lost.config);
    CHECK_OK(sheaf_config_parse(&lost.config, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&lost.schema, &lost.config, 1));
    lost.entry = realloc(lost.entry, (size_t)lost.schema->count * sizeof *lost.entry);
    for (int64_t i = 0; i < lost.schema->count; i++) {
        const sheaf_tensor *t = &lost.schema->tensor[i];
        lost.entry[i] = (sheaf_source_entry){ t->name, SHEAF_F32, t->ndim, { 0 } };
        memcpy(lost.entry[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    save_it(&lost);
    want_defect(sat_read_at(at("save")), -1, "class", "a CogAgent whose tower was lost");
    made_release(&lost);
}

/* Findings of `code` in a save of two layers, and two of the tower, whose config says others. */
static int64_t told_for(made *m, int64_t layers, int64_t tower, const char *code)
{
    int64_t named = 0;
    save_it(m);
    set_config("save", NULL, "num_layers", json_integer(layers));
    set_config("save", "eva_args", "num_layers", json_integer(tower));
    sheaf_catalog *c = sat_read_at(at("save"));
    for (int64_t i = 0; i < c->nfindings; i++)
        named += strcmp(c->finding[i].code, code) == 0 && c->finding[i].tensor[0] != '\0';
    sheaf__catalog_free(c);
    return named;
}

TEST(test_config__other_numbers_of_layers_name_each_tensor)
{
    made m = { .seed = 66 };
    made_init(&m);
    const int64_t layer = told_for(&m, 3, 2, "missing"), block = told_for(&m, 2, 3, "missing");
    assert_true(layer > 0 && block > 0);
    assert_int_equal(told_for(&m, 4, 2, "missing"), 2 * layer);
    assert_int_equal(told_for(&m, 4, 3, "missing"), 2 * layer + block);
    assert_int_equal(told_for(&m, 1, 1, "foreign"), layer + block);
    made_release(&m);
}

TEST(test_config__contradictions_are_found)
{
    static const struct {
        const char *object, *key;
        int64_t value;
        const char *code, *part;
    } rows[] = {
        { NULL, "num_layers", 1, "foreign", "a tensor that this model does not have" },
        { NULL, "num_layers", 3, "missing", "no tensor of this name" },
        { NULL, "inner_hidden_size", 13, "shape", "[12, 16]" },
        { NULL, "vocab_size", 1004, "shape", "[1000, 16]" },
        { "eva_args", "num_layers", 3, "missing", "no tensor of this name" },
        { NULL, "num_attention_heads", 7, "conflict", "num_attention_heads" },
    };
    made m = { .seed = 66 };
    made_init(&m);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        save_it(&m);
        set_config("save", rows[i].object, rows[i].key, json_integer(rows[i].value));
        sheaf_catalog *c = sat_read_at(at("save"));
        assert_int_equal(c->tp, 4);
        want_defect(c, -1, rows[i].code, rows[i].part);
    }
    /* The number of parts is seen in the shapes, whatever the config says. */
    save_it(&m);
    set_config("save", NULL, "model_parallel_size", json_integer(1));
    sheaf_catalog *c = sat_read_at(at("save"));
    assert_int_equal(c->tp, 4);
    want_found(c, 0, "conflict", "model_parallel_size 1, 4 parts");
    equals(at("save"), &m.source);
    /* None at all: class and parts come from the tensors. */
    CHECK_OK(sheaf__remove_tree(at("save/model_config.json")));
    c = sat_read_at(at("save"));
    assert_true(c->tp == 4 && c->config == NULL && strcmp(c->model, "cogvlm") == 0);
    want_found(c, 0, NULL, NULL);
    equals(at("save"), &m.source);
    put(at("elsewhere.json"), m.json);
    c = sat_read_with(at("save"), &(sheaf_dialect_hints){ .config = at("elsewhere.json") });
    assert_true(c->config != NULL && c->vocab == 1000);
    want_found(c, 0, NULL, NULL);
    put(at("save/model_config.json"), "{\"model_class\": ");
    c = sat_read_at(at("save"));
    assert_null(c->config);
    want_found(c, 1, NULL, NULL);
    CHECK_OK(sheaf__remove_tree(part_of("save", 30, 3))); /* without a config too */
    CHECK_OK(sheaf__remove_tree(at("save/model_config.json")));
    want_found(sat_read_at(at("save")), -1, "missing", "mp_rank_03");
    made_release(&m);
}

/* As many ranks and parts as there may be, and one more. (Files that are empty are no parts that
 * could be read.) */
TEST(test_limits__ranks_and_parts)
{
    const char *also[5] = { NULL };
    char path[600];
    put(at("empty"), "");
    CHECK_OK(sheaf__make_dirs(at("wide")));
    put(at("wide/mp_rank_00_model_states.pt"), "");
    for (int more = 0; more < 2; more++) {
        put(at("wide/model_config.json"),
            more ? "{\"model_parallel_size\": 1025}" : "{\"model_parallel_size\": 1024}");
        sheaf_catalog *c = sat_read_at(at("wide"));
        const sheaf_finding *f = c->nfindings > 1 ? &c->finding[16] : NULL;
        assert_true(more ? finding(c, -1, "missing", "") == NULL
                         : f != NULL && strcmp(f->found, "1007 more parts") == 0);
        sheaf__catalog_free(c);
    }
    for (int i = 0; i < 4 * 1024; i++) {
        snprintf(path, sizeof path, "%s/many-%d", at("."), i / 1024);
        if (i % 1024 == 0) {
            CHECK_OK(sheaf__make_dirs(path));
            also[i / 1024] = strdup(path);
        }
        snprintf(path + strlen(path), 40, "/mp_rank_%02d_model_states.pt", i % 1024);
        assert_int_equal(link(at("empty"), path), 0);
    }
    const sheaf_dialect_hints hints = { .also = also + 1 };
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__dialect_read(&c, &sheaf__dialect_sat, also[0], &hints));
    sheaf__catalog_free(c);
    const char *const first[] = { also[0], also[1], also[2], also[3], NULL };
    CHECK_FAILS(sheaf__dialect_read(&c, &sheaf__dialect_sat, at("wide"),
                                    &(sheaf_dialect_hints){ .also = first }),
                SHEAF_E_UNSUPPORTED, "at most 4096 parts");
    for (int i = 0; i < 4; i++)
        free((char *)also[i]);
}

/* The sizes of the tower are upstream's code's business: files need not state them. */
TEST(test_tower__is_described_by_its_tensors)
{
    made m = { .agent = true, .seed = 72 };
    made_init(&m);
    save_it(&m);
    set_config("save", NULL, "encoder_override", NULL);
    sheaf_catalog *c = sat_read_at(at("save"));
    want_says(c, 0, "inferred", "2 blocks of width 8, MLP 10, heads of 4");
    sheaf_config config;
    CHECK_OK(sheaf_config_parse(&config, c->config, strlen(c->config)));
    assert_memory_equal(&config.encoder, &m.config.encoder, sizeof config.encoder);
    sheaf_config_release(&config);
    sheaf__catalog_free(c);
    equals(at("save"), &m.source);
    set_config("save", NULL, "cross_image_pix", NULL); /* the positions tell */
    c = sat_read_at(at("save"));
    assert_non_null(strstr(c->config, "\"cross_image_pix\": 28"));
    want_found(c, 0, NULL, NULL);
    made_release(&m);
}

TEST(test_latest__is_followed_and_doubted)
{
    made old = { .seed = 67 }, new = { .seed = 68 };
    sheaf_catalog *c;
    made_init(&old);
    made_init(&new);
    save_it(&new);
    made_write(&old, at("old"), 4, 9);
    CHECK_OK(sheaf__rename(at("old/9"), at("save/9")));
    made_write(&old, at("old"), 4, 20);
    CHECK_OK(sheaf__rename(at("old/20"), at("save/20")));
    equals(at("save"), &new.source);
    put(at("save/latest"), "9\n");
    equals(at("save"), &old.source);
    put(at("save/latest"), " 20 ");
    c = sat_read_at(at("save"));
    assert_int_equal(c->step, 20);
    sheaf__catalog_free(c);
    equals(at("save/30"), &new.source);
    made_write(&old, at("zero"), 4, 1);
    CHECK_OK(sheaf__rename(at("zero/1"), at("zero/0")));
    put(at("zero/latest"), "0");
    c = sat_read_at(at("zero"));
    assert_int_equal(c->step, 0);
    want_found(c, 0, NULL, NULL);
    CHECK_OK(sheaf__rename(at("save/9"), at("zero/00"))); /* of two of one step the first */
    CHECK_OK(sheaf__remove_tree(at("zero/latest")));
    want_found(sat_read_at(at("zero")), 0, "inferred", "step 0 is the greatest");
    put(at("save/latest"), "40");
    c = sat_read_at(at("save"));
    assert_int_equal(c->step, 30);
    want_found(c, 1, "missing", "latest says '40', a step without parts");
    CHECK_OK(sheaf__remove_tree(at("save/latest")));
    c = sat_read_at(at("save"));
    assert_int_equal(c->step, 30);
    want_found(c, 0, "inferred", "step 30 is the greatest");
    equals(at("save"), &new.source); /* 30 is after 9 and 20 */
    CHECK_OK(sheaf__rename(at("save/30"), at("save/release")));
    put(at("save/latest"), "release");
    equals(at("save"), &new.source);
    /* parts beside the config, no step at all */
    CHECK_OK(sheaf__rename(at("save/release"), at("flat")));
    CHECK_OK(sheaf__rename(at("save/model_config.json"), at("flat/model_config.json")));
    equals(at("flat"), &new.source);
    made_release(&old);
    made_release(&new);
}

/* A part again, without a tensor, with one of an unknown name, or with what DeepSpeed's writer
 * adds. */
static void rewrite_without(const char *path, const char *drop, const char *stranger,
                            int64_t iteration, int64_t ways)
{
    sheaf_torch *file = NULL;
    made_file *f = made_begin();
    CHECK_OK(sheaf__torch_open(&file, path));
    const sheaf_pickle *was = sheaf__pickle_get(file->doc->root, "module");
    sheaf_pickle *module = made_set(f, f->root, "module", SHEAF_PICKLE_DICT);
    for (int64_t i = 0; i < sheaf__pickle_count(was); i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(was, i));
        if (drop == NULL || strcmp(drop, name) != 0)
            made_copy(f, module, name, file,
                      sheaf__pickle_tensor(file->doc, sheaf__pickle_value(was, i)));
    }
    if (stranger != NULL)
        sheaf__pickle_set(f->doc, module, stranger,
                          made_put(f, SHEAF_F32, 1, (int64_t[]){ 2 }, calloc(2, 4)));
    if (iteration >= 0)
        made_set_int(f, f->root, "iteration", iteration);
    if (ways > 0)
        made_set_int(f, f->root, "mp_world_size", ways);
    made_set(f, f->root, "optimizer", SHEAF_PICKLE_NONE);
    made_end(f, at("rewritten"));
    sheaf__torch_close(file);
    CHECK_OK(sheaf__rename(at("rewritten"), path));
}

static void rewrite(const char *path, const char *stranger, int64_t iteration, int64_t ways)
{
    rewrite_without(path, NULL, stranger, iteration, ways);
}

TEST(test_read__looks_at_what_the_writer_says)
{
    made m = { .seed = 69 };
    made_init(&m);
    save_it(&m);
    for (int rank = 0; rank < 4; rank++)
        rewrite(part_of("save", 30, rank), NULL, 30, 4);
    equals(at("save"), &m.source);
    rewrite(part_of("save", 30, 2), NULL, 20, 4);
    sheaf_catalog *c = sat_read_at(at("save"));
    want_found(c, 1, "stale",
               textf("=%s | part 2 is of step 20, another of step 30", part_of("save", 30, 2)));
    rewrite(part_of("save", 30, 2), NULL, 30, 8);
    want_found(sat_read_at(at("save")), 1, "conflict", "mp_world_size 8, there are 4");
    rewrite(part_of("save", 30, 2), NULL, 30, 2); /* fewer, too */
    want_defect(sat_read_at(at("save")), -1, "conflict", "mp_world_size 2, there are 4");
    rewrite(part_of("save", 30, 2), NULL, 0, 4); /* the first step is one */
    want_found(sat_read_at(at("save")), 1, "stale", "part 2 is of step 0, another of step 30");
    rewrite(part_of("save", 30, 2), NULL, 30, 4);
    CHECK_OK(sheaf__rename(at("save/30"), at("save/31")));
    put(at("save/latest"), "31");
    want_found(sat_read_at(at("save")), 0, "conflict", "a folder of step 31, files of step 30");
    save_it(&m); /* a copy that one part lacks */
    rewrite_without(part_of("save", 30, 1), "mixins.eva.boi", NULL, -1, 0);
    c = sat_read_at(at("save"));
    want_found(c, 0, "missing", "=mixins.eva.boi | 3 copies in 4 parts");
    equals(at("save"), &m.source);
    rewrite_without(part_of("save", 30, 1), "mixins.lm.lm_head.weight", NULL, -1,
                    0); /* and a part of one */
    want_defect(sat_read_at(at("save")), -1, "missing", "rows 250..499 of 1000");
    made_release(&m);
}

TEST(test_read__keeps_or_refuses_tensors_it_does_not_know)
{
    made m = { .seed = 70 };
    made_init(&m);
    made_write(&m, at("one"), 1, 30);
    CHECK_OK(sheaf__remove_tree(at("many")));
    made_write(&m, at("many"), 1,
               30); /* a single part that says it is one of 600, and has no shape to tell */
    rewrite_without(part_of("many", 30, 0), "transformer.final_layernorm.weight", NULL, -1, 600);
    set_config("many", NULL, "vocab_size", json_integer(999));
    sheaf_catalog *few = sat_read_at(at("many"));
    int64_t named = 0;
    for (int64_t i = 0; i < few->nfindings; i++)
        named += strstr(few->finding[i].found, "no mp_rank_") != NULL;
    assert_true(few->tp == 600 && named == 16);
    sheaf__catalog_free(few);
    rewrite(part_of("one", 30, 0), "mixins.mine.scale", -1, 0);
    sheaf_catalog *c = sat_read_at(at("one"));
    assert_non_null(sheaf__catalog_find(c, "mixins.mine.scale"));
    want_found(c, 0, "foreign", "=mixins.mine.scale");
    save_it(&m);
    for (int rank = 0; rank < 4; rank++)
        rewrite(part_of("save", 30, rank), "mixins.mine.scale", -1, 0);
    want_defect(sat_read_at(at("save")), 1, "foreign", "=mixins.mine.scale");
    made_release(&m);
}

/* The outcome of a reading, in one number. */
static int64_t outcome(const sheaf_catalog *c)
{
    int64_t pieces = 0;
    for (int64_t i = 0; i < c->count; i++)
        pieces += c->tensor[i].npieces;
    return pieces * 1000 + c->nfindings * 10 + c->tp;
}

TEST(test_read__wants_memory_or_says_so)
{
    made m = { .agent = true, .layers = 1, .vit_layers = 1, .seed = 71 };
    const sheaf_dialect_hints none = { 0 };
    if (!DENIED_MEMORY_WORKS)
        return; /* see tests/faults/denied_memory.h */
    made_init(&m);
    clear();
    scatter(&m, 2, 30, "runs/ft-01-02-12-36", 2, "runs/ft-01-02-12-37");
    const char *path = at("runs/ft-01-02-12-36");
    sheaf_catalog *c = sat_read_at(path);
    const int64_t want = outcome(c);
    sheaf__catalog_free(c);
    int refused = 0;
    for (long n = 1, seen = n; n <= seen; n += 1 + n / 40) {
        c = NULL;
        deny_begin(n);
        sheaf_status *st = sheaf__dialect_read(&c, &sheaf__dialect_sat, path, &none);
        const bool memory = st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY;
        const int64_t got = st == NULL ? outcome(c) : 0;
        seen = atomic_load(&deny_seen);
        const bool well = st == NULL ? got == want : memory && c == NULL;
        refused += st != NULL;
        if (!well && st != NULL)
            sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        sheaf__catalog_free(c);
        deny_end();
        if (!well || atomic_load(&deny_live) != 0)
            fail_msg("allocation %ld denied: %d instead of %d, %ld blocks left", n, (int)got,
                     (int)want, atomic_load(&deny_live));
    }
    assert_true(refused > 50);
    made_release(&m);
}

TEST(test_is__leaves_others_alone)
{
    clear();
    CHECK_OK(sheaf__make_dirs(at("runs/global_step5")));
    put(at("runs/latest"), "global_step5");
    put(at("runs/global_step5/mp_rank_00_model_states.pt"), "x");
    assert_false(sheaf__dialect_sat.is(at("runs")));
    assert_false(sheaf__dialect_sat.is(at("runs/global_step5")));
    assert_false(sheaf__dialect_sat.is(at("runs/global_step5/mp_rank_00_model_states.pt")));
    CHECK_OK(sheaf__make_dirs(at("runs/5")));
    put(at("runs/5/mp_rank_00_model_states.pt"), "x");
    put(at("runs/5/zero_pp_rank_0_mp_rank_00_optim_states.pt"), "x");
    assert_false(sheaf__dialect_sat.is(at("runs/5")));
    assert_false(sheaf__dialect_sat.is(at("runs")));
    assert_false(sheaf__dialect_sat.is(at("nothing")));
    clear();
    put(at("runs/config.json"), "{}");
    assert_false(sheaf__dialect_sat.is(at("runs")));
    assert_false(sheaf__dialect_sat.is(at("runs/config.json")));
}

FIXTURE(make_scratch, remove_scratch);
