/* weights_test.c - the library's functions for checkpoints, and structs of other versions. */

#include "library/structs.h"
#include "sheaf/sheaf.h"
#include "tests/files.h"
#include "tests/golden.h"

static void make_model(const char *dst, uint64_t seed)
{
    sheaf_weights_init_options how = {
        .size = sizeof how, .spec = "tiny-bytes", .dst = dst, .seed = seed, .threads = 1
    };
    sheaf_weights_init_report report = { .size = sizeof report };
    CHECK_OK(sheaf_weights_init(&report, &how));
    assert_true(report.tensors > 30 && report.bytes == 4 * report.parameters);
}

/* ---- structs that grow ---- */

typedef struct known {
    size_t size;
    int a;
    const char *b;
    int64_t c;
} known;

TEST(test_options__an_older_program_knows_fewer_fields)
{
    known from = { .size = offsetof(known, b), .a = 7, .b = "not looked at", .c = 9 }, to;
    CHECK_OK(sheaf__struct_read(&to, sizeof to, &from, "known"));
    assert_int_equal(to.a, 7);
    assert_null(to.b);
    assert_int_equal(to.c, 0);
    CHECK_OK(sheaf__struct_read(&to, sizeof to, NULL, "known"));
    assert_int_equal(to.a, 0);
}

TEST(test_options__a_later_program_may_not_use_what_is_not_known)
{
    struct {
        known known;
        int later;
    } from = { .known = { .size = sizeof from, .c = 9 } };
    known to;
    CHECK_OK(sheaf__struct_read(&to, sizeof to, &from, "known"));
    assert_int_equal(to.c, 9);
    from.later = 1;
    CHECK_FAILS(sheaf__struct_read(&to, sizeof to, &from, "known"), SHEAF_E_ARG, "later version");
}

TEST(test_options__without_a_size_are_refused)
{
    known from = { .a = 1 }, to;
    CHECK_FAILS(sheaf__struct_read(&to, sizeof to, &from, "known"), SHEAF_E_ARG, "SHEAF_INIT");
    CHECK_FAILS(sheaf_weights_diff(&(sheaf_weights_diff_report){ 0 }, ".", ".", NULL), SHEAF_E_ARG,
                "SHEAF_INIT");
}

TEST(test_report__is_filled_as_far_as_the_program_knows_it)
{
    const known from = { .a = 7, .b = "x", .c = 9 };
    struct {
        known known;
        int later;
    } to = { .known = { .size = offsetof(known, c), .c = 5 }, .later = 5 };
    sheaf__struct_fill(&to, &from, sizeof from);
    assert_int_equal(to.known.a, 7);
    assert_int_equal(to.known.c, 5); /* beyond its size */
    to.known.size = sizeof to;
    sheaf__struct_fill(&to, &from, sizeof from);
    assert_int_equal(to.known.c, 9);
    assert_int_equal(to.later, 0);
    assert_int_equal(to.known.size, sizeof to);
    sheaf__struct_fill(NULL, &from, sizeof from);
}

/* ---- tensors ---- */

