/* cluster.c - see cluster.h. */
#include "plan/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { MOST_RANKS = 1024, MOST_GROUPS = 16 };

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
        hosts * ranks > MOST_RANKS)
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

/* What groups exchange goes over the link between all ranks. */
static void fill_row(sheaf_cluster_row *row, const sheaf_cluster *c, const sheaf_plan *plan)
{
    const sheaf_cluster_link group = link_of(c, row->tp), peers = link_of(c, row->tp * row->dp);
    row->memory = sheaf_plan_fullest(plan);
    for (int r = 0; r < plan->ranks; r++) {
        double inside = 0, gradients = 0;
        for (int t = 0; t < SHEAF__TRAFFICS; t++)
            if (t == SHEAF__TRAFFIC_GRADIENTS || t == SHEAF__TRAFFIC_WEIGHTS)
                gradients += exchange_of(&plan->rank[r].exchange[t], &peers);
            else
                inside += exchange_of(&plan->rank[r].exchange[t], &group);
        row->compute = fmax(row->compute, plan->rank[r].flops / c->rate);
        row->exchange = fmax(row->exchange, inside + gradients);
        row->gradients = fmax(row->gradients, gradients);
    }
    row->step = row->compute + row->exchange;
    row->fits = c->memory == 0 || (double)row->memory <= c->memory;
}

static sheaf_status *plan_row(sheaf_plan *out, const sheaf__job *job, const sheaf_cluster_row *row,
                              size_t bytes)
{
    sheaf_train_options o = *job->options;
    sheaf__job with = *job;
    o.tp = row->tp;
    o.dp = o.accumulators = row->dp; /* what they are changes no size that is read here */
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
    const int hosts = c->hosts * c->ranks_per_host,
              all = hosts < SHEAF_MAX_SLICES ? hosts : SHEAF_MAX_SLICES;
    sheaf_plan *plan = malloc(sizeof *plan);
    sheaf_status *st = plan == NULL ? sheaf__no_memory("plan") : NULL;
    *count = 0;
    for (int tp = 1; tp <= job->options->slices && tp <= all; tp *= 2)
        for (int dp = 1; tp * dp <= all && dp <= job->options->accumulate && dp <= MOST_GROUPS;
             dp *= 2) {
            sheaf_cluster_row *to = &row[*count];
            *to = (sheaf_cluster_row){ .tp = tp, .dp = dp };
            TRY(st, plan_row(plan, job, to, data_bytes));
            if (st == NULL) {
                fill_row(to, c, plan);
                ++*count;
            }
        }
    judge(row, *count);
    free(plan);
    return st;
}
