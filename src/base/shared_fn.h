/* shared_fn.h - how a function in a header is declared that kernels for GPUs use, too. */
#pragma once

#ifdef __CUDACC__
#define SHEAF__SHARED_FN static __device__ __forceinline__
#else
#define SHEAF__SHARED_FN static inline
#endif
