/* pickle_inner.h - what the files of the pickle reader share. */
#pragma once

#include "formats/pickle.h"

/* Memory of a document: pieces that are freed together, and the growing tables. */
typedef struct sheaf_pickle_arena {
    struct piece {
        struct piece *next;
    } * pieces;
    char *at;
    size_t left;        /* in the newest piece */
    size_t used, limit; /* of all, in bytes */
    bool failed;        /* an allocation failed; `full` says why */
    bool full;          /* the limit was reached */
    bool bad_tensor;    /* one was made that cannot be */
    int64_t storage_capacity, tensor_capacity;
    int64_t *slot, slots; /* hash table of storages, by all fields */
} sheaf_pickle_arena;

/* NULL when there is no more; remembered. Aligned to 8. */
void *sheaf__pickle_alloc(sheaf_pickle_doc *doc, size_t size);
sheaf_status *sheaf__pickle_out_of_memory(const sheaf_pickle_doc *doc);
sheaf_pickle *sheaf__pickle_node(sheaf_pickle_doc *doc, sheaf_pickle_kind kind);
/* *out stays NULL when memory ran out (remembered). */
sheaf_status *sheaf__pickle_new_object(sheaf_pickle **out, sheaf_pickle_doc *doc,
                                       sheaf_pickle *class, sheaf_pickle *args);
/* A copy with a NUL after it. */
bool sheaf__pickle_copy(sheaf_pickle_text *out, sheaf_pickle_doc *doc, const void *bytes,
                        size_t size);
/* Appends to a list, tuple or set (b NULL), or a pair to a dict. An array that is full, as one
 * shared with another value is, is left as it was. */
bool sheaf__pickle_push(sheaf_pickle_doc *doc, sheaf_pickle *to, sheaf_pickle *a, sheaf_pickle *b);
bool sheaf__pickle_add_tensor(int64_t *index, sheaf_pickle_doc *doc,
                              const sheaf_pickle_tensor *tensor);
/* An equal storage, or a new one; strings are copied. */
bool sheaf__pickle_add_storage(int64_t *index, sheaf_pickle_doc *doc,
                               const sheaf_pickle_storage *storage);
/* UTF-8 as Python writes it: halves of surrogate pairs are allowed. */
bool sheaf__pickle_is_utf8(const void *bytes, size_t size);
/* The name of torch's storage class for a dtype; NULL when it has none. */
const char *sheaf__pickle_class_of(sheaf_dtype dtype);
/* sheaf__pickle_untangle - cuts cycles and measures depth. Errors: SHEAF_E_FORMAT,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__pickle_untangle(sheaf_pickle_doc *doc, sheaf_pickle **root);

/* The result of calling a name. In `mark` of a GLOBAL while it is read. */
typedef enum sheaf_pickle_role {
    SHEAF_ROLE_CLASS,    /* an opaque object */
    SHEAF_ROLE_FUNCTION, /* of an unknown package: may be named, not called */
    SHEAF_ROLE_GETATTR,  /* of a class and a public name (an enum's member): an opaque object */
    SHEAF_ROLE_DICT,
    SHEAF_ROLE_DEFAULTDICT,
    SHEAF_ROLE_SET,
    SHEAF_ROLE_TUPLE,
    SHEAF_ROLE_LIST,
    SHEAF_ROLE_BYTES,
    SHEAF_ROLE_ENCODE,
    SHEAF_ROLE_SIZE,
    SHEAF_ROLE_MAKE,   /* copyreg: an object of the class that is its first argument */
    SHEAF_ROLE_TENSOR, /* _rebuild_tensor, _v2 */
    SHEAF_ROLE_TENSOR_V3,
    SHEAF_ROLE_PARAMETER,
    SHEAF_ROLE_FROM_TYPE,
} sheaf_pickle_role;

/* sheaf__pickle_name - what "module name" is. False: it can only be called, so it is
 * refused. */
bool sheaf__pickle_name(sheaf_pickle_role *role, const char *module, const char *name);
/* The status that refuses it. */
sheaf_status *sheaf__pickle_unsafe(const char *module, const char *name);

/* Each gives *out or leaves it NULL when memory ran out (remembered). Errors: SHEAF_E_FORMAT,
 * SHEAF_E_UNSAFE. */
sheaf_status *sheaf__pickle_call(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *callable,
                                 sheaf_pickle *args);
sheaf_status *sheaf__pickle_persistent(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *id);
sheaf_status *sheaf__pickle_rebuild(sheaf_pickle **out, sheaf_pickle_doc *doc,
                                    sheaf_pickle *callable, const sheaf_pickle *args);
