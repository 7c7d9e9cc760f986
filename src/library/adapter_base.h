/* adapter_base.h - are adapters those of a base? For commands that do not run the model. */
#pragma once

#include "base/events.h"
#include "sheaf/status.h"

/* sheaf__adapters_base - sheaf__compare_base() for each of n adapters. The base is opened, and all
 * of it read, only where one carries a fingerprint.
 *   config  of the base, where its folder has none; NULL
 * A base that sheaf does not run has none to compare: a warning. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__adapters_base(const char *base, const char *config,
                                   const char *const *adapters, int n, const sheaf_events *events);
