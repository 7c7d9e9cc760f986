/* gemma2.h - Gemma 2: Llama with norms around attention and MLP, GeGLU and capped scores. */
#ifndef SHEAF_FAMILIES_GEMMA2_GEMMA2_H
#define SHEAF_FAMILIES_GEMMA2_GEMMA2_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_gemma2;

#endif
