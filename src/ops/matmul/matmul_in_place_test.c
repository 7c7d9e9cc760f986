/* matmul_in_place_test.c - products that read operands where they lie, as those of LoRA do: outer
 * products, thin ones, and several that share an operand. All against the definition, on every
 * instruction set and with several numbers of threads. */
#include "tests/matmul_twin.h"

static int64_t one_of(const int64_t *list, size_t count)
{
    return list[below((int64_t)count)];
}

/* Around chunks of 64 steps, blocks of 256, vectors, panels and areas. */
static const int64_t depths[] = { 1, 2, 63, 64, 65, 128, 130, 255, 256, 257, 320, 513, 600 },
                     widths[] = { 1,  7,  8,   15,  16,  17,  31,  33,  47,  63,
                                  64, 65, 100, 255, 257, 511, 513, 545, 1100 };

static void check_random(const char *name, sheaf__product *job, int64_t terms, kind kind)
{
    char text[80];
    snprintf(text, sizeof text, "%s, %d x %d, %d terms", name, (int)job->m, (int)job->n,
             (int)terms);
    job->nterms = (int)terms;
    random_ending(job, kind);
    check_job(text, job);
    drop_all();
}

TEST(test_product__gradients_of_factors_equal_the_reference)
{
    for (int i = 0; i < 2 * 66; i += every(7)) {
        const bool of_a = i % 2 == 0; /* [rank, in], else [out, rank] */
        const int64_t rank = of_a ? 1 + i / 2 : 1 + i / 2 % 33;
        const bool full = rank % 16 == 0; /* chains that fill their room */
        const int64_t other =
            full && of_a ? 512 : one_of(widths, ARRAY_LEN(widths)) + (of_a ? 0 : 4 * rank);
        const kind kind = i % 7 == 0 ? SPECIAL : i % 7 == 1 ? TINY : ORDINARY;
        sheaf__product job = {
            .m = of_a ? rank : other, .n = of_a ? other : rank, .dtype = SHEAF_F32, .nslices = 1
        };
        sheaf__term term[2];
        for (int t = 0; t < 2; t++)
            term[t] = random_term(SHEAF_F32, SHEAF__B_KN, true, job.m, job.n,
                                  full ? 320 : one_of(depths, ARRAY_LEN(depths)), kind);
        job.term = term;
        check_random("gradient", &job, 1 + below(2), kind);
    }
}

/* Slices, some of them empty, whose sums meet in a tree. */
TEST(test_product__sliced_gradients_equal_the_reference)
{
    for (int i = 0; i < 24; i += every(4)) {
        const int64_t m = 1 + below(40), n = one_of(widths, ARRAY_LEN(widths));
        sheaf__term term[8];
        int slice_of[8], first[9] = { 0 };
        sheaf_tree tree;
        for (int s = 0; s < 8; s++) {
            term[s] = random_term(SHEAF_F32, SHEAF__B_KN, true, m, n,
                                  below(4) ? one_of(depths, ARRAY_LEN(depths)) : 0, ORDINARY);
            slice_of[s] = s;
            first[s + 1] = s + 1;
        }
        sheaf_tree_init(&tree, 8, 1, NULL);
        sheaf__product job = { .m = m,
                               .n = n,
                               .dtype = SHEAF_F32,
                               .nslices = 8,
                               .slice_of = slice_of,
                               .first = first,
                               .term = term,
                               .tree = &tree };
        check_random("sliced gradient", &job, 8, ORDINARY);
    }
}

