/* control.c - see control.h. */
#include "base/control.h"

#include <signal.h>

#include "base/base.h"

sheaf_status *sheaf_control_new(sheaf_control **out)
{
    *out = calloc(1, sizeof **out);
    return *out == NULL ? sheaf__no_memory("control") : NULL;
}

void sheaf_control_free(sheaf_control *control)
{
    free(control);
}

void sheaf_control_stop(sheaf_control *control)
{
    atomic_store(&control->stop, 1);
}

void sheaf_control_save(sheaf_control *control)
{
    atomic_store(&control->save, 1);
}

const atomic_int *sheaf__control_stop(const sheaf_control *control)
{
    return control == NULL ? NULL : &control->stop;
}

void sheaf__control_note(sheaf_control *control, int number)
{
    if (number == SIGUSR1)
        atomic_store(&control->save, 1);
    else
        atomic_store(&control->stop, number);
}

int sheaf__control_poll(sheaf_control *control)
{
    if (control == NULL)
        return 0;
    const int save = atomic_exchange(&control->save, 0) ? SHEAF__CONTROL_SAVE : 0;
    return save | (atomic_load(&control->stop) ? SHEAF__CONTROL_STOP : 0);
}
