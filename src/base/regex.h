/* regex.h - PCRE2, and whether it failed for want of memory or because of a pattern. */
#pragma once

#include <stdbool.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* sheaf__regex_starved - of the error number of pcre2_compile() and of what pcre2_match() and
 * pcre2_substitute() return: was an allocation denied? */
static inline bool sheaf__regex_starved(int code)
{
    return code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY;
}
