/* grammar.c - see grammar.h.
 *
 * A frame is a place in the program, its counter and the frame to return to, by number: equal ones
 * are one. Frame 0 is the end of the answer. A state is an ascending list of frames, each of which
 * waits for a byte. State 0 has none: it is a dead end. */
#include "infer/grammar.h"

#include "base/base.h"

enum {
    MOST_WAYS = 320,    /* frames of a state */
    MOST_STATES = 4096, /* when there are as many, all are forgotten, and found again as needed */
    MOST_MASKS = 256,
    MOST_WALKED = 1 << 22, /* numbers that the states of a walk have: 16 MB */
};

typedef struct frame {
    int32_t at, count, back;
} frame;

typedef struct state {
    int64_t first; /* in g->way */
    int32_t ways;
    int32_t walk;   /* that has come by */
    int32_t *next;  /* [256] states, -1: not known yet; NULL: none is */
    uint32_t *mask; /* bits of tokens; NULL: not known yet */
} state;

/* Numbers of entries by their hash; 0: free. */
typedef struct table {
    int32_t *slot;
    int64_t size, used;
} table;

struct sheaf__grammar {
    sheaf__grammar_program program;
    const sheaf__token_bytes *tokens;
    frame *frame;
    int64_t frames, frames_capacity;
    state *state;
    int64_t states, states_capacity, masks;
    int32_t *way; /* of all states */
    int64_t ways, ways_capacity;
    table frame_of, state_of;
    int64_t most_states;
    int32_t set[MOST_WAYS]; /* that is being made */
    int32_t n, age, walks;
    int32_t *path;              /* [longest token + 1] states */
    bool failed, many, dropped; /* dropped: some byte led to too many ways, which are none */
};

/* ---- tables ---- */

