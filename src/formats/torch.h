/* torch.h - PyTorch files: tensors and other values, by torch.save().
 *
 *   zip file (torch 1.6 and later), entries stored, never compressed, under one top folder:
 *     data.pkl        the pickle (pickle.h); storages are persistent ids with a key
 *     data/KEY        the bytes of storage KEY, 64-byte aligned
 *     byteorder       "little"; absent in older files
 *     version         "3\n"; others are ignored
 *   legacy file: five pickles in a row (magic number, protocol 1001, system info, the value,
 *     the list of storage keys), then for each key an int64 count of elements and the elements
 *
 * A reader hands out where each tensor lies, not its bytes: read them with sheaf__file_read_at()
 * or make pieces of them (catalog/catalog.h). Everything was checked before open returns:
 * every entry and every element lies inside the file. The checksum of data.pkl is checked at open,
 * those of the storages by sheaf__torch_check_data(). */
#pragma once

#include "base/file.h"
#include "formats/pickle.h"

#define SHEAF_TORCH_MAX_PICKLE ((size_t)256 << 20)

/* The place of a storage. */
typedef struct sheaf_torch_storage {
    int64_t offset, bytes; /* from the start of the file */
    uint32_t crc;
    bool has_crc; /* legacy files have none, nor files written with the checksum turned off */
} sheaf_torch_storage;

typedef struct sheaf_torch {
    char *path;           /* owned */
    int fd;               /* open for reading; -1 after sheaf__torch_close_file() */
    int64_t size;         /* of the whole file */
    sheaf_file_mark mark; /* before anything of it was read */
    bool legacy;
    sheaf_pickle_doc *doc;        /* doc->root is the value, doc->tensor its tensors */
    sheaf_torch_storage *storage; /* doc->nstorages of them, side by side with doc->storage */
} sheaf_torch;

/* sheaf__torch_open - Errors: SHEAF_E_IO; SHEAF_E_FORMAT naming the damage (a file cut short, an
 * entry that is missing, twice, overlapping or outside the file, a bad checksum, a tensor outside
 * its storage); SHEAF_E_UNSAFE when the pickle calls something; SHEAF_E_UNSUPPORTED
 * (compressed entries, big-endian, tar files of torch 0.1, more than 8 axes). */
sheaf_status *sheaf__torch_open(sheaf_torch **out, const char *path);
/* sheaf__torch_open_at - a zip file that lies in `length` bytes of another file, as the items of a
 * torch.distributed.checkpoint do. Offsets still count from the start of the whole file. */
sheaf_status *sheaf__torch_open_at(sheaf_torch **out, const char *path, int64_t offset,
                                   int64_t length);
/* sheaf__torch_is - do the first bytes look like either form? False when the file cannot be
 * read. */
bool sheaf__torch_is(const char *path);
/* sheaf__torch_close_file - closes the descriptor only: values and positions stay. */
void sheaf__torch_close_file(sheaf_torch *file);
void sheaf__torch_close(sheaf_torch *file);

/* sheaf__torch_offset - the byte of a tensor's first element, from the start of the file. */
int64_t sheaf__torch_offset(const sheaf_torch *file, const sheaf_pickle_tensor *tensor);
/* sheaf__torch_read - the tensor, dense, row-major, into dst of `bytes` (by shape and dtype:
 * SHEAF_E_ARG otherwise). For small tensors: a strided one is read element by element. */
sheaf_status *sheaf__torch_read(const sheaf_torch *file, const sheaf_pickle_tensor *tensor,
                                void *dst, size_t bytes);
/* sheaf__torch_check_data - the CRC-32 of every storage, in bounded memory. Thread-safe. The first
 * damaged entry is named: SHEAF_E_FORMAT. */
sheaf_status *sheaf__torch_check_data(const sheaf_torch *file);

/* ---- writing ---- */

typedef struct sheaf_torch_writer sheaf_torch_writer;

/* sheaf__torch_begin - creates `path`, claims its full size. The root of `doc` (sheaf__pickle_made)
 * is encoded during begin; nothing of it is needed afterwards. Tensor i of the calls below is
 * doc->tensor[i]. */
sheaf_status *sheaf__torch_begin(sheaf_torch_writer **out, const char *path,
                                 const sheaf_pickle_doc *doc);
/* sheaf__torch_write - `bytes` at byte `begin` of tensor `index`, in any order. Thread-safe for
 * ranges that do not overlap. */
sheaf_status *sheaf__torch_write(sheaf_torch_writer *writer, int64_t index, int64_t begin,
                                 const void *src, int64_t bytes);
/* sheaf__torch_finish - headers with their checksums, fsync, close, free (in any case). Errors:
 * SHEAF_E_LAYOUT when a tensor did not get each of its bytes once. */
sheaf_status *sheaf__torch_finish(sheaf_torch_writer *writer);
/* sheaf__torch_abandon - close and delete. Accepts NULL. */
void sheaf__torch_abandon(sheaf_torch_writer *writer);

/* ---- between torch.c and torch_legacy.c ---- */

enum { SHEAF_TORCH_LEGACY_MAGIC_BYTES = 2 + 9 + 12 };

/* sheaf__torch_is_legacy - do these bytes begin with the pickle of the magic number? */
bool sheaf__torch_is_legacy(const unsigned char head[SHEAF_TORCH_LEGACY_MAGIC_BYTES]);
/* sheaf__torch_read_legacy - values and positions of a legacy file; file->fd, path and size are
 * there. */
sheaf_status *sheaf__torch_read_legacy(sheaf_torch *file);
