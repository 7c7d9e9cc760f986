/* link_test.c - a simulated network takes the time it should, and changes nothing. */
#include "tests/check.h"

#include "tests/link.h"
#include "comm/transport.h"
#include "base/status.h"

enum { N = 80 };

static void plain_add(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

typedef struct run {
    bool linked;
    double seconds[2];
    float sum[2][N];
} run;

static sheaf_status *body(void *context, sheaf_comm *comm)
{
    run *r = context;
    const int me = sheaf_comm_rank(comm);
    static const sheaf__link_options how = { 3, 64 };
    sheaf__link *link = NULL;
    sheaf_status *st = NULL;
    float value[8][N], *roots[8];
    sheaf_tree tree;
    sheaf_tree_init(&tree, 8, 2, NULL);
    for (int i = 0; i < 8; i++) {
        roots[i] = value[i];
        for (int k = 0; k < N; k++)
            value[i][k] = 1.0f / (float)(1 + k + 7 * (me + i));
    }
    if (r->linked)
        st = sheaf__link_put(&link, comm, &how);
    const sheaf_comm_adder adder = { .add = plain_add };
    TRY(st, sheaf_comm_sum(comm, &tree, r->sum[me], roots, 1, N, &adder));
    char bytes[128] = { 0 };
    TRY(st, sheaf_comm_broadcast(comm, bytes, sizeof bytes, 1));
    TRY(st, sheaf_comm_barrier(comm));
    r->seconds[me] = sheaf__link_take(link);
    return st == NULL ? sheaf_comm_barrier(comm) : st; /* as it was before */
}

/* Shares of 80 numbers are 32 and 48: of both halves of the sum the larger way has 192 bytes, which
 * takes 3 seconds; the broadcast has 128, which takes 2; and there are four latencies. */
static void test_link__takes_latency_and_bandwidth(void **state)
{
    run with = { .linked = true }, without = { .linked = false };
    CHECK_OK(sheaf__run_threads(2, false, body, &without));
    CHECK_OK(sheaf__run_threads(2, false, body, &with));
    for (int r = 0; r < 2; r++)
        CHECK_NEAR("seconds", with.seconds[r], 4 * 3 + 3 + 3 + 2, 0);
    assert_memory_equal(with.sum, without.sum, sizeof with.sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link__takes_latency_and_bandwidth),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
