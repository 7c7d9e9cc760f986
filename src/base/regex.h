/* regex.h - PCRE2: whether it failed for want of memory or because of a pattern, and Python's re on
 * names, which are plain ASCII without line ends: there both mean the same. */
#pragma once

#include <stdbool.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "sheaf/status.h"

/* sheaf__regex_starved - of the error number of pcre2_compile() and of what pcre2_match() and
 * pcre2_substitute() return: was an allocation denied? */
static inline bool sheaf__regex_starved(int code)
{
    return code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY;
}

/* sheaf__regex_match - Python's re.fullmatch (whole) or re.match on one pattern made of up to three
 * texts put end to end. *group (may be NULL) is group 1 as a number, -1 if it did not take part.
 * Errors: SHEAF_E_ARG for an invalid pattern, or one that exceeds the limits of the matcher. */
sheaf_status *sheaf__regex_match(bool *out, int64_t *group, const char *before, const char *pattern,
                                 const char *after, const char *subject, bool whole);
