/* comm_test.c - each call does what comm.h says at every number of ranks, with ranks that
 * look into each other's buffers and with ranks that pass bytes. */
#include "tests/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/status.h"
#include "base/thread.h"
#include "comm/transport.h"
#include "tests/comm_run.h"
#include "tests/far_mover.h"

#define EXPECT(what, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return sheaf_fail(SHEAF_E_NUMBER, "%s: line %d, rank %d of %d", (what), __LINE__,      \
                              sheaf_comm_rank(comm), sheaf_comm_ranks(comm));                      \
    } while (0)

typedef sheaf_status *body_fn(void *context, sheaf_comm *comm);

static void check_at_every_T(body_fn *body)
{
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int messages = 0; messages < 2; messages++)
            CHECK_OK(run_ranks(ranks, messages, body, NULL));
}

static sheaf_status *broadcast_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    const char *const transport = sheaf__all_count(met.all) > 1 ? "mpi" : "threads";
    EXPECT("transport", strcmp(comm->transport->name, ranks == 1 ? "self" : transport) == 0);
    for (int root = 0; root < ranks; root++)
        for (int size = 0; size <= 40; size += 8) {
            char bytes[48];
            memset(bytes, 'a' + rank, sizeof bytes);
            OR_RETURN(sheaf_comm_broadcast(comm, bytes, (size_t)size, root));
            for (int i = 0; i < 48; i++)
                EXPECT("broadcast", bytes[i] == 'a' + (i < size ? root : rank));
        }
    return NULL;
}

static sheaf_status *gather_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    for (int round = 0; round < 6; round++) {
        size_t size[8], offset[9] = { 0 };
        unsigned char all[1024];
        memset(all, 0xee, sizeof all);
        for (int r = 0; r < ranks; r++) { /* some give nothing */
            size[r] = (size_t)((r * 37 + round * 11) % 5 == 0 ? 0 : 1 + (r * 29 + round * 17) % 60);
            offset[r + 1] = offset[r] + size[r];
        }
        for (size_t i = 0; i < size[rank]; i++)
            all[offset[rank] + i] = (unsigned char)(rank * 16 + round + (int)i);
        OR_RETURN(sheaf_comm_gather(comm, all, size));
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < size[r]; i++)
                EXPECT("gather", all[offset[r] + i] == (unsigned char)(r * 16 + round + (int)i));
        EXPECT("behind the end", all[offset[ranks]] == 0xee);
    }
    return NULL;
}

static sheaf_status *select_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    for (int round = 0; round < 12; round++) {
        const int64_t nrows = round * round;
        int32_t owner[144], rows[144][3];
        for (int64_t r = 0; r < nrows; r++) { /* runs of different lengths */
            owner[r] = (int32_t)((round % 3 == 0 ? r * 7 : round % 3 == 1 ? r / 5 : 3) % ranks);
            for (int i = 0; i < 3; i++)
                rows[r][i] = owner[r] == rank ? (int32_t)(r * 1000 + owner[r] * 10 + i) : -1;
        }
        OR_RETURN(sheaf_comm_select(comm, rows, sizeof rows[0], nrows, owner));
        for (int64_t r = 0; r < nrows; r++)
            for (int i = 0; i < 3; i++)
                EXPECT("select", rows[r][i] == r * 1000 + owner[r] * 10 + i);
    }
    const int32_t foreign[2] = { 0, (int32_t)ranks };
    int32_t rows[2] = { 0 };
    sheaf_status *st = sheaf_comm_select(comm, rows, 4, 2, foreign);
    EXPECT("owner out of range", st != NULL && sheaf_status_code(st) == SHEAF_E_ARG);
    sheaf_status_free(st);
    return NULL;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static sheaf_status *max_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    static const int64_t sizes[] = { 0, 1, 5, 100, 5000 };
    float *x = malloc(5001 * sizeof *x);
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        for (int64_t i = 0; i < sizes[k]; i++)
            x[i] = (float)((i * 31 + rank * 17) % 23) - 30.0f;
        x[sizes[k]] = 77;
        sheaf_status *st = sheaf_comm_max(comm, x, sizes[k]);
        bool good = st != NULL || x[sizes[k]] == 77;
        for (int64_t i = 0; st == NULL && i < sizes[k]; i++) {
            float want = -1000;
            for (int r = 0; r < ranks; r++)
                want = fmaxf(want, (float)((i * 31 + r * 17) % 23) - 30.0f);
            good = good && x[i] == want;
        }
        if (st != NULL || !good) {
            free(x);
            OR_RETURN(st);
            EXPECT("max", good);
        }
    }
    free(x);
    const int last = ranks - 1;
    /* NaN wherever it is, with a payload; -0 everywhere; a denormal; infinities */
    float odd[6] = { rank == 0 ? -__builtin_nanf("7") : 1,
                     rank == last ? __builtin_nanf("9") : 1,
                     -0.0f,
                     rank == last ? 1e-40f : -1e-40f,
                     rank == 0 ? -INFINITY : -INFINITY,
                     rank == last ? INFINITY : 3 };
    const float want[6] = { __builtin_nanf(""), __builtin_nanf(""), 0, 0, -INFINITY, INFINITY };
    OR_RETURN(sheaf_comm_max(comm, odd, 6));
    for (int i = 0; i < 6; i++)
        EXPECT("max of odd values", bits_of(odd[i]) == bits_of(want[i]));
    return NULL;
}

