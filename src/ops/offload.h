/* offload.h - blocks of a device's memory that lie elsewhere while nothing uses them: in a file,
 * or, of a device with memory of its own, in the host's memory. A helper thread reads them ahead of
 * use, and writes what was made or changed.
 *
 * Blocks are used in the order of a list, round and round: take() gives the next one, give()
 * returns the oldest that was taken. In between it lies in a ring of the device's memory, twice as
 * large as what is taken together, so that the next ones are read, and the last ones written, while
 * those are used. The order and the size of the ring are the same on dry, which counts what is read
 * and written.
 *
 * The file has no name: it is gone with the process, however that ends. Its space is claimed before
 * the first write; it is read past the cache of files where the file system can, as what does not
 * fit into memory does not fit into that either. */
#pragma once

#include "ops/device.h"

typedef struct sheaf__offload sheaf__offload;

typedef struct sheaf__offload_costs {
    uint64_t read, written;  /* bytes */
    double reading, writing; /* seconds of the helper thread */
    double waiting;          /* seconds of callers in take */
} sheaf__offload_costs;

/* sheaf__offload_new - empty.
 *   kind    of the device's memory
 *   folder  of the file; NULL: the host's memory. Not looked at on dry */
sheaf_status *sheaf__offload_new(sheaf__offload **out, sheaf__device *device, sheaf_memory kind,
                                 const char *folder);
/* Accepts NULL. */
void sheaf__offload_free(sheaf__offload *offload);
/* sheaf__offload_add - a new block; *block is its number. sheaf__offload_resize - another size, its
 * content is lost; after a failure that of all blocks, as claim() has it. */
sheaf_status *sheaf__offload_add(int64_t *block, sheaf__offload *offload, size_t bytes);
sheaf_status *sheaf__offload_resize(sheaf__offload *offload, int64_t block, size_t bytes);
/* sheaf__offload_clear - forgets all blocks, for others in the same space. Not between take and
 * give.
 */
sheaf_status *sheaf__offload_clear(sheaf__offload *offload);
/* sheaf__offload_claim - the space of all blocks so far. Errors: SHEAF_E_IO: a full disk, and what
 * blocks held is lost; SHEAF_E_MEMORY. */
sheaf_status *sheaf__offload_claim(sheaf__offload *offload);
/* sheaf__offload_ring - takes the device's memory for blocks of together `together` bytes
 * (sheaf__offload_size() of each), twice; begin() takes more where that is not enough. */
sheaf_status *sheaf__offload_ring(sheaf__offload *offload, size_t together);
/* sheaf__offload_rest - sheaf__offload_stop(), and gives that memory back. */
sheaf_status *sheaf__offload_rest(sheaf__offload *offload);
/* sheaf__offload_bytes - the most that all blocks took: of a file, or else of the host's memory.
 * sheaf__offload_host - of these, bytes of the host's memory, also on dry; with a file, those that
 * a block passes through. */
size_t sheaf__offload_bytes(const sheaf__offload *offload);
size_t sheaf__offload_host(const sheaf__offload *offload);

/* One block at a time, in the ring, while no list is used. sheaf__offload_fill - memory for its
 * content; sheaf__offload_filled - which was written there. sheaf__offload_fetch - reads it. */
sheaf_status *sheaf__offload_fill(void **at, sheaf__offload *offload, int64_t block);
sheaf_status *sheaf__offload_filled(sheaf__offload *offload, int64_t block);
sheaf_status *sheaf__offload_fetch(void **at, sheaf__offload *offload, int64_t block);
/* A part of a block, to or from the host's memory. Not between take and give. */
sheaf_status *sheaf__offload_read(sheaf__offload *offload, int64_t block, size_t from, void *to,
                                  size_t bytes);
sheaf_status *sheaf__offload_write(sheaf__offload *offload, int64_t block, size_t to,
                                   const void *from, size_t bytes);

typedef struct sheaf__offload_use {
    int64_t block;
    bool reads, writes; /* take() finds what was written last; what is given back is written */
} sheaf__offload_use;

/* sheaf__offload_begin - the list that is used from here on, copied; what was read ahead is kept
 * where it is the list of before and all of that was used.
 *   together  most bytes that are taken at once (sheaf__offload_size() of each) */
sheaf_status *sheaf__offload_begin(sheaf__offload *offload, const sheaf__offload_use *list,
                                   int64_t count, size_t together);
/* sheaf__offload_size - bytes of the ring that a block takes. */
size_t sheaf__offload_size(const sheaf__offload *offload, int64_t block);
/* sheaf__offload_take - waits for the next block. Errors: those of reading and of writing back. */
sheaf_status *sheaf__offload_take(void **at, sheaf__offload *offload);
/* Nothing where nothing is taken. sheaf__offload_give_part - of one that is written: only so many
 * of its first bytes are written now, and read later. */
void sheaf__offload_give(sheaf__offload *offload);
void sheaf__offload_give_part(sheaf__offload *offload, size_t bytes);
/* sheaf__offload_stop - ends the use of a list, also after a failure; what was given back is
 * written. */
sheaf_status *sheaf__offload_stop(sheaf__offload *offload);
/* sheaf__offload_costs_of - so far. */
sheaf__offload_costs sheaf__offload_costs_of(sheaf__offload *offload);
