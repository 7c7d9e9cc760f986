/* named.h - parts of a model by the names of their tensors: `prefix`, and what is given. */
#pragma once

#include "models/build.h"

/* sheaf__named_linear - bias NULL: none; piece of a fused weight, else 0. */
sheaf_status *sheaf__named_linear(sheaf__model *m, sheaf__linear *l, const char *prefix,
                                  const char *weight, const char *bias, int piece);
/* sheaf__named_layernorm - of NAME.weight and NAME.bias. */
sheaf_status *sheaf__named_layernorm(sheaf__model *m, sheaf__layernorm *norm, const char *prefix,
                                     const char *name, double eps);
sheaf_status *sheaf__named_vector(sheaf__model *m, sheaf__vector *v, const char *prefix,
                                  const char *name, int64_t width);
