/* pickle_tensor.c - storages and tensors in a pickle; see pickle.h.
 *
 *   persistent id    ("storage", class, key, location, count of elements [, None or (key, offset,
 *                    count)])
 *                    ("module", class, file, source text), in old files, is the class
 *   rebuild          (storage, offset, sizes, strides [, requires_grad, hooks [, dtype in v3] [,
 *                    metadata]])
 *
 * Metadata, where there is any, says that the elements are to be conjugated or negated: an opaque
 * object. Offsets and strides are in elements, of the storage's class or of v3's dtype. */

#include "pickle_inner.h"
#include "base/base.h"

static const struct {
    const char *name;
    sheaf_dtype dtype;
    int unnamed; /* bytes of an element, where there is no dtype */
} classes[] = {
    { "FloatStorage", SHEAF_F32 },
    { "DoubleStorage", SHEAF_F64 },
    { "HalfStorage", SHEAF_F16 },
    { "BFloat16Storage", SHEAF_BF16 },
    { "LongStorage", SHEAF_I64 },
    { "IntStorage", SHEAF_I32 },
    { "ShortStorage", SHEAF_I16 },
    { "CharStorage", SHEAF_I8 },
    { "ByteStorage", SHEAF_U8 },
    { "BoolStorage", SHEAF_BOOL },
    { "ComplexFloatStorage", SHEAF_C64 },
    { "UntypedStorage", SHEAF_U8 },
    { "ComplexDoubleStorage", SHEAF_U8, 16 },
    { "QInt8Storage", SHEAF_U8, 1 },
    { "QUInt8Storage", SHEAF_U8, 1 },
    { "QInt32Storage", SHEAF_U8, 4 },
    { "QUInt4x2Storage", SHEAF_U8, 1 },
    { "QUInt2x4Storage", SHEAF_U8, 1 },
};

const char *sheaf__pickle_class_of(sheaf_dtype dtype)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].dtype == dtype)
            return classes[i].name; /* U8: ByteStorage comes before the untyped one */
    return NULL;
}

/* The element type of a storage, by its class. */
static bool read_class(sheaf_pickle_storage *storage, const sheaf_pickle *class)
{
    if (!sheaf__pickle_is(class, SHEAF_PICKLE_GLOBAL) ||
        !sheaf__is_listed("torch torch.storage torch.cuda", class->as.global.module,
                          strlen(class->as.global.module)))
        return false;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(class->as.global.name, classes[i].name) == 0) {
            storage->dtype = classes[i].dtype;
            storage->unnamed = classes[i].unnamed != 0;
            storage->element =
                storage->unnamed ? classes[i].unnamed : (int)sheaf_dtype_bytes(classes[i].dtype);
            return true;
        }
    return false;
}

static sheaf_status *bad_id(const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "a storage"), "%s", expected);
}

/* A view of a storage: (key, offset, count), in elements. */
static sheaf_status *read_view(sheaf_pickle_storage *storage, const sheaf_pickle *view)
{
    const int64_t each = storage->element;
    int64_t offset, count, end;
    if (view == NULL || view->kind == SHEAF_PICKLE_NONE)
        return NULL;
    if (!sheaf__pickle_int(&offset, sheaf__pickle_item(view, 1)) ||
        !sheaf__pickle_int(&count, sheaf__pickle_item(view, 2)) || offset < 0 || count < 0 ||
        __builtin_add_overflow(offset, count, &end) || end > storage->bytes / each)
        return bad_id("a view inside the storage");
    storage->within = offset * each;
    storage->bytes = count * each;
    return NULL;
}

sheaf_status *sheaf__pickle_persistent(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *id)
{
    sheaf_pickle_storage storage = { 0 };
    const char *what = sheaf__pickle_text(sheaf__pickle_item(id, 0));
    int64_t count = 0;
    *out = NULL;
    if (what != NULL && strcmp(what, "module") == 0 &&
        sheaf__pickle_is(sheaf__pickle_item(id, 1), SHEAF_PICKLE_GLOBAL)) {
        *out = id->as.items.at[1]; /* old files keep the source text beside a class */
        return NULL;
    }
    if (what == NULL || strcmp(what, "storage") != 0 ||
        !read_class(&storage, sheaf__pickle_item(id, 1))) {
        *out = sheaf__pickle_node(doc, SHEAF_PICKLE_PERSISTENT);
        if (*out != NULL && !sheaf__pickle_push(doc, *out, id, NULL))
            *out = NULL;
        return NULL;
    }
    storage.key = sheaf__pickle_text(sheaf__pickle_item(id, 2));
    storage.location = sheaf__pickle_text(sheaf__pickle_item(id, 3));
    if (storage.key == NULL || storage.location == NULL ||
        !sheaf__pickle_int(&count, sheaf__pickle_item(id, 4)) || count < 0)
        return bad_id("a key, a location and a count of elements");
    if (__builtin_mul_overflow(count, (int64_t)storage.element, &storage.bytes))
        return bad_id("less than 2^63 bytes");
    storage.whole = storage.bytes;
    sheaf_status *st = read_view(&storage, sheaf__pickle_item(id, 5));
    int64_t index = 0;
    if (st != NULL || !sheaf__pickle_add_storage(&index, doc, &storage))
        return st;
    *out = sheaf__pickle_node(doc, SHEAF_PICKLE_STORAGE);
    if (*out != NULL)
        (*out)->as.number = index;
    return NULL;
}

