/* split.c - the pre-tokenizers Split and Digits. */

#include "kinds.h"
#include "base/base.h"

/* Parts of one piece in order, matches and the text between them; all zero except the first three
 * members. */
typedef struct dividing {
    sheaf__prepared *text;
    const sheaf__piece *piece;
    sheaf__behavior behavior;
    size_t begin, end; /* the pending part */
    bool held, match;  /* there is a pending part; the previous part was a match */
} dividing;

static void flush(dividing *d)
{
    if (d->held)
        sheaf__prepared_put(d->text, d->piece, d->begin, d->end, -1);
    d->held = false;
}

static void hold(dividing *d, size_t begin, size_t end)
{
    flush(d);
    d->begin = begin;
    d->end = end;
    d->held = true;
}

static void divide(dividing *d, size_t begin, size_t end, bool match)
{
    bool join = false; /* with the part before */
    switch (d->behavior) {
    case SHEAF__REMOVED:
        if (match)
            return;
        break;
    case SHEAF__ISOLATED: break;
    case SHEAF__MERGED_WITH_PREVIOUS: join = match && !d->match; break;
    case SHEAF__MERGED_WITH_NEXT: join = !match && d->match; break;
    case SHEAF__CONTIGUOUS: join = match == d->match; break;
    }
    d->match = match;
    if (join && d->held)
        d->end = end;
    else
        hold(d, begin, end);
}

sheaf_status *sheaf__divide_by(sheaf__prepared *text, const sheaf__piece *piece,
                               const sheaf__pattern *pattern, sheaf__behavior behavior, bool invert)
{
    dividing d = { text, piece, behavior, 0, 0, false, false };
    sheaf__matches m = { .pattern = pattern,
                         .text = text->now.bytes + piece->begin,
                         .size = piece->end - piece->begin,
                         .matching = &text->matching };
    sheaf_status *st = NULL;
    size_t before = 0;
    for (bool found = true; st == NULL && found;) {
        size_t begin, end;
        st = sheaf__matches_next(&m, &found, &begin, &end);
        if (st != NULL || !found)
            break;
        if (before != begin)
            divide(&d, piece->begin + before, piece->begin + begin, invert);
        divide(&d, piece->begin + begin, piece->begin + end, !invert);
        before = end;
    }
    if (st == NULL && before != m.size)
        divide(&d, piece->begin + before, piece->end, invert);
    flush(&d);
    return st;
}

/* ---- the pre-tokenizer ---- */

typedef struct splitting {
    sheaf__pattern *pattern;
    sheaf__behavior behavior;
    bool invert;
} splitting;

static void close_split(void *state)
{
    sheaf__pattern_close(((splitting *)state)->pattern);
}

static sheaf__behavior read_behavior(sheaf_json_reader *r)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    const char *name = sheaf__json_string(r, "behavior");
    for (int i = 0; name != NULL && i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (sheaf__behavior)i;
    sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "behavior",
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
    return SHEAF__ISOLATED;
}

static sheaf_status *read_pattern(splitting *s, sheaf_json_reader *r)
{
    const json_t *object = sheaf__json_object(r, "pattern");
    const json_t *regex = json_object_get(object, "Regex"),
                 *literal = json_object_get(object, "String");
    const json_t *text = regex != NULL ? regex : literal;
    if (!json_is_string(text) || json_object_size(object) != 1)
        return sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "pattern",
                                "an object with a Regex or a String"),
               NULL;
    return sheaf__pattern_open(&s->pattern, json_string_value(text), regex == NULL);
}

static sheaf_status *open_split(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    splitting *s = state;
    s->behavior = read_behavior(r);
    s->invert = sheaf__json_bool(r, "invert", false);
    return read_pattern(s, r);
}

static sheaf_status *split_piece(const void *state, sheaf__prepared *text,
                                 const sheaf__piece *piece)
{
    const splitting *s = state;
    return sheaf__divide_by(text, piece, s->pattern, s->behavior, s->invert);
}

static sheaf_status *run_split(const void *state, sheaf__prepared *text)
{
    return sheaf__prepared_split(text, state, split_piece);
}

const sheaf__step_kind sheaf__split = { "Split",           "pattern behavior invert",
                                        sizeof(splitting), open_split,
                                        run_split,         close_split };

/* Numbers of Unicode 16, as patterns see them, and those of 17, which the crate knows. */
static sheaf_status *open_digits(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char digits[] = "[\\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6]";
    splitting *s = state;
    if (json_object_get(r->object, "individual_digits") == NULL)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "individual_digits", "true or false");
    s->behavior =
        sheaf__json_bool(r, "individual_digits", false) ? SHEAF__ISOLATED : SHEAF__CONTIGUOUS;
    return sheaf__pattern_open(&s->pattern, digits, false);
}

const sheaf__step_kind sheaf__digits = { "Digits",    "individual_digits", sizeof(splitting),
                                         open_digits, run_split,           close_split };

const sheaf__pattern *sheaf__split_pattern(const void *state)
{
    const splitting *s = state;
    return s->behavior == SHEAF__ISOLATED || (s->behavior == SHEAF__REMOVED && s->invert)
               ? s->pattern
               : NULL;
}

const sheaf__scanner *sheaf__split_scanner(const void *state)
{
    /* Its matches have no gaps: removing the text between them removes nothing. */
    const sheaf__pattern *pattern = sheaf__split_pattern(state);
    return pattern != NULL ? sheaf__pattern_scanner(pattern) : NULL;
}
