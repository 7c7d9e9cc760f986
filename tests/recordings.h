/* recordings.h - where recordings of a kind are: $SHEAF_RECORDINGS/KIND (all of them), else a part
 * of them in tests/data/KIND. */
#pragma once

#include <stdbool.h>

#include "tests/sources.h"

/* recordings_are_full - not only the committed part. */
static inline bool recordings_are_full(void)
{
    const char *all = getenv("SHEAF_RECORDINGS");
    return all != NULL && *all != '\0';
}

/* recording - "ROOT/name", name beginning with the kind. */
static inline const char *recording(const char *name)
{
    return recordings_are_full() ? textf("%s/%s", getenv("SHEAF_RECORDINGS"), name)
                                 : in_sources("tests/data/%s", name);
}
