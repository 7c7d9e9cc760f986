/* boxes.h - what a file holds of one part's tensor, moved to where it lies in the whole one.
 *
 * A "local" piece is a piece (catalog.h) whose box counts in the tensor of one part; a catalog of
 * such pieces describes one part. */
#pragma once

#include "catalog/catalog.h"
#include "formats/torch.h"

/* sheaf__piece_of - a torch file's tensor as a piece of itself. */
sheaf_piece sheaf__piece_of(int file, int rank, const sheaf_torch *torch,
                            const sheaf_pickle_tensor *tensor);

/* sheaf__catalog_put - a torch file's tensor, whole, as the tensor of this name, of rank `rank`. */
sheaf_status *sheaf__catalog_put(sheaf_catalog *catalog, sheaf_kind kind, const char *name,
                                 const sheaf_torch *torch, const sheaf_pickle_tensor *tensor,
                                 int rank);

/* sheaf__torch_number - a number, or a tensor of one float32: false where it is neither. */
bool sheaf__torch_number(double *out, const sheaf_torch *torch, const sheaf_pickle *value);

/* sheaf__piece_move - what of `piece` lies in the box [from, from + size), moved so that `from`
 * comes to lie at `to`. False when nothing of it lies there. */
bool sheaf__piece_move(sheaf_piece *out, const sheaf_piece *piece, int ndim, const int64_t *from,
                       const int64_t *size, const int64_t *to);

/* sheaf__range_boxes - elements [begin, end) of a dense row-major tensor, which lie together in a
 * file, as pieces: at most SHEAF_RANGE_BOXES. `first` gives file, rank, dtype, and the offset of
 * element `begin`. */
#define SHEAF_RANGE_BOXES (2 * SHEAF_CATALOG_MAX_DIMS)
int sheaf__range_boxes(sheaf_piece out[SHEAF_RANGE_BOXES], const sheaf_piece *first, int ndim,
                       const int64_t *shape, int64_t begin, int64_t end);

/* sheaf__elements - product of a shape whose product is known to fit. */
int64_t sheaf__elements(int ndim, const int64_t *shape);

/* sheaf__torch_digest - of the bytes of a dense tensor that has a storage of its own, by the
 * checksum in the file; 0 for others. */
uint64_t sheaf__torch_digest(const sheaf_torch *torch, const sheaf_pickle_tensor *tensor);

/* sheaf__torch_stem - the name that a zip file of torch had when it was written, without folder and
 * extension; "" when not known ("archive", an old file, no file). */
void sheaf__torch_stem(char stem[128], const char *path);

/* sheaf__values_equal - do two values of pickles say the same? Tensors are never equal. False also
 * after a million values. */
bool sheaf__values_equal(const sheaf_pickle *a, const sheaf_pickle *b);
