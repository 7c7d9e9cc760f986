/* pickle.c - what each opcode does to the stack machine (pickle_machine.h); see pickle.h.
 *
 * One pass over the bytes, no recursion. Each opcode checks that its bytes are there, and
 * that the stack holds what it takes since the last mark. */
#include "pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_machine.h"
#include "zip.h"
#include "base/status.h"

enum { HIGHEST_PROTOCOL = 5, BIG_MOST = 1 << 16, SMALLEST_LIMIT = 64 << 10, LIMIT_PER_BYTE = 96 };

/* ---- values ---- */

static sheaf_status *push_int(sheaf__machine *r, int64_t number)
{
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_INT);
    if (value != NULL)
        value->as.number = number;
    sheaf__machine_push(r, value);
    return NULL;
}

/* `bytes` of a number on the wire, as an unsigned or (all four) signed value. */
static sheaf_status *read_int(sheaf__machine *r, int bytes)
{
    uint64_t n = 0;
    sheaf_status *st = sheaf__machine_number(&n, r, bytes);
    return st != NULL ? st : push_int(r, bytes == 4 ? (int32_t)(uint32_t)n : (int64_t)n);
}

static sheaf_status *read_long(sheaf__machine *r, int width)
{
    const unsigned char *p = NULL;
    uint64_t n = 0, number = 0;
    sheaf_status *st = sheaf__machine_counted(&p, &n, r, width);
    if (st != NULL)
        return st;
    if (n > BIG_MOST)
        return sheaf_found(sheaf__machine_bad(r, "an integer of at most 65536 bytes"), "%" PRIu64,
                           n);
    if (n > 8) {
        sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_BIG);
        if (value != NULL)
            sheaf__pickle_copy(&value->as.text, r->doc, p, (size_t)n);
        sheaf__machine_push(r, value);
        return NULL;
    }
    for (uint64_t i = n; i-- > 0;)
        number = number << 8 | p[i];
    if (n > 0 && n < 8 && p[n - 1] >= 0x80)
        number |= ~(uint64_t)0 << (8 * n);
    return push_int(r, (int64_t)number);
}

static sheaf_status *read_float(sheaf__machine *r)
{
    const unsigned char *p = sheaf__machine_take(r, 8);
    uint64_t bits = 0;
    if (p == NULL)
        return sheaf__machine_bad(r, "more bytes; the pickle is cut short");
    for (int i = 0; i < 8; i++) /* big endian, the only such number */
        bits = bits << 8 | p[i];
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_FLOAT);
    if (value != NULL)
        memcpy(&value->as.real, &bits, sizeof bits);
    sheaf__machine_push(r, value);
    return NULL;
}

/* Python 2's own strings are texts where they can be, else bytes. */
static sheaf_status *read_text(sheaf__machine *r, int width, sheaf_pickle_kind kind, bool either)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    sheaf_status *st = sheaf__machine_counted(&p, &n, r, width);
    if (st != NULL)
        return st;
    if (kind == SHEAF_PICKLE_STRING && !sheaf__pickle_is_utf8(p, (size_t)n)) {
        if (!either)
            return sheaf__machine_bad(r, "UTF-8 in a text");
        kind = SHEAF_PICKLE_BYTES;
    }
    sheaf_pickle *value = sheaf__pickle_node(r->doc, kind);
    if (value != NULL)
        sheaf__pickle_copy(&value->as.text, r->doc, p, (size_t)n);
    sheaf__machine_push(r, value);
    return NULL;
}

static sheaf_status *push_kind(sheaf__machine *r, sheaf_pickle_kind kind, bool truth)
{
    sheaf_pickle *value = sheaf__pickle_node(r->doc, kind);
    if (value != NULL && kind == SHEAF_PICKLE_BOOL)
        value->as.number = truth;
    sheaf__machine_push(r, value);
    return NULL;
}

/* ---- names ---- */

