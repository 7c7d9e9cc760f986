/* fsdp.h - the state dict of each rank of PyTorch's FSDP in a file of its own, as verl leaves it.
 *
 *   model_world_size_N_rank_R.pt    {name: DTensor}: shape and placements of the whole tensor, and
 *                                   the rank's rows
 *   optim_world_size_N_rank_R.pt, extra_state_world_size_N_rank_R.pt    are not read
 *   huggingface/config.json, or config.json */
#ifndef SHEAF_DIALECTS_FSDP_FSDP_H
#define SHEAF_DIALECTS_FSDP_FSDP_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_fsdp;

#endif
