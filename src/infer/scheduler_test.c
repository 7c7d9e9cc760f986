/* scheduler_test.c - which sequences take part in which pass, with passes that compute nothing. */
#include "infer/scheduler.h"

#include "base/base.h"
#include "tests/check.h"

enum { MOST = 16, LENGTH = 64 };

/* A run: a line for each pass. */
typedef struct run {
    sheaf_text log;
    int64_t ends[MOST]; /* tokens after which an answer is over, by number */
    int64_t fails;      /* number of the pass that fails, from 1; 0: none */
    int64_t passes;
    bool copies;
    sheaf_config config; /* of zeros: a Llama */
    sheaf__prompt prompt[MOST];
    sheaf__continuation out[MOST];
    sheaf__sequence s[MOST];
    int32_t ids[MOST][LENGTH], answer[MOST][LENGTH];
} run;

/* "r0+1 5" reads 5 rows of 0 and 1; "d0+1" decodes. */
static sheaf_status *pass_of(void *self, const sheaf__slots_pass *p)
{
    run *r = self;
    sheaf__text_add(&r->log, "%s%s", r->log.size > 0 ? ", " : "", p->rows > 0 ? "r" : "d");
    for (int64_t i = 0; i < p->n; i++) {
        sheaf__sequence *s = p->of[i];
        sheaf__text_add(&r->log, "%s%d", i > 0 ? "+" : "", (int)s->number);
        if (p->rows > 0 && s->read + p->rows < sheaf__sequence_known(s))
            continue;
        s->out->ids[s->out->n++] = 7;
        s->over = s->out->n == r->ends[s->number];
    }
    if (p->rows > 0)
        sheaf__text_add(&r->log, " %d", (int)p->rows);
    return ++r->passes == r->fails ? sheaf_fail(SHEAF_E_IO, "a pass") : NULL;
}

/* "c1<0 4" copies 4 rows of 0's place to 1's. */
static sheaf_status *copy_of(void *self, const struct sheaf__slots_copy *copy)
{
    run *r = self;
    sheaf__text_add(&r->log, ", c%d<%d %d", (int)copy->to, (int)copy->from, (int)copy->rows);
    return ++r->passes == r->fails ? sheaf_fail(SHEAF_E_IO, "a copy") : NULL;
}

/* Sequence i: a prompt of n tokens, `shared` of which others have, too. */
static void prepare(run *r, int64_t i, int64_t n, int64_t shared, int64_t ends)
{
    for (int64_t j = 0; j < n; j++)
        r->ids[i][j] = (int32_t)(j < shared ? j : 20 + i);
    r->prompt[i] = (sheaf__prompt){ .ids = r->ids[i], .n = n };
    r->out[i] = (sheaf__continuation){ .ids = r->answer[i] };
    r->s[i] = (sheaf__sequence){ .prompt = &r->prompt[i], .out = &r->out[i], .number = i };
    r->ends[i] = ends;
}

/* `of` is set: not yet. */
static bool may_begin(sheaf__sequence *s)
{
    return s->of == NULL;
}

static sheaf__scheduler *opened(run *r, int64_t places, int64_t chunk)
{
    sheaf__scheduler *e;
    CHECK_OK(
        sheaf__scheduler_open(&e, &(sheaf__scheduler_options){ .config = &r->config,
                                                               .models = 1,
                                                               .places = places,
                                                               .length = LENGTH,
                                                               .chunk = chunk,
                                                               .ready = may_begin,
                                                               .run = pass_of,
                                                               .copy = r->copies ? copy_of : NULL,
                                                               .self = r }));
    return e;
}

static void finish(run *r, sheaf__scheduler *e, const char *want)
{
    while (!sheaf__scheduler_idle(e))
        sheaf__scheduler_step(e);
    assert_string_equal(r->log.at, want);
    sheaf__scheduler_close(e);
    sheaf__text_release(&r->log);
}

TEST(test_scheduler__a_place_is_taken_as_soon_as_an_answer_ends)
{
    run r = { 0 };
    prepare(&r, 0, 2, 0, 4);
    prepare(&r, 1, 5, 0, 1);
    prepare(&r, 2, 3, 0, 2);
    prepare(&r, 3, 3, 0, 1);
    sheaf__scheduler *e = opened(&r, 2, 0);
    for (int i = 0; i < 4; i++)
        sheaf__scheduler_add(e, &r.s[i]);
    finish(&r, e, "r0+1 5, r2 3, d0+2, r3 3, d0, d0");
}

TEST(test_scheduler__with_chunks_others_get_tokens_between_them)
{
    run r = { 0 };
    prepare(&r, 0, 2, 0, 4);
    prepare(&r, 1, 7, 0, 1);
    sheaf__scheduler *e = opened(&r, 2, 3);
    for (int i = 0; i < 2; i++)
        sheaf__scheduler_add(e, &r.s[i]);
    finish(&r, e, "r0 2, d0, r1 3, d0, r1 3, d0, r1 1");
}

TEST(test_scheduler__what_a_place_holds_is_not_read_again)
{
    run r = { 0 };
    prepare(&r, 0, 8, 8, 1);
    prepare(&r, 1, 8, 0, 1);
    prepare(&r, 2, 9, 6, 1);
    prepare(&r, 3, 9, 0, 1);
    prepare(&r, 4, 9, 2, 2);
    prepare(&r, 5, 9, 0, 1);
    prepare(&r, 6, 9, 0, 1);
    sheaf__scheduler *e = opened(&r, 2, 0);
    for (int i = 0; i < 6; i++)
        sheaf__scheduler_add(e, &r.s[i]);
    while (!sheaf__scheduler_idle(e))
        sheaf__scheduler_step(e);
    sheaf__scheduler_add(e, &r.s[6]);
    /* 2 continues six rows of 0; two rows are better read with others */
    finish(&r, e, "r0+1 8, r2 3, r3 9, r4+5 9, d4, r6 9");
    assert_int_equal(r.s[2].place, r.s[0].place);
    assert_int_equal(r.s[4].place, r.s[2].place);
    assert_int_equal(r.s[6].place, r.s[5].place); /* of equals the one that was free longer */
}