static sheaf_status *push_name(sheaf__machine *r, sheaf_pickle_text module, sheaf_pickle_text name)
{
    sheaf_pickle_role role = SHEAF_ROLE_FUNCTION;
    sheaf_pickle_text m, n;
    if (!sheaf__pickle_is_utf8(module.at, module.size) ||
        !sheaf__pickle_is_utf8(name.at, name.size) ||
        memchr(module.at, '\0', module.size) != NULL || memchr(name.at, '\0', name.size) != NULL ||
        module.size == 0 || name.size == 0)
        return sheaf__machine_bad(r, "a module and a name");
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_GLOBAL);
    if (value == NULL || !sheaf__pickle_copy(&m, r->doc, module.at, module.size) ||
        !sheaf__pickle_copy(&n, r->doc, name.at, name.size)) {
        sheaf__machine_push(r, NULL);
        return NULL;
    }
    if (!sheaf__pickle_name(&role, m.at, n.at))
        return sheaf_in(sheaf__pickle_unsafe(m.at, n.at), "pickle, byte %zu", r->op);
    const int dtype = strcmp(m.at, "torch") == 0 ? sheaf_dtype_from_torch_name(n.at) : -1;
    if (dtype >= 0) {
        value->kind = SHEAF_PICKLE_DTYPE;
        value->as.dtype = (sheaf_dtype)dtype;
    } else {
        value->mark = (int)role;
        value->as.global = (sheaf_pickle_global){ m.at, n.at };
    }
    sheaf__machine_push(r, value);
    return NULL;
}

static sheaf_status *read_name(sheaf__machine *r)
{
    sheaf_pickle_text module, name;
    sheaf_status *st = sheaf__machine_line(&module, r);
    TRY(st, sheaf__machine_line(&name, r));
    return st != NULL ? st : push_name(r, module, name);
}

static sheaf_status *stack_name(sheaf__machine *r)
{
    sheaf_status *st = sheaf__machine_need(r, 2);
    if (st != NULL)
        return st;
    const sheaf_pickle *name = sheaf__machine_pop(r), *module = sheaf__machine_pop(r);
    if (name->kind != SHEAF_PICKLE_STRING || module->kind != SHEAF_PICKLE_STRING)
        return sheaf__machine_bad(r, "a module and a name");
    return push_name(r, module->as.text, name->as.text);
}

/* ---- containers ---- */

static sheaf_status *make_tuple(sheaf__machine *r, int64_t n)
{
    sheaf_pickle **from = NULL;
    sheaf_status *st = n < 0 ? sheaf__machine_pop_mark(&from, &n, r) : sheaf__machine_need(r, n);
    if (st != NULL)
        return st;
    if (from == NULL) {
        r->stack.count -= n;
        from = r->stack.at + r->stack.count;
    }
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_TUPLE);
    if (value != NULL && n > 0) {
        sheaf_pickle **at = sheaf__pickle_alloc(r->doc, (size_t)n * sizeof *at);
        if (at != NULL) {
            memcpy(at, from, (size_t)n * sizeof *at);
            value->as.items = (sheaf_pickle_items){ at, n, n };
        }
    }
    sheaf__machine_push(r, value);
    return NULL;
}

/* What an addition goes to: the container itself, or that of an object whose class is a kind of
 * one. */
static sheaf_pickle *holder(sheaf__machine *r, sheaf_pickle *to, sheaf_pickle_kind kind)
{
    if (to->kind != SHEAF_PICKLE_OBJECT || kind == SHEAF_PICKLE_SET)
        return to->kind == kind ? to : NULL;
    sheaf_pickle **field = kind == SHEAF_PICKLE_LIST ? &to->as.object->list : &to->as.object->dict;
    if (*field == NULL)
        *field = sheaf__pickle_node(r->doc, kind);
    return *field;
}

/* Adds the values from `from` (n of them) to what lies on top. */
static sheaf_status *add(sheaf__machine *r, sheaf_pickle_kind kind, sheaf_pickle **from, int64_t n)
{
    sheaf_status *st = sheaf__machine_need(r, 1);
    if (st != NULL)
        return st;
    sheaf_pickle *to = holder(r, sheaf__machine_top(r), kind);
    if (to == NULL)
        return r->doc->arena->failed ? NULL
                                     : sheaf__machine_bad(r, "a container of this kind to add to");
    const int each = kind == SHEAF_PICKLE_DICT ? 2 : 1;
    if (n % each != 0)
        return sheaf__machine_bad(r, "keys with values");
    for (int64_t i = 0; i < n; i += each)
        if (!sheaf__pickle_push(r->doc, to, from[i], each == 2 ? from[i + 1] : NULL))
            break;
    return NULL;
}

