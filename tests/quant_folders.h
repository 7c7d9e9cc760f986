/* quant_folders.h - recorded folders of quantized models taken apart, and copies with faults. */
#pragma once

#include "tests/files.h"

#include <jansson.h>

#include "base/base.h"
#include "sheaf/dtype.h"

/* ---- a safetensors file that is taken apart ---- */

typedef struct quant_tensor {
    char name[200], dtype[16];
    json_t *shape; /* owned */
    char *data;    /* owned */
    size_t size;
} quant_tensor;

typedef struct quant_folder {
    quant_tensor tensor[256];
    int count;
    char *config; /* owned */
} quant_folder;

static inline quant_tensor *quant_find(quant_folder *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

static inline void quant_open(quant_folder *f, const char *path)
{
    char file[1200], *bytes = NULL;
    size_t size = 0;
    const char *name;
    json_t *entry;
    *f = (quant_folder){ .count = 0 };
    snprintf(file, sizeof file, "%s/config.json", path);
    CHECK_OK(sheaf__file_read_all(&f->config, &size, file, 1 << 20));
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    CHECK_OK(sheaf__file_read_all(&bytes, &size, file, 1 << 24));
    const size_t header = (size_t)sheaf__little((const unsigned char *)bytes, 8);
    json_t *root = json_loadb(bytes + 8, header, 0, NULL);
    assert_non_null(root);
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        quant_tensor *t = &f->tensor[f->count++];
        const json_t *at = json_object_get(entry, "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(at, 0)),
                     end = (size_t)json_integer_value(json_array_get(at, 1));
        snprintf(t->name, sizeof t->name, "%s", name);
        snprintf(t->dtype, sizeof t->dtype, "%s",
                 json_string_value(json_object_get(entry, "dtype")));
        t->shape = json_deep_copy(json_object_get(entry, "shape"));
        t->size = end - begin;
        t->data = malloc(t->size + 1);
        memcpy(t->data, bytes + 8 + header + begin, t->size);
    }
    json_decref(root);
    free(bytes);
}

static inline void quant_close(quant_folder *f)
{
    for (int i = 0; i < f->count; i++) {
        json_decref(f->tensor[i].shape);
        free(f->tensor[i].data);
    }
    free(f->config);
}

/* quant_resize - the tensor has this dtype and shape (JSON), and the bytes that this takes: zeros
 * after those that it had. */
static inline void quant_resize(quant_tensor *t, const char *dtype, const char *shape)
{
    size_t n = 1;
    json_decref(t->shape);
    t->shape = json_loads(shape, 0, NULL);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    for (size_t i = 0; i < json_array_size(t->shape); i++)
        n *= (size_t)json_integer_value(json_array_get(t->shape, i));
    n *= sheaf_dtype_bytes((sheaf_dtype)sheaf_dtype_from_name(dtype));
    t->data = realloc(t->data, n + 1);
    if (n > t->size)
        memset(t->data + t->size, 0, n - t->size);
    t->size = n;
}

static inline void quant_drop(quant_folder *f, quant_tensor *t)
{
    json_decref(t->shape);
    free(t->data);
    memmove(t, t + 1, (size_t)(f->tensor + --f->count - t) * sizeof *t);
}

/* quant_add - one more, a copy of `t`. */
static inline quant_tensor *quant_add(quant_folder *f, const quant_tensor *t, const char *name)
{
    quant_tensor *to = &f->tensor[f->count++];
    *to = *t;
    snprintf(to->name, sizeof to->name, "%s", name);
    to->shape = json_deep_copy(t->shape);
    to->data = malloc(t->size + 1);
    memcpy(to->data, t->data, t->size);
    return to;
}

/* quant_write - the folder at `path`, which is made. */
static inline void quant_write(const quant_folder *f, const char *path)
{
    char file[1200];
    json_t *root = json_object();
    size_t at = 0;
    for (int i = 0; i < f->count; i++) {
        const quant_tensor *t = &f->tensor[i];
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:O, s:[I, I]}", "dtype", t->dtype, "shape", t->shape,
                                      "data_offsets", (json_int_t)at, (json_int_t)(at + t->size)));
        at += t->size;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    const size_t header = (strlen(text) + 7) / 8 * 8;
    char *all = malloc(8 + header + at + 1);
    for (int i = 0; i < 8; i++)
        all[i] = (char)(header >> 8 * i & 255);
    memset(all + 8, ' ', header);
    memcpy(all + 8, text, strlen(text));
    at = 8 + header;
    for (int i = 0; i < f->count; at += f->tensor[i++].size)
        memcpy(all + at, f->tensor[i].data, f->tensor[i].size);
    CHECK_OK(sheaf__make_dirs(path));
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    CHECK_OK(sheaf__file_write_whole(file, all, at));
    snprintf(file, sizeof file, "%s/config.json", path);
    CHECK_OK(sheaf__file_write_whole(file, f->config, strlen(f->config)));
    free(all);
    free(text);
    json_decref(root);
}
