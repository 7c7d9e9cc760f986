/* units_rates.c - how fast this processor multiplies from registers, each way. */
#include <immintrin.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/unroll.h"
#include "ops/tile_unit.h"
#include "ops/units.h"

#define TURNS 400  /* of a loop, so that it takes some microseconds */
#define ROUNDS 200 /* the best one counts: others may have been interrupted */
#define CHAINS 12  /* sums at once: enough for two pipes of six cycles */

/* Keeps the compiler from removing computations whose result is unused. */
#define USED(x) __asm__ volatile("" : "+v"(x))

static void turn_fma(void)
{
    __m512 c[CHAINS], a = _mm512_setzero_ps();
    UNROLL for (int i = 0; i < CHAINS; i++) c[i] = _mm512_setzero_ps();
    USED(a);
    for (int n = 0; n < TURNS; n++)
        UNROLL for (int i = 0; i < CHAINS; i++)
        {
            c[i] = _mm512_fmadd_ps(a, a, c[i]);
            USED(c[i]);
        }
}

static void turn_pairs(void)
{
    __m512 c[CHAINS], a = _mm512_setzero_ps();
    UNROLL for (int i = 0; i < CHAINS; i++) c[i] = _mm512_setzero_ps();
    USED(a);
    for (int n = 0; n < TURNS; n++)
        UNROLL for (int i = 0; i < CHAINS; i++)
        {
            c[i] = _mm512_dpbf16_ps(c[i], (__m512bh)a, (__m512bh)a);
            USED(c[i]);
        }
}

static void turn_tiles(void)
{
    _tile_loadconfig(&sheaf__whole_tiles);
    for (int n = 0; n < TURNS / 10; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

static const struct {
    void (*turn)(void);
    double products;
} ways[SHEAF__RATES] = { { turn_fma, TURNS *CHAINS * 16.0 },
                         { turn_pairs, TURNS *CHAINS * 32.0 },
                         { turn_tiles, TURNS / 10 * 4 * 16.0 * 16 * 32 } };

/* In rotation, so that what slows one down meets the others too: a core that has not used wide
 * registers for a while runs them at a quarter of their rate for some tens of microseconds. */
void sheaf__units_measure(double rate[SHEAF__RATES], bool pairs, bool tiles)
{
    const bool there[SHEAF__RATES] = { true, pairs, tiles };
    double best[SHEAF__RATES] = { 1, 1, 1 };
    for (int r = 0; r < ROUNDS; r++)
        for (int w = 0; w < SHEAF__RATES; w++) {
            const double start = sheaf__seconds();
            if (there[w])
                ways[w].turn();
            const double took = sheaf__seconds() - start;
            if (there[w] && took > 0 && took < best[w])
                best[w] = took;
        }
    for (int w = 0; w < SHEAF__RATES; w++)
        rate[w] = there[w] ? ways[w].products / best[w] : 0;
}
