/* change.c - see change.h: safetensors, JSON, bytes. */
#include "tests/fuzz/folders/change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

fuzz_format fuzz_format_of(const char *name, const char *bytes, size_t size)
{
    const size_t n = strlen(name);
    if (n > 12 && strcmp(name + n - 12, ".safetensors") == 0)
        return FUZZ_SAFETENSORS;
    if (n > 5 && strcmp(name + n - 5, ".json") == 0)
        return FUZZ_JSON;
    if (size > 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        return FUZZ_TORCH;
    return size > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5 &&
                   strstr(name, ".metadata") != NULL
               ? FUZZ_PICKLE
               : FUZZ_OTHER;
}

static void *must(void *p)
{
    if (p == NULL)
        abort();
    return p;
}

/* ---- bytes ---- */

bool fuzz_change_bytes(fuzz_bytes *b, const uint32_t n[4], bool *consistent)
{
    if (b->size == 0)
        return false;
    switch (n[0] % 4) {
    case 0: b->size = n[1] % b->size; break;
    case 1: b->at[n[1] % b->size] ^= (char)(1u << n[2] % 8); break;
    case 2: b->at[n[1] % b->size] = (char)n[2]; break;
    default:
        b->at = must(realloc(b->at, b->size + 16));
        memset(b->at + b->size, (int)n[1], 1 + n[2] % 16);
        b->size += 1 + n[2] % 16;
    }
    *consistent = true; /* a value in a file without checksums */
    return true;
}

/* ---- JSON ---- */

/* Value k of all below `at`, counted in depth; its holder and key or index. */
typedef struct spot {
    json_t *holder;
    const char *key;
    size_t index;
    json_t *value;
} spot;

static bool find_spot(spot *out, json_t *at, uint32_t *k)
{
    const char *key;
    size_t i;
    json_t *value;
    if (json_is_object(at)) {
        json_object_foreach(at, key, value)
        {
            *out = (spot){ at, key, 0, value };
            if ((*k)-- == 0 || find_spot(out, value, k))
                return true;
        }
    } else
        json_array_foreach(at, i, value)
        {
            *out = (spot){ at, NULL, i, value };
            if ((*k)-- == 0 || find_spot(out, value, k))
                return true;
        }
    return false;
}

static uint32_t count_spots(const json_t *at)
{
    uint32_t n = 0;
    size_t i;
    const char *key;
    json_t *value;
    if (json_is_object(at))
        json_object_foreach((json_t *)at, key, value) n += 1 + count_spots(value);
    else
        json_array_foreach(at, i, value) n += 1 + count_spots(value);
    return n;
}

static json_t *other_value(const json_t *was, const uint32_t n[4])
{
    static const json_int_t odd[] = { 0,         1,        -1,      2,         3,
                                      7,         64,       1 << 20, INT32_MAX, (json_int_t)1 << 40,
                                      INT64_MAX, INT64_MIN };
    if (json_is_integer(was) && n[2] % 4 < 2)
        return json_integer(n[2] % 4 == 0 ? json_integer_value(was) / 2
                                          : (json_int_t)((uint64_t)json_integer_value(was) + 1));
    switch (n[2] % 10) {
    case 0: return json_null();
    case 1: return json_string("");
    case 2: return json_string("../x");
    case 3: return json_object();
    case 4: return json_array();
    case 5: return json_true();
    case 6: return json_real(1e300);
    case 7: return json_string("model.layers.0.mlp.up_proj.weight");
    default: return json_integer(odd[n[3] % (sizeof odd / sizeof *odd)]);
    }
}

static void put(const spot *s, json_t *value)
{
    if ((s->key != NULL ? json_object_set_new(s->holder, s->key, value)
                        : json_array_set_new(s->holder, s->index, value)) != 0)
        abort();
}

bool fuzz_change_json(fuzz_bytes *b, const uint32_t n[4], bool *consistent)
{
    json_t *root = json_loadb(b->at, b->size, 0, NULL);
    const uint32_t spots = root == NULL ? 0 : count_spots(root);
    spot one, two;
    uint32_t k = spots == 0 ? 0 : n[1] % spots, l = spots == 0 ? 0 : n[2] % spots;
    if (spots == 0 || !find_spot(&one, root, &k) || !find_spot(&two, root, &l)) {
        json_decref(root);
        return false;
    }
    char *key = one.key == NULL ? NULL : must(strdup(one.key));
    json_t *a = json_deep_copy(one.value), *c = json_deep_copy(two.value);
    switch (n[0] % 4) {
    case 0:
        if (key != NULL)
            json_object_del(one.holder, key);
        else
            json_array_remove(one.holder, one.index);
        break;
    case 1: put(&one, json_incref(c)); break;
    case 2:
        if (key != NULL) {
            char name[300];
            snprintf(name, sizeof name, "%.290s%s", key, n[3] % 2 ? "x" : "");
            name[n[3] / 2 % strlen(name)] ^= (char)(n[3] % 3 ? 1 : 0);
            json_object_del(one.holder, key);
            json_object_set_new(one.holder, name, json_incref(a));
        }
        break;
    default: put(&one, other_value(one.value, n));
    }
    json_decref(a);
    json_decref(c);
    free(key);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (text == NULL) /* a name that is no UTF-8 any more */
        return false;
    free(b->at);
    *b = (fuzz_bytes){ text, strlen(text) };
    return true;
}

/* ---- safetensors ---- */

enum { MOST_TENSORS = 1 << 12 };

typedef struct tensor {
    char name[200], dtype[16];
    json_t *shape;
    const char *data;
    size_t size;
} tensor;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

static int64_t read_tensors(tensor *t, json_t **metadata, const fuzz_bytes *b)
{
    uint64_t size = 0;
    int64_t count = 0;
    const char *name;
    json_t *value;
    if (b->size < 8)
        return -1;
    memcpy(&size, b->at, 8);
    if (size > b->size - 8)
        return -1;
    json_t *root = json_loadb(b->at + 8, size, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return -1;
    }
    *metadata = json_incref(json_object_get(root, "__metadata__"));
    json_object_foreach(root, name, value)
    {
        const json_int_t begin =
            json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 0));
        const json_int_t end =
            json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 1));
        const char *dtype = json_string_value(json_object_get(value, "dtype"));
        if (strcmp(name, "__metadata__") == 0 || dtype == NULL || count == MOST_TENSORS ||
            begin < 0 || end < begin || (uint64_t)end > b->size - 8 - size)
            continue;
        tensor *one = &t[count++];
        snprintf(one->name, sizeof one->name, "%s", name);
        snprintf(one->dtype, sizeof one->dtype, "%s", dtype);
        one->shape = json_deep_copy(json_object_get(value, "shape"));
        one->data = b->at + 8 + size + begin;
        one->size = (size_t)(end - begin);
    }
    json_decref(root);
    qsort(t, (size_t)count, sizeof *t, by_name); /* jansson's order is nobody's */
    return count;
}

