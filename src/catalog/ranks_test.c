/* ranks_test.c - parts of several runs are distinguished from drifted copies, by the copies of
 * common tensors; one part under two names by what is divided. */
#include "tests/files.h"

#include "catalog/catalog.h"

static const sheaf_dialect test_dialect = { .name = "test" };

enum { MATRICES = 12, NORMS = 8, FACTORS = 6, WIDE = 32, BIG = WIDE * WIDE, SMALL = 48, MOST = 10 };

/* Contents of part r: the values of run[r], moved by `drift` of their spread, on each part another
 * way. */
typedef struct world {
    const char *what;
    int parts, run[MOST];
    double drift; /* of matrices */
    double apart; /* runs differ by so much of the spread; 1: altogether */
    int frozen;   /* matrices that are equal everywhere */
    bool ones;    /* norms are 1, moved by drift / 10; else of any values */
    bool factors; /* LoRA's A too, each part its own */
    int zero;     /* drifted from zero: 1 the last matrix, 2 the norms */
    sheaf_dtype dtype;
    const char *code; /* the finding; NULL: none */
    const char *path, *text;
    int rare; /* one of so many elements differs between runs and parts; 0 = all do */
} world;

static double number(uint64_t *key) /* -1 to 1 */
{
    *key = *key * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*key >> 11) / (double)(1LL << 52) - 1;
}

static uint64_t key_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
    for (int i = 0; i < 3; i++)
        number(&h);
    return h;
}

static void put_number(char *to, sheaf_dtype dtype, double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == SHEAF_F64)
        memcpy(to, &x, 8);
    else
        memcpy(to, dtype == SHEAF_F32 ? (void *)&bits : (void *)&half, sheaf_dtype_bytes(dtype));
}

/* Tensor `t` of a part. */
static void fill(char *to, const world *w, int t, int part, int64_t n)
{
    const bool norm = t >= MATRICES && t < MATRICES + NORMS, still = t < w->frozen,
               zero = w->zero == 1 ? t == MATRICES - 1 : w->zero == 2 && norm;
    const bool trained = !still && !(w->factors && t < MATRICES + NORMS);
    uint64_t base = key_of((uint64_t)t, 0, 7), own = key_of((uint64_t)t, (uint64_t)w->run[part], 8),
             way = key_of((uint64_t)t, (uint64_t)part, 9);
    for (int64_t i = 0; i < n; i++) {
        const double a = number(&base), b0 = number(&own), d0 = number(&way) * w->drift;
        const bool same =
            w->rare > 0 && key_of((uint64_t)t, (uint64_t)i,
                                  (uint64_t)(20 + (w->drift > 0 ? part : w->run[part]))) %
                                   (uint64_t)w->rare !=
                               0;
        const double b = same ? a : b0, d = same ? 0 : d0;
        const double of_run =
            (zero ? 0 : a + (trained ? w->apart * (b - a) : 0)) + (trained ? d : 0);
        put_number(to + (size_t)i * sheaf_dtype_bytes(w->dtype), w->dtype,
                   norm && w->ones ? 1 + (trained ? d / 10 : 0) : of_run);
    }
}

static sheaf_catalog *make(const world *w)
{
    const int tensors = MATRICES + NORMS + (w->factors ? FACTORS : 0);
    const size_t each = sheaf_dtype_bytes(w->dtype);
    char path[64], *bytes = malloc((size_t)tensors * BIG * each);
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    c->by_names = true;
    for (int r = 0; r < w->parts; r++) {
        size_t end = 0, begin[MATRICES + NORMS + FACTORS];
        int file;
        for (int t = 0; t < tensors; t++) {
            begin[t] = end;
            const int64_t n = t >= MATRICES && t < MATRICES + NORMS ? SMALL : BIG;
            fill(bytes + end, w, t, r, n);
            end += (size_t)n * each;
        }
        snprintf(path, sizeof path, "part%d", r);
        CHECK_OK(sheaf__file_write_whole(at(path), bytes, end));
        CHECK_OK(sheaf__catalog_file(&file, c, at(path), NULL));
        for (int t = 0; t < tensors; t++) {
            sheaf_logical *l;
            const bool norm = t >= MATRICES && t < MATRICES + NORMS, factor = t >= MATRICES + NORMS;
            const int64_t shape[2] = { norm     ? SMALL
                                       : factor ? WIDE * w->parts
                                                : WIDE,
                                       WIDE },
                          local[2] = { norm ? SMALL : WIDE, WIDE };
            CHECK_OK(
                sheaf__catalog_tensor(&l, c, textf("t%02d", t), w->dtype, norm ? 1 : 2, shape));
            l->replicated = !factor;
            l->drifted = factor;
            l->kind = factor ? SHEAF_LORA : SHEAF_WEIGHT;
            sheaf_piece p =
                sheaf__piece_dense(file, r, w->dtype, (int64_t)begin[t], norm ? 1 : 2, local);
            p.begin[0] = factor ? WIDE * r : 0;
            CHECK_OK(sheaf__catalog_piece(c, l, &p));
        }
    }
    free(bytes);
    CHECK_OK(sheaf__catalog_check(c));
    return c;
}

