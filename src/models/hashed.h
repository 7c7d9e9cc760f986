/* hashed.h - the fingerprint of stored tensors: every byte of them, hashed while a model is loaded.
 *
 * A source that wraps another one and hashes what is read through it, one unit at a time. A unit is
 * a row of a tensor's view (sheaf/source.h); in a matrix that is cut along its columns, each of the
 * 8 parts that slices divide a row into; a tensor of at most one axis is one unit. In a run of at
 * most 8 slices, as by default, a rank reads whole units, however many ranks there are, so that
 * only vectors and frozen vocabulary tables are read more than once; a unit counts once, however
 * many ranks read it. Definition, every hash being XXH3-128 with seed 0 in its canonical form,
 * integers little endian:
 *
 *   unit      hash of (number of the unit in its tensor, u64; hash of its bytes)
 *   tensor    hash of (name of the dtype; axes, i64; shape, i64 each; sum of the units' first
 *             halves, u64, and of their second ones, u64, without carry)
 *   codes     of a tensor in codes (ops/quant/quant.h) a unit's bytes are its codes, a byte each,
 *             then the scales of its groups, or their codes, then their zeros; one more unit, the
 *             last, is the offset, the nested scales and the index, where there are any; and the
 *             tensor's hash goes on with codes, grouping, block, groups, zeros, doubled, i64 each
 *   weights   hash of (name, NUL, hash) of all tensors, ascending by the bytes of their names
 *
 * So a base that is quantised while it is loaded has the fingerprint of the quantised folder.
 * The names are canonical: neither the dialect and the files in which the tensors lie, nor slices,
 * ranks and threads matter. */
#pragma once

#include "comm/all.h"
#include "schema/schema.h"
#include "sheaf/source.h"

typedef struct sheaf__hashed sheaf__hashed;

/* sheaf__hashed_new - of the tensors of `inner` that a model of `config` has; NULL: all tensors.
 * `inner` is borrowed. */
sheaf_status *sheaf__hashed_new(sheaf__hashed **out, sheaf_source *inner,
                                const sheaf_config *config);
void sheaf__hashed_free(sheaf__hashed *hashed); /* accepts NULL */

/* The tensors of `inner`, all of them; reading hashes. Borrowed; closing it does nothing. */
sheaf_source *sheaf__hashed_source(sheaf__hashed *hashed);
/* sheaf__hashed_stop - turns hashing off. No thread may be reading. */
void sheaf__hashed_stop(sheaf__hashed *hashed);

/* sheaf__hashed_share - this process hashes only its share, about what the rank of that number
 * owns; call it before anything is read. sheaf__hashed_gather - collective over all processes,
 * after each hashed its share: then each has all hashes. */
void sheaf__hashed_share(sheaf__hashed *hashed, sheaf_comm *all);
sheaf_status *sheaf__hashed_gather(sheaf__hashed *hashed);

/* sheaf__hashed_rest - reads and hashes what was not read yet. Several threads may call it to share
 * the work; when all have returned, everything is hashed. */
sheaf_status *sheaf__hashed_rest(sheaf__hashed *hashed);
/* sheaf__hashed_all - the same with its own `threads` threads, 0 = all available cores. */
sheaf_status *sheaf__hashed_all(sheaf__hashed *hashed, int threads);

/* After everything is hashed: */
sheaf_status *sheaf__hashed_weights(char out[33], const sheaf__hashed *hashed);
int64_t sheaf__hashed_count(const sheaf__hashed *hashed);
/* sheaf__hashed_tensor - the hash of tensor `index`, and its name, borrowed; ascending by name. */
const char *sheaf__hashed_tensor(char out[33], const sheaf__hashed *hashed, int64_t index);
