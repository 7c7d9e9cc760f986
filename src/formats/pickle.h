/* pickle.h - what a Python pickle says, as data. Nothing in it is ever called.
 *
 * Read are the opcodes that Python's pickler emits for protocols 2 to 5, no others. A name
 * ("GLOBAL") means something in one of three ways: a closed table of names becomes plain
 * values (OrderedDict -> dict, torch.Size -> tuple, _rebuild_tensor_v2 -> tensor, ...); a name
 * that only makes sense as a call of something (posix.system, builtins.eval, most of
 * Python's library, functions of unknown packages) refuses the whole pickle with
 * SHEAF_E_UNSAFE and its name; every other class stays a name, and an instance of it an
 * opaque object with its arguments and state. docs/formats.md has the tables.
 *
 * Values form a graph without cycles (the place where one closed is a value of kind
 * SHEAF_PICKLE_AGAIN), nested at most SHEAF_PICKLE_MAX_DEPTH deep; one value may be reached in
 * many ways, so walk by key, or count your steps. They live in a document and are freed
 * with it; memory is bounded by the bytes of the pickle (options). */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "sheaf/status.h"

#define SHEAF_PICKLE_MAX_DEPTH 512
#define SHEAF_PICKLE_MAX_DIMS 8

typedef enum sheaf_pickle_kind {
    SHEAF_PICKLE_NONE,
    SHEAF_PICKLE_BOOL,  /* number 0 or 1 */
    SHEAF_PICKLE_INT,   /* number */
    SHEAF_PICKLE_BIG,   /* an integer beyond 64 bits: text holds it, two's complement, little endian
                         */
    SHEAF_PICKLE_FLOAT, /* real */
    SHEAF_PICKLE_STRING,  /* text: UTF-8 as Python writes it (surrogates may occur), NUL-terminated
                           */
    SHEAF_PICKLE_BYTES,   /* text: any bytes (also bytearray, and _codecs.encode of protocol 2) */
    SHEAF_PICKLE_LIST,    /* items */
    SHEAF_PICKLE_TUPLE,   /* items; also torch.Size */
    SHEAF_PICKLE_SET,     /* items; also frozenset */
    SHEAF_PICKLE_DICT,    /* items: key, value, key, value; count of pairs; also OrderedDict,
                             defaultdict, Counter */
    SHEAF_PICKLE_GLOBAL,  /* module, name: a class or function that was only named */
    SHEAF_PICKLE_OBJECT,  /* object: an instance of a class that is not in the table, unread */
    SHEAF_PICKLE_DTYPE,   /* dtype: torch.bfloat16 */
    SHEAF_PICKLE_STORAGE, /* number: index of the document's storages */
    SHEAF_PICKLE_TENSOR,  /* number: index of the document's tensors; also parameters */
    SHEAF_PICKLE_PERSISTENT, /* items: one, the persistent id, where it is no torch storage */
    SHEAF_PICKLE_AGAIN,      /* here the value would have contained itself */
} sheaf_pickle_kind;

typedef struct sheaf_pickle sheaf_pickle;

typedef struct sheaf_pickle_text {
    const char *at;
    size_t size;
} sheaf_pickle_text;
typedef struct sheaf_pickle_items {
    sheaf_pickle **at;
    int64_t count, capacity;
} sheaf_pickle_items;
typedef struct sheaf_pickle_global {
    const char *module, *name;
} sheaf_pickle_global;

typedef struct sheaf_pickle_object {
    sheaf_pickle *class; /* a GLOBAL */
    sheaf_pickle *args;  /* arguments of its constructor: a tuple, possibly empty */
    sheaf_pickle *state; /* its state, set later; NULL = none. Often a dict of fields */
    /* elements and entries, where its class is a kind of list or dict; or NULL */
    sheaf_pickle *list, *dict;
} sheaf_pickle_object;

struct sheaf_pickle {
    sheaf_pickle_kind kind;
    int mark; /* for the document */
    union {
        int64_t number;
        double real;
        sheaf_pickle_text text;
        sheaf_pickle_items items;
        sheaf_pickle_global global;
        sheaf_pickle_object *object;
        sheaf_dtype dtype;
    } as;
};

/* ---- tensors ---- */

typedef struct sheaf_pickle_storage {
    const char *key, *location; /* "0", "cuda:1" */
    sheaf_dtype dtype;          /* of its class; SHEAF_U8 for an untyped one */
    int element;                /* bytes of an element of its class */
    bool unnamed;  /* its class has no dtype here (quantized, complex128): tensors of it are objects
                    */
    int64_t bytes; /* that its persistent id promises */
    int64_t whole; /* of the file's storage `key`: `bytes`, but for a view more */
    int64_t
        within; /* a view of the file's storage `key`, from this byte (old files only); else 0 */
} sheaf_pickle_storage;

typedef struct sheaf_pickle_tensor {
    int64_t storage;
    sheaf_dtype dtype;
    int ndim;       /* 0 = scalar */
    int64_t offset; /* of its first element in the storage, in elements */
    int64_t shape[SHEAF_PICKLE_MAX_DIMS];
    int64_t stride[SHEAF_PICKLE_MAX_DIMS]; /* in elements, at least 0 (0: expanded) */
} sheaf_pickle_tensor;                     /* every element lies inside the storage's bytes */

