/* deepspeed.h - checkpoints of DeepSpeed: ZeRO stages 0 to 3, AutoTP, pipeline layers, universal.
 *
 *   latest                                         text: the tag, "global_step3"
 *   TAG/mp_rank_XX_model_states.pt                 the module of tensor-parallel rank XX; names,
 *                                                  shapes, sizes
 *   TAG/zero_pp_rank_D_mp_rank_XX_model_states.pt  the same under ZeRO 3, whose module is empty
 *   TAG/[bf16_|fp16_]zero_pp_rank_D_mp_rank_XX_optim_states.pt
 *                                                  data-parallel part D of the float32 masters and
 *                                                  moments, flat
 *   TAG/layer_NN[-model_TT]-model_states.pt        a layer of a pipeline
 *   TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt  universal: a parameter, whole
 *
 * docs/dialect-deepspeed.md has the layout, what is inferred and what is refused. */
#ifndef SHEAF_DIALECTS_DEEPSPEED_DEEPSPEED_H
#define SHEAF_DIALECTS_DEEPSPEED_DEEPSPEED_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_deepspeed;

#endif
