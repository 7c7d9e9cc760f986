/* gguf.c - reading; see gguf.h.
 *
 * How long the part before the data is, no number says: it is read in growing steps, and what the
 * structs point to is set when all of it is there. */
#include "formats/gguf.h"

#include <unistd.h>

#include "base/round_up.h"

enum {
    MAGIC_BYTES = 4,
    LEAST_KEY = 8 + 4 + 1,        /* bytes of a key */
    LEAST_TENSOR = 8 + 4 + 4 + 8, /* bytes of a tensor's entry */
    FIRST_STEP = 1 << 16,
};
static const int64_t MOST_HEADER = (int64_t)1 << 30;
static const char memory_for[] = "the keys of a GGUF file";

typedef struct reading {
    sheaf__gguf *file;
    int64_t size; /* of the file */
    unsigned char *bytes;
    int64_t have, at;
    int version;
    const sheaf__gguf_faults *faults; /* NULL: the first one fails */
} reading;

static sheaf_status *bad(const reading *r, const char *what)
{
    return sheaf_fail(SHEAF_E_FORMAT, "byte %" PRId64 ": %s", r->at, what);
}

/* The next `n` bytes are in memory. */
static sheaf_status *need(reading *r, int64_t n)
{
    if (n > r->size - r->at)
        return sheaf_found(sheaf_expected(bad(r, "cut short"), "%" PRId64 " more bytes", n),
                           "%" PRId64, r->size - r->at);
    if (n <= r->have - r->at)
        return NULL;
    int64_t want = 2 * r->have > r->at + n ? 2 * r->have : r->at + n;
    want = want > FIRST_STEP ? want : FIRST_STEP;
    want = want < r->size ? want : r->size;
    if (want > MOST_HEADER)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "keys and tensors' names"),
                           "at most %" PRId64 " bytes", MOST_HEADER),
            "more of them");
    unsigned char *more = realloc(r->bytes, (size_t)want);
    if (more == NULL)
        return sheaf__no_memory(memory_for);
    r->bytes = more;
    sheaf_status *st = sheaf__file_read_at(r->file->fd, more + r->have, (size_t)(want - r->have),
                                           r->have, r->file->path);
    if (st == NULL)
        r->have = want;
    return st;
}

static sheaf_status *take(uint64_t *out, reading *r, int bytes)
{
    sheaf_status *st = need(r, bytes);
    *out = 0;
    if (st == NULL) {
        *out = sheaf__little(r->bytes + r->at, bytes);
        r->at += bytes;
    }
    return st;
}

/* A number of things that take at least `least` bytes each. */
static sheaf_status *take_count(int64_t *out, reading *r, int least, const char *what)
{
    uint64_t count = 0;
    sheaf_status *st = take(&count, r, 8);
    if (st == NULL && count > (uint64_t)(r->size - r->at) / (uint64_t)least)
        st = sheaf_found(sheaf_expected(bad(r, what),
                                        "at most %" PRId64
                                        ", which the rest of the file has space for",
                                        (r->size - r->at) / least),
                         "%" PRIu64, count);
    *out = st == NULL ? (int64_t)count : 0;
    return st;
}

/* Skips a text; *begin is where its bytes are. */
static sheaf_status *take_text(int64_t *begin, int64_t *size, reading *r)
{
    uint64_t length = 0;
    sheaf_status *st = take(&length, r, 8);
    if (st == NULL && length > (uint64_t)(r->size - r->at))
        st = sheaf_found(sheaf_expected(bad(r, "length of a text"),
                                        "at most %" PRId64 ", the rest "
                                        "of the file",
                                        r->size - r->at),
                         "%" PRIu64, length);
    TRY(st, need(r, (int64_t)length));
    if (st == NULL) {
        *begin = r->at;
        *size = (int64_t)length;
        r->at += *size;
    }
    return st;
}

