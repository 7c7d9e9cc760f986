/* pickle_value.c - the memory of a document, and looking at its values; see pickle.h. */
#include <stdarg.h>

#include "base/base.h"
#include "base/hash.h"
#include "pickle_inner.h"

enum { PIECE = 16 << 10 };

/* ---- memory ---- */

void *sheaf__pickle_alloc(sheaf_pickle_doc *doc, size_t size)
{
    sheaf_pickle_arena *arena = doc->arena;
    if (size > SIZE_MAX / 2)
        size = SIZE_MAX / 2; /* more than any limit */
    size = (size + 7) / 8 * 8;
    if (arena->left < size) {
        const size_t capacity = size > PIECE / 4 ? size : PIECE;
        const bool fits = !arena->failed && capacity <= arena->limit - arena->used;
        struct piece *piece = fits ? malloc(sizeof *piece + capacity) : NULL;
        if (piece == NULL) {
            arena->full |= !arena->failed && !fits;
            arena->failed = true;
            return NULL;
        }
        arena->used += capacity;
        piece->next = arena->pieces;
        arena->pieces = piece;
        if (capacity == size &&
            arena->left > 0) /* a large one: the rest of the piece before is still good */
            return piece + 1;
        arena->at = (char *)(piece + 1);
        arena->left = capacity;
    }
    void *at = arena->at;
    arena->at += size;
    arena->left -= size;
    return at;
}

sheaf_status *sheaf__pickle_out_of_memory(const sheaf_pickle_doc *doc)
{
    if (!doc->arena->full)
        return sheaf__no_memory("out of memory for a pickle");
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "the pickle's values");
    return sheaf_found(sheaf_expected(st, "at most %zu bytes of memory", doc->arena->limit),
                       "more");
}

sheaf_pickle *sheaf__pickle_node(sheaf_pickle_doc *doc, sheaf_pickle_kind kind)
{
    sheaf_pickle *value = sheaf__pickle_alloc(doc, sizeof *value);
    if (value != NULL) {
        memset(value, 0, sizeof *value);
        value->kind = kind;
    }
    return value;
}

sheaf_status *sheaf__pickle_new_object(sheaf_pickle **out, sheaf_pickle_doc *doc,
                                       sheaf_pickle *class, sheaf_pickle *args)
{
    *out = NULL;
    sheaf_pickle *value = sheaf__pickle_node(doc, SHEAF_PICKLE_OBJECT);
    sheaf_pickle_object *object = sheaf__pickle_alloc(doc, sizeof *object);
    if (value == NULL || object == NULL)
        return NULL;
    *object = (sheaf_pickle_object){ .class = class, .args = args };
    value->as.object = object;
    *out = value;
    return NULL;
}

bool sheaf__pickle_copy(sheaf_pickle_text *out, sheaf_pickle_doc *doc, const void *bytes,
                        size_t size)
{
    char *at = sheaf__pickle_alloc(doc, size + 1);
    if (at == NULL)
        return false;
    if (size > 0)
        memcpy(at, bytes, size);
    at[size] = '\0';
    *out = (sheaf_pickle_text){ at, size };
    return true;
}

/* The table, or a larger copy of it when its `capacity` elements are full; NULL: no memory. */
static void *grown(sheaf_pickle_doc *doc, void *table, int64_t count, int64_t *capacity,
                   size_t element)
{
    if (count < *capacity)
        return table;
    const int64_t more = count < 2 ? 4 : count * 2;
    void *at = sheaf__pickle_alloc(doc, (size_t)more * element);
    if (at != NULL) {
        *capacity = more;
        if (count > 0)
            memcpy(at, table, (size_t)count * element);
    }
    return at;
}

bool sheaf__pickle_push(sheaf_pickle_doc *doc, sheaf_pickle *to, sheaf_pickle *a, sheaf_pickle *b)
{
    sheaf_pickle_items *items = &to->as.items;
    const int each = b == NULL ? 1 : 2;
    sheaf_pickle **at =
        grown(doc, items->at, items->count, &items->capacity, (size_t)each * sizeof a);
    if (at == NULL)
        return false;
    items->at = at;
    at += each * items->count++;
    at[0] = a;
    if (b != NULL)
        at[1] = b;
    return true;
}

