/* machine.c - describes this machine: sheaf/machine.h. */
#include "sheaf/machine.h"

#include <sys/utsname.h>

#include "base/base.h"
#include "base/thread.h"
#include "base/numeric_env.h"
#include "base/memory.h"
#include "ops/kernels.h"
#include "ops/units.h"
#include "library/structs.h"

sheaf_status *sheaf_machine_info(sheaf_machine_facts *facts)
{
    SHEAF__NUMERIC_ENV;
    sheaf_machine_facts m = { .cores = sheaf__cores(0) };
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_machine_facts");
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    const sheaf__units units = sheaf__units_for(NULL);
    char memory[64];
    sheaf__system_text(m.processor, "/proc/cpuinfo", "model name");
    if (m.processor[0] == '\0') { /* processors of other makers have no name there */
        struct utsname system;
        snprintf(m.processor, sizeof m.processor, "%.63s",
                 uname(&system) == 0 ? system.machine : "unknown");
    }
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
    sheaf__system_text(memory, "/proc/meminfo", "MemTotal:");
    m.memory = 1024 * strtoll(memory, NULL, 10);
    const int64_t left = sheaf__memory_look("").left;
    m.available = left == INT64_MAX ? 0 : left;
    if (st == NULL)
        sheaf__struct_fill(facts, &m, sizeof m);
    return st;
}
