/* counters.c - see counters.h. */
#include "comm/counters.h"

#include <assert.h>

#include "comm/transport.h"

static_assert((int)SHEAF__OP_LEFT < (int)SHEAF__OPS, "every call has a place to be counted");

const char *sheaf__traffic_name(sheaf__traffic traffic)
{
    static const char *const name[SHEAF__TRAFFICS] = { "forward", "backward", "select", "gradients",
                                                       "weights", "norm",     "other" };
    return name[traffic];
}

static sheaf__traffic traffic_of(sheaf__purpose purpose, sheaf__op op)
{
    static const sheaf__traffic of[SHEAF__PURPOSES] = {
        [SHEAF__FOR_OTHER] = SHEAF__TRAFFIC_OTHER,
        [SHEAF__FOR_FORWARD] = SHEAF__TRAFFIC_FORWARD,
        [SHEAF__FOR_BACKWARD] = SHEAF__TRAFFIC_BACKWARD,
        [SHEAF__FOR_GRADIENTS] = SHEAF__TRAFFIC_GRADIENTS,
        [SHEAF__FOR_WEIGHTS] = SHEAF__TRAFFIC_WEIGHTS,
        [SHEAF__FOR_NORM] = SHEAF__TRAFFIC_NORM,
    };
    return op == SHEAF__OP_SELECT  ? SHEAF__TRAFFIC_SELECT
           : op >= SHEAF__OP_AGREE ? SHEAF__TRAFFIC_OTHER
                                   : of[purpose];
}

void sheaf__count_add(sheaf__count *to, const sheaf__count *from)
{
    to->calls += from->calls;
    to->exchanges += from->exchanges;
    to->sent += from->sent;
    to->received += from->received;
    to->waiting += from->waiting;
    to->moving += from->moving;
    to->summing += from->summing;
}

sheaf__count sheaf__count_since(const sheaf__count *from, const sheaf__count *what)
{
    return (sheaf__count){ .calls = from->calls - what->calls,
                           .exchanges = from->exchanges - what->exchanges,
                           .sent = from->sent - what->sent,
                           .received = from->received - what->received,
                           .waiting = from->waiting - what->waiting,
                           .moving = from->moving - what->moving,
                           .summing = from->summing - what->summing };
}

sheaf__count sheaf__counters_of(const sheaf__counters *counters, sheaf__traffic traffic)
{
    sheaf__count sum = { 0 };
    for (int p = 0; p < SHEAF__PURPOSES; p++)
        for (int op = 0; op < SHEAF__OPS; op++)
            if (traffic_of((sheaf__purpose)p, (sheaf__op)op) == traffic)
                sheaf__count_add(&sum, &counters->of[p][op]);
    return sum;
}

sheaf__count sheaf__counters_all(const sheaf__counters *counters)
{
    sheaf__count sum = { 0 };
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count one = sheaf__counters_of(counters, (sheaf__traffic)t);
        sheaf__count_add(&sum, &one);
    }
    return sum;
}

void sheaf__counters_repeat(sheaf__counters *counters, const sheaf__counters *before,
                            uint64_t times)
{
    for (int p = 0; p < SHEAF__PURPOSES; p++)
        for (int op = 0; op < SHEAF__OPS; op++) {
            sheaf__count *now = &counters->of[p][op];
            const sheaf__count one = sheaf__count_since(now, &before->of[p][op]);
            now->calls += times * one.calls;
            now->exchanges += times * one.exchanges;
            now->sent += times * one.sent;
            now->received += times * one.received;
        }
    for (int r = 0; r < SHEAF_MAX_SLICES; r++) {
        counters->to[r] += times * (counters->to[r] - before->to[r]);
        counters->from[r] += times * (counters->from[r] - before->from[r]);
    }
}
