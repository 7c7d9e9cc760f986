/* export_test.c - an adapter written from masters: fused layers spread, tensors of any shape, and
 * read again. */
#include "tests/fake_source.h"
#include "tests/files.h"
#include "tests/opened.h"
#include "tests/made_sat.h"

#include "catalog/boxes.h"
#include "dialects/peft/peft.h"
#include "lora/adapter.h"
#include "train/export.h"

/* ---- masters: values that tell their name and place ---- */

static float value_of(const char *name, int64_t i)
{
    float x;
    made_value(&x, SHEAF_F32, made_key(name, 5), i);
    return x;
}

static sheaf_status *fake_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const sheaf_source_entry *e = fake_find(self, name);
    assert_non_null(e);
    const int64_t width = e->ndim > 1 ? e->shape[1] : 1;
    assert_true(row0 + rows <= e->shape[0] && col0 + cols <= width);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ((float *)dst)[r * cols + c] = value_of(name, (row0 + r) * width + col0 + c);
    return NULL;
}
static void fake_close(sheaf_source *self)
{
    fake_source *f = (fake_source *)self;
    for (int i = 0; i < f->n; i++)
        free((char *)f->entry[i].name);
}

static void add_master(fake_source *f, const char *name, int64_t rows, int64_t cols)
{
    char *full = NULL;
    assert_true(f->n < FAKE_MOST && asprintf(&full, "master/%s", name) > 0);
    f->entry[f->n++] = (sheaf_source_entry){ full, SHEAF_F32, cols > 0 ? 2 : 1, { rows, cols } };
}

/* As a run keeps them: at most two axes. */
static void fake_of(fake_source *f, const sheaf_lora *lora, const char *without)
{
    *f = (fake_source){ .source = { fake_find, fake_count, fake_entry, fake_read, fake_close } };
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        add_master(f, m->a_name, m->a_shape[0], m->a_shape[1]);
        add_master(f, m->b_name, m->b_shape[0], m->b_shape[1]);
    }
    for (int i = 0; i < lora->nsaved; i++) {
        const sheaf_tensor *t = lora->saved[i];
        const int64_t cols = t->shape[1] * t->shape[2] * t->shape[3];
        if (strcmp(t->name, without) != 0)
            add_master(f, t->name, t->shape[0], t->ndim > 1 ? cols : 0);
    }
}

static float *read_all(sheaf_source *source, const sheaf_source_entry *e, int64_t *n)
{
    int64_t rows = 1;
    for (int i = 0; i < e->ndim - 1; i++)
        rows *= e->shape[i];
    const int64_t cols = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
    rows = e->ndim > 1 ? rows : e->shape[0];
    *n = rows * cols;
    float *x = malloc((size_t)*n * sizeof *x);
    assert_int_equal(e->dtype, SHEAF_F32);
    CHECK_OK(source->read(source, e->name, 0, rows, 0, cols, x));
    return x;
}

static void check_values(sheaf_source *source, const char *name, const char *master,
                         const sheaf_tensor *shape)
{
    const sheaf_source_entry *e = source->find(source, name);
    int64_t n;
    char full[600];
    if (e == NULL)
        fail_msg("no %s", name);
    for (int i = 0; shape != NULL && i < shape->ndim; i++)
        assert_true(e->ndim == shape->ndim && e->shape[i] == shape->shape[i]);
    float *x = read_all(source, e, &n);
    snprintf(full, sizeof full, "master/%s", master);
    for (int64_t i = 0; i < n; i++)
        if (x[i] != value_of(full, i))
            fail_msg("%s: %g at %d", name, x[i], (int)i);
    free(x);
}

