/* dtype.h - the element types a checkpoint may hold.
 *
 * The order is safetensors' own (ascending alignment); its writer sorts
 * tensors by descending order of this enum. Arithmetic knows F32, BF16, F16. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sheaf_dtype {
    SHEAF_BOOL,
    SHEAF_F4,
    SHEAF_F6_E2M3,
    SHEAF_F6_E3M2,
    SHEAF_U8,
    SHEAF_I8,
    SHEAF_F8_E5M2,
    SHEAF_F8_E4M3,
    SHEAF_F8_E8M0,
    SHEAF_F8_E4M3FNUZ,
    SHEAF_F8_E5M2FNUZ,
    SHEAF_I16,
    SHEAF_U16,
    SHEAF_F16,
    SHEAF_BF16,
    SHEAF_I32,
    SHEAF_U32,
    SHEAF_F32,
    SHEAF_C64,
    SHEAF_F64,
    SHEAF_I64,
    SHEAF_U64,
    SHEAF_DTYPE_COUNT
} sheaf_dtype;

SHEAF_API int sheaf_dtype_bits(sheaf_dtype dtype);
/* sheaf_dtype_bytes - whole bytes of one element; 0 for sub-byte types. */
SHEAF_API size_t sheaf_dtype_bytes(sheaf_dtype dtype);
/* sheaf_dtype_name - safetensors' spelling, "BF16". */
SHEAF_API const char *sheaf_dtype_name(sheaf_dtype dtype);
/* sheaf_dtype_torch_name - torch's spelling, "bfloat16"; NULL if torch has none. */
SHEAF_API const char *sheaf_dtype_torch_name(sheaf_dtype dtype);
/* Each returns -1 when the name is none it knows (exact case). */
SHEAF_API int sheaf_dtype_from_name(const char *name);
SHEAF_API int sheaf_dtype_from_torch_name(const char *name);

#ifdef __cplusplus
}
#endif
