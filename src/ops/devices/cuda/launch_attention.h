/* launch_attention.h - the operations of attention on the device `cuda`. */
#pragma once

#include "ops/devices/cuda/launch.h"

sheaf__cuda_operation sheaf__cuda_op_attention, sheaf__cuda_op_attention_back;