/* A copy of a name, which ends with 0. */
static sheaf_status *take_name(char **out, reading *r, const char *what, bool empty)
{
    int64_t begin = 0, size = 0;
    sheaf_status *st = take_text(&begin, &size, r);
    if (st != NULL)
        return sheaf_in(st, "%s", what);
    if ((size == 0 && !empty) || memchr(r->bytes + begin, 0, (size_t)size) != NULL)
        return sheaf_found(sheaf_expected(bad(r, what), "a name without a byte 0"), "%s",
                           size == 0 ? "an empty one" : "one with a byte 0");
    *out = strndup((const char *)r->bytes + begin, (size_t)size);
    return *out == NULL ? sheaf__no_memory(memory_for) : NULL;
}

/* ---- keys ---- */

/* Bytes of a value; 0: a text or an array. */
static int value_bytes(uint64_t type)
{
    static const unsigned char bytes[SHEAF__GGUF_VALUES] = {
        [SHEAF__GGUF_U8] = 1,  [SHEAF__GGUF_I8] = 1,  [SHEAF__GGUF_U16] = 2, [SHEAF__GGUF_I16] = 2,
        [SHEAF__GGUF_U32] = 4, [SHEAF__GGUF_I32] = 4, [SHEAF__GGUF_F32] = 4, [SHEAF__GGUF_BOOL] = 1,
        [SHEAF__GGUF_U64] = 8, [SHEAF__GGUF_I64] = 8, [SHEAF__GGUF_F64] = 8,
    };
    return type < SHEAF__GGUF_VALUES ? bytes[type] : 0;
}

/* Type of a value, or of items of an array, which cannot be arrays. */
static sheaf_status *take_type(sheaf__gguf_value *out, reading *r, bool item)
{
    uint64_t type = 0;
    sheaf_status *st = take(&type, r, 4);
    if (st == NULL && (type >= SHEAF__GGUF_VALUES || (item && type == SHEAF__GGUF_ARRAY)))
        st = sheaf_found(sheaf_expected(bad(r, "type of a value"), "0 to %d%s",
                                        SHEAF__GGUF_VALUES - 1,
                                        item ? ", and no array in an array" : ""),
                         "%" PRIu64, type);
    *out = (sheaf__gguf_value)type;
    return st;
}

/* Skips the values of `key`; key->offset is where they begin. */
static sheaf_status *take_values(sheaf__gguf_key *key, reading *r)
{
    sheaf_status *st = NULL;
    key->items = key->type;
    key->count = 1;
    if (key->type == SHEAF__GGUF_ARRAY)
        st = take_type(&key->items, r, true);
    const int bytes = value_bytes(key->items);
    if (key->type == SHEAF__GGUF_ARRAY)
        TRY(st, take_count(&key->count, r, bytes > 0 ? bytes : 8, "length of an array"));
    key->offset = r->at;
    if (st == NULL && bytes > 0) {
        st = need(r, key->count * bytes);
        r->at += st == NULL ? key->count * bytes : 0;
    }
    for (int64_t i = 0, begin, size; st == NULL && bytes == 0 && i < key->count; i++)
        st = take_text(&begin, &size, r);
    return st;
}

sheaf_status *sheaf__gguf_check_names(sheaf_code code, const char *what, const void *first,
                                      int64_t count, size_t each)
{
    const char **name = malloc(((size_t)count + 1) * sizeof *name);
    sheaf_status *st = name == NULL ? sheaf__no_memory(memory_for) : NULL;
    for (int64_t i = 0; st == NULL && i < count; i++)
        name[i] = *(const char *const *)((const char *)first + (size_t)i * each);
    if (st == NULL)
        qsort(name, (size_t)count, sizeof *name, sheaf__by_name);
    for (int64_t i = 1; st == NULL && i < count; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(code, "%s '%.200s'", what, name[i]), "each name once"),
                "two of them");
    free(name);
    return st;
}

static sheaf_status *take_keys(reading *r, int64_t count)
{
    sheaf__gguf *f = r->file;
    sheaf_status *st = NULL;
    int64_t space = 0;
    while (st == NULL && f->nkeys < count) {
        if (!SHEAF_GROW(&f->key, &space, f->nkeys + 1))
            return sheaf__no_memory(memory_for);
        sheaf__gguf_key *key = &f->key[f->nkeys++];
        *key = (sheaf__gguf_key){ .name = NULL };
        st = take_name((char **)&key->name, r, "name of a key", false);
        if (st != NULL)
            break;
        st = take_type(&key->type, r, false);
        TRY(st, take_values(key, r));
        st = sheaf_in(st, "key '%.200s'", key->name);
    }
    return TRY(st,
               sheaf__gguf_check_names(SHEAF_E_FORMAT, "key", f->key, f->nkeys, sizeof *f->key));
}

