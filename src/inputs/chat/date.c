/* date.c - see date.h. */
#include "inputs/chat/date.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const months[] = { "January",   "February", "March",    "April",
                                      "May",       "June",     "July",     "August",
                                      "September", "October",  "November", "December" };
static const char *const weekdays[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday" };

static int days_of(int month, int year)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

bool sheaf__date_looks(const char *text)
{
    static const char form[] = "0000-00-00";
    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == '0' ? !isdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    return true;
}

bool sheaf__date_read(sheaf__date *out, const char *text)
{
    sheaf__date d = { 0 };
    if (!sheaf__date_looks(text) || sscanf(text, "%4d-%2d-%2d", &d.year, &d.month, &d.day) != 3)
        return false;
    if (d.year < 1000 || d.month < 1 || d.month > 12 || d.day < 1 ||
        d.day > days_of(d.month, d.year))
        return false;
    *out = d;
    return true;
}

static int day_of_year(sheaf__date d)
{
    int day = d.day;
    for (int month = 1; month < d.month; month++)
        day += days_of(month, d.year);
    return day;
}

/* 0 is Sunday. The first day of year 1 of this calendar was a Monday. */
static int weekday_of(sheaf__date d)
{
    const int before = d.year - 1;
    return (before + before / 4 - before / 100 + before / 400 + day_of_year(d)) % 7;
}

/* One field of a format; `plain`: %-d, which glibc writes without a leading zero. */
static bool put_field(char *out, size_t room, char field, bool plain, sheaf__date d)
{
    static const char *const zeros[] = { "%02d", "%d" };
    switch (field) {
    case 'd': return snprintf(out, room, zeros[plain], d.day) > 0;
    case 'm': return snprintf(out, room, zeros[plain], d.month) > 0;
    case 'y': return snprintf(out, room, zeros[plain], d.year % 100) > 0;
    case 'j': return snprintf(out, room, plain ? "%d" : "%03d", day_of_year(d)) > 0;
    default: break;
    }
    if (plain)
        return false;
    switch (field) {
    case 'e': return snprintf(out, room, "%2d", d.day) > 0;
    case 'Y': return snprintf(out, room, "%d", d.year) > 0;
    case 'F': return snprintf(out, room, "%d-%02d-%02d", d.year, d.month, d.day) > 0;
    case 'B': return snprintf(out, room, "%s", months[d.month - 1]) > 0;
    case 'b':
    case 'h': return snprintf(out, room, "%.3s", months[d.month - 1]) > 0;
    case 'A': return snprintf(out, room, "%s", weekdays[weekday_of(d)]) > 0;
    case 'a': return snprintf(out, room, "%.3s", weekdays[weekday_of(d)]) > 0;
    case '%': return snprintf(out, room, "%%") > 0;
    default: return false;
    }
}

bool sheaf__date_write(char out[SHEAF__DATE_SIZE], const char *format, size_t size, sheaf__date d)
{
    enum { LONGEST = 16 }; /* of a field, with its NUL */
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (n + LONGEST > SHEAF__DATE_SIZE || format[i] == '\0')
            return false;
        if (format[i] != '%') {
            out[n++] = format[i];
            continue;
        }
        const bool plain = i + 1 < size && format[i + 1] == '-';
        i += plain ? 2 : 1;
        if (i >= size || !put_field(out + n, LONGEST, format[i], plain, d))
            return false;
        n += strlen(out + n);
    }
    out[n] = '\0';
    return true;
}

sheaf__date sheaf__date_today(void)
{
    struct tm local;
    const time_t now = time(NULL);
    localtime_r(&now, &local);
    return (sheaf__date){ local.tm_year + 1900, local.tm_mon + 1, local.tm_mday };
}
