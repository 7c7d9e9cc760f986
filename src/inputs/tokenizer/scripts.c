/* scripts.c - the pre-tokenizer UnicodeScripts: a piece ends where another script begins.
 *
 * As in sentencepiece, whose rule it is (Kudo and Richardson 2018), Hiragana, Katakana and the
 * prolonged sound mark are Han; what is common to scripts, signs and digits, is a script by itself.
 * Blanks and characters that the table does not know are of any script: they stay with those before
 * them. As in `tokenizers`, those with none before them are left out. */
#include "scripts.h"

#include "kinds.h"
#include "rewrite.h"
#include "unicode.h"

/* The script of `c`; *at: the point where it was found, first tried for the next character. */
static uint32_t script_of(uint32_t c, int *at)
{
    const uint32_t *points = sheaf__script_points;
    const int count = sheaf__script_points_count;
    if (points[*at] >> 8 <= c && (*at + 1 == count || c < points[*at + 1] >> 8))
        return points[*at] & 0xff;
    int low = 0; /* points that begin at `c` or before */
    for (int high = count; low < high;) {
        const int middle = low + (high - low) / 2;
        if (points[middle] >> 8 <= c)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low > 0 ? low - 1 : 0;
    return low > 0 ? points[*at] & 0xff : 0;
}

static sheaf_status *split(const void *state, sheaf__prepared *text, const sheaf__piece *piece)
{
    uint32_t last = 0;
    size_t begin = piece->end, n;
    int point = 0;
    (void)state;
    for (size_t at = piece->begin; at < piece->end; at += n) {
        const uint32_t c = sheaf__unicode_take(text->now.bytes + at, piece->end - at, &n);
        const uint32_t script = script_of(c, &point);
        if (script == 0 || script == last)
            continue;
        sheaf__prepared_put(text, piece, begin, at, -1);
        begin = at;
        last = script;
    }
    sheaf__prepared_put(text, piece, begin, piece->end, -1);
    return NULL;
}

static sheaf_status *run(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split);
}

const sheaf__step_kind sheaf__unicode_scripts = { "UnicodeScripts", sheaf__open_plain, run,
                                                  sheaf__close_plain };
