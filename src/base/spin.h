/* spin.h - how often a thread polls a condition before it sleeps.
 *
 * Sleeping and waking costs tens of microseconds, and work that threads share often has gaps
 * shorter than that. Where more threads than cores run, the condition comes late, and polling
 * would only delay it. So a thread adapts to its earlier waits: it polls up to four times as often
 * as the last wait needed, half as often after each wait in which polling failed, and for the
 * longest time once in a while. Otherwise two threads that both sleep would never find out that
 * neither had to. */
#pragma once

#include "base/base.h"
#include "base/thread.h"

enum {
    SHEAF__SPIN_MOST = 4000, /* with a pause between, about as long as sleeping takes */
    SHEAF__SPIN_LEAST = 40,  /* less than two context switches */
    SHEAF__SPIN_PROBE = 64   /* once in so many waits a thread polls longest */
};

typedef struct sheaf__spin {
    uint32_t looks, waits; /* zeros at the start */
} sheaf__spin;

/* sheaf__spin_begin - number of polls in the wait that begins. */
static inline uint32_t sheaf__spin_begin(sheaf__spin *p)
{
    if (p->looks < SHEAF__SPIN_LEAST)
        p->looks = SHEAF__SPIN_LEAST;
    return p->waits++ % SHEAF__SPIN_PROBE == 0 ? SHEAF__SPIN_MOST : p->looks;
}

/* sheaf__spin_end - whether the condition came, and after how many polls. */
static inline void sheaf__spin_end(sheaf__spin *p, bool came, uint32_t looks)
{
    if (!came)
        p->looks /= 2;
    else if (4 * looks > p->looks)
        p->looks = 4 * looks < SHEAF__SPIN_MOST ? 4 * looks : SHEAF__SPIN_MOST;
}

/* sheaf__spin_wait - polls came(of) until it is true, or until it is time to sleep: false.
 */
static inline bool sheaf__spin_wait(sheaf__spin *p, bool (*came)(void *of), void *of)
{
    const uint32_t most = sheaf__spin_begin(p);
    for (uint32_t looks = 0; looks < most; looks++) {
        if (came(of)) {
            sheaf__spin_end(p, true, looks);
            return true;
        }
        sheaf__pause();
    }
    sheaf__spin_end(p, false, most);
    return false;
}
