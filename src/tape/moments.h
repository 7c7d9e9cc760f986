/* moments.h - the moments of trained tensors, where they lie elsewhere between updates.
 *
 * Both are cut into chunks of as many elements; a block (ops/offload.h) is a chunk of the first
 * moment and that of the second, in 8 bits with their scales. Where there are some in 8 bits, those
 * of float32, of small tensors, stay. An update meets them in their order and writes each back
 * while the next ones are read. Their addresses are numbers outside of all memory: sheaf__borrow()
 * and sheaf__return() move what lies there, so that checkpoints are what they are without. */
#pragma once

#include "ops/offload.h"
#include "ops/tensor/trained.h"
#include "tape/trained.h"

typedef struct sheaf__moments sheaf__moments;

/* sheaf__moments_new - zeros; sets the addresses of both moments. */
sheaf_status *sheaf__moments_new(sheaf__moments **out, sheaf__trained_set *set);
/* Accepts NULL. */
void sheaf__moments_free(sheaf__moments *moments);
/* Around all of one step; the updates between have ascending addresses. Failures are the device's.
 */
void sheaf__moments_begin(sheaf__moments *moments);
void sheaf__moments_update(sheaf__moments *moments, sheaf__update of);
void sheaf__moments_update8(sheaf__moments *moments, sheaf__update8 of);
void sheaf__moments_end(sheaf__moments *moments);
/* sheaf__moments_finite - of n of them from `at` on. */
bool sheaf__moments_finite(const sheaf__moments *moments, float *at, int64_t n);
/* sheaf__moments_host - bytes of the host's memory that borrowing `most` bytes at a time takes. */
size_t sheaf__moments_host(const sheaf__trained_set *set, size_t most);
/* NULL of NULL. */
sheaf__offload *sheaf__moments_offload(const sheaf__moments *moments);
