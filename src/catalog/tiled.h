/* tiled.h - a source over that of a catalog, for reading a few rows at a time.
 *
 * Where a file has the rows and columns of codes exchanged (GPTQ, AWQ), a few rows cost nearly as
 * much as several hundred. Such tensors are dequantised in tiles of many rows, which are kept for
 * the rows that follow: 8 MiB in all, freed when the source is closed. All other tensors are read
 * directly. */
#pragma once

#include "catalog/catalog.h"

/* sheaf__tiled - puts it over the source of `catalog`, or over one that has these tensors under
 * the same names. Threads that need the same tiles make them together. Errors: SHEAF_E_MEMORY;
 * *source is closed then, and NULL. */
sheaf_status *sheaf__tiled(sheaf_source **source, const sheaf_catalog *catalog);
