/* usage.c - see usage.h. */
#include "train/usage.h"

#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "tape/moments.h"
#include "train/rank.h"

/* The group or the peers of a rank, as numbers among all ranks. */
typedef struct circle {
    sheaf_comm *comm; /* NULL: none */
    int first, stride;
} circle;

static void circles_of(circle of[2], const sheaf__grid *grid)
{
    const int me = sheaf_comm_rank(grid->all),
              ranks = grid->group == NULL ? 1 : sheaf_comm_ranks(grid->group);
    of[0] = (circle){ grid->group, me - me % ranks, 1 };
    of[1] = (circle){ grid->peers, me % ranks, ranks };
}

/* Without the calls among all ranks, which are not a step's work. */
static sheaf__count exchanged(const sheaf__grid *grid)
{
    sheaf__count sum = { 0 };
    circle of[2];
    circles_of(of, grid);
    for (int i = 0; i < 2; i++)
        if (of[i].comm != NULL) {
            const sheaf__count one = sheaf__counters_all(sheaf_comm_counters(of[i].comm));
            sheaf__count_add(&sum, &one);
        }
    return sum;
}

/* Resident bytes of this process; 0: not known. */
static uint64_t process_bytes(void)
{
    unsigned long long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Bytes sent so far, by rank of all. */
static void sent_to(uint64_t to[SHEAF_MAX_SLICES], const sheaf__grid *grid)
{
    circle of[2];
    circles_of(of, grid);
    memset(to, 0, SHEAF_MAX_SLICES * sizeof *to);
    for (int i = 0; i < 2; i++)
        for (int p = 0; of[i].comm != NULL && p < sheaf_comm_ranks(of[i].comm); p++)
            to[of[i].first + p * of[i].stride] += sheaf_comm_counters(of[i].comm)->to[p];
}

static void add_offload(sheaf_event_offload *sum, const sheaf_event_offload *one)
{
    sum->read += one->read;
    sum->written += one->written;
    sum->reading += one->reading;
    sum->writing += one->writing;
    sum->waiting += one->waiting;
}

/* Bytes that its rank has moved so far. */
static sheaf_event_offload offloaded(const sheaf__usage *s)
{
    const sheaf__model *model = s->rank->model;
    sheaf__offload *const of[] = { model->away, sheaf__moments_offload(model->trained->moments),
                                   model->activations };
    sheaf_event_offload sum = { 0 };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (of[i] == NULL)
            continue;
        const sheaf__offload_costs c = sheaf__offload_costs_of(of[i]);
        add_offload(&sum,
                    &(sheaf_event_offload){ c.read, c.written, c.reading, c.writing, c.waiting });
    }
    return sum;
}

static sheaf_event_offload offload_since(const sheaf_event_offload *now,
                                         const sheaf_event_offload *then)
{
    return (sheaf_event_offload){ now->read - then->read, now->written - then->written,
                                  now->reading - then->reading, now->writing - then->writing,
                                  now->waiting - then->waiting };
}

void sheaf__usage_begin(sheaf__usage *s)
{
    sheaf__device_measure(s->rank->device, s->untimed == 0);
    sheaf__device_spent(s->rank->device, &(sheaf__spent){ 0 }); /* time between steps */
    sent_to(s->to_then, s->grid);
    s->then = exchanged(s->grid);
    /* Not what loading moved; what later comes between two steps is the second one's. */
    if (s->all.steps == 0)
        s->offload_then = offloaded(s);
    s->reading = sheaf__stepper_reading(s->rank->stepper);
    s->began = sheaf__seconds();
}

/* A mark on a GPU's stream takes it some 2 microseconds. */
#define MARK 2e-6
#define MOST_OF_MARKS 0.01 /* of the time of steps */

/* Time and memory of the device, and the destinations of bytes. */
static void look(sheaf_event_spent *out, sheaf__usage *s, double seconds)
{
    sheaf__device *device = s->rank->device;
    sheaf__spent spent = { 0 };
    sheaf__device_spent(device, &spent);
    sheaf__device_measure(device, false);
    *out = (sheaf_event_spent){ .timed = s->untimed == 0,
                                .products = 1e-9 * (double)spent.of[SHEAF__SPENT_PRODUCTS],
                                .attention = 1e-9 * (double)spent.of[SHEAF__SPENT_ATTENTION],
                                .transfers = 1e-9 * (double)spent.of[SHEAF__SPENT_TRANSFERS] };
    if (s->untimed > 0)
        s->untimed--;
    else if ((double)spent.marks * MARK > MOST_OF_MARKS * seconds && seconds > 0)
        s->untimed = (int64_t)((double)spent.marks * MARK / (MOST_OF_MARKS * seconds));
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        out->kind[k] = device->at_peak[k];
    sent_to(out->sent_to, s->grid);
    for (int r = 0; r < SHEAF_MAX_SLICES; r++)
        out->sent_to[r] -= s->to_then[r];
}

