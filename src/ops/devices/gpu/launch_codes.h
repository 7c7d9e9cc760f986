/* launch_codes.h - quantised weights on the device `cuda` (kernels/codes.h). */
#pragma once

#include "ops/devices/gpu/kernels/codes.h"
#include "ops/devices/gpu/launch.h"
#include "ops/matmul/matmul.h"

/* sheaf__codes_matrix_of - all of the weight that W is a part of. */
void sheaf__codes_matrix_of(sheaf__codes_matrix *to, const sheaf__packed *w);
/* sheaf__codes_expand - the panels of a list, all in type `dtype`; block0 is set here. */
void sheaf__codes_expand(sheaf__gpu *gpu, sheaf__codes_panels *panels, sheaf_dtype dtype);
