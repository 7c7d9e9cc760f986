/* scheduler.c - see scheduler.h. */
#include "infer/scheduler.h"

#include "base/base.h"
#include "models/rope.h"

/* A place of the cache. */
typedef struct place {
    sheaf__sequence *running;  /* NULL: free */
    sheaf__prefix_cache *past; /* its keys and values */
    sheaf__prefix_cache own;
    int model;    /* that has computed it */
    int64_t used; /* when it was used last */
    int64_t seen; /* e->whole when its prompt was compared with the other places */
} place;

struct sheaf__scheduler {
    sheaf__scheduler_options o;
    place *place; /* [places] */
    int64_t clock;
    sheaf__sequence **pass;        /* [places] */
    int64_t *taken;                /* [places] rows of the running pass */
    sheaf__sequence *first, *last; /* that wait */
    int64_t active, arrivals;
    int64_t whole; /* prompts that were read to their end */
};

/* ---- open and close ---- */

sheaf_status *sheaf__scheduler_open(sheaf__scheduler **out, const sheaf__scheduler_options *o)
{
    sheaf__scheduler *e = calloc(1, sizeof *e);
    *out = e;
    if (e == NULL)
        return sheaf__no_memory("answers");
    e->o = *o;
    e->place = calloc((size_t)o->places, sizeof *e->place);
    e->pass = calloc((size_t)o->places, sizeof *e->pass);
    e->taken = calloc((size_t)o->places, sizeof *e->taken);
    sheaf_status *st = e->place == NULL || e->pass == NULL || e->taken == NULL
                           ? sheaf__no_memory("answers")
                           : NULL;
    for (int64_t i = 0; i < o->places && st == NULL; i++) {
        e->place[i].past = o->past != NULL ? o->past : &e->place[i].own;
        if (o->past == NULL)
            st = sheaf__prefix_cache_reserve(&e->place[i].own, o->length);
    }
    return st;
}

void sheaf__scheduler_close(sheaf__scheduler *e)
{
    if (e == NULL)
        return;
    for (int64_t i = 0; i < e->o.places && e->place != NULL; i++)
        sheaf__prefix_cache_release(&e->place[i].own, NULL);
    free(e->place);
    free(e->pass);
    free(e->taken);
    free(e);
}

/* ---- places ---- */

void sheaf__scheduler_add(sheaf__scheduler *e, sheaf__sequence *s)
{
    s->next = NULL;
    s->over = s->again = false;
    s->waits = true;
    s->arrival = e->arrivals++;
    if (e->last != NULL)
        e->last->next = s;
    else
        e->first = s;
    e->last = s;
}

bool sheaf__scheduler_idle(const sheaf__scheduler *e)
{
    return e->first == NULL && e->active == 0;
}

/* The free place that holds the most of a prompt; of equals the one that was used longest ago. */
static place *best_place(const sheaf__scheduler *e, const sheaf__sequence *s)
{
    place *best = NULL;
    int64_t most = -1;
    for (int64_t i = 0; i < e->o.places; i++) {
        place *p = &e->place[i];
        if (p->running != NULL)
            continue;
        const int64_t rows =
            p->model == s->model ? sheaf__prefix_cache_usable(p->past, e->o.config, s->prompt) : 0;
        if (rows > most || (rows == most && p->used < best->used)) {
            most = rows;
            best = p;
        }
    }
    return best;
}

static void take_place(sheaf__scheduler *e, sheaf__sequence *s)
{
    place *p = best_place(e, s);
    if (p->model != s->model)
        p->past->n = 0;
    p->model = s->model;
    p->running = s;
    p->seen = -1;
    s->place = p - e->place;
    s->read = sheaf__prefix_cache_reuse(p->past, e->o.config, s->prompt);
    if (e->o.chunk == 0 && e->o.places > 1 &&
        2 * s->read < s->prompt->n) /* better read together with others */
        s->read = p->past->n = 0;
    e->active++;
}

/* Those that wait begin, in order and as far as there are places; of `all` those that are over are
 * let go in any case. */