static void add_up(sheaf__usage_total *all, const sheaf_event_rank *one,
                   const sheaf_event_spent *spent, double seconds)
{
    sheaf_event_rank *sum = &all->sum;
    all->steps++;
    all->seconds += seconds;
    sum->compute += one->compute;
    sum->wait += one->wait;
    sum->exchange += one->exchange;
    sum->read += one->read;
    sum->save += one->save;
    sum->sent += one->sent;
    sum->received += one->received;
    sum->memory = one->memory > sum->memory ? one->memory : sum->memory;
    sum->process = one->process > sum->process ? one->process : sum->process;
    all->timed += spent->timed;
    all->products += spent->products;
    all->attention += spent->attention;
    all->transfers += spent->transfers;
}

void sheaf__usage_end(sheaf__usage_list *list, sheaf__usage *s)
{
    const double seconds = sheaf__seconds() - s->began;
    const sheaf__count now = exchanged(s->grid), of = sheaf__count_since(&now, &s->then);
    const int me = sheaf_comm_rank(s->grid->all);
    sheaf_event_rank *one = &list->rank[me];
    *one = (sheaf_event_rank){ .wait = of.waiting,
                               .exchange = of.moving + of.summing,
                               .read = sheaf__stepper_reading(s->rank->stepper) - s->reading,
                               .save = s->saving,
                               .sent = of.sent,
                               .received = of.received,
                               .memory = s->rank->device->peak,
                               .process = process_bytes() };
    one->compute = seconds - one->wait - one->exchange - one->read;
    s->saving = 0;
    look(&list->spent[me], s, seconds);
    const sheaf_event_offload moved = offloaded(s);
    list->offload[me] = offload_since(&moved, &s->offload_then);
    add_offload(&s->all.offload, &list->offload[me]);
    s->offload_then = moved;
    add_up(&s->all, one, &list->spent[me], seconds);
}

sheaf_status *sheaf__usage_share(sheaf__usage_list *list, const sheaf__grid *grid)
{
    struct {
        sheaf_event_rank rank;
        sheaf_event_spent spent;
        sheaf_event_offload offload;
    } each[SHEAF_MAX_SLICES];
    const int ranks = sheaf_comm_ranks(grid->all), me = sheaf_comm_rank(grid->all);
    if (ranks == 1)
        return NULL;
    each[me].rank = list->rank[me];
    each[me].spent = list->spent[me];
    each[me].offload = list->offload[me];
    sheaf_status *st = sheaf__all_gather(grid->all, each, sizeof *each);
    for (int r = 0; r < ranks && st == NULL; r++) {
        list->rank[r] = each[r].rank;
        list->spent[r] = each[r].spent;
        list->offload[r] = each[r].offload;
    }
    return st;
}

/* Adds the rest of the run: saving after the last step, memory, and bytes by rank. */
static void finish(sheaf__usage *s)
{
    const sheaf__device *device = s->rank->device;
    circle of[2];
    circles_of(of, s->grid);
    s->all.sum.save += s->saving;
    s->saving = 0;
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
        s->all.held[k] = device->in_use[k];
        s->all.most[k] = device->peak_of[k];
    }
    for (int i = 0; i < 2; i++) {
        if (of[i].comm == NULL)
            continue;
        const sheaf__counters *counters = sheaf_comm_counters(of[i].comm);
        for (int t = 0; t < SHEAF__TRAFFICS; t++)
            sheaf__count_add(&s->all.exchange[t], &counters->of[t]);
        for (int p = 0; p < sheaf_comm_ranks(of[i].comm); p++) {
            s->all.to[of[i].first + p * of[i].stride] += counters->to[p];
            s->all.from[of[i].first + p * of[i].stride] += counters->from[p];
        }
    }
}

sheaf__sent_from sheaf__sent_from_of(const sheaf__grid *grid, const sheaf__device *device)
{
    if (grid->processes == NULL || device->class->peers == NULL)
        return SHEAF__SENT_FROM_HOST;
    return sheaf_comm_reads_gpus(grid->processes) ? SHEAF__SENT_FROM_GPU : SHEAF__SENT_FROM_PINNED;
}

