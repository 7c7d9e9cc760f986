/* normals.h - the columns of sheaf__random_normals() (random.h): n numbers, a multiple of
 * SHEAF__NORMALS; `key` is the seed's. */
#pragma once

#include <stdint.h>

void sheaf__normals_avx2(float *out, uint64_t key, uint64_t name_key, uint64_t first, int64_t n);
void sheaf__normals_avx512(float *out, uint64_t key, uint64_t name_key, uint64_t first, int64_t n);
