/* print.h - prints text from files to a terminal, and makes it harmless first.
 *
 * Names of tensors, paths and values of configs come from files that anybody may have made. Printed
 * as they are, they could move the cursor, colour, hide or reverse what sheaf says, or end a line
 * and forge the next. So each argument is filtered: control characters (C0, DEL, C1), line and
 * paragraph separators, marks that change the direction of writing, other marks without a width,
 * and bytes that are not UTF-8 become '?', a tab a blank. JSON is written elsewhere, exactly. */
#pragma once

#include "base/base.h"

/* sheaf__print - fprintf(), but every %s is shown as above, cut by its precision between two
 * characters. The format is ours, and its line feeds are. Knows d i u x X o c e g f s % with *,
 * widths, precisions and h, l, ll, z, j, t. */
void sheaf__print(FILE *to, const char *fmt, ...) SHEAF_PRINTF(2, 3);
/* sheaf__print_lines - a text of many lines, as an answer is: line feeds and tabs stay, all else as
 * above. */
void sheaf__print_lines(FILE *to, const char *text);