static void admit(sheaf__scheduler *e, bool all)
{
    sheaf__sequence *before = NULL;
    for (sheaf__sequence *s = e->first, *next; s != NULL; s = next) {
        const bool place = e->active < e->o.places;
        next = s->next;
        if (!place && !all)
            return;
        if (!s->over && (!place || (e->o.ready != NULL && !e->o.ready(s)))) {
            before = s;
            continue;
        }
        *(before == NULL ? &e->first : &before->next) = next;
        if (e->last == s)
            e->last = before;
        s->waits = false;
        if (!s->over)
            take_place(e, s);
    }
}

static void free_places(sheaf__scheduler *e)
{
    for (int64_t i = 0; i < e->o.places; i++) {
        place *p = &e->place[i];
        if (p->running == NULL || !p->running->over)
            continue;
        p->running = NULL;
        p->used = ++e->clock;
        e->active--;
    }
}

void sheaf__scheduler_leave(sheaf__scheduler *e)
{
    free_places(e);
    admit(e, true);
}

/* ---- passes ---- */

static void note_rows(sheaf__scheduler *e, sheaf__sequence *s, int64_t rows)
{
    sheaf__prefix_cache *past = e->place[s->place].past;
    const sheaf__prompt *p = s->prompt;
    const int64_t before = s->read;
    s->read += rows;
    if (s->read >= p->n && past->n < p->n) {
        sheaf__prefix_cache_set(past, p, p->n);
        e->whole++;
    }
    /* Where nothing is read again, rows before a change of the angles keep theirs: none behind it
     * is noted. */
    const bool again = sheaf__family_for(e->o.config)->reads_again;
    for (int64_t j = before > p->n ? before : p->n; j < s->read; j++)
        if (past->n == j && (again || !sheaf__rope_changes(e->o.config, j, j + 1)))
            sheaf__prefix_cache_add(past, s->out->ids[j - p->n], sheaf__prompt_position(p, j));
}

/* Before a pass that reads them `taken` has the rows of each: it may choose a token more. */
static void run(sheaf__scheduler *e, const sheaf__slots_pass *pass)
{
    for (int64_t i = 0; i < pass->n; i++) {
        const int64_t left = sheaf__sequence_known(pass->of[i]) - pass->of[i]->read;
        e->taken[i] = pass->rows > 0 && left > pass->rows ? pass->rows : left;
    }
    sheaf_status *st = e->o.run(e->o.self, pass);
    for (int64_t i = 0; i < pass->n; i++) {
        sheaf__sequence *s = pass->of[i];
        if (st == NULL) {
            note_rows(e, s, e->taken[i]);
            continue;
        }
        sheaf_status_free(s->failed);
        s->failed = sheaf_status_copy(st);
        s->over = true;
    }
    sheaf_status_free(st);
}

static bool reads(const sheaf__sequence *s)
{
    return s != NULL && !s->over && (s->out->n == 0 || s->again);
}

/* How many rows a pass may read of it at once, at most `chunk` where that is possible: pictures are
 * read together, as is everything where angles follow the length. */
static int64_t rows_at_once(const sheaf__scheduler *e, const sheaf__sequence *s)
{
    const int64_t seen = sheaf__prompt_seen_rows(s->prompt),
                  left = sheaf__sequence_known(s) - s->read;
    int64_t most = e->o.chunk > 0 ? e->o.chunk : left;
    if (sheaf__rope_follows_length(e->o.config))
        return left;
    if (s->read + most < seen)
        most = seen - s->read;
    return left < most ? left : most;
}

/* Is most of a prompt in common worth a copy? Without chunks the rest is read beside others. */
static bool is_most(const sheaf__scheduler *e, int64_t rows, const sheaf__prompt *p)
{
    return e->o.chunk > 0 ? rows > 0 : rows > 0 && 2 * rows >= p->n;
}

/* Rows that another place holds are not read. It is looked at them once, and after each prompt that
 * has been read. */
