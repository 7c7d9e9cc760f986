/* matmul_plain.c - products in a build without x86: only the dry device is there, which counts. */
#include "ops/matmul/matmul.h"

void sheaf__products(sheaf__device *device, const sheaf__product *job, int jobs)
{
    double flops = 0; /* summed as matmul_products.c does it, so that plans say the same */
    for (int j = 0; j < jobs; j++) {
        double k = 0;
        for (int t = 0; t < job[j].nterms; t++)
            k += (double)job[j].term[t].k;
        flops += 2.0 * k * (double)job[j].m * (double)job[j].n;
        if (!device->class->counts)
            sheaf__product_ref(&job[j], device->sums);
    }
    device->flops += flops;
}

int64_t sheaf__packed_few(const sheaf__device *device)
{
    return 0;
}
