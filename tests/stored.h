/* stored.h - for tests: .safetensors files that are read, written and compared. */
#pragma once

#include "tests/files.h"
#include "tests/put_tensors.h"

#include <unistd.h>

#include "formats/safetensors.h"

static inline void close_record(void *file)
{
    sheaf__safetensors_close(file);
}

/* An open file, which is kept. */
static inline sheaf_safetensors *record(const char *path)
{
    sheaf_safetensors *file;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    return kept(file, close_record);
}

/* The bytes of a tensor, which must be there; entry: out (NULL: not asked). */
static inline void *raw_of(const sheaf_safetensors *file, const char *name,
                           const sheaf_safetensors_entry **entry)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    if (e == NULL)
        fail_msg("no '%s'", name);
    void *raw = room((size_t)e->bytes);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, raw, e->bytes));
    if (entry != NULL)
        *entry = e;
    return raw;
}

/* One tensor has the bytes, dtype and shape of another. */
static inline void check_same_tensor(const sheaf_safetensors *got, const char *name,
                                     const sheaf_safetensors *want, const char *as)
{
    const sheaf_safetensors_entry *e, *w;
    const void *x = raw_of(got, name, &e), *y = raw_of(want, as, &w);
    if (e->dtype != w->dtype || e->ndim != w->ndim ||
        memcmp(e->shape, w->shape, (size_t)w->ndim * sizeof *w->shape) != 0)
        fail_msg("'%s' has another dtype or shape", name);
    CHECK_BYTES(name, x, y, (size_t)w->bytes);
}

/* Every tensor of a file is in another, which has `more` besides. */
static inline void check_same_tensors(const char *got, const char *want, int64_t more)
{
    const size_t mark = keeping.n;
    const sheaf_safetensors *a = record(got), *b = record(want);
    assert_int_equal(a->header.count, b->header.count + more);
    for (int64_t i = 0; i < b->header.count; i++)
        check_same_tensor(a, b->header.entry[i].name, b, b->header.entry[i].name);
    release_kept(mark);
}

/* A .safetensors file to write. */
typedef struct made_tensors {
    sheaf_safetensors_spec spec[512];
    const void *data[512];
    int count;
} made_tensors;

static inline void made_add(made_tensors *m, const char *name, sheaf_dtype dtype, int ndim,
                            const int64_t *shape, const void *data)
{
    assert_true(m->count < (int)ARRAY_LEN(m->data));
    sheaf_safetensors_spec *s = &m->spec[m->count];
    int64_t bytes;
    *s = (sheaf_safetensors_spec){ .name = textf("%s", name), .dtype = dtype, .ndim = ndim };
    memcpy(s->shape, shape, (size_t)ndim * sizeof *shape);
    CHECK_OK(sheaf__safetensors_bytes(&bytes, s));
    m->data[m->count] = memcpy(room((size_t)bytes), data, (size_t)bytes);
    m->count++;
}

/* A tensor of a file under another name. */
static inline void made_copy(made_tensors *m, const char *as, const sheaf_safetensors *file,
                             const char *name)
{
    const sheaf_safetensors_entry *e;
    const void *data = raw_of(file, name, &e);
    made_add(m, as, e->dtype, e->ndim, e->shape, data);
}

/* Writes them, to a path. */
static inline const char *made_write(made_tensors *m, const char *path)
{
    unlink(path);
    put_tensors(path, m->spec, m->count, m->data);
    return path;
}
