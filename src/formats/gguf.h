/* gguf.h - llama.cpp's files: keys with values, then named tensors.
 *
 *   bytes 0..3    "GGUF"
 *   u32           version: 3, or 2 with the same layout
 *   u64, u64      number of tensors, number of keys
 *   each key:     string (u64 length, bytes), u32 type of the value, value; an array is u32 type of
 *                 its items (no array), u64 count, items; a bool is a byte
 *   each tensor:  string name (at most 63 bytes), u32 axes (at most 4), u64 length of each, the
 *                 fastest first (columns before rows), u32 type (layout/ggml.h), u64 offset
 *   data          from the next multiple of general.alignment (a power of two, 32 where no key says
 *                 it); offsets count from there; tensors lie in order, each, also the last one,
 *                 padded with zeros to the alignment
 *
 * All numbers are little endian. The reader accepts and refuses what llama.cpp's does; the few
 * differences, all refusals, are in docs/gguf.md. */
#pragma once

#include "base/base.h"
#include "base/file.h"
#include "layout/ggml.h"

enum {
    SHEAF__GGUF_VERSION = 3,
    SHEAF__GGUF_ALIGNMENT = 32, /* default of general.alignment */
    SHEAF__GGUF_MAX_DIMS = 4,
    SHEAF__GGUF_MAX_NAME = 63, /* bytes of a tensor's name */
};
#define SHEAF__GGUF_ALIGNMENT_KEY "general.alignment"

typedef enum sheaf__gguf_value {
    SHEAF__GGUF_U8,
    SHEAF__GGUF_I8,
    SHEAF__GGUF_U16,
    SHEAF__GGUF_I16,
    SHEAF__GGUF_U32,
    SHEAF__GGUF_I32,
    SHEAF__GGUF_F32,
    SHEAF__GGUF_BOOL,
    SHEAF__GGUF_STRING,
    SHEAF__GGUF_ARRAY,
    SHEAF__GGUF_U64,
    SHEAF__GGUF_I64,
    SHEAF__GGUF_F64,
    SHEAF__GGUF_VALUES
} sheaf__gguf_value;

/* ---- what a file says ---- */

/* Bytes of a text in the file; not ended by 0, not always UTF-8. */
typedef struct sheaf__gguf_text {
    const char *at;
    int64_t size;
} sheaf__gguf_text;

typedef struct sheaf__gguf_key {
    const char *name; /* owned by the file; no byte of it is 0 */
    sheaf__gguf_value type;
    sheaf__gguf_value items; /* type of an array's */
    int64_t count;           /* of items; 1 where it is no array */
    const unsigned char *at; /* the first value, of which texts begin with their length */
    sheaf__gguf_text *texts; /* [count], of texts; else NULL */
    int64_t offset;          /* of `at` in the file */
} sheaf__gguf_key;

typedef struct sheaf__gguf_tensor {
    const char *name; /* owned by the file */
    sheaf__gguf_type type;
    int ndim;                            /* 0 = one number */
    int64_t shape[SHEAF__GGUF_MAX_DIMS]; /* rows before columns: the file's axes reversed */
    int64_t offset;                      /* from the start of the file */
    int64_t bytes;                       /* without padding */
    bool left_out;                       /* while it is read: something is wrong with it */
} sheaf__gguf_tensor;

typedef struct sheaf__gguf {
    char *path;           /* owned */
    int fd;               /* open for reading */
    sheaf_file_mark mark; /* before anything of it was read */
    int64_t nkeys, ntensors;
    sheaf__gguf_key *key;       /* in the order of the file */
    sheaf__gguf_tensor *tensor; /* by offset, which is the order of the file */
    int64_t alignment;
    void *memory; /* storage of the pointers above */
} sheaf__gguf;

/* sheaf__gguf_at - the GGUF file at `path`: that itself, by its name or how it begins; or of a
 * folder without other weights the first *.gguf that is none of a projector or an adapter by its
 * name ("mmproj", "lora"). NULL: there is none. */
const char *sheaf__gguf_at(char out[SHEAF_PATH_SIZE], const char *path);
/* sheaf__gguf_alone - the same as *found. Errors: SHEAF_E_ARG for a folder with several such files,
 * unless they are the parts of one model; *found is the first also then. */
sheaf_status *sheaf__gguf_alone(const char **found, char out[SHEAF_PATH_SIZE], const char *path);
/* sheaf__gguf_open - reads all but the data. Errors: SHEAF_E_FORMAT naming the defect;
 * SHEAF_E_UNSUPPORTED for versions, types and byte orders that sheaf does not read. */
sheaf_status *sheaf__gguf_open(sheaf__gguf **out, const char *path);
/* Receives each fault that concerns one tensor alone, and owns it. Returns NULL to read on without
 * that tensor. */
typedef struct sheaf__gguf_faults {
    sheaf_status *(*hear)(void *self, sheaf_status *fault);
    void *self;
} sheaf__gguf_faults;
/* sheaf__gguf_open_sound - the same, without the tensors that have such faults. `faults` NULL: the
 * first fault is the error. */
sheaf_status *sheaf__gguf_open_sound(sheaf__gguf **out, const char *path,
                                     const sheaf__gguf_faults *faults);
void sheaf__gguf_close(sheaf__gguf *file); /* accepts NULL */

/* sheaf__gguf_find - NULL when there is none. */
const sheaf__gguf_key *sheaf__gguf_find(const sheaf__gguf *file, const char *name);
const sheaf__gguf_tensor *sheaf__gguf_tensor_named(const sheaf__gguf *file, const char *name);

/* Value `item` of a key as a whole number or a number; `*ok` becomes false, and otherwise stays,
 * where its type has none or one that does not fit. */
int64_t sheaf__gguf_integer(const sheaf__gguf_key *key, int64_t item, bool *ok);
double sheaf__gguf_number(const sheaf__gguf_key *key, int64_t item, bool *ok);
/* sheaf__gguf_string - a copy of the text that is a key's value, ended by 0; NULL: no text, or it
 * has a byte 0, or no memory. */
char *sheaf__gguf_string(const sheaf__gguf_key *key);

/* ---- what reading and writing share ---- */

/* sheaf__gguf_check_names - `count` elements of `each` bytes, which begin with a pointer to their
 * name. Errors: `code` for a name ("tensor", as `what` says) that is there twice. */
sheaf_status *sheaf__gguf_check_names(sheaf_code code, const char *what, const void *first,
                                      int64_t count, size_t each);
/* sheaf__gguf_padded - `bytes`, at least 0, up to the alignment; -1: beyond what can be counted. */
int64_t sheaf__gguf_padded(int64_t bytes, int64_t alignment);