static sheaf_status *any_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    for (int who = -1; who < ranks; who++)
        for (int repeat = 0; repeat < 3; repeat++) {
            int flag = rank == who ? 8 : 0;
            OR_RETURN(sheaf_comm_any(comm, &flag));
            EXPECT("any", (flag != 0) == (who >= 0));
            OR_RETURN(sheaf_comm_barrier(comm));
        }
    return NULL;
}

static sheaf_status *agree_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    for (int set = 0; set < 1 << ranks; set++) {
        sheaf_status *mine = NULL;
        if (set >> rank & 1)
            mine = sheaf_found(sheaf_fail(SHEAF_E_IO, "file %d", rank), "trouble");
        sheaf_status *st = sheaf_comm_agree(comm, mine);
        if (set == 0) {
            EXPECT("nobody failed", st == NULL);
            continue;
        }
        int first = 0;
        while (!(set >> first & 1))
            first++;
        char want[SHEAF__RANK_NAME + 32], name[SHEAF__RANK_NAME];
        if (set >> rank & 1)
            snprintf(want, sizeof want, "file %d", rank);
        else
            snprintf(want, sizeof want, "%s: file %d", sheaf__comm_name(name, comm, first), first);
        EXPECT("failed", st != NULL && sheaf_status_code(st) == SHEAF_E_IO);
        EXPECT("place", strcmp(sheaf_status_where(st), want) == 0);
        EXPECT("found", strcmp(sheaf_status_found(st), "trouble") == 0);
        sheaf_status_free(st);
        int flag = 0;
        OR_RETURN(sheaf_comm_any(comm, &flag)); /* the group goes on */
    }
    return NULL;
}

/* An echo of another's failure gives way to the failure, whoever has the lower number. */
static sheaf_status *echo_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), last = sheaf_comm_ranks(comm) - 1;
    sheaf_status *mine = rank == last ? sheaf_fail(SHEAF_E_DATA, "bad row")
                                      : sheaf_fail(SHEAF_E_PEER, "rank %d: bad row", last);
    sheaf_status *st = sheaf_comm_agree(comm, mine);
    EXPECT("echo", st != NULL && sheaf_status_code(st) == SHEAF_E_DATA);
    EXPECT("text", strstr(sheaf_status_where(st), "bad row") != NULL);
    sheaf_status_free(st);
    st = sheaf_comm_agree(comm, sheaf_fail(SHEAF_E_PEER, "only echoes %d", rank));
    char want[32];
    snprintf(want, sizeof want, "only echoes %d", rank);
    EXPECT("own", st != NULL && strcmp(sheaf_status_where(st), want) == 0);
    sheaf_status_free(st);
    return NULL;
}

