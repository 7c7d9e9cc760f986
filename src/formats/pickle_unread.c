/* pickle_unread.c - values that are tensors to their program and none here; see pickle.h.
 *
 * A tensor that torch rebuilds in a way that is not read (quantized, sparse, ...) is an opaque
 * object of the function that rebuilds it, one of numpy's likewise. Others are read, but where no
 * name leads to them: in a list, in an object, under a key that is no text. */

#include "pickle_inner.h"
#include "base/base.h"

static const struct {
    const char *name, *is;
} rebuilds[] = {
    { "_rebuild_qtensor", "a quantized tensor" },
    { "_rebuild_sparse_tensor", "a sparse tensor" },
    { "_rebuild_sparse_csr_tensor", "a sparse tensor" },
    { "_rebuild_nested_tensor", "a nested tensor" },
    { "_rebuild_meta_tensor_no_storage", "a meta tensor, which has no values" },
};

/* A tensor whose dtype or whose metadata is not read. */
static const char *plain_of(const sheaf_pickle_object *o, char buffer[SHEAF_PICKLE_UNREAD_MOST])
{
    const bool v3 = strcmp(o->class->as.global.name, "_rebuild_tensor_v3") == 0;
    const sheaf_pickle *metadata = sheaf__pickle_item(o->args, v3 ? 7 : 6),
                       *dtype = v3 ? sheaf__pickle_item(o->args, 6) : NULL;
    for (int64_t i = 0; i < sheaf__pickle_count(metadata); i++) {
        const char *key = sheaf__pickle_text(sheaf__pickle_key(metadata, i));
        if (key != NULL && strcmp(key, "conj") == 0)
            return "a conjugated tensor";
        if (key != NULL && strcmp(key, "neg") == 0)
            return "a negated tensor";
    }
    if (sheaf__pickle_is(dtype, SHEAF_PICKLE_GLOBAL))
        snprintf(buffer, SHEAF_PICKLE_UNREAD_MOST, "a tensor of %.60s", dtype->as.global.name);
    else if (sheaf__pickle_is(dtype, SHEAF_PICKLE_DTYPE))
        snprintf(buffer, SHEAF_PICKLE_UNREAD_MOST, "a tensor of %s",
                 sheaf_dtype_name(dtype->as.dtype));
    else
        return "a tensor of a dtype such as complex128";
    return buffer;
}

static const char *object_of(const sheaf_pickle *value, char buffer[SHEAF_PICKLE_UNREAD_MOST])
{
    const sheaf_pickle_global *class = &value->as.object->class->as.global;
    if (strncmp(class->module, "torch.", 6) == 0 && strncmp(class->name, "_rebuild", 8) == 0) {
        for (size_t i = 0; i < sizeof rebuilds / sizeof *rebuilds; i++)
            if (strcmp(class->name, rebuilds[i].name) == 0)
                return rebuilds[i].is;
        if (strncmp(class->name, "_rebuild_tensor", 15) == 0)
            return plain_of(value->as.object, buffer);
        snprintf(buffer, SHEAF_PICKLE_UNREAD_MOST, "a tensor by %.60s", class->name);
        return buffer;
    }
    const char *rest = strncmp(class->module, "numpy.", 6) == 0 ? class->name : "";
    return strcmp(rest, "_reconstruct") == 0 || strcmp(rest, "_frombuffer") == 0 ? "a numpy array"
           : strcmp(rest, "scalar") == 0 ? "a number of numpy's"
                                         : NULL;
}

static const char *search(const sheaf_pickle *value, bool inside, int64_t *steps,
                          char buffer[SHEAF_PICKLE_UNREAD_MOST])
{
    const char *is = NULL;
    if (value == NULL)
        return NULL;
    if (--*steps < 0)
        return "more values than can be looked at";
    if (value->kind == SHEAF_PICKLE_TENSOR)
        return inside ? "a tensor that has no name of its own" : NULL;
    if (value->kind == SHEAF_PICKLE_STORAGE)
        return "a storage without a tensor";
    if (value->kind == SHEAF_PICKLE_OBJECT) {
        const sheaf_pickle_object *o = value->as.object;
        const sheaf_pickle *const parts[] = { o->args, o->state, o->list, o->dict };
        is = object_of(value, buffer);
        for (int i = 0; i < 4 && is == NULL; i++)
            is = search(parts[i], true, steps, buffer);
        return is;
    }
    const int64_t n = sheaf__pickle_count(value);
    for (int64_t i = 0; i < n && is == NULL; i++)
        is = value->kind == SHEAF_PICKLE_DICT
                 ? search(sheaf__pickle_value(value, i), true, steps, buffer)
                 : search(sheaf__pickle_item(value, i), true, steps, buffer);
    return is;
}

const char *sheaf__pickle_unread(const sheaf_pickle *value, char buffer[SHEAF_PICKLE_UNREAD_MOST],
                                 int64_t *steps)
{
    return search(value, false, steps, buffer);
}
