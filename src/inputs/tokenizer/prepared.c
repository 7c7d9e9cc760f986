/* prepared.c - see prepared.h. */
#include "prepared.h"

#include "unicode.h"
#include "base/base.h"

static void release_layer(sheaf__layer *l)
{
    free(l->bytes);
    free(l->from);
    free(l->piece);
    *l = (sheaf__layer){ 0 };
}

void sheaf__prepared_release(sheaf__prepared *p)
{
    release_layer(&p->now);
    release_layer(&p->next);
}

size_t sheaf__growth(size_t size)
{
    enum { TIMES = 64, LEAST = 1024 };
    return size * TIMES + LEAST;
}

sheaf_status *sheaf__grown(const char *step, size_t most)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tokenizer: %s", step);
    sheaf_expected(st, "at most %zu bytes of a text of %zu", most,
                   (most - sheaf__growth(0)) / (sheaf__growth(1) - sheaf__growth(0)));
    return sheaf_found(st, "steps that make more of it");
}

/* Room for `more` bytes behind those of the layer. */
static bool room(sheaf__prepared *p, sheaf__layer *l, size_t more)
{
    const int64_t need = (int64_t)(l->size + more);
    p->grown = p->grown || l->size + more > p->most;
    p->failed = p->failed || p->grown ||
                !SHEAF_GROW(&l->bytes, &l->capacity, need + SHEAF__PREPARED_SPARE) ||
                (p->aligned && !SHEAF_GROW(&l->from, &l->from_capacity, need));
    return !p->failed;
}

static void add_piece(sheaf__prepared *p, sheaf__layer *l, sheaf__piece piece)
{
    p->failed = p->failed || !SHEAF_GROW(&l->piece, &l->piece_capacity, l->pieces + 1);
    if (!p->failed)
        l->piece[l->pieces++] = piece;
}

void sheaf__prepared_begin(sheaf__prepared *p, const char *bytes, size_t size, uint32_t origin,
                           bool aligned)
{
    sheaf__layer *l = &p->now;
    p->aligned = aligned;
    p->raw = p->failed = p->grown = false;
    p->most = sheaf__growth(size);
    l->size = 0;
    l->pieces = 0;
    if (!room(p, l, size))
        return;
    memcpy(l->bytes, bytes, size);
    l->size = size;
    for (size_t at = 0, n; aligned && at < size; at += n) {
        sheaf__unicode_take(bytes + at, size - at, &n);
        for (size_t i = 0; i < n; i++)
            l->from[at + i] = (sheaf__span){ origin + (uint32_t)at, origin + (uint32_t)(at + n) };
    }
    if (size > 0)
        add_piece(p, l, (sheaf__piece){ 0, size, origin, -1 });
}

void sheaf__prepared_put(sheaf__prepared *p, const sheaf__piece *of, size_t begin, size_t end,
                         int32_t id)
{
    if (begin >= end)
        return;
    const uint32_t origin = p->aligned           ? p->now.from[begin].begin
                            : begin == of->begin ? of->origin
                                                 : of->origin + (uint32_t)(begin - of->begin);
    add_piece(p, &p->next, (sheaf__piece){ begin, end, origin, id });
}

sheaf_status *sheaf__prepared_split(sheaf__prepared *p, const void *state, sheaf__splitter *split)
{
    sheaf_status *st = NULL;
    p->next.pieces = 0;
    for (int64_t i = 0; st == NULL && !p->failed && i < p->now.pieces; i++) {
        const sheaf__piece piece = p->now.piece[i];
        if (piece.id >= 0)
            add_piece(p, &p->next, piece);
        else
            st = split(state, p, &piece);
    }
    const sheaf__layer now = p->now; /* its bytes stay */
    p->now.piece = p->next.piece;
    p->now.piece_capacity = p->next.piece_capacity;
    p->now.pieces = p->next.pieces;
    p->next.piece = now.piece;
    p->next.piece_capacity = now.piece_capacity;
    return st;
}

/* ---- rewriting ---- */

static void copy(sheaf__prepared *p, size_t from, size_t size)
{
    sheaf__layer *l = &p->next;
    if (size == 0 || !room(p, l, size))
        return;
    memcpy(l->bytes + l->size, p->now.bytes + from, size);
    if (p->aligned)
        memcpy(l->from + l->size, p->now.from + from, size * sizeof *l->from);
    l->size += size;
}

static void put(sheaf__prepared *p, const char *bytes, size_t size, sheaf__span from)
{
    sheaf__layer *l = &p->next;
    if (size == 0 || !room(p, l, size))
        return;
    memcpy(l->bytes + l->size, bytes, size);
    for (size_t i = 0; p->aligned && i < size; i++)
        l->from[l->size + i] = from;
    l->size += size;
}

void sheaf__edit_keep(sheaf__edit *e, size_t size)
{
    copy(e->p, e->first + e->at, size);
    e->at += size;
}

void sheaf__edit_skip(sheaf__edit *e, size_t size)
{
    e->at += size;
}

void sheaf__edit_replace(sheaf__edit *e, size_t take, const char *bytes, size_t size)
{
    const sheaf__span none = { 0, 0 };
    put(e->p, bytes, size, e->p->aligned ? e->p->now.from[e->first + e->at] : none);
    e->at += take;
}

void sheaf__edit_insert(sheaf__edit *e, const char *bytes, size_t size)
{
    sheaf__span from = { e->origin, e->origin };
    if (e->p->aligned && e->at > 0)
        from = e->p->now.from[e->first + e->at - 1];
    put(e->p, bytes, size, from);
}

static void rewrite_piece(sheaf__prepared *p, const void *state, const sheaf__piece *piece,
                          sheaf__rewriter *rewrite, sheaf_status **st)
{
    const size_t begin = p->next.size;
    if (piece->id >= 0) {
        copy(p, piece->begin, piece->end - piece->begin);
    } else {
        sheaf__edit e = { p,
                          p->now.bytes + piece->begin,
                          piece->end - piece->begin,
                          0,
                          piece->begin,
                          piece->origin };
        *st = rewrite(state, &e);
    }
    if (*st == NULL && (p->next.size > begin || piece->id >= 0))
        add_piece(p, &p->next, (sheaf__piece){ begin, p->next.size, piece->origin, piece->id });
}

sheaf_status *sheaf__prepared_rewrite(sheaf__prepared *p, const void *state,
                                      sheaf__rewriter *rewrite)
{
    sheaf_status *st = NULL;
    p->next.size = 0;
    p->next.pieces = 0;
    for (int64_t i = 0; st == NULL && !p->failed && i < p->now.pieces; i++)
        rewrite_piece(p, state, &p->now.piece[i], rewrite, &st);
    const sheaf__layer now = p->now;
    p->now = p->next;
    p->next = now;
    return st;
}
