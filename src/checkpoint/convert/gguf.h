/* gguf.h - private to this part: tensors of a source as a GGUF file has them, and that file. */
#pragma once

#include "checkpoint/convert/convert.h"
#include "dialects/gguf/model.h"

/* The source of a tensor in the file. */
typedef struct sheaf__gguf_made {
    /* Its parts in the source, one behind the other along the first axis; owned, and filled by
     * sheaf__gguf_view_part(). */
    char **from;
    int64_t parts, capacity;
    int64_t head; /* rows of a head whose pairs become neighbours; 0: rows stay */
    bool plus_one;
    double factor; /* numbers are multiplied by it; 0: not */
    float *values; /* no tensor of the source, but these; owned */
    int64_t grid;  /* no tensor of the source, but the sines and cosines (schema/grid.h) of a grid
                      with so many columns; 0: not */
    int64_t first; /* rows of the source before its own */
    bool turned;   /* the source has its rows as columns */
    sheaf__gguf_type type;
} sheaf__gguf_made;

/* The list of a file's tensors, made step by step; then it is the source that they are read from,
 * in float32, or in what the file has. All zero: none. */
typedef struct sheaf__gguf_view sheaf__gguf_view;

/* sheaf__gguf_view_new - of at most so many tensors. Borrows `inner`. */
sheaf_status *sheaf__gguf_view_new(sheaf__gguf_view **out, sheaf_source *inner, int64_t most);
void sheaf__gguf_view_free(sheaf__gguf_view *view); /* accepts NULL */
/* sheaf__gguf_view_add - a tensor `name` of the file; what is allocated in `made` is the view's,
 * also after a failure. */
sheaf_status *sheaf__gguf_view_add(sheaf__gguf_view *view, const char *name, int ndim,
                                   const int64_t *shape, sheaf__gguf_made made);
/* sheaf__gguf_view_has - was one of this name added? */
bool sheaf__gguf_view_has(const sheaf__gguf_view *view, const char *name);
/* sheaf__gguf_view_part - one more part of that tensor; of three axes the first counts them. A
 * tensor without `values` and `grid` needs one. */
sheaf_status *sheaf__gguf_view_part(sheaf__gguf_view *view, const char *name, const char *from);

/* sheaf__gguf_needs_model - SHEAF_E_UNSUPPORTED where the source is of no model that is known. */
sheaf_status *sheaf__gguf_needs_model(const sheaf__converter *k);

/* A text that lies beside the file; all zero: none. */
typedef struct sheaf__gguf_beside {
    char *path, *text; /* malloc'd */
} sheaf__gguf_beside;
/* sheaf__gguf_view_write - writes the file k->o->dst, which appears when it is complete, right
 * after what lies beside it. */
sheaf_status *sheaf__gguf_view_write(sheaf__converter *k, sheaf__gguf_view *view,
                                     const sheaf__gguf_keys *keys,
                                     const sheaf__gguf_beside *beside);
