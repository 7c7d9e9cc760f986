/* pickle_text.h - pickles by their opcodes, for tests: the maker of pickles has no objects. */
#pragma once

#include <string.h>

#include "base/text.h"

static inline void p_bytes(sheaf_text *p, const char *bytes, size_t n)
{
    sheaf__text_bytes(p, bytes, n);
}

static inline void p_string(sheaf_text *p, const char *s)
{
    const uint32_t n = (uint32_t)strlen(s);
    p_bytes(p, "X", 1);
    p_bytes(p, (const char *)&n, 4);
    p_bytes(p, s, n);
}

static inline void p_int(sheaf_text *p, int64_t v)
{
    p_bytes(p, "\x8a\x08", 2);
    p_bytes(p, (const char *)&v, 8);
}

static inline void p_tuple(sheaf_text *p, int n, const int64_t *v)
{
    p_bytes(p, "(", 1);
    for (int i = 0; i < n; i++)
        p_int(p, v[i]);
    p_bytes(p, "t", 1);
}

/* An object and the dict of its fields, until p_end(). */
static inline void p_object(sheaf_text *p, const char *module, const char *name)
{
    sheaf__text_add(p, "c%s\n%s\n)\x81}(", module, name);
}

static inline void p_end(sheaf_text *p)
{
    p_bytes(p, "ub", 2);
}
