/* first.c - the first process's side of the watch: it hears of all ranks, judges, and tells what
 * happened, once. See inner.h. */
#include <unistd.h>

#include "base/base.h"
#include "comm/watch/inner.h"

enum { APART_MS = 2000, SILENT_S = 3 };

/* ---- the end ---- */

/* Ends the run in all processes. */
static void end_all(sheaf__watch *w, const sheaf_text *text, const sheaf__watch_ending *e, int gone)
{
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].process > 0)
            sheaf__line_send(w->peer[i].fd, SHEAF__END, e, sizeof *e);
    sheaf__watch_kill_here(w, e);
    w->o.end(w->o.self, &(sheaf__watch_end){
                            .text = text->at == NULL ? "sheaf: the run cannot go on\n" : text->at,
                            .gone = gone });
}

/* How many processes of the machine of `p` there are, if all of them are silent; else 0. */
static int gone_with(const sheaf__watch *w, const sheaf__watch_peer *p, double now)
{
    int gone = 0;
    if (p->self.machine == w->self.machine)
        return 0;
    for (int i = 0; i < w->peers; i++) {
        const sheaf__watch_peer *other = &w->peer[i];
        if (other->process <= 0 || other->self.machine != p->self.machine)
            continue;
        if (now - other->heard < w->o.heartbeat / 2)
            return 0;
        gone++;
    }
    return gone;
}

void sheaf__watch_lost(sheaf__watch *w, sheaf__verdict_kind kind, const sheaf__watch_peer *p,
                       double now)
{
    sheaf_text text = { 0 };
    sheaf__watch_ending e = { .victims = 1, .victim = { p->self } };
    sheaf__watch_tell_own(w);
    sheaf__verdict_text(&text, kind, &w->ranks, p->process, now - p->heard, &p->self, w->o.cure);
    end_all(w, &text, &e, kind == SHEAF__STOPPED ? gone_with(w, p, now) : 0);
    sheaf__text_release(&text);
}

/* ---- a hang ---- */

static void hangs(sheaf__watch *w, sheaf__verdict_kind kind, double now)
{
    sheaf_text text = { 0 };
    const sheaf__watch_ending none = { 0 };
    sheaf__verdict_text(&text, kind, &w->ranks, -1, now - w->progressed, NULL, w->o.cure);
    end_all(w, &text, &none, 0);
    sheaf__text_release(&text);
}

/* Is what is known of all ranks of the same moment? */
static bool all_told(const sheaf__watch *w, double now)
{
    int told = 0;
    for (int i = 0; i < w->peers; i++)
        told += w->peer[i].process > 0 && w->peer[i].fd >= 0 && !w->peer[i].bye &&
                now - w->peer[i].heard <= 2e-3 * SHEAF__BEAT_MS;
    return told == w->o.processes - 1;
}

void sheaf__watch_judge_hang(sheaf__watch *w, double now)
{
    uint64_t progress = 0;
    bool idle = false;
    int a, b;
    for (int i = 0; i < w->o.ranks; i++) {
        progress += w->ranks.told[i].ticks;
        idle |= w->ranks.told[i].idle != 0;
    }
    if (idle || progress != w->progress || w->progressed == 0) {
        w->progress = progress;
        w->progressed = now;
        return;
    }
    const double still = now - w->progressed;
    const bool all = all_told(w, now);
    if (all && sheaf__apart(&w->ranks, APART_MS, &a, &b))
        hangs(w, SHEAF__APART, now);
    /* a silent process is about to be reported as that, and killed */
    if (w->o.hang_after > 0 &&
        still >= sheaf__patience(&w->ranks, w->o.hang_after) + (all ? 0 : SILENT_S))
        hangs(w, SHEAF__HANGS, now);
}

/* ---- frames ---- */

static void greet(sheaf__watch *w, sheaf__watch_peer *p, const void *bytes, size_t size)
{
    sheaf__watch_hello h;
    if (size != sizeof h)
        return;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.token, w->place.token, sizeof h.token) != 0 || h.process < 1 ||
        h.process >= w->o.processes)
        return;
    p->process = h.process;
    p->self = h.self;
    p->self.host[sizeof p->self.host - 1] = '\0';
    h.process = 0;
    h.self = w->self;
    sheaf__line_send(p->fd, SHEAF__WELCOME, &h, sizeof h);
    sheaf__watch_tell_own(w);
    sheaf__line_send(p->fd, SHEAF__BEAT, &w->ranks.told[0], sizeof(sheaf__told));
}

void sheaf__watch_hear_other(sheaf__watch *w, sheaf__watch_peer *p, int kind, const void *bytes,
                             size_t size)
{
    if (p->process < 0) {
        if (kind == SHEAF__HELLO)
            greet(w, p, bytes, size);
    } else if (kind == SHEAF__BEAT && size == sizeof(sheaf__told)) {
        sheaf__watch_take_told(w, p->process, bytes);
    }
}

/* Of callers that have not said who they are the oldest makes place for the next. */
void sheaf__watch_welcome(sheaf__watch *w, double now)
{
    const int fd = sheaf__line_accept(w->listens);
    sheaf__watch_peer *place = NULL;
    for (int i = 0; i < w->peers && fd >= 0; i++) {
        sheaf__watch_peer *p = &w->peer[i];
        if (p->process < 0 &&
            (place == NULL || (place->fd >= 0 && (p->fd < 0 || p->heard < place->heard))))
            place = p;
    }
    if (place != NULL) {
        if (place->fd >= 0)
            close(place->fd);
        *place = (sheaf__watch_peer){ .fd = fd, .process = -1, .heard = now };
    } else if (fd >= 0) {
        close(fd);
    }
}
