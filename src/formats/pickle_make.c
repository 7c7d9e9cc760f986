/* pickle_make.c - values to be written, and their pickle; see pickle.h. */

#include "pickle_inner.h"
#include "base/base.h"

/* ---- making ---- */

sheaf_pickle *sheaf__pickle_make(sheaf_pickle_doc *doc, sheaf_pickle_kind kind)
{
    return sheaf__pickle_node(doc, kind);
}

static sheaf_pickle *make_tensor(sheaf_pickle_doc *doc, const sheaf_pickle_tensor *tensor,
                                 int64_t bytes)
{
    char key[24];
    int64_t storage = 0, index = 0;
    snprintf(key, sizeof key, "%" PRId64, doc->ntensors);
    const sheaf_pickle_storage own = { .key = key,
                                       .location = "cpu",
                                       .dtype = tensor->dtype,
                                       .element = (int)sheaf_dtype_bytes(tensor->dtype),
                                       .bytes = bytes,
                                       .whole = bytes };
    if (!sheaf__pickle_add_storage(&storage, doc, &own) ||
        !sheaf__pickle_add_tensor(&index, doc, tensor))
        return NULL;
    doc->tensor[index].storage = storage;
    sheaf_pickle *value = sheaf__pickle_node(doc, SHEAF_PICKLE_TENSOR);
    if (value != NULL)
        value->as.number = index;
    return value;
}

sheaf_pickle *sheaf__pickle_make_tensor(sheaf_pickle_doc *doc, sheaf_dtype dtype, int ndim,
                                        const int64_t *shape)
{
    sheaf_pickle_tensor t = { .dtype = dtype, .ndim = ndim };
    int64_t bytes = (int64_t)sheaf_dtype_bytes(dtype), step = 1;
    bool bad = bytes == 0 || sheaf_dtype_torch_name(dtype) == NULL || ndim < 0 ||
               ndim > SHEAF_PICKLE_MAX_DIMS;
    for (int d = ndim - 1; !bad && d >= 0; d--) {
        t.shape[d] = shape[d];
        t.stride[d] = step;
        bad = shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes) ||
              __builtin_mul_overflow(step, shape[d] > 0 ? shape[d] : 1, &step) ||
              bytes > INT64_MAX / 4 || step > INT64_MAX / 4;
    }
    if (bad)
        doc->arena->bad_tensor = true;
    return bad ? NULL : make_tensor(doc, &t, bytes);
}

void sheaf__pickle_set(sheaf_pickle_doc *doc, sheaf_pickle *dict, const char *key,
                       sheaf_pickle *value)
{
    sheaf_pickle *name = sheaf__pickle_node(doc, SHEAF_PICKLE_STRING);
    if (dict != NULL && value != NULL && name != NULL &&
        sheaf__pickle_copy(&name->as.text, doc, key, strlen(key)))
        sheaf__pickle_push(doc, dict, name, value);
}

sheaf_status *sheaf__pickle_made(sheaf_pickle_doc *doc, sheaf_pickle *root)
{
    if (doc->arena->bad_tensor)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a tensor for a PyTorch file"),
                              "a dtype that torch has, at most %d axes, less than 2^61 bytes",
                              SHEAF_PICKLE_MAX_DIMS);
    if (doc->arena->failed || root == NULL)
        return sheaf__no_memory("out of memory for a pickle");
    sheaf_status *st = sheaf__pickle_untangle(doc, &root);
    if (st == NULL)
        doc->root = root;
    return st;
}

/* ---- encoding ---- */

/* Places in the memo of what occurs with every tensor. */
enum {
    MEMO_REBUILD,
    MEMO_REBUILD_V3,
    MEMO_STORAGE,
    MEMO_CPU,
    MEMO_HOOKS,
    MEMO_CLASS,
    MEMO_DTYPE = MEMO_CLASS + SHEAF_DTYPE_COUNT,
    MEMO_COUNT = MEMO_DTYPE + SHEAF_DTYPE_COUNT
};

typedef struct encoder {
    sheaf_text out;
    const sheaf_pickle_doc *doc;
    bool put[MEMO_COUNT];
} encoder;

static void put_byte(encoder *e, int byte)
{
    sheaf__text_little(&e->out, (uint64_t)byte, 1);
}

static void put_int(encoder *e, int64_t number)
{
    const int op = number >= 0 && number < 256                  ? 'K'
                   : number >= 0 && number < 65536              ? 'M'
                   : number >= INT32_MIN && number <= INT32_MAX ? 'J'
                                                                : 0x8a;
    put_byte(e, op);
    if (op == 0x8a)
        put_byte(e, 8);
    sheaf__text_little(&e->out, (uint64_t)number,
                       op == 'K'   ? 1
                       : op == 'M' ? 2
                       : op == 'J' ? 4
                                   : 8);
}

static void put_text(encoder *e, const char *at, size_t size)
{
    put_byte(e, 'X');
    sheaf__text_little(&e->out, size, 4);
    sheaf__text_bytes(&e->out, at, size);
}

/* A text or name that was put before comes from the memo. */
static bool from_memo(encoder *e, int place)
{
    if (e->put[place]) {
        put_byte(e, 'h');
        put_byte(e, place);
    }
    return e->put[place];
}

