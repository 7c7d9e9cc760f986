/* verdict.h - diagnosis from the records of all ranks: which waits for which, and the message of a
 * run that cannot go on. No sockets, no clock. */
#pragma once

#include "base/base.h"
#include "comm/activity.h"
#include "comm/watch/self.h"
#include "sheaf/owner.h"

typedef enum sheaf__verdict_kind {
    SHEAF__DIED = 1, /* its connection closed without a goodbye */
    SHEAF__LOST,     /* the same, but it lives, or may live on another machine */
    SHEAF__STOPPED,  /* it is silent */
    SHEAF__HANGS,    /* all ranks live and none makes progress */
    SHEAF__DEADLOCK, /* the same, as they do not make the same call */
} sheaf__verdict_kind;

/* What is known of all ranks. */
typedef struct sheaf__ranks {
    int count, in_group; /* T * D; T */
    bool known[SHEAF_MAX_SLICES];
    sheaf__report report[SHEAF_MAX_SLICES];
} sheaf__ranks;

/* sheaf__waits_for - does rank a wait in a call for rank b, which has not come to it? */
bool sheaf__waits_for(const sheaf__ranks *ranks, int a, int b);
/* sheaf__blocking - is `rank` one that others wait for and that waits for none? */
bool sheaf__blocking(const sheaf__ranks *ranks, int rank);

/* sheaf__deadlock - do ranks wait for each other in a circle, as they do not make the same calls?
 * Each of these has been in its call for `least_ms`; *a waits for *b, both of the circle. */
bool sheaf__deadlock(const sheaf__ranks *ranks, int least_ms, int *a, int *b);
/* sheaf__hang_limit - seconds without progress that are a hang, where `hang_after` is the user's
 * setting: more while a rank is "finishing", as a system may write for long what it has kept back.
 */
double sheaf__hang_limit(const sheaf__ranks *ranks, double hang_after);

/* sheaf__verdict_text - the message.
 *   rank  the one that died or is silent (0: what another one knows of the first); -1: all hang
 *   s     seconds it is silent, or that nothing happens
 *   self  its process
 *   cure  what to try; NULL: as of a training run */
void sheaf__verdict_text(sheaf_text *out, sheaf__verdict_kind kind, const sheaf__ranks *ranks,
                         int rank, double s, const sheaf__self *self, const char *cure);
