/* number.c - see number.h. */
#include "base/number.h"

#include <math.h>

#include "base/base.h"

static const char *scaled(char *buffer, double x, double step, const char *const *unit, int units)
{
    int u = 0;
    while (u + 1 < units && x >= step * 0.9995) { /* 1024 KiB is 1 MiB also after rounding */
        x /= step;
        u++;
    }
    snprintf(buffer, SHEAF__NUMBER,
             u == 0 || x >= 99.95 ? "%.0f%s"
             : x >= 9.995         ? "%.1f%s"
                                  : "%.2f%s",
             x, unit[u]);
    return buffer;
}

const char *sheaf__number_bytes(char buffer[SHEAF__NUMBER], uint64_t bytes)
{
    static const char *const unit[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB" };
    return scaled(buffer, (double)bytes, 1024, unit, 6);
}

const char *sheaf__number_rate(char buffer[SHEAF__NUMBER], double per_second)
{
    static const char *const unit[] = { "", " k", " M", " G" };
    return isfinite(per_second) ? scaled(buffer, per_second, 1000, unit, 4) : strcpy(buffer, "?");
}

const char *sheaf__number_time(char buffer[SHEAF__NUMBER], double seconds)
{
    if (!(seconds >= 0) || seconds > 1e9)
        return strcpy(buffer, "?");
    const long s = lround(seconds), minutes = s / 60, hours = s / 3600, days = s / 86400;
    if (s < 60)
        snprintf(buffer, SHEAF__NUMBER, "%ld s", s);
    else if (hours == 0)
        snprintf(buffer, SHEAF__NUMBER, "%ld:%02ld", minutes, s % 60);
    else if (days == 0)
        snprintf(buffer, SHEAF__NUMBER, "%ld:%02ld:%02ld", hours, minutes % 60, s % 60);
    else
        snprintf(buffer, SHEAF__NUMBER, "%ldd %02ld:%02ld", days, hours % 24, minutes % 60);
    return buffer;
}

bool sheaf__numbers_read(double *out, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || !isfinite(out[i]) || *end != (i + 1 < n ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}