static void copy_past(sheaf__scheduler *e, sheaf__sequence *s)
{
    place *own = &e->place[s->place];
    if (own->seen == e->whole)
        return;
    own->seen = e->whole;
    struct sheaf__slots_copy copy = { .to = s->place, .rows = s->read };
    for (int64_t i = 0; i < e->o.places; i++) {
        const place *p = &e->place[i];
        const int64_t rows = p == own || p->model != s->model || s->prompt->embed != NULL
                                 ? 0
                                 : sheaf__prefix_cache_usable(p->past, e->o.config, s->prompt);
        if (rows > copy.rows)
            copy = (struct sheaf__slots_copy){ s->place, i, rows };
    }
    if (copy.rows == s->read || !is_most(e, copy.rows, s->prompt))
        return;
    s->failed = sheaf__first_of(s->failed, e->o.copy(e->o.self, &copy));
    s->over = s->failed != NULL;
    if (s->over)
        return;
    sheaf__prefix_cache_set(own->past, s->prompt, copy.rows);
    s->read = copy.rows;
}

/* Will it have most of its prompt from one that is read now? */
static bool follows(const sheaf__scheduler *e, const sheaf__slots_pass *p,
                    const sheaf__sequence *one)
{
    const bool copies = e->o.copy != NULL && !sheaf__rope_follows_length(e->o.config);
    for (int64_t i = 0; i < p->n && copies; i++) {
        const int64_t rows = sheaf__prompt_common_rows(p->of[i]->prompt, one->prompt);
        if (rows > one->read && is_most(e, rows, one->prompt))
            return true;
    }
    return false;
}

/* Reads some of the sequence that has waited longest for its first token; without chunks also all
 * that have as many rows cached. Was there one? */
static bool read_some(sheaf__scheduler *e)
{
    sheaf__sequence *s = NULL;
    for (int64_t i = 0; i < e->o.places; i++) {
        sheaf__sequence *one = e->place[i].running;
        if (e->o.copy != NULL && reads(one) && !one->again)
            copy_past(e, one);
        if (reads(one) && (s == NULL || one->arrival < s->arrival))
            s = one;
    }
    if (s == NULL)
        return false;
    sheaf__slots_pass pass = { .model = s->model, .of = e->pass, .rows = rows_at_once(e, s) };
    e->pass[pass.n++] = s;
    for (int64_t i = 0; i < e->o.places && e->o.chunk == 0 && !s->again; i++) {
        sheaf__sequence *one = e->place[i].running;
        if (one == s || !reads(one) || one->again || one->read != s->read ||
            one->model != s->model || follows(e, &pass, one))
            continue;
        const int64_t rows = one->prompt->n - one->read;
        e->pass[pass.n++] = one;
        pass.rows = rows > pass.rows ? rows : pass.rows;
    }
    const int64_t known = sheaf__sequence_known(s);
    run(e, &pass);
    s->again = s->again && s->read < known;
    return true;
}

/* A token for each answer that has begun. One whose next token changes the angles of all before it
 * is read again from its first row. */
static void decode(sheaf__scheduler *e, int model)
{
    sheaf__slots_pass pass = { .model = model, .of = e->pass };
    for (int64_t i = 0; i < e->o.places; i++) {
        sheaf__sequence *s = e->place[i].running;
        if (s == NULL || s->model != model || s->over || reads(s))
            continue;
        if (sheaf__family_for(e->o.config)->reads_again &&
            sheaf__rope_changes(e->o.config, s->read, s->read + 1)) {
            s->again = true;
            s->read = e->place[i].past->n = 0;
            continue;
        }
        e->pass[pass.n++] = s;
    }
    if (pass.n > 0)
        run(e, &pass);
}

void sheaf__scheduler_step(sheaf__scheduler *e)
{
    free_places(e);
    admit(e, false);
    bool read = read_some(e);
    if (read && e->o.chunk == 0) {
        while (read)
            read = read_some(e);
    } else {
        for (int model = 0; model < e->o.models; model++)
            decode(e, model);
    }
    free_places(e);
}
