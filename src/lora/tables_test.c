/* tables_test.c - tables that PEFT saves unasked: taken where they are the model's, refused where
 * they cannot be. */
#include "tests/fake_source.h"
#include "tests/files.h"
#include "tests/resolved.h"

#include "base/status.h"

#define P "base_model.model."
#define TABLE P "model.embed_tokens.weight"
#define HEAD P "lm_head.weight"
enum { VOCAB = 11, WIDTH = 8 };

static const sheaf_schema *llama(bool tied)
{
    sheaf_config c = small_config(SHEAF_LLAMA, VOCAB, WIDTH, 8, 1, 2, 2, 4);
    c.tied = tied;
    return schema_of(c, 1);
}

/* A file in memory; its numbers are all zero, but for those of `odd`. */
typedef struct fake {
    fake_source it;
    const char *odd;
} fake;

static sheaf_status *fake_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    fake *f = (fake *)self;
    const size_t n = (size_t)(rows * cols) * sheaf_dtype_bytes(fake_find(self, name)->dtype);
    assert_true(row0 >= 0 && row0 + rows <= fake_find(self, name)->shape[0] && col0 == 0);
    memset(dst, 0, n);
    if (f->odd != NULL && strcmp(name, f->odd) == 0 && n > 0)
        ((char *)dst)[n - 1] = 1;
    return NULL;
}

typedef struct table {
    const char *name;
    int ndim;
    int64_t rows;
    sheaf_dtype dtype;
} table;

static const struct {
    const char *name;
    bool tied;
    const char *targets, *saved; /* of the options */
    table file[3];               /* beside the factors */
    const char *odd;
    const char *taken[3];  /* names in the file of what joins `saved`, in order */
    const char *complaint; /* NULL: none */
} cases[] = {
    { "both", false, "q_proj", NULL, LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 0 }), NULL,
      LIST(TABLE, HEAD), NULL },
    { "both, which differ", false, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 0 }), HEAD, LIST(TABLE, HEAD), NULL },
    { "the head alone", false, "q_proj", NULL, { { HEAD, 2, VOCAB, 0 } }, NULL, { HEAD }, NULL },
    { "the table beside a head that the config names", false, "q_proj", "lm_head",
      LIST({ HEAD, 2, VOCAB, 0 }, { TABLE, 2, VOCAB, 0 }), NULL, LIST(TABLE, HEAD), NULL },
    { "one that the config names alone", false, "q_proj", "lm_head", LIST({ HEAD, 2, VOCAB, 0 }),
      NULL, LIST(HEAD), NULL },
    { "tied, under both names", true, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 0 }), NULL, LIST(TABLE), NULL },
    { "tied, under the head's", true, "q_proj", NULL, LIST({ HEAD, 2, VOCAB, 0 }), NULL, LIST(HEAD),
      NULL },
    { "tied, under the table's", true, "q_proj", NULL, LIST({ TABLE, 2, VOCAB, 0 }), NULL,
      LIST(TABLE), NULL },
    { "tied, and two tensors", true, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 0 }), HEAD, LIST(NULL),
      "two tensors that differ" },
    { "tied, and of two types", true, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 1 }), NULL, LIST(NULL),
      "two tensors that differ" },
    { "tied, and of two lengths", true, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, 20, 0 }), NULL, LIST(NULL),
      "two tensors that differ" },
    { "more rows", false, "q_proj", NULL, LIST({ TABLE, 2, 20, 0 }, { HEAD, 2, 20, 0 }), NULL,
      LIST(NULL),
      "'" TABLE
      "' | shape [11, 8], the base's | shape [20, 8] | where the vocabulary was resized before training: sheaf merge BASE ADAPTER" },
    { "fewer rows, tied", true, "q_proj", NULL, LIST({ TABLE, 2, 9, 0 }, { HEAD, 2, 9, 0 }), NULL,
      LIST(NULL), "'" TABLE "' | shape [11, 8], the base's | shape [9, 8]" },
    { "one of both with more rows", false, "q_proj", NULL,
      LIST({ TABLE, 2, VOCAB, 0 }, { HEAD, 2, 20, 0 }), NULL, LIST(NULL),
      "'" HEAD "' | shape [11, 8], the base's | shape [20, 8]" },
    { "of a type that is no weight's", false, "q_proj", NULL, LIST({ HEAD, 2, VOCAB, 2 }), NULL,
      LIST(NULL), "F64" },
    { "no table", false, "q_proj", NULL, { { HEAD, 1, VOCAB, 0 } }, NULL, { NULL }, HEAD },
    { "of a head that has factors", false, "q_proj,lm_head", NULL, LIST({ HEAD, 2, VOCAB, 0 }),
      NULL, LIST(NULL), HEAD },
    { "another tensor", false, "q_proj", NULL,
      LIST({ P "model.norm.weight", 1, WIDTH, 0 }, { HEAD, 2, VOCAB, 0 }), NULL, LIST(NULL),
      "model.norm.weight" },
};

static void file_of(fake *f, const sheaf_lora *lora, const table *beside, const char *odd)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F64 };
    *f = (fake){ .it.source = { .find = fake_find,
                                .count = fake_count,
                                .entry = fake_entry,
                                .read = fake_read },
                 .odd = odd };
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        f->it.entry[f->it.n++] =
            (sheaf_source_entry){ m->a_name, SHEAF_F32, 2, { m->a_shape[0], m->a_shape[1] } };
        f->it.entry[f->it.n++] =
            (sheaf_source_entry){ m->b_name, SHEAF_F32, 2, { m->b_shape[0], m->b_shape[1] } };
    }
    for (; beside->name != NULL; beside++)
        f->it.entry[f->it.n++] = (sheaf_source_entry){
            beside->name, dtypes[beside->dtype], beside->ndim, { beside->rows, WIDTH }
        };
}