TEST(test_weights__rows_are_those_of_the_whole_tensor)
{
    static const char name[] = "model.layers.1.mlp.down_proj.weight";
    const char *dir = at("read");
    sheaf_weights *w;
    sheaf_weights_facts facts = { .size = sizeof facts };
    make_model(dir, 1);
    CHECK_OK(sheaf_weights_open(&w, dir, NULL));
    CHECK_OK(sheaf_weights_info(&facts, w));
    assert_int_equal(facts.kind, SHEAF_WEIGHTS_MODEL);
    assert_string_equal(facts.dialect, "hf");
    assert_int_equal(facts.bytes, 4 * facts.elements);
    const sheaf_source_entry *e = sheaf_weights_find(w, name);
    const size_t row = (size_t)e->shape[1] * 4, bytes = (size_t)e->shape[0] * row;
    char *all = malloc(bytes), *some = malloc(bytes);
    CHECK_OK(sheaf_weights_read(all, bytes, w, name, 0, -1));
    CHECK_OK(sheaf_weights_read(some, 3 * row, w, name, 5, 3));
    CHECK_BYTES("rows 5 to 7", some, all + 5 * row, 3 * row);
    CHECK_OK(sheaf_weights_read(some, row, w, name, e->shape[0] - 1, -1));
    CHECK_BYTES("the last row", some, all + bytes - row, row);
    CHECK_OK(sheaf_weights_read(some, 0, w, name, e->shape[0], 0));
    CHECK_FAILS(sheaf_weights_read(some, row, w, name, e->shape[0], 1), SHEAF_E_ARG, "rows within");
    CHECK_FAILS(sheaf_weights_read(some, row - 1, w, name, 0, 1), SHEAF_E_ARG, "room of");
    CHECK_FAILS(sheaf_weights_read(some, row, w, "none", 0, 1), SHEAF_E_ARG, "no tensor 'none'");
    assert_null(sheaf_weights_entry(w, -1));
    assert_null(sheaf_weights_entry(w, facts.tensors));
    assert_non_null(sheaf_weights_entry(w, facts.tensors - 1));
    free(all);
    free(some);
    sheaf_weights_close(w);
    sheaf_weights_close(NULL);
}

TEST(test_weights__a_config_may_lie_elsewhere)
{
    const char *dir = at("told");
    char *there, *elsewhere;
    make_model(dir, 1);
    CHECK_OK(sheaf__path_join(&there, dir, "config.json"));
    CHECK_OK(sheaf__path_join(&elsewhere, scratch.dir, "elsewhere.json"));
    assert_int_equal(rename(there, elsewhere), 0);
    sheaf_weights_options how = { .size = sizeof how, .config = elsewhere, .dialect = "hf" };
    sheaf_weights *w;
    sheaf_weights_facts facts = { .size = sizeof facts };
    CHECK_OK(sheaf_weights_open(&w, dir, &how));
    CHECK_OK(sheaf_weights_info(&facts, w));
    assert_string_equal(facts.config, elsewhere);
    sheaf_weights_close(w);
    how.dialect = "hg";
    CHECK_FAILS(sheaf_weights_open(&w, dir, &how), SHEAF_E_ARG, "hg");
    assert_null(w);
    free(there);
    free(elsewhere);
}

TEST(test_weights__a_dialect_that_is_given_is_an_adapters_too)
{
    const char *path = golden("llama/tiny_llama/lora/adapter_final");
    sheaf_weights *w;
    sheaf_weights_facts facts = { .size = sizeof facts }, given = { .size = sizeof given };
    const sheaf_weights_options how = { .size = sizeof how, .dialect = "peft" };
    CHECK_OK(sheaf_weights_open(&w, path, NULL));
    CHECK_OK(sheaf_weights_info(&facts, w));
    sheaf_weights_close(w);
    CHECK_OK(sheaf_weights_open(&w, path, &how));
    CHECK_OK(sheaf_weights_info(&given, w));
    sheaf_weights_close(w);
    assert_int_equal(given.kind, SHEAF_WEIGHTS_ADAPTER);
    assert_true(given.tensors > 0 && given.tensors == facts.tensors);
}

/* ---- whole checkpoints ---- */

static void count_differences(void *context, const sheaf_diff_item *item)
{
    *(int64_t *)context += item->kind == SHEAF_DIFF_VALUES;
}

TEST(test_merge__reports_the_differences_that_diff_tells)
{
    const char *base = golden("llama/tiny_llama/hf"),
               *adapter = golden("llama/tiny_llama/lora/adapter_final");
    sheaf_weights_merge_options how = { .size = sizeof how,
                                        .base = base,
                                        .adapters = &adapter,
                                        .nadapters = 1,
                                        .dst = at("merged"),
                                        .threads = 1 };
    sheaf_weights_merge_report merged = { .size = sizeof merged };
    CHECK_OK(sheaf_weights_merge(&merged, &how));
    assert_true(merged.adapted > 0 && merged.changed == merged.adapted + merged.replaced &&
                merged.rows_checked >= merged.tensors && merged.elements_changed > 0);
    int64_t told = 0;
    sheaf_weights_diff_options listening = { .size = sizeof listening,
                                             .on_item = count_differences,
                                             .context = &told };
    sheaf_weights_diff_report report = { .size = sizeof report };
    CHECK_OK(sheaf_weights_diff(&report, base, how.dst, &listening));
    assert_int_equal(report.tensors, merged.tensors);
    assert_int_equal(report.different, merged.changed);
    assert_int_equal(told, report.different);
    assert_true(!report.same && report.largest > 0);
}