#define F SHEAF_F32
static const world worlds[] = {
    { "equal copies", 4, { 0 }, 0, 1, 0, false, false, 0, F, NULL, "", "" },
    { "copies that drifted, two", 2, LIST(0), 0.02, 1, 0, true, false, 0, F, "replica", "",
      "near each other" },
    { "three", 3, { 0 }, 0.2, 1, 0, true, false, 0, SHEAF_F64, "replica", "", "20 of 20" },
    { "eight, far", 8, { 0 }, 0.7, 1, 0, true, false, 0, F, "replica", "", "of part 0 are used" },
    { "in half precision", 8, { 0 }, 0.3, 1, 0, true, false, 0, SHEAF_BF16, "replica", "", "near" },
    { "one matrix from zero", 4, { 0 }, 0.1, 1, 0, true, false, 1, F, "replica", "", "near" },
    { "some frozen", 3, { 0 }, 0.1, 1, MATRICES - 2, true, false, 0, F, "replica", "", "10 of 20" },
    { "norms that drifted from 1", 2, LIST(0), 0.5, 1, MATRICES, true, false, 0, F, "replica", "",
      "8 of 20" },
    { "and from zero", 2, { 0 }, 0.3, 1, 0, false, false, 2, F, "replica", "", "20 of 20" },
    { "part 0 of another run", 8, LIST(1), 0, 1, 0, false, false, 0, F, "foreign", "part0",
      "part 0 has other values" },
    { "part 3", 8, LIST(0, 0, 0, 1), 0, 1, 0, false, false, 0, SHEAF_BF16, "foreign", "part3",
      "(20 of 20 differ" },
    { "the last of three", 3, LIST(0, 0, 1), 0, 1e-4, 0, false, false, 0, F, "foreign", "part2",
      "part 2" },
    { "of another step", 4, LIST(0, 1), 0, 1e-4, 0, false, false, 0, F, "foreign", "part1",
      "run or step" },
    { "frozen but for one", 4, LIST(0, 0, 1), 0, 1, MATRICES - 1, true, false, 0, F, "foreign",
      "part2", "(1 of 20 differ" },
    { "one against seven that drifted", 8, LIST(0, 0, 0, 0, 0, 2), 0.5, 1, 0, true, false, 0, F,
      "foreign", "part5", "part 5" },
    { "and is only further off", 8, LIST(0, 0, 3), 0.01, 0.3, 0, true, false, 0, F, "foreign",
      "part2", "part 2" },
    { "two of eight that drifted", 8, LIST(4, 0, 0, 0, 0, 0, 4), 0.1, 1, 0, true, false, 0, F,
      "foreign", "part6", "part 0 has" },
    { "half and half", 8, LIST(0, 0, 0, 0, 1, 1, 1, 1), 0, 1, 0, false, false, 0, F, "conflict", "",
      "parts 0 to 3 and parts 4 to 7 are of" },
    { "half and half, drifted", 6, LIST(0, 1, 0, 1, 0, 1), 0.2, 1, 0, true, false, 0, F, "conflict",
      "", "parts 0, 2, 4 and parts 1, 3, 5 are of" },
    { "two parts of two runs", 2, LIST(0, 1), 0, 1, 0, true, false, 0, F, "conflict", "",
      "part 0 and part 1 are of" },
    { "two, by norms alone", 2, LIST(0, 1), 0, 1, MATRICES, false, false, 0, F, "conflict", "",
      "part 0 and part 1 are of" },
    { "three parts of three", 3, LIST(0, 1, 2), 0, 1, 0, true, false, 0, F, "conflict", "",
      "part 0, part 1 and part 2 are of" },
    { "drift that rounding hides in most", 8, LIST(0, 0, 1), 0, 0.01, 0, true, false, 0, SHEAF_BF16,
      "replica", "", "near", 100 },
    { "on each part elsewhere", 5, LIST(0), 0.01, 1, 0, true, false, 0, F, "replica", "", "near",
      200 },
    { "in one of seven elements", 4, LIST(0, 0, 1), 0, 0.1, 0, true, false, 0, F, "foreign",
      "part2", "or was changed", 7 },
    { "factors that drifted", 4, { 0 }, 1.5, 1, 0, true, true, 0, F, NULL, "", "" },
    { "further than they were long", 4, { 0 }, 8, 1, 0, true, true, 0, F, NULL, "", "" },
    { "another run's factors", 4, LIST(0, 1), 0.7, 1, 0, true, true, 0, F, "foreign", "part1",
      "part 1" },
    { "two parts with factors of two runs", 2, LIST(0, 1), 0.5, 1, 0, true, true, 0, F, "conflict",
      "", "part 0 and part 1 are of" },
};