static void write_tensors(fuzz_bytes *b, const tensor *t, int64_t count, json_t *metadata)
{
    json_t *root = json_object();
    size_t at = 0;
    if (metadata != NULL)
        json_object_set(root, "__metadata__", metadata);
    for (int64_t i = 0; i < count; i++) {
        if (json_object_get(root, t[i].name) != NULL)
            continue;
        json_object_set_new(root, t[i].name,
                            json_pack("{s:s, s:O, s:[I, I]}", "dtype", t[i].dtype, "shape",
                                      t[i].shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + t[i].size)));
        at += t[i].size;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    if (text == NULL)
        text = must(strdup("{}"));
    const uint64_t size = strlen(text);
    char *out = must(malloc(8 + size + at + 1));
    memcpy(out, &size, 8);
    memcpy(out + 8, text, size);
    at = 8 + size;
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(t[i].name, t[i - 1].name) == 0)
            continue;
        memcpy(out + at, t[i].data, t[i].size);
        at += t[i].size;
    }
    free(text);
    json_decref(root);
    free(b->at);
    *b = (fuzz_bytes){ out, at };
}

static const char *const dtypes[] = { "BOOL", "U8",  "I8",   "F8_E5M2", "F8_E4M3", "I16",
                                      "U16",  "F16", "BF16", "I32",     "U32",     "F32",
                                      "C64",  "F64", "I64",  "U64" };
