/* sat.h - checkpoints of SwissArmyTransformer: CogVLM and CogAgent, training and inference layout.
 *
 * Canonical names are SAT's names at model-parallel size 1; of an adapted linear layer X,
 * X.original.weight is X.weight. Its factors, kind SHEAF_LORA:
 *   X.matrix_A.p [r, in], X.matrix_B.p [out of part p, r]   of the p-th part of the weight, cut as
 *                                                           it is cut
 * The factor that is not cut (A of a weight divided along its output, B of one divided along its
 * input) is one copy; or, where SAT let the copies drift apart, those of all ranks side by side:
 * [N*r, in], [out, N*r]. */
#ifndef SHEAF_DIALECTS_SAT_SAT_H
#define SHEAF_DIALECTS_SAT_SAT_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_sat;

#endif
