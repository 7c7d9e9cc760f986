/* signals.c - see signals.h. */
#include "train/signals.h"

#include <signal.h>
#include <stddef.h>

void sheaf_signals_note(sheaf_signals *signals, int number)
{
    if (number == SIGUSR1)
        atomic_store(&signals->save, 1);
    else
        atomic_store(&signals->stop, number);
}

int sheaf_signals_poll(sheaf_signals *signals)
{
    if (signals == NULL)
        return 0;
    const int save = atomic_exchange(&signals->save, 0) ? SHEAF_SIGNAL_SAVE : 0;
    return save | (atomic_load(&signals->stop) ? SHEAF_SIGNAL_STOP : 0);
}
