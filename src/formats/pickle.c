/* pickle.c - the stack machine that reads a pickle; see pickle.h.
 *
 * One pass over the bytes, no recursion. Each opcode checks that its bytes are there, and
 * that the stack holds what it takes since the last mark. Nothing trusts the bytes: what is not
 * there is an error, and memory that could not be had is remembered. */
#include "pickle.h"

#include "pickle_inner.h"
#include "base/base.h"

enum {
    HIGHEST_PROTOCOL = 5,
    BIG_MOST = 1 << 16,
    SMALLEST_LIMIT = 64 << 10,
    LIMIT_PER_BYTE = 96,
    MOST_MEMORY = 1 << 30
};

typedef struct machine {
    sheaf_pickle_doc *doc;
    const unsigned char *bytes;
    size_t size, pos;
    size_t op; /* offset of the current opcode */
    sheaf_pickle_items stack, memo;
    int64_t memoized; /* places of the memo that are filled */
    int64_t *mark, marks, marks_capacity;
    bool out_of_memory;
    bool stopped;
} machine;

static sheaf_status *bad(const machine *r, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pickle, byte %zu", r->op), "%s", expected);
}

/* ---- bytes ---- */

static const unsigned char *take(machine *r, uint64_t n)
{
    if (n > r->size - r->pos)
        return NULL;
    const unsigned char *at = r->bytes + r->pos;
    r->pos += (size_t)n;
    return at;
}

/* A number of `bytes` bytes, least significant first. */
static sheaf_status *number(uint64_t *out, machine *r, int bytes)
{
    const unsigned char *p = take(r, (uint64_t)bytes);
    if (p == NULL)
        return bad(r, "more bytes; the pickle is cut short");
    *out = sheaf__little(p, bytes);
    return NULL;
}

/* A count of `width` bytes, then as many bytes. */
static sheaf_status *counted(const unsigned char **at, uint64_t *n, machine *r, int width)
{
    sheaf_status *st = number(n, r, width);
    if (st == NULL && (*at = take(r, *n)) == NULL)
        st = sheaf_found(bad(r, "more bytes; the pickle is cut short"),
                         "a text of %" PRIu64 " bytes", *n);
    return st;
}

static sheaf_status *line(sheaf_pickle_text *out, machine *r)
{
    const unsigned char *at = r->bytes + r->pos, *end = memchr(at, '\n', r->size - r->pos);
    if (end == NULL)
        return bad(r, "a line; the pickle is cut short");
    *out = (sheaf_pickle_text){ (const char *)at, (size_t)(end - at) };
    r->pos += out->size + 1;
    return NULL;
}

/* ---- stack, marks, memo ---- */

/* NULL, from a maker that found no memory, is remembered by the document. */
static void push(machine *r, sheaf_pickle *value)
{
    if (SHEAF_GROW(&r->stack.at, &r->stack.capacity, r->stack.count + 1))
        r->stack.at[r->stack.count++] = value;
    else
        r->out_of_memory = true;
}

/* Values since the last mark. */
static int64_t above(const machine *r)
{
    return r->stack.count - (r->marks > 0 ? r->mark[r->marks - 1] : 0);
}

static sheaf_status *need(const machine *r, int64_t n)
{
    return above(r) >= n ? NULL : bad(r, "a value on the stack");
}

static sheaf_pickle *pop(machine *r)
{
    return r->stack.at[--r->stack.count];
}
static sheaf_pickle *top(const machine *r)
{
    return r->stack.at[r->stack.count - 1];
}

/* Values since the last mark, which goes: *from points at them on the stack, which is then *n
 * shorter. */
static sheaf_status *pop_mark(sheaf_pickle ***from, int64_t *n, machine *r)
{
    if (r->marks == 0)
        return bad(r, "a mark on the stack");
    *n = above(r);
    r->marks--;
    r->stack.count -= *n;
    *from = r->stack.at + r->stack.count;
    return NULL;
}

static sheaf_status *mark(machine *r)
{
    if (SHEAF_GROW(&r->mark, &r->marks_capacity, r->marks + 1))
        r->mark[r->marks++] = r->stack.count;
    else
        r->out_of_memory = true;
    return NULL;
}