typedef struct sheaf_pickle_doc {
    const sheaf_pickle *root;
    int64_t nstorages, ntensors;
    sheaf_pickle_storage *storage;
    sheaf_pickle_tensor *tensor;
    struct sheaf_pickle_arena *arena;
} sheaf_pickle_doc;

/* sheaf__pickle_parse - a pickle. `used` NULL: it fills `bytes` to the last; else more may follow,
 * and *used is its length. Its values take at most 96 times its bytes and 64 KiB, and 1 GiB.
 * Errors: SHEAF_E_FORMAT with the byte where it goes wrong, SHEAF_E_UNSAFE with the name that would
 * have been called, SHEAF_E_UNSUPPORTED (protocol 0 or 1), SHEAF_E_MEMORY. */
sheaf_status *sheaf__pickle_parse(sheaf_pickle_doc **out, size_t *used, const void *bytes,
                                  size_t size);
void sheaf__pickle_free(sheaf_pickle_doc *doc);

/* ---- looking at values; every function accepts NULL and returns "no" ---- */

/* sheaf__pickle_get - the value of a string key of a dict, or of a field of an object (its state,
 * Namespace and the like, or entries); the last one of equal keys; NULL when there is none. */
const sheaf_pickle *sheaf__pickle_get(const sheaf_pickle *value, const char *key);
/* sheaf__pickle_path - get after get: sheaf__pickle_path(root, "args", "padded_vocab_size",
 * NULL). */
const sheaf_pickle *sheaf__pickle_path(const sheaf_pickle *value, ...) __attribute__((sentinel));
/* sheaf__pickle_item - of a list, tuple or set; NULL outside. */
const sheaf_pickle *sheaf__pickle_item(const sheaf_pickle *value, int64_t i);
/* sheaf__pickle_count - items of a list, tuple or set, pairs of a dict; 0 for anything else. */
int64_t sheaf__pickle_count(const sheaf_pickle *value);
/* sheaf__pickle_key, _value - of pair i of a dict (or of an object that is a kind of dict). */
const sheaf_pickle *sheaf__pickle_key(const sheaf_pickle *value, int64_t i);
const sheaf_pickle *sheaf__pickle_value(const sheaf_pickle *value, int64_t i);
bool sheaf__pickle_is(const sheaf_pickle *value, sheaf_pickle_kind kind);
/* sheaf__pickle_is_object - an instance of module.name; module NULL = any module. */
bool sheaf__pickle_is_object(const sheaf_pickle *value, const char *module, const char *name);
/* sheaf__pickle_text - a string without NUL inside, borrowed; NULL for anything else. */
const char *sheaf__pickle_text(const sheaf_pickle *value);
/* Each is false, and leaves *out, when the value is no such number: ints take bools and numpy's
 * integer scalars, floats take ints and numpy's floating scalars too. */
bool sheaf__pickle_int(int64_t *out, const sheaf_pickle *value);
bool sheaf__pickle_float(double *out, const sheaf_pickle *value);
/* sheaf__pickle_shape - a tuple or list of at most SHEAF_PICKLE_MAX_DIMS sizes, none negative, as
 * torch.Size. */
bool sheaf__pickle_shape(int *ndim, int64_t shape[SHEAF_PICKLE_MAX_DIMS],
                         const sheaf_pickle *value);
const sheaf_pickle_tensor *sheaf__pickle_tensor(const sheaf_pickle_doc *doc,
                                                const sheaf_pickle *value);

#define SHEAF_PICKLE_UNREAD_MOST 96
/* sheaf__pickle_unread - what a value that is no TENSOR is, or holds, of tensors all the same ("a
 * quantized tensor", "a numpy array"): words in `buffer` or a literal. NULL: none, it may be left
 * out. One value may be reached in many ways: *steps is how many are looked at yet, and counts
 * down. */
const char *sheaf__pickle_unread(const sheaf_pickle *value, char buffer[SHEAF_PICKLE_UNREAD_MOST],
                                 int64_t *steps);

/* ---- making values, to be written (torch.h) ----
 *
 * A value belongs to the document it was made in. A failed allocation gives NULL, which every
 * maker accepts and remembers: sheaf__pickle_made() reports it. */
sheaf_status *sheaf__pickle_new(sheaf_pickle_doc **out);
/* LIST, TUPLE, SET or DICT, empty. */
sheaf_pickle *sheaf__pickle_make(sheaf_pickle_doc *doc, sheaf_pickle_kind kind);
/* A tensor in a storage of its own, row-major; the n-th call makes tensor n, from 0. */
sheaf_pickle *sheaf__pickle_make_tensor(sheaf_pickle_doc *doc, sheaf_dtype dtype, int ndim,
                                        const int64_t *shape);
void sheaf__pickle_set(sheaf_pickle_doc *doc, sheaf_pickle *dict, const char *key,
                       sheaf_pickle *value);
/* sheaf__pickle_made - names the root. Errors: SHEAF_E_MEMORY, SHEAF_E_ARG for a tensor that cannot
 * be. */
sheaf_status *sheaf__pickle_made(sheaf_pickle_doc *doc, sheaf_pickle *root);

/* sheaf__pickle_encode - the root as a pickle of protocol 2, as torch.save() forms it: dicts stay
 * dicts, tensors become _rebuild_tensor_v2 (v3 for float8 and unsigned dtypes). malloc'd. Errors:
 * SHEAF_E_ARG for kinds that cannot be made above; SHEAF_E_MEMORY. */
sheaf_status *sheaf__pickle_encode(char **out, size_t *size, const sheaf_pickle_doc *doc);