static sheaf_status *take_alignment(reading *r)
{
    const sheaf__gguf_key *key = sheaf__gguf_find(r->file, SHEAF__GGUF_ALIGNMENT_KEY);
    r->file->alignment = SHEAF__GGUF_ALIGNMENT;
    if (key == NULL)
        return NULL;
    const uint64_t value =
        key->type == SHEAF__GGUF_U32 ? sheaf__little(r->bytes + key->offset, 4) : 0;
    if (value == 0 || (value & (value - 1)) != 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "key '%s'", SHEAF__GGUF_ALIGNMENT_KEY);
        sheaf_expected(st, "a power of two, of type u32 (4)");
        return key->type == SHEAF__GGUF_U32 ? sheaf_found(st, "%" PRIu64, value)
                                            : sheaf_found(st, "type %d", (int)key->type);
    }
    r->file->alignment = (int64_t)value;
    return NULL;
}

/* ---- tensors ---- */

/* Bytes of a tensor by its shape and type. Errors name what is wrong with them. */
static sheaf_status *count_bytes(sheaf__gguf_tensor *t, uint64_t type)
{
    const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type < INT32_MAX ? (int64_t)type : -1);
    const int64_t width = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    int64_t elements = 1;
    char shape[128];
    if (row->name == NULL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "type"), "a type that ggml has"), "%" PRIu64,
            type);
    if (row->elements == 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "type");
        sheaf_expected(st, "f32, f16, bf16, f64, integers, q4_0 to q8_0 or q2_K to q6_K");
        return sheaf_try_this(sheaf_found(st, "%s", row->name),
                              "llama-quantize --allow-requantize IN OUT f16 of llama.cpp, or the "
                              "model's Hugging Face form");
    }
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(elements, t->shape[i], &elements))
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "axes"), "fewer than 2^63 elements"),
                "shape %s", sheaf__show_shape(shape, t->ndim, t->shape));
    if (width % row->elements != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "axes"),
                                          "rows of whole blocks of %d, of type %s", row->elements,
                                          row->name),
                           "rows of %" PRId64, width);
    if (__builtin_mul_overflow(elements / row->elements, row->bytes, &t->bytes))
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "axes"), "fewer than 2^63 bytes"), "shape %s",
            sheaf__show_shape(shape, t->ndim, t->shape));
    t->type = (sheaf__gguf_type)type;
    return NULL;
}

/* A fault of one tensor: where r->faults receives it, the tensor is left out. */
static sheaf_status *note_fault(reading *r, sheaf__gguf_tensor *t, sheaf_status *st)
{
    if (st == NULL || r->faults == NULL)
        return st;
    t->left_out = true;
    return r->faults->hear(r->faults->self, sheaf_in(st, "%s", r->file->path));
}

static sheaf_status *take_tensor(sheaf__gguf_tensor *t, reading *r)
{
    uint64_t ndim = 0, size = 0, type = 0, offset = 0;
    sheaf_status *st = take(&ndim, r, 4);
    if (st == NULL && ndim > SHEAF__GGUF_MAX_DIMS)
        st = sheaf_found(sheaf_expected(bad(r, "axes"), "at most %d", SHEAF__GGUF_MAX_DIMS),
                         "%" PRIu64, ndim);
    t->ndim = (int)ndim;
    for (int i = t->ndim; st == NULL && i-- > 0;) {
        st = take(&size, r, 8);
        t->shape[i] = size <= INT64_MAX ? (int64_t)size : -1;
    }
    TRY(st, take(&type, r, 4));
    st = sheaf_in(TRY(st, take(&offset, r, 8)), "tensor '%s'", t->name);
    TRY(st, note_fault(r, t, sheaf_in(count_bytes(t, type), "tensor '%s'", t->name)));
    t->offset = offset <= INT64_MAX ? (int64_t)offset : -1;
    return st;
}

