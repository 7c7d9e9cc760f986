/* pickle.c - see change.h: PyTorch's zip files and the pickles in them.
 *
 * The values are changed as the reader gives them and written anew: everything that it can read can
 * be written, opaque objects as a call of their class. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "formats/pickle.h"
#include "formats/zip.h"
#include "tests/fuzz/folders/change.h"
#include "tests/pickle_made.h"

enum { MOST_SPOTS = 1 << 14, MOST_BYTES = 8 << 20 };

/* What was made takes the place of what was there. */
static void replace(fuzz_bytes *b, sheaf_text *made)
{
    free(b->at);
    b->size = made->size;
    if (sheaf__text_take(&b->at, made) != NULL)
        abort();
}

/* ---- writing ---- */

typedef struct writing {
    sheaf_text out;
    const sheaf_pickle_doc *doc;
    bool bad;
} writing;

static void write_value(writing *w, const sheaf_pickle *v);

static void put(writing *w, const void *bytes, size_t size)
{
    if (w->out.size + size > MOST_BYTES)
        w->bad = true;
    else
        sheaf__text_bytes(&w->out, bytes, size);
}
static void op(writing *w, char code)
{
    put(w, &code, 1);
}
static void word(writing *w, const char *text)
{
    put(w, text, strlen(text));
}

static void counted(writing *w, char code, const char *at, size_t size)
{
    const uint32_t n = (uint32_t)size;
    op(w, code);
    put(w, &n, 4);
    put(w, at, size);
}
static void text(writing *w, const char *at)
{
    counted(w, 'X', at, strlen(at));
}

static void number(writing *w, int64_t n)
{
    const unsigned char size = 8;
    op(w, '\x8a');
    put(w, &size, 1);
    put(w, &n, 8);
}

static void global(writing *w, const char *module, const char *name)
{
    op(w, 'c');
    word(w, module);
    op(w, '\n');
    word(w, name);
    op(w, '\n');
}

static void write_storage(writing *w, int64_t index)
{
    const sheaf_pickle_storage *s = &w->doc->storage[index];
    const char *class = s->unnamed ? "ComplexDoubleStorage" : sheaf__pickle_class_of(s->dtype);
    op(w, '(');
    text(w, "storage");
    global(w, "torch", class != NULL ? class : "ByteStorage");
    text(w, s->key);
    text(w, s->location);
    number(w, class != NULL ? s->whole / (s->element > 0 ? s->element : 1) : s->whole);
    word(w, "tQ");
}

static void write_sizes(writing *w, int ndim, const int64_t *size)
{
    op(w, '(');
    for (int d = 0; d < ndim; d++)
        number(w, size[d]);
    op(w, 't');
}