static void test_comm__broadcast(void **state)
{
    check_at_every_T(broadcast_body);
}
static void test_comm__gather(void **state)
{
    check_at_every_T(gather_body);
}
static void test_comm__select(void **state)
{
    check_at_every_T(select_body);
}
static void test_comm__max(void **state)
{
    check_at_every_T(max_body);
}
static void test_comm__any_and_barrier(void **state)
{
    check_at_every_T(any_body);
}
static void test_comm__agree_on_every_set_of_failures(void **state)
{
    check_at_every_T(agree_body);
}
static void test_comm__agree_prefers_the_cause(void **state)
{
    check_at_every_T(echo_body);
}

/* A barrier is one: nobody passes before all came. */
static _Atomic int came[8];
static sheaf_status *barrier_body(void *context, sheaf_comm *comm)
{
    const int ranks = sheaf_comm_ranks(comm);
    for (int round = 1; round <= 300; round++) {
        came[sheaf_comm_rank(comm)] = round;
        OR_RETURN(sheaf_comm_barrier(comm));
        for (int r = 0; r < ranks; r++)
            EXPECT("barrier", came[r] == round || came[r] == round + 1);
    }
    return NULL;
}
static void test_comm__nobody_passes_a_barrier_alone(void **state)
{
    for (int ranks = 2; ranks <= 8; ranks++) {
        memset((void *)came, 0, sizeof came);
        CHECK_OK(sheaf_comm_run_threads(ranks, barrier_body, NULL));
    }
}

/* Bytes that each call adds to those sent, as if by messages. */
static sheaf_status *sent_body(void *context, sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), others = sheaf_comm_ranks(comm) - 1;
    char bytes[800] = { 0 };
    int32_t owner[8];
    size_t size[8];
    for (int i = 0; i < 8; i++) {
        owner[i] = i % 2; /* ranks 0 and 1 own four rows each */
        size[i] = (size_t)i + 1;
    }
    OR_RETURN(sheaf_comm_broadcast(comm, bytes, 100, 1));
    double want = rank == 1 ? 100 * others : 0;
    EXPECT("broadcast", (double)sheaf__counters_all(sheaf_comm_counters(comm)).sent == want);
    OR_RETURN(sheaf_comm_select(comm, bytes, 10, 8, owner));
    want += rank < 2 ? 40 * others : 0;
    EXPECT("select", (double)sheaf__counters_all(sheaf_comm_counters(comm)).sent == want);
    OR_RETURN(sheaf_comm_gather(comm, bytes, size));
    want += (rank + 1) * others;
    EXPECT("gather", (double)sheaf__counters_all(sheaf_comm_counters(comm)).sent == want);
    return NULL;
}
static void test_comm__bytes_sent(void **state)
{
    for (int ranks = 2; ranks <= 8; ranks++)
        for (int messages = 0; messages < 2; messages++)
            CHECK_OK(run_ranks(ranks, messages, sent_body, NULL));
}

static void test_comm__numbers_of_ranks_that_cannot_be(void **state)
{
    CHECK_FAILS(sheaf_comm_run_threads(0, any_body, NULL), SHEAF_E_ARG, "ranks");
    CHECK_FAILS(sheaf_comm_run_threads(65, any_body, NULL), SHEAF_E_ARG, "ranks");
}

/* ---- large moves, over an MPI of this test's own ----
 *
 * Which counts up to PIECE, as an MPI does up to 2^31: whatever is larger has to come in pieces. */

enum { PIECE = 1000, LETTERS = 1 << 16, POST_RANKS = 8 };

/* The n-th letter of a rank, to another, under a tag, is the n-th that is received there. */
static struct {
    pthread_mutex_t lock;
    struct letter {
        int from, to, tag, n, size;
        const char *at;
        char *bytes; /* a copy, made when its sender learns that it is sent; else NULL */
    } letter[LETTERS];
    struct wish {
        int from, to, tag, n, room, asked, letter;
        char *bytes; /* NULL: of a send, which is over once it is asked for */
        bool done;
    } wish[LETTERS];
    int letters, wishes, largest, pieces;
    int open;               /* of a run: sends and receives that never came to an end */
    int lost;               /* bytes of each piece that is as large as can be */
    bool moves, reads_gpus; /* a mover's memory; which it reads */
    bool over;              /* a rank has failed: MPI ends the others */
    int fails_at;           /* the n-th copy of rank 0 into its mover's memory; 0: none */
} post = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local int here;

