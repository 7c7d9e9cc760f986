/* recordings.h - where recordings of a kind are: $SHEAF_RECORDINGS/KIND (all of them), else a part
 * of them in tests/data/KIND. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* recordings_are_full - not only the committed part. */
static inline bool recordings_are_full(void)
{
    const char *all = getenv("SHEAF_RECORDINGS");
    return all != NULL && *all != '\0';
}

/* recording - "ROOT/name", name beginning with the kind; the last eight results stay valid. */
static inline const char *recording(const char *name)
{
    static char path[8][1536];
    static int next;
    char *p = path[next++ % 8];
    const char *all = getenv("SHEAF_RECORDINGS"), *source = getenv("SHEAF_SOURCE_ROOT");
    if (recordings_are_full())
        snprintf(p, sizeof path[0], "%s/%s", all, name);
    else
        snprintf(p, sizeof path[0], "%s/tests/data/%s", source == NULL ? "." : source, name);
    return p;
}
