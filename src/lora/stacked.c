/* stacked.c - see stacked.h. */
#include "lora/stacked.h"

#include <pthread.h>

#include "base/base.h"
#include "catalog/over_source.h"
#include "formats/safetensors.h"
#include "lora/names.h"

/* ---- stacks ---- */

static bool same_stack(const sheaf_lora_module *a, const sheaf_lora_module *b)
{
    return a->stacked && b->stacked && strcmp(a->base->stack.of, b->base->stack.of) == 0;
}

/* All of a stack are in one layer, and modules come by layer. */
const sheaf_lora_module *sheaf__lora_stack_next(const sheaf_lora *lora, const sheaf_lora_module *m)
{
    const sheaf_lora_module *end = lora->module + lora->nmodules, *n = m + 1;
    while (n < end && n->base->layer == m->base->layer && !same_stack(m, n))
        n++;
    return n < end && n->base->layer == m->base->layer ? n : NULL;
}

const sheaf_lora_module *sheaf__lora_stack_first(const sheaf_lora *lora, const sheaf_lora_module *m)
{
    const sheaf_lora_module *n = m, *first = m;
    for (; n > lora->module && n[-1].base->layer == m->base->layer; n--)
        if (same_stack(m, n - 1))
            first = n - 1;
    return first;
}

/* Of "a.experts.down_proj" the length of "a.experts". */
static size_t parent_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? 0 : (size_t)(dot - path);
}

/* How many other stacks of the same PEFT module come after this one: they are wrapped around it. */
static int wrapped_by(const sheaf_lora *lora, const sheaf_lora_module *first)
{
    const size_t parent = parent_of(first->base->stack.of);
    int n = 0;
    for (const sheaf_lora_module *m = first + 1;
         m < lora->module + lora->nmodules && m->base->layer == first->base->layer; m++)
        n += m->stacked && m->base->stack.member == first->base->stack.member && m->a_of == NULL &&
             !same_stack(m, first) && parent_of(m->base->stack.of) == parent &&
             strncmp(m->base->stack.of, first->base->stack.of, parent) == 0;
    return n;
}

char *sheaf__lora_stack_name(const sheaf_lora *lora, const sheaf_lora_module *m, char which)
{
    const char *path = m->base->stack.of;
    const int around = wrapped_by(lora, sheaf__lora_stack_first(lora, m));
    sheaf_text text = { 0 };
    char *out = NULL;
    sheaf__text_add(&text, SHEAF_PEFT_PREFIX "%.*s", (int)parent_of(path), path);
    for (int i = 0; i < around; i++)
        sheaf__text_add(&text, ".base_layer");
    sheaf__text_add(&text, ".lora_%c.weight", which);
    sheaf_status_free(sheaf__text_take(&out, &text));
    return out;
}

/* ---- which way round ---- */

sheaf__lora_order sheaf__lora_order_of(const char *version)
{
    static const int64_t turned[] = { 0, 19, 1 };
    const char *at = version == NULL ? "" : version;
    for (int i = 0; i < 3; i++) {
        char *end;
        const int64_t n = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (n < 0)
            return SHEAF__LORA_EITHER;
        if (n != turned[i])
            return n < turned[i] ? SHEAF__LORA_IN_FIRST : SHEAF__LORA_OUT_FIRST;
        at = i < 2 && *end == '.' ? end + 1 : end;
    }
    return *at == '\0' || *at == '+' || strncmp(at, ".post", 5) == 0 ? SHEAF__LORA_OUT_FIRST
                                                                     : SHEAF__LORA_EITHER;
}

/* The orders that the shapes of a stack's factors allow. */
static sheaf__lora_order fits(const sheaf_source_entry *a, const sheaf_source_entry *b,
                              const sheaf_lora_module *m)
{
    const int64_t all = m->base->stack.members * m->rank, cols = m->a_shape[1],
                  rows = m->base->stack.rows;
    if (a == NULL || b == NULL || a->ndim != 2 || b->ndim != 2 || a->shape[0] != all ||
        b->shape[1] != all)
        return SHEAF__LORA_NEITHER;
    return (a->shape[1] == rows && b->shape[0] == cols ? SHEAF__LORA_IN_FIRST
                                                       : SHEAF__LORA_NEITHER) |
           (a->shape[1] == cols && b->shape[0] == rows ? SHEAF__LORA_OUT_FIRST
                                                       : SHEAF__LORA_NEITHER);
}

