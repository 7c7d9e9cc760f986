/* number.h - numbers as text, for lines that people or programs read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHEAF__NUMBER = 32 };

/* "812 B", "3.2 GiB" */
const char *sheaf__number_bytes(char buffer[SHEAF__NUMBER], uint64_t bytes);
/* "59 s", "12:05", "3:07:00", "2d 03:00"; "?" when not known (negative or NaN) */
const char *sheaf__number_time(char buffer[SHEAF__NUMBER], double seconds);
/* "812", "81.2 k", "1.25 M" */
const char *sheaf__number_rate(char buffer[SHEAF__NUMBER], double per_second);
/* sheaf__numbers_read - is the text n finite numbers with commas between them? out[n]. */
bool sheaf__numbers_read(double *out, int n, const char *text);
