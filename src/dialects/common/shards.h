/* shards.h - a sheaf_source over the tensors of one or more safetensors files. */
#ifndef SHEAF_DIALECTS_COMMON_SHARDS_H
#define SHEAF_DIALECTS_COMMON_SHARDS_H

#include "formats/safetensors.h"
#include "sheaf/source.h"

typedef struct sheaf_shards sheaf_shards;

sheaf_status *sheaf__shards_new(sheaf_shards **out);
/* sheaf__shards_open - opens one more file; it stays open until close. */
sheaf_status *sheaf__shards_open(sheaf_shards *shards, const char *path,
                                 const sheaf_safetensors **file);
/* sheaf__shards_add - a tensor of one of those files, under `name` (copied). */
sheaf_status *sheaf__shards_add(sheaf_shards *shards, const sheaf_safetensors *file,
                                const sheaf_safetensors_entry *entry, const char *name);
/* sheaf__shards_source - sorts, and turns it into a source; entries ascend by name. Errors:
 * SHEAF_E_LAYOUT when a name was added twice. */
sheaf_status *sheaf__shards_source(sheaf_source **out, sheaf_shards *shards);
/* sheaf__shards_file - path of file `index` of a source that sheaf__shards_source() made; NULL
 * beyond the last. */
const char *sheaf__shards_file(const sheaf_source *source, int64_t index);
void sheaf__shards_close(sheaf_shards *shards); /* before it became a source */

#endif