static sheaf_status *refuse_either(const sheaf_lora *lora, const char *name)
{
    const char *version = lora->options.peft_version;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", name);
    sheaf_expected(st, "'peft_version' in adapter_config.json: up to 0.19.0 PEFT had in and out of "
                       "experts the other way round, and square ones fit both ways");
    sheaf_found(st, "%s", version == NULL ? "none" : version);
    return sheaf_try_this(st,
                          "write the version that trained the adapter into its "
                          "adapter_config.json: \"peft_version\": \"0.19.0\", or the later one");
}

/* All of an adapter have one order. Shapes tell it, else the version. One expert alone PEFT takes
 * for a layer: its square factors mean the same in all versions. */
static sheaf_status *find_order(bool *in_first, const sheaf_lora *lora, sheaf_source *file)
{
    sheaf__lora_order may = SHEAF__LORA_EITHER;
    char *square = NULL;
    sheaf_status *st = NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        if (!m->stacked || m->base->stack.members < 2 || m->base->stack.member > 0 ||
            m->base->stack.row > 0)
            continue;
        char *a = sheaf__lora_stack_name(lora, m, 'A'), *b = sheaf__lora_stack_name(lora, m, 'B');
        st = a == NULL || b == NULL ? sheaf__no_memory("adapter") : NULL;
        const sheaf__lora_order is =
            st == NULL ? fits(file->find(file, a), file->find(file, b), m) : SHEAF__LORA_NEITHER;
        may &=
            is == SHEAF__LORA_NEITHER ? SHEAF__LORA_EITHER : is; /* that is refused by its shape */
        free(b);
        if (is == SHEAF__LORA_EITHER && square == NULL)
            square = a;
        else
            free(a);
    }
    if (may == SHEAF__LORA_EITHER && square != NULL)
        may = sheaf__lora_order_of(lora->options.peft_version);
    if (st == NULL && may == SHEAF__LORA_EITHER && square != NULL)
        st = refuse_either(lora, square);
    free(square);
    *in_first = may == SHEAF__LORA_IN_FIRST;
    return st;
}

/* ---- as a source ---- */

typedef struct member {
    const sheaf_lora_module
        *module; /* of a factor of its own; NULL: a tensor that is saved whole */
    const sheaf_tensor *base;
    int stored; /* its stack's, in `stored` */
    bool b;     /* of B, whose columns alternate */
} member;

typedef struct unstacked {
    sheaf__over_source over; /* first; its own are factors of members */
    member *of;              /* [over.count] */
    char **stored;           /* names of the stacks' factors in the file */
    int nstored;
    bool in_first;  /* B is stored as A, transposed, and A as B */
    int64_t *shown; /* [nshown] entries of the file that are none of these */
    int64_t nshown;
    pthread_mutex_t lock; /* of what follows: the last B that was read */
    int held;             /* its number; -1: none */
    char *all;
} unstacked;

static int stored_at(const unstacked *u, const char *name)
{
    for (int i = u->nstored; i-- > 0;)
        if (strcmp(u->stored[i], name) == 0)
            return i;
    return -1;
}

static int64_t count(sheaf_source *self)
{
    const unstacked *u = (const unstacked *)self;
    return u->nshown + u->over.count;
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    const unstacked *u = (const unstacked *)self;
    sheaf_source *file = u->over.under;
    return i < u->nshown ? file->entry(file, u->shown[i])
                         : &u->over.own[u->over.by_name[i - u->nshown].at];
}

/* Does it change places with the other factor? */
static bool turned(const unstacked *u, const member *m)
{
    return u->in_first && m->base->stack.members > 1;
}

