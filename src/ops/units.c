/* units.c - see units.h. */
#include "ops/units.h"

#include "base/cpu.h"

#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA 18              /* the part of a thread's state that holds tiles */
#define TILE_STATES (3u << 17)    /* in XCR0: the system keeps tiles and their configuration */
#define PAYS 0.9                  /* the pair instruction also needs less work around it */

static bool has_avx512(void)
{
    return SHEAF__CPU_HAS("avx512f") && SHEAF__CPU_HAS("avx512bw") && SHEAF__CPU_HAS("avx512dq") &&
           SHEAF__CPU_HAS("avx512vl");
}

bool sheaf__units_have_pairs(void)
{
    return has_avx512() && SHEAF__CPU_HAS("avx512bf16");
}

/* The processor has AMX for bfloat16. */
static bool has_amx(void)
{
    unsigned a, b, c, d = 0;
    return sheaf__units_have_pairs() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22) &&
           (d & 1u << 24); /* AMX-BF16, AMX-TILE */
}

static bool may_use_tiles(void)
{
    unsigned low = 0, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATES) == TILE_STATES &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool sheaf__units_have_tiles(void)
{
    return has_amx() && may_use_tiles();
}
bool sheaf__units_lack_permission(void)
{
    return has_amx() && !may_use_tiles();
}

bool sheaf__units_prefer_tiles(void)
{
    if (!sheaf__units_have_tiles())
        return false;
    double rate[SHEAF__RATES];
    sheaf__units_measure(rate, true, true);
    return rate[SHEAF__RATE_TILES] > rate[SHEAF__RATE_PAIRS] &&
           rate[SHEAF__RATE_TILES] > rate[SHEAF__RATE_FMA];
}

sheaf__units sheaf__units_for(const char *isa)
{
    const bool best = isa == NULL || strcmp(isa, "amx") == 0;
    sheaf__units units = { false, false };
    double rate[SHEAF__RATES];
    if (best && sheaf__units_have_pairs()) {
        sheaf__units_measure(rate, true, false);
        units.pairs = rate[SHEAF__RATE_PAIRS] > PAYS * rate[SHEAF__RATE_FMA];
    } else if (!best && strcmp(isa, "avx512bf16") == 0) {
        units.pairs = sheaf__units_have_pairs();
    }
    units.tiles = best && sheaf__units_have_tiles();
    return units;
}
