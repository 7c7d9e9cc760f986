/* tape_test.c - what is kept for backward and what is made again, on ops that write down how they
 * find their values. */

#include "tape/tape.h"
#include "tests/check.h"

enum { N = 8 };

/* How an op of these tests found its values. */
typedef struct seen {
    int forward, backward;
    float made, found; /* the first element after forward, of the input in backward */
    float gradient;    /* of the output, in backward */
    bool over;         /* the gradient lies where the data does */
    sheaf__value *watched;
    bool watched_live; /* in the last forward */
} seen;

typedef struct params {
    seen *seen;
    sheaf__value *x, *y; /* y = by x + plus; in place where they are one */
    float by, plus;
} params;

static seen *fails; /* its next backward pass does, */
static bool twice;  /* and an operation of it too */
static float worth; /* of gradients, times `by` */

static sheaf_status *forward(sheaf__tape *tape, sheaf__op *op)
{
    const params *p = op->params;
    float *y = p->y->data;
    for (int i = 0; i < N; i++)
        y[i] = (p->x == NULL ? (float)i + 1 : p->by * ((float *)p->x->data)[i]) + p->plus;
    p->seen->forward++;
    p->seen->made = y[0];
    p->seen->watched_live = p->seen->watched != NULL && p->seen->watched->live_data;
    return NULL;
}

static sheaf_status *backward(sheaf__tape *tape, sheaf__op *op)
{
    const params *p = op->params;
    float *dy = p->y->grad;
    p->seen->backward++;
    p->seen->gradient = dy == NULL ? -1 : dy[0];
    if (fails == p->seen && twice)
        sheaf__device_fail(sheaf__tape_context(tape)->device, sheaf_fail(SHEAF_E_IO, "a device"));
    if (fails == p->seen)
        return sheaf_fail(SHEAF_E_NUMBER, "a test");
    if (p->x == NULL || p->x == p->y || p->x->grad == NULL)
        return NULL;
    float *dx = p->x->grad;
    const bool fresh = p->x->grad_fresh;
    p->seen->over = p->x->grad == p->x->data;
    if (!op->reads_late)
        p->seen->found = p->x->data == NULL ? -1 : ((float *)p->x->data)[0];
    for (int i = 0; i < N; i++) {
        const float x = p->x->data == NULL ? 0 : ((float *)p->x->data)[i];
        dx[i] = (fresh ? 0 : dx[i]) + p->by * worth;
        if (p->y->remade)
            dy[i] = p->by * x + p->plus;
    }
    sheaf_status *st = op->reads_late ? sheaf__tape_recompute(tape, p->x) : NULL;
    if (op->reads_late && st == NULL)
        p->seen->found = p->x->data == NULL ? -1 : ((float *)p->x->data)[0];
    return st;
}

/* y = by x + plus; use: of x. x NULL: a source. */
static sheaf__op *record(sheaf__tape *tape, seen *seen, sheaf__value *x, sheaf__value **y, float by,
                         float plus, unsigned use)
{
    sheaf__op *op = sheaf__tape_op(tape, "test", forward, backward, sizeof(params));
    *y = sheaf__tape_value(tape, "value", 1, N, SHEAF_F32);
    (*y)->needs_grad = true;
    *(params *)op->params = (params){ seen, x, *y, by, plus };
    if (x != NULL)
        sheaf__op_arg(op, x, use);
    sheaf__op_arg(op, *y, SHEAF__MAKE | SHEAF__GRAD_READ);
    return op;
}

static void change(sheaf__tape *tape, seen *seen, sheaf__value *x, float plus)
{
    sheaf__op *op = sheaf__tape_op(tape, "change", forward, backward, sizeof(params));
    *(params *)op->params = (params){ seen, x, x, 1, plus };
    sheaf__op_arg(op, x, SHEAF__CHANGE | SHEAF__GRAD_CHANGE);
}

static const unsigned reads = SHEAF__READ | SHEAF__GRAD_WRITE, keeps = reads | SHEAF__KEEP;

typedef struct machine {
    sheaf__device *device;
    sheaf__context context;
    sheaf__tape *tape;
} machine;

static void open_machine(machine *m)
{
    CHECK_OK(sheaf__device_open(&m->device, &sheaf__cpu, 1, NULL, 0));
    m->context = (sheaf__context){
        .device = m->device, .ranks = 1, .slices = 1, .own = { 0, 1 }, .dtype = SHEAF_F32
    };
    CHECK_OK(sheaf__tape_new(&m->tape, &m->context));
}

static void close_machine(machine *m)
{
    sheaf__tape_free(m->tape);
    sheaf__device_close(m->device);
}

