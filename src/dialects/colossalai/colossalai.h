/* colossalai.h - what ColossalAI's booster saves, and what is left of a save that went wrong.
 *
 *   model-00001.safetensors ..., model.safetensors.index.json      gathered over the ranks; the
 *                                                                  name has no "-of-"
 *   model-stage-00001-shard-00001.safetensors ...                  with pipeline stages
 *   tmp_index_files/                                               left by a killed save
 *   pytorch_optim-00001.bin ..., pytorch_optim.bin.index.json,     moments by number, not by name
 *     pytorch_optim_group.bin
 *   modeling/, optimizer/, running_states.json                     folders of its training examples
 *   tp_rank_00.safetensors ...                                     the ranks' own tensors, saved by
 *                                                                  hand
 *
 * A model that was saved well is as a Hugging Face one. Versions 0.3.7 to 0.4.7 wrote rank 0's rows
 * of the two vocabulary tables as if they were all; the other ranks' rows, given as further
 * folders, complete them. */
#pragma once

#include "dialects/common/dialects.h"
#include "dialects/common/whole.h"

/* What a file is, by its name: moments; a part of a table or a weight by tensor parallelism,
 * tp_rank_N; a shard of the model. */
bool sheaf__colossalai_is_optimizer(const char *name);
bool sheaf__colossalai_is_rank(const char *name);
bool sheaf__colossalai_is_model(const char *name);