bool sheaf__pickle_add_tensor(int64_t *index, sheaf_pickle_doc *doc,
                              const sheaf_pickle_tensor *tensor)
{
    sheaf_pickle_tensor *table =
        grown(doc, doc->tensor, doc->ntensors, &doc->arena->tensor_capacity, sizeof *table);
    if (table == NULL)
        return false;
    doc->tensor = table;
    table[doc->ntensors] = *tensor;
    *index = doc->ntensors++;
    return true;
}

static uint64_t hash_storage(const sheaf_pickle_storage *s)
{
    const uint64_t begin =
        SHEAF__FNV ^ (uint64_t)s->bytes ^ (uint64_t)s->within << 20 ^ (uint64_t)s->dtype << 40;
    const uint64_t h = sheaf__fnv(begin, s->key, strlen(s->key));
    return h ^ h >> 29;
}

static bool same_storage(const sheaf_pickle_storage *a, const sheaf_pickle_storage *b)
{
    return a->bytes == b->bytes && a->whole == b->whole && a->within == b->within &&
           a->dtype == b->dtype && a->element == b->element && a->unnamed == b->unnamed &&
           strcmp(a->key, b->key) == 0 && strcmp(a->location, b->location) == 0;
}

/* The slot of a storage, or the empty one where it belongs; `slots` is a power of two. */
static int64_t *slot_of(const sheaf_pickle_doc *doc, const sheaf_pickle_storage *storage)
{
    const sheaf_pickle_arena *arena = doc->arena;
    uint64_t i = hash_storage(storage);
    for (;; i++) {
        int64_t *slot = &arena->slot[i & (uint64_t)(arena->slots - 1)];
        if (*slot < 0 || same_storage(&doc->storage[*slot], storage))
            return slot;
    }
}

static bool grow_slots(sheaf_pickle_doc *doc)
{
    sheaf_pickle_arena *arena = doc->arena;
    if (doc->nstorages * 2 < arena->slots)
        return true;
    const int64_t slots = arena->slots == 0 ? 16 : arena->slots * 2;
    int64_t *slot = sheaf__pickle_alloc(doc, (size_t)slots * sizeof *slot);
    if (slot == NULL)
        return false;
    memset(slot, 0xff, (size_t)slots * sizeof *slot);
    arena->slot = slot;
    arena->slots = slots;
    for (int64_t i = 0; i < doc->nstorages; i++)
        *slot_of(doc, &doc->storage[i]) = i;
    return true;
}

bool sheaf__pickle_add_storage(int64_t *index, sheaf_pickle_doc *doc,
                               const sheaf_pickle_storage *storage)
{
    sheaf_pickle_storage *table =
        grown(doc, doc->storage, doc->nstorages, &doc->arena->storage_capacity, sizeof *table);
    if (table == NULL || !grow_slots(doc))
        return false;
    doc->storage = table;
    int64_t *slot = slot_of(doc, storage);
    if (*slot < 0) {
        sheaf_pickle_text key, location;
        if (!sheaf__pickle_copy(&key, doc, storage->key, strlen(storage->key)) ||
            !sheaf__pickle_copy(&location, doc, storage->location, strlen(storage->location)))
            return false;
        sheaf_pickle_storage *s = &table[doc->nstorages];
        *s = *storage;
        s->key = key.at;
        s->location = location.at;
        *slot = doc->nstorages++;
    }
    *index = *slot;
    return true;
}

sheaf_status *sheaf__pickle_new(sheaf_pickle_doc **out)
{
    sheaf_pickle_doc *doc = calloc(1, sizeof *doc);
    if (doc == NULL || (doc->arena = calloc(1, sizeof *doc->arena)) == NULL) {
        free(doc);
        return sheaf__no_memory("out of memory for a pickle");
    }
    doc->arena->limit = SIZE_MAX / 4;
    *out = doc;
    return NULL;
}

void sheaf__pickle_free(sheaf_pickle_doc *doc)
{
    if (doc == NULL)
        return;
    for (struct piece *piece = doc->arena->pieces, *next; piece != NULL; piece = next) {
        next = piece->next;
        free(piece);
    }
    free(doc->arena);
    free(doc);
}