static sheaf_status *add_marked(sheaf__machine *r, sheaf_pickle_kind kind)
{
    sheaf_pickle **from = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__machine_pop_mark(&from, &n, r);
    return st != NULL ? st : add(r, kind, from, n);
}

static sheaf_status *add_one(sheaf__machine *r, sheaf_pickle_kind kind)
{
    const int64_t n = kind == SHEAF_PICKLE_DICT ? 2 : 1;
    sheaf_status *st = sheaf__machine_need(r, n + 1);
    if (st != NULL)
        return st;
    r->stack.count -= n;
    return add(r, kind, r->stack.at + r->stack.count, n);
}

static sheaf_status *frozen_set(sheaf__machine *r)
{
    sheaf_status *st = make_tuple(r, -1);
    if (st == NULL && r->stack.count > 0 && sheaf__machine_top(r) != NULL)
        sheaf__machine_top(r)->kind = SHEAF_PICKLE_SET;
    return st;
}

/* ---- objects ---- */

/* The key that waits on the stack for the value being made, to say which tensor is bad. */
static sheaf_status *about(sheaf__machine *r, sheaf_status *st)
{
    char buffer[128];
    const char *key = r->stack.count > 0 ? sheaf__pickle_text(sheaf__machine_top(r)) : NULL;
    if (st != NULL && key != NULL)
        st = sheaf_in(st, "'%s'", sheaf__printable(buffer, key));
    return sheaf_in(st, "pickle, byte %zu", r->op);
}

static sheaf_status *reduce(sheaf__machine *r)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = sheaf__machine_need(r, 2);
    if (st != NULL)
        return st;
    sheaf_pickle *args = sheaf__machine_pop(r), *callable = sheaf__machine_pop(r);
    st = sheaf__pickle_call(&out, r->doc, callable, args);
    if (st != NULL)
        return about(r, st);
    sheaf__machine_push(r, out);
    return NULL;
}

/* NEWOBJ, and NEWOBJ_EX with its keyword arguments, which only matter to the class. */
static sheaf_status *new_object(sheaf__machine *r, bool keywords)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = sheaf__machine_need(r, keywords ? 3 : 2);
    if (st != NULL)
        return st;
    sheaf_pickle *words = keywords ? sheaf__machine_pop(r) : NULL, *args = sheaf__machine_pop(r),
                 *class = sheaf__machine_pop(r);
    if (class->kind != SHEAF_PICKLE_GLOBAL || args->kind != SHEAF_PICKLE_TUPLE)
        return sheaf__machine_bad(r, "a class and a tuple of arguments");
    const bool plain = class->mark == SHEAF_ROLE_CLASS || class->mark == SHEAF_ROLE_FUNCTION;
    st = plain ? sheaf__pickle_new_object(&out, r->doc, class, args)
               : sheaf__pickle_call(&out, r->doc, class, args);
    if (st == NULL && words != NULL && out != NULL && out->kind == SHEAF_PICKLE_OBJECT)
        out->as.object->dict =
            words->kind == SHEAF_PICKLE_DICT && words->as.items.count > 0 ? words : NULL;
    if (st != NULL)
        return about(r, st);
    sheaf__machine_push(r, out);
    return NULL;
}

/* Attributes of dicts (a module's _metadata) and tensors are of no use here. */
static sheaf_status *build(sheaf__machine *r)
{
    sheaf_status *st = sheaf__machine_need(r, 2);
    if (st != NULL)
        return st;
    sheaf_pickle *state = sheaf__machine_pop(r), *to = sheaf__machine_top(r);
    if (to->kind == SHEAF_PICKLE_OBJECT)
        to->as.object->state = state;
    else if (to->kind != SHEAF_PICKLE_DICT && to->kind != SHEAF_PICKLE_TENSOR &&
             to->kind != SHEAF_PICKLE_SET && to->kind != SHEAF_PICKLE_LIST &&
             to->kind != SHEAF_PICKLE_TUPLE)
        return sheaf__machine_bad(r, "an object to fill");
    return NULL;
}

static sheaf_status *persistent(sheaf__machine *r)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = sheaf__machine_need(r, 1);
    TRY(st, sheaf_in(sheaf__pickle_persistent(&out, r->doc, sheaf__machine_pop(r)),
                     "pickle, byte %zu", r->op));
    if (st == NULL)
        sheaf__machine_push(r, out);
    return st;
}

