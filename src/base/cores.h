/* cores.h - how many processors this process may use. */
#pragma once

/* sheaf__cores - `asked` where it is above 0; else the processors that the scheduler lets the
 * process have, 1 where it does not say. */
int sheaf__cores(int asked);
