/* compress_test.c - which weights of a loaded model are compressed, and that all hold what the
 * files do: read once, or twice where numbers do not allow it. */
#include "models/team.h"

#include "models/build.h"
#include "ops/math/round.h"

#include "tests/check.h"

/* The files' weights, but for one tensor. */
typedef struct altered {
    sheaf_source source, *files;
    const char *name; /* NULL: none */
    void (*alter)(uint16_t *half, int64_t row, int64_t col);
} altered;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const altered *a = (const altered *)self;
    return a->files->find(a->files, name);
}

static void to_halves(uint16_t *dst, const void *src, sheaf_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = sheaf__bf16(sheaf__load(src, i, dtype));
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const altered *a = (const altered *)self;
    sheaf_status *st = a->files->read(a->files, name, row0, rows, col0, cols, dst);
    const sheaf_dtype dtype = a->files->find(a->files, name)->dtype;
    if (a->name == NULL || strcmp(name, a->name) != 0)
        return st;
    for (int64_t i = 0; i < rows * cols; i++) {
        uint16_t half;
        to_halves(&half, (char *)dst + i * (int64_t)sheaf_dtype_bytes(dtype), dtype, 1);
        a->alter(&half, row0 + i / cols, col0 + i % cols);
        if (dtype == SHEAF_BF16)
            ((uint16_t *)dst)[i] = half;
        else
            ((float *)dst)[i] = sheaf__from_bf16(half);
    }
    return st;
}

static void infinite(uint16_t *half, int64_t row, int64_t col)
{
    if (row == 37 && col == 41)
        *half = 0x7f80;
}
static void many_exponents(uint16_t *half, int64_t row, int64_t col)
{
    *half = (uint16_t)((*half & 0x807f) | (100 + (row * 7 + col * 3) % 40) << 7);
}

typedef struct trial {
    altered *from;
    const char *plain; /* the layer that is not compressed, or NULL */
    int64_t sequences;
} trial;

/* Row `row` of the rank's share of a layer's slice s. */
static void check_row(const trial *t, const sheaf__linear *l, int s, int64_t row)
{
    const sheaf__packed *w = &l->w[s];
    const int64_t row0 = l->rows ? 0 : l->logical0 + l->begin[s],
                  col0 = l->rows ? l->logical0 + l->begin[s] : 0;
    const sheaf_dtype dtype = t->from->files->find(t->from->files, l->name)->dtype;
    float read[1024];
    uint16_t want[1024], got[1024];
    assert_true(w->k <= 1024);
    CHECK_OK(t->from->source.read(&t->from->source, l->name, row0 + row, 1, col0, w->k, read));
    to_halves(want, read, dtype, w->k);
    sheaf__packed_row(got, w, row);
    CHECK_BYTES(l->name, got, want, w->k * 2);
}

static sheaf_status *look(void *self, sheaf__model *model)
{
    const trial *t = self;
    const bool few = t->sequences > 0 && t->sequences <= sheaf__packed_few(model->context->device);
    for (int i = 0; i < model->nmodules; i++) {
        const sheaf__linear *l = model->module[i].part;
        if (model->module[i].kind != SHEAF__LINEAR)
            continue;
        const bool compressed = few && (t->plain == NULL || strcmp(l->name, t->plain) != 0);
        for (int s = l->first; s < l->first + l->count; s++) {
            if (l->extent[s] == 0)
                continue;
            if ((l->w[s].code != NULL) != compressed)
                fail_msg("%s, slice %d: %s", l->name, s, compressed ? "plain" : "compressed");
            for (int64_t r = 0; r < l->w[s].n; r++)
                check_row(t, l, s, r);
        }
        assert_true(l->rows || l->owned == 0 || (l->all.code != NULL) == compressed);
    }
    return NULL;
}

TEST(test_compress__layers_hold_what_the_files_do)
{
    static const struct {
        const char *name;
        void (*alter)(uint16_t *half, int64_t row, int64_t col);
        int64_t sequences;
        int ranks;
    } cases[] = {
        { NULL, NULL, 1, 1 },
        { NULL, NULL, 3, 3 },
        { NULL, NULL, 5, 2 },
        { NULL, NULL, 0, 1 },
        { "model.layers.0.self_attn.q_proj.weight", infinite, 1, 1 },
        { "model.layers.1.self_attn.o_proj.weight", infinite, 2, 1 },
        { "model.layers.1.mlp.down_proj.weight", many_exponents, 1, 2 },
        { "model.layers.0.mlp.up_proj.weight", many_exponents, 1, 1 },
    };
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__opened opened;
        char path[512];
        snprintf(path, sizeof path, "%s/tests/data/llama/tiny_llama/hf", root == NULL ? "." : root);
        CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = path, .slices = 8 }));
        altered from = { .source = { .find = find, .read = read_box },
                         .files = opened.weights,
                         .name = cases[i].name,
                         .alter = cases[i].alter };
        trial t = { &from, cases[i].name, cases[i].sequences };
        opened.weights = &from.source;
        CHECK_OK(sheaf__team_run(&opened,
                                 &(sheaf__team_options){ .ranks = cases[i].ranks,
                                                         .threads = 2,
                                                         .dtype = SHEAF_BF16,
                                                         .positions = 8,
                                                         .sequences = cases[i].sequences },
                                 look, &t));
        opened.weights = from.files;
        sheaf__opened_close(&opened);
    }
}