static int wish(sheaf__mpi_request *out, struct wish w)
{
    out->bits = (uint64_t)post.wishes;
    post.wish[post.wishes++] = w;
    return 0;
}

static int post_send(sheaf__mpi_request *out, const void *bytes, int size, int peer, int tag)
{
    pthread_mutex_lock(&post.lock);
    struct letter l = { .from = here, .to = peer, .tag = tag, .size = size };
    for (int i = 0; i < post.letters; i++)
        l.n +=
            post.letter[i].from == here && post.letter[i].to == peer && post.letter[i].tag == tag;
    l.at = post.reads_gpus ? near_of(bytes) : bytes;
    post.letter[post.letters++] = l;
    if (tag % 2 == 1) { /* payload of a heading */
        post.largest = size > post.largest ? size : post.largest;
        post.pieces++;
    }
    const int error = wish(out, (struct wish){ .letter = post.letters - 1 });
    pthread_mutex_unlock(&post.lock);
    return error;
}

static int post_receive(sheaf__mpi_request *out, void *bytes, int size, int peer, int tag)
{
    pthread_mutex_lock(&post.lock);
    struct wish w = { .from = peer, .to = here, .tag = tag, .room = size };
    w.bytes = post.reads_gpus ? near_of(bytes) : bytes;
    for (int i = 0; i < post.wishes; i++)
        w.n += post.wish[i].bytes != NULL && post.wish[i].from == peer && post.wish[i].to == here &&
               post.wish[i].tag == tag;
    const int error = wish(out, w);
    pthread_mutex_unlock(&post.lock);
    return error;
}

/* Some come only when they are asked for again. */
static int post_test(bool *done, int *size, sheaf__mpi_request *request)
{
    pthread_mutex_lock(&post.lock);
    struct wish *w = &post.wish[request->bits];
    int error = post.over;
    const bool late = error != 0 || w->asked++ < (int)(request->bits % 3);
    *done = w->bytes == NULL && !late;
    *size = 0;
    if (*done) {
        struct letter *l = &post.letter[w->letter];
        l->bytes = malloc((size_t)l->size + 1);
        memcpy(l->bytes, l->at, (size_t)l->size);
    }
    for (int i = 0; w->bytes != NULL && !late && !*done && i < post.letters; i++) {
        const struct letter *l = &post.letter[i];
        if (l->from != w->from || l->to != w->to || l->tag != w->tag || l->n != w->n)
            continue;
        *done = true;
        error |= l->size > w->room;
        *size = l->size - (l->size == PIECE ? post.lost : 0);
        memcpy(w->bytes, l->bytes == NULL ? l->at : l->bytes,
               (size_t)(l->size < w->room ? l->size : w->room));
    }
    w->done = *done;
    pthread_mutex_unlock(&post.lock);
    return error;
}

static void post_explain(char text[SHEAF__MPI_TEXT], int error)
{
    snprintf(text, SHEAF__MPI_TEXT, "%d", error);
}

static void add_floats(float *dst, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] + b[i];
}

/* Rank r owns r rows, in pieces. */
static sheaf_status *uneven_sum(sheaf_comm *comm)
{
    enum { COLS = 5 * PIECE / sizeof(float) + 1, ROWS = POST_RANKS * (POST_RANKS - 1) / 2 };
    static const sheaf_comm_adder adder = { .add = add_floats };
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    float out[ROWS * COLS], own[POST_RANKS][ROWS * COLS], *roots[POST_RANKS];
    int64_t first[POST_RANKS + 1] = { 0 };
    sheaf_tree tree;
    int count, all = 0;
    sheaf_tree_init(&tree, POST_RANKS, ranks, NULL);
    const int mine = sheaf_tree_own(&tree, rank, &count);
    for (int r = 0; r < ranks; r++)
        first[r + 1] = first[r] + r;
    for (int k = 0; k < count; k++) {
        roots[k] = post.moves ? far_of(own[k]) : own[k];
        for (int i = 0; i < ROWS * COLS; i++)
            own[k][i] = (float)(i % 1021 + mine + k);
    }
    for (int k = 0; k < tree.nroots; k++)
        all += k;
    OR_RETURN(sheaf_comm_sum(comm, &tree, post.moves ? far_of(out) : out, roots, first[ranks], COLS,
                             first, &adder));
    for (int64_t i = first[rank] * COLS; i < first[rank + 1] * COLS; i++)
        EXPECT("sum", out[i] == (float)(tree.nroots * (i % 1021) + all));
    return NULL;
}

