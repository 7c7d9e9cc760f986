/* other.c - the side of every process of the watch but the first: it holds a connection to that
 * one, answers it, and ends when it is told to or hears nothing of it any more. See inner.h. */
#include <poll.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "comm/watch/inner.h"

enum { GREET_MS = 5000, TURN_MS = 1000, LOOK_MS = 50, TURNS = 3, CALLS = 3 };

static bool asked_to_stop(const sheaf__watch *w)
{
    return w->o.stop != NULL && atomic_load(w->o.stop) != 0;
}

/* Most launchers end the others when one ends, and Open MPI's asks them to stop before that: they
 * take turns, so that one of them says why. False: another has. */
static bool is_its_turn(const sheaf__watch *w)
{
    const int before = w->o.process - 1;
    const bool asked = asked_to_stop(w);
    for (int ms = TURN_MS * (before < TURNS ? before : TURNS); ms > 0; ms -= LOOK_MS) {
        poll(NULL, 0, LOOK_MS);
        if (!asked && asked_to_stop(w))
            return false;
    }
    return true;
}

/* The first is gone, and nobody else can tell this process anything. */
void sheaf__watch_lost_first(sheaf__watch *w, sheaf__verdict_kind kind)
{
    sheaf_text text = { 0 };
    const sheaf__watch_ending e = { .victims = 1, .victim = { w->peer[0].self } };
    sheaf__watch_tell_own(w);
    sheaf__text_add(&text, "sheaf: the first process (rank 0, host %s, process %lld) %s\n",
                    w->peer[0].self.host, (long long)w->peer[0].self.pid,
                    sheaf__verdict_says(kind));
    if (w->ranks.known[0]) {
        sheaf__text_add(&text, "  last:     ");
        sheaf__told_show(&text, &w->ranks.told[0]);
        sheaf__text_add(&text, "\n");
    }
    sheaf__text_add(&text, "  ");
    sheaf__told_show(&text, &w->ranks.told[sheaf__watch_first_rank(w)]);
    sheaf__text_add(&text, "\n");
    sheaf__verdict_cure(&text, w->o.cure);
    if (kind == SHEAF__STOPPED)
        sheaf__watch_kill_here(w, &e);
    w->o.end(w->o.self, &(sheaf__watch_end){ .text = is_its_turn(w) ? text.at : NULL });
    sheaf__text_release(&text);
}

void sheaf__watch_hear_first(sheaf__watch *w, int kind, const void *bytes, size_t size)
{
    sheaf__watch_ending e;
    if (kind == SHEAF__BEAT && size == sizeof(sheaf__told)) {
        sheaf__watch_take_told(w, 0, bytes);
    } else if (kind == SHEAF__END && size == sizeof e) {
        memcpy(&e, bytes, size);
        sheaf__watch_kill_here(w, &e);
        /* a launcher that sees this process end may kill the first before it has told why */
        poll(NULL, 0, SHEAF__LAST_WORDS_MS);
        w->o.end(w->o.self, &(sheaf__watch_end){ 0 });
    }
}

/* Is it the first process that answers there? */
static bool is_welcome(sheaf__watch *w, sheaf__watch_peer *p)
{
    sheaf__watch_hello h = { .process = w->o.process, .self = w->self };
    const void *bytes = NULL;
    size_t size = 0;
    int kind = 0;
    bool open = true;
    memcpy(h.token, w->place.token, sizeof h.token);
    if (!sheaf__line_send(p->fd, SHEAF__HELLO, &h, sizeof h))
        return false;
    while (kind == 0 && open && sheaf__line_wait(p->fd, GREET_MS)) {
        open = sheaf__line_read(p->fd, &p->in);
        kind = sheaf__line_next(&p->in, &bytes, &size);
    }
    if (kind != SHEAF__WELCOME || size != sizeof h)
        return false;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.token, w->place.token, sizeof h.token) != 0)
        return false;
    p->self = h.self;
    p->self.host[sizeof p->self.host - 1] = '\0';
    p->process = 0;
    p->heard = sheaf__seconds();
    while (sheaf__line_next(&p->in, &bytes, &size) == SHEAF__BEAT)
        sheaf__watch_hear_first(w, SHEAF__BEAT, bytes, size);
    return true;
}

sheaf_status *sheaf__watch_call_first(sheaf__watch *w)
{
    sheaf__watch_peer *p = &w->peer[0];
    const int places = w->place.count < SHEAF__LINE_PLACES ? w->place.count : SHEAF__LINE_PLACES;
    for (int i = 0; i < CALLS * places; i++) { /* again, where strangers were in the way */
        if (i >= places)
            poll(NULL, 0, LOOK_MS);
        p->fd = sheaf__line_connect(&w->place, i % places);
        if (p->fd >= 0 && is_welcome(w, p)) { /* what it does from the beginning, however short */
            sheaf__watch_tell_own(w);
            sheaf__line_send(p->fd, SHEAF__BEAT, &w->ranks.told[sheaf__watch_first_rank(w)],
                             sizeof(sheaf__told));
            return NULL;
        }
        if (p->fd >= 0)
            close(p->fd);
        *p = (sheaf__watch_peer){ .fd = -1, .process = -1 };
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "watching the processes");
    sheaf_expected(st, "a connection from %s to the first process", w->self.host);
    sheaf_found(st, "none at any of its %d addresses", (int)w->place.count);
    return sheaf_try_this(st, "let the hosts of the run connect to each other on any TCP port");
}
