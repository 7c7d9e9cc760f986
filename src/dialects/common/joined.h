/* joined.h - a file of tensors that the processes of a run write together: the first begins and
 * finishes it, the others write their parts of it in between. It lies where all of them see it.
 *
 * All calls are collective of all processes; with one they begin and finish. */
#ifndef SHEAF_DIALECTS_COMMON_JOINED_H
#define SHEAF_DIALECTS_COMMON_JOINED_H

#include "formats/safetensors.h"
#include "formats/torch.h"

/* sheaf__joined_begin - as sheaf__safetensors_begin(); all but the path must be the same in all.
 *   path    of the first; the others are told
 *   writes  does this process write? Where it does not, *out stays NULL but in the first
 * Errors: the same in all, naming the host that does not see the file. */
sheaf_status *sheaf__joined_begin(sheaf_safetensors_writer **out, const char *path, bool writes,
                                  const sheaf_safetensors_spec *specs, int64_t count,
                                  const sheaf_safetensors_pair *metadata, int64_t npairs);
/* sheaf__joined_finish - sheaf__safetensors_finish() once all have put on disk what they wrote;
 * frees `writer`, which may be NULL where nothing was written, in any case.
 *   st     what came before, consumed: a failure anywhere ends it, and the first removes the file
 *   count  of tensors */
sheaf_status *sheaf__joined_finish(sheaf_status *st, sheaf_safetensors_writer *writer,
                                   int64_t count);

/* The same of a PyTorch file, in which all processes write: `doc` as in sheaf__torch_begin(). The
 * checksum of a tensor is joined from those of its parts. */
sheaf_status *sheaf__joined_torch_begin(sheaf_torch_writer **out, const char *path,
                                        const sheaf_pickle_doc *doc);
sheaf_status *sheaf__joined_torch_finish(sheaf_status *st, sheaf_torch_writer *writer,
                                         int64_t count);

#endif
