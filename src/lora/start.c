/* start.c - PiSSA, OLoRA and orthogonal factors, as PEFT 0.21 begins them (lora/layer.py).
 *
 * PiSSA: of W = U S V^T the r largest values, B = U sqrt(S / s), A = sqrt(S / s) V^T. OLoRA: of
 * W = Q R the first r, B = Q, A = R. Orthogonal: B A = 0 of random ones. Signs, which are free: the
 * first of the largest elements of each row of A is positive.
 *
 * Values and vectors come from Lanczos bidiagonalisation (Golub and Kahan 1965), each vector
 * orthogonalised to all before it, until those wanted stand to 1e-10 of the largest value; then
 * from one-sided Jacobi rotations. No LAPACK: its results differ by library and machine. All is in
 * double and in a fixed order: threads share rows, or columns, of a product. */
#include "lora/start.h"

#include <math.h>

#include "base/base.h"
#include "base/random.h"
#include "ops/tensor/tensor.h"

enum { LANES = 8, MOST_SWEEPS = 60 };

/* ---- memory ---- */

static sheaf_status *take(double **out, const sheaf__start *how, int64_t n)
{
    void *block = NULL;
    sheaf_status *st = NULL;
    if (how->device != NULL)
        st = sheaf__host_alloc(&block, how->device, (size_t)n * sizeof **out, SHEAF_MEM_SCRATCH);
    else if ((block = malloc((size_t)n * sizeof **out)) == NULL)
        st = sheaf__no_memory(how->name);
    *out = block;
    return st;
}

static void give(const sheaf__start *how, double *block)
{
    if (how->device != NULL)
        sheaf__host_free(how->device, block);
    else
        free(block);
}

/* ---- vectors ---- */

static double join(const double sum[LANES])
{
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += a[i + k] * b[i + k];
    for (int k = 0; i + k < n; k++)
        sum[k] += a[i + k] * b[i + k];
    return join(sum);
}

static double dot_row(const float *a, const double *b, int64_t n)
{
    double sum[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)a[i + k] * b[i + k];
    for (int k = 0; i + k < n; k++)
        sum[k] += (double)a[i + k] * b[i + k];
    return join(sum);
}

