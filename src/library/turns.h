/* turns.h - something is timed again and again: which turn is the fastest, and when there have been
 * enough. Others on the machine come and go, so the fastest is the truth. */
#ifndef SHEAF_LIBRARY_TURNS_H
#define SHEAF_LIBRARY_TURNS_H

#include <stdbool.h>

enum { SHEAF__MOST_TURNS = 256, SHEAF__MOST_STEPS = 32 };
/* Seconds: turns end when they have taken so long and the two fastest agree, or after the most. */
#define SHEAF__LEAST_SECONDS 2.0
#define SHEAF__MOST_SECONDS 12.0

/* One of the things that take turns; begins as zeros. */
typedef struct sheaf__turns {
    int n;                             /* that count */
    double seconds[SHEAF__MOST_TURNS]; /* of these */
    double fastest, second;            /* the two fastest; 0: not yet */
} sheaf__turns;

/* sheaf__turns_add - is it the fastest so far? Of one that is full nothing is kept. */
bool sheaf__turns_add(sheaf__turns *turns, double seconds);
/* sheaf__turns_count - does turn number `turn` (from 0) of one of `n` things count? The first one
 * has memory to clear, and does only where it is so long that more would be too long. */
bool sheaf__turns_count(int turn, double seconds, int n);
/* sheaf__turns_enough - of `n` things that have each taken `turns` turns, of `most` in all, in
 * `seconds`. Of what
 * counts there is at least one turn of each, unless none did in five times the most seconds. */
bool sheaf__turns_enough(const sheaf__turns *of, int n, int turns, int most, double seconds);
/* sheaf__turns_middle - the middle one of those that count, at least one. */
double sheaf__turns_middle(const sheaf__turns *turns);

#endif