/* ---- opcodes ---- */

static sheaf_status *read_protocol(sheaf__machine *r)
{
    uint64_t protocol = 0;
    sheaf_status *st = sheaf__machine_number(&protocol, r, 1);
    if (st == NULL && (protocol < 2 || protocol > HIGHEST_PROTOCOL))
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pickle protocol"), "2 to 5"), "%d",
            (int)protocol);
    return st;
}

static sheaf_status *stop(sheaf__machine *r)
{
    if (r->stack.count != 1 || r->marks != 0)
        return sheaf__machine_bad(r, "one value at the end");
    r->stopped = true;
    return NULL;
}

/* Opcodes with a number behind them that says where in the memo. */
static sheaf_status *memo_op(sheaf__machine *r, int bytes, bool put)
{
    uint64_t index = 0;
    sheaf_status *st = sheaf__machine_number(&index, r, bytes);
    return st != NULL ? st : put ? sheaf__machine_put(r, index) : sheaf__machine_get(r, index);
}

static sheaf_status *pop_one(sheaf__machine *r)
{
    sheaf_status *st = NULL;
    if (sheaf__machine_above(r) > 0)
        r->stack.count--;
    else if (r->marks > 0) /* so do Python's */
        r->marks--;
    else
        st = sheaf__machine_bad(r, "a value on the stack");
    return st;
}

static sheaf_status *pop_marked(sheaf__machine *r)
{
    sheaf_pickle **from;
    int64_t n;
    return sheaf__machine_pop_mark(&from, &n, r);
}

static sheaf_status *unknown(const sheaf__machine *r, unsigned char op)
{
    static const struct {
        unsigned char op;
        const char *what;
    } known[] = {
        { 'i', "INST" },   { 'o', "OBJ" },          { 'P', "PERSID" },
        { 'I', "INT" },    { 'L', "LONG" },         { 'F', "FLOAT" },
        { 'S', "STRING" }, { 'V', "UNICODE" },      { 'p', "PUT" },
        { 'g', "GET" },    { 'd', "DICT" },         { 'l', "LIST" },
        { '2', "DUP" },    { 0x82, "EXT1" },        { 0x83, "EXT2" },
        { 0x84, "EXT4" },  { 0x97, "NEXT_BUFFER" }, { 0x98, "READONLY_BUFFER" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].op == op) {
            sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "pickle, byte %zu", r->op);
            return sheaf_found(sheaf_expected(st, "the opcodes that protocols 2 to 5 write"), "%s",
                               known[i].what);
        }
    return sheaf_found(sheaf__machine_bad(r, "an opcode"), "byte 0x%02x", op);
}

static sheaf_status *scalar(sheaf__machine *r, unsigned char op)
{
    switch (op) {
    case 'N': return push_kind(r, SHEAF_PICKLE_NONE, false);
    case 0x88: return push_kind(r, SHEAF_PICKLE_BOOL, true);
    case 0x89: return push_kind(r, SHEAF_PICKLE_BOOL, false);
    case 'J': return read_int(r, 4);
    case 'K': return read_int(r, 1);
    case 'M': return read_int(r, 2);
    case 0x8a: return read_long(r, 1);
    case 0x8b: return read_long(r, 4);
    case 'G': return read_float(r);
    case 'X': return read_text(r, 4, SHEAF_PICKLE_STRING, false);
    case 0x8c: return read_text(r, 1, SHEAF_PICKLE_STRING, false);
    case 0x8d: return read_text(r, 8, SHEAF_PICKLE_STRING, false);
    case 'T': return read_text(r, 4, SHEAF_PICKLE_STRING, true);
    case 'U': return read_text(r, 1, SHEAF_PICKLE_STRING, true);
    case 'B': return read_text(r, 4, SHEAF_PICKLE_BYTES, false);
    case 'C': return read_text(r, 1, SHEAF_PICKLE_BYTES, false);
    case 0x8e:
    case 0x96: return read_text(r, 8, SHEAF_PICKLE_BYTES, false);
    default: return unknown(r, op);
    }
}