static sheaf_status *take_tensors(reading *r, int64_t count)
{
    sheaf__gguf *f = r->file;
    sheaf_status *st = NULL;
    int64_t space = 0;
    while (st == NULL && f->ntensors < count) {
        if (!SHEAF_GROW(&f->tensor, &space, f->ntensors + 1))
            return sheaf__no_memory(memory_for);
        sheaf__gguf_tensor *t = &f->tensor[f->ntensors++];
        *t = (sheaf__gguf_tensor){ .name = NULL };
        st = take_name((char **)&t->name, r, "name of a tensor", true);
        if (st != NULL)
            break;
        if (strlen(t->name) > SHEAF__GGUF_MAX_NAME)
            st = sheaf_found(sheaf_expected(bad(r, "name of a tensor"), "at most %d bytes",
                                            SHEAF__GGUF_MAX_NAME),
                             "'%.200s'", t->name);
        TRY(st, take_tensor(t, r));
    }
    return TRY(st, sheaf__gguf_check_names(SHEAF_E_FORMAT, "tensor", f->tensor, f->ntensors,
                                           sizeof *f->tensor));
}

int64_t sheaf__gguf_padded(int64_t bytes, int64_t alignment)
{
    return bytes > INT64_MAX - alignment
               ? -1
               : (int64_t)sheaf__round_up((size_t)bytes, (size_t)alignment);
}

/* Does a tensor lie at `at` of the data, which begins at byte `data`? *end is where the next one
 * begins. Both may be -1, behind a tensor whose size is not known. */
static sheaf_status *place_tensor(int64_t *end, const reading *r, sheaf__gguf_tensor *t, int64_t at,
                                  int64_t data)
{
    const int64_t bytes = sheaf__gguf_padded(t->bytes, r->file->alignment), offset = t->offset;
    const int64_t begin = at >= 0 ? at : offset >= 0 ? offset : 0;
    if (bytes < 0 || __builtin_add_overflow(begin, bytes, end) || *end > INT64_MAX - data)
        *end = -1;
    if (offset != begin)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "tensor '%s': offset", t->name),
                           "%" PRId64 ", where the one before ends", begin),
            "%" PRId64, offset);
    if (*end < 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "tensor '%s'", t->name),
                                          "a file below 2^63 bytes"),
                           "%" PRId64 " more bytes", t->bytes);
    if (*end > 0 && *end > r->size - data)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "tensor '%s': cut short", t->name),
                           "data with its padding up to byte %" PRId64, data + *end),
            "a file of %" PRId64 " bytes", r->size);
    t->offset += data;
    return NULL;
}

/* Tensors lie one behind the other; their offsets become those of the file. Those that are left out
 * go. */
static sheaf_status *place_tensors(reading *r)
{
    sheaf__gguf *f = r->file;
    const int64_t data = sheaf__gguf_padded(r->at, f->alignment);
    int64_t at = 0, kept = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < f->ntensors; i++) {
        sheaf__gguf_tensor *t = &f->tensor[i];
        int64_t end = -1;
        if (st == NULL && !t->left_out)
            st = note_fault(r, t, place_tensor(&end, r, t, at, data));
        at = end;
        if (t->left_out)
            free((char *)t->name);
        else
            f->tensor[kept++] = *t;
    }
    f->ntensors = kept;
    return st;
}

/* ---- the whole ---- */

static sheaf_status *check_version(reading *r)
{
    uint64_t version = 0;
    sheaf_status *st = take(&version, r, 4);
    if (st != NULL || version == 2 || version == SHEAF__GGUF_VERSION)
        return st;
    st = sheaf_fail(version == 0 ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED, "version");
    sheaf_expected(st, "2 or %d", SHEAF__GGUF_VERSION);
    if ((version & 0xffff) == 0 && version != 0)
        return sheaf_found(st, "%" PRIu64 " (a file of a big-endian machine)", version);
    sheaf_found(st, "%" PRIu64, version);
    return version == 1 ? sheaf_try_this(st, "convert the model anew with llama.cpp") : st;
}

