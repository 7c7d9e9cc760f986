/* cores.h - how many processors this process may use. */
#ifndef SHEAF_BASE_CORES_H
#define SHEAF_BASE_CORES_H

/* sheaf__cores - `asked` where it is above 0; else the processors that the scheduler lets the
 * process have, 1 where it does not say. */
int sheaf__cores(int asked);

#endif