TEST(test_convert__parts_and_back_are_the_same_of_one_step)
{
    sheaf_weights_convert_options how = { .size = sizeof how,
                                          .src = golden("cogagent/mp1"),
                                          .dst = at("parts"),
                                          .to = "sat",
                                          .tp = 2,
                                          .threads = 1 };
    sheaf_weights_convert_report converted = { .size = sizeof converted };
    CHECK_OK(sheaf_weights_convert(&converted, &how));
    assert_true(converted.step == 1 && converted.parts == 2 && converted.tensors > 30);
    assert_string_equal(converted.from, "sat");
    how.src = at("parts");
    how.dst = at("back");
    how.tp = 1;
    CHECK_OK(sheaf_weights_convert(&converted, &how));
    assert_true(converted.step == 1 && converted.parts == 1);
    sheaf_weights_diff_report report = { .size = sizeof report };
    CHECK_OK(sheaf_weights_diff(&report, golden("cogagent/mp1"), at("back"), NULL));
    assert_true(report.tensors == converted.tensors && report.different == 0);
}

TEST(test_verify__a_changed_byte_is_a_finding)
{
    const char *model = at("damaged");
    sheaf_verification *v;
    char *file;
    make_model(model, 1);
    CHECK_OK(sheaf_weights_verify(&v, model, NULL));
    assert_true(sheaf_verification_sound(v));
    sheaf_verification_free(v);
    CHECK_OK(sheaf__path_join(&file, model, "model.safetensors"));
    FILE *f = fopen(file, "r+b");
    const unsigned char nan[] = { 0, 0, 0xc0, 0x7f };
    assert_true(f != NULL && fseek(f, -4, SEEK_END) == 0 && fwrite(nan, 4, 1, f) == 1);
    fclose(f);
    sheaf_weights_verify_options how = { .size = sizeof how };
    CHECK_OK(sheaf_weights_verify(&v, model, &how));
    assert_false(sheaf_verification_sound(v));
    bool found = false;
    for (int64_t i = 0; i < sheaf_verification_count(v); i++)
        found |= strcmp(sheaf_verification_finding(v, i)->code, "not-finite") == 0;
    assert_true(found);
    assert_null(sheaf_verification_finding(v, sheaf_verification_count(v)));
    sheaf_verification_free(v);
    how.quick = true;
    CHECK_OK(sheaf_weights_verify(&v, model, &how));
    assert_true(sheaf_verification_sound(v));
    sheaf_verification_facts facts = { .size = sizeof facts };
    CHECK_OK(sheaf_verification_info(&facts, v));
    assert_true(facts.sound && !facts.full);
    sheaf_verification_free(v);
    sheaf_verification_free(NULL);
    free(file);
}

TEST(test_control__stops_what_is_begun_later_too)
{
    sheaf_control *control;
    CHECK_OK(sheaf_control_new(&control));
    sheaf_control_stop(control);
    sheaf_weights_init_options how = {
        .size = sizeof how, .spec = "tiny-bytes", .dst = at("stopped"), .control = control
    };
    CHECK_FAILS(sheaf_weights_init(NULL, &how), SHEAF_E_STOPPED, "");
    assert_int_equal(sheaf__path_kind(how.dst), SHEAF_PATH_NONE);
    sheaf_control_free(control);
    sheaf_control_free(NULL);
}

