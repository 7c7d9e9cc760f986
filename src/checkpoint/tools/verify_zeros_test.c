/* verify_zeros_test.c - files with room for tensors that was never filled. */
#include "tests/check.h"
#include "tests/files.h"

#include "checkpoint/tools/verify.h"
#include "formats/safetensors.h"

enum { MOST = 7, BYTES = 64 };

static const char *const names[MOST] = {
    /* as the writer sorts them */
    "a.bias",
    "a.weight",
    "b.bias",
    "b.weight",
    "c.weight",
    "model.embed_tokens.weight",
    "model.norm.weight",
};

/* One file of tensors in this order; '0' is zeros, '1' has one number, at its end. */
static const struct {
    const char *what, *filled;
    const char *found[2]; /* NULL: nothing is told */
    bool sound;
} cases[] = {
    { "numbers everywhere", "1111111", { NULL }, true },
    { "none anywhere", "0000000", { "in all of 7 tensors" }, false },
    { "a tail", "1111000", { "3 tensors side by side that are zero, up to the end" }, true },
    { "a hole", "1100111", { "2 tensors side by side that are zero, in the middle" }, true },
    { "two holes",
      "0010011",
      { "2 tensors side by side that are zero, in the middle", "2 tensors side by side" },
      true },
    { "a norm", "1111110", { "a norm of zeros" }, true },
    { "a table", "1111101", { "a table of zeros" }, true },
    { "a bias", "0111111", { NULL }, true },
    { "a matrix, as one that was added", "1011111", { NULL }, true },
};

static void write_file(const char *filled)
{
    sheaf_safetensors_spec spec[MOST];
    sheaf_safetensors_writer *w = NULL;
    for (int i = 0; i < MOST; i++) {
        const bool flat = strstr(names[i], "bias") != NULL || strstr(names[i], "norm") != NULL;
        spec[i] = (sheaf_safetensors_spec){ names[i], SHEAF_F32, flat ? 1 : 2, { 16, 1 } };
    }
    CHECK_OK(sheaf__safetensors_begin(&w, at("m.safetensors"), spec, MOST, NULL, 0, NULL));
    for (int i = 0; i < MOST; i++) {
        char bytes[BYTES] = { 0 };
        bytes[BYTES - 1] = filled[i] == '1' ? 0x3f : 0;
        CHECK_OK(sheaf__safetensors_write(w, i, 0, bytes, BYTES));
    }
    CHECK_OK(sheaf__safetensors_finish(w));
}

static void test_verify__room_that_was_not_filled_is_told(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_verify_report r;
        int told = 0;
        write_file(cases[i].filled);
        CHECK_OK(sheaf_verify(&r, at("m.safetensors"), &(sheaf_verify_options){ 0 }));
        for (int64_t k = 0; k < r.catalog->nfindings; k++) {
            const sheaf_finding *f = &r.catalog->finding[k];
            if (strcmp(f->code, "zeros") != 0)
                continue;
            if (told == 2 || cases[i].found[told] == NULL ||
                strstr(f->found, cases[i].found[told]) == NULL ||
                f->severity != (cases[i].sound ? SHEAF_WARNING : SHEAF_DEFECT))
                fail_msg("%s: %s", cases[i].what, f->found);
            told++;
        }
        if (told < 2 && cases[i].found[told] != NULL)
            fail_msg("%s: nothing told", cases[i].what);
        assert_int_equal(sheaf_verify_sound(&r), cases[i].sound);
        sheaf_verify_release(&r);
        CHECK_OK(sheaf__remove_tree(at("m.safetensors"), NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__room_that_was_not_filled_is_told),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