static void scale(double *x, double by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

/* x loses its share in each of the vectors [count, n]; again, for what rounding left. */
static void free_of(double *x, const double *basis, int64_t count, int64_t n)
{
    for (int64_t i = 0; i < 2 * count; i++) {
        const double *one = basis + i % count * n, share = dot(one, x, n);
        for (int64_t k = 0; k < n; k++)
            x[k] -= share * one[k];
    }
}

/* Vector `count` of the basis becomes orthogonal to those before it, of length 1. Returns its
 * length until then; 0: no more than `least`, and a random vector took its place. */
static double add_to(double *basis, int64_t count, int64_t n, double least)
{
    static const uint64_t key = 0x7374617274; /* "start" */
    double *x = basis + count * n;
    free_of(x, basis, count, n);
    const double was = sqrt(dot(x, x, n));
    const bool kept = was > least;
    double length = kept ? was : 0;
    for (uint64_t at = (uint64_t)(count * n); length < 1e-3 && !kept;) {
        for (int64_t k = 0; k < n; k++)
            x[k] = (double)sheaf__unit_float(sheaf__random_tensor_u32(0, key, at++)) - 0.5;
        scale(x, 1 / sqrt(dot(x, x, n)), n);
        free_of(x, basis, count, n);
        length = sqrt(dot(x, x, n));
    }
    scale(x, 1 / length, n);
    return kept ? was : 0;
}

/* ---- products with W ---- */

typedef struct product {
    const sheaf__start *of;
    const double *x;
    double *y;
} product;

/* y[o] = W[o] x */
static void ahead(void *context, int64_t begin, int64_t end, int worker)
{
    const product *p = context;
    const int64_t in = p->of->in;
    (void)worker;
    for (int64_t o = begin; o < end; o++)
        p->y[o] = dot_row(p->of->w + o * in, p->x, in);
}

/* y[k] = sum over o of W[o,k] x[o] */
static void back(void *context, int64_t begin, int64_t end, int worker)
{
    const product *p = context;
    (void)worker;
    memset(p->y + begin, 0, (size_t)(end - begin) * sizeof *p->y);
    for (int64_t o = 0; o < p->of->out; o++) {
        const float *w = p->of->w + o * p->of->in;
        for (int64_t k = begin; k < end; k++)
            p->y[k] += (double)w[k] * p->x[o];
    }
}

static void multiply(double *y, const sheaf__start *of, const double *x, bool turned)
{
    product p = { of, x, y };
    sheaf__pool_rows(of->pool, turned ? of->in : of->out, turned ? 256 : 16, turned ? back : ahead,
                     &p);
}

/* ---- singular values ---- */

/* W, or W^T where that is taller, times `right` is `left` times the matrix of `diagonal` and,
 * beside it, `beside`. */
typedef struct lanczos {
    const sheaf__start *of;
    bool turned;
    int64_t m, n;       /* lengths of the vectors of `left` and of `right`, m >= n */
    int64_t done, room; /* vectors; for how many there is memory, one block */
    double *block;
    double *left, *right; /* [done, m], [done + 1, n] */
    double *diagonal, *beside;
    double largest;
    bool broken, complete; /* a direction ended; all of them did */
    /* of the small matrix, [done, done] by columns: left vectors times values, right vectors */
    double *p, *q, *value;
    double *x, *y;  /* [m], [n] */
    int64_t *order; /* of the values, the largest first */
} lanczos;

static int64_t first_vectors(int64_t rank)
{
    return 2 * rank + 16;
}

static int64_t more_vectors(int64_t vectors)
{
    return vectors + vectors / 2;
}

/* Random numbers in matrices of 64 to 5,632 rows needed no more, at ranks of 1 to 64. */
static int64_t usual_vectors(int64_t out, int64_t in, int64_t rank)
{
    const int64_t most = out < in ? out : in;
    const double needed = 4.05 * cbrt(sqrt((double)out * (double)in)) * sqrt((double)(rank + 3));
    int64_t k = first_vectors(rank);
    while (k < most && (double)k < needed)
        k = more_vectors(k);
    return k < most ? k : most;
}

static int64_t room_of(int64_t m, int64_t n, int64_t k)
{
    return (k + 1) * (m + n) + n + 2 * k * k + 4 * k;
}

/* For k vectors, and the ones there are. */
static sheaf_status *make_room(lanczos *l, int64_t k)
{
    const lanczos was = *l;
    sheaf_status *st = take(&l->block, l->of, room_of(l->m, l->n, k));
    if (st != NULL) {
        l->block = was.block;
        return st;
    }
    l->room = k;
    l->left = l->block;
    l->right = l->left + k * l->m;
    l->diagonal = l->right + (k + 1) * l->n;
    l->beside = l->diagonal + k;
    l->p = l->beside + k;
    l->q = l->p + k * k;
    l->value = l->q + k * k;
    l->order = (int64_t *)(l->value + k);
    l->x = l->value + 2 * k;
    l->y = l->x + l->m;
    if (was.block != NULL) {
        memcpy(l->left, was.left, (size_t)(l->done * l->m) * sizeof *l->left);
        memcpy(l->right, was.right, (size_t)((l->done + 1) * l->n) * sizeof *l->right);
        memcpy(l->diagonal, was.diagonal, (size_t)l->done * sizeof *l->diagonal);
        memcpy(l->beside, was.beside, (size_t)l->done * sizeof *l->beside);
    }
    give(l->of, was.block);
    return NULL;
}

static sheaf_status *go_on(lanczos *l, int64_t until)
{
    sheaf_status *st = until > l->room ? make_room(l, until) : NULL;
    if (st != NULL)
        return st;
    if (l->done == 0) {
        memset(l->right, 0, (size_t)l->n * sizeof *l->right);
        add_to(l->right, 0, l->n, 0);
    }
    for (int64_t j = l->done; j < until && !l->complete; j = l->done) {
        const double least = 1e-13 * l->largest;
        const bool fresh = j == 0 || l->beside[j - 1] == 0;
        multiply(l->left + j * l->m, l->of, l->right + j * l->n, l->turned);
        l->diagonal[j] = add_to(l->left, j, l->m, least);
        l->beside[j] = 0;
        l->done++;
        l->complete = l->done == l->n || (fresh && l->diagonal[j] == 0);
        if (l->complete)
            break;
        multiply(l->right + l->done * l->n, l->of, l->left + j * l->m, !l->turned);
        l->beside[j] = add_to(l->right, l->done, l->n, least);
        l->broken |= l->diagonal[j] == 0 || l->beside[j] == 0;
        l->largest = fmax(l->largest, fmax(l->diagonal[j], l->beside[j]));
    }
    return NULL;
}

/* Makes columns a and b orthogonal, and turns those of q likewise; false: they are. */
static bool rotate(lanczos *l, int64_t a, int64_t b)
{
    const int64_t k = l->done;
    double *pa = l->p + a * k, *pb = l->p + b * k, *qa = l->q + a * k, *qb = l->q + b * k;
    const double aa = dot(pa, pa, k), bb = dot(pb, pb, k), ab = dot(pa, pb, k);
    if (fabs(ab) <= 1e-15 * sqrt(aa * bb))
        return false;
    const double zeta = (bb - aa) / (2 * ab),
                 tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta)),
                 cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
    for (int64_t i = 0; i < k; i++) {
        const double p = pa[i], q = qa[i];
        pa[i] = cosine * p - sine * pb[i];
        pb[i] = sine * p + cosine * pb[i];
        qa[i] = cosine * q - sine * qb[i];
        qb[i] = sine * q + cosine * qb[i];
    }
    return true;
}

