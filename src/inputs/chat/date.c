/* date.c - see date.h. */
#include "inputs/chat/date.h"

#include <ctype.h>
#include <locale.h>
#include <time.h>

#include "base/base.h"

/* With the days of week and year; a day that no calendar has becomes another one. */
static struct tm calendar(sheaf__date d)
{
    struct tm day = { .tm_year = d.year - 1900, .tm_mon = d.month - 1, .tm_mday = d.day };
    timegm(&day);
    return day;
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
    const struct tm day = calendar(d);
    if (d.year < 1000 || day.tm_mon != d.month - 1 || day.tm_mday != d.day)
        return false;
    *out = d;
    return true;
}

bool sheaf__date_write(char out[SHEAF__DATE_SIZE], const char *format, size_t size, sheaf__date d)
{
    enum { MOST = 128 };
    char ended[MOST]; /* with a blank behind it, as an empty text is no failure */
    if (size + 2 > sizeof ended || memchr(format, '\0', size) != NULL)
        return false;
    snprintf(ended, sizeof ended, "%.*s ", (int)size, format);
    for (const char *at = ended; (at = strchr(at, '%')) != NULL; at++) {
        const bool plain = *++at == '-'; /* without a leading zero */
        if (strchr(plain ? "dmyj" : "dmyjeYFBbhAa%", *(at += plain)) == NULL)
            return false;
    }
    const locale_t english = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const struct tm day = calendar(d);
    const size_t n =
        english == (locale_t)0 ? 0 : strftime_l(out, SHEAF__DATE_SIZE, ended, &day, english);
    freelocale(english);
    out[n > 0 ? n - 1 : 0] = '\0';
    return n > 0;
}

sheaf__date sheaf__date_today(void)
{
    struct tm local;
    const time_t now = time(NULL);
    localtime_r(&now, &local);
    return (sheaf__date){ local.tm_year + 1900, local.tm_mon + 1, local.tm_mday };
}