static bool of_most(const world *w, int part)
{
    int n = 0;
    for (int r = 0; r < w->parts; r++)
        n += w->run[r] == w->run[part];
    return 2 * n > w->parts;
}

TEST(test_ranks__of_another_run_are_told_from_drift)
{
    for (size_t i = 0; i < ARRAY_LEN(worlds); i++) {
        const world *w = &worlds[i];
        sheaf_catalog *c = make(w);
        CHECK_OK(sheaf__catalog_ranks(c));
        const sheaf_finding *f = w->code == NULL ? NULL : sheaf__catalog_finding(c, w->code);
        const bool defect = w->code != NULL && strcmp(w->code, "replica") != 0;
        if ((w->code == NULL ? c->nfindings > 0 : f == NULL || strstr(f->found, w->text) == NULL) ||
            (sheaf__catalog_defects(c) > 0) != defect || c->copies_contradict != defect)
            fail_msg("%s: %s", w->what, c->nfindings == 0 ? "nothing" : c->finding[0].found);
        const sheaf_finding *last = c->nfindings > 0 ? &c->finding[c->nfindings - 1] : NULL;
        if (last != NULL && strcmp(last->code, "foreign") == 0 &&
            strcmp(strrchr(last->path, '/') + 1, w->path) != 0)
            fail_msg("%s: %s", w->what, last->path);
        if (last != NULL && strcmp(last->code, "conflict") == 0)
            assert_memory_equal(last->found, "part", 4);
        int odd = 0; /* none is accused in vain */
        for (int r = 0; r < w->parts; r++)
            odd += !of_most(w, r);
        if (last != NULL && strcmp(last->code, "foreign") == 0)
            assert_int_equal(sheaf__catalog_defects(c), odd);
        sheaf__catalog_free(c);
    }
}

/* Buffers are computed on each machine, and what files say of their bytes is believed. */
TEST(test_ranks__look_at_what_tells)
{
    const world w = { .parts = 4, .run = { 0, 1 }, .apart = 1, .dtype = F };
    sheaf_catalog *c = make(&w);
    for (int64_t i = 0; i < c->count; i++)
        c->tensor[i].kind = SHEAF_BUFFER;
    CHECK_OK(sheaf__catalog_ranks(c));
    assert_true(c->nfindings == 0 && c->copies == 0);
    for (int64_t i = 0; i < c->count; i++) {
        c->tensor[i].kind = SHEAF_WEIGHT;
        for (int64_t k = 0; k < c->tensor[i].npieces; k++)
            c->tensor[i].piece[k].digest = 5;
    }
    CHECK_OK(sheaf__catalog_ranks(c));
    assert_true(c->nfindings == 0 && c->copies == MATRICES + NORMS && c->copies_vary);
    c->tensor[3].piece[1].digest = 6;
    CHECK_OK(sheaf__catalog_ranks(c));
    assert_true(sheaf__catalog_defects(c) == 1 &&
                strstr(c->finding[0].found, "part 1 has other values") != NULL);
    sheaf__catalog_free(c);
}