/* Puts the top of the stack into place `index` of the memo. */
static sheaf_status *put(machine *r, uint64_t index)
{
    const int64_t before = r->memo.capacity;
    sheaf_status *st = need(r, 1);
    if (st != NULL)
        return st;
    if (index >= r->size) /* each place takes a byte to fill */
        return sheaf_found(bad(r, "a memo number below the pickle's size"), "%" PRIu64, index);
    r->out_of_memory = !SHEAF_GROW(&r->memo.at, &r->memo.capacity, (int64_t)index + 1);
    if (r->out_of_memory)
        return NULL;
    for (int64_t i = before; i < r->memo.capacity; i++)
        r->memo.at[i] = NULL;
    r->memoized += r->memo.at[index] == NULL;
    r->memo.at[index] = top(r);
    return NULL;
}

static sheaf_status *get(machine *r, uint64_t index)
{
    sheaf_pickle *value = index < (uint64_t)r->memo.capacity ? r->memo.at[index] : NULL;
    if (value == NULL)
        return sheaf_found(bad(r, "a memo number that was put before"), "%" PRIu64, index);
    push(r, value);
    return NULL;
}

/* ---- values ---- */

static sheaf_status *push_number(machine *r, sheaf_pickle_kind kind, int64_t number)
{
    sheaf_pickle *value = sheaf__pickle_node(r->doc, kind);
    if (value != NULL)
        value->as.number = number;
    push(r, value);
    return NULL;
}

static sheaf_status *push_kind(machine *r, sheaf_pickle_kind kind)
{
    push(r, sheaf__pickle_node(r->doc, kind));
    return NULL;
}

static sheaf_status *push_text(machine *r, sheaf_pickle_kind kind, const void *p, uint64_t n)
{
    sheaf_pickle *value = sheaf__pickle_node(r->doc, kind);
    if (value != NULL)
        sheaf__pickle_copy(&value->as.text, r->doc, p, (size_t)n);
    push(r, value);
    return NULL;
}

/* `bytes` of a number on the wire, as an unsigned or (all four) signed value. */
static sheaf_status *read_int(machine *r, int bytes)
{
    uint64_t n = 0;
    sheaf_status *st = number(&n, r, bytes);
    return st != NULL
               ? st
               : push_number(r, SHEAF_PICKLE_INT, bytes == 4 ? (int32_t)(uint32_t)n : (int64_t)n);
}

static sheaf_status *read_long(machine *r, int width)
{
    const unsigned char *p = NULL;
    uint64_t n = 0, number = 0;
    sheaf_status *st = counted(&p, &n, r, width);
    if (st != NULL)
        return st;
    if (n > BIG_MOST)
        return sheaf_found(bad(r, "an integer of at most 65536 bytes"), "%" PRIu64, n);
    if (n > 8)
        return push_text(r, SHEAF_PICKLE_BIG, p, n);
    number = sheaf__little(p, (int)n);
    if (n > 0 && n < 8 && p[n - 1] >= 0x80)
        number |= ~(uint64_t)0 << (8 * n);
    return push_number(r, SHEAF_PICKLE_INT, (int64_t)number);
}

static sheaf_status *read_float(machine *r)
{
    uint64_t bits = 0;
    sheaf_status *st = number(&bits, r, 8);
    sheaf_pickle *value = st == NULL ? sheaf__pickle_node(r->doc, SHEAF_PICKLE_FLOAT) : NULL;
    bits = __builtin_bswap64(bits); /* big endian, the only such number */
    if (value != NULL)
        memcpy(&value->as.real, &bits, sizeof bits);
    if (st == NULL)
        push(r, value);
    return st;
}

/* Python 2's own strings are texts where they can be, else bytes. */
static sheaf_status *read_text(machine *r, int width, sheaf_pickle_kind kind, bool either)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    sheaf_status *st = counted(&p, &n, r, width);
    if (st != NULL)
        return st;
    if (kind == SHEAF_PICKLE_STRING && !sheaf__pickle_is_utf8(p, (size_t)n)) {
        if (!either)
            return bad(r, "UTF-8 in a text");
        kind = SHEAF_PICKLE_BYTES;
    }
    return push_text(r, kind, p, n);
}

