/* date.h - the date that a chat template writes.
 *
 * Templates ask for today as strftime_now("%d %b %Y"). What a model learns must not depend on the
 * day it is trained, so a date is always handed in here: the clock is read in one place, by whoever
 * answers a person. Names of days and months are English, as Python writes them. */
#pragma once

#include "base/base.h"

typedef struct sheaf__date {
    int year, month, day; /* 1000 to 9999, 1 to 12, 1 to 31 */
} sheaf__date;

enum { SHEAF__DATE_SIZE = 128 };

/* sheaf__date_looks - four digits, two and two, with - between: YYYY-MM-DD. */
bool sheaf__date_looks(const char *text);
/* sheaf__date_read - YYYY-MM-DD; false for other texts and for days that no calendar has. */
bool sheaf__date_read(sheaf__date *out, const char *text);
/* sheaf__date_write - as strftime() writes it. False for a format that is not known here, or names
 * a time of the day, and for one that gives more than SHEAF__DATE_SIZE - 1 bytes. */
bool sheaf__date_write(char out[SHEAF__DATE_SIZE], const char *format, size_t size,
                       sheaf__date date);
/* sheaf__date_today - by this machine's clock and time zone. */
sheaf__date sheaf__date_today(void);