sheaf_status *sheaf__usage_gather(sheaf__usage_total **out, sheaf__usage *s)
{
    const int ranks = sheaf_comm_ranks(s->grid->all);
    sheaf__usage_total *list = calloc((size_t)ranks, sizeof *list);
    sheaf_status *st =
        sheaf_comm_agree(s->grid->all, list == NULL ? sheaf__no_memory("times of ranks") : NULL);
    if (st == NULL) {
        finish(s);
        s->all.sent_from = sheaf__sent_from_of(s->grid, s->rank->device);
        list[sheaf_comm_rank(s->grid->all)] = s->all;
        st = sheaf__all_gather(s->grid->all, list, sizeof *list);
    }
    if (st != NULL) {
        free(list);
        return st;
    }
    *out = list;
    return NULL;
}

/* Seconds of a step. */
static double busy(const sheaf__usage_total *one)
{
    return one->steps == 0 ? 0 : (one->sum.compute + one->sum.read) / (double)one->steps;
}

static double waiting(const sheaf__usage_total *one)
{
    return one->steps == 0 ? 0 : one->sum.wait / (double)one->steps;
}

int sheaf__usage_slowest(const sheaf__usage_total *list, int ranks)
{
    int slowest = 0;
    for (int r = 1; r < ranks; r++)
        if (busy(&list[r]) > busy(&list[slowest]))
            slowest = r;
    return slowest;
}

void sheaf__usage_why(sheaf_text *text, const sheaf__usage_total *list, int ranks)
{
    const int slowest = sheaf__usage_slowest(list, ranks);
    const sheaf__usage_total *it = &list[slowest];
    double others = 0, wait = 0;
    for (int r = 0; r < ranks; r++)
        if (r != slowest) {
            others += busy(&list[r]) / (ranks - 1);
            wait += waiting(&list[r]) / (ranks - 1);
        }
    sheaf__text_add(
        text,
        "slowest: rank %d computes %.3g s a step%s and waits %.3g s; the others compute "
        "%.3g s and wait %.3g s",
        slowest, busy(it), it->sum.read > 0.1 * it->sum.compute ? ", reading included," : "",
        waiting(it), others, wait);
}

/* ---- a slow rank ---- */

enum { LEAST_STEPS = 2, WINDOWS_QUIET = 20 };

/* How much longer a slow rank computes, and how much of the time it makes the others wait: above
 * the effects of a busy machine or an uneven cut. */
#define MORE 1.5
#define WAITING 0.2

static void judge(sheaf_text *text, sheaf__slow *s, int ranks, const sheaf_comm *all)
{
    int slowest = 0;
    double busy = 0, wait = 0;
    for (int r = 1; r < ranks; r++)
        if (s->busy[r] > s->busy[slowest])
            slowest = r;
    for (int r = 0; r < ranks; r++)
        if (r != slowest) {
            busy += s->busy[r] / (ranks - 1);
            wait += s->wait[r] / (ranks - 1);
        }
    if (s->busy[slowest] < MORE * busy || wait < WAITING * s->seconds ||
        wait < 2 * s->wait[slowest] || (s->named == slowest + 1 && s->quiet > 0))
        return;
    s->named = slowest + 1;
    s->quiet = WINDOWS_QUIET * s->window;
    sheaf__text_add(text, "rank %d", slowest);
    if (all != NULL)
        sheaf__text_add(text, " (host %s)", sheaf__all_host(all, slowest));
    sheaf__text_add(
        text,
        " is slow: in the last %.3g s it computed for %.3g s and waited for %.3g s, the "
        "others computed for %.3g s and waited for %.3g s; look at its host, and at what "
        "sheaf plan gives it to do",
        s->seconds, s->busy[slowest], s->wait[slowest], busy, wait);
}

void sheaf__slow_step(sheaf_text *text, sheaf__slow *slow, const sheaf_event_rank *list, int ranks,
                      double seconds, const sheaf_comm *all)
{
    if (ranks < 2 || slow->window <= 0)
        return;
    slow->seconds += seconds;
    slow->quiet -= seconds;
    slow->steps++;
    for (int r = 0; r < ranks; r++) {
        slow->busy[r] += list[r].compute + list[r].read;
        slow->wait[r] += list[r].wait;
    }
    if (slow->seconds < slow->window || slow->steps < LEAST_STEPS)
        return;
    judge(text, slow, ranks, all);
    slow->seconds = 0;
    slow->steps = 0;
    memset(slow->busy, 0, sizeof slow->busy);
    memset(slow->wait, 0, sizeof slow->wait);
}
