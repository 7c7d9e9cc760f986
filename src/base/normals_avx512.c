/* normals_avx512.c - see normals.h. */
#include "base/normals.h"

#include "base/normals_of.h"

void sheaf__normals_avx512(float *out, uint64_t key, uint64_t name_key, uint64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i += SHEAF__NORMALS)
        sheaf__normals_of(out + i, key, name_key, first + (uint64_t)i);
}
