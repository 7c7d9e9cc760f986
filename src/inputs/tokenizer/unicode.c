/* unicode.c - see unicode.h. */
#include "unicode.h"

#include <string.h>

#include "base/text.h"

unsigned sheaf__unicode_class(uint32_t code)
{
    for (int low = 0, high = sheaf__unicode_count; low < high;) {
        const int middle = low + (high - low) / 2;
        const sheaf__unicode_range *r = &sheaf__unicode_ranges[middle];
        if (code < r->first)
            high = middle;
        else if (code > r->last)
            low = middle + 1;
        else
            return r->class;
    }
    return 0;
}

void sheaf__unicode_fill(uint8_t table[SHEAF__UNICODE_TABLE])
{
    memset(table, 0, SHEAF__UNICODE_TABLE);
    for (int i = 0; i < sheaf__unicode_count; i++) {
        const sheaf__unicode_range *r = &sheaf__unicode_ranges[i];
        for (uint32_t code = r->first; code <= r->last && code < SHEAF__UNICODE_TABLE; code++)
            table[code] = r->class;
    }
}

uint32_t sheaf__unicode_stand_in(uint32_t code)
{
    for (int low = 0, high = sheaf__stand_in_count; low < high;) {
        const int middle = low + (high - low) / 2;
        const sheaf__stand_in *s = &sheaf__stand_ins[middle];
        if (code < s->first)
            high = middle;
        else if (code > s->last)
            low = middle + 1;
        else
            return s->stand_in;
    }
    return code;
}

size_t sheaf__unicode_put(char to[4], uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00 >> n & 0xff) | code);
    return n;
}

size_t sheaf__utf8_ascii(const char *text, size_t size)
{
    size_t at = 0;
    for (uint64_t eight; size - at >= 8; at += 8) {
        memcpy(&eight, text + at, 8);
        if ((eight & UINT64_C(0x8080808080808080)) != 0)
            break;
    }
    while (at < size && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

size_t sheaf__utf8_valid(const char *text, size_t size)
{
    for (size_t at = 0, n; at < size; at += n) {
        n = sheaf__utf8_ascii(text + at, size - at);
        if (n == 0)
            n = sheaf__utf8_length(text + at, size - at);
        if (n == 0)
            return at;
    }
    return size;
}