static uint64_t mix(uint64_t h, int32_t x)
{
    h = (h ^ (uint32_t)x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t frame_hash(const frame *f)
{
    return mix(mix(mix(1, f->at), f->count), f->back);
}

static uint64_t set_hash(const int32_t *set, int32_t n)
{
    uint64_t h = 2;
    for (int32_t i = 0; i < n; i++)
        h = mix(h, set[i]);
    return h;
}

static uint64_t hash_of(const sheaf__grammar *g, const table *t, int32_t entry)
{
    const state *s = &g->state[entry];
    return t == &g->frame_of ? frame_hash(&g->frame[entry]) : set_hash(g->way + s->first, s->ways);
}

/* Is it this one: a frame, or the frames of a state? */
static bool is_entry(const sheaf__grammar *g, const table *t, int32_t entry, const void *key,
                     int32_t n)
{
    const state *s = &g->state[entry];
    return t == &g->frame_of
               ? memcmp(&g->frame[entry], key, sizeof(frame)) == 0
               : s->ways == n && memcmp(g->way + s->first, key, (size_t)n * sizeof *g->way) == 0;
}

/* The slot of an entry, or the free one where it belongs; key NULL: it is not in the table. */
static int32_t *slot_of(const sheaf__grammar *g, const table *t, uint64_t hash, const void *key,
                        int32_t n)
{
    int64_t at = (int64_t)(hash & (uint64_t)(t->size - 1));
    while (t->slot[at] != 0 && (key == NULL || !is_entry(g, t, t->slot[at], key, n)))
        at = (at + 1) & (t->size - 1);
    return &t->slot[at];
}

/* Makes room for one more. */
static bool widen(sheaf__grammar *g, table *t)
{
    if (2 * (t->used + 1) <= t->size)
        return true;
    table wide = { .size = t->size == 0 ? 1024 : 2 * t->size, .used = t->used };
    wide.slot = calloc((size_t)wide.size, sizeof *wide.slot);
    if (wide.slot == NULL)
        return false;
    for (int64_t i = 0; i < t->size; i++)
        if (t->slot[i] != 0)
            *slot_of(g, &wide, hash_of(g, t, t->slot[i]), NULL, 0) = t->slot[i];
    free(t->slot);
    *t = wide;
    return true;
}

static int32_t frame_number(sheaf__grammar *g, int32_t at, int32_t count, int32_t back)
{
    const frame f = { at, count, back };
    const uint64_t hash = frame_hash(&f);
    if (!widen(g, &g->frame_of) || !SHEAF_GROW(&g->frame, &g->frames_capacity, g->frames + 1)) {
        g->failed = true;
        return 0;
    }
    int32_t *slot = slot_of(g, &g->frame_of, hash, &f, 1);
    if (*slot != 0)
        return *slot;
    g->frame[g->frames] = f;
    g->frame_of.used++;
    return *slot = (int32_t)g->frames++;
}

static int ascending(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

/* The state of the frames in g->set. */
static int32_t state_number(sheaf__grammar *g)
{
    int32_t n = 0;
    qsort(g->set, (size_t)g->n, sizeof *g->set, ascending);
    for (int32_t i = 0; i < g->n; i++)
        if (i == 0 || g->set[i] != g->set[i - 1])
            g->set[n++] = g->set[i];
    if (n == 0)
        return 0;
    const uint64_t hash = set_hash(g->set, n);
    if (!widen(g, &g->state_of) || !SHEAF_GROW(&g->state, &g->states_capacity, g->states + 1) ||
        !SHEAF_GROW(&g->way, &g->ways_capacity, g->ways + n)) {
        g->failed = true;
        return 0;
    }
    int32_t *slot = slot_of(g, &g->state_of, hash, g->set, n);
    if (*slot != 0)
        return *slot;
    g->state[g->states] = (state){ .first = g->ways, .ways = n };
    memcpy(g->way + g->ways, g->set, (size_t)n * sizeof *g->set);
    g->ways += n;
    g->state_of.used++;
    return *slot = (int32_t)g->states++;
}

/* ---- strings and numbers ---- */

enum { AT_CHARACTER, AT_ESCAPE, AT_HEX, AT_HEX_0, AT_HEX_00, AT_HEX_000, AT_HEX_D, AT_HEX_2 };
enum { AT_HEX_3 = AT_HEX_2 + 1, AT_HEX_4, AT_LAST, AT_LAST_2, AT_LAST_3, AT_E0, AT_ED, AT_F0 };
enum { AT_F4 = AT_F0 + 1 };

/* The steps of a character: UTF-8 (shortest forms, no surrogates), and escapes, of which \u0000 and
 * halves of a pair are left out, as many readers refuse them. */
static const struct {
    uint8_t from, low, high, to;
} steps[] = {
    { AT_CHARACTER, 0x20, 0x7F, AT_CHARACTER },
    { AT_CHARACTER, 0xC2, 0xDF, AT_LAST },
    { AT_CHARACTER, 0xE0, 0xE0, AT_E0 },
    { AT_CHARACTER, 0xE1, 0xEC, AT_LAST_2 },
    { AT_CHARACTER, 0xED, 0xED, AT_ED },
    { AT_CHARACTER, 0xEE, 0xEF, AT_LAST_2 },
    { AT_CHARACTER, 0xF0, 0xF0, AT_F0 },
    { AT_CHARACTER, 0xF1, 0xF3, AT_LAST_3 },
    { AT_CHARACTER, 0xF4, 0xF4, AT_F4 },
    { AT_LAST, 0x80, 0xBF, AT_CHARACTER },
    { AT_LAST_2, 0x80, 0xBF, AT_LAST },
    { AT_LAST_3, 0x80, 0xBF, AT_LAST_2 },
    { AT_E0, 0xA0, 0xBF, AT_LAST },
    { AT_ED, 0x80, 0x9F, AT_LAST },
    { AT_F0, 0x90, 0xBF, AT_LAST_2 },
    { AT_F4, 0x80, 0x8F, AT_LAST_2 },
    /* hexadecimal digits as their values, letters above 9 */
    { AT_HEX, 0, 0, AT_HEX_0 },
    { AT_HEX, 13, 13, AT_HEX_D },
    { AT_HEX, 1, 15, AT_HEX_2 },
    { AT_HEX_0, 0, 0, AT_HEX_00 },
    { AT_HEX_0, 1, 15, AT_HEX_3 },
    { AT_HEX_00, 0, 0, AT_HEX_000 },
    { AT_HEX_00, 1, 15, AT_HEX_4 },
    { AT_HEX_000, 1, 15, AT_CHARACTER },
    { AT_HEX_D, 0, 7, AT_HEX_3 },
    { AT_HEX_2, 0, 15, AT_HEX_3 },
    { AT_HEX_3, 0, 15, AT_HEX_4 },
    { AT_HEX_4, 0, 15, AT_CHARACTER },
};

/* The step after a byte; -1: it cannot stand there. */
static int next_step(int step, unsigned char byte)
{
    if (step == AT_CHARACTER && byte == '\\')
        return AT_ESCAPE;
    if (step == AT_ESCAPE)
        return byte == 'u'                                          ? AT_HEX
               : byte != '\0' && strchr("\"\\/bfnrt", byte) != NULL ? AT_CHARACTER
                                                                    : -1;
    const int value = step >= AT_HEX && step <= AT_HEX_4 ? sheaf__hex_digit((char)byte) : byte;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].from == step && value >= steps[i].low && value <= steps[i].high)
            return steps[i].to;
    return -1;
}

/* Of a property's name that is none of those in `c`, the counter is 0 at first, then -1, or 1 + the
 * number of one that begins with the bytes so far, and their count. */
enum { NAME_BYTES = 1024 };

static bool name_begins(const char *name, const char *with, size_t size, unsigned char byte)
{
    return strncmp(name, with, size) == 0 && (unsigned char)name[size] == byte;
}

/* The counter after a byte; -2: the name would be one of them. */
static int32_t next_name(const sheaf__grammar *g, const sheaf__grammar_code *c, int32_t count,
                         unsigned char byte)
{
    const int32_t like = count <= 0 ? 0 : (count - 1) / NAME_BYTES;
    const size_t size = count <= 0 ? 0 : (size_t)((count - 1) % NAME_BYTES);
    char **name = g->program.name + c->first;
    if (byte == '\\')
        return -2;
    for (int32_t i = 0; i < c->names && count >= 0; i++)
        if (name_begins(name[i], name[like], size, byte == '"' ? '\0' : byte))
            return byte == '"' ? -2 : 1 + i * NAME_BYTES + (int32_t)size + 1;
    return -1;
}

/* Steps of a number: before it, behind its sign; one 0, other digits; behind the point, digits;
 * behind the e, behind its sign, digits. */
enum { N_BEGIN, N_SIGN, N_ZERO, N_DIGITS, N_POINT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

static bool number_may_end(int step)
{
    return step == N_ZERO || step == N_DIGITS || step == N_FRACTION || step == N_EXPONENT;
}

/* So many digits fit an int64_t, and e99 a double, whoever reads it. */
static int next_number(int step, int32_t count, unsigned char byte, bool whole)
{
    const bool digit = byte >= '0' && byte <= '9';
    if (step <= N_SIGN)
        return byte == '-' && step == N_BEGIN ? N_SIGN
               : byte == '0'                  ? N_ZERO
               : digit                        ? N_DIGITS
                                              : -1;
    if (digit)
        return step == N_ZERO                          ? -1
               : step == N_POINT                       ? N_FRACTION
               : step == N_E || step == N_E_SIGN       ? N_EXPONENT
               : count < (step == N_EXPONENT ? 2 : 16) ? step
                                                       : -1;
    if (whole)
        return -1;
    if (byte == '.')
        return step == N_ZERO || step == N_DIGITS ? N_POINT : -1;
    if (byte == 'e' || byte == 'E')
        return number_may_end(step) && step != N_EXPONENT ? N_E : -1;
    return (byte == '+' || byte == '-') && step == N_E ? N_E_SIGN : -1;
}

/* ---- from state to state ---- */

static void wait_at(sheaf__grammar *g, int32_t frame)
{
    g->many = g->many || g->n == MOST_WAYS;
    if (g->n < MOST_WAYS)
        g->set[g->n++] = frame;
}

/* Adds to g->set all frames that wait for a byte from there on. */
static void follow(sheaf__grammar *g, int32_t at, int32_t count, int32_t back)
{
    while (!g->failed && !g->many) {
        const sheaf__grammar_code *c = &g->program.code[at];
        switch (c->op) {
        case SHEAF__G_NUMBER:
            if (number_may_end(c->step))
                follow(g, at - c->step + SHEAF__G_NUMBER_STEPS, 0, back);
            wait_at(g, frame_number(g, at, count, back));
            return;
        case SHEAF__G_BYTE:
        case SHEAF__G_STRING: wait_at(g, frame_number(g, at, count, back)); return;
        case SHEAF__G_BLANK:
            wait_at(g, frame_number(g, at, count, back));
            at = c->to;
            break;
        case SHEAF__G_CALL:
            back = frame_number(g, at + 1, count, back);
            at = g->program.part[c->to];
            count = 0;
            break;
        case SHEAF__G_RETURN:
            if (back == 0) {
                wait_at(g, 0);
                return;
            }
            at = g->frame[back].at;
            count = g->frame[back].count;
            back = g->frame[back].back;
            break;
        case SHEAF__G_SPLIT:
            follow(g, at + 1, count, back);
            at = c->to;
            break;
        case SHEAF__G_NOTHING: return;
        case SHEAF__G_JUMP: at = c->to; break;
        case SHEAF__G_COUNT:
            count += count < (c->max > c->min ? c->max : c->min);
            at++;
            break;
        case SHEAF__G_MORE:
            if (c->max < 0 || count < c->max)
                follow(g, at + 1, count, back);
            if (count < c->min)
                return;
            at = c->to;
            break;
        }
    }
}

static void step_string(sheaf__grammar *g, const frame *f, const sheaf__grammar_code *c,
                        unsigned char byte)
{
    const int32_t begin = f->at - c->step;
    const bool ends = c->step == AT_CHARACTER && byte == '"',
               full = c->names == 0 && c->max >= 0 && f->count >= c->max;
    const int32_t most = c->max > c->min ? c->max : c->min;
    int32_t count = c->names > 0 ? next_name(g, c, f->count, byte) : f->count;
    if (count == -2)
        return;
    if (ends) {
        if (c->names > 0 || count >= c->min)
            follow(g, begin + SHEAF__G_STRING_STEPS, 0, f->back);
        return;
    }
    const int to = c->step == AT_CHARACTER && full ? -1 : next_step(c->step, byte);
    if (to == AT_CHARACTER && c->names == 0)
        count += count < most;
    if (to >= 0)
        follow(g, begin + to, count, f->back);
}

static void step_number(sheaf__grammar *g, const frame *f, const sheaf__grammar_code *c,
                        unsigned char byte)
{
    const int to = next_number(c->step, f->count, byte, c->byte == SHEAF__G_WHOLE);
    if (to >= 0)
        follow(g, f->at - c->step + to, to == c->step ? f->count + 1 : 1, f->back);
}

static int32_t step(sheaf__grammar *g, int32_t from, unsigned char byte)
{
    state *s = &g->state[from];
    if (s->next == NULL) {
        s->next = malloc(256 * sizeof *s->next);
        if (s->next == NULL) {
            g->failed = true;
            return 0;
        }
        memset(s->next, -1, 256 * sizeof *s->next);
    }
    if (s->next[byte] >= 0)
        return s->next[byte];
    g->n = 0;
    for (int32_t i = 0; i < g->state[from].ways; i++) {
        const int32_t number = g->way[g->state[from].first + i];
        const frame f = g->frame[number];
        const sheaf__grammar_code *c = &g->program.code[f.at];
        if (number == 0)
            continue;
        if (c->op == SHEAF__G_STRING)
            step_string(g, &f, c, byte);
        else if (c->op == SHEAF__G_NUMBER)
            step_number(g, &f, c, byte);
        else if (c->op == SHEAF__G_BYTE ? byte == c->byte : byte == ' ' || byte == '\t')
            follow(g, f.at + 1, f.count, f.back);
    }
    const int32_t to = g->many ? 0 : state_number(g);
    g->dropped = g->dropped || g->many;
    g->many = false;
    return g->state[from].next[byte] = to;
}

static bool is_complete(const sheaf__grammar *g, int32_t at)
{
    const state *s = &g->state[at];
    return s->ways > 0 && g->way[s->first] == 0;
}

/* ---- open and close ---- */

static void forget(sheaf__grammar *g)
{
    for (int64_t i = 0; i < g->states; i++) {
        free(g->state[i].next);
        free(g->state[i].mask);
    }
    free(g->frame_of.slot);
    free(g->state_of.slot);
    g->frame_of = g->state_of = (table){ 0 };
    g->frames = g->states = g->ways = g->masks = 0;
}

/* The end, the dead end, and state 1, where answers begin. */
static void begin(sheaf__grammar *g)
{
    forget(g);
    g->age++;
    if (!SHEAF_GROW(&g->frame, &g->frames_capacity, 1) ||
        !SHEAF_GROW(&g->state, &g->states_capacity, 1)) {
        g->failed = true;
        return;
    }
    g->frame[g->frames++] = (frame){ 0 };
    g->state[g->states++] = (state){ 0 };
    g->n = 0;
    follow(g, g->program.part[0], 0, 0);
    state_number(g);
}

static sheaf_status *too_many(void)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "the schema"),
                          "at most %d ways to go on with an answer", MOST_WAYS);
}

