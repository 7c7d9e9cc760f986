/* cluster.c - see cluster.h. */
#include "plan/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- its description ---- */

typedef struct field {
    const char *key, *unit;
    double scale, *value;
} field;

static sheaf_status *bad(const char *text, const char *expected)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--cluster"), "%s", expected);
    return sheaf_found(st, "%s", *text == '\0' ? "nothing" : text);
}

/* One "key=value", up to the comma; returns its length, 0: none of the fields. */
static size_t read_field(const field *fields, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        const size_t key = strlen(fields[i].key), unit = strlen(fields[i].unit);
        char *end;
        if (strncmp(text, fields[i].key, key) != 0 || text[key] != '=')
            continue;
        const double value = strtod(text + key + 1, &end);
        if (end == text + key + 1 || !(value > 0 && value < 1e15))
            return 0;
        if (strncmp(end, fields[i].unit, unit) == 0)
            end += unit;
        if (*end != ',' && *end != '\0')
            return 0;
        *fields[i].value = value * fields[i].scale;
        return (size_t)(end - text);
    }
    return 0;
}

sheaf_status *sheaf_cluster_read(sheaf_cluster *out, const char *text)
{
    static const char expected[] =
        "hosts=8,ranks-per-host=8,latency=5us,bandwidth=12GB/s and "
        "inside-latency=1us,inside=20GB/s,rate=100GFLOP/s,memory=24GiB where wanted";
    double hosts = 0, ranks = 0;
    *out = (sheaf_cluster){ .inside = { 1e-6, 20e9 } };
    const field fields[] = { { "hosts", "", 1, &hosts },
                             { "ranks-per-host", "", 1, &ranks },
                             { "latency", "us", 1e-6, &out->outside.latency },
                             { "bandwidth", "GB/s", 1e9, &out->outside.bandwidth },
                             { "inside-latency", "us", 1e-6, &out->inside.latency },
                             { "inside", "GB/s", 1e9, &out->inside.bandwidth },
                             { "rate", "GFLOP/s", 1e9, &out->rate },
                             { "memory", "GiB", 1073741824, &out->memory } };
    for (const char *at = text;; at++) {
        const size_t size = read_field(fields, sizeof fields / sizeof *fields, at);
        if (size == 0)
            return bad(at, expected);
        at += size;
        if (*at == '\0')
            break;
    }
    if (hosts != floor(hosts) || ranks != floor(ranks) || hosts * ranks < 2 ||
        hosts * ranks > SHEAF_CLUSTER_RANKS)
        return bad(text, "2 to 1024 ranks in all");
    if (out->outside.latency == 0 || out->outside.bandwidth == 0)
        return bad(text, expected);
    out->hosts = (int)hosts;
    out->ranks_per_host = (int)ranks;
    return NULL;
}

/* ---- the model ---- */

/* Seconds: the latency of each exchange, and the larger of what is sent and received. */
static double exchange_of(const sheaf__count *c, const sheaf_cluster_link *link)
{
    const uint64_t most = c->sent > c->received ? c->sent : c->received;
    return (double)c->exchanges * link->latency + (double)most / link->bandwidth;
}

/* Of `ranks` that follow each other: inside of a host, or with a share of its link. */
static sheaf_cluster_link link_of(const sheaf_cluster *c, int ranks)
{
    if (ranks <= c->ranks_per_host)
        return c->inside;
    return (sheaf_cluster_link){ c->outside.latency, c->outside.bandwidth / c->ranks_per_host };
}

/* What one T needs: alone, and as one of two groups, which tells what groups exchange. */
typedef struct base {
    sheaf_plan *one, *two;
} base;

/* Of D groups each runs so much of the step's micro-batches. */
static double share_of(const sheaf__job *job, int dp)
{
    const int64_t n = job->options->accumulate;
    return (double)((n + dp - 1) / dp) / (double)n;
}

static double in_group(const sheaf_plan_rank *rank, double share, const sheaf_cluster_link *link)
{
    double seconds = 0;
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const bool grows = t == SHEAF__TRAFFIC_FORWARD || t == SHEAF__TRAFFIC_BACKWARD ||
                           t == SHEAF__TRAFFIC_SELECT;
        if (t != SHEAF__TRAFFIC_GRADIENTS && t != SHEAF__TRAFFIC_WEIGHTS)
            seconds += exchange_of(&rank->exchange[t], link) * (grows ? share : 1);
    }
    return seconds;
}