bool sheaf__pickle_is_utf8(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    for (size_t n; size > 0; p += n, size -= n) {
        const bool half = size > 2 && p[0] == 0xed && p[1] >= 0xa0 && p[1] < 0xc0 &&
                          (p[2] & 0xc0) == 0x80; /* of a surrogate pair */
        n = half ? 3 : sheaf__utf8_length(p, size);
        if (n == 0)
            return false;
    }
    return true;
}

/* ---- cycles and depth ---- */

/* Value i that `value` holds; NULL after the last. Empty places are skipped by giving their
 * address. */
static sheaf_pickle **held(sheaf_pickle *value, int64_t i)
{
    switch (value->kind) {
    case SHEAF_PICKLE_LIST:
    case SHEAF_PICKLE_TUPLE:
    case SHEAF_PICKLE_SET:
    case SHEAF_PICKLE_PERSISTENT: return i < value->as.items.count ? &value->as.items.at[i] : NULL;
    case SHEAF_PICKLE_DICT: return i < value->as.items.count * 2 ? &value->as.items.at[i] : NULL;
    case SHEAF_PICKLE_OBJECT: {
        sheaf_pickle_object *o = value->as.object;
        sheaf_pickle **const field[] = { &o->args, &o->state, &o->list, &o->dict };
        return i < 4 ? field[i] : NULL;
    }
    default: return NULL;
    }
}

static bool holds(const sheaf_pickle *value)
{
    return value->kind == SHEAF_PICKLE_OBJECT ||
           (value->kind >= SHEAF_PICKLE_LIST && value->kind <= SHEAF_PICKLE_DICT) ||
           value->kind == SHEAF_PICKLE_PERSISTENT;
}

/* Depth first. mark: 0 = not seen, -1 = on the way from the root, else the height of what hangs
 * below. */
sheaf_status *sheaf__pickle_untangle(sheaf_pickle_doc *doc, sheaf_pickle **root)
{
    struct {
        sheaf_pickle *value;
        int64_t next;
        int height;
    } way[SHEAF_PICKLE_MAX_DEPTH];
    int depth = 0;
    sheaf_pickle *again = sheaf__pickle_node(doc, SHEAF_PICKLE_AGAIN);
    if (again == NULL)
        return sheaf__pickle_out_of_memory(doc);
    for (sheaf_pickle **slot = root;;) {
        sheaf_pickle *value = slot == NULL ? NULL : *slot;
        int below = 0;
        if (value != NULL && holds(value)) {
            if (value->mark < 0)
                *slot = again;
            below = value->mark;
            if (depth + (below > 0 ? below : 1) > SHEAF_PICKLE_MAX_DEPTH)
                return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "the pickle's values"),
                                      "at most %d inside each other", SHEAF_PICKLE_MAX_DEPTH);
            if (below == 0) {
                value->mark = -1;
                way[depth].value = value, way[depth].next = 0, way[depth].height = 0;
                depth++;
            }
        }
        /* Onwards: what is held next by the last on the way, or back from it when that was all. */
        for (slot = NULL; slot == NULL; depth--) {
            if (depth == 0)
                return NULL;
            if (way[depth - 1].height < below)
                way[depth - 1].height = below;
            slot = held(way[depth - 1].value, way[depth - 1].next++);
            if (slot != NULL)
                break;
            below = way[depth - 1].value->mark = way[depth - 1].height + 1;
        }
    }
}

/* ---- looking ---- */

bool sheaf__pickle_is(const sheaf_pickle *value, sheaf_pickle_kind kind)
{
    return value != NULL && value->kind == kind;
}

/* The dict that sheaf__pickle_get() looks into for an object; itself for a dict; else NULL. */
static const sheaf_pickle *fields_of(const sheaf_pickle *value)
{
    if (sheaf__pickle_is(value, SHEAF_PICKLE_DICT))
        return value;
    if (!sheaf__pickle_is(value, SHEAF_PICKLE_OBJECT))
        return NULL;
    const sheaf_pickle *state = value->as.object->state;
    if (sheaf__pickle_is(state, SHEAF_PICKLE_DICT))
        return state;
    /* (dict, slots): what objects with __slots__ write */
    for (int64_t i = 0;
         sheaf__pickle_is(state, SHEAF_PICKLE_TUPLE) && state->as.items.count == 2 && i < 2; i++)
        if (sheaf__pickle_is(state->as.items.at[i], SHEAF_PICKLE_DICT))
            return state->as.items.at[i];
    return value->as.object->dict;
}