/* Pointers into what was read. */
static sheaf_status *point(reading *r)
{
    sheaf__gguf *f = r->file;
    for (int64_t i = 0; i < f->nkeys; i++) {
        sheaf__gguf_key *key = &f->key[i];
        key->at = r->bytes + key->offset;
        if (key->items != SHEAF__GGUF_STRING)
            continue;
        key->texts = malloc(((size_t)key->count + 1) * sizeof *key->texts);
        if (key->texts == NULL)
            return sheaf__no_memory(memory_for);
        const unsigned char *at = key->at;
        for (int64_t k = 0; k < key->count; k++) {
            const int64_t size = (int64_t)sheaf__little(at, 8);
            key->texts[k] = (sheaf__gguf_text){ (const char *)at + 8, size };
            at += 8 + size;
        }
    }
    return NULL;
}

static sheaf_status *read_all(reading *r)
{
    int64_t tensors = 0, keys = 0;
    sheaf_status *st = need(r, MAGIC_BYTES);
    if (st == NULL && memcmp(r->bytes, "GGUF", MAGIC_BYTES) != 0)
        st = sheaf_found(sheaf_expected(bad(r, "magic"), "\"GGUF\""), "other bytes");
    r->at = MAGIC_BYTES;
    TRY(st, check_version(r));
    TRY(st, take_count(&tensors, r, LEAST_TENSOR, "number of tensors"));
    TRY(st, take_count(&keys, r, LEAST_KEY, "number of keys"));
    TRY(st, take_keys(r, keys));
    TRY(st, take_alignment(r));
    TRY(st, take_tensors(r, tensors));
    TRY(st, place_tensors(r));
    TRY(st, point(r));
    return st;
}

sheaf_status *sheaf__gguf_open(sheaf__gguf **out, const char *path)
{
    return sheaf__gguf_open_sound(out, path, NULL);
}

sheaf_status *sheaf__gguf_open_sound(sheaf__gguf **out, const char *path,
                                     const sheaf__gguf_faults *faults)
{
    reading r = { .file = calloc(1, sizeof *r.file), .faults = faults };
    if (r.file == NULL || (r.file->path = strdup(path)) == NULL) {
        free(r.file);
        return sheaf__no_memory(path);
    }
    sheaf_status *st = sheaf__file_open_read(&r.file->fd, &r.size, path);
    if (st != NULL) {
        free(r.file->path);
        free(r.file);
        return st;
    }
    sheaf__file_mark(&r.file->mark, r.file->fd);
    st = read_all(&r);
    r.file->memory = r.bytes;
    if (st != NULL) {
        sheaf__gguf_close(r.file);
        return sheaf_in(st, "%s", path);
    }
    *out = r.file;
    return NULL;
}

void sheaf__gguf_close(sheaf__gguf *f)
{
    if (f == NULL)
        return;
    for (int64_t i = 0; i < f->nkeys; i++) {
        free((char *)f->key[i].name);
        free(f->key[i].texts);
    }
    for (int64_t i = 0; i < f->ntensors; i++)
        free((char *)f->tensor[i].name);
    free(f->key);
    free(f->tensor);
    free(f->memory);
    close(f->fd);
    free(f->path);
    free(f);
}

/* By its name, or by how it begins. */
static bool is_one(const char *path)
{
    int64_t size;
    char magic[MAGIC_BYTES];
    int fd;
    if (sheaf__ends_with(path, ".gguf"))
        return true;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL) {
        sheaf_status_free(st);
        return false;
    }
    st = size < MAGIC_BYTES ? sheaf_fail(SHEAF_E_FORMAT, "%s", path)
                            : sheaf__file_read_at(fd, magic, sizeof magic, 0, path);
    const bool yes = st == NULL && memcmp(magic, "GGUF", MAGIC_BYTES) == 0;
    sheaf_status_free(st);
    close(fd);
    return yes;
}

/* Is it the name of a model's file, or of the first of its parts? */
static bool is_model(const char *name)
{
    return sheaf__ends_with(name, ".gguf") && strstr(name, "mmproj") == NULL &&
           strstr(name, "lora") == NULL &&
           (strstr(name, "-of-") == NULL || strstr(name, "-00001-of-") != NULL);
}