/* ---- names ---- */

static sheaf_status *push_name(machine *r, sheaf_pickle_text module, sheaf_pickle_text name)
{
    sheaf_pickle_role role = SHEAF_ROLE_FUNCTION;
    sheaf_pickle_text m, n;
    if (!sheaf__pickle_is_utf8(module.at, module.size) ||
        !sheaf__pickle_is_utf8(name.at, name.size) ||
        memchr(module.at, '\0', module.size) != NULL || memchr(name.at, '\0', name.size) != NULL ||
        module.size == 0 || name.size == 0)
        return bad(r, "a module and a name");
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_GLOBAL);
    if (value == NULL || !sheaf__pickle_copy(&m, r->doc, module.at, module.size) ||
        !sheaf__pickle_copy(&n, r->doc, name.at, name.size)) {
        push(r, NULL);
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
    push(r, value);
    return NULL;
}

static sheaf_status *read_name(machine *r)
{
    sheaf_pickle_text module, name;
    sheaf_status *st = line(&module, r);
    TRY(st, line(&name, r));
    return st != NULL ? st : push_name(r, module, name);
}

static sheaf_status *stack_name(machine *r)
{
    sheaf_status *st = need(r, 2);
    if (st != NULL)
        return st;
    const sheaf_pickle *name = pop(r), *module = pop(r);
    if (name->kind != SHEAF_PICKLE_STRING || module->kind != SHEAF_PICKLE_STRING)
        return bad(r, "a module and a name");
    return push_name(r, module->as.text, name->as.text);
}

/* ---- containers ---- */

/* Of the last `n` values; -1: of those since the last mark. */
static sheaf_status *make_tuple(machine *r, int64_t n)
{
    sheaf_pickle **from = NULL, **at;
    sheaf_status *st = n < 0 ? pop_mark(&from, &n, r) : need(r, n);
    if (st != NULL)
        return st;
    if (from == NULL)
        from = r->stack.at + (r->stack.count -= n);
    sheaf_pickle *value = sheaf__pickle_node(r->doc, SHEAF_PICKLE_TUPLE);
    if (value != NULL && n > 0 &&
        (at = sheaf__pickle_alloc(r->doc, (size_t)n * sizeof *at)) != NULL) {
        memcpy(at, from, (size_t)n * sizeof *at);
        value->as.items = (sheaf_pickle_items){ at, n, n };
    }
    push(r, value);
    return NULL;
}

/* The target of an addition: the container itself, or that of an object whose class is a kind of
 * one. */
static sheaf_pickle *holder(machine *r, sheaf_pickle *to, sheaf_pickle_kind kind)
{
    if (to->kind != SHEAF_PICKLE_OBJECT || kind == SHEAF_PICKLE_SET)
        return to->kind == kind ? to : NULL;
    sheaf_pickle **field = kind == SHEAF_PICKLE_LIST ? &to->as.object->list : &to->as.object->dict;
    if (*field == NULL)
        *field = sheaf__pickle_node(r->doc, kind);
    return *field;
}

/* Adds the values from `from` (n of them) to what lies on top. */
static sheaf_status *add(machine *r, sheaf_pickle_kind kind, sheaf_pickle **from, int64_t n)
{
    sheaf_status *st = need(r, 1);
    if (st != NULL)
        return st;
    sheaf_pickle *to = holder(r, top(r), kind);
    if (to == NULL)
        return r->doc->arena->failed ? NULL : bad(r, "a container of this kind to add to");
    const int each = kind == SHEAF_PICKLE_DICT ? 2 : 1;
    if (n % each != 0)
        return bad(r, "keys with values");
    for (int64_t i = 0; i < n; i += each)
        if (!sheaf__pickle_push(r->doc, to, from[i], each == 2 ? from[i + 1] : NULL))
            break;
    return NULL;
}

