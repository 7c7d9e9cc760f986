/* dcp.h - checkpoints of torch.distributed.checkpoint, and Megatron's torch_dist form of them.
 *
 *   .metadata          a pickle: for each tensor its shape, dtype and chunks (offsets, sizes); for
 *                      each chunk the file and the bytes where it lies
 *   __RANK_N.distcp    items, one after the other: each a whole torch file
 *   common.pt, metadata.json   of torch_dist: args and other values; which form it is
 *
 * docs/dialect-dcp.md has the layout. */
#ifndef SHEAF_DIALECTS_DCP_DCP_H
#define SHEAF_DIALECTS_DCP_DCP_H

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_dcp;

#endif
