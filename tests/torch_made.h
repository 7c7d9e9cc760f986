/* torch_made.h - files of torch made for a test. */
#pragma once

#include "tests/check.h"
#include "tests/pickle_made.h"

#include "formats/torch.h"

enum { MADE_STORED = 4096 };

typedef struct made_file {
    sheaf_pickle_doc *doc;
    sheaf_pickle *root;
    int64_t count;
    struct {
        void *data;
        int64_t bytes;
    } tensor[MADE_STORED];
} made_file;

static inline made_file *made_begin(void)
{
    made_file *f = calloc(1, sizeof *f);
    assert_non_null(f);
    CHECK_OK(sheaf__pickle_new(&f->doc));
    f->root = sheaf__pickle_make(f->doc, SHEAF_PICKLE_DICT);
    return f;
}

/* A tensor, whose data the file owns. */
static inline sheaf_pickle *made_put(made_file *f, sheaf_dtype dtype, int ndim,
                                     const int64_t *shape, void *data)
{
    assert_true(f->count < MADE_STORED);
    int64_t bytes = (int64_t)sheaf_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        bytes *= shape[i];
    f->tensor[f->count].data = data;
    f->tensor[f->count++].bytes = bytes;
    return sheaf__pickle_make_tensor(f->doc, dtype, ndim, shape);
}

static inline void made_set_int(made_file *f, sheaf_pickle *dict, const char *key, int64_t value)
{
    sheaf__pickle_set(f->doc, dict, key, sheaf__pickle_make_int(f->doc, value));
}

static inline sheaf_pickle *made_set(made_file *f, sheaf_pickle *dict, const char *key,
                                     sheaf_pickle_kind kind)
{
    sheaf_pickle *value = sheaf__pickle_make(f->doc, kind);
    sheaf__pickle_set(f->doc, dict, key, value);
    return value;
}

static inline sheaf_pickle *made_shape(made_file *f, int ndim, const int64_t *shape)
{
    sheaf_pickle *tuple = sheaf__pickle_make(f->doc, SHEAF_PICKLE_TUPLE);
    for (int i = 0; i < ndim; i++)
        sheaf__pickle_append(f->doc, tuple, sheaf__pickle_make_int(f->doc, shape[i]));
    return tuple;
}

/* Writes and frees. */
static inline void made_end(made_file *f, const char *path)
{
    sheaf_torch_writer *w = NULL;
    CHECK_OK(sheaf__pickle_made(f->doc, f->root));
    CHECK_OK(sheaf__torch_begin(&w, path, f->doc));
    for (int64_t i = 0; i < f->count; i++) {
        if (f->tensor[i].bytes > 0)
            CHECK_OK(sheaf__torch_write(w, i, 0, f->tensor[i].data, f->tensor[i].bytes));
        free(f->tensor[i].data);
    }
    CHECK_OK(sheaf__torch_finish(w));
    sheaf__pickle_free(f->doc);
    free(f);
}