static sheaf_status *check(sheaf__grammar *g)
{
    if (g->failed)
        return sheaf__no_memory("the form of an answer");
    return g->many ? too_many() : NULL;
}

sheaf_status *sheaf__grammar_open(sheaf__grammar **out, const sheaf__answer_form *form)
{
    sheaf__grammar *g = calloc(1, sizeof *g);
    *out = NULL;
    if (g == NULL)
        return sheaf__no_memory("the form of an answer");
    g->tokens = form->tokens;
    g->most_states = MOST_STATES;
    g->path = malloc(((size_t)g->tokens->longest + 1) * sizeof *g->path);
    g->failed = g->path == NULL;
    sheaf_status *st = sheaf__grammar_compile(&g->program, form);
    if (st == NULL)
        begin(g);
    TRY(st, check(g));
    if (st == NULL)
        *out = g;
    else
        sheaf__grammar_close(g);
    return st;
}

void sheaf__grammar_close(sheaf__grammar *g)
{
    if (g == NULL)
        return;
    forget(g);
    sheaf__grammar_program_release(&g->program);
    free(g->frame);
    free(g->state);
    free(g->way);
    free(g->path);
    free(g);
}

/* ---- tokens ---- */

sheaf_status *sheaf__grammar_read(bool *over, sheaf__grammar *g, sheaf__grammar_place *p,
                                  const int32_t *ids, int64_t n)
{
    const sheaf__token_bytes *t = g->tokens;
    const bool full = g->states > g->most_states || g->masks > MOST_MASKS;
    *over = false;
    if (full)
        begin(g);
    if (g->failed || g->many)
        return check(g);
    if (p->age != g->age)
        *p = (sheaf__grammar_place){ .state = 1, .age = g->age };
    for (; p->read < n; p->read++)
        for (uint32_t i = t->at[ids[p->read]]; i < t->at[ids[p->read] + 1]; i++)
            p->state = step(g, p->state, t->byte[i]);
    if (full && g->states > g->most_states / 2) /* a long answer needs as many */
        g->most_states = 2 * g->states;
    *over = is_complete(g, p->state) && g->state[p->state].ways == 1;
    return check(g);
}