static void run_and_close(machine *m, sheaf__kept kept)
{
    CHECK_OK(sheaf__tape_compile(m->tape, true, kept));
    for (int i = 0; i < 2; i++) /* a run leaves nothing that the next one trips over */
        CHECK_OK(sheaf__tape_run(m->tape));
    assert_int_equal(m->device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
    close_machine(m);
}

/* x -> y = 2 x (cheap) -> z = 3 y, which keeps y -> w. Between z and the end, is y there? */
TEST(test_cheap__what_it_made_is_made_again)
{
    for (int cheap = 0; cheap < 2; cheap++)
        for (int rerun = 0; rerun < 2; rerun++) {
            machine m;
            seen s[4] = { 0 };
            sheaf__value *x, *y, *z, *w;
            open_machine(&m);
            record(m.tape, &s[0], NULL, &x, 0, 0, 0);
            if (rerun)
                sheaf__tape_segment_begin(m.tape, 0);
            record(m.tape, &s[1], x, &y, 2, 0, keeps)->cheap = cheap;
            record(m.tape, &s[2], y, &z, 3, 0, keeps);
            if (rerun)
                sheaf__tape_segment_end(m.tape);
            s[3].watched = y;
            record(m.tape, &s[3], z, &w, 1, 0, reads);
            run_and_close(&m, rerun);
            assert_int_equal(s[1].forward, 2 * (1 + (cheap || rerun)));
            assert_int_equal(s[2].backward, 2);
            assert_int_equal(s[3].watched_live, !cheap && !rerun);
            CHECK_NEAR("y in backward", s[2].found, 2, 0);
        }
}

/* x -> y = 2 x, then the MLP: y -> z = 3 y -> w = 5 z, which is read on. */
TEST(test_mlp__alone_is_run_again)
{
    for (int kept = SHEAF__KEPT_ALL; kept <= SHEAF__KEPT_ATTENTION; kept++) {
        machine m;
        seen s[5] = { 0 };
        sheaf__value *x, *y, *z, *w, *v;
        open_machine(&m);
        record(m.tape, &s[0], NULL, &x, 0, 0, 0);
        sheaf__tape_segment_begin(m.tape, 0);
        record(m.tape, &s[1], x, &y, 2, 0, keeps);
        sheaf__tape_mlp(m.tape);
        record(m.tape, &s[2], y, &z, 3, 0, keeps);
        record(m.tape, &s[3], z, &w, 5, 0, keeps);
        sheaf__tape_segment_end(m.tape);
        s[3].watched = y;
        s[4].watched = z;
        record(m.tape, &s[4], w, &v, 1, 0, keeps);
        run_and_close(&m, (sheaf__kept)kept);
        assert_int_equal(s[1].forward, kept == SHEAF__KEPT_NONE ? 4 : 2);
        assert_int_equal(s[2].forward, kept == SHEAF__KEPT_ALL ? 2 : 4);
        assert_int_equal(s[3].forward, 2); /* nothing reads w again */
        assert_int_equal(s[3].watched_live, kept != SHEAF__KEPT_NONE);
        assert_int_equal(s[4].watched_live, kept == SHEAF__KEPT_ALL);
        CHECK_NEAR("y in backward", s[2].found, 2, 0);
        CHECK_NEAR("z in backward", s[3].found, 6, 0);
    }
}

/* Of two in a row the first comes first. */
TEST(test_cheap__what_it_reads_is_made_before_it)
{
    machine m;
    seen s[5] = { 0 };
    sheaf__value *x, *a, *b, *z, *w;
    open_machine(&m);
    record(m.tape, &s[0], NULL, &x, 0, 0, 0);
    record(m.tape, &s[1], x, &a, 2, 0, keeps)->cheap = true;
    record(m.tape, &s[2], a, &b, 5, 0, keeps)->cheap = true;
    record(m.tape, &s[3], b, &z, 3, 0, keeps);
    s[4].watched = a;
    record(m.tape, &s[4], z, &w, 1, 0, reads);
    run_and_close(&m, false);
    assert_int_equal(s[1].forward, 4);
    assert_int_equal(s[2].forward, 4);
    assert_false(s[4].watched_live);
    CHECK_NEAR("b in backward", s[3].found, 10, 0);
    CHECK_NEAR("a in backward", s[2].found, 2, 0);
}

/* Its input is not kept, or what it made is changed in place: made once. */
TEST(test_cheap__what_would_differ_is_kept)
{
    for (int changed = 0; changed < 2; changed++) {
        machine m;
        seen s[5] = { 0 };
        sheaf__value *x, *y, *z, *w;
        open_machine(&m);
        record(m.tape, &s[0], NULL, &x, 0, 0, 0);
        record(m.tape, &s[1], x, &y, 2, 0, changed ? keeps : reads)->cheap = true;
        if (changed)
            change(m.tape, &s[4], y, 7);
        record(m.tape, &s[2], y, &z, 3, 0, keeps);
        s[3].watched = y;
        record(m.tape, &s[3], z, &w, 1, 0, reads);
        run_and_close(&m, false);
        assert_int_equal(s[1].forward, 2);
        assert_true(s[3].watched_live);
        CHECK_NEAR("y in backward", s[2].found, changed ? 9 : 2, 0);
    }
}

/* The last that reads the data may write the gradient there; one before it, or beside a gradient
 * that is there already, may not. */
TEST(test_over__the_gradient_takes_the_place_of_data_that_dies)
{
    for (int other = 0; other < 3; other++) { /* none; an earlier op; a later one */
        machine m;
        seen s[4] = { 0 };
        sheaf__value *x, *y, *z;
        open_machine(&m);
        record(m.tape, &s[0], NULL, &x, 0, 0, 0);
        if (other == 1)
            record(m.tape, &s[2], x, &z, 1, 0, keeps);
        record(m.tape, &s[1], x, &y, 2, 0, keeps | SHEAF__OVER);
        if (other == 2)
            record(m.tape, &s[2], x, &z, 1, 0, keeps);
        run_and_close(&m, false);
        assert_int_equal(s[1].over, other == 0);
        CHECK_NEAR("x in backward", s[1].found, 1, 0);
    }
}

/* A failure while data and gradient are one block: it goes back once, and the next run is whole. */
TEST(test_over__a_failure_leaves_nothing)
{
    machine m;
    seen s[2] = { 0 };
    sheaf__value *x, *y;
    sheaf__nonfinite bad;
    open_machine(&m);
    record(m.tape, &s[0], NULL, &x, 0, 0, 0);
    record(m.tape, &s[1], x, &y, 2, 0, keeps | SHEAF__OVER);
    CHECK_OK(sheaf__tape_compile(m.tape, true, false));
    fails = &s[0];
    sheaf_status *st = sheaf__tape_run(m.tape);
    fails = NULL;
    assert_non_null(st);
    sheaf_status_free(st);
    assert_int_equal(m.device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
    CHECK_OK(sheaf__tape_run_checked(&bad, m.tape));
    assert_null(bad.op);
    run_and_close(&m, false);
    assert_true(s[1].over);
}

/* An operation fails, and then what is no operation: the next run meets neither. */
TEST(test_run__two_failures_are_over_with_it)
{
    machine m;
    seen s = { 0 };
    sheaf__value *x;
    open_machine(&m);
    record(m.tape, &s, NULL, &x, 0, 0, 0);
    CHECK_OK(sheaf__tape_compile(m.tape, true, false));
    fails = &s;
    twice = true;
    CHECK_FAILS(sheaf__tape_run(m.tape), SHEAF_E_NUMBER, "a test");
    fails = NULL;
    twice = false;
    run_and_close(&m, false);
}

/* The ops between x -> y = 2 x + 5, which is cheap and remakes, and z = 3 y, which reads y late, or
 * beside them. */
typedef enum between {
    NOTHING,
    SCALE,       /* the first makes it too, and keeps it, as a norm does */
    RERUN,       /* both are in a segment that is run again */
    READER,      /* another op reads y */
    ANOTHER_OP,  /* one that reads x */
    PINNED,      /* y */
    SEGMENTS,    /* the second begins another */
    SHARED_INPUT /* z reads x as well */
} between;

static const struct {
    const char *name;
    between between;
    bool within; /* the maker's backward pass runs within the reader's */
} remakes[] = {
    { "one after the other", NOTHING, true },
    { "the first keeps a scale", SCALE, true },
    { "in a segment", RERUN, true },
    { "y has another reader", READER, false },
    { "an op between adds to the same gradient", ANOTHER_OP, false },
    { "y is pinned", PINNED, false },
    { "two segments", SEGMENTS, false },
    { "both read x", SHARED_INPUT, false },
};

typedef struct late {
    machine m;
    seen s[6];
    sheaf__value *x, *y, *z, *w, *other;
} late;

static void record_late(late *l, between between)
{
    open_machine(&l->m);
    sheaf__tape *tape = l->m.tape;
    record(tape, &l->s[0], NULL, &l->x, 0, 0, 0);
    if (between == RERUN || between == SEGMENTS)
        sheaf__tape_segment_begin(tape, 0);
    sheaf__op *maker = record(tape, &l->s[1], l->x, &l->y, 2, 5, keeps | SHEAF__OVER);
    maker->cheap = maker->remakes = true;
    if (between == SCALE)
        sheaf__op_arg(maker, sheaf__tape_value(tape, "scale", 1, 1, SHEAF_F32),
                      SHEAF__MAKE | SHEAF__KEEP);
    if (between == SEGMENTS) {
        sheaf__tape_segment_end(tape);
        sheaf__tape_segment_begin(tape, 1);
    }
    if (between == ANOTHER_OP) {
        maker = record(tape, &l->s[5], l->x, &l->other, 7, 0, keeps);
        maker->cheap = maker->remakes = true;
    }
    sheaf__op *reader = record(tape, &l->s[2], l->y, &l->z, 3, 0, keeps);
    reader->reads_late = true;
    if (between == SHARED_INPUT)
        sheaf__op_arg(reader, l->x, SHEAF__READ);
    if (between == RERUN || between == SEGMENTS)
        sheaf__tape_segment_end(tape);
    if (between == READER)
        record(tape, &l->s[5], l->y, &l->other, 7, 0, SHEAF__READ);
    if (between == PINNED)
        l->y->pinned = true;
    l->s[3].watched = l->y;
    record(tape, &l->s[3], l->z, &l->w, 1, 0, reads);
}

/* y is there in time wherever it comes from, and gradients are what they are. */
TEST(test_remakes__data_takes_the_place_of_its_gradient)
{
    worth = 1;
    for (size_t i = 0; i < ARRAY_LEN(remakes); i++) {
        const bool rerun = remakes[i].between == RERUN || remakes[i].between == SEGMENTS;
        late l = { 0 };
        record_late(&l, remakes[i].between);
        if (remakes[i].between == PINNED) { /* y is there until the end */
            CHECK_OK(sheaf__tape_compile(l.m.tape, true, rerun));
            for (int n = 0; n < 2; n++)
                CHECK_OK(sheaf__tape_run(l.m.tape));
            assert_non_null(l.y->data);
            close_machine(&l.m);
        } else {
            run_and_close(&l.m, rerun);
        }
        CHECK_NEAR(remakes[i].name, l.s[1].forward, remakes[i].within ? 2 : 4, 0);
        CHECK_NEAR(remakes[i].name, l.s[1].backward, 2, 0);
        CHECK_NEAR(remakes[i].name, l.s[2].found, 7, 0);
        CHECK_NEAR(remakes[i].name, l.s[1].found, 1, 0);
        CHECK_NEAR(remakes[i].name, l.s[1].gradient, 3, 0);
        CHECK_NEAR(remakes[i].name, l.s[0].gradient, remakes[i].between == ANOTHER_OP ? 9 : 2, 0);
    }
}

/* It takes no memory for y beside its gradient. */
TEST(test_remakes__needs_no_memory_of_its_own)
{
    size_t most[2];
    worth = 1;
    for (int apart = 0; apart < 2; apart++) {
        late l = { 0 };
        record_late(&l, apart ? PINNED : NOTHING);
        CHECK_OK(sheaf__tape_compile(l.m.tape, true, false));
        CHECK_OK(sheaf__tape_run(l.m.tape));
        most[apart] = l.m.device->peak_of[SHEAF_MEM_ACTIVATIONS];
        assert_true(apart || (l.y->data == NULL && !l.y->remade));
        close_machine(&l.m);
    }
    assert_true(most[0] < most[1]);
}

/* A failure within leaves nothing, and the next run is whole. */
TEST(test_remakes__a_failure_within_leaves_nothing)
{
    late l = { 0 };
    worth = 1;
    record_late(&l, NOTHING);
    CHECK_OK(sheaf__tape_compile(l.m.tape, true, false));
    fails = &l.s[1];
    sheaf_status *st = sheaf__tape_run(l.m.tape);
    fails = NULL;
    assert_non_null(st);
    sheaf_status_free(st);
    assert_int_equal(l.m.device->in_use[SHEAF_MEM_ACTIVATIONS], 0);
    assert_false(l.y->remade);
    run_and_close(&l.m, false);
    CHECK_NEAR("y", l.s[2].found, 7, 0);
}

/* The gradient that the reader gives, before data is written over it; then that of the maker. */
TEST(test_remakes__bad_gradients_are_found_within)
{
    for (int step = 0; step < 2; step++) {
        late l = { 0 };
        sheaf__nonfinite bad;
        record_late(&l, NOTHING);
        l.y->name = "y";
        l.x->name = "x";
        worth = 2e38f;
        if (step == 1) /* the gradient of y is worth, that of x twice as much */
            ((params *)l.z->maker->params)->by = 1;
        CHECK_OK(sheaf__tape_compile(l.m.tape, true, false));
        CHECK_OK(sheaf__tape_run_checked(&bad, l.m.tape));
        worth = 1;
        assert_non_null(bad.op);
        assert_string_equal(bad.value, step == 0 ? "y" : "x");
        assert_true(bad.backward);
        close_machine(&l.m);
    }
}

static int begin(void **state)
{
    worth = 1;
    return 0;
}

FIXTURE(begin, NULL);
