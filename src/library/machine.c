/* machine.c - what this machine offers: sheaf/machine.h. */
#include "sheaf/machine.h"

#ifdef SHEAF_NO_X86
#include <sys/utsname.h>
#else
#include <cpuid.h>
#endif

#include "base/base.h"
#include "base/thread.h"
#include "base/inside.h"
#include "base/memory.h"
#include "ops/kernels.h"
#include "ops/units.h"
#include "library/take.h"

#ifdef SHEAF_NO_X86
static void processor_name(char name[64])
{
    struct utsname system;
    snprintf(name, 64, "%.63s", uname(&system) == 0 ? system.machine : "unknown");
}
#else
/* The brand string: 48 bytes in twelve registers. */
static void processor_name(char name[64])
{
    unsigned part[4];
    char raw[49] = "";
    snprintf(name, 64, "unknown");
    if ((unsigned)__get_cpuid_max(0x80000000, NULL) < 0x80000004) /* clang declares it int */
        return;
    for (unsigned i = 0; i < 3; i++) {
        __get_cpuid(0x80000002 + i, &part[0], &part[1], &part[2], &part[3]);
        memcpy(raw + 16 * i, part, sizeof part);
    }
    const char *begin = raw + strspn(raw, " ");
    snprintf(name, 64, "%s", begin);
    for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
        name[n - 1] = '\0';
}
#endif

static int64_t kilobytes(const char *line, const char *key)
{
    int64_t value = 0;
    const size_t n = strlen(key);
    return strncmp(line, key, n) == 0 && sscanf(line + n, " %" SCNd64, &value) == 1 ? value : 0;
}

sheaf_status *sheaf_machine_info(sheaf_machine_facts *facts)
{
    SHEAF__INSIDE;
    sheaf_machine_facts m = { .cores = sheaf__cores(0) };
    sheaf_status *st = sheaf__take_report(facts, "sheaf_machine_facts");
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    const sheaf__units units = sheaf__units_for(NULL);
    processor_name(m.processor);
    m.pairs = units.pairs                 ? "vdpbf16ps"
              : sheaf__units_have_pairs() ? "float32 fma, which is faster here than vdpbf16ps"
                                          : "float32 fma";
    m.tiles =
        units.tiles ? "AMX"
        : sheaf__units_lack_permission()
            ? "float32 fma: the processor has AMX, the system does not let this process use it"
            : "float32 fma";
    m.sums = sheaf__units_prefer_tiles() ? "tiles" : "pairs";
    m.kernels =
        kernels != NULL ? kernels->isa : "none: AVX2, FMA and F16C are the least that computes";
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        m.memory += 1024 * kilobytes(line, "MemTotal:");
    if (file != NULL)
        fclose(file);
    const int64_t left = sheaf__memory_look("").left;
    m.available = left == INT64_MAX ? 0 : left;
    if (st == NULL)
        sheaf__give_report(facts, &m, sizeof m);
    return st;
}
