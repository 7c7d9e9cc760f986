/* gguf_write.h - writes a GGUF file, whose layout gguf.h has. */
#pragma once

#include "base/text.h"
#include "formats/fill.h"
#include "formats/gguf.h"

/* ---- keys ---- */

/* Keys with values, as they stand in the file. All zero: none. A failed allocation is remembered,
 * sheaf__gguf_begin() says so. */
typedef struct sheaf__gguf_keys {
    sheaf_text text;
    uint64_t count;
} sheaf__gguf_keys;

void sheaf__gguf_put_u32(sheaf__gguf_keys *keys, const char *key, int64_t value);
void sheaf__gguf_put_i32(sheaf__gguf_keys *keys, const char *key, int32_t value);
void sheaf__gguf_put_f32(sheaf__gguf_keys *keys, const char *key, double value);
void sheaf__gguf_put_bool(sheaf__gguf_keys *keys, const char *key, bool value);
void sheaf__gguf_put_text(sheaf__gguf_keys *keys, const char *key, const char *value);
/* sheaf__gguf_put_array - `count` values of `type` follow, by sheaf__text_little() or, of texts, by
 * sheaf__gguf_add_text(). */
void sheaf__gguf_put_array(sheaf__gguf_keys *keys, const char *key, sheaf__gguf_value type,
                           int64_t count);
void sheaf__gguf_add_text(sheaf__gguf_keys *keys, const char *bytes, size_t size);
void sheaf__gguf_add_f32(sheaf__gguf_keys *keys, float value);
void sheaf__gguf_keys_release(sheaf__gguf_keys *keys);

/* ---- the file ---- */

typedef struct sheaf__gguf_spec {
    const char *name; /* at most 63 bytes; borrowed during begin only */
    sheaf__gguf_type type;
    int ndim;         /* 1 to 4 */
    int64_t shape[4]; /* rows before columns, as everywhere here; the file has them reversed */
} sheaf__gguf_spec;

/* sheaf__gguf_begin - creates the file `path`, claims its full size and writes all but the data:
 * tensor i of `out` is specs[i], and they lie in this order. Errors: SHEAF_E_ARG for a name that is
 * too long or there twice, and for columns that are no whole blocks of the type. */
sheaf_status *sheaf__gguf_begin(sheaf__fill_file *out, const char *path,
                                const sheaf__gguf_keys *keys, const sheaf__gguf_spec *specs,
                                int64_t count);
