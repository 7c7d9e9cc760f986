/* verify_test.c - what is read of a catalog to tell whether it is sound. */
#include "tests/files.h"
#include "tests/findings.h"
#include "tests/golden.h"
#include "tests/put_tensors.h"

#include <sys/stat.h>

#include "checkpoint/tools/verify.h"
#include "formats/safetensors.h"

static const sheaf_dialect test_dialect = { .name = "test" };

/* ZeRO 3 leaves tensors of no elements in every part: copies without a piece. */
TEST(test_verify__copies_of_no_elements_are_nothing_to_read)
{
    sheaf_catalog *c = NULL;
    sheaf_verify_report report = { 0 };
    sheaf_logical *t = NULL;
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    CHECK_OK(sheaf__catalog_tensor(&t, c, "empty", SHEAF_F32, 2, (int64_t[]){ 0, 4 }));
    t->replicated = true;
    CHECK_OK(sheaf__catalog_tensor(&t, c, "flat", SHEAF_F32, 1, (int64_t[]){ 0 }));
    CHECK_OK(sheaf__catalog_check(c));
    CHECK_OK(sheaf_verify_catalog(&report, c, &(sheaf_weights_verify_options){ 0 }));
    assert_int_equal(report.read, 0);
    assert_null(finding(c, -1, "missing", ""));
    sheaf__catalog_free(c);
}

/* ---- sound is what can be loaded ---- */

/* A folder of scratch with the files of a recorded one; a file's text may be another. */
static void copy_folder(const char *to, const char *from, const char *other, const char *text)
{
    CHECK_OK(sheaf__remove_tree(at(to)));
    copy_tree(at(to), golden(from));
    if (other != NULL)
        put(textf("%s/%s", at(to), other), text);
}

/* In the file: `from` becomes `to`, of one length, in its first `count` places. */
static void retype(const char *folder, const char *file, const char *from, const char *to,
                   int count)
{
    const char *path = textf("%s/%s", at(folder), file);
    size_t size;
    char *bytes = file_text(path, &size), *next = bytes;
    for (; count > 0; count--) {
        next = memmem(next, size - (size_t)(next - bytes), from, strlen(from));
        assert_non_null(next);
        next = (char *)memcpy(next, to, strlen(from)) + strlen(from);
    }
    CHECK_OK(sheaf__file_write_whole(path, bytes, size));
}

/* Sound only if `code` is NULL, else with such a finding. */
static void check_verdict(const char *what, const char *path, const char *code)
{
    sheaf_verify_report report;
    CHECK_OK(sheaf_verify(&report, path, &(sheaf_weights_verify_options){ 0 }));
    if (sheaf_verify_sound(&report) != (code == NULL) ||
        (code != NULL && finding(report.catalog, -1, code, "") == NULL)) {
        for (int64_t i = 0; i < report.catalog->nfindings; i++)
            print_error("%s: %s: %s\n", report.catalog->finding[i].code,
                        report.catalog->finding[i].tensor, report.catalog->finding[i].found);
        fail_msg("%s: wanted %s", what, code == NULL ? "sound" : code);
    }
    sheaf_verify_release(&report);
}

TEST(test_model__of_dtypes_that_cannot_be_run_is_not_sound)
{
    static const char *const dtypes[] = { "I32", "U32" };
    copy_folder("m", "llama/tiny_llama/hf", NULL, NULL);
    check_verdict("as it is", at("m"), NULL);
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        for (int all = 0; all < 2; all++) {
            copy_folder("m", "llama/tiny_llama/hf", NULL, NULL);
            retype("m", "model.safetensors", "\"F32\"", i == 0 ? "\"I32\"" : "\"U32\"",
                   all ? 30 : 1);
            check_verdict(dtypes[i], at("m"), "unsupported");
        }
}

/* One tensor of each dtype under a name of Llama, and of a model nobody knows. */
TEST(test_model__every_dtype_is_judged)
{
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        for (int known = 0; known < 2; known++) {
            static const char *const names[2][2] = { { "a.b", "c.d" },
                                                     { "model.layers.0.self_attn.q_proj.weight",
                                                       "model.layers.0.mlp.gate_proj.weight" } };
            char numbers[512];
            const sheaf_safetensors_spec spec[2] = {
                { names[known][0], (sheaf_dtype)d, 2, { 8, 8 } },
                { names[known][1], SHEAF_F32, 2, { 8, 8 } }
            };
            memset(numbers, 1, sizeof numbers);
            CHECK_OK(sheaf__remove_tree(at("m")));
            CHECK_OK(sheaf__make_dirs(at("m")));
            put_tensors(at("m/model.safetensors"), spec, 2,
                        (const void *const[]){ numbers, numbers });
            const bool runs = d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16;
            if (known || sheaf_dtype_bytes((sheaf_dtype)d) > 0)
                check_verdict(sheaf_dtype_name((sheaf_dtype)d), at("m"),
                              runs || !known   ? NULL
                              : d == SHEAF_F64 ? "dtype"
                                               : "unsupported");
        }
}

TEST(test_adapter__that_cannot_be_applied_is_not_sound)
{
    static const char from[] = "llama/tiny_llama/lora/adapter_final";
    static const char *const bad[][2] = {
        { "{}", "damaged" },
        { "{\"peft_type\": \"LORA\", \"r\": 0, \"target_modules\": [\"q_proj\"]}", "damaged" },
        { "{\"peft_type\": \"LORA\", \"r\": 3, \"target_modules\": [\"q_proj\", \"v_proj\"]}",
          "shape" },
        { "{\"peft_type\": \"IA3\", \"target_modules\": [\"q_proj\"]}", "unsupported" },
        { "[]", "damaged" },
    };
    copy_folder("a", from, NULL, NULL);
    check_verdict("as it is", at("a"), NULL);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        copy_folder("a", from, "adapter_config.json", bad[i][0]);
        check_verdict(bad[i][0], at("a"), bad[i][1]);
    }
    copy_folder("a", from, NULL, NULL);
    retype("a", "adapter_model.safetensors", "\"F32\"", "\"I32\"", 1);
    check_verdict("a factor of integers", at("a"), "unsupported");
    copy_folder("a", from, NULL, NULL);
    retype("a", "adapter_model.safetensors", ".lora_A.", ".lora_Q.", 1);
    check_verdict("a part that LoRA has not", at("a"), "foreign");
    copy_folder("a", from, NULL, NULL);
    CHECK_OK(sheaf__file_write_whole(at("a/adapter_model.safetensors"), "\2\0\0\0\0\0\0\0{}", 10));
    check_verdict("no tensors", at("a"), "missing");
}

TEST(test_config__that_is_no_file_is_told)
{
    for (int pipe = 0; pipe < 2; pipe++) {
        copy_folder("m", "llama/tiny_llama/hf", NULL, NULL);
        CHECK_OK(sheaf__remove_tree(at("m/config.json")));
        assert_int_equal(
            pipe ? mkfifo(at("m/config.json"), 0600) : mkdir(at("m/config.json"), 0700), 0);
        check_verdict(pipe ? "a pipe" : "a folder", at("m"), "damaged");
    }
}

FIXTURE(make_scratch, remove_scratch);
