/* signals.h - being asked to save or to stop, at the end of a step.
 *
 * The flags belong to the caller: the command's signal handler sets them (its
 * file signals.c), a program that embeds sheaf may set them from any thread.
 * The library installs no handler. */
#ifndef SHEAF_TRAIN_SIGNALS_H
#define SHEAF_TRAIN_SIGNALS_H

#include <stdatomic.h>

enum { SHEAF_SIGNAL_SAVE = 1, SHEAF_SIGNAL_STOP = 2 };

/* All zero: nothing was asked. */
typedef struct sheaf_signals {
    atomic_int save; /* save, then go on */
    atomic_int stop; /* save, then stop; holds the signal's number, or any other than 0 */
} sheaf_signals;

/* sheaf_signals_note - SIGUSR1 asks to save, any other number to stop. May be called in a
 * signal handler. */
void sheaf_signals_note(sheaf_signals *signals, int number);
/* sheaf_signals_poll - SHEAF_SIGNAL_ bits that are set; 0 for NULL. STOP stays; SAVE is
 * handed out once, to whichever rank of the process asks first: ranks must join the
 * answer with sheaf_comm_any(). */
int sheaf_signals_poll(sheaf_signals *signals);

#endif