static sheaf_status *add_marked(machine *r, sheaf_pickle_kind kind)
{
    sheaf_pickle **from = NULL;
    int64_t n = 0;
    sheaf_status *st = pop_mark(&from, &n, r);
    return st != NULL ? st : add(r, kind, from, n);
}

static sheaf_status *add_one(machine *r, sheaf_pickle_kind kind)
{
    const int64_t n = kind == SHEAF_PICKLE_DICT ? 2 : 1;
    sheaf_status *st = need(r, n + 1);
    return st != NULL ? st : add(r, kind, r->stack.at + (r->stack.count -= n), n);
}

static sheaf_status *frozen_set(machine *r)
{
    sheaf_status *st = make_tuple(r, -1);
    if (st == NULL && r->stack.count > 0 && top(r) != NULL)
        top(r)->kind = SHEAF_PICKLE_SET;
    return st;
}

/* ---- objects ---- */

/* The key that waits on the stack for the value being made, to say which tensor is bad. */
static sheaf_status *about(machine *r, sheaf_status *st)
{
    const char *key = r->stack.count > 0 ? sheaf__pickle_text(top(r)) : NULL;
    if (st != NULL && key != NULL)
        st = sheaf_in(st, "'%.120s'", key);
    return sheaf_in(st, "pickle, byte %zu", r->op);
}

static sheaf_status *reduce(machine *r)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = need(r, 2);
    if (st != NULL)
        return st;
    sheaf_pickle *args = pop(r), *callable = pop(r);
    st = sheaf__pickle_call(&out, r->doc, callable, args);
    if (st != NULL)
        return about(r, st);
    push(r, out);
    return NULL;
}

/* NEWOBJ, and NEWOBJ_EX with its keyword arguments, which only matter to the class. */
static sheaf_status *new_object(machine *r, bool keywords)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = need(r, keywords ? 3 : 2);
    if (st != NULL)
        return st;
    sheaf_pickle *words = keywords ? pop(r) : NULL, *args = pop(r), *class = pop(r);
    if (class->kind != SHEAF_PICKLE_GLOBAL || args->kind != SHEAF_PICKLE_TUPLE)
        return bad(r, "a class and a tuple of arguments");
    const bool plain = class->mark == SHEAF_ROLE_CLASS || class->mark == SHEAF_ROLE_FUNCTION;
    st = plain ? sheaf__pickle_new_object(&out, r->doc, class, args)
               : sheaf__pickle_call(&out, r->doc, class, args);
    if (st == NULL && words != NULL && out != NULL && out->kind == SHEAF_PICKLE_OBJECT)
        out->as.object->dict =
            words->kind == SHEAF_PICKLE_DICT && words->as.items.count > 0 ? words : NULL;
    if (st != NULL)
        return about(r, st);
    push(r, out);
    return NULL;
}

/* Attributes of dicts (a module's _metadata) and tensors are of no use here. */
static sheaf_status *build(machine *r)
{
    sheaf_status *st = need(r, 2);
    if (st != NULL)
        return st;
    sheaf_pickle *state = pop(r), *to = top(r);
    if (to->kind == SHEAF_PICKLE_OBJECT)
        to->as.object->state = state;
    else if (to->kind != SHEAF_PICKLE_DICT && to->kind != SHEAF_PICKLE_TENSOR &&
             to->kind != SHEAF_PICKLE_SET && to->kind != SHEAF_PICKLE_LIST &&
             to->kind != SHEAF_PICKLE_TUPLE)
        return bad(r, "an object to fill");
    return NULL;
}

static sheaf_status *persistent(machine *r)
{
    sheaf_pickle *out = NULL;
    sheaf_status *st = need(r, 1);
    TRY(st, sheaf_in(sheaf__pickle_persistent(&out, r->doc, pop(r)), "pickle, byte %zu", r->op));
    if (st == NULL)
        push(r, out);
    return st;
}

/* ---- opcodes ---- */

static sheaf_status *read_protocol(machine *r)
{
    uint64_t protocol = 0;
    sheaf_status *st = number(&protocol, r, 1);
    if (st == NULL && (protocol < 2 || protocol > HIGHEST_PROTOCOL))
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pickle protocol"), "2 to 5"), "%d",
            (int)protocol);
    return st;
}