/* Columns of one member out of all rows of a stack's B, which stay until another is read. */
static sheaf_status *gather(unstacked *u, const member *m, int64_t row0, int64_t rows, int64_t col0,
                            int64_t cols, char *dst)
{
    sheaf_source *file = u->over.under;
    const sheaf_source_entry *e = file->find(file, u->stored[m->stored]);
    const int64_t size = (int64_t)sheaf_dtype_bytes(e->dtype), wide = e->shape[1],
                  members = m->base->stack.members;
    sheaf_status *st = NULL;
    if (u->held != m->stored) {
        free(u->all);
        u->held = -1;
        u->all = malloc((size_t)(e->shape[0] * wide * size) + 1);
        st = u->all == NULL ? sheaf__no_memory(e->name)
                            : file->read(file, e->name, 0, e->shape[0], 0, wide, u->all);
        u->held = st == NULL ? m->stored : -1;
    }
    for (int64_t r = row0; r < row0 + rows && st == NULL; r++)
        for (int64_t k = col0; k < col0 + cols; k++, dst += size) {
            const int64_t line = turned(u, m) ? k : m->base->stack.row + r,
                          column = (turned(u, m) ? r : k) * members + m->base->stack.member;
            memcpy(dst, u->all + (line * wide + column) * size, (size_t)size);
        }
    return st;
}

/* Of a stack's A, whose rows lie together by member. */
static sheaf_status *read_rows(unstacked *u, const member *m, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, char *dst)
{
    sheaf_source *file = u->over.under;
    const sheaf_source_entry *e = file->find(file, u->stored[m->stored]);
    const int64_t size = (int64_t)sheaf_dtype_bytes(e->dtype),
                  first = m->base->stack.member * m->module->rank, at = m->base->stack.row + row0;
    if (!turned(u, m))
        return file->read(file, e->name, first + row0, rows, col0, cols, dst);
    char *all = malloc((size_t)(rows * cols * size) + 1);
    sheaf_status *st = all == NULL ? sheaf__no_memory(e->name)
                                   : file->read(file, e->name, first + col0, cols, at, rows, all);
    for (int64_t r = 0; r < rows && st == NULL; r++)
        for (int64_t k = 0; k < cols; k++, dst += size)
            memcpy(dst, all + (k * rows + r) * size, (size_t)size);
    free(all);
    return st;
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    unstacked *u = (unstacked *)self;
    sheaf_source *file = u->over.under;
    const int64_t i = sheaf__over_find(&u->over, name);
    if (i < 0)
        return file->read(file, name, row0, rows, col0, cols, dst);
    const sheaf_source_entry *e = &u->over.own[i];
    const member *m = &u->of[i];
    sheaf_status *st =
        sheaf__safetensors_check_box(name, e->dtype, e->ndim, e->shape, row0, rows, col0, cols);
    if (st != NULL)
        return st;
    if (m->module == NULL)
        return file->read(file, u->stored[m->stored],
                          m->base->stack.member * m->base->stack.rows + m->base->stack.row + row0,
                          rows, col0, cols, dst);
    if (!m->b)
        return read_rows(u, m, row0, rows, col0, cols, dst);
    pthread_mutex_lock(&u->lock);
    st = gather(u, m, row0, rows, col0, cols, dst);
    pthread_mutex_unlock(&u->lock);
    return st;
}

static void release(sheaf__over_source *self)
{
    unstacked *u = (unstacked *)self;
    for (int i = 0; i < u->nstored; i++)
        free(u->stored[i]);
    free(u->stored);
    free(u->of);
    free(u->shown);
    free(u->all);
    pthread_mutex_destroy(&u->lock);
}

static sheaf_status *check_stored(const sheaf_source_entry *e, int ndim, const int64_t *shape)
{
    char want[128], found[128];
    if (sheaf__same_shape(e->ndim, e->shape, ndim, shape))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
    sheaf_expected(st, "shape %s, of all experts", sheaf__show_shape(want, ndim, shape));
    sheaf_found(st, "shape %s", sheaf__show_shape(found, e->ndim, e->shape));
    return sheaf_try_this(st, "the base model this adapter was made for, and r, rank_pattern and "
                              "target_parameters as in its adapter_config.json");
}

/* `name`, which it takes, is the stored tensor that `own` is read from. One that the file has not
 * is missed later, by name. */
static sheaf_status *add_stored(unstacked *u, member m, char *name, int ndim, const int64_t *shape,
                                char *own_name, const int64_t *own)
{
    sheaf_source *file = u->over.under;
    const sheaf_source_entry *e = name == NULL ? NULL : file->find(file, name);
    sheaf_status *st = name == NULL || own_name == NULL ? sheaf__no_memory("adapter") : NULL;
    m.stored = e == NULL ? -1 : stored_at(u, name);
    if (e != NULL && m.stored < 0) {
        TRY(st, check_stored(e, ndim, shape));
        m.stored = u->nstored++;
        u->stored[m.stored] = name;
    } else
        free(name);
    if (st != NULL || e == NULL) {
        free(own_name);
        return st;
    }
    u->of[u->over.count] = m;
    return sheaf__over_add(
        &u->over, own_name,
        (sheaf_source_entry){ .dtype = e->dtype, .ndim = 2, .shape = { own[0], own[1] } });
}

