/* gguf_write.c - see gguf_write.h. The bytes are those of the gguf package's writer. */
#include "formats/gguf_write.h"

#include "base/base.h"
#include "base/round_up.h"
#include "formats/fill.h"

struct sheaf__gguf_writer {
    sheaf__fill_file file;
    int64_t size; /* of the whole file */
};

/* ---- keys ---- */

void sheaf__gguf_add_text(sheaf__gguf_keys *keys, const char *bytes, size_t size)
{
    sheaf__text_little(&keys->text, size, 8);
    sheaf__text_bytes(&keys->text, bytes, size);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void sheaf__gguf_add_f32(sheaf__gguf_keys *keys, float value)
{
    sheaf__text_little(&keys->text, bits_of(value), 4);
}

static void begin_key(sheaf__gguf_keys *keys, const char *key, sheaf__gguf_value type)
{
    sheaf__gguf_add_text(keys, key, strlen(key));
    sheaf__text_little(&keys->text, type, 4);
    keys->count++;
}

void sheaf__gguf_put_u32(sheaf__gguf_keys *keys, const char *key, int64_t value)
{
    begin_key(keys, key, SHEAF__GGUF_U32);
    sheaf__text_little(&keys->text, (uint64_t)value, 4);
}

void sheaf__gguf_put_i32(sheaf__gguf_keys *keys, const char *key, int32_t value)
{
    begin_key(keys, key, SHEAF__GGUF_I32);
    sheaf__text_little(&keys->text, (uint32_t)value, 4);
}

void sheaf__gguf_put_f32(sheaf__gguf_keys *keys, const char *key, double value)
{
    begin_key(keys, key, SHEAF__GGUF_F32);
    sheaf__gguf_add_f32(keys, (float)value);
}

void sheaf__gguf_put_bool(sheaf__gguf_keys *keys, const char *key, bool value)
{
    begin_key(keys, key, SHEAF__GGUF_BOOL);
    sheaf__text_little(&keys->text, value, 1);
}

void sheaf__gguf_put_text(sheaf__gguf_keys *keys, const char *key, const char *value)
{
    begin_key(keys, key, SHEAF__GGUF_STRING);
    sheaf__gguf_add_text(keys, value, strlen(value));
}

void sheaf__gguf_put_array(sheaf__gguf_keys *keys, const char *key, sheaf__gguf_value type,
                           int64_t count)
{
    begin_key(keys, key, SHEAF__GGUF_ARRAY);
    sheaf__text_little(&keys->text, type, 4);
    sheaf__text_little(&keys->text, (uint64_t)count, 8);
}

void sheaf__gguf_keys_release(sheaf__gguf_keys *keys)
{
    sheaf__text_release(&keys->text);
    *keys = (sheaf__gguf_keys){ 0 };
}

/* ---- begin ---- */

/* Bytes of a tensor; -1: its columns are no whole blocks, or it is too large. */
static int64_t tensor_bytes(const sheaf__gguf_spec *s)
{
    int64_t blocks = s->shape[s->ndim - 1], bytes;
    if (blocks % sheaf__gguf_type_block(s->type) != 0)
        return -1;
    blocks /= sheaf__gguf_type_block(s->type);
    for (int i = 0; i + 1 < s->ndim; i++)
        if (__builtin_mul_overflow(blocks, s->shape[i], &blocks))
            return -1;
    return __builtin_mul_overflow(blocks, sheaf__gguf_type_bytes(s->type), &bytes) ? -1 : bytes;
}

static sheaf_status *check_specs(const sheaf__gguf_spec *specs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const size_t size = strlen(specs[i].name);
        if (size > SHEAF__GGUF_MAX_NAME)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor '%s'", specs[i].name),
                                              "a name of at most %d bytes, which llama.cpp reads",
                                              SHEAF__GGUF_MAX_NAME),
                               "%zu", size);
    }
    return sheaf__gguf_check_names(SHEAF_E_ARG, "tensor", specs, count, sizeof *specs);
}