/* Characters that a string which the state is in has room for, as they are; -1: it is in none. */
static int32_t room_of(const sheaf__grammar *g, const state *s)
{
    int32_t room = -1;
    for (int32_t i = 0; i < s->ways; i++) {
        const frame *f = &g->frame[g->way[s->first + i]];
        const sheaf__grammar_code *c = &g->program.code[f->at];
        if (g->way[s->first + i] == 0 || c->op != SHEAF__G_STRING || c->step != AT_CHARACTER ||
            (c->names > 0 && f->count >= 0))
            continue;
        const int32_t own = c->names > 0 || c->max < 0 ? INT32_MAX : c->max - f->count;
        room = own > room ? own : room;
    }
    return room;
}

/* The state with the same mask whose strings, where there is room for any token, have as few
 * characters as they may: a long string has one mask, not one for each of its lengths. */
static int32_t shortest(sheaf__grammar *g, int32_t from)
{
    g->n = 0;
    for (int32_t i = 0; i < g->state[from].ways; i++) {
        const int32_t number = g->way[g->state[from].first + i];
        const frame f = g->frame[number];
        const sheaf__grammar_code *c = &g->program.code[f.at];
        const bool free = number != 0 && c->op == SHEAF__G_STRING && c->names == 0 &&
                          f.count > c->min && c->max - f.count > g->tokens->longest;
        wait_at(g, free ? frame_number(g, f.at, c->min, f.back) : number);
    }
    return state_number(g);
}