static sheaf_status *step(sheaf__machine *r, unsigned char op)
{
    uint64_t frame = 0;
    switch (op) {
    case 0x80: return read_protocol(r);
    case 0x95: return sheaf__machine_number(&frame, r, 8); /* only tells how far to read ahead */
    case '.': return stop(r);
    case '(': return sheaf__machine_mark(r);
    case '0': return pop_one(r);
    case '1': return pop_marked(r);
    case '}': return push_kind(r, SHEAF_PICKLE_DICT, false);
    case ']': return push_kind(r, SHEAF_PICKLE_LIST, false);
    case 0x8f: return push_kind(r, SHEAF_PICKLE_SET, false);
    case ')': return make_tuple(r, 0);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(r, op - 0x84);
    case 't': return make_tuple(r, -1);
    case 's': return add_one(r, SHEAF_PICKLE_DICT);
    case 'u': return add_marked(r, SHEAF_PICKLE_DICT);
    case 'a': return add_one(r, SHEAF_PICKLE_LIST);
    case 'e': return add_marked(r, SHEAF_PICKLE_LIST);
    case 0x90: return add_marked(r, SHEAF_PICKLE_SET);
    case 0x91: return frozen_set(r);
    case 'c': return read_name(r);
    case 0x93: return stack_name(r);
    case 'R': return reduce(r);
    case 0x81: return new_object(r, false);
    case 0x92: return new_object(r, true);
    case 'b': return build(r);
    case 'Q': return persistent(r);
    case 'q': return memo_op(r, 1, true);
    case 'r': return memo_op(r, 4, true);
    case 'h': return memo_op(r, 1, false);
    case 'j': return memo_op(r, 4, false);
    case 0x94: return sheaf__machine_put(r, (uint64_t)r->memoized);
    default: return scalar(r, op);
    }
}

static sheaf_status *run(sheaf__machine *r)
{
    if (r->size < 2 || r->bytes[0] != 0x80)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pickle"),
                              "a pickle of protocol 2 to 5");
    sheaf__machine_push(r, NULL); /* so that there is a stack to point into */
    r->stack.count = 0;
    while (!r->stopped && !r->out_of_memory) {
        r->op = r->pos;
        const unsigned char *op = sheaf__machine_take(r, 1);
        sheaf_status *st =
            op == NULL ? sheaf__machine_bad(r, "an end; the pickle is cut short") : step(r, *op);
        if (st != NULL)
            return st;
        if (r->doc->arena->failed)
            return sheaf__pickle_out_of_memory(r->doc);
    }
    return r->out_of_memory ? sheaf__no_memory("out of memory for a pickle") : NULL;
}

sheaf_status *sheaf__pickle_parse_first(sheaf_pickle_doc **out, size_t *used, const void *bytes,
                                        size_t size, const sheaf_pickle_options *options)
{
    sheaf__machine r = { .bytes = bytes, .size = size };
    const size_t most =
        options != NULL && options->max_memory > 0 ? options->max_memory : (size_t)1 << 30;
    sheaf_status *st = sheaf__pickle_new(&r.doc);
    if (st != NULL)
        return st;
    r.doc->arena->limit = most;
    if (most > SMALLEST_LIMIT && size < (most - SMALLEST_LIMIT) / LIMIT_PER_BYTE)
        r.doc->arena->limit = size * LIMIT_PER_BYTE + SMALLEST_LIMIT;
    st = run(&r);
    if (st == NULL) {
        sheaf_pickle *root = r.stack.at[0];
        st = sheaf__pickle_untangle(r.doc, &root);
        r.doc->root = root;
    }
    free(r.stack.at);
    free(r.memo.at);
    free(r.mark);
    if (st != NULL) {
        sheaf__pickle_free(r.doc);
        return st;
    }
    *used = r.pos;
    *out = r.doc;
    return NULL;
}

sheaf_status *sheaf__pickle_parse(sheaf_pickle_doc **out, const void *bytes, size_t size,
                                  const sheaf_pickle_options *options)
{
    size_t used = 0;
    sheaf_pickle_doc *doc = NULL;
    sheaf_status *st = sheaf__pickle_parse_first(&doc, &used, bytes, size, options);
    if (st == NULL && used != size) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pickle"), "nothing after its end");
        sheaf_found(st, "%zu of %zu bytes", size - used, size);
        sheaf__pickle_free(doc);
        return st;
    }
    if (st == NULL)
        *out = doc;
    return st;
}
