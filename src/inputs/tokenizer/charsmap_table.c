/* charsmap_table.c - see charsmap_table.h.
 *
 * The table (nmt_nfkc and the like) is: 4 bytes, the size of the trie, little endian; the trie, a
 * double array of darts-clone; texts, each ended by NUL. A unit of the array has 4 bytes: the label
 * in bits 0-7 and 31, "a value ends here" in bit 8, an offset in bits 9-30 (bit 9: 256 times as
 * far); or, with bit 31, a value: where in the texts it begins. From unit i one stands at base i ^
 * offset; byte c leads to unit base ^ c if its label is c, and a value lies at the base itself.
 * Nothing in it says whether a base is inside the array or where a value may point. */
#include "charsmap_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

enum { DEEPEST = 255, MOST_KEYS = 32, MOST_TEXT = 128, UNKNOWN = -1, ON_PATH = -2, BAD = -3 };

typedef struct table {
    sheaf__charsmap map;
    uint32_t n;   /* units */
    size_t size;  /* of the texts */
    int8_t *keys; /* [n] by base: the most keys on a way from there, or UNKNOWN or ON_PATH */
} table;

static uint32_t unit(const sheaf__charsmap *map, uint32_t i)
{
    const unsigned char *p = map->units + 4 * (size_t)i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t base_behind(uint32_t at, uint32_t u)
{
    return at ^ (u >> 10 << ((u & 1u << 9) >> 6));
}

static bool inside(const table *t, uint32_t base)
{
    return (base | 0xff) < t->n;
}

static bool good_text(const table *t, uint32_t value)
{
    const size_t at = value & 0x7fffffff;
    if (at >= t->size || (at > 0 && t->map.texts[at - 1] != '\0'))
        return false;
    return strlen(t->map.texts + at) <= MOST_TEXT && sheaf__is_utf8(t->map.texts + at);
}

/* The most keys that end on one way below `base`; BAD. */
static int keys_below(table *t, uint32_t base, int depth)
{
    int most = 0;
    if (!inside(t, base) || depth > DEEPEST || t->keys[base] == ON_PATH)
        return BAD;
    if (t->keys[base] != UNKNOWN)
        return t->keys[base];
    t->keys[base] = ON_PATH;
    for (uint32_t c = 1; c < 256; c++) {
        const uint32_t u = unit(&t->map, base ^ c), next = base_behind(base ^ c, u);
        const bool ends = u >> 8 & 1;
        if ((u & 0x800000ff) != c)
            continue;
        const int below = keys_below(t, next, depth + 1);
        if (below == BAD || (ends && !good_text(t, unit(&t->map, next))) ||
            below + ends > MOST_KEYS)
            return BAD;
        most = below + ends > most ? below + ends : most;
    }
    return t->keys[base] = (int8_t)most;
}

sheaf_status *sheaf__charsmap_open(sheaf__charsmap *out, const unsigned char *bytes, size_t size)
{
    const uint32_t trie = size < 4 ? 0
                                   : (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                                         (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    sheaf_status *bad = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "table of characters"),
                                       "a table that sentencepiece wrote");
    if (trie == 0 || trie % 1024 != 0 || trie >= size - 4 || bytes[size - 1] != '\0')
        return sheaf_found(bad, "%zu bytes, of them %u of a trie", size, (unsigned)trie);
    table t = {
        { bytes + 4, (const char *)bytes + 4 + trie }, trie / 4, size - 4 - trie, malloc(trie / 4)
    };
    if (t.keys == NULL) {
        sheaf_status_free(bad);
        return sheaf__no_memory("table of characters");
    }
    memset(t.keys, UNKNOWN, t.n);
    const bool good = keys_below(&t, base_behind(0, unit(&t.map, 0)), 0) != BAD;
    free(t.keys);
    if (!good)
        return sheaf_found(bad, "one that leads outside, or round, or to no text");
    sheaf_status_free(bad);
    if (out != NULL)
        *out = t.map;
    return NULL;
}

const char *sheaf__charsmap_find(size_t *used, const sheaf__charsmap *map, const char *text,
                                 size_t size, bool longest)
{
    const char *found = NULL;
    uint32_t at = base_behind(0, unit(map, 0));
    for (size_t i = 0; i < size && text[i] != '\0' && (found == NULL || longest); i++) {
        const unsigned char c = (unsigned char)text[i];
        const uint32_t u = unit(map, at ^ c);
        if ((u & 0x800000ff) != c)
            break;
        at = base_behind(at ^ c, u);
        if (u >> 8 & 1) {
            found = map->texts + (unit(map, at) & 0x7fffffff);
            *used = i + 1;
        }
    }
    return found;
}
