/* tiled.h - the source of a catalog, for who reads a few rows at a time.
 *
 * Where a file has the rows and columns of codes exchanged (GPTQ, AWQ), a few rows cost nearly as
 * much as several hundred. Of such tensors tiles of many rows are dequantised and kept, and
 * neighbouring rows come out of them: 8 MiB, which are freed when the source is closed. All other
 * tensors are read as they were. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__tiled - puts it over the source of `catalog`, or over one that has these tensors under
 * the same names. Threads that need the same tiles make them together. Errors: SHEAF_E_MEMORY;
 * *source is closed then, and NULL. */
sheaf_status *sheaf__tiled(sheaf_source **source, const sheaf_catalog *catalog);
