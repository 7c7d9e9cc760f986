/* pickle_machine.c - see pickle_machine.h. */
#include "formats/pickle_machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

sheaf_status *sheaf__machine_bad(const sheaf__machine *r, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "pickle, byte %zu", r->op), "%s", expected);
}

/* ---- bytes ---- */

const unsigned char *sheaf__machine_take(sheaf__machine *r, uint64_t n)
{
    if (n > r->size - r->pos)
        return NULL;
    const unsigned char *at = r->bytes + r->pos;
    r->pos += (size_t)n;
    return at;
}

sheaf_status *sheaf__machine_number(uint64_t *out, sheaf__machine *r, int bytes)
{
    const unsigned char *p = sheaf__machine_take(r, (uint64_t)bytes);
    if (p == NULL)
        return sheaf__machine_bad(r, "more bytes; the pickle is cut short");
    *out = 0;
    while (bytes-- > 0)
        *out = *out << 8 | p[bytes];
    return NULL;
}

sheaf_status *sheaf__machine_counted(const unsigned char **at, uint64_t *n, sheaf__machine *r,
                                     int width)
{
    sheaf_status *st = sheaf__machine_number(n, r, width);
    if (st == NULL && (*at = sheaf__machine_take(r, *n)) == NULL)
        st = sheaf_found(sheaf__machine_bad(r, "more bytes; the pickle is cut short"),
                         "a text of %" PRIu64 " bytes", *n);
    return st;
}

sheaf_status *sheaf__machine_line(sheaf_pickle_text *out, sheaf__machine *r)
{
    const unsigned char *at = r->bytes + r->pos, *end = memchr(at, '\n', r->size - r->pos);
    if (end == NULL)
        return sheaf__machine_bad(r, "a line; the pickle is cut short");
    *out = (sheaf_pickle_text){ (const char *)at, (size_t)(end - at) };
    r->pos += out->size + 1;
    return NULL;
}

/* ---- stack, marks, memo ---- */

static bool reserve(sheaf__machine *r, void **at, int64_t wanted, int64_t *capacity, size_t each)
{
    const int64_t before = *capacity;
    if (!sheaf__grow(at, capacity, wanted, each)) {
        r->out_of_memory = true;
        return false;
    }
    memset((char *)*at + (size_t)before * each, 0, (size_t)(*capacity - before) * each);
    return true;
}

void sheaf__machine_push(sheaf__machine *r, sheaf_pickle *value)
{
    void *at = r->stack.at;
    if (reserve(r, &at, r->stack.count + 1, &r->stack.capacity, sizeof value))
        ((sheaf_pickle **)at)[r->stack.count++] = value;
    r->stack.at = at;
}

int64_t sheaf__machine_above(const sheaf__machine *r)
{
    return r->stack.count - (r->marks > 0 ? r->mark[r->marks - 1] : 0);
}

sheaf_status *sheaf__machine_need(const sheaf__machine *r, int64_t n)
{
    return sheaf__machine_above(r) >= n ? NULL : sheaf__machine_bad(r, "a value on the stack");
}

sheaf_pickle *sheaf__machine_pop(sheaf__machine *r)
{
    return r->stack.at[--r->stack.count];
}
sheaf_pickle *sheaf__machine_top(const sheaf__machine *r)
{
    return r->stack.at[r->stack.count - 1];
}

sheaf_status *sheaf__machine_pop_mark(sheaf_pickle ***from, int64_t *n, sheaf__machine *r)
{
    if (r->marks == 0)
        return sheaf__machine_bad(r, "a mark on the stack");
    *n = sheaf__machine_above(r);
    r->marks--;
    r->stack.count -= *n;
    *from = r->stack.at + r->stack.count;
    return NULL;
}

sheaf_status *sheaf__machine_mark(sheaf__machine *r)
{
    void *at = r->mark;
    if (reserve(r, &at, r->marks + 1, &r->marks_capacity, sizeof *r->mark))
        ((int64_t *)at)[r->marks++] = r->stack.count;
    r->mark = at;
    return NULL;
}

sheaf_status *sheaf__machine_put(sheaf__machine *r, uint64_t index)
{
    sheaf_status *st = sheaf__machine_need(r, 1);
    if (st != NULL)
        return st;
    if (index >= r->size) /* each place takes a byte to fill */
        return sheaf_found(sheaf__machine_bad(r, "a memo number below the pickle's size"),
                           "%" PRIu64, index);
    void *at = r->memo.at;
    if (reserve(r, &at, (int64_t)index + 1, &r->memo.capacity, sizeof(sheaf_pickle *))) {
        sheaf_pickle **slot = (sheaf_pickle **)at + index;
        r->memoized += *slot == NULL;
        *slot = sheaf__machine_top(r);
    }
    r->memo.at = at;
    return NULL;
}

sheaf_status *sheaf__machine_get(sheaf__machine *r, uint64_t index)
{
    sheaf_pickle *value = index < (uint64_t)r->memo.capacity ? r->memo.at[index] : NULL;
    if (value == NULL)
        return sheaf_found(sheaf__machine_bad(r, "a memo number that was put before"), "%" PRIu64,
                           index);
    sheaf__machine_push(r, value);
    return NULL;
}
