/* peft_sums.c - see delta.h. Every element is a chain of fused multiply-adds over the rank, or a
 * sum of such chains over blocks of it. Which blocks was measured: they come from MKL 2024.2
 * (products of matrices) and oneDNN (kernels of convolutions) inside PyTorch, not from any
 * document. docs/merge.md has the table. */
#include "lora/delta.h"

#include "base/cpu.h"

sheaf_peft_cpu sheaf__peft_cpu(sheaf_peft_cpu cpu)
{
    if (cpu != SHEAF_PEFT_CPU_THIS)
        return cpu;
#ifdef SHEAF_NO_X86
    return SHEAF_PEFT_CPU_OTHER;
#else
    if (!SHEAF__CPU_HAS("avx512f"))
        return SHEAF_PEFT_CPU_OTHER;
    return __builtin_cpu_is("intel") ? SHEAF_PEFT_CPU_INTEL
           : __builtin_cpu_is("amd") ? SHEAF_PEFT_CPU_AMD
                                     : SHEAF_PEFT_CPU_OTHER;
#endif
}

const char *sheaf__peft_cpu_name(sheaf_peft_cpu cpu)
{
    static const char *const names[] = { "this processor", "Intel with AVX-512", "AMD with AVX-512",
                                         "a processor that was not measured" };
    return names[cpu];
}

int64_t sheaf__peft_block(sheaf_peft_cpu cpu, int64_t rank, bool kernel)
{
    if (cpu == SHEAF_PEFT_CPU_INTEL && kernel)
        return rank < 256 ? rank : 256;
    if (cpu == SHEAF_PEFT_CPU_INTEL) /* two halves, the first the larger one, before there is a
                                        third block */
        return rank <= 384 ? rank : rank <= 768 ? (rank + 1) / 2 : 384;
    return rank <= 192 ? rank : rank < 384 ? rank / 2 : 192; /* an odd rank leaves a block of 1 */
}

bool sheaf__peft_known(sheaf_peft_cpu cpu, int64_t rank, int64_t out, int64_t in, int64_t channels)
{
    const bool kernel = channels > 0;
    const bool large = out >= 512 && in >= 512;
    if (cpu == SHEAF_PEFT_CPU_OTHER ||
        (!kernel && (out < 4 || in < 12))) /* MKL has other routines for slivers */
        return false;
    /* PEFT hands the channels over as a batch; of less than 16, one thread takes another routine
       (and of one, several threads do too). */
    if (kernel && channels < 16 && rank > 1)
        return false;
    if (kernel)
        return rank <= (cpu == SHEAF_PEFT_CPU_INTEL
                            ? 127
                            : 192); /* from 128 on large kernels are summed otherwise */
    if (cpu == SHEAF_PEFT_CPU_AMD)
        return rank <= 2048;
    if (rank < 384 || (large && rank <= 2048))
        return true;
    return rank <= 768 &&
           in >= 100000 / out; /* of less, four threads and more divide the rank among them */
}