static const size_t widths[] = { 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8 };

/* Another dtype; the data stays (as long as it fits), is made longer with zeros, or is cut. */
static void retype(tensor *t, const uint32_t n[4], char **buffer)
{
    size_t was = 4;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        was = strcmp(dtypes[i], t->dtype) == 0 ? widths[i] : was;
    const size_t to = n[2] % (sizeof widths / sizeof *widths), size = t->size / was * widths[to];
    *buffer = must(calloc(size + 1, 1));
    memcpy(*buffer, t->data, size < t->size ? size : t->size);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtypes[to]);
    t->data = *buffer;
    t->size = size;
}

static void reshape(tensor *t, const uint32_t n[4])
{
    const size_t axes = json_array_size(t->shape);
    const json_int_t first = json_integer_value(json_array_get(t->shape, 0));
    if (axes > 1 && n[2] % 3 == 0) { /* transposed in name alone */
        json_t *last = json_incref(json_array_get(t->shape, axes - 1));
        json_array_remove(t->shape, axes - 1);
        json_array_insert_new(t->shape, 0, last);
    } else if (n[2] % 3 == 1 && first > 1) { /* fewer rows */
        json_array_set_new(t->shape, 0, json_integer(first - 1));
        t->size -= t->size / (size_t)first;
    } else
        json_array_append_new(t->shape, json_integer(1));
}

static void rename_tensor(char *name, size_t capacity, const uint32_t n[4])
{
    const size_t size = strlen(name);
    char *digit = name;
    for (uint32_t skip = n[3] % 3; *digit != '\0' && (*digit < '0' || *digit > '9' || skip-- > 0);
         digit++)
        ;
    if (n[2] % 3 == 0 && *digit != '\0')
        *digit = (char)('0' + (*digit - '0' + 1) % 10);
    else if (n[2] % 3 == 1 && size + 2 < capacity)
        memcpy(name + size, ".x", 3);
    else if (size > 0)
        name[n[3] % size] ^= 1;
}

bool fuzz_change_safetensors(fuzz_bytes *b, const uint32_t n[4], bool *consistent)
{
    tensor *t = must(malloc(MOST_TENSORS * sizeof *t));
    json_t *metadata = NULL;
    char *buffer = NULL;
    int64_t count = read_tensors(t, &metadata, b);
    const bool some = count > 0;
    if (some) {
        tensor *one = &t[n[1] % (uint64_t)count], *two = &t[n[2] % (uint64_t)count], swap = *one;
        switch (n[0] % 9) {
        case 0:
            json_decref(one->shape);
            memmove(one, one + 1, (size_t)(t + count - one - 1) * sizeof *one);
            count--;
            break;
        case 1: /* their names */
            memcpy(one->name, two->name, sizeof one->name);
            memcpy(two->name, swap.name, sizeof two->name);
            *consistent = one->size == two->size;
            break;
        case 2: /* a copy of another's values */
            if (one->size == two->size)
                one->data = two->data;
            *consistent = true;
            break;
        case 3: /* emptied */
            json_array_set_new(one->shape, 0, json_integer(0));
            one->size = json_array_size(one->shape) == 0 ? one->size : 0;
            break;
        case 4:
            retype(one, n, &buffer);
            *consistent = true;
            break;
        case 5: rename_tensor(one->name, sizeof one->name, n); break;
        case 6: reshape(one, n); break;
        case 7: /* NaN, or any bytes */
            if (one->size >= 8) {
                buffer = must(malloc(one->size));
                memcpy(buffer, one->data, one->size);
                memset(buffer + n[2] % (one->size / 8) * 8, (int)n[3], 8);
                one->data = buffer;
                *consistent = true;
            }
            break;
        default: /* all */
            for (int64_t i = 0; i < count; i++)
                json_decref(t[i].shape);
            count = 0;
        }
        qsort(t, (size_t)count, sizeof *t, by_name);
        write_tensors(b, t, count, n[3] % 5 == 0 ? NULL : metadata);
    }
    for (int64_t i = 0; i < count; i++)
        json_decref(t[i].shape);
    json_decref(metadata);
    free(buffer);
    free(t);
    return some;
}