static sheaf_status *stop(machine *r)
{
    if (r->stack.count != 1 || r->marks != 0)
        return bad(r, "one value at the end");
    r->stopped = true;
    return NULL;
}

/* Opcodes with a number behind them that says where in the memo. */
static sheaf_status *memo_op(machine *r, int bytes, bool store)
{
    uint64_t index = 0;
    sheaf_status *st = number(&index, r, bytes);
    return st != NULL ? st : store ? put(r, index) : get(r, index);
}

static sheaf_status *pop_one(machine *r)
{
    if (above(r) > 0)
        r->stack.count--;
    else if (r->marks > 0) /* so do Python's */
        r->marks--;
    else
        return bad(r, "a value on the stack");
    return NULL;
}

static sheaf_status *scalar(machine *r, unsigned char op)
{
    switch (op) {
    case 'N': return push_kind(r, SHEAF_PICKLE_NONE);
    case 0x88: return push_number(r, SHEAF_PICKLE_BOOL, 1);
    case 0x89: return push_number(r, SHEAF_PICKLE_BOOL, 0);
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
    default: return sheaf_found(bad(r, "an opcode that protocols 2 to 5 write"), "byte 0x%02x", op);
    }
}

static sheaf_status *step(machine *r, unsigned char op)
{
    uint64_t frame = 0;
    sheaf_pickle **from;
    int64_t n;
    switch (op) {
    case 0x80: return read_protocol(r);
    case 0x95: return number(&frame, r, 8); /* only tells how far to read ahead */
    case '.': return stop(r);
    case '(': return mark(r);
    case '0': return pop_one(r);
    case '1': return pop_mark(&from, &n, r);
    case '}': return push_kind(r, SHEAF_PICKLE_DICT);
    case ']': return push_kind(r, SHEAF_PICKLE_LIST);
    case 0x8f: return push_kind(r, SHEAF_PICKLE_SET);
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
    case 0x94: return put(r, (uint64_t)r->memoized);
    default: return scalar(r, op);
    }
}

static sheaf_status *run(machine *r)
{
    if (r->size < 2 || r->bytes[0] != 0x80)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pickle"),
                              "a pickle of protocol 2 to 5");
    push(r, NULL); /* so that there is a stack to point into */
    r->stack.count = 0;
    while (!r->stopped && !r->out_of_memory) {
        r->op = r->pos;
        const unsigned char *op = take(r, 1);
        sheaf_status *st = op == NULL ? bad(r, "an end; the pickle is cut short") : step(r, *op);
        if (st != NULL)
            return st;
        if (r->doc->arena->failed)
            return sheaf__pickle_out_of_memory(r->doc);
    }
    return r->out_of_memory ? sheaf__no_memory("out of memory for a pickle") : NULL;
}

sheaf_status *sheaf__pickle_parse(sheaf_pickle_doc **out, size_t *used, const void *bytes,
                                  size_t size)
{
    machine r = { .bytes = bytes, .size = size };
    sheaf_status *st = sheaf__pickle_new(&r.doc);
    if (st != NULL)
        return st;
    r.doc->arena->limit = size < (MOST_MEMORY - SMALLEST_LIMIT) / LIMIT_PER_BYTE
                              ? size * LIMIT_PER_BYTE + SMALLEST_LIMIT
                              : MOST_MEMORY;
    st = run(&r);
    if (st == NULL) {
        sheaf_pickle *root = r.stack.at[0];
        st = sheaf__pickle_untangle(r.doc, &root);
        r.doc->root = root;
    }
    if (st == NULL && used == NULL && r.pos != size)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pickle"), "nothing after its end"),
            "%zu of %zu bytes", size - r.pos, size);
    free(r.stack.at);
    free(r.memo.at);
    free(r.mark);
    if (st != NULL) {
        sheaf__pickle_free(r.doc);
        return st;
    }
    if (used != NULL)
        *used = r.pos;
    *out = r.doc;
    return NULL;
}
