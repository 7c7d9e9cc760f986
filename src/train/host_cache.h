/* host_cache.h - where a process whose host does not see OUT keeps the tokenised texts of large
 * data: in a folder of its host, which all that this run has there share and which is gone once
 * they have opened them. */
#pragma once

#include "sheaf/status.h"

/* sheaf__host_cache_path - the folder (malloc'd), which need not be there: one of $TMPDIR, else
 * /tmp, named after the user, the host of the first process and OUT, so that a run takes up what it
 * left there when it was killed. Errors: SHEAF_E_IO where it is somebody else's; SHEAF_E_MEMORY. */
sheaf_status *sheaf__host_cache_path(char **out, const char *first_host, const char *run);
/* sheaf__host_cache_remove - also one that is not there. What is open can still be read. Accepts
 * NULL. */
sheaf_status *sheaf__host_cache_remove(const char *folder);