TEST(test_export__fused_layers_and_tensors_of_any_shape)
{
    static const char base_only[] = "mixins.eva.eoi";
    made m = { .agent = true,
               .dtype = SHEAF_BF16,
               .vit_head = 120 }; /* a convolution of more than a megabyte is read in pieces */
    made_init(&m);
    sheaf_lora_options o, read;
    sheaf_lora *lora, *again;
    sheaf_source *adapter;
    fake_source f;
    CHECK_OK(sheaf__lora_options_default(&o));
    CHECK_OK(sheaf__lora_set_targets(&o, "sat-vit"));
    CHECK_OK(sheaf__lora_set_saved(
        &o, "boi,eoi,patch_embed,patch_embedding,attn.q_bias,pos_embed,lm_head"));
    o.rank = 3, o.alpha = 5;
    CHECK_OK(sheaf_lora_resolve(&lora, m.schema, &o));
    assert_true(lora->nsaved >= 8);
    fake_of(&f, lora, base_only);
    static const char print[] = "0123456789abcdef0123456789abcdef";
    char found[33];
    CHECK_OK(
        sheaf__export_adapter(at("adapter"), true, lora, "BASE", &f.source, &m.source,
                              "{\"origin\": {\"weights\": \"0123456789abcdef0123456789abcdef\"}}",
                              NULL, &(sheaf__chat_files){ 0 }));
    CHECK_OK(sheaf_peft_base_print(found, at("adapter")));
    assert_string_equal(found, print);
    /* it is read as what it was */
    CHECK_OK(sheaf_lora_options_read(&read, at("adapter/adapter_config.json"), NULL));
    assert_string_equal(read.base_name, "BASE");
    CHECK_OK(sheaf_lora_resolve(&again, m.schema, &read));
    CHECK_OK(open_adapter_at(&adapter, at("adapter")));
    const sheaf_source_entry *wide = adapter->find(
        adapter, "base_model.model.transformer.layers.0.attention.query_key_value.lora_B.weight");
    assert_true(wide != NULL && wide->shape[0] == 48 && wide->shape[1] == 9);
    CHECK_OK(sheaf_lora_fit(&adapter, again));
    CHECK_OK(sheaf_lora_check_trainable(again));
    assert_true(again->nmodules == lora->nmodules && again->nsaved == lora->nsaved);
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *x = &lora->module[i], *y = &again->module[i];
        assert_true(x->scale == y->scale && x->rank == y->rank && x->parts == y->parts);
        check_values(adapter, x->a_name, x->a_name, NULL);
        check_values(adapter, x->b_name, x->b_name, NULL);
    }
    for (int i = 0; i < lora->nsaved; i++)
        if (strcmp(lora->saved[i]->name, base_only) != 0)
            check_values(adapter, lora->saved_name[i], lora->saved[i]->name, lora->saved[i]);
    /* untrained tensors are the base's, in float32 too */
    int64_t n;
    float *x = read_all(adapter, adapter->find(adapter, "base_model.model.mixins.eva.eoi"), &n);
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        made_value(&half, SHEAF_BF16, made_key(base_only, m.seed), i);
        const uint32_t bits = (uint32_t)half << 16;
        CHECK_BYTES(base_only, &x[i], &bits, 4);
    }
    free(x);
    adapter->close(adapter);
    fake_close(&f.source);
    sheaf_lora_free(lora);
    sheaf_lora_free(again);
    sheaf_lora_options_release(&o);
    sheaf_lora_options_release(&read);
    made_release(&m);
}

TEST(test_export__a_master_of_another_size_is_refused)
{
    made m = { 0 };
    made_init(&m);
    sheaf_lora_options o;
    sheaf_lora *lora;
    fake_source f;
    CHECK_OK(sheaf__lora_options_default(&o));
    CHECK_OK(sheaf__lora_set_targets(&o, "sat"));
    CHECK_OK(sheaf_lora_resolve(&lora, m.schema, &o));
    fake_of(&f, lora, "");
    f.entry[1].shape[1] *= 3; /* B as in a file */
    CHECK_FAILS(sheaf__export_adapter(at("wrong"), true, lora, "BASE", &f.source, &m.source, NULL,
                                      NULL, &(sheaf__chat_files){ 0 }),
                SHEAF_E_LAYOUT, "lora_B.weight");
    assert_int_equal(sheaf__path_kind(at("wrong")), SHEAF_PATH_NONE);
    fake_close(&f.source);
    sheaf_lora_free(lora);
    sheaf_lora_options_release(&o);
    made_release(&m);
}