/* Copies of equal numbers, as fresh norms are, tell nothing of the run. */
TEST(test_notes__say_what_files_cannot_tell)
{
    static const struct {
        bool copies, vary, names;
        const char *text;
    } rows[] = {
        { false, false, false, "there is no tensor of which each part has a copy" },
        { true, false, false, "are one number throughout" },
        { true, true, false, "began with the same values" },
        { true, true, true, "names of files and folders alone" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const world w = { .parts = 3, .ones = true, .apart = 1, .dtype = F };
        sheaf_catalog *c = make(&w);
        bool any;
        c->by_names = rows[i].names;
        for (int64_t t = 0; t < c->count; t++) /* t00 is divided, without a care for its shape */
            c->tensor[t].replicated = t > 0 && rows[i].copies && (rows[i].vary || t >= MATRICES);
        CHECK_OK(sheaf__catalog_ranks(c));
        CHECK_OK(sheaf__catalog_rank_notes(&any, c));
        bool said = false;
        for (int64_t n = 0; n < c->nfindings; n++)
            said = said || (c->finding[n].severity == SHEAF_NOTE &&
                            strstr(c->finding[n].found, rows[i].text) != NULL);
        if (!any || !said || c->nfindings != 1 + rows[i].names)
            fail_msg("%s: %d findings", rows[i].text, (int)c->nfindings);
        sheaf__catalog_free(c);
    }
    const world one = { .parts = 1, .apart = 1, .dtype = F };
    sheaf_catalog *c = make(&one);
    bool any;
    CHECK_OK(sheaf__catalog_rank_notes(&any, c));
    assert_true(!any && c->nfindings == 0);
    sheaf__catalog_free(c);
}

/* ---- one part twice ---- */

/* Part r of tensor t has the values of part value[r][t]; -1: zeros. */
typedef struct doubles {
    const char *what;
    int parts, value[4][5];
    bool stages;             /* each part has tensors of its own names, whole */
    bool ranks;              /* the parts have ranks */
    const char *path, *text; /* NULL: nothing is found */
} doubles;

static const doubles copies[] = {
    { "values of their own", 2, { { 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 } }, false, true, NULL, NULL },
    { "all of it", 2, LIST({ 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }), false, true, "part1",
      "the values of part 0, " },
    { "zeros in all parts", 3, LIST({ -1, -1, 0, 0, 0 }, { -1, -1, 1, 1, 1 }, { -1, -1, 2, 2, 2 }),
      false, true, NULL, NULL },
    { "nothing but zeros", 2, LIST({ -1, -1, -1, -1, -1 }, { -1, -1, -1, -1, -1 }), false, true,
      NULL, NULL },
    { "heads that two ranks share", 4,
      LIST({ 0, 0, 0, 0, 0 }, { 0, 0, 1, 1, 1 }, { 2, 2, 2, 2, 2 }, { 2, 2, 3, 3, 3 }), false, true,
      NULL, NULL },
    { "all but one", 3, LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 1, 1, 2, 1, 1 }), false, true,
      "part2", "in 4 of 5 of them" },
    { "and zeros", 3, LIST({ 0, -1, 0, 0, 0 }, { 1, -1, 1, 1, 1 }, { 1, -1, 2, 1, 1 }), false, true,
      "part2", "in 3 of 4 of them" },
    { "the last of four", 4,
      LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 2, 2, 2, 2, 2 }, { 1, 1, 1, 1, 1 }), false, true,
      "part3", "the values of part 1, " },
    { "files without ranks", 2, LIST({ 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }), false, false, "part1",
      "the values of /" },
    { "stages", 3, LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 2, 2, 2, 2, 2 }), true, true, NULL,
      NULL },
    { "a stage twice", 3, LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 }), true, true,
      "part2", "in 5 tensors of other names" },
    { "one from each of two", 3, LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 0, 1, 1, 1, 1 }),
      false, true, "part2", "in 4 of 5 of them" },
    { "a tensor in two stages, and no more", 2, LIST({ 0, -1, -1, -1, -1 }, { 0, -1, -1, -1, -1 }),
      true, true, NULL, NULL },
    { "a tensor in two stages", 2, LIST({ 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 0 }), true, true, NULL,
      NULL },
};