/* A rank of two groups sends as many bytes as it has gradients; of D, 2 (D - 1) / D times that. */
static double between_groups(const sheaf_plan_rank *of_two, int dp, const sheaf_cluster_link *link)
{
    enum { SEGMENT = 1 << 16 }; /* numbers of a message of the sum (comm/sum.c) */
    const double more = 2 * (double)(dp - 1) / dp;
    const double numbers = of_two->sent_gradients / sizeof(float);
    const double exchanges = ceil(numbers / ((double)SEGMENT * dp)) + 1 +
                             (of_two->sent_weights > 0 ? 1 : 0) + 1; /* and losses */
    return exchanges * link->latency +
           more * (of_two->sent_gradients + of_two->sent_weights) / link->bandwidth;
}

static void fill_row(sheaf_cluster_row *row, const sheaf_cluster *c, const sheaf__job *job,
                     const base *of)
{
    const sheaf_cluster_link group = link_of(c, row->tp), peers = link_of(c, row->tp * row->dp);
    const double share = share_of(job, row->dp);
    row->memory = sheaf_plan_fullest(row->dp == 1 ? of->one : of->two);
    for (int r = 0; r < row->tp; r++) {
        const double compute = of->one->rank[r].flops * share / c->rate,
                     gradients =
                         row->dp == 1 ? 0 : between_groups(&of->two->rank[r], row->dp, &peers),
                     exchange = (row->tp == 1 ? 0 : in_group(&of->one->rank[r], share, &group)) +
                                gradients;
        row->compute = fmax(row->compute, compute);
        row->exchange = fmax(row->exchange, exchange);
        row->gradients = fmax(row->gradients, gradients);
    }
    row->step = row->compute + row->exchange;
    row->fits = c->memory == 0 || (double)row->memory <= c->memory;
}

static sheaf_status *plan_one(sheaf_plan *out, const sheaf__job *job, int tp, int dp, size_t bytes)
{
    sheaf_train_options o = *job->options;
    sheaf__job with = *job;
    o.tp = tp;
    o.dp = dp;
    if (dp > 1) /* what they are changes no size that is read here */
        o.accumulators = 2;
    with.options = &o;
    return sheaf_plan_train(out, &with, bytes);
}

static void judge(sheaf_cluster_row *row, int n)
{
    for (int i = 0; i < n; i++) {
        const int ranks = row[i].tp * row[i].dp;
        row[i].best = row[i].pays = row[i].fits;
        for (int k = 0; k < n; k++) {
            const int others = row[k].tp * row[k].dp;
            if (!row[k].fits)
                continue;
            if (others == ranks &&
                (row[k].step < row[i].step || (row[k].step == row[i].step && k < i)))
                row[i].best = false;
            if (others < ranks && row[k].step <= row[i].step)
                row[i].pays = false;
        }
        row[i].pays = row[i].pays && row[i].best;
    }
}

sheaf_status *sheaf_cluster_plan(sheaf_cluster_row row[SHEAF_CLUSTER_ROWS], int *count,
                                 const sheaf_cluster *c, const sheaf__job *job, size_t data_bytes)
{
    const int all = c->hosts * c->ranks_per_host;
    const base of = { malloc(sizeof *of.one), malloc(sizeof *of.two) };
    sheaf_status *st = of.one == NULL || of.two == NULL ? sheaf_fail(SHEAF_E_MEMORY, "plan") : NULL;
    *count = 0;
    for (int tp = 1; tp <= job->options->slices && tp <= all && st == NULL; tp *= 2) {
        const bool groups =
            2 * tp <= all && 2 * tp <= SHEAF_MAX_SLICES && job->options->accumulate > 1;
        st = plan_one(of.one, job, tp, 1, data_bytes);
        if (st == NULL && groups)
            st = plan_one(of.two, job, tp, 2, data_bytes);
        for (int dp = 1; tp * dp <= all && dp <= job->options->accumulate && st == NULL &&
                         (dp == 1 || groups) && *count < SHEAF_CLUSTER_ROWS;
             dp *= 2) {
            row[*count] = (sheaf_cluster_row){ .tp = tp, .dp = dp };
            fill_row(&row[(*count)++], c, job, &of);
        }
    }
    judge(row, *count);
    free(of.one);
    free(of.two);
    return st;
}
