/* coded_test.c - every box of words of codes, in each of their orders, of lines that are long and
 * short, has the codes that lie there. */

#include "base/file.h"
#include "catalog/coded.h"
#include "tests/files.h"

enum { TALL = 16800, MOST = TALL * 40, WORDS = MOST / 8 };

static struct {
    uint32_t word[WORDS];
    float scale[TALL];
} file;
static uint8_t codes[MOST];
static uint32_t state = 5;

static int64_t below(int64_t n)
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)(state >> 8) % n;
}

static int code_at(const sheaf__coded *q, int64_t r, int64_t c)
{
    static const int of[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }; /* AWQ: element of each place */
    int place = 0;
    if (q->packing->by == SHEAF__GPTQ_4)
        return file.word[c / 8 * q->out + r] >> 4 * (c % 8) & 15;
    if (q->packing->by == SHEAF__GPTQ_8)
        return (file.word[c / 4 * q->out + r] >> 8 * (c % 4) & 255) ^ 128;
    if (q->packing->by == SHEAF__COMPRESSED_TENSORS_4)
        return file.word[r * (q->in / 8) + c / 8] >> 4 * (c % 8) & 15;
    if (q->packing->by == SHEAF__MXFP4)
        return ((const uint8_t *)file.word)[r * ((q->in + 1) / 2) + c / 2] >> 4 * (c % 2) & 15;
    while (of[place] != r % 8)
        place++;
    return file.word[c * (q->out / 8) + r / 8] >> 4 * place & 15;
}

static void check_box(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0, int64_t rows,
                      int64_t col0, int64_t cols)
{
    static float scales[TALL];
    int64_t wrong = 0;
    memset(codes, 255, sizeof codes);
    CHECK_OK(sheaf__coded_read(c, t, row0, rows, col0, cols,
                               &(sheaf__quant_parts){ .codes = codes, .scales = scales }));
    for (int64_t i = 0; i < rows * cols; i++)
        wrong += codes[i] != code_at(t->coded, row0 + i / cols, col0 + i % cols);
    for (int64_t r = 0; r < rows; r++)
        wrong += scales[r] != file.scale[row0 + r];
    assert_int_equal(wrong, 0);
    assert_true(rows * cols == MOST || codes[rows * cols] == 255);
}

/* The codes of all of a matrix, which were read, are put back to the words that they were in. */
static void check_words(const sheaf__coded *q)
{
    const sheaf__plane *p = &q->packing->plane[SHEAF__CODES_PART];
    const int64_t size = (q->out * q->in + p->per - 1) / p->per * p->word;
    if (q->in % p->per != 0 || (p->down && q->out % p->per != 0))
        return;
    uint8_t *words = calloc(1, (size_t)size);
    for (int64_t r = q->out - 1; r >= 0; r--)
        sheaf__plane_put(words, p, q->out, q->in, r, 0, codes + r * q->in, q->in);
    CHECK_BYTES("words", words, (const uint8_t *)file.word, (size_t)size);
    free(words);
}

TEST(test_coded__boxes_have_the_codes_that_lie_there)
{
    static const struct {
        sheaf__quantizer by;
        int64_t out, in;
    } cases[] = {
        { SHEAF__AWQ_4, 3200, 200 },
        { SHEAF__AWQ_4, 40, 136 },
        { SHEAF__AWQ_4, TALL, 40 },
        { SHEAF__GPTQ_4, 3000, 200 },
        { SHEAF__GPTQ_4, 136, 1000 },
        { SHEAF__GPTQ_8, 3000, 100 },
        { SHEAF__COMPRESSED_TENSORS_4, 3200, 200 },
        { SHEAF__COMPRESSED_TENSORS_4, 40, 24 },
        { SHEAF__COMPRESSED_TENSORS_4, 3, 140000 },
        { SHEAF__MXFP4, 3000, 200 },
        { SHEAF__MXFP4, 41, 161 },
    };
    for (int64_t i = 0; i < WORDS; i++)
        file.word[i] = (uint32_t)(below(65536) << 16 | below(65536));
    for (int64_t i = 0; i < TALL; i++)
        file.scale[i] = (float)i;
    sheaf_catalog *c;
    const char *path = at("words");
    sheaf_piece piece[2] = { { .offset = 0 }, { .offset = sizeof file.word } };
    CHECK_OK(sheaf__file_write_whole(path, &file, sizeof file));
    CHECK_OK(sheaf__catalog_new(&c, NULL, path));
    CHECK_OK(sheaf__catalog_file(&piece[0].file, c, path, NULL));
    piece[1].file = piece[0].file;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t out = cases[k].out, in = cases[k].in;
        sheaf__coded q = { .form = { .codes = SHEAF__INT4, .dtype = SHEAF_F16 },
                           .packing = sheaf__packing_of(cases[k].by, SHEAF__CODES),
                           .out = out,
                           .in = in };
        sheaf_logical t = { .entry = { "a", SHEAF_F16, 2, { out, in } }, .coded = &q };
        for (int i = 0; i < 2; i++)
            q.part[i] = (sheaf_logical){ .entry = { "b", SHEAF_F32, 1, { out } },
                                         .npieces = 1,
                                         .piece = &piece[i] };
        check_box(c, &t, 0, out, 0, in);
        check_words(&q);
        for (int i = 0; i < 30; i++) {
            const int64_t row0 = below(out), col0 = below(in);
            check_box(c, &t, row0, 1 + below(out - row0), col0, 1 + below(in - col0));
        }
    }
    sheaf__catalog_free(c);
}

FIXTURE(make_scratch, remove_scratch);