/* ---- a checkpoint's masters over the base ---- */

/* Some tensors of each number of axes have masters. */
static bool is_trained(const sheaf_tensor *t)
{
    return t->ndim > 2 || strstr(t->name, "bias") != NULL || strstr(t->name, ".2.") != NULL;
}

static void check_box(sheaf_source *stepped, const sheaf_tensor *t, sheaf_dtype dtype,
                      uint64_t base_seed, int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    char full[600];
    const int64_t width = t->ndim > 1 ? t->shape[t->ndim - 1] : 1, n = rows * cols,
                  bytes = (int64_t)sheaf_dtype_bytes(dtype);
    char *got = malloc((size_t)(n * bytes)), want[4];
    snprintf(full, sizeof full, "master/%s", t->name);
    CHECK_OK(stepped->read(stepped, t->name, row0, rows, col0, cols, got));
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (row0 + i / cols) * width + col0 + i % cols;
        const float master = value_of(full, at);
        if (is_trained(t))
            sheaf__kernels_for(NULL)->convert(want, dtype, &master, SHEAF_F32, 1);
        else
            made_value(want, dtype, made_key(t->name, base_seed), at);
        CHECK_BYTES(t->name, got + i * bytes, want, (size_t)bytes);
    }
    free(got);
}

TEST(test_stepped__masters_are_read_as_the_base_stores_them)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (int d = 0; d < 3; d++) {
        made m = { .agent = d == 1, .dtype = dtypes[d] };
        fake_source f = { .source = { fake_find, fake_count, fake_entry, fake_read, fake_close } };
        sheaf_source *stepped;
        made_init(&m);
        for (int64_t i = 0; i < m.schema->count; i++) {
            const sheaf_tensor *t = &m.schema->tensor[i];
            if (is_trained(t))
                add_master(&f, t->name, t->shape[0],
                           t->ndim > 1 ? t->shape[1] * t->shape[2] * t->shape[3] : 0);
        }
        assert_true(f.n > 5 && f.n < m.schema->count);
        CHECK_OK(sheaf__stepped_source(&stepped, &f.source, &m.source));
        for (int64_t i = 0; i < m.schema->count; i++) {
            const sheaf_tensor *t = &m.schema->tensor[i];
            const sheaf_source_entry *e = stepped->find(stepped, t->name);
            assert_true(e != NULL && e->dtype == dtypes[d] && e->ndim == t->ndim);
            const int64_t cols = t->ndim > 1 ? t->shape[t->ndim - 1] : 1,
                          rows = sheaf__elements(e->ndim, e->shape) / cols;
            check_box(stepped, t, dtypes[d], m.seed, 0, rows, 0, cols);
            check_box(stepped, t, dtypes[d], m.seed, rows / 2, rows - rows / 2, cols / 3,
                      cols - cols / 3);
            check_box(stepped, t, dtypes[d], m.seed, rows - 1, 1, 0, (cols + 1) / 2);
        }
        stepped->close(stepped);
        fake_close(&f.source);
        made_release(&m);
    }
}

TEST(test_stepped__what_is_not_the_bases_is_refused)
{
    made m = { 0 };
    made_init(&m);
    const sheaf_tensor *t = &m.schema->tensor[m.schema->count - 1];
    for (int unknown = 0; unknown < 2; unknown++) {
        fake_source f = { .source = { fake_find, fake_count, fake_entry, fake_read, fake_close } };
        sheaf_source *stepped = NULL;
        add_master(&f, t->name, t->shape[0],
                   t->ndim > 1 ? t->shape[1] * t->shape[2] * t->shape[3] : 0);
        add_master(&f, unknown ? "nobody.weight" : t->name, t->shape[0] + 1,
                   t->ndim > 1 ? t->shape[1] : 0);
        CHECK_FAILS(sheaf__stepped_source(&stepped, &f.source, &m.source), SHEAF_E_LAYOUT,
                    unknown ? "nobody.weight" : t->name);
        fake_close(&f.source);
    }
    made_release(&m);
}

FIXTURE(make_scratch, remove_scratch);
