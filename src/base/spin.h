/* spin.h - how often a thread looks for what it waits for before it sleeps.
 *
 * Sleeping and waking costs tens of microseconds, and work that threads share often has gaps
 * shorter than that. Where more threads than cores run, what is waited for comes late, and looking
 * would only keep it away. So a thread goes by what its waits were like: it looks up to four times
 * as often as it last had to, half as often after each wait in which it looked for nothing, and
 * long once in a while, whatever it learnt. Otherwise two threads that both sleep would never find
 * out that neither had to. */
#pragma once

#include "base/base.h"
#include "base/thread.h"

enum {
    SHEAF__SPIN_MOST = 4000, /* with a pause between, about as long as sleeping takes */
    SHEAF__SPIN_LEAST = 40,  /* less than two switches of a thread */
    SHEAF__SPIN_PROBE = 64   /* each so many waits a thread looks long */
};

typedef struct sheaf__spin {
    uint32_t looks, waits; /* zeros at the start */
} sheaf__spin;

/* sheaf__spin_begin - how often to look in the wait that begins. */
static inline uint32_t sheaf__spin_begin(sheaf__spin *p)
{
    if (p->looks < SHEAF__SPIN_LEAST)
        p->looks = SHEAF__SPIN_LEAST;
    return p->waits++ % SHEAF__SPIN_PROBE == 0 ? SHEAF__SPIN_MOST : p->looks;
}

/* sheaf__spin_end - whether what was waited for came, and before how many looks. */
static inline void sheaf__spin_end(sheaf__spin *p, bool came, uint32_t looks)
{
    if (!came)
        p->looks /= 2;
    else if (4 * looks > p->looks)
        p->looks = 4 * looks < SHEAF__SPIN_MOST ? 4 * looks : SHEAF__SPIN_MOST;
}

/* sheaf__spin_wait - looks whether came(of) until it has, or until it is time to sleep: false.
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
