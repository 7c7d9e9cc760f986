/* lead_test.c - orders reach every rank whole, and a rank that cannot obey one stops neither the
 * others nor the orders after it. */
#include "infer/lead.h"

#include "base/base.h"
#include "tests/check.h"

static const struct {
    size_t size; /* bytes with the order */
    int fails;   /* the rank that cannot obey it; -1: none */
} orders[] = {
    { 0, -1 }, { 1, -1 }, { 512, -1 }, { 513, 1 }, { 0, 2 }, { 100000, -1 }, { 7, 1 }, { 7, 2 },
};

static void fill(char *bytes, size_t size, size_t number)
{
    for (size_t j = 0; j < size; j++)
        bytes[j] = (char)(j * 7 + number);
}

static sheaf_status *cannot(void)
{
    return sheaf_fail(SHEAF_E_MEMORY, "a pass");
}

/* The failure of order i, or of the one before, is the same for all. */
static void check_settled(sheaf_status *st, int fails)
{
    assert_true((st != NULL) == (fails >= 0));
    if (st != NULL)
        CHECK_FAILS(st, SHEAF_E_MEMORY, "a pass");
}

static sheaf_status *lead(const sheaf__context *c, const atomic_int *stop)
{
    static char bytes[100000];
    bool over;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        sheaf__order o = { .kind = SHEAF__ORDER_PASS, .size = orders[i].size };
        o.step.n = (int64_t)i;
        fill(bytes, o.size, i);
        sheaf_status *st = sheaf__lead_send(c, &o, bytes);
        TRY(st, sheaf_comm_barrier(c->comm)); /* the exchanges of a pass */
        check_settled(sheaf__lead_settle(c, st), orders[i].fails);
    }
    CHECK_OK(sheaf__lead_wait(&over, c, stop));
    assert_true(over); /* of the last rank */
    return sheaf__lead_order(c, &(sheaf__order){ .kind = SHEAF__ORDER_END });
}

static sheaf_status *follow(const sheaf__context *c, const atomic_int *stop)
{
    static _Thread_local char want[100000];
    sheaf__order o = { .kind = SHEAF__ORDER_PASS };
    bool over;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        char *bytes;
        sheaf_status *st = sheaf__lead_receive(&o, &bytes, c);
        fill(want, orders[i].size, i);
        assert_true(st == NULL && o.step.n == (int64_t)i && o.size == orders[i].size);
        assert_memory_equal(bytes != NULL ? bytes : o.bytes, want, o.size);
        free(bytes);
        st = orders[i].fails == c->rank ? cannot() : sheaf_comm_barrier(c->comm);
        check_settled(sheaf__lead_settle(c, st), orders[i].fails);
    }
    while (o.kind != SHEAF__ORDER_END) {
        char *bytes;
        CHECK_OK(sheaf__lead_receive(&o, &bytes, c));
        if (o.kind == SHEAF__ORDER_WAIT)
            CHECK_OK(sheaf__lead_stopped(&over, c, stop));
    }
    return NULL;
}

static sheaf_status *on_rank(void *self, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    const sheaf__context c = { .comm = comm, .rank = rank, .ranks = ranks };
    const atomic_int stop = rank == ranks - 1;
    (void)self;
    return rank == 0 ? lead(&c, &stop) : follow(&c, &stop);
}

TEST(test_lead__orders_reach_all_and_failures_are_settled)
{
    for (int ranks = 3; ranks <= 5; ranks++)
        CHECK_OK(sheaf_comm_run_threads(ranks, on_rank, NULL));
}

/* A rank that has left takes the group with it: nothing waits for ever. */
static sheaf_status *leave(void *self, sheaf_comm *comm)
{
    const sheaf__context c = { .comm = comm, .rank = sheaf_comm_rank(comm), .ranks = 3 };
    sheaf__order o;
    char *bytes = NULL;
    (void)self;
    if (c.rank == 2)
        return NULL;
    sheaf_status *st = c.rank == 0
                           ? sheaf__lead_order(&c, &(sheaf__order){ .kind = SHEAF__ORDER_END })
                           : sheaf__lead_settle(&c, sheaf__lead_receive(&o, &bytes, &c));
    free(bytes);
    CHECK_FAILS(st, SHEAF_E_PEER, "");
    return NULL;
}

TEST(test_lead__a_rank_that_is_lost_is_no_wait)
{
    CHECK_OK(sheaf_comm_run_threads(3, leave, NULL));
}
