/* read.h - a GGUF file as a model of Hugging Face's names. */
#pragma once

#include "dialects/common/dialects.h"
#include "dialects/gguf/model.h"

/* sheaf__gguf_config - the config.json (malloc'd) that the keys and names of tensors say. `dtype`:
 * of the weights. *family has `gguf`, by which names go. Errors: SHEAF_E_UNSUPPORTED for an
 * architecture that sheaf has no family for, and for keys that its family cannot follow. */
sheaf_status *sheaf__gguf_config(char **out, const sheaf__family **family, const sheaf__gguf *file,
                                 sheaf_dtype dtype);

/* sheaf__gguf_read - as sheaf_dialect.read. */
sheaf_status *sheaf__gguf_read(sheaf_catalog *catalog, const char *path,
                               const sheaf_dialect_hints *hints);