static const sheaf_pickle *find(const sheaf_pickle *dict, const char *key)
{
    const size_t size = strlen(key);
    if (!sheaf__pickle_is(dict, SHEAF_PICKLE_DICT))
        return NULL;
    for (int64_t i = dict->as.items.count - 1; i >= 0; i--) {
        const sheaf_pickle *k = dict->as.items.at[2 * i];
        if (k->kind == SHEAF_PICKLE_STRING && k->as.text.size == size &&
            memcmp(k->as.text.at, key, size) == 0)
            return dict->as.items.at[2 * i + 1];
    }
    return NULL;
}

const sheaf_pickle *sheaf__pickle_get(const sheaf_pickle *value, const char *key)
{
    const sheaf_pickle *got = find(fields_of(value), key);
    if (got == NULL && sheaf__pickle_is(value, SHEAF_PICKLE_OBJECT))
        got = find(value->as.object->dict, key);
    return got;
}

const sheaf_pickle *sheaf__pickle_path(const sheaf_pickle *value, ...)
{
    va_list keys;
    va_start(keys, value);
    for (const char *key; value != NULL && (key = va_arg(keys, const char *)) != NULL;)
        value = sheaf__pickle_get(value, key);
    va_end(keys);
    return value;
}

static bool is_row(const sheaf_pickle *value)
{
    return sheaf__pickle_is(value, SHEAF_PICKLE_LIST) ||
           sheaf__pickle_is(value, SHEAF_PICKLE_TUPLE) || sheaf__pickle_is(value, SHEAF_PICKLE_SET);
}

const sheaf_pickle *sheaf__pickle_item(const sheaf_pickle *value, int64_t i)
{
    return is_row(value) && i >= 0 && i < value->as.items.count ? value->as.items.at[i] : NULL;
}

/* The dict whose pairs a value has: itself, or an object's entries. */
static const sheaf_pickle *pairs_of(const sheaf_pickle *value)
{
    return sheaf__pickle_is(value, SHEAF_PICKLE_OBJECT) ? value->as.object->dict
           : sheaf__pickle_is(value, SHEAF_PICKLE_DICT) ? value
                                                        : NULL;
}

int64_t sheaf__pickle_count(const sheaf_pickle *value)
{
    const sheaf_pickle *holder = is_row(value) ? value : pairs_of(value);
    return holder == NULL ? 0 : holder->as.items.count;
}

const sheaf_pickle *sheaf__pickle_key(const sheaf_pickle *value, int64_t i)
{
    const sheaf_pickle *dict = pairs_of(value);
    return dict != NULL && i >= 0 && i < dict->as.items.count ? dict->as.items.at[2 * i] : NULL;
}

const sheaf_pickle *sheaf__pickle_value(const sheaf_pickle *value, int64_t i)
{
    const sheaf_pickle *dict = pairs_of(value);
    return dict != NULL && i >= 0 && i < dict->as.items.count ? dict->as.items.at[2 * i + 1] : NULL;
}

bool sheaf__pickle_is_object(const sheaf_pickle *value, const char *module, const char *name)
{
    if (!sheaf__pickle_is(value, SHEAF_PICKLE_OBJECT))
        return false;
    const sheaf_pickle_global *class = &value->as.object->class->as.global;
    return strcmp(class->name, name) == 0 && (module == NULL || strcmp(class->module, module) == 0);
}

const char *sheaf__pickle_text(const sheaf_pickle *value)
{
    if (!sheaf__pickle_is(value, SHEAF_PICKLE_STRING) ||
        strlen(value->as.text.at) != value->as.text.size)
        return NULL;
    return value->as.text.at;
}

/* ---- numbers, also numpy's: numpy.core.multiarray.scalar(numpy.dtype("f4", ...), bytes) ---- */