/* How many models lie in a folder without other weights; their names, and in `out` the first. */
static int64_t list_models(char out[SHEAF_PATH_SIZE], sheaf_text *all, const char *folder)
{
    char **names = NULL;
    int64_t n = 0, models = 0;
    bool others = false;
    sheaf_status_free(sheaf__list_dir(&names, &n, folder));
    for (int64_t i = 0; i < n; i++)
        others |= sheaf__ends_with(names[i], ".safetensors") || sheaf__ends_with(names[i], ".bin");
    for (int64_t i = 0; i < n && !others; i++) {
        if (!is_model(names[i]))
            continue;
        if (models++ == 0)
            sheaf__path_in(out, folder, names[i]);
        sheaf__text_add(all, "%s%s", models > 1 ? ", " : "", names[i]);
    }
    sheaf__names_free(names, n);
    return models;
}

sheaf_status *sheaf__gguf_alone(const char **found, char out[SHEAF_PATH_SIZE], const char *path)
{
    sheaf_status *st = NULL;
    sheaf_text all = { 0 };
    int64_t models = 0;
    *found = NULL;
    if (sheaf__path_kind(path) == SHEAF_PATH_FILE && is_one(path))
        *found = strcpy(out, path); /* the system took it: it is short enough */
    else if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
        models = list_models(out, &all, path);
    if (models > 0)
        *found = out;
    if (models > 1) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path), "one GGUF file, or its name");
        sheaf_found(st, "%" PRId64 ": %s", models, all.failed ? "" : all.at);
        sheaf_try_this(st, "the file itself: `model %s`", out);
    }
    sheaf__text_release(&all);
    return st;
}

const char *sheaf__gguf_at(char out[SHEAF_PATH_SIZE], const char *path)
{
    const char *found;
    sheaf_status_free(sheaf__gguf_alone(&found, out, path));
    return found;
}

/* ---- looking up ---- */

const sheaf__gguf_key *sheaf__gguf_find(const sheaf__gguf *f, const char *name)
{
    for (int64_t i = 0; i < f->nkeys; i++) /* a few dozen */
        if (strcmp(f->key[i].name, name) == 0)
            return &f->key[i];
    return NULL;
}

const sheaf__gguf_tensor *sheaf__gguf_tensor_named(const sheaf__gguf *f, const char *name)
{
    for (int64_t i = 0; i < f->ntensors; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

int64_t sheaf__gguf_integer(const sheaf__gguf_key *key, int64_t item, bool *ok)
{
    const int bytes = key != NULL && item < key->count ? value_bytes(key->items) : 0;
    if (bytes == 0 || key->items == SHEAF__GGUF_F32 || key->items == SHEAF__GGUF_F64) {
        *ok = false;
        return 0;
    }
    const uint64_t value = sheaf__little(key->at + item * bytes, bytes);
    const bool is_signed = key->items == SHEAF__GGUF_I8 || key->items == SHEAF__GGUF_I16 ||
                           key->items == SHEAF__GGUF_I32 || key->items == SHEAF__GGUF_I64;
    if (!is_signed && value > INT64_MAX)
        *ok = false;
    const int shift = is_signed ? 64 - 8 * bytes : 0;
    return (int64_t)(value << shift) >> shift;
}

double sheaf__gguf_number(const sheaf__gguf_key *key, int64_t item, bool *ok)
{
    const sheaf__gguf_value type =
        key != NULL && item < key->count ? key->items : SHEAF__GGUF_STRING;
    if (type == SHEAF__GGUF_F32) {
        const uint32_t bits = (uint32_t)sheaf__little(key->at + item * 4, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (type == SHEAF__GGUF_F64) {
        const uint64_t bits = sheaf__little(key->at + item * 8, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    return (double)sheaf__gguf_integer(key, item, ok);
}

char *sheaf__gguf_string(const sheaf__gguf_key *key)
{
    if (key == NULL || key->type != SHEAF__GGUF_STRING ||
        memchr(key->texts[0].at, 0, (size_t)key->texts[0].size) != NULL)
        return NULL;
    return strndup(key->texts[0].at, (size_t)key->texts[0].size);
}