TEST(test_scheduler__what_prompts_have_in_common_is_read_once)
{
    static const struct {
        int64_t chunk, fails;
        const char *want;
    } cases[] = {
        { 0, 0, "r0+3 9, c1<0 8, c2<0 8, r1+2 1, d0+1+2" }, /* two of 3's rows are too few */
        { 0, 2, "r0+3 9, c1<0 8, c2<0 8, r2 1, d0+2" },
        { 5, 0, "r0 5, r0 4, d0, c1<0 8, c2<0 8, c3<0 2, r1 1, d1, r2 1, d2, r3 5, r3 2" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run r = { .copies = true, .fails = cases[i].fails };
        for (int k = 0; k < 3; k++)
            prepare(&r, k, 9, 9, 2);
        prepare(&r, 3, 9, 2, 1);
        sheaf__scheduler *e = opened(&r, 4, cases[i].chunk);
        for (int k = 0; k < 4; k++)
            sheaf__scheduler_add(e, &r.s[k]);
        finish(&r, e, cases[i].want);
        if (cases[i].fails > 0)
            CHECK_FAILS(r.s[1].failed, SHEAF_E_IO, "a copy");
    }
}

/* The keys of 0 have the angles of more than 8 rows: 1 would go on behind six of them, of which 2
 * would have four. */
TEST(test_scheduler__rows_with_the_angles_of_another_length_are_read_again)
{
    run r = { .copies = true,
              .config = { .family = SHEAF_PHI3,
                          .rope = { .type = SHEAF_ROPE_LONGROPE, .original_length = 8 } } };
    prepare(&r, 0, 12, 12, 1);
    prepare(&r, 1, 12, 6, 1);
    prepare(&r, 2, 5, 5, 1);
    sheaf__scheduler *e = opened(&r, 2, 5);
    sheaf__scheduler_add(e, &r.s[0]);
    while (!sheaf__scheduler_idle(e))
        sheaf__scheduler_step(e);
    sheaf__scheduler_add(e, &r.s[1]);
    sheaf__scheduler_add(e, &r.s[2]);
    finish(&r, e, "r0 12, r1 12, r2 5");
}

/* Where nothing is read again, the first eight keys of 0 have the angles of eight rows, the others
 * those of more; 1 goes on behind all. */
TEST(test_scheduler__rows_with_two_kinds_of_angles_are_read_again)
{
    run r = { .config = { .rope = { .type = SHEAF_ROPE_LONGROPE, .original_length = 8 } } };
    prepare(&r, 0, 6, 6, 6);
    prepare(&r, 1, 12, 6, 1);
    for (int64_t j = 6; j < 12; j++)
        r.ids[1][j] = 7; /* the answers */
    sheaf__scheduler *e = opened(&r, 1, 0);
    sheaf__scheduler_add(e, &r.s[0]);
    sheaf__scheduler_add(e, &r.s[1]);
    finish(&r, e, "r0 6, d0, d0, d0, d0, d0, r1 12");
}

TEST(test_scheduler__a_failed_pass_ends_those_that_took_part)
{
    run r = { .fails = 2 };
    prepare(&r, 0, 2, 0, 3);
    prepare(&r, 1, 4, 0, 2);
    sheaf__scheduler *e = opened(&r, 2, 2);
    sheaf__scheduler_add(e, &r.s[0]);
    sheaf__scheduler_add(e, &r.s[1]);
    finish(&r, e, "r0 2, d0, r1 2, r1 2, d1");
    CHECK_FAILS(r.s[0].failed, SHEAF_E_IO, "a pass");
    assert_null(r.s[1].failed);
}

TEST(test_scheduler__one_that_is_over_leaves_without_a_pass)
{
    run r = { 0 };
    prepare(&r, 0, 2, 0, 9);
    prepare(&r, 1, 2, 0, 1);
    prepare(&r, 2, 2, 0, 1);
    sheaf__scheduler *e = opened(&r, 1, 0);
    for (int i = 0; i < 3; i++)
        sheaf__scheduler_add(e, &r.s[i]);
    sheaf__scheduler_step(e);
    r.s[0].over = r.s[1].over = true; /* the first runs, the second waits */
    finish(&r, e, "r0 2, r2 2");
    assert_int_equal(r.out[1].n, 0);
}

TEST(test_scheduler__one_that_is_not_ready_lets_others_pass)
{
    run r = { 0 };
    for (int i = 0; i < 5; i++)
        prepare(&r, i, 2 + i, 0, 2);
    sheaf__scheduler *e = opened(&r, 1, 0);
    r.s[0].of = r.s[1].of = r.s[4].of = &r;
    for (int i = 0; i < 5; i++)
        sheaf__scheduler_add(e, &r.s[i]);
    sheaf__scheduler_step(e);
    assert_true(r.s[0].waits && r.s[1].waits && !r.s[2].waits);
    r.s[0].of = NULL; /* it goes before the one that came later */
    r.s[1].over = r.s[4].over = true;
    sheaf__scheduler_leave(e);
    assert_true(r.s[0].waits && !r.s[1].waits && !r.s[4].waits);
    prepare(&r, 5, 9, 0, 1); /* behind the last that has left */
    sheaf__scheduler_add(e, &r.s[5]);
    finish(&r, e, "r2 4, d2, r0 2, d0, r3 5, d3, r5 9");
}