/* Every element lies in the `count` elements of the storage. */
static sheaf_status *check_inside(sheaf_pickle_tensor *t, int64_t count)
{
    int64_t last = t->offset, elements = 1, step;
    bool empty = false, over = false;
    for (int d = 0; d < t->ndim; d++)
        empty |= t->shape[d] == 0;
    for (int d = 0; d < t->ndim && !empty; d++)
        over |= __builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &step) ||
                __builtin_add_overflow(last, step, &last);
    for (int d = 0; d < t->ndim; d++) /* of an empty one: of its other axes */
        over |= __builtin_mul_overflow(elements, t->shape[d] > 0 ? t->shape[d] : 1, &elements) ||
                elements > INT64_MAX / 16;
    if (empty && !over) {
        t->offset = 0; /* there is nothing at it */
        return NULL;
    }
    if (!over && last < count)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "a tensor"),
                                      "inside the %" PRId64 " elements of its storage", count);
    return over ? sheaf_found(st, "sizes and strides beyond 2^63")
                : sheaf_found(st, "element %" PRId64, last);
}

sheaf_status *sheaf__pickle_rebuild(sheaf_pickle **out, sheaf_pickle_doc *doc,
                                    sheaf_pickle *callable, const sheaf_pickle *args)
{
    const bool v3 = callable->mark == SHEAF_ROLE_TENSOR_V3;
    const sheaf_pickle *from = sheaf__pickle_item(args, 0), *sizes = sheaf__pickle_item(args, 2),
                       *strides = sheaf__pickle_item(args, 3),
                       *dtype = v3 ? sheaf__pickle_item(args, 6) : NULL;
    sheaf_pickle_tensor t = { 0 };
    int nstrides = 0;
    const sheaf_pickle *metadata = sheaf__pickle_item(args, v3 ? 7 : 6);
    const bool changed = metadata != NULL && metadata->kind != SHEAF_PICKLE_NONE &&
                         sheaf__pickle_count(metadata) > 0;
    if (!sheaf__pickle_is(from, SHEAF_PICKLE_STORAGE) ||
        (v3 && !sheaf__pickle_is(dtype, SHEAF_PICKLE_DTYPE)) || changed) {
        if (from == NULL) /* elements of a type that sheaf has no name for */
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "a tensor"), "a storage first");
        return sheaf__pickle_new_object(out, doc, callable, (sheaf_pickle *)args);
    }
    const sheaf_pickle_storage *storage = &doc->storage[from->as.number];
    t.storage = from->as.number;
    t.dtype = v3 ? dtype->as.dtype : storage->dtype;
    if (sheaf_dtype_bytes(t.dtype) == 0 || (storage->unnamed && !v3))
        return sheaf__pickle_new_object(out, doc, callable, (sheaf_pickle *)args);
    if (sheaf__pickle_count(sizes) > SHEAF_PICKLE_MAX_DIMS)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "a tensor"),
                                          "at most %d axes", SHEAF_PICKLE_MAX_DIMS),
                           "%" PRId64, sheaf__pickle_count(sizes));
    if (!sheaf__pickle_int(&t.offset, sheaf__pickle_item(args, 1)) || t.offset < 0 ||
        !sheaf__pickle_shape(&t.ndim, t.shape, sizes) ||
        !sheaf__pickle_shape(&nstrides, t.stride, strides) || nstrides != t.ndim)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "a tensor"),
                              "an offset, and as many sizes as strides, none of them negative");
    sheaf_status *st = check_inside(&t, storage->bytes / (int64_t)sheaf_dtype_bytes(t.dtype));
    int64_t index = 0;
    if (st != NULL || !sheaf__pickle_add_tensor(&index, doc, &t))
        return st;
    *out = sheaf__pickle_node(doc, SHEAF_PICKLE_TENSOR);
    if (*out != NULL)
        (*out)->as.number = index;
    return NULL;
}
