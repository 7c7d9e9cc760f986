/* date.h - the date that a chat template writes.
 *
 * Templates ask for today as strftime_now("%d %b %Y"). A trained model must not depend on the day
 * of its training, so the date is an argument: only interactive commands read the clock. Names of
 * days and months are English, as Python writes them. */
#pragma once

#include "base/base.h"

typedef struct sheaf__date {
    int year, month, day; /* 1000 to 9999, 1 to 12, 1 to 31 */
} sheaf__date;

enum { SHEAF__DATE_SIZE = 128 };

/* sheaf__date_looks - has the text the form YYYY-MM-DD? */
bool sheaf__date_looks(const char *text);
/* sheaf__date_read - YYYY-MM-DD; false for other texts and for invalid days. */
bool sheaf__date_read(sheaf__date *out, const char *text);
/* sheaf__date_write - as strftime() writes it. False for a format that is not supported or has a
 * time of day, and for a result of more than SHEAF__DATE_SIZE - 1 bytes. */
bool sheaf__date_write(char out[SHEAF__DATE_SIZE], const char *format, size_t size,
                       sheaf__date date);
/* sheaf__date_today - by this machine's clock and time zone. */
sheaf__date sheaf__date_today(void);
