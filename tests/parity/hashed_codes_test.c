/* hashed_codes_test.c - the fingerprint of a quantised base is that of its codes, scales and what
 * belongs to all of a tensor: not of how they are read; any change of them changes it. */
#include "tests/check.h"

#include "models/open.h"
#include "ops/quant/quant.h"
#include "tests/fake_source.h"
#include "tests/golden.h"

/* ---- a model that is quantised while it is read ---- */

static void open_as(sheaf__opened *opened, const char *model, sheaf_quantize as, int slices)
{
    CHECK_OK(sheaf__open_model(opened, &(sheaf__open_options){ .model = model,
                                                               .slices = slices,
                                                               .for_training = true,
                                                               .hashed = true,
                                                               .quantize = as }));
}

static void print_of(char out[33], const sheaf__opened *o)
{
    CHECK_OK(sheaf__hashed_all(o->hashed, 3));
    CHECK_OK(sheaf__hashed_weights(out, o->hashed));
}

/* Reads the codes of all matrices as ranks do: of each slice its box, `tall` rows at a time. */
static void read_slices(const sheaf__opened *o, int64_t tall)
{
    static uint8_t codes[1 << 16], scale_codes[1 << 16];
    static float scales[1 << 16], nested[1 << 12];
    sheaf_source *s = o->base;
    const sheaf__quant_parts to = { codes, scales, scale_codes, NULL };
    for (int64_t i = 0; i < o->schema->count; i++) {
        const sheaf_tensor *t = &o->schema->tensor[i];
        if (sheaf__source_form(s, t->name) == NULL)
            continue;
        CHECK_OK(s->quantised->whole(s, t->name, &(sheaf__quant_whole){ .nested = nested }));
        for (int k = 0; k < o->schema->slices; k++) {
            sheaf_range range, all = { 0, t->shape[1 - t->cut.axis] };
            CHECK_OK(sheaf_cut_rows(&range, &t->cut, 0, k));
            const sheaf_range rows = t->cut.axis == 0 ? range : all,
                              cols = t->cut.axis == 0 ? all : range;
            for (int64_t r = rows.begin; r < rows.end; r += tall)
                CHECK_OK(s->quantised->read(s, t->name, r,
                                            rows.end - r < tall ? rows.end - r : tall, cols.begin,
                                            cols.end - cols.begin, &to));
        }
    }
}

TEST(test_print__does_not_depend_on_how_codes_are_read)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2" };
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        const char *model = golden(textf("llama/%s/hf", models[m]));
        char prints[4][33];
        for (int as = SHEAF_QUANTIZE_NONE; as <= SHEAF_QUANTIZE_INT8; as++) {
            sheaf__opened whole = { 0 };
            open_as(&whole, model, (sheaf_quantize)as, 8);
            print_of(prints[as], &whole);
            sheaf__opened_close(&whole);
            for (int before = 0; before < as; before++)
                assert_string_not_equal(prints[before], prints[as]);
            for (int slices = 1; slices <= 8 && as > 0; slices *= 2) {
                sheaf__opened opened = { 0 };
                char print[33];
                open_as(&opened, model, (sheaf_quantize)as, slices);
                read_slices(&opened, 1 + 3 * slices);
                print_of(print, &opened);
                assert_string_equal(print, prints[as]);
                sheaf__opened_close(&opened);
            }
        }
    }
}

/* ---- a tensor whose parts change ---- */

enum { ROWS = 3, COLS = 10, GROUPS = 6 }; /* at most */

typedef struct coded {
    fake_source fake; /* first */
    sheaf__quant quant;
    uint8_t codes[ROWS * COLS], scale_codes[ROWS * GROUPS], zeros[ROWS * GROUPS];
    float scales[ROWS * GROUPS], nested[2], offset;
    uint16_t index[COLS];
} coded;

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    return &((coded *)self)->quant;
}

/* Whole rows are all that is read here. */
static sheaf_status *read_codes(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const sheaf__quant_parts *to)
{
    const coded *c = (const coded *)self;
    const sheaf__quant_box box = { COLS, row0, rows, 0, COLS };
    const int64_t groups = sheaf__quant_groups(&c->quant, &box), at = row0 * groups,
                  n = rows * groups;
    assert_true(col0 == 0 && cols == COLS && groups <= GROUPS);
    memcpy(to->codes, c->codes + row0 * COLS, (size_t)(rows * COLS));
    memcpy(to->scales, c->scales + at, (size_t)n * sizeof(float));
    memcpy(to->scale_codes, c->scale_codes + at, (size_t)n);
    memcpy(to->zeros, c->zeros + at, (size_t)n);
    return NULL;
}

static sheaf_status *read_whole(sheaf_source *self, const char *name, sheaf__quant_whole *to)
{
    const coded *c = (const coded *)self;
    if (c->quant.doubled)
        memcpy(to->nested, c->nested, sizeof *c->nested);
    memcpy(to->index, c->index, sizeof c->index);
    to->offset = c->offset;
    return NULL;
}

static const sheaf__quantised_source with_codes = { form, read_codes, read_whole };

static void print_coded(char out[33], coded *c)
{
    sheaf__hashed *hashed = NULL;
    CHECK_OK(sheaf__hashed_new(&hashed, &c->fake.source, NULL));
    CHECK_OK(sheaf__hashed_all(hashed, 2));
    CHECK_OK(sheaf__hashed_weights(out, hashed));
    sheaf__hashed_free(hashed);
}

TEST(test_print__every_part_counts)
{
    static const sheaf__quant forms[] = {
        { SHEAF__NF4, SHEAF__GROUPS_FLAT, 4, 0, false, false, SHEAF_BF16 },
        { SHEAF__NF4, SHEAF__GROUPS_FLAT, 4, 0, false, true, SHEAF_BF16 },
        { SHEAF__INT4, SHEAF__GROUPS_OF_ROW, 5, 0, true, false, SHEAF_F16 },
        { SHEAF__INT4, SHEAF__GROUPS_INDEXED, 0, 4, true, false, SHEAF_F16 },
        { SHEAF__INT8, SHEAF__GROUPS_OF_ROW, 0, 0, false, false, SHEAF_F32 },
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const sheaf__quant *q = &forms[i];
        coded c = { .fake = { .source = { fake_find, fake_count, fake_entry, NULL, NULL,
                                          &with_codes },
                              .n = 1,
                              .entry = { { "a", q->dtype, 2, { ROWS, COLS } } } },
                    .quant = *q };
        char before[33], after[33];
        struct {
            void *at;
            bool counts;
        } parts[] = {
            { &c.codes[COLS], true },
            { &c.codes[ROWS * COLS - 1], true },
            { &c.scales[1 * sheaf__quant_groups(q, &(sheaf__quant_box){ COLS, 0, ROWS, 0, COLS })],
              !q->doubled },
            { &c.scale_codes[0], q->doubled },
            { &c.zeros[0], q->zeros },
            { &c.nested[0], q->doubled },
            { &c.offset, q->doubled },
            { &c.index[COLS - 1], q->grouping == SHEAF__GROUPS_INDEXED },
            { &c.quant.codes, true },
        };
        print_coded(before, &c);
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            *(uint8_t *)parts[k].at ^= 1;
            print_coded(after, &c);
            *(uint8_t *)parts[k].at ^= 1;
            if ((strcmp(before, after) != 0) != parts[k].counts)
                fail_msg("form %zu, part %zu: %s", i, k, parts[k].counts ? "missed" : "counted");
        }
    }
}
