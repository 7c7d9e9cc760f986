/* slow.c - see slow.h. */
#include "train/slow.h"

#include <string.h>

enum { LEAST_STEPS = 2, WINDOWS_QUIET = 20 };

/* How much more a slow rank computes, and how much of the time it makes the others wait: what a
 * busy machine or an uneven cut do to ranks is less. */
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
        wait < 2 * s->wait[slowest] || (s->told == slowest + 1 && s->quiet > 0))
        return;
    s->told = slowest + 1;
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