TEST(test_product__thin_ones_equal_the_reference)
{
    static const int64_t heights[] = { 1, 9, 10, 11, 100, 159, 160, 161, 175, 330, 650 };
    for (int i = 0; i < 3 * 20; i += every(7)) {
        const int64_t m = one_of(heights, ARRAY_LEN(heights)), n = 1 + i / 3;
        const sheaf_dtype type = i % 3 == 0 ? SHEAF_BF16 : SHEAF_F32;
        const kind kind = i % 7 == 0 ? SPECIAL : i % 7 == 1 ? TINY : ORDINARY;
        sheaf__term term[3];
        for (int t = 0; t < 3; t++)
            term[t] = random_term(type, (int)below(i % 4 == 0 ? FORMS : 2), false, m, n,
                                  one_of(depths, ARRAY_LEN(depths)), kind);
        sheaf__product job = { .m = m, .n = n, .dtype = type, .nslices = 1, .term = term };
        check_random("thin", &job, 1 + below(3), kind);
    }
}

/* ---- several jobs of one call ---- */

#define JOBS 7

typedef struct jobs {
    sheaf__product job[JOBS];
    sheaf__term term[JOBS];
} jobs;

/* Factors of layers that read one input: gradients of A share B, those of B lie side by side, thin
 * products share A. Most jobs are as those before them. */
static void random_jobs(jobs *all, int form, bool a_km, bool tall)
{
    const int64_t k = one_of(depths, ARRAY_LEN(depths)), in = one_of(widths, ARRAY_LEN(widths));
    int64_t rank = 1 + below(40);
    for (int j = 0; j < JOBS; j++) {
        if (below(4) == 0)
            rank = 1 + below(40);
        const int64_t m = tall ? 4 * 32 + below(300) : a_km ? rank : in;
        const int64_t n = tall ? 1 + rank % 32 : a_km ? in : rank;
        sheaf__term *term = &all->term[j];
        *term = random_term(SHEAF_F32, form, a_km, m, n, k, ORDINARY);
        const sheaf__product *last = j > 0 && below(6) ? &all->job[j - 1] : NULL;
        if (last != NULL && a_km && last->n == n) {
            term->b = last->term->b;
            term->ldb = last->term->ldb;
        } else if (last != NULL && !a_km) {
            term->a = last->term->a;
            term->lda = last->term->lda;
        }
        if (below(5) == 0) /* the first of the rows that others sum */
            term->k = 1 + below(k);
        all->job[j] = plain_job(SHEAF_F32, m, n, term, 1);
        all->job[j].alpha = below(2) ? 1.0f : random_float(ORDINARY);
        all->job[j].add = below(2);
    }
}

static void check_jobs(const char *name, const jobs *all)
{
    check_together(name, all->job, JOBS, SHEAF_SUMS_PAIRS);
    drop_all();
}

TEST(test_products__sharing_an_operand_does_not_show)
{
    static jobs all;
    for (int i = 0; i < 24; i += every(4)) {
        random_jobs(&all, SHEAF__B_KN, true, false);
        check_jobs("gradients of A", &all);
        random_jobs(&all, SHEAF__B_KN, true, true);
        check_jobs("gradients of B", &all);
        random_jobs(&all, below(2) ? SHEAF__B_KN : SHEAF__B_NK, false, false);
        check_jobs("thin", &all);
    }
}

/* ---- areas ---- */

/* Cut into numbers of areas that threads do not share evenly, so that they are cut again. */
TEST(test_product__areas_of_any_number_equal_the_reference)
{
    static const int64_t size[][3] = {
        { 320, 2752, 37 },    { 1154, 512, 33 }, { 125, 4001, 40 },
        { 83 * 14, 352, 65 }, { 700, 97, 300 },  { 2100, 130, 70 },
    };
    for (size_t i = 0; i < ARRAY_LEN(size); i += (size_t)every(3))
        for (int form = 0; form < 2; form++) {
            const sheaf_dtype type = (i + (size_t)form) % 3 ? SHEAF_F32 : SHEAF_BF16;
            const sheaf__term t =
                random_term(type, form ? SHEAF__B_AHEAD : SHEAF__B_KN, i % 2 && !form, size[i][0],
                            size[i][1], size[i][2], ORDINARY);
            const sheaf__product job = plain_job(type, size[i][0], size[i][1], &t, 1);
            check_job("areas", &job);
            drop_all();
        }
}

FIXTURE(make_machines, free_machines);
