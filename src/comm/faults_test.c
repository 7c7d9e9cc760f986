/* faults_test.c - a rank that fails, leaves, or makes another call than the others is an
 * error that names it on every rank, at every call and for every rank; never a hang
 * (the alarm in main ends the test then) and never a wrong answer. */
#include "tests/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/comm_run.h"
#include "base/status.h"

enum { CALLS = 7 }; /* of one_call, round robin */

static void plain_add(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

static sheaf_status *one_call(sheaf_comm *comm, int which)
{
    float x[64] = { 0 }, *roots[8];
    float value[8][64];
    size_t size[8];
    int32_t owner[4] = { 0 };
    int flag = 0;
    sheaf_tree tree;
    sheaf_tree_init(&tree, 8, sheaf_comm_ranks(comm), NULL);
    for (int i = 0; i < 8; i++) {
        roots[i] = value[i];
        memset(value[i], 0, sizeof value[i]);
        size[i] = 8;
    }
    switch (which % CALLS) {
    case 0:
        return sheaf_comm_sum(comm, &tree, x, roots, 1, 64, NULL,
                              &(sheaf_comm_adder){ .add = plain_add });
    case 1: return sheaf_comm_barrier(comm);
    case 2: return sheaf_comm_max(comm, x, 64);
    case 3: return sheaf_comm_select(comm, x, 16, 4, owner);
    case 4: return sheaf_comm_any(comm, &flag);
    case 5: return sheaf_comm_gather(comm, x, size);
    default: return sheaf_comm_broadcast(comm, x, 64, 0);
    }
}

typedef enum how { FAIL, LEAVE_SILENT, LEAVE_FAILED, THREAD_EXIT } how;

typedef struct fault {
    int rank, call; /* the rank that fails, and the call before which it does */
    how how;
    _Atomic int told; /* other ranks that got the failure from the call */
    _Atomic int wrong;
} fault;

static void judge(fault *f, sheaf_comm *comm, const sheaf_status *st)
{
    char want[SHEAF__RANK_NAME + 32], name[SHEAF__RANK_NAME];
    sheaf__comm_name(name, comm, f->rank);
    if (f->how == FAIL || f->how == LEAVE_FAILED)
        snprintf(want, sizeof want, "%s: disk %d", name, f->rank);
    else
        snprintf(want, sizeof want, "%s", name);
    const bool good = st != NULL && sheaf_status_code(st) == SHEAF_E_PEER &&
                      strstr(sheaf_status_where(st), want) != NULL;
    atomic_fetch_add(good ? &f->told : &f->wrong, 1);
}

/* All ranks make 3 rounds of calls; one fails before one of them. Then all agree, and
 * where no rank left they do it all again without a fault. */
static sheaf_status *fault_body(void *context, sheaf_comm *comm)
{
    fault *f = context;
    const bool me = sheaf_comm_rank(comm) == f->rank;
    sheaf_status *st = NULL;
    for (int call = 0; call < 3 * CALLS && st == NULL; call++) {
        if (me && call == f->call) {
            if (f->how == THREAD_EXIT)
                pthread_exit(NULL);
            if (f->how == LEAVE_SILENT)
                return NULL;
            st = sheaf_fail(SHEAF_E_IO, "disk %d", f->rank);
            if (f->how == LEAVE_FAILED)
                return st;
            break;
        }
        st = one_call(comm, call);
        if (st != NULL || call > f->call)
            judge(f, comm, st);
    }
    if (!me) { /* asking again changes nothing */
        sheaf_status *again = one_call(comm, f->call + sheaf_comm_rank(comm));
        judge(f, comm, again);
        sheaf_status_free(again);
    }
    st = sheaf_comm_agree(comm, st);
    if (f->how == FAIL && st != NULL && sheaf_status_code(st) == SHEAF_E_IO) {
        sheaf_status_free(st);
        st = NULL;
        for (int call = 0; call < CALLS && st == NULL; call++)
            st = one_call(comm, call);
        return st;
    }
    return st;
}

static void check_fault(int ranks, int rank, int call, how how, bool messages)
{
    fault f = { .rank = rank, .call = call, .how = how };
    const bool processes = sheaf__all_count(met.all) > 1; /* they do not see which others got it */
    const int tell = processes ? sheaf__all_number(met.all) != rank : ranks - 1;
    if (!can_run(ranks, messages))
        return;
    sheaf_status *st = run_ranks(ranks, messages, fault_body, &f);
    const sheaf_code code = st == NULL ? 0 : sheaf_status_code(st);
    const sheaf_code want = how == FAIL ? 0 : how == LEAVE_FAILED ? SHEAF_E_IO : SHEAF_E_PEER;
    if (code != want || f.wrong != 0 || f.told != 2 * tell) {
        if (st != NULL)
            sheaf_status_print(st, stderr);
        fail_msg("T=%d rank %d call %d how %d: code %d, told %d, wrong %d", ranks, rank, call,
                 (int)how, (int)code, f.told, f.wrong);
    }
    sheaf_status_free(st);
}

static void test_faults__each_rank_at_each_call(void **state)
{
    for (int ranks = 2; ranks <= 8; ranks += ranks < 5 ? 1 : 3)
        for (int rank = 0; rank < ranks; rank++)
            for (int call = 0; call < 2 * CALLS; call++)
                for (int messages = 0; messages < 2; messages++) {
                    check_fault(ranks, rank, call, FAIL, messages);
                    check_fault(ranks, rank, call, LEAVE_SILENT, messages);
                    check_fault(ranks, rank, call, LEAVE_FAILED, messages);
                    if (rank != 0 && sheaf__all_count(met.all) == 1) /* rank 0 runs this test */
                        check_fault(ranks, rank, call, THREAD_EXIT, messages);
                }
}

/* ---- ranks that do not make the same call ---- */

typedef struct odd_call {
    int a, b; /* the call of all, and the other call of one */
    int rank;
    int variant;
} odd_call;

static sheaf_status *odd_body(void *context, sheaf_comm *comm)
{
    const odd_call *o = context;
    const bool me = sheaf_comm_rank(comm) == o->rank;
    sheaf_status *st = sheaf_comm_barrier(comm);
    TRY(st, one_call(comm, me ? o->b : o->a));
    return sheaf_comm_agree(comm, st);
}

static void test_faults__two_operations_that_differ(void **state)
{
    static const char *const names[CALLS] = { "sum", "barrier", "max",      "select",
                                              "any", "gather",  "broadcast" };
    for (int a = 0; a < CALLS; a++)
        for (int b = 0; b < CALLS; b++)
            for (int rank = 0; rank < 3; rank++) {
                odd_call o = { .a = a, .b = b, .rank = rank };
                char want[64];
                snprintf(want, sizeof want, "and rank %d", rank == 0 ? 1 : rank);
                const bool m = sheaf__all_count(met.all) > 1;
                if (!can_run(3, m))
                    continue;
                if (a == b) {
                    CHECK_OK(run_ranks(3, m, odd_body, &o));
                    continue;
                }
                CHECK_FAILS(run_ranks(3, m, odd_body, &o), SHEAF_E_PEER, want);
                CHECK_FAILS(run_ranks(3, m, odd_body, &o), SHEAF_E_PEER, names[a]);
                CHECK_FAILS(run_ranks(3, m, odd_body, &o), SHEAF_E_PEER, names[b]);
            }
}

/* The same operation with other arguments. */
static sheaf_status *variant_body(void *context, sheaf_comm *comm)
{
    const odd_call *o = context;
    const bool me = sheaf_comm_rank(comm) == o->rank;
    float x[64] = { 0 }, value[8][64], *roots[8];
    size_t size[8] = { 8, 8, 8, 8, 8, 8, 8, 8 };
    int32_t owner[4] = { 0, 1, 2, 0 };
    bool present[8] = { true, true, true, true, true, true, true, true };
    const sheaf_comm_adder adder = { .add = plain_add };
    sheaf_tree tree;
    memset(value, 0, sizeof value);
    for (int i = 0; i < 8; i++)
        roots[i] = value[i];
    present[5] = !(me && o->variant == 2);
    sheaf_tree_init(&tree, 8, sheaf_comm_ranks(comm), present);
    sheaf_status *st = NULL;
    switch (o->variant) {
    case 0: st = sheaf_comm_max(comm, x, me ? 63 : 64); break;
    case 1: st = sheaf_comm_sum(comm, &tree, x, roots, me ? 8 : 4, me ? 4 : 8, NULL, &adder); break;
    case 2: st = sheaf_comm_sum(comm, &tree, x, roots, 4, 8, NULL, &adder); break;
    case 3:
        owner[3] = me;
        st = sheaf_comm_select(comm, x, 16, 4, owner);
        break;
    case 4: st = sheaf_comm_select(comm, x, me ? 8 : 16, me ? 8 : 4, (int32_t[8]){ 0 }); break;
    case 5:
        size[0] += me, size[1] -= me;
        st = sheaf_comm_gather(comm, x, size);
        break;
    case 6: st = sheaf_comm_broadcast(comm, x, 64, me); break;
    default:
        if (me) /* one call too few: agree meets a barrier */
            break;
        st = sheaf_comm_barrier(comm);
    }
    return sheaf_comm_agree(comm, st);
}

static void test_faults__arguments_that_differ(void **state)
{
    for (int variant = 0; variant <= 7; variant++)
        for (int rank = 0; rank < 3; rank++)
            for (int messages = 0; messages < 2; messages++) {
                odd_call o = { .rank = rank, .variant = variant };
                if (!can_run(3, messages))
                    continue;
                CHECK_FAILS(run_ranks(3, messages, variant_body, &o), SHEAF_E_PEER,
                            "do not make the same call");
            }
}

/* ---- ends that are no faults ---- */

/* Ranks leave one after the other right behind the last call: nobody may mistake that
 * for a failure. */
static sheaf_status *last_call_body(void *context, sheaf_comm *comm)
{
    const int *which = context;
    for (int i = 0; i < 3; i++) {
        sheaf_status *st = *which == CALLS ? sheaf_comm_agree(comm, NULL) : one_call(comm, *which);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static void test_faults__leaving_after_the_last_call_is_fine(void **state)
{
    for (int which = 0; which <= CALLS; which++)
        for (int repeat = 0; repeat < 100; repeat++) {
            const int processes = sheaf__all_count(met.all);
            CHECK_OK(run_ranks(processes > 1 ? processes : 2 + repeat % 7, processes > 1,
                               last_call_body, &which));
        }
}

static sheaf_status *result_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm);
    return rank == 0   ? sheaf_fail(SHEAF_E_PEER, "rank 2: b")
           : rank == 1 ? NULL
                       : sheaf_fail(SHEAF_E_DATA, "b%d", rank);
}

static void test_faults__the_cause_is_returned(void **state)
{
    CHECK_FAILS(sheaf_comm_run_threads(4, result_body, NULL), SHEAF_E_DATA, "b2");
    CHECK_FAILS(sheaf_comm_run_threads(2, result_body, NULL), SHEAF_E_PEER, "rank 2: b");
    CHECK_FAILS(sheaf_comm_run_threads(1, result_body, NULL), SHEAF_E_PEER, "rank 2: b");
}

static sheaf_status *tree_body(void *context, sheaf_comm *comm)
{
    sheaf_tree tree;
    float x, *roots[1] = { &x };
    sheaf_tree_init(&tree, 8, 3, NULL);
    return sheaf_comm_sum(comm, &tree, &x, roots, 1, 1, NULL,
                          &(sheaf_comm_adder){ .add = plain_add });
}

static sheaf_status *root_body(void *context, sheaf_comm *comm)
{
    char x = 0;
    return sheaf_comm_broadcast(comm, &x, 1, 2);
}

static void test_faults__arguments_that_cannot_be(void **state)
{
    CHECK_FAILS(sheaf_comm_run_threads(2, tree_body, NULL), SHEAF_E_ARG, "a tree for 2 ranks");
    CHECK_FAILS(sheaf_comm_run_threads(2, root_body, NULL), SHEAF_E_ARG, "below 2");
}

int main(void)
{
    alarm(120); /* nothing here may hang */
    const bool processes = meet_for_test();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__each_rank_at_each_call),
        cmocka_unit_test(test_faults__two_operations_that_differ),
        cmocka_unit_test(test_faults__arguments_that_differ),
        cmocka_unit_test(test_faults__leaving_after_the_last_call_is_fine),
    }, of_threads[] = { /* of numbers of ranks that they choose */
        cmocka_unit_test(test_faults__the_cause_is_returned),
        cmocka_unit_test(test_faults__arguments_that_cannot_be),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (processes ? 0 : cmocka_run_group_tests(of_threads, NULL, NULL));
}
