/* open.h - the one door into a checkpoint: a folder or file of any dialect, opened for reading.
 *
 * It recognises what is there, reads all of it into a catalog, and checks that. What is wrong
 * becomes a finding. Who wants tensors asks for a source, of the catalog with
 * sheaf__catalog_source() or with sheaf__open_source(): that is strict, any defect refuses. */
#pragma once

#include "dialects/common/dialects.h"
#include "schema/config.h"

/* sheaf__open - hints may be NULL. Errors: SHEAF_E_IO when nothing is there, or may not be read;
 * SHEAF_E_UNSUPPORTED when nothing is recognised, or something else than hints->want, with what was
 * seen; SHEAF_E_ARG for a hints->from that is no dialect. */
sheaf_status *sheaf__open(sheaf_catalog **out, const char *path, const sheaf_dialect_hints *hints);

/* sheaf__open_config - the model that the catalog's config describes. Errors: SHEAF_E_LAYOUT where
 * there is none; those of sheaf_config_parse(). */
sheaf_status *sheaf__open_config(sheaf_config *out, const sheaf_catalog *catalog);

/* sheaf__open_source - the tensors: of an adapter all, else weights and buffers. Errors besides:
 * the first defect. */
sheaf_status *sheaf__open_source(sheaf_source **out, const char *path,
                                 const sheaf_dialect_hints *hints);