TEST(test_weights__say_what_was_forgotten)
{
    sheaf_weights_merge_options merge = { .size = sizeof merge, .base = "base" };
    sheaf_weights_convert_options convert = { .size = sizeof convert };
    CHECK_FAILS(sheaf_weights_merge(NULL, &merge), SHEAF_E_ARG, "dst");
    merge.dst = "dst";
    merge.dtype = SHEAF_F64;
    CHECK_FAILS(sheaf_weights_merge(NULL, &merge), SHEAF_E_ARG, "bfloat16");
    CHECK_FAILS(sheaf_weights_convert(NULL, &convert), SHEAF_E_ARG, "src, dst and to");
    CHECK_FAILS(sheaf_weights_init(NULL, NULL), SHEAF_E_ARG, "spec and dst");
}

/* As the command refuses its flags: nothing is passed over. */
TEST(test_weights__refuse_what_cannot_be)
{
    static const char *const none[] = { NULL }, *const one[] = { "none" };
    const double nan_weight[] = { NAN };
    sheaf_weights_convert_options to, bad_to[7];
    sheaf_weights_merge_options of, bad_of[9];
    sheaf_verification *found;
    sheaf_weights *w;
    make_model(at("forms"), 3);
    SHEAF_INIT(&to);
    to.src = at("forms");
    to.dst = at("formed");
    to.to = "hf";
    for (size_t i = 0; i < ARRAY_LEN(bad_to); i++)
        bad_to[i] = to;
    bad_to[0].tp = -1;
    bad_to[1].slices = -8;
    bad_to[2].slices = 65;
    bad_to[3].step = -1;
    bad_to[4].shard_bytes = -1;
    bad_to[5].threads = -1;
    bad_to[6].threads = INT32_MAX;
    for (size_t i = 0; i < ARRAY_LEN(bad_to); i++)
        CHECK_FAILS(sheaf_weights_convert(NULL, &bad_to[i]), SHEAF_E_ARG, "convert_options: ");
    SHEAF_INIT(&of);
    of.base = to.src;
    of.dst = to.dst;
    of.adapters = one;
    of.nadapters = 1;
    for (size_t i = 0; i < ARRAY_LEN(bad_of); i++)
        bad_of[i] = of;
    bad_of[0].adapters = NULL;
    bad_of[1].adapters = none;
    bad_of[2].to = "peft";
    bad_of[3].tp = 2;
    bad_of[4].tp = -2;
    bad_of[5].combine = "linear";
    bad_of[5].adapter_only = true;
    bad_of[6].combine = "linear";
    bad_of[6].weights = nan_weight;
    bad_of[7].threads = -1;
    bad_of[8].nadapters = 0;
    bad_of[8].mode = SHEAF_MERGE_LIKE_PEFT;
    for (size_t i = 0; i < ARRAY_LEN(bad_of); i++)
        CHECK_FAILS(sheaf_weights_merge(NULL, &bad_of[i]), SHEAF_E_ARG,
                    i < 8 ? "sheaf_weights_merge_options" : "an adapter beside it");
    assert_int_equal(sheaf__path_kind(to.dst), SHEAF_PATH_NONE);
    sheaf_weights_verify_options how = { .size = sizeof how, .threads = -1 };
    CHECK_FAILS(sheaf_weights_verify(&found, to.src, &how), SHEAF_E_ARG, "threads | 0 to 4096");
    CHECK_FAILS(sheaf_weights_verify(&found, NULL, NULL), SHEAF_E_ARG, "a path");
    CHECK_FAILS(sheaf_weights_open(&w, NULL, NULL), SHEAF_E_ARG, "a path");
    CHECK_FAILS(sheaf_weights_diff(NULL, to.src, NULL, NULL), SHEAF_E_ARG, "two paths");
    CHECK_OK(sheaf_weights_open(&w, to.src, NULL));
    assert_null(sheaf_weights_find(w, NULL));
    CHECK_FAILS(sheaf_weights_read(NULL, 0, w, NULL, 0, -1), SHEAF_E_ARG, "no tensor");
    sheaf_weights_close(w);
}

TEST(test_version__is_that_of_the_headers)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SHEAF_VERSION_MAJOR, SHEAF_VERSION_MINOR,
             SHEAF_VERSION_PATCH);
    assert_string_equal(sheaf_version(), text);
}

FIXTURE(make_scratch, remove_scratch);
