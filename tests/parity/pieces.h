/* pieces.h - the pictures of a recording (pictures/N.png) as the model reads them: for the parity
 * tests of families whose pictures stand in conversations. */
#pragma once

#include "data/record_pictures.h"
#include "infer/prompts.h"
#include "tests/parity/trial.h"

typedef struct pieces {
    sheaf__picture *picture; /* [n], with pixels; free() it */
    int64_t n;
} pieces;

/* The pieces of pictures number[0..count) of a folder, one picture after the other. */
static inline pieces pieces_of(const char *dir, const sheaf_config *config, const int64_t *number,
                               int64_t count)
{
    sheaf__viewing viewing;
    sheaf__viewed viewed[16];
    pieces p;
    sheaf__picture *like;
    assert_true(count <= (int64_t)ARRAY_LEN(viewed));
    sheaf__viewing_of(&viewing, config);
    for (int64_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "pictures/%d.png", (int)number[i]);
        CHECK_OK(sheaf__view_file(&viewed[i], in_dir(dir, name), &viewing));
    }
    CHECK_OK(sheaf__prompts_pieces(&like, &p.n, viewed, count));
    p.picture = sheaf__picture_room_like(like, p.n, viewing.tower, viewing.towers);
    assert_non_null(p.picture);
    sheaf__picture *next = p.picture;
    for (int64_t i = 0; i < count; i++) {
        CHECK_OK(sheaf__view_pixels(next, &viewed[i], &viewing));
        next += sheaf__sliced_count(&viewed[i].pieces);
        sheaf__viewed_release(&viewed[i]);
    }
    free(like);
    return p;
}

/* The numbers of a list, at most 16. */
static inline int64_t picture_numbers(int64_t number[16], const json_t *list)
{
    const size_t n = json_array_size(list);
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++)
        number[i] = json_integer_value(json_array_get(list, i));
    return (int64_t)n;
}

/* A .safetensors file to write: tensors whose memory is owned. */
typedef struct made_tensors {
    sheaf_safetensors_spec spec[128];
    void *data[128];
    int count;
} made_tensors;

static inline void made_add(made_tensors *m, const char *name, sheaf_dtype dtype, int ndim,
                            const int64_t *shape, const void *data)
{
    assert_true(m->count < (int)ARRAY_LEN(m->data));
    sheaf_safetensors_spec *s = &m->spec[m->count];
    int64_t bytes;
    *s = (sheaf_safetensors_spec){ .name = strdup(name), .dtype = dtype, .ndim = ndim };
    memcpy(s->shape, shape, (size_t)ndim * sizeof *shape);
    CHECK_OK(sheaf__safetensors_bytes(&bytes, s));
    m->data[m->count] = malloc((size_t)bytes + 1);
    memcpy(m->data[m->count++], data, (size_t)bytes);
}

/* A tensor of a file under another name. */
static inline void made_copy(made_tensors *m, const char *as, const sheaf_safetensors *file,
                             const char *name)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    if (e == NULL)
        fail_msg("no '%s'", name);
    void *data = malloc((size_t)e->bytes + 1);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, data, e->bytes));
    made_add(m, as, e->dtype, e->ndim, e->shape, data);
    free(data);
}

/* Writes and releases them; the path is malloc'd. */
static inline char *made_write(made_tensors *m, const char *path)
{
    sheaf_safetensors_writer *w;
    unlink(path);
    CHECK_OK(sheaf__safetensors_begin(&w, path, m->spec, m->count, NULL, 0));
    for (int i = 0; i < m->count; i++) {
        int64_t bytes;
        CHECK_OK(sheaf__safetensors_bytes(&bytes, &m->spec[i]));
        CHECK_OK(sheaf__safetensors_write(w, i, 0, m->data[i], bytes));
        free(m->data[i]);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    for (int i = 0; i < m->count; i++)
        free((char *)m->spec[i].name);
    m->count = 0;
    return strdup(path);
}
