/* pickle_call.c - what stands in a pickle where Python would call something; see pickle_inner.h. */

#include "pickle_inner.h"
#include "base/base.h"

static sheaf_status *bad(const sheaf_pickle *callable, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "arguments of %s", callable->as.global.name),
                          "%s", expected);
}

/* A list, tuple, set or dict of what the first argument holds; they share its array, in which
 * neither writes: capacity = count makes an addition copy it. */
static sheaf_status *contain(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle_kind kind,
                             const sheaf_pickle *callable, const sheaf_pickle *from)
{
    sheaf_pickle *value = sheaf__pickle_node(doc, kind);
    *out = value;
    if (value == NULL || from == NULL)
        return NULL;
    const bool row = from->kind == SHEAF_PICKLE_LIST || from->kind == SHEAF_PICKLE_TUPLE ||
                     from->kind == SHEAF_PICKLE_SET;
    if (kind == SHEAF_PICKLE_DICT ? from->kind == SHEAF_PICKLE_DICT : row) {
        value->as.items = from->as.items;
        value->as.items.capacity = value->as.items.count;
        return NULL;
    }
    if (kind != SHEAF_PICKLE_DICT || !row)
        return bad(callable, "a list, tuple, set or dict");
    for (int64_t i = 0; i < from->as.items.count;
         i++) { /* Python 2: OrderedDict([[key, value], ...]) */
        const sheaf_pickle *pair = from->as.items.at[i];
        if ((pair->kind != SHEAF_PICKLE_LIST && pair->kind != SHEAF_PICKLE_TUPLE) ||
            pair->as.items.count != 2)
            return bad(callable, "pairs");
        if (!sheaf__pickle_push(doc, value, pair->as.items.at[0], pair->as.items.at[1]))
            break;
    }
    return NULL;
}

/* Characters below 256 of a text, as bytes. */
static sheaf_status *latin1(sheaf_pickle *value, const sheaf_pickle *callable,
                            const sheaf_pickle_text *text, char *to)
{
    const unsigned char *p = (const unsigned char *)text->at, *end = p + text->size;
    size_t n = 0;
    for (; p < end; p++) {
        if (*p >= 0x80 && (*p > 0xc3 || end - p < 2))
            return bad(callable, "characters below 256");
        to[n++] = (char)(*p < 0x80 ? *p : (*p & 3) << 6 | (p[1] & 0x3f));
        p += *p >= 0x80;
    }
    to[n] = '\0';
    value->as.text = (sheaf_pickle_text){ to, n };
    return NULL;
}

/* codecs.encode(text, "latin1"), bytes(), bytearray(b"..."), bytearray("...", "latin-1"). */
static sheaf_status *make_bytes(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *callable,
                                sheaf_pickle *args)
{
    const sheaf_pickle *from = sheaf__pickle_item(args, 0);
    const char *encoding = sheaf__pickle_text(sheaf__pickle_item(args, 1));
    *out = sheaf__pickle_node(doc, SHEAF_PICKLE_BYTES);
    if (*out == NULL)
        return NULL;
    (*out)->as.text.at = "";
    if (from == NULL)
        return NULL;
    if (from->kind == SHEAF_PICKLE_BYTES) {
        (*out)->as.text = from->as.text;
        return NULL;
    }
    if (from->kind != SHEAF_PICKLE_STRING || encoding == NULL ||
        (strcmp(encoding, "latin1") != 0 && strcmp(encoding, "latin-1") != 0))
        return bad(callable, "a text and \"latin1\"");
    char *to = sheaf__pickle_alloc(doc, from->as.text.size + 1);
    return to == NULL ? NULL : latin1(*out, callable, &from->as.text, to);
}

/* getattr(Class, "MEMBER"), as enums were pickled for a while; anything beyond that reaches for
 * functions. */
static sheaf_status *get_member(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *callable,
                                sheaf_pickle *args)
{
    sheaf_pickle *class = args->as.items.count == 2 ? args->as.items.at[0] : NULL;
    const char *name = class == NULL ? NULL : sheaf__pickle_text(args->as.items.at[1]);
    if (name == NULL || *name == '_' || class->kind != SHEAF_PICKLE_GLOBAL ||
        class->mark != SHEAF_ROLE_CLASS)
        return sheaf__pickle_unsafe(callable->as.global.module, callable->as.global.name);
    return sheaf__pickle_new_object(out, doc, class, args);
}