static sheaf_catalog *make_doubles(const doubles *d)
{
    enum { N = 600 };
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    for (int r = 0; r < d->parts; r++) {
        static float value[5][N];
        int file;
        for (int t = 0; t < 5; t++) {
            uint64_t key = key_of((uint64_t)t, (uint64_t)d->value[r][t], 3);
            for (int i = 0; i < N; i++)
                value[t][i] = d->value[r][t] < 0 ? 0 : (float)number(&key);
        }
        const char *path = textf("part%d", r);
        CHECK_OK(sheaf__file_write_whole(at(path), value, sizeof value));
        CHECK_OK(sheaf__catalog_file(&file, c, at(path), NULL));
        for (int t = 0; t < 5; t++) {
            sheaf_logical *l;
            CHECK_OK(sheaf__catalog_tensor(&l, c, textf("t%d.%d", d->stages ? r : 0, t), F, 1,
                                           (int64_t[]){ d->stages ? N : N * d->parts }));
            sheaf_piece p = sheaf__piece_dense(file,
                                               !d->ranks   ? -1
                                               : d->stages ? 0
                                                           : r,
                                               F, t * N * 4, 1, (int64_t[]){ N });
            p.begin[0] = d->stages ? 0 : N * r;
            CHECK_OK(sheaf__catalog_piece(c, l, &p));
        }
    }
    return c;
}

TEST(test_check__finds_a_part_that_is_another)
{
    for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
        const doubles *d = &copies[i];
        sheaf_catalog *c = make_doubles(d);
        CHECK_OK(sheaf__catalog_check(c));
        const sheaf_finding *f = sheaf__catalog_finding(c, "duplicate");
        const bool well = d->path == NULL ? c->nfindings == 0
                                          : c->nfindings == 1 && f != NULL &&
                                                strcmp(strrchr(f->path, '/') + 1, d->path) == 0 &&
                                                strstr(f->found, d->text) != NULL;
        if (!well)
            fail_msg("%s: %s", d->what, c->nfindings == 0 ? "nothing" : c->finding[0].found);
        sheaf__catalog_free(c);
    }
}

/* Two parts of 4 divided tensors, of which the first `same` are the same in both. */
static void check_twins(int same, const char *found)
{
    enum { TENSORS = 4 };
    static uint32_t bytes[TENSORS][BIG];
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__catalog_new(&c, &test_dialect, scratch.dir));
    for (int r = 0; r < 2; r++) {
        int file;
        for (int t = 0; t < TENSORS; t++)
            for (int i = 0; i < BIG; i++)
                bytes[t][i] = 0x3f000000u + (uint32_t)(i * 77 + t * 1001 + (t < same ? 0 : r) * 13);
        const char *path = textf("twin%d", r);
        CHECK_OK(sheaf__file_write_whole(at(path), bytes, sizeof bytes));
        CHECK_OK(sheaf__catalog_file(&file, c, at(path), NULL));
        for (int t = 0; t < TENSORS; t++) {
            sheaf_logical *l;
            const int64_t shape[2] = { 2 * WIDE, WIDE }, local[2] = { WIDE, WIDE };
            CHECK_OK(sheaf__catalog_tensor(&l, c, textf("t%d", t), SHEAF_F32, 2, shape));
            l->kind = SHEAF_WEIGHT;
            sheaf_piece p =
                sheaf__piece_dense(file, r, SHEAF_F32, t * (int64_t)sizeof *bytes, 2, local);
            p.begin[0] = r * WIDE;
            CHECK_OK(sheaf__catalog_piece(c, l, &p));
        }
    }
    CHECK_OK(sheaf__catalog_check(c));
    const sheaf_finding *f = NULL;
    for (int i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, "duplicate") == 0)
            f = &c->finding[i];
    if ((f != NULL) != (found != NULL) || (f != NULL && strstr(f->found, found) == NULL))
        fail_msg("%d of 4 alike: %s", same, f != NULL ? f->found : "nothing found");
    sheaf__catalog_free(c);
}

TEST(test_twins__more_than_half_alike_are_a_copy)
{
    check_twins(2, NULL);
    check_twins(3, "3 of 4 of them");
    check_twins(4, "all 4 of them");
}

FIXTURE(make_scratch, remove_scratch);
