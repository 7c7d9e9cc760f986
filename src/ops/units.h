/* units.h - what this processor multiplies bfloat16 with.
 *
 * Two instructions compute an order of bfloat16 sums by themselves: vdpbf16ps the order `pairs`,
 * the tiles of AMX the order `tiles`. Float32 fma computes both, with the same bits. Tiles need the
 * system's permission, once a process; a container may refuse it. vdpbf16ps runs at twice the
 * rate of float32 on some processors and at half of it on others, so it is measured. */
#pragma once

#include <stdbool.h>

typedef struct sheaf__units {
    bool pairs; /* vdpbf16ps computes `pairs` */
    bool tiles; /* AMX computes `tiles` */
} sheaf__units;

/* The processor has vdpbf16ps; it has AMX for bfloat16, and the system lets this process use it.
 * Neither in a build without x86. */
bool sheaf__units_have_pairs(void);
bool sheaf__units_have_tiles(void);

/* The processor has them, but the system does not let this process use them. */
bool sheaf__units_lack_permission(void);

/* sheaf__units_for - what a device with these kernels uses: isa NULL or "amx" tiles where they are
 * there, and vdpbf16ps where it pays; "avx512bf16" vdpbf16ps only; others neither. */
sheaf__units sheaf__units_for(const char *isa);

/* sheaf__units_prefer_tiles - does this machine compute the order `tiles` faster than `pairs`?
 * Measured, unless sheaf__units_prefer() has set it. */
bool sheaf__units_prefer_tiles(void);
/* sheaf__units_prefer - from now on the answer is `tiles`, as of another process that this one
 * computes with. */
void sheaf__units_prefer(bool tiles);
bool sheaf__units_are_set(void); /* by sheaf__units_prefer() */

/* sheaf__units_measure - products of two elements a second, from registers, of one thread with
 * AVX-512: by fma on float32, and where they are there by vdpbf16ps and by tiles (else 0). Takes
 * about a millisecond. */
enum { SHEAF__RATE_FMA, SHEAF__RATE_PAIRS, SHEAF__RATE_TILES, SHEAF__RATES };
void sheaf__units_measure(double rate[SHEAF__RATES], bool pairs, bool tiles);
