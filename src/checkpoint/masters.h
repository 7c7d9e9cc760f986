/* masters.h - the trained tensors of a checkpoint, undivided, as a source. */
#ifndef SHEAF_CHECKPOINT_MASTERS_H
#define SHEAF_CHECKPOINT_MASTERS_H

#include "checkpoint/checkpoint.h"
#include "sheaf/source.h"

/* sheaf_checkpoint_source - every tensor of one group ("master", "exp_avg", "exp_avg_sq")
 * under its own name, float32, joined from the slices as it is read. Keeps the slice files
 * open; the checkpoint may be closed before it. Hashes are not checked: they were when it was
 * written or by sheaf_checkpoint_verify(). */
sheaf_status *sheaf_checkpoint_source(sheaf_source **out, const sheaf_checkpoint *checkpoint, const char *group);

#endif
