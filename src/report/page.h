/* page.h - the page of a report: one file that a browser opens from disk. */
#pragma once

#include "base/base.h"

/* sheaf__report_page - the page (malloc'd) around `json`, which sheaf__report_facts() made. What
 * stands in the data can neither end its element nor begin another: <, > and & are escapes there.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__report_page(char **html, const char *json);
