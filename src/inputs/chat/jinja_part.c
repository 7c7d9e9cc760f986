/* jinja_part.c - parts of texts and lists. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

/* The text behind its first characters. */
static sheaf__jtext behind(sheaf__jtext text, int64_t characters)
{
    for (; characters > 0 && text.size > 0; characters--) {
        const size_t n = sheaf__j_character(text.at, text.size);
        text.at += n;
        text.size -= n;
    }
    return text;
}

/* Bounds as slice.indices() has them. */
int64_t sheaf__j_bound(sheaf__j *j, const sheaf__jvalue *v, int64_t absent, int64_t count,
                       int64_t step)
{
    if (v == NULL || v->kind == SHEAF__J_NONE)
        return absent;
    if (v->kind != SHEAF__J_INT && v->kind != SHEAF__J_BOOL)
        sheaf__j_raise(j, "slice indices must be integers or None");
    int64_t at = sheaf__j_whole(*v);
    if (at < 0)
        at = at < -count ? -1 : at + count;
    const int64_t least = step < 0 ? -1 : 0, most = step < 0 ? count - 1 : count;
    return at < least ? least : at > most ? most : at;
}

/* A part of a text as it stands. */
static sheaf__jvalue slice_text(sheaf__j *j, sheaf__jvalue of, const sheaf__jvalue bounds[3])
{
    sheaf__j_read(j, of);
    const int64_t count = (int64_t)sheaf__j_characters(of.u.text);
    const int64_t from = sheaf__j_bound(j, &bounds[0], 0, count, 1),
                  to = sheaf__j_bound(j, &bounds[1], count, count, 1);
    const sheaf__jtext text = behind(of.u.text, from), rest = behind(text, to - from);
    sheaf__jvalue part = sheaf__j_text(text.at, text.size - rest.size);
    part.form = of.form;
    return part;
}

sheaf__jvalue sheaf__j_slice(sheaf__j *j, sheaf__jvalue of, const sheaf__jvalue bounds[3])
{
    sheaf__j_defined(j, of);
    if (of.kind != SHEAF__J_TEXT && !sheaf__j_is_list(of) && of.kind != SHEAF__J_RANGE)
        sheaf__j_raise(j, "'%s' object is not subscriptable by a slice", sheaf__j_kind(of));
    if (of.kind == SHEAF__J_TEXT && (bounds[2].kind == SHEAF__J_NONE ||
                                     (bounds[2].kind == SHEAF__J_INT && bounds[2].u.whole == 1)))
        return slice_text(j, of, bounds);
    const sheaf__jlist items = sheaf__j_items(j, of);
    const int64_t count = (int64_t)items.count;
    const int64_t step = bounds[2].kind == SHEAF__J_NONE ? 1 : sheaf__j_whole(bounds[2]);
    if (bounds[2].kind != SHEAF__J_NONE && bounds[2].kind != SHEAF__J_INT)
        sheaf__j_raise(j, "slice indices must be integers or None");
    if (step == 0)
        sheaf__j_raise(j, "slice step cannot be zero");
    const int64_t from = sheaf__j_bound(j, &bounds[0], step < 0 ? count - 1 : 0, count, step);
    const int64_t to = sheaf__j_bound(j, &bounds[1], step < 0 ? -1 : count, count, step);
    sheaf__jbuffer b = { 0 };
    sheaf__jvalue out = sheaf__j_list(j);
    out.kind = of.kind == SHEAF__J_TEXT ? SHEAF__J_LIST : of.kind;
    for (int64_t i = from; step < 0 ? i > to : i < to;) {
        sheaf__j_work(j, 1);
        if (of.kind == SHEAF__J_TEXT)
            sheaf__j_put(j, &b, items.at[i].u.text.at, items.at[i].u.text.size);
        else
            sheaf__j_append(j, out.u.list, items.at[i]);
        if (step > count || step < -count)
            break;
        i += step;
    }
    if (of.kind != SHEAF__J_TEXT)
        return out;
    out = sheaf__j_buffer_text(&b);
    out.form = of.form;
    return out;
}