/* The tokens in the order of their bytes: one that begins as the last is walked from where they
 * part, and those that begin like one which led nowhere are passed. So are those that lead to more
 * states than a walk may have, whatever other walks have found. */
static void walk(sheaf__grammar *g, int32_t from, uint32_t *mask)
{
    const sheaf__token_bytes *t = g->tokens;
    const int32_t room = room_of(g, &g->state[from]);
    int64_t known = 0;        /* bytes of the current token that g->path has */
    int64_t dead = INT64_MAX; /* the first `dead` bytes of the current token lead nowhere */
    int64_t walked = 0;
    g->path[0] = from;
    g->walks++;
    for (int64_t i = 0; i < t->count && !g->failed; i++) {
        const int32_t id = t->id[i];
        const int64_t same = t->same[i], size = t->at[id + 1] - t->at[id];
        known = same < known ? same : known;
        if (same >= dead)
            continue;
        dead = INT64_MAX;
        if (t->plain[i] != SHEAF__NOT_PLAIN && t->plain[i] <= room) {
            mask[id / 32] |= UINT32_C(1) << id % 32;
            continue;
        }
        while (known < size && dead == INT64_MAX) {
            g->path[known + 1] = step(g, g->path[known], t->byte[t->at[id] + known]);
            state *s = &g->state[g->path[++known]];
            if (g->path[known] != 0 && s->walk != g->walks)
                walked += 256 + s->ways;
            s->walk = g->walks;
            if (g->path[known] == 0 || walked > MOST_WALKED)
                dead = known;
        }
        if (dead == INT64_MAX)
            mask[id / 32] |= UINT32_C(1) << id % 32;
        else
            known--;
    }
}

