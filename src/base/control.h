/* control.h - private: what a sheaf_control holds. The command's signal handler sets it, a
 * program that embeds sheaf from any thread. */
#pragma once

#include <stdatomic.h>

#include "sheaf/control.h"

enum { SHEAF__CONTROL_SAVE = 1, SHEAF__CONTROL_STOP = 2 };

/* All zero: no request. */
struct sheaf_control {
    atomic_int save; /* save, then go on */
    atomic_int stop; /* save, then stop; holds the signal's number, or any other than 0 */
};

/* sheaf__control_note - SIGUSR1 asks to save, any other number to stop. May be called in a signal
 * handler. */
void sheaf__control_note(sheaf_control *control, int number);
/* sheaf__control_poll - SHEAF__CONTROL_ bits that are set; 0 for NULL. STOP stays; SAVE is given
 * once, to the rank of the process that polls first: ranks must join the result with
 * sheaf_comm_any(). */
int sheaf__control_poll(sheaf_control *control);
/* sheaf__control_stop - not 0 after a request to stop; NULL for NULL. */
const atomic_int *sheaf__control_stop(const sheaf_control *control);