static void to_memo(encoder *e, int place)
{
    put_byte(e, 'q');
    put_byte(e, place);
    e->put[place] = true;
}

static void put_name(encoder *e, int place, const char *module, const char *name)
{
    if (from_memo(e, place))
        return;
    sheaf__text_add(&e->out, "c%s\n%s\n", module, name);
    to_memo(e, place);
}

static void put_word(encoder *e, int place, const char *word)
{
    if (from_memo(e, place))
        return;
    put_text(e, word, strlen(word));
    to_memo(e, place);
}

static void put_sizes(encoder *e, const int64_t *size, int n)
{
    put_byte(e, '(');
    for (int i = 0; i < n; i++)
        put_int(e, size[i]);
    put_byte(e, 't');
}

static sheaf_status *put_tensor(encoder *e, int64_t index)
{
    const sheaf_pickle_tensor *t = &e->doc->tensor[index];
    const sheaf_pickle_storage *s = &e->doc->storage[t->storage];
    const char *class = sheaf__pickle_class_of(t->dtype), *dtype = sheaf_dtype_torch_name(t->dtype);
    const int64_t each = (int64_t)sheaf_dtype_bytes(t->dtype);
    if (t->storage != index || s->dtype != t->dtype || t->offset != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor %" PRId64, index),
                              "one that was made to be written");
    put_name(e, class != NULL ? MEMO_REBUILD : MEMO_REBUILD_V3, "torch._utils",
             class != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    sheaf__text_add(&e->out, "((");
    put_word(e, MEMO_STORAGE, "storage");
    put_name(e, MEMO_CLASS + (class != NULL ? (int)t->dtype : SHEAF_F4),
             class != NULL ? "torch" : "torch.storage", class != NULL ? class : "UntypedStorage");
    put_text(e, s->key, strlen(s->key));
    put_word(e, MEMO_CPU, "cpu");
    put_int(e, class != NULL ? s->bytes / each : s->bytes);
    sheaf__text_add(&e->out, "tQ");
    put_int(e, 0);
    put_sizes(e, t->shape, t->ndim);
    put_sizes(e, t->stride, t->ndim);
    put_byte(e, 0x89);
    put_name(e, MEMO_HOOKS, "collections", "OrderedDict");
    sheaf__text_add(&e->out, ")R");
    if (class == NULL)
        put_name(e, MEMO_DTYPE + (int)t->dtype, "torch", dtype);
    sheaf__text_add(&e->out, "tR");
    return NULL;
}

static sheaf_status *put(encoder *e, const sheaf_pickle *value);

static sheaf_status *put_items(encoder *e, const sheaf_pickle *value, int each)
{
    sheaf_status *st = NULL;
    put_byte(e, '(');
    for (int64_t i = 0; st == NULL && i < value->as.items.count * each; i++)
        st = put(e, value->as.items.at[i]);
    return st;
}

static sheaf_status *put_row(encoder *e, const sheaf_pickle *value, const char *before, int each,
                             const char *after)
{
    sheaf__text_add(&e->out, "%s", before);
    sheaf_status *st = put_items(e, value, each);
    sheaf__text_add(&e->out, "%s", after);
    return st;
}

/* Recursion ends: sheaf__pickle_made() measured the depth. */
static sheaf_status *put(encoder *e, const sheaf_pickle *value)
{
    uint64_t bits;
    switch (value->kind) {
    case SHEAF_PICKLE_NONE: put_byte(e, 'N'); return NULL;
    case SHEAF_PICKLE_BOOL: put_byte(e, value->as.number != 0 ? 0x88 : 0x89); return NULL;
    case SHEAF_PICKLE_INT: put_int(e, value->as.number); return NULL;
    case SHEAF_PICKLE_FLOAT:
        memcpy(&bits, &value->as.real, sizeof bits);
        put_byte(e, 'G');
        sheaf__text_little(&e->out, __builtin_bswap64(bits), 8);
        return NULL;
    case SHEAF_PICKLE_STRING:
        if (!sheaf__pickle_is_utf8(value->as.text.at, value->as.text.size) ||
            value->as.text.size > UINT32_MAX)
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a text for a PyTorch file"),
                                  "UTF-8, less than 4 GiB");
        put_text(e, value->as.text.at, value->as.text.size);
        return NULL;
    case SHEAF_PICKLE_LIST: return put_row(e, value, "]", 1, "e");
    case SHEAF_PICKLE_TUPLE: return put_row(e, value, "", 1, "t");
    case SHEAF_PICKLE_SET: return put_row(e, value, "c__builtin__\nset\n]", 1, "e\205R");
    case SHEAF_PICKLE_DICT: return put_row(e, value, "}", 2, "u");
    case SHEAF_PICKLE_TENSOR: return put_tensor(e, value->as.number);
    default:
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "a value for a PyTorch file"),
                              "one that sheaf__pickle_make made");
    }
}

sheaf_status *sheaf__pickle_encode(char **out, size_t *size, const sheaf_pickle_doc *doc)
{
    encoder e = { .doc = doc };
    put_byte(&e, 0x80);
    put_byte(&e, 2);
    sheaf_status *st = put(&e, doc->root);
    put_byte(&e, '.');
    *size = e.out.size;
    TRY(st, sheaf__text_take(out, &e.out));
    sheaf__text_release(&e.out);
    return st;
}
