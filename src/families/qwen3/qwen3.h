/* qwen3.h - Qwen3: Llama with an RMSNorm of each head of queries and keys. */
#ifndef SHEAF_FAMILIES_QWEN3_QWEN3_H
#define SHEAF_FAMILIES_QWEN3_QWEN3_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_qwen3;

#endif