static sheaf_status *large_body(sheaf_comm *comm)
{
    const int rank = sheaf_comm_rank(comm), ranks = sheaf_comm_ranks(comm);
    size_t size[POST_RANKS], at = 0;
    static const size_t sizes[POST_RANKS] = { 61 * PIECE, 0,  17 * PIECE + 1, 40 * PIECE - 1,
                                              20,         30, 2 * PIECE,      1 };
    unsigned char all[200 * PIECE];
    for (int r = 0; r < ranks; r++)
        size[r] = sizes[r];
    for (int r = 0; r < rank; r++)
        at += size[r];
    for (size_t i = 0; i < size[rank]; i++)
        all[at + i] = (unsigned char)(rank * 31 + (int)(i % 251));
    void *far = post.moves ? far_of(all) : all;
    OR_RETURN(sheaf_comm_gather(comm, far, size));
    at = 0;
    for (int r = 0; r < ranks; at += size[r++])
        for (size_t i = 0; i < size[r]; i++)
            EXPECT("gather", all[at + i] == (unsigned char)(r * 31 + (int)(i % 251)));
    memset(all, rank, sizeof all);
    OR_RETURN(sheaf_comm_broadcast(comm, far, sizeof all, ranks - 1));
    for (size_t i = 0; i < sizeof all; i++)
        EXPECT("broadcast", all[i] == ranks - 1);
    return uneven_sum(comm);
}

/* Those that could not be closed: an MPI may still write into them, so that they are not freed. */
static sheaf_comm *unclosed[3 * POST_RANKS];
static int nunclosed;

static bool post_reads_gpus(void)
{
    return post.reads_gpus;
}

