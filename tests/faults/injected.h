/* injected.h - faults at exchanges; see injected.c. */
#pragma once

#include <stdbool.h>

/* injected_read - RANK:CALL:N:FAULT, from now on; false: it is none. */
bool injected_read(const char *text, bool trains);
