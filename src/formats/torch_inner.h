/* torch_inner.h - what the files of the PyTorch reader share. */
#pragma once

#include "formats/torch.h"

enum { SHEAF_TORCH_LEGACY_MAGIC_BYTES = 2 + 9 + 12 };

/* sheaf__torch_is_legacy - do these bytes begin with the pickle of the magic number? */
bool sheaf__torch_is_legacy(const unsigned char head[SHEAF_TORCH_LEGACY_MAGIC_BYTES]);
/* sheaf__torch_read_legacy - values and positions of a legacy file; file->fd, path and size are
 * there. */
sheaf_status *sheaf__torch_read_legacy(sheaf_torch *file);
