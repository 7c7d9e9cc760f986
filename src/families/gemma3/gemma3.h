/* gemma3.h - Gemma 3 (text): Gemma 2 with norms of queries and keys, and two rotary embeddings. */
#ifndef SHEAF_FAMILIES_GEMMA3_GEMMA3_H
#define SHEAF_FAMILIES_GEMMA3_GEMMA3_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_gemma3;

#endif