/* A factor of one module; `which` 'A' or 'B'. */
static sheaf_status *add_member(unstacked *u, const sheaf_lora *lora, const sheaf_lora_module *m,
                                char which, bool tensors)
{
    const int64_t all = m->base->stack.members * m->rank;
    member of = { m, m->base, 0, false };
    const bool b = (which == 'B') != turned(u, &of);
    of.b = b;
    const int64_t other = which == 'A' ? m->a_shape[1] : m->base->stack.rows,
                  shape[] = { b ? other : all, b ? all : other };
    char *own_name = NULL;
    if (which == 'B' || !tensors)
        own_name = strdup(which == 'A' ? m->a_name : m->b_name);
    else if (asprintf(&own_name, SHEAF_PEFT_PREFIX "%s.lora_A.weight", m->base->module) < 0)
        own_name = NULL;
    return add_stored(u, of, sheaf__lora_stack_name(lora, m, b ? 'B' : 'A'), 2, shape, own_name,
                      which == 'A' ? m->a_shape : m->b_shape);
}

/* A tensor that modules_to_save names, where the file has the parameter that it lies in. */
static sheaf_status *add_saved(unstacked *u, const sheaf_tensor *t, const char *saved_name)
{
    sheaf_source *file = u->over.under;
    const int64_t shape[] = { t->stack.members, t->stack.rows, t->shape[1] };
    char *name = NULL;
    if (t->stack.of == NULL || file->find(file, saved_name) != NULL)
        return NULL;
    if (asprintf(&name, SHEAF_PEFT_PREFIX "%s", t->stack.of) < 0)
        name = NULL;
    return add_stored(u, (member){ .base = t }, name, t->stack.ndim, shape + 3 - t->stack.ndim,
                      strdup(saved_name), t->shape);
}

/* How many tensors may lie in a parameter of the file. */
static int most_members(const sheaf_lora *lora)
{
    int n = 0;
    for (int i = 0; i < lora->nmodules; i++)
        n += 2 * lora->module[i].stacked;
    for (int i = 0; i < lora->nsaved; i++)
        n += lora->saved[i]->stack.of != NULL;
    return n;
}

sheaf_status *sheaf__lora_unstack(sheaf_source **adapter, const sheaf_lora *lora, bool tensors)
{
    sheaf_source *file = *adapter;
    const int n = most_members(lora);
    if (n == 0)
        return NULL;
    unstacked *u = sheaf__over_new(sizeof *u, file, n, read_box, release);
    if (u == NULL)
        return sheaf__no_memory("adapter");
    pthread_mutex_init(&u->lock, NULL);
    u->held = -1;
    u->of = calloc((size_t)n, sizeof *u->of);
    u->stored = calloc((size_t)n, sizeof *u->stored);
    u->shown = calloc((size_t)file->count(file) + 1, sizeof *u->shown);
    u->over.source.count = count;
    u->over.source.entry = entry;
    sheaf_status *st =
        u->of == NULL || u->stored == NULL || u->shown == NULL ? sheaf__no_memory("adapter") : NULL;
    TRY(st, find_order(&u->in_first, lora, file));
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        if (m->stacked && (tensors || m->a_of == NULL))
            st = add_member(u, lora, m, 'A', tensors);
        if (m->stacked)
            TRY(st, add_member(u, lora, m, 'B', tensors));
    }
    for (int i = 0; i < lora->nsaved && st == NULL; i++)
        st = add_saved(u, lora->saved[i], lora->saved_name[i]);
    if (st == NULL)
        sheaf__over_sort(&u->over); /* there may be many thousands */
    for (int64_t i = 0; i < file->count(file) && st == NULL; i++)
        if (stored_at(u, file->entry(file, i)->name) < 0)
            u->shown[u->nshown++] = i;
    return sheaf__over_end(adapter, u, st);
}