static void write_tensor(writing *w, const sheaf_pickle_tensor *t)
{
    const bool v3 = sheaf__pickle_class_of(t->dtype) == NULL;
    global(w, "torch._utils", v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    op(w, '(');
    write_storage(w, t->storage);
    number(w, t->offset);
    write_sizes(w, t->ndim, t->shape);
    write_sizes(w, t->ndim, t->stride);
    op(w, '\x89');
    global(w, "collections", "OrderedDict");
    word(w, ")R");
    if (v3)
        global(w, "torch", sheaf_dtype_torch_name(t->dtype));
    word(w, "tR");
}

static void write_items(writing *w, const sheaf_pickle *v, char open, char close)
{
    const int64_t n = v->as.items.count * (v->kind == SHEAF_PICKLE_DICT ? 2 : 1);
    if (open != '\0')
        op(w, open);
    if (n == 0 && open != '\0' && close != 't')
        return;
    op(w, '(');
    for (int64_t i = 0; i < n; i++)
        write_value(w, v->as.items.at[i]);
    op(w, close);
}

static void write_object(writing *w, const sheaf_pickle_object *o)
{
    global(w, o->class->as.global.module, o->class->as.global.name);
    write_value(w, o->args);
    /* functions are called, classes made; which it was is not kept */
    const char *module = o->class->as.global.module;
    op(w, strncmp(module, "torch", 5) == 0 || strncmp(module, "numpy", 5) == 0 ||
                  strncmp(module, "collections", 11) == 0
              ? 'R'
              : '\x81');
    if (o->list != NULL && o->list->as.items.count > 0)
        write_items(w, o->list, '\0', 'e');
    if (o->dict != NULL && o->dict->as.items.count > 0)
        write_items(w, o->dict, '\0', 'u');
    if (o->state != NULL) {
        write_value(w, o->state);
        op(w, 'b');
    }
}

static void write_value(writing *w, const sheaf_pickle *v)
{
    if (v == NULL || w->bad) {
        op(w, 'N');
        return;
    }
    switch (v->kind) {
    case SHEAF_PICKLE_NONE: op(w, 'N'); break;
    case SHEAF_PICKLE_BOOL: op(w, v->as.number ? '\x88' : '\x89'); break;
    case SHEAF_PICKLE_INT: number(w, v->as.number); break;
    case SHEAF_PICKLE_FLOAT: {
        const char *p = (const char *)&v->as.real;
        op(w, 'G');
        for (int i = 7; i >= 0; i--)
            op(w, p[i]);
        break;
    }
    case SHEAF_PICKLE_STRING: counted(w, 'X', v->as.text.at, v->as.text.size); break;
    case SHEAF_PICKLE_BYTES: counted(w, 'B', v->as.text.at, v->as.text.size); break;
    case SHEAF_PICKLE_BIG: {
        const unsigned char size = (unsigned char)(v->as.text.size & 0xff);
        op(w, '\x8a');
        put(w, &size, 1);
        put(w, v->as.text.at, size);
        break;
    }
    case SHEAF_PICKLE_LIST: write_items(w, v, ']', 'e'); break;
    case SHEAF_PICKLE_TUPLE: write_items(w, v, '\0', 't'); break;
    case SHEAF_PICKLE_SET:
        global(w, "builtins", "set");
        op(w, '(');
        write_items(w, v, ']', 'e');
        word(w, "tR");
        break;
    case SHEAF_PICKLE_DICT: write_items(w, v, '}', 'u'); break;
    case SHEAF_PICKLE_GLOBAL: global(w, v->as.global.module, v->as.global.name); break;
    case SHEAF_PICKLE_OBJECT: write_object(w, v->as.object); break;
    case SHEAF_PICKLE_DTYPE: global(w, "torch", sheaf_dtype_torch_name(v->as.dtype)); break;
    case SHEAF_PICKLE_STORAGE: write_storage(w, v->as.number); break;
    case SHEAF_PICKLE_TENSOR: write_tensor(w, &w->doc->tensor[v->as.number]); break;
    case SHEAF_PICKLE_PERSISTENT:
        write_value(w, v->as.items.at[0]);
        op(w, 'Q');
        break;
    case SHEAF_PICKLE_AGAIN: op(w, 'N'); break;
    }
}

/* ---- what can be changed ---- */

/* A place that holds a value; pairs of dicts have a holder. */
typedef struct spot {
    sheaf_pickle **at, *dict;
    int64_t pair;
} spot;
typedef struct spots {
    spot tensor[MOST_SPOTS], any[MOST_SPOTS];
    uint32_t tensors, all;
} spots;

static void collect(spots *s, sheaf_pickle **at, sheaf_pickle *dict, int64_t pair, int depth)
{
    sheaf_pickle *v = *at;
    if (v == NULL || s->all == MOST_SPOTS || depth > 64)
        return;
    s->any[s->all++] = (spot){ at, dict, pair };
    if (v->kind == SHEAF_PICKLE_TENSOR && s->tensors < MOST_SPOTS)
        s->tensor[s->tensors++] = (spot){ at, dict, pair };
    if (v->kind == SHEAF_PICKLE_DICT)
        for (int64_t i = 0; i < v->as.items.count; i++)
            collect(s, &v->as.items.at[2 * i + 1], v, i, depth + 1);
    else if (v->kind == SHEAF_PICKLE_LIST || v->kind == SHEAF_PICKLE_TUPLE ||
             v->kind == SHEAF_PICKLE_SET)
        for (int64_t i = 0; i < v->as.items.count; i++)
            collect(s, &v->as.items.at[i], NULL, 0, depth + 1);
    else if (v->kind == SHEAF_PICKLE_OBJECT) {
        collect(s, &v->as.object->args, NULL, 0, depth + 1);
        collect(s, &v->as.object->state, NULL, 0, depth + 1);
        collect(s, &v->as.object->list, NULL, 0, depth + 1);
        collect(s, &v->as.object->dict, NULL, 0, depth + 1);
    }
}

static void drop_pair(const spot *s)
{
    sheaf_pickle **at = s->dict->as.items.at;
    memmove(at + 2 * s->pair, at + 2 * s->pair + 2,
            (size_t)(s->dict->as.items.count - s->pair - 1) * 2 * sizeof *at);
    s->dict->as.items.count--;
}

static void rename_key(sheaf_pickle_doc *doc, const spot *s, const uint32_t n[4])
{
    sheaf_pickle **key = &s->dict->as.items.at[2 * s->pair];
    const char *was = sheaf__pickle_text(*key);
    char name[300];
    if (was == NULL || *was == '\0')
        return;
    snprintf(name, sizeof name, "%.290s%s", was, n[3] % 3 == 0 ? ".x" : "");
    if (n[3] % 3 == 1)
        name[n[2] % strlen(name)] ^= 1;
    for (char *p = name; n[3] % 3 == 2 && *p != '\0'; p++)
        if (*p >= '0' && *p <= '9') {
            *p = (char)('0' + (*p - '0' + 1) % 10);
            break;
        }
    sheaf_pickle *made = sheaf__pickle_make_string(doc, name);
    if (made != NULL)
        *key = made;
}

/* In place: other tensors of the same entry change too. */
static void change_tensor(sheaf_pickle_doc *doc, sheaf_pickle_tensor *t, const uint32_t n[4],
                          bool *consistent)
{
    static const sheaf_dtype to[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16,  SHEAF_F64, SHEAF_I64,
                                      SHEAF_I32, SHEAF_U8,   SHEAF_BOOL, SHEAF_C64, SHEAF_I8 };
    sheaf_pickle_storage *s = &doc->storage[t->storage];
    const int64_t swap = t->ndim > 0 ? t->shape[0] : 0;
    switch (n[2] % 8) {
    case 0: /* emptied */
        for (int d = 0; d < t->ndim; d++)
            t->shape[d] = n[3] % 2 == 0 || d == 0 ? 0 : t->shape[d];
        break;
    case 1: /* retyped, with as many bytes as there are; or bytes and all */
        s->dtype = t->dtype = to[n[3] % 10];
        s->element = (int)sheaf_dtype_bytes(s->dtype);
        *consistent = true;
        break;
    case 2:
        t->ndim = 1;
        t->shape[0] = 0;
        t->stride[0] = 1;
        break; /* as ZeRO 3 leaves them */
    case 3:    /* transposed in name */
        if (t->ndim > 1) {
            t->shape[0] = t->shape[1];
            t->shape[1] = swap;
        }
        break;
    case 4: /* and in fact */
        if (t->ndim > 1) {
            const int64_t stride = t->stride[0];
            t->stride[0] = t->stride[1];
            t->stride[1] = stride;
        }
        *consistent = true;
        break;
    case 5:
        t->stride[0] = 0;
        *consistent = true;
        break;
    case 6: t->shape[0] += t->ndim > 0 ? (n[3] % 3) - 1 : 0; break;
    default: t->offset += n[3] % 3; *consistent = true;
    }
}

static void change_value(sheaf_pickle_doc *doc, const spot *s, const uint32_t n[4])
{
    static const int64_t odd[] = {
        0, 1, -1, 2, 3, 8, 64, INT32_MAX, (int64_t)1 << 40, INT64_MAX, INT64_MIN
    };
    sheaf_pickle *v = *s->at, *made = NULL;
    if (v->kind == SHEAF_PICKLE_INT && n[2] % 4 != 0)
        made = sheaf__pickle_make_int(
            doc, n[2] % 2 ? (int64_t)((uint64_t)v->as.number + 1 - n[3] % 2 * 2) : odd[n[3] % 11]);
    else if (v->kind == SHEAF_PICKLE_STRING && v->as.text.size > 0 && n[2] % 4 != 0) {
        made = sheaf__pickle_make_string(doc, v->as.text.at);
        if (made != NULL)
            ((char *)made->as.text.at)[n[3] % v->as.text.size] ^= 1;
    } else
        made = n[2] % 2 ? sheaf__pickle_make_none(doc)
                        : sheaf__pickle_make(doc, n[3] % 2 ? SHEAF_PICKLE_DICT : SHEAF_PICKLE_LIST);
    if (made != NULL)
        *s->at = made;
}

static void change_doc(sheaf_pickle_doc *doc, const uint32_t n[4], bool *consistent)
{
    spots *s = calloc(1, sizeof *s);
    if (s == NULL)
        abort();
    collect(s, (sheaf_pickle **)&doc->root, NULL, 0, 0);
    const uint32_t kind = n[0] % 10;
    const bool of_tensors = kind < 7 && s->tensors > 0;
    const spot *one = of_tensors ? &s->tensor[n[1] % s->tensors] : &s->any[n[1] % s->all];
    const spot *two = of_tensors ? &s->tensor[n[2] % s->tensors] : &s->any[n[2] % s->all];
    sheaf_pickle *swap = *one->at;
    if (n[0] == FUZZ_NO_CHANGE)
        ;
    else if (of_tensors && kind == 0 && one->dict != NULL)
        drop_pair(one);
    else if (of_tensors && kind == 1) {
        *one->at = *two->at;
        *two->at = swap;
        *consistent = true;
    } else if (of_tensors && kind == 2) {
        *one->at = *two->at;
        *consistent = true;
    } else if (of_tensors && kind < 5)
        change_tensor(doc, &doc->tensor[swap->as.number], n, consistent);
    else if (of_tensors && one->dict != NULL)
        rename_key(doc, one, n);
    else if (kind == 7 && one->dict != NULL)
        drop_pair(one);
    else if (kind == 8 && one->dict != NULL)
        rename_key(doc, one, n);
    else
        change_value(doc, one, n);
    free(s);
}

bool fuzz_change_pickle(fuzz_bytes *b, const uint32_t n[4], bool *consistent)
{
    sheaf_pickle_doc *doc = NULL;
    sheaf_status *st = sheaf__pickle_parse(&doc, NULL, b->at, b->size);
    if (st != NULL) {
        sheaf_status_free(st);
        return false;
    }
    change_doc(doc, n, consistent);
    writing w = { .doc = doc };
    word(&w, "\x80\x02");
    write_value(&w, doc->root);
    op(&w, '.');
    const bool made = !w.bad && !w.out.failed;
    if (made)
        replace(b, &w.out);
    sheaf__text_release(&w.out);
    sheaf__pickle_free(doc);
    return made;
}

/* ---- the zip file around it ---- */

typedef struct item {
    char name[600];
    fuzz_bytes bytes;
    uint32_t wrong;
} item;

static void write_zip(fuzz_bytes *out, const item *items, int64_t count)
{
    sheaf_text all = { 0 };
    char *part;
    size_t size;
    sheaf_zip_entry *e = calloc((size_t)count + 1, sizeof *e);
    bool good = e != NULL;
    for (int64_t i = 0; good && i < count; i++) {
        e[i] = (sheaf_zip_entry){ items[i].name, (int64_t)all.size, 0, (int64_t)items[i].bytes.size,
                                  sheaf__crc32(0, items[i].bytes.at, items[i].bytes.size) ^
                                      items[i].wrong };
        good = sheaf__zip_place(&e[i]) == NULL && sheaf__zip_local(&part, &size, &e[i]) == NULL;
        if (good) {
            sheaf__text_bytes(&all, part, size);
            sheaf__text_bytes(&all, items[i].bytes.at, items[i].bytes.size);
            free(part);
        }
    }
    good = good && sheaf__zip_tail(&part, &size, e, count, (int64_t)all.size) == NULL;
    if (!good)
        abort();
    sheaf__text_bytes(&all, part, size);
    free(part);
    free(e);
    replace(out, &all);
}

static bool is_data(const char *name)
{
    return strstr(name, "/data/") != NULL;
}

/* The values of storages: cut, swapped, copied, emptied, NaN. */
static void change_data(item *items, int64_t *count, const uint32_t n[4], bool *consistent)
{
    item *one = &items[n[1] % (uint64_t)*count], *two = &items[n[2] % (uint64_t)*count];
    const fuzz_bytes swap = one->bytes;
    switch (n[0] % 8) {
    case 0:
        *consistent = is_data(one->name) && one->bytes.size == two->bytes.size;
        one->bytes = two->bytes;
        two->bytes = swap;
        break;
    case 1:
        if (one->bytes.size == two->bytes.size && is_data(one->name) && is_data(two->name))
            memcpy(one->bytes.at, two->bytes.at, one->bytes.size);
        *consistent = true;
        break;
    case 2: one->bytes.size = 0; break;
    case 3: one->bytes.size = one->bytes.size * (n[3] % 8) / 8; break;
    case 4: one->wrong = n[3]; break;
    case 5: /* NaN, or any bytes */
        if (one->bytes.size >= 8 && is_data(one->name))
            memset(one->bytes.at + n[2] % (one->bytes.size / 8) * 8, (int)n[3], 8);
        *consistent = true;
        break;
    case 6: /* removed */
        free(one->bytes.at);
        memmove(one, one + 1, (size_t)(items + *count - one - 1) * sizeof *one);
        --*count;
        break;
    default: one->name[n[3] % strlen(one->name)] ^= 1;
    }
}

bool fuzz_change_torch(fuzz_bytes *b, const char *path, const uint32_t n[4], bool *consistent)
{
    sheaf_zip zip = { 0 };
    int fd = -1;
    int64_t length;
    bool made = true;
    sheaf_status *st = sheaf__file_open_read(&fd, &length, path);
    if (st == NULL)
        st = sheaf__zip_open(&zip, fd, 0, length, path);
    item *items = st == NULL ? calloc((size_t)zip.count + 1, sizeof *items) : NULL;
    int64_t count = st == NULL ? zip.count : 0;
    for (int64_t i = 0; st == NULL && i < count; i++) {
        snprintf(items[i].name, sizeof items[i].name, "%s", zip.entry[i].name);
        st = sheaf__zip_read(&items[i].bytes.at, &items[i].bytes.size, &zip, &zip.entry[i], fd,
                             SIZE_MAX, path);
    }
    const uint32_t rest[4] = { n[0] == FUZZ_NO_CHANGE ? n[0] : n[0] / 3, n[1], n[2], n[3] };
    if (st == NULL && count > 0 && n[0] % 3 == 0 && n[0] != FUZZ_NO_CHANGE)
        change_data(items, &count, rest, consistent);
    else
        for (int64_t i = 0; st == NULL && i < count; i++)
            if (strlen(items[i].name) > 9 &&
                strcmp(items[i].name + strlen(items[i].name) - 9, "/data.pkl") == 0)
                made = fuzz_change_pickle(&items[i].bytes, rest, consistent);
    made = made && st == NULL && count > 0;
    if (made)
        write_zip(b, items, count);
    for (int64_t i = 0; i < count; i++)
        free(items[i].bytes.at);
    free(items);
    if (fd >= 0)
        close(fd);
    sheaf__zip_release(&zip);
    sheaf_status_free(st);
    return made;
}