TEST(test_tables__what_is_taken_and_what_is_not)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const sheaf_schema *schema = llama(cases[i].tied);
        const char *taken;
        fake f;
        sheaf_lora_options *o = options_of(cases[i].targets);
        CHECK_OK(sheaf__lora_set_saved(o, cases[i].saved));
        sheaf_lora *lora = resolved(schema, o);
        file_of(&f, lora, cases[i].file, cases[i].odd);
        sheaf_source *adapter = &f.it.source;
        const int asked = lora->nsaved;
        sheaf_status *st = sheaf_lora_take_tables(&taken, lora, schema, adapter);
        TRY(st, sheaf_lora_fit(&adapter, lora));
        if (cases[i].complaint != NULL) {
            CHECK_FAILS(st,
                        cases[i].odd == NULL && f.it.entry[2].dtype == SHEAF_F64
                            ? SHEAF_E_UNSUPPORTED
                            : SHEAF_E_LAYOUT,
                        cases[i].complaint);
        } else {
            int n = 0;
            CHECK_OK(st);
            for (; cases[i].taken[n] != NULL; n++)
                if (n >= lora->nsaved || strcmp(lora->saved_name[n], cases[i].taken[n]) != 0)
                    fail_msg("%s: %s is not taken", cases[i].name, cases[i].taken[n]);
            if (n != lora->nsaved || (taken != NULL) != (n > asked))
                fail_msg("%s: %d tensors, wanted %d", cases[i].name, lora->nsaved, n);
            assert_int_equal(lora->options.modules_to_save.n, cases[i].saved != NULL);
        }
    }
}

#define COPY P "model.embed_tokens.base_layer.weight"
#define HEAD_COPY P "lm_head.base_layer.weight"

/* PEFT 0.21 loads them all; of a tied table its copy is the head's too. */
TEST(test_tables__copies_of_the_base_count_where_they_differ)
{
    static const struct {
        const char *name, *targets;
        bool untied;
        table file[3];
        const char *odd, *tensors[2], *names[2], *saved;
    } rows[] = {
        { "the same", "embed_tokens", false, { { COPY, 2, VOCAB, 0 } }, NULL, { NULL }, { NULL } },
        { "in half precision", "embed_tokens", false, LIST({ COPY, 2, VOCAB, 1 }), NULL, LIST(NULL),
          LIST(NULL) },
        { "another", "embed_tokens", false, LIST({ COPY, 2, VOCAB, 0 }), COPY,
          LIST("model.embed_tokens.weight"), LIST(COPY) },
        { "of a tied one", "embed_tokens", true, LIST({ COPY, 2, VOCAB, 0 }), COPY,
          LIST("model.embed_tokens.weight", "lm_head.weight"), LIST(COPY, COPY) },
        { "of a tied one whose head is saved", "embed_tokens", true,
          LIST({ COPY, 2, VOCAB, 0 }, { HEAD, 2, VOCAB, 0 }), COPY,
          LIST("model.embed_tokens.weight", "lm_head.weight"), LIST(COPY, HEAD), "lm_head" },
        { "of a layer", "lm_head", false, LIST({ HEAD_COPY, 2, VOCAB, 0 }), HEAD_COPY,
          LIST("lm_head.weight"), LIST(HEAD_COPY) },
        { "of both, one differs", "embed_tokens,lm_head", false,
          LIST({ COPY, 2, VOCAB, 0 }, { HEAD_COPY, 2, VOCAB, 0 }), HEAD_COPY,
          LIST("lm_head.weight"), LIST(HEAD_COPY) },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const sheaf_schema *schema = llama(false);
        static const table tables[] = { { "model.embed_tokens.weight", 2, VOCAB, 0 },
                                        { "lm_head.weight", 2, VOCAB, 0 },
                                        { NULL } };
        const char *taken = NULL;
        fake f, base;
        int n = 0;
        sheaf_lora_options *o = options_of(rows[i].targets);
        CHECK_OK(sheaf__lora_set_saved(o, rows[i].saved));
        sheaf_lora *lora = resolved(schema, o);
        file_of(&f, lora, rows[i].file, rows[i].odd);
        file_of(&base, lora, tables, NULL);
        sheaf_source *adapter = &f.it.source;
        CHECK_OK(
            sheaf_lora_take_copies(&taken, lora, schema, adapter, &base.it.source, rows[i].untied));
        CHECK_OK(sheaf_lora_fit(&adapter, lora));
        for (; n < 2 && rows[i].names[n] != NULL; n++)
            if (n >= lora->nsaved || strcmp(lora->saved[n]->name, rows[i].tensors[n]) != 0 ||
                strcmp(lora->saved_name[n], rows[i].names[n]) != 0)
                fail_msg("%s: %s is not taken", rows[i].name, rows[i].tensors[n]);
        if (lora->nsaved != n || (taken != NULL) != (n > 0))
            fail_msg("%s: %d taken", rows[i].name, lora->nsaved);
    }
}

FIXTURE(make_scratch, remove_scratch);
