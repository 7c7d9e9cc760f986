/* units_none.c - units.h in a build without x86: neither instruction. */
#include "ops/units.h"

bool sheaf__units_have_pairs(void)
{
    return false;
}

bool sheaf__units_have_tiles(void)
{
    return false;
}

bool sheaf__units_lack_permission(void)
{
    return false;
}

bool sheaf__units_prefer_tiles(void)
{
    return false;
}

/* Nothing is computed here. */
void sheaf__units_prefer(bool tiles)
{
    (void)tiles;
}

bool sheaf__units_told(void)
{
    return false;
}

sheaf__units sheaf__units_for(const char *isa)
{
    return (sheaf__units){ false, false };
}

void sheaf__units_measure(double rate[SHEAF__RATES], bool pairs, bool tiles)
{
    for (int i = 0; i < SHEAF__RATES; i++)
        rate[i] = 0;
}
