/* verify_zeros_test.c - files with room for tensors that was never filled. */
#include "tests/stored.h"

#include "checkpoint/tools/verify.h"

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
    made_tensors made = { .count = 0 };
    for (int i = 0; i < MOST; i++) {
        const bool flat = strstr(names[i], "bias") != NULL || strstr(names[i], "norm") != NULL;
        char bytes[BYTES] = { 0 };
        bytes[BYTES - 1] = filled[i] == '1' ? 0x3f : 0;
        made_add(&made, names[i], SHEAF_F32, flat ? 1 : 2, (const int64_t[]){ 16, 1 }, bytes);
    }
    made_write(&made, at("m.safetensors"));
}

TEST(test_verify__room_that_was_not_filled_is_told)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_verify_report r;
        int told = 0;
        write_file(cases[i].filled);
        CHECK_OK(sheaf_verify(&r, at("m.safetensors"), &(sheaf_weights_verify_options){ 0 }));
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
        CHECK_OK(sheaf__remove_tree(at("m.safetensors")));
    }
}

/* A tensor beside six others that have numbers, in their file, behind them all, or by itself. */
static const struct {
    const char *what, *type, *name; /* model_type */
    int64_t rows;                   /* 0: of one dimension */
    int zero;                       /* of its eight parts, at its end */
    bool own;                       /* in a file by itself */
    const char *found;              /* NULL: nothing is told */
} singles[] = {
    { "a norm", "llama", "z.input_layernorm.weight", 0, 8, false, "a norm" },
    { "BERT's norm", "bert", "z.LayerNorm.weight", 0, 8, false, "a norm" },
    { "a norm to which 1 is added", "gemma2", "z.input_layernorm.weight", 0, 8, false, NULL },
    { "its bias", "bert", "z.LayerNorm.bias", 0, 8, false, NULL },
    { "positions", "bert", "z.position_embeddings.weight", 8, 8, false, "a table" },
    { "token types, of which there is one", "roberta", "z.token_type_embeddings.weight", 1, 8,
      false, NULL },
    { "a table of biases", "swin", "z.relative_position_embed_bias", 8, 8, false, NULL },
    { "a matrix", "llama", "z.o_proj.weight", 8, 8, false, NULL },
    { "a matrix by itself", "llama", "z.o_proj.weight", 8, 8, true, "all of the file" },
    { "half of one", "llama", "z.o_proj.weight", 8, 4, false, "zero in its second half" },
    { "a table's half", "llama", "z.lm_head.weight", 8, 5, true, "zero in its second half" },
    { "less than half: padding", "llama", "z.lm_head.weight", 8, 3, true, NULL },
};

static void add(made_tensors *made, const char *name, int64_t rows, int zero)
{
    char bytes[BYTES] = { 0 };
    memset(bytes, 0x3f, BYTES - (size_t)(zero * BYTES / 8));
    made_add(made, name, SHEAF_F32, rows > 0 ? 2 : 1,
             (const int64_t[]){ rows > 0 ? rows : 16, rows > 0 ? 16 / rows : 0 }, bytes);
}

TEST(test_verify__zeros_that_are_meant_are_not_told)
{
    for (size_t i = 0; i < ARRAY_LEN(singles); i++) {
        made_tensors beside = { .count = 0 }, own = { .count = 0 };
        sheaf_verify_report r;
        for (int k = 0; k < MOST - 1; k++)
            add(&beside, names[k], 0, 0);
        add(singles[i].own ? &own : &beside, singles[i].name, singles[i].rows, singles[i].zero);
        CHECK_OK(sheaf__make_dirs(at("m")));
        put(at("m/config.json"), textf("{\"model_type\": \"%s\"}", singles[i].type));
        made_write(&beside, at("m/model-00001-of-00002.safetensors"));
        if (singles[i].own)
            made_write(&own, at("m/model-00002-of-00002.safetensors"));
        CHECK_OK(sheaf_verify(&r, at("m"), &(sheaf_weights_verify_options){ 0 }));
        const sheaf_finding *f = sheaf__catalog_finding(r.catalog, "zeros");
        if ((f != NULL) != (singles[i].found != NULL) ||
            (f != NULL && (strstr(f->found, singles[i].found) == NULL ||
                           strcmp(f->tensor, singles[i].name) != 0)))
            fail_msg("%s: %s", singles[i].what, f != NULL ? f->found : "nothing told");
        sheaf_verify_release(&r);
        CHECK_OK(sheaf__remove_tree(at("m")));
    }
}

FIXTURE(make_scratch, remove_scratch);