static sheaf_status *make_registered(sheaf_pickle **out, sheaf_pickle_doc *doc,
                                     sheaf_pickle *callable, sheaf_pickle *args)
{
    sheaf_pickle *class = args->as.items.count > 0 ? args->as.items.at[0] : NULL;
    if (class == NULL || class->kind != SHEAF_PICKLE_GLOBAL)
        return bad(callable, "a class first");
    return sheaf__pickle_new_object(out, doc, class, args);
}

/* _rebuild_from_type_v2(function, type, arguments, state): the tensor without what a subclass
 * adds; what is no tensor here (DTensor) keeps its state. */
static sheaf_status *from_type(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *callable,
                               sheaf_pickle *args)
{
    sheaf_pickle **arg = args->as.items.at;
    if (args->as.items.count < 3 || arg[0]->kind != SHEAF_PICKLE_GLOBAL ||
        arg[2]->kind != SHEAF_PICKLE_TUPLE)
        return bad(callable, "a function, a type, arguments, and state");
    if (arg[0]->mark == SHEAF_ROLE_FROM_TYPE) /* of itself: nothing writes that */
        return bad(callable, "a function that makes a tensor");
    sheaf_status *st = sheaf__pickle_call(out, doc, arg[0], arg[2]);
    if (st == NULL && *out != NULL && (*out)->kind == SHEAF_PICKLE_OBJECT &&
        args->as.items.count > 3 && (*out)->as.object->state == NULL)
        (*out)->as.object->state = arg[3];
    return st;
}

sheaf_status *sheaf__pickle_call(sheaf_pickle **out, sheaf_pickle_doc *doc, sheaf_pickle *callable,
                                 sheaf_pickle *args)
{
    *out = NULL;
    if (callable->kind !=
        SHEAF_PICKLE_GLOBAL) /* a dtype or a value: whatever it is, only a call reaches it */
        return sheaf__pickle_unsafe("a value", "that is no class");
    if (args->kind != SHEAF_PICKLE_TUPLE)
        return bad(callable, "a tuple");
    sheaf_pickle **arg = args->as.items.at;
    const int64_t n = args->as.items.count;
    switch ((sheaf_pickle_role)callable->mark) {
    case SHEAF_ROLE_CLASS: return sheaf__pickle_new_object(out, doc, callable, args);
    case SHEAF_ROLE_FUNCTION:
        return sheaf__pickle_unsafe(callable->as.global.module, callable->as.global.name);
    case SHEAF_ROLE_GETATTR: return get_member(out, doc, callable, args);
    case SHEAF_ROLE_DICT:
        return contain(out, doc, SHEAF_PICKLE_DICT, callable, n > 0 ? arg[0] : NULL);
    case SHEAF_ROLE_DEFAULTDICT:
        return contain(out, doc, SHEAF_PICKLE_DICT, callable, n > 1 ? arg[1] : NULL);
    case SHEAF_ROLE_SET:
        return contain(out, doc, SHEAF_PICKLE_SET, callable, n > 0 ? arg[0] : NULL);
    case SHEAF_ROLE_LIST:
        return contain(out, doc, SHEAF_PICKLE_LIST, callable, n > 0 ? arg[0] : NULL);
    case SHEAF_ROLE_TUPLE:
    case SHEAF_ROLE_SIZE:
        return contain(out, doc, SHEAF_PICKLE_TUPLE, callable, n > 0 ? arg[0] : NULL);
    case SHEAF_ROLE_BYTES:
    case SHEAF_ROLE_ENCODE: return make_bytes(out, doc, callable, args);
    case SHEAF_ROLE_MAKE: return make_registered(out, doc, callable, args);
    case SHEAF_ROLE_TENSOR:
    case SHEAF_ROLE_TENSOR_V3: return sheaf__pickle_rebuild(out, doc, callable, args);
    case SHEAF_ROLE_PARAMETER:
        if (n < 1)
            return bad(callable, "a tensor first");
        *out = arg[0];
        return NULL;
    case SHEAF_ROLE_FROM_TYPE: return from_type(out, doc, callable, args);
    }
    return sheaf__pickle_unsafe(callable->as.global.module, callable->as.global.name);
}