/* The little-endian bytes of a scalar of numpy's; *type is its dtype's letter, its size is that of
 * the text. NULL: it is none. */
static const sheaf_pickle_text *numpy_scalar(char *type, const sheaf_pickle *value)
{
    if (!sheaf__pickle_is_object(value, NULL, "scalar") ||
        strncmp(value->as.object->class->as.global.module, "numpy.", 6) != 0)
        return NULL;
    const sheaf_pickle *dtype = sheaf__pickle_item(value->as.object->args, 0),
                       *data = sheaf__pickle_item(value->as.object->args, 1);
    if (!sheaf__pickle_is_object(dtype, "numpy", "dtype") ||
        !sheaf__pickle_is(data, SHEAF_PICKLE_BYTES))
        return NULL;
    const char *name = sheaf__pickle_text(sheaf__pickle_item(dtype->as.object->args, 0)),
               *order = sheaf__pickle_text(sheaf__pickle_item(dtype->as.object->state, 1));
    if (name == NULL || (order != NULL && *order == '>'))
        return NULL;
    name += *name == '<' || *name == '|';
    *type = *name;
    return strlen(name) == 2 && strchr("1248", name[1]) != NULL &&
                   data->as.text.size == (size_t)(name[1] - '0')
               ? &data->as.text
               : NULL;
}

bool sheaf__pickle_int(int64_t *out, const sheaf_pickle *value)
{
    if (sheaf__pickle_is(value, SHEAF_PICKLE_INT) || sheaf__pickle_is(value, SHEAF_PICKLE_BOOL)) {
        *out = value->as.number;
        return true;
    }
    char type;
    const sheaf_pickle_text *bytes = numpy_scalar(&type, value);
    if (bytes == NULL || strchr("biu", type) == NULL)
        return false;
    const unsigned char *p = (const unsigned char *)bytes->at;
    uint64_t n = type == 'i' && p[bytes->size - 1] >= 0x80 ? ~(uint64_t)0 : 0;
    n = n << (8 * bytes->size - 1) << 1 | sheaf__little(p, (int)bytes->size);
    if (type == 'u' && n > INT64_MAX)
        return false;
    *out = (int64_t)n;
    return true;
}

bool sheaf__pickle_float(double *out, const sheaf_pickle *value)
{
    int64_t number;
    float narrow;
    char type;
    if (sheaf__pickle_int(&number, value)) {
        *out = (double)number;
        return true;
    }
    const sheaf_pickle_text *bytes = numpy_scalar(&type, value);
    if (sheaf__pickle_is(value, SHEAF_PICKLE_FLOAT)) {
        *out = value->as.real;
    } else if (bytes != NULL && type == 'f' && bytes->size == sizeof *out) {
        memcpy(out, bytes->at, sizeof *out);
    } else if (bytes != NULL && type == 'f' && bytes->size == sizeof narrow) {
        memcpy(&narrow, bytes->at, sizeof narrow);
        *out = narrow;
    } else {
        return false;
    }
    return true;
}

bool sheaf__pickle_shape(int *ndim, int64_t shape[SHEAF_PICKLE_MAX_DIMS], const sheaf_pickle *value)
{
    const bool row =
        sheaf__pickle_is(value, SHEAF_PICKLE_TUPLE) || sheaf__pickle_is(value, SHEAF_PICKLE_LIST);
    int64_t got[SHEAF_PICKLE_MAX_DIMS];
    if (!row || value->as.items.count > SHEAF_PICKLE_MAX_DIMS)
        return false;
    for (int64_t i = 0; i < value->as.items.count; i++)
        if (!sheaf__pickle_int(&got[i], value->as.items.at[i]) || got[i] < 0)
            return false;
    *ndim = (int)value->as.items.count;
    memcpy(shape, got, (size_t)*ndim * sizeof *got);
    return true;
}

const sheaf_pickle_tensor *sheaf__pickle_tensor(const sheaf_pickle_doc *doc,
                                                const sheaf_pickle *value)
{
    return sheaf__pickle_is(value, SHEAF_PICKLE_TENSOR) ? &doc->tensor[value->as.number] : NULL;
}
