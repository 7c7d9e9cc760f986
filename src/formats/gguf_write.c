/* gguf_write.c - see gguf_write.h. The bytes are those of the gguf package's writer. */
#include "formats/gguf_write.h"

#include "base/base.h"
#include "base/round_up.h"

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
static sheaf_status *make_header(sheaf_text *header, sheaf__fill_file *f,
                                 const sheaf__gguf_keys *keys, const sheaf__gguf_spec *specs)
{
    static const char zeros[SHEAF__GGUF_ALIGNMENT];
    sheaf__gguf_keys head = { 0 };
    int64_t at = 0;
    sheaf__text_bytes(&head.text, "GGUF", 4);
    sheaf__text_little(&head.text, SHEAF__GGUF_VERSION, 4);
    sheaf__text_little(&head.text, (uint64_t)f->count, 8);
    sheaf__text_little(&head.text, keys->count, 8);
    sheaf__text_bytes(&head.text, keys->text.size > 0 ? keys->text.at : "", keys->text.size);
    for (int64_t i = 0; i < f->count; i++) {
        const sheaf__gguf_spec *s = &specs[i];
        sheaf__fill *t = &f->tensor[i];
        t->name = strdup(s->name);
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
    f->size = (int64_t)head.text.size + at;
    *header = head.text;
    bool failed = keys->text.failed || header->failed;
    for (int64_t i = 0; i < f->count; i++) {
        f->tensor[i].offset += (int64_t)header->size;
        failed |= f->tensor[i].name == NULL;
    }
    return failed ? sheaf__no_memory("header") : NULL;
}

sheaf_status *sheaf__gguf_begin(sheaf__fill_file *out, const char *path,
                                const sheaf__gguf_keys *keys, const sheaf__gguf_spec *specs,
                                int64_t count)
{
    sheaf_text header = { 0 };
    sheaf__fill_file f = { 0 };
    sheaf_status *st = check_specs(specs, count);
    TRY(st, sheaf__fill_new(&f, count));
    TRY(st, make_header(&header, &f, keys, specs));
    TRY(st, sheaf__fill_create(&f, path, header.at, header.size));
    sheaf__text_release(&header);
    if (st != NULL)
        return sheaf__fill_finish(&f, st);
    *out = f;
    return NULL;
}