static sheaf_status *no_way(const sheaf__grammar *g)
{
    if (g->dropped)
        return too_many();
    return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "the answer"),
                                         "a token that continues it as the schema has it"),
                          "a schema that some value satisfies, in characters that the model's "
                          "tokens can write");
}

/* Logits of tokens that may not come; is there one that may and is none of stop[nstop]? */
static bool forbid(float *logits, int64_t vocab, const uint32_t *mask, int64_t ids,
                   const int64_t *stop, int nstop)
{
    bool any = false;
    for (int64_t from = 0; from < vocab; from += 32) {
        const int64_t n = vocab - from < 32 ? vocab - from : 32;
        const uint32_t may = from < ids ? mask[from / 32] : 0;
        for (int64_t i = 0; i < n && may != UINT32_MAX; i++)
            logits[from + i] = (may >> i & 1) != 0 ? logits[from + i] : -INFINITY;
        for (int64_t i = 0; i < n && !any && may != 0; i++)
            any = (may >> i & 1) != 0 && !sheaf__is_stop(stop, nstop, from + i);
    }
    return any;
}

sheaf_status *sheaf__grammar_mask(float *logits, int64_t vocab, sheaf__grammar *g,
                                  const sheaf__grammar_place *p, const int64_t *stop, int nstop)
{
    const size_t words = (size_t)(g->tokens->ids + 31) / 32;
    const int32_t at = shortest(g, p->state);
    uint32_t *mask = g->state[at].mask;
    float ends[SHEAF__MOST_STOPS];
    if (mask == NULL) {
        mask = calloc(words, sizeof *mask);
        g->failed = g->failed || mask == NULL;
        if (mask != NULL)
            walk(g, at, mask);
        g->state[at].mask = mask;
        g->masks++;
    }
    sheaf_status *st = check(g);
    if (st != NULL)
        return st;
    const bool complete = is_complete(g, p->state);
    for (int i = 0; i < nstop; i++)
        ends[i] = complete && stop[i] >= 0 && stop[i] < vocab ? logits[stop[i]] : -INFINITY;
    bool any = forbid(logits, vocab, mask, g->tokens->ids, stop, nstop);
    for (int i = 0; i < nstop; i++)
        if (stop[i] >= 0 && stop[i] < vocab) {
            logits[stop[i]] = ends[i];
            any = any || complete;
        }
    return any ? NULL : no_way(g);
}