static void *large_rank(void *ranks)
{
    static const int process[POST_RANKS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    static const sheaf__mpi mpi = { .send = post_send,
                                    .receive = post_receive,
                                    .test = post_test,
                                    .explain = post_explain,
                                    .reads_gpus = post_reads_gpus };
    sheaf_comm *comm = NULL;
    const int *mine = ranks;
    here = mine[1];
    sheaf_status *st =
        sheaf__messages_open(&comm, &(sheaf__messages_options){ .mpi = &mpi,
                                                                .rank = mine[1],
                                                                .ranks = mine[0],
                                                                .process = process,
                                                                .piece = PIECE,
                                                                .oversubscribed = true });
    far_memory memory = { .fails_at = here == 0 ? post.fails_at : 0 };
    if (st == NULL && post.moves)
        sheaf_comm_move_by(comm, &far_mover, &memory);
    TRY(st, large_body(comm));
    st = sheaf_comm_agree(comm, st);
    if (st == NULL && post.moves && (memory.moved < 100) != post.reads_gpus)
        st = sheaf_fail(SHEAF_E_NUMBER, "%d copies by the mover", memory.moved); /* little ones */
    if ((st != NULL && post.moves) != (memory.abandoned > 0))
        st = sheaf_fail(SHEAF_E_NUMBER, "%d times abandoned", memory.abandoned);
    pthread_mutex_lock(&post.lock);
    post.over |= st != NULL;
    pthread_mutex_unlock(&post.lock);
    far_release(&memory);
    sheaf_status *closed = sheaf__messages_close(&comm, 1);
    pthread_mutex_lock(&post.lock);
    if (closed != NULL)
        unclosed[nunclosed++] = comm;
    pthread_mutex_unlock(&post.lock);
    return sheaf__first_of(st, closed);
}

/* Their results are kept in `st`. */
static void run_posted(sheaf_status *st[POST_RANKS], int ranks)
{
    pthread_t thread[POST_RANKS];
    int number[POST_RANKS][2];
    for (int r = 0; r < ranks; r++) {
        number[r][0] = ranks;
        number[r][1] = r;
        assert_int_equal(sheaf__thread_start(&thread[r], large_rank, number[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], (void **)&st[r]);
    for (int i = 0; i < post.letters; i++)
        free(post.letter[i].bytes);
    post.open = 0;
    for (int i = 0; i < post.wishes; i++)
        post.open += !post.wish[i].done;
    post.letters = post.wishes = 0;
}

static void test_comm__a_piece_that_is_too_short_is_an_error(void **state)
{
    sheaf_status *st[POST_RANKS];
    post.lost = 1;
    run_posted(st, 2);
    post.lost = post.largest = post.pieces = post.over = 0;
    CHECK_FAILS(st[1], SHEAF_E_PEER, "rank 0: its message to rank 1 | 1000 bytes | 999 bytes");
    assert_non_null(st[0]);
    sheaf_status_free(st[0]);
}

/* In a message, and in a piece, while other ranks wait for pieces of this one. */
static void test_comm__a_mover_that_fails_ends_the_exchange(void **state)
{
    post.moves = true;
    for (post.fails_at = 1; post.fails_at <= 5; post.fails_at += 4) {
        sheaf_status *st[POST_RANKS];
        run_posted(st, POST_RANKS);
        post.largest = post.pieces = post.over = 0;
        CHECK_FAILS(st[0], SHEAF_E_IO, post.fails_at == 1 ? "place 1" : "place 5");
        for (int r = 1; r < POST_RANKS; r++)
            CHECK_FAILS(st[r], SHEAF_E_PEER, "rank ");
    }
    post.fails_at = 0;
    post.moves = false;
}

static void test_comm__what_is_larger_than_an_mpi_counts_comes_in_pieces(void **state)
{
    for (int how = 0; how < 3 * (POST_RANKS - 1); how++) {
        const int ranks = 2 + how / 3;
        sheaf_status *st[POST_RANKS];
        if (ranks > 4 && ranks < POST_RANKS)
            continue;
        post.moves = how % 3 > 0;
        post.reads_gpus = how % 3 > 1;
        run_posted(st, ranks);
        for (int r = 0; r < ranks; r++)
            CHECK_OK(st[r]);
        assert_int_equal(post.open, 0);
        assert_int_equal(post.largest, PIECE);
        assert_true(post.pieces >= 61 + 200);
        post.largest = post.pieces = 0;
    }
}

static void test_comm__equal_parts_count_as_often_as_they_run(void **state)
{
    sheaf__counters before = { .of[SHEAF__TRAFFIC_NORM] = { 1, 2, 3, 4, 0, 0, 0 },
                               .to[3] = 5,
                               .from[63] = 6 },
                    now = { .of[SHEAF__TRAFFIC_NORM] = { 11, 22, 33, 44, 0, 0, 0 },
                            .to[3] = 55,
                            .from[63] = 66 };
    sheaf__counters_repeat(&now, &before, 2);
    const sheaf__count *c = &now.of[SHEAF__TRAFFIC_NORM];
    assert_true(c->calls == 31 && c->exchanges == 62 && c->sent == 93 && c->received == 124);
    assert_true(now.to[3] == 155 && now.from[63] == 186);
}

int main(void)
{
    alarm(120); /* nothing here may hang */
    const bool processes = meet_for_test();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm__broadcast),
        cmocka_unit_test(test_comm__gather),
        cmocka_unit_test(test_comm__select),
        cmocka_unit_test(test_comm__max),
        cmocka_unit_test(test_comm__any_and_barrier),
        cmocka_unit_test(test_comm__agree_on_every_set_of_failures),
        cmocka_unit_test(test_comm__agree_prefers_the_cause),
        cmocka_unit_test(test_comm__bytes_sent),
    }, of_threads[] = { /* they look into each other's memory */
        cmocka_unit_test(test_comm__nobody_passes_a_barrier_alone),
        cmocka_unit_test(test_comm__numbers_of_ranks_that_cannot_be),
        cmocka_unit_test(test_comm__a_piece_that_is_too_short_is_an_error),
        cmocka_unit_test(test_comm__a_mover_that_fails_ends_the_exchange),
        cmocka_unit_test(test_comm__equal_parts_count_as_often_as_they_run),
        cmocka_unit_test(test_comm__what_is_larger_than_an_mpi_counts_comes_in_pieces),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (processes ? 0 : cmocka_run_group_tests(of_threads, NULL, NULL));
}
