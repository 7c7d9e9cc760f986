/* written_fma.h - included before each file of kernels by compile.sh: in PTX, an fma that was
 * written bears a mark, so that one that a compiler made of a product and a sum shows
 * (tests/check_kernels.sh). */
#include <math.h>

static __device__ __forceinline__ float written_fmaf(float x, float y, float z)
{
    float result;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3; // written" : "=f"(result) : "f"(x), "f"(y), "f"(z));
    return result;
}
static __device__ __forceinline__ double written_fma(double x, double y, double z)
{
    double result;
    asm("fma.rn.f64 %0, %1, %2, %3; // written" : "=d"(result) : "d"(x), "d"(y), "d"(z));
    return result;
}
#define fmaf(x, y, z) written_fmaf(x, y, z)
#define fma(x, y, z) written_fma(x, y, z)