static void decompose(lanczos *l)
{
    const int64_t k = l->done;
    int64_t *order = l->order;
    memset(l->p, 0, (size_t)(k * k) * sizeof *l->p);
    memset(l->q, 0, (size_t)(k * k) * sizeof *l->q);
    for (int64_t i = 0; i < k; i++) {
        l->q[i * k + i] = 1;
        l->p[i * k + i] = l->diagonal[i];
        if (i + 1 < k)
            l->p[(i + 1) * k + i] = l->beside[i];
    }
    bool turned = true;
    for (int sweep = 0; sweep < MOST_SWEEPS && turned; sweep++) {
        turned = false;
        for (int64_t a = 0; a < k; a++)
            for (int64_t b = a + 1; b < k; b++)
                turned |= rotate(l, a, b);
    }
    for (int64_t i = 0; i < k; i++) {
        int64_t at = i;
        l->value[i] = sqrt(dot(l->p + i * k, l->p + i * k, k));
        for (; at > 0 && l->value[order[at - 1]] < l->value[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Do the `rank` largest values and their vectors stand? */
static bool stands(const lanczos *l, int64_t rank)
{
    const int64_t k = l->done;
    bool all = !l->broken && k >= rank;
    for (int64_t i = 0; i < rank && all; i++) {
        const int64_t at = l->order[i];
        all = l->beside[k - 1] * fabs(l->p[at * k + k - 1]) <=
              1e-10 * l->value[l->order[0]] * l->value[at];
    }
    return all || l->complete;
}

/* x[length] = sum over the small matrix's column of by * basis */
static void expand(double *x, const double *basis, const double *column, int64_t k, int64_t length,
                   double by)
{
    memset(x, 0, (size_t)length * sizeof *x);
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = 0; i < length; i++)
            x[i] += column[j] * by * basis[j * length + i];
}

/* Row r of A and column r of B, of x [in] and y [out]. */
static void put(float *a, float *b, int64_t ld, const sheaf__start *how, int64_t r, const double *x,
                const double *y, double by)
{
    int64_t most = 0;
    for (int64_t k = 1; k < how->in; k++)
        most = fabs(x[k]) > fabs(x[most]) ? k : most;
    by = x[most] < 0 ? -by : by;
    for (int64_t k = 0; k < how->in; k++)
        a[r * how->in + k] = (float)(by * x[k]);
    for (int64_t o = 0; o < how->out; o++)
        b[o * ld + r] = (float)(by * y[o]);
}

static sheaf_status *begin_pissa(float *a, float *b, int64_t ld, const sheaf__start *how)
{
    const bool turned = how->out < how->in;
    lanczos l = { .of = how,
                  .turned = turned,
                  .m = turned ? how->in : how->out,
                  .n = turned ? how->out : how->in };
    sheaf_status *st = make_room(&l, usual_vectors(how->out, how->in, how->rank));
    for (int64_t until = first_vectors(how->rank); st == NULL; until = more_vectors(until)) {
        st = go_on(&l, until < l.n ? until : l.n);
        if (st == NULL)
            decompose(&l);
        if (st == NULL && stands(&l, how->rank))
            break;
    }
    for (int64_t r = 0; r < how->rank && st == NULL; r++) {
        const int64_t at = r < l.done ? l.order[r] : 0;
        const double value = r < l.done ? l.value[at] : 0;
        expand(l.x, l.left, l.p + at * l.done, l.done, l.m, value > 0 ? 1 / value : 0);
        expand(l.y, l.right, l.q + at * l.done, l.done, l.n, 1);
        put(a, b, ld, how, r, turned ? l.x : l.y, turned ? l.y : l.x,
            sqrt(value / (double)how->scale));
    }
    give(how, l.block);
    return st;
}

static sheaf_status *begin_olora(float *a, float *b, int64_t ld, const sheaf__start *how)
{
    double *q;
    sheaf_status *st = take(&q, how, how->rank * how->out + how->in);
    if (st != NULL)
        return st;
    for (int64_t r = 0; r < how->rank; r++) {
        double *own = q + r * how->out, *row = q + how->rank * how->out;
        for (int64_t o = 0; o < how->out; o++)
            own[o] = (double)how->w[o * how->in + r];
        add_to(q, r, how->out, 1e-13 * sqrt(dot(own, own, how->out)));
        multiply(row, how, own, true);
        put(a, b, ld, how, r, row, own, 1);
    }
    give(how, q);
    return NULL;
}

/* ---- orthogonal factors ---- */

/* to[row, col] = a tenth of the sum over i of a random number and q[2 i + odd, col]. */
static void mix(float *to, int64_t row_step, int64_t col_step, int64_t rows, const double *q,
                int64_t odd, const sheaf__start *how)
{
    const int64_t rank = how->rank, half = rank / 2;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < rank; col++) {
            double sum = 0;
            for (int64_t i = 0; i < half; i++)
                sum += (double)sheaf__random_normal(how->seed, how->key + 1 + (uint64_t)odd,
                                                    (uint64_t)(row * half + i)) *
                       q[(2 * i + odd) * rank + col];
            to[row * row_step + col * col_step] = (float)(sum / 10);
        }
}

static sheaf_status *begin_orthogonal(float *a, float *b, int64_t ld, const sheaf__start *how)
{
    const int64_t rank = how->rank;
    double *q;
    sheaf_status *st = take(&q, how, rank * rank);
    if (st != NULL)
        return st;
    for (int64_t i = 0; i < rank; i++) {
        for (int64_t k = 0; k < rank; k++)
            q[i * rank + k] =
                (double)sheaf__random_normal(how->seed, how->key, (uint64_t)(i * rank + k));
        add_to(q, i, rank, 1e-6);
    }
    mix(a, 1, how->in, how->in, q, 0, how);
    mix(b, ld, 1, how->out, q, 1, how);
    give(how, q);
    return NULL;
}

size_t sheaf__start_bytes(sheaf_lora_init init, int64_t out, int64_t in, int64_t rank)
{
    const int64_t n = init == SHEAF_LORA_PISSA ? room_of(out > in ? out : in, out < in ? out : in,
                                                         usual_vectors(out, in, rank))
                      : init == SHEAF_LORA_OLORA ? rank * out + in
                                                 : rank * rank;
    return (size_t)n * sizeof(double);
}

/* Of numbers that are not finite no vectors stand, however many steps are made. */
static sheaf_status *check(sheaf_lora_init init, const sheaf__start *how)
{
    if (sheaf__start_is_held(init) && !sheaf__is_finite(how->w, how->out * how->in, SHEAF_F32))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'", how->name), "finite numbers"),
            "NaN or infinity");
    if (init == SHEAF_LORA_PISSA && !(how->scale > 0))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "adapter of '%s'", how->name),
                                          "an alpha above 0: PiSSA divides by alpha / rank"),
                           "a scale of %g", (double)how->scale);
    return NULL;
}

sheaf_status *sheaf__start_make(float *a, float *b, int64_t ld, sheaf_lora_init init,
                                const sheaf__start *how)
{
    sheaf_status *st = check(init, how);
    return st != NULL                 ? st
           : init == SHEAF_LORA_PISSA ? begin_pissa(a, b, ld, how)
           : init == SHEAF_LORA_OLORA ? begin_olora(a, b, ld, how)
                                      : begin_orthogonal(a, b, ld, how);
}

sheaf_status *sheaf__start_hold(float *a, float *b, bool fresh, sheaf_lora_init init,
                                const sheaf__start *how)
{
    const int64_t rank = how->rank, n = rank * how->in;
    sheaf_status *st = sheaf__start_make(a + n, b + rank, 2 * rank, init, how);
    if (st == NULL && fresh)
        memcpy(a, a + n, (size_t)n * sizeof *a);
    for (int64_t i = 0; i < how->out * rank && st == NULL; i++) {
        float *to = &b[i / rank * 2 * rank + i % rank];
        if (fresh)
            *to = to[rank];
        to[rank] *= -1;
    }
    return st;
}
