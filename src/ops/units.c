/* units.c - see units.h. */
#include "ops/units.h"

#include "base/cpu.h"

#ifndef SHEAF_NO_X86
#include <cpuid.h>
#endif
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA 18              /* the part of a thread's state that holds tiles */
#define TILE_STATES (3u << 17)    /* in XCR0: the system keeps tiles and their configuration */
#define PAYS 0.9                  /* the pair instruction also needs less work around it */

#ifdef SHEAF_NO_X86
bool sheaf__units_have_pairs(void)
{
    return false;
}
static bool has_amx(void)
{
    return false;
}
static bool may_use_tiles(void)
{
    return false;
}
void sheaf__units_measure(double rate[SHEAF__RATES], bool pairs, bool tiles)
{
    memset(rate, 0, SHEAF__RATES * sizeof *rate);
}
#else
bool sheaf__units_have_pairs(void)
{
    return sheaf__cpu_has_avx512() && SHEAF__CPU_HAS("avx512bf16");
}

static bool permitted(void)
{
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

#ifdef SHEAF__EMULATED_TILES
static bool has_amx(void)
{
    return sheaf__units_have_pairs();
}
static bool may_use_tiles(void)
{
    return permitted() || errno != EPERM;
}
#else
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
    return (low & TILE_STATES) == TILE_STATES && permitted();
}
#endif
#endif

bool sheaf__units_have_tiles(void)
{
    return has_amx() && may_use_tiles();
}
bool sheaf__units_lack_permission(void)
{
    return has_amx() && !may_use_tiles();
}

/* The faster unit is a fact of the processor, measured once a process and not for each device:
 * ranks would measure against each other. */
static struct {
    pthread_once_t tiles_once, pairs_once;
    bool tiles, pairs;
    atomic_int preferred; /* by sheaf__units_prefer(): 1 pairs, 2 tiles, 0 not set */
} processor_pays = { PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, false, false, 0 };

static void measure_tiles(void)
{
    double rate[SHEAF__RATES];
    sheaf__units_measure(rate, true, true);
    processor_pays.tiles = rate[SHEAF__RATE_TILES] > rate[SHEAF__RATE_PAIRS] &&
                           rate[SHEAF__RATE_TILES] > rate[SHEAF__RATE_FMA];
}

static void measure_pairs(void)
{
    double rate[SHEAF__RATES];
    sheaf__units_measure(rate, true, false);
    processor_pays.pairs = rate[SHEAF__RATE_PAIRS] > PAYS * rate[SHEAF__RATE_FMA];
}

void sheaf__units_prefer(bool tiles)
{
    processor_pays.preferred = tiles ? 2 : 1;
}

bool sheaf__units_are_set(void)
{
    return processor_pays.preferred != 0;
}

bool sheaf__units_prefer_tiles(void)
{
    if (processor_pays.preferred != 0)
        return processor_pays.preferred == 2;
    if (!sheaf__units_have_tiles())
        return false;
    pthread_once(&processor_pays.tiles_once, measure_tiles);
    return processor_pays.tiles;
}

sheaf__units sheaf__units_for(const char *isa)
{
    const bool best = isa == NULL || strcmp(isa, "amx") == 0;
    sheaf__units units = { false, false };
    if (best && sheaf__units_have_pairs()) {
        pthread_once(&processor_pays.pairs_once, measure_pairs);
        units.pairs = processor_pays.pairs;
    } else if (!best && strcmp(isa, "avx512bf16") == 0) {
        units.pairs = sheaf__units_have_pairs();
    }
    units.tiles = best && sheaf__units_have_tiles();
    return units;
}
