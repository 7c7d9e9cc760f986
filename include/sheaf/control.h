/* control.h - asks what is running to stop, or to save: from another thread, or a signal handler.
 *
 * The library installs no handlers. One control may be given to any number of operations. */
#pragma once

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_control sheaf_control;

/* sheaf_control_new - errors: SHEAF_E_MEMORY. Free it once nothing uses it; accepts NULL. */
SHEAF_API sheaf_status *sheaf_control_new(sheaf_control **out);
SHEAF_API void sheaf_control_free(sheaf_control *control);

/* sheaf_control_stop - what runs ends soon with SHEAF_E_STOPPED: training at the end of its step,
 * with its state saved; what writes leaves nothing behind. Lasts: it ends later calls, too.
 * Thread-safe, and may be called in a signal handler. */
SHEAF_API void sheaf_control_stop(sheaf_control *control);
/* sheaf_control_save - training saves a checkpoint at the end of its step and goes on; nothing for
 * others. Of several runs with one control, the first to end its step saves. Thread-safe, and may
 * be called in a signal handler. */
SHEAF_API void sheaf_control_save(sheaf_control *control);

#ifdef __cplusplus
}
#endif
