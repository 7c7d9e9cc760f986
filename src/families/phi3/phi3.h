/* phi3.h - Phi-3 and Phi-4: q, k and v in one weight, gate and up in another; longrope. */
#ifndef SHEAF_FAMILIES_PHI3_PHI3_H
#define SHEAF_FAMILIES_PHI3_PHI3_H

#include "schema/family.h"

extern const sheaf__family sheaf__family_phi3;

#endif
