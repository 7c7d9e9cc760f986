/* driver_test.c - does driver.h declare what NVIDIA's header does? Built where that is found. */
#include "tests/check.h"

#include <cuda.h>

#include "ops/devices/gpu/cuda/driver.h"
#include "ops/devices/gpu/cuda/tensor_map.h"

/* ---- layouts ---- */

#define SAME_SIZE(own, theirs) _Static_assert(sizeof(own) == sizeof(theirs), #theirs)
SAME_SIZE(sheaf__gpu_error, CUresult);
SAME_SIZE(sheaf__gpu_address, CUdeviceptr);
SAME_SIZE(sheaf__gpu_block, CUmemGenericAllocationHandle);
SAME_SIZE(sheaf__gpu_place, CUmemLocation);
SAME_SIZE(sheaf__gpu_memory, CUmemAllocationProp);
SAME_SIZE(sheaf__gpu_access, CUmemAccessDesc);

#define SAME_PLACE(own, field, theirs, name)                                                       \
    _Static_assert(offsetof(own, field) == offsetof(theirs, name) &&                               \
                       sizeof(((own *)0)->field) == sizeof(((theirs *)0)->name),                   \
                   #theirs "." #name)
SAME_PLACE(sheaf__gpu_place, type, CUmemLocation, type);
SAME_PLACE(sheaf__gpu_place, number, CUmemLocation, id);
SAME_PLACE(sheaf__gpu_memory, type, CUmemAllocationProp, type);
SAME_PLACE(sheaf__gpu_memory, handles, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(sheaf__gpu_memory, place, CUmemAllocationProp, location);
SAME_PLACE(sheaf__gpu_memory, flags, CUmemAllocationProp, allocFlags);
SAME_PLACE(sheaf__gpu_memory, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_PLACE(sheaf__gpu_memory, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_PLACE(sheaf__gpu_memory, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_PLACE(sheaf__gpu_access, place, CUmemAccessDesc, location);
SAME_PLACE(sheaf__gpu_access, flags, CUmemAccessDesc, flags);

/* ---- numbers ---- */

#define SAME_NUMBER(own, theirs) _Static_assert((int)(own) == (int)(theirs), #theirs)
SAME_NUMBER(SHEAF__GPU_INVALID, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(SHEAF__GPU_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
#if CUDA_VERSION >= 13000
SAME_NUMBER(SHEAF__GPU_OLD_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
#endif
SAME_NUMBER(SHEAF__GPU_IN_USE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME_NUMBER(SHEAF__GPU_NONE, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(SHEAF__GPU_NO_SUCH, CUDA_ERROR_INVALID_DEVICE);
SAME_NUMBER(SHEAF__GPU_BAD_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME_NUMBER(SHEAF__GPU_NO_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(SHEAF__GPU_ECC, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_NUMBER(SHEAF__GPU_NEW_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_NUMBER(SHEAF__GPU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(SHEAF__GPU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_NUMBER(SHEAF__GPU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_NUMBER(SHEAF__GPU_NO_FABRIC, CUDA_ERROR_SYSTEM_NOT_READY);
SAME_NUMBER(SHEAF__GPU_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_NUMBER(SHEAF__GPU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME_NUMBER(SHEAF__GPU_PROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(SHEAF__GPU_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(SHEAF__GPU_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_NUMBER(SHEAF__GPU_MOST_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_NUMBER(SHEAF__GPU_CAN_MAP, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_NUMBER(SHEAF__GPU_CAN_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME_NUMBER(SHEAF__GPU_PEER_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME_NUMBER(SHEAF__GPU_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(SHEAF__GPU_OWN_ORDER, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(SHEAF__GPU_UNTIMED, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(SHEAF__GPU_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_NUMBER(SHEAF__GPU_MAP_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME_NUMBER(SHEAF__GPU_MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME_NUMBER(SHEAF__GPU_MAP_FETCH_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME_NUMBER(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME_NUMBER(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
/* Plain numbers of gpu.c and stream.c. */
SAME_NUMBER(1, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_NUMBER(0, CU_MEM_HANDLE_TYPE_NONE);
SAME_NUMBER(1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_NUMBER(1, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_NUMBER(0, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

TEST(test_driver__marks_of_a_launch_are_theirs)
{
    assert_ptr_equal(CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)1);
    assert_ptr_equal(CU_LAUNCH_PARAM_BUFFER_SIZE, (void *)2);
    assert_null(CU_LAUNCH_PARAM_END);
}

SAME_SIZE(sheaf__tensor_map, CUtensorMap);
_Static_assert(_Alignof(sheaf__tensor_map) >= _Alignof(CUtensorMap), "a map");

/* ---- functions ---- */

/* An address is a pointer here, and kinds are enumerations. */
_Static_assert(__builtin_types_compatible_p(CUresult(CUtensorMap *, CUtensorMapDataType, cuuint32_t,
                                                     void *, const cuuint64_t *, const cuuint64_t *,
                                                     const cuuint32_t *, const cuuint32_t *,
                                                     CUtensorMapInterleave, CUtensorMapSwizzle,
                                                     CUtensorMapL2promotion,
                                                     CUtensorMapFloatOOBfill),
                                            __typeof__(cuTensorMapEncodeTiled)),
               "tensor_map");

/* From here on a type of driver.h is theirs, and so the list has their parameters. */
#define sheaf__gpu_error CUresult
#define sheaf__gpu_address CUdeviceptr
#define sheaf__gpu_block CUmemGenericAllocationHandle
#define sheaf__gpu_memory CUmemAllocationProp
#define sheaf__gpu_access CUmemAccessDesc
#define sheaf__gpu_context CUcontext
#define sheaf__gpu_stream CUstream
#define sheaf__gpu_event CUevent
#define sheaf__gpu_module CUmodule
#define sheaf__gpu_function CUfunction
#define uint64_t unsigned long long

/* Of a parameter that is an enumeration of theirs driver.h has an int. */
static const char *const of_enumerations[] = { "attribute", "peer_attribute", "granularity",
                                               "set_kernel" };
_Static_assert(__builtin_types_compatible_p(CUresult(int *, CUdevice_attribute, int),
                                            __typeof__(cuDeviceGetAttribute)),
               "attribute");
_Static_assert(__builtin_types_compatible_p(CUresult(int *, CUdevice_P2PAttribute, int, int),
                                            __typeof__(cuDeviceGetP2PAttribute)),
               "peer_attribute");
_Static_assert(__builtin_types_compatible_p(CUresult(size_t *, const CUmemAllocationProp *,
                                                     CUmemAllocationGranularity_flags),
                                            __typeof__(cuMemGetAllocationGranularity)),
               "granularity");
_Static_assert(__builtin_types_compatible_p(CUresult(CUfunction, CUfunction_attribute, int),
                                            __typeof__(cuFuncSetAttribute)),
               "set_kernel");

TEST(test_driver__functions_are_declared_as_theirs)
{
    static const struct {
        const char *field;
        bool same;
    } functions[] = {
#define SAME_FUNCTION(field, symbol, parameters)                                                   \
    { #field, __builtin_types_compatible_p(CUresult parameters, __typeof__(symbol)) },
        SHEAF__DRIVER_LIST(SAME_FUNCTION)
    };
    for (size_t f = 0; f < ARRAY_LEN(functions); f++) {
        bool same = functions[f].same;
        for (size_t i = 0; i < ARRAY_LEN(of_enumerations); i++)
            same |= strcmp(functions[f].field, of_enumerations[i]) == 0;
        if (!same)
            fail_msg("%s", functions[f].field);
    }
}
