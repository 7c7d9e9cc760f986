/* turns.c - see turns.h. */
#include "library/turns.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 4 }; /* of each, where they are short */
#define AGREE 1.03

bool sheaf__turns_add(sheaf__turns *t, double seconds)
{
    const bool fastest = t->n == 0 || seconds < t->fastest;
    if (t->n == SHEAF__MOST_TURNS)
        return false;
    t->seconds[t->n++] = seconds;
    if (fastest) {
        t->second = t->fastest;
        t->fastest = seconds;
    } else if (t->second == 0 || seconds < t->second) {
        t->second = seconds;
    }
    return fastest;
}

bool sheaf__turns_count(int turn, double seconds, int n)
{
    return turn > 0 || seconds * n >= SHEAF__MOST_SECONDS / 2;
}

bool sheaf__turns_enough(const sheaf__turns *of, int n, int turns, int most, double seconds)
{
    bool agree = turns >= FEWEST && seconds >= SHEAF__LEAST_SECONDS, each = true;
    for (int i = 0; i < n; i++) {
        agree = agree && of[i].n > 1 && of[i].second <= AGREE * of[i].fastest;
        each = each && of[i].n > 0;
    }
    return agree || turns * n >= most || (each && seconds >= SHEAF__MOST_SECONDS) ||
           seconds >= 5 * SHEAF__MOST_SECONDS;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sheaf__turns_middle(const sheaf__turns *t)
{
    double sorted[SHEAF__MOST_TURNS];
    memcpy(sorted, t->seconds, sizeof sorted);
    qsort(sorted, (size_t)t->n, sizeof *sorted, ascending);
    return sorted[t->n / 2];
}
