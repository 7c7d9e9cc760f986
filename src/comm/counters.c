/* counters.c - see counters.h. */
#include "comm/counters.h"

const char *sheaf__traffic_name(sheaf__traffic traffic)
{
    static const char *const name[SHEAF__TRAFFICS] = { "forward", "backward", "select", "gradients",
                                                       "weights", "norm",     "other" };
    return name[traffic];
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

sheaf__count sheaf__counters_all(const sheaf__counters *counters)
{
    sheaf__count sum = { 0 };
    for (int t = 0; t < SHEAF__TRAFFICS; t++)
        sheaf__count_add(&sum, &counters->of[t]);
    return sum;
}

void sheaf__counters_repeat(sheaf__counters *counters, const sheaf__counters *before,
                            uint64_t times)
{
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        sheaf__count *now = &counters->of[t];
        const sheaf__count one = sheaf__count_since(now, &before->of[t]);
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
