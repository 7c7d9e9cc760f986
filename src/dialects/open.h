/* open.h - opens a checkpoint for reading: a folder or file of any dialect.
 *
 * It recognises the dialect, reads everything into a catalog, and checks it. Errors of the
 * checkpoint become findings. Tensors are read from a source, made from the catalog by
 * sheaf__catalog_source() or by sheaf__open_source(), which refuse any defect. */
#pragma once

#include "dialects/common/dialects.h"
#include "schema/config.h"

/* sheaf__open - hints may be NULL. Errors: SHEAF_E_IO when the path does not exist or may not be
 * read; SHEAF_E_UNSUPPORTED when no dialect, or another kind than hints->want, is recognised, with
 * what was found; SHEAF_E_ARG for an unknown hints->from. */
sheaf_status *sheaf__open(sheaf_catalog **out, const char *path, const sheaf_dialect_hints *hints);

/* sheaf__open_config - the model that the catalog's config describes. Errors: SHEAF_E_LAYOUT where
 * there is none; those of sheaf_config_parse(). */
sheaf_status *sheaf__open_config(sheaf_config *out, const sheaf_catalog *catalog);

/* sheaf__open_source - the tensors: all of an adapter, else weights and buffers. Errors also: the
 * first defect. */
sheaf_status *sheaf__open_source(sheaf_source **out, const char *path,
                                 const sheaf_dialect_hints *hints);
