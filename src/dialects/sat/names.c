/* names.c - parses the names of SAT's files and folders: a part's rank, a step, a rank's clock; see
 * parts.h. No I/O. */
#include <ctype.h>

#include "base/base.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

int sheaf__sat_rank_of(const char *name)
{
    int rank;
    return sheaf__take_word(&name, "mp_rank_") && sheaf__take_number(&rank, &name) &&
                   strcmp(name, "_model_states.pt") == 0 && rank < SHEAF_SAT_MOST_RANKS
               ? rank
               : -1;
}

int64_t sheaf__sat_step_of(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits <= 18 && text[digits] == '\0')
        return strtoll(text, NULL, 10);
    return strcmp(text, "release") == 0 ? -1 : -2;
}

sheaf__sat_stamp sheaf__sat_stamp_of(const char *name)
{
    static const char shape[] = "-00-00-00-00";
    sheaf__sat_stamp s = { 0 };
    const size_t n = strlen(name), m = sizeof shape - 1;
    if (n < m)
        return s;
    const char *at = name + n - m;
    for (size_t i = 0; i < m; i++)
        if (shape[i] == '-' ? at[i] != '-' : !isdigit((unsigned char)at[i]))
            return s;
    s = (sheaf__sat_stamp){ true, atoi(at + 1), atoi(at + 4), atoi(at + 7), atoi(at + 10), n - m };
    s.has = s.month >= 1 && s.month <= 12 && s.day >= 1 && s.day <= 31 && s.hour <= 23 &&
            s.minute <= 59;
    return s;
}

static int64_t minute_of_year(const sheaf__sat_stamp *s, bool leap)
{
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
    const int day = before[s->month - 1] + (leap && s->month > 2) + s->day - 1;
    return ((int64_t)day * 24 + s->hour) * 60 + s->minute;
}

/* A stamp has no year: the nearest difference in either calendar. */
int64_t sheaf__sat_minutes(const sheaf__sat_stamp *a, const sheaf__sat_stamp *b)
{
    int64_t best = INT64_MAX;
    for (int leap = 0; leap < 2; leap++) {
        const int64_t year = (leap ? 366 : 365) * INT64_C(1440);
        int64_t apart = minute_of_year(a, leap != 0) - minute_of_year(b, leap != 0);
        apart = apart < 0 ? -apart : apart;
        apart = year - apart < apart ? year - apart : apart;
        best = apart < best ? apart : best;
    }
    return best;
}
