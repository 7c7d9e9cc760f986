/* paths.h - a set of module paths as a regular expression. */
#pragma once

#include "base/base.h"

/* sheaf__paths_pattern - adds to `text` what matches these paths from end to end and no others.
 * Paths that differ in their first number alone are one alternative,
 * "transformer\.layers\.(0|1|2)\.attention\.dense". Each path is a list entry's whole meaning then:
 * PEFT takes a plain name for the end of any path. */
void sheaf__paths_pattern(sheaf_text *text, const char *const *paths, int64_t n);