/* The bytes before the data, padded, and the place of each tensor in the data. */
static sheaf_status *make_header(sheaf_text *header, sheaf__gguf_writer *w,
                                 const sheaf__gguf_keys *keys, const sheaf__gguf_spec *specs)
{
    static const char zeros[SHEAF__GGUF_ALIGNMENT];
    sheaf__gguf_keys head = { 0 };
    int64_t at = 0;
    sheaf__text_bytes(&head.text, "GGUF", 4);
    sheaf__text_little(&head.text, SHEAF__GGUF_VERSION, 4);
    sheaf__text_little(&head.text, (uint64_t)w->file.count, 8);
    sheaf__text_little(&head.text, keys->count, 8);
    sheaf__text_bytes(&head.text, keys->text.size > 0 ? keys->text.at : "", keys->text.size);
    for (int64_t i = 0; i < w->file.count; i++) {
        const sheaf__gguf_spec *s = &specs[i];
        sheaf__fill *t = &w->file.tensor[i];
        t->bytes = tensor_bytes(s);
        t->offset = at;
        const int64_t bytes =
            t->bytes < 0 ? -1 : sheaf__gguf_padded(t->bytes, SHEAF__GGUF_ALIGNMENT);
        if (bytes < 0 || __builtin_add_overflow(at, bytes, &at)) {
            char shape[128];
            sheaf__gguf_keys_release(&head);
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor '%s'", s->name),
                                              "columns that are whole blocks of %" PRId64
                                              ", and a file below 2^63 bytes",
                                              sheaf__gguf_type_block(s->type)),
                               "shape %s", sheaf__show_shape(shape, s->ndim, s->shape));
        }
        sheaf__gguf_add_text(&head, s->name, strlen(s->name));
        sheaf__text_little(&head.text, (uint64_t)s->ndim, 4);
        for (int d = s->ndim - 1; d >= 0; d--)
            sheaf__text_little(&head.text, (uint64_t)s->shape[d], 8);
        sheaf__text_little(&head.text, s->type, 4);
        sheaf__text_little(&head.text, (uint64_t)t->offset, 8);
    }
    sheaf__text_bytes(&head.text, zeros,
                      sheaf__round_up(head.text.size, SHEAF__GGUF_ALIGNMENT) - head.text.size);
    w->size = (int64_t)head.text.size + at;
    for (int64_t i = 0; i < w->file.count; i++)
        w->file.tensor[i].offset += (int64_t)head.text.size;
    *header = head.text;
    return keys->text.failed || header->failed ? sheaf__no_memory("header") : NULL;
}

static void writer_free(sheaf__gguf_writer *w)
{
    for (int64_t i = 0; i < w->file.count; i++)
        free((char *)w->file.tensor[i].name);
    free(w->file.tensor);
    free(w);
}

static sheaf_status *copy_names(sheaf__gguf_writer *w, const sheaf__gguf_spec *specs)
{
    for (int64_t i = 0; i < w->file.count; i++)
        if ((w->file.tensor[i].name = strdup(specs[i].name)) == NULL)
            return sheaf__no_memory("names of tensors");
    return NULL;
}

sheaf_status *sheaf__gguf_begin(sheaf__gguf_writer **out, const char *path,
                                const sheaf__gguf_keys *keys, const sheaf__gguf_spec *specs,
                                int64_t count)
{
    sheaf_text header = { 0 };
    sheaf_status *st = check_specs(specs, count);
    sheaf__gguf_writer *w = st == NULL ? calloc(1, sizeof *w) : NULL;
    if (w == NULL)
        return st != NULL ? st : sheaf__no_memory(path);
    w->file.tensor = calloc((size_t)count + 1, sizeof *w->file.tensor);
    w->file.count = w->file.tensor != NULL ? count : 0;
    st = w->file.tensor == NULL ? sheaf__no_memory(path) : copy_names(w, specs);
    TRY(st, make_header(&header, w, keys, specs));
    TRY(st, sheaf__file_create(&w->file.file, path));
    if (st != NULL) {
        writer_free(w);
        sheaf__text_release(&header);
        return st;
    }
    st = sheaf__file_reserve(&w->file.file, w->size);
    TRY(st, sheaf__file_write_at(&w->file.file, header.at, header.size, 0));
    sheaf__text_release(&header);
    if (st == NULL)
        *out = w;
    else
        st = sheaf__gguf_finish(w, st);
    return st;
}

sheaf_status *sheaf__gguf_write(sheaf__gguf_writer *w, int64_t index, int64_t begin,
                                const void *src, int64_t bytes)
{
    return sheaf__fill_write(&w->file, index, begin, src, bytes);
}

sheaf_status *sheaf__gguf_finish(sheaf__gguf_writer *w, sheaf_status *st)
{
    TRY(st, sheaf__fill_check(&w->file));
    st = sheaf__fill_close(&w->file, st);
    writer_free(w);
    return st;
}
