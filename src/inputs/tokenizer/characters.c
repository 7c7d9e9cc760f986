/* characters.c - see characters.h. */
#include "characters.h"

#include <utf8proc.h>

/* The class of the range that `c` is in; -1: it is in none. */
static int class_in(const sheaf__character_range *range, int n, uint32_t c)
{
    for (int low = 0, high = n; low < high;) {
        const int middle = low + (high - low) / 2;
        if (c < range[middle].first)
            high = middle;
        else if (c > range[middle].last)
            low = middle + 1;
        else
            return (int)range[middle].class;
    }
    return -1;
}

unsigned sheaf__character_class(uint32_t c)
{
    /* what most of a text is */
    if ((c | 0x20) - 'a' < 26)
        return SHEAF__RUST_WORD;
    if (c == ' ')
        return 0;
    const int class = class_in(sheaf__character_ranges, sheaf__character_ranges_count, c);
    return class < 0 ? 0 : (unsigned)class;
}

bool sheaf__is_white(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool sheaf__form_unknown(uint32_t c, bool is_mark)
{
    return (is_mark && (sheaf__character_class(c) & SHEAF__MARK) == 0) ||
           class_in(sheaf__character_unknown, sheaf__character_unknown_count, c) >= 0;
}

int sheaf__lower(uint32_t out[2], uint32_t c)
{
    if (c == 0x130) { /* the one code point whose lower case is two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0)
                      : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    for (int i = 0; c >= 0x80 && i < sheaf__character_lowers_count; i++) {
        const sheaf__character_lower *lower = &sheaf__character_lowers[i];
        if (c >= lower->first && c <= lower->last)
            out[0] = (uint32_t)((int32_t)c + lower->add);
    }
    return 1;
}
