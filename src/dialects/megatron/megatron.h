/* megatron.h - checkpoints of Megatron-LM in its legacy form (--ckpt-format torch); those of its
 * torch_dist form are read by dcp.h.
 *
 *   latest_checkpointed_iteration.txt              a number, or "release"
 *   iter_0000005/mp_rank_TT[_PPP]/model_optim_rng.pt  {args, checkpoint_version, iteration, model
 *                                                     or model0.., ...}
 *
 * Tensors get the names of Hugging Face's Llama. docs/dialect-megatron.md has the layout. */
#ifndef SHEAF_DIALECTS_MEGATRON_MEGATRON_H
#define SHEAF_DIALECTS_MEGATRON_MEGATRON_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_megatron;

#endif
