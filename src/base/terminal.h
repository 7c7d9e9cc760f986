/* terminal.h - what a stream that may be a terminal can show. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* sheaf__terminal_rewrites - is it a terminal on which a line can be written again in its place?
 * Not without TERM, nor where that says dumb. */
bool sheaf__terminal_rewrites(FILE *stream);
/* sheaf__terminal_steers - does it take escape sequences, too? Not where NO_COLOR is set. */
bool sheaf__terminal_steers(FILE *stream);
/* sheaf__terminal_columns - of the terminal as it is now, at most as many as COLUMNS says; 80 where
 * neither says it. At least 2. */
int sheaf__terminal_columns(FILE *stream);
