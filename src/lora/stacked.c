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

/* ---- as a source ---- */

typedef struct member {
    const sheaf_lora_module *module; /* of a factor of its own */
    int stored;                      /* its stack's, in `stored` */
    bool b;
} member;

typedef struct unstacked {
    sheaf__over_source over; /* first; its own are factors of members */
    member *of;              /* [over.count] */
    char **stored;           /* names of the stacks' factors in the file */
    int nstored;
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
    return i < u->nshown ? file->entry(file, u->shown[i]) : &u->over.own[i - u->nshown];
}

/* Columns of one member out of all rows of a stack's B, which stay until another is read. */
static sheaf_status *gather(unstacked *u, const member *m, int64_t row0, int64_t rows, int64_t col0,
                            int64_t cols, char *dst)
{
    sheaf_source *file = u->over.under;
    const sheaf_source_entry *e = file->find(file, u->stored[m->stored]);
    const int64_t size = (int64_t)sheaf_dtype_bytes(e->dtype), wide = e->shape[1],
                  members = m->module->base->stack.members, at = m->module->base->stack.row + row0;
    sheaf_status *st = NULL;
    if (u->held != m->stored) {
        free(u->all);
        u->held = -1;
        u->all = malloc((size_t)(e->shape[0] * wide * size) + 1);
        st = u->all == NULL ? sheaf__no_memory(e->name)
                            : file->read(file, e->name, 0, e->shape[0], 0, wide, u->all);
        u->held = st == NULL ? m->stored : -1;
    }
    for (int64_t r = 0; r < rows && st == NULL; r++)
        for (int64_t k = 0; k < cols; k++, dst += size)
            memcpy(dst,
                   u->all +
                       ((at + r) * wide + (col0 + k) * members + m->module->base->stack.member) *
                           size,
                   (size_t)size);
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
    if (!m->b)
        return file->read(file, u->stored[m->stored],
                          m->module->base->stack.member * m->module->rank + row0, rows, col0, cols,
                          dst);
    pthread_mutex_lock(&u->lock);
    st = gather(u, m, row0, rows, col0, cols, dst);
    pthread_mutex_unlock(&u->lock);
    return st;
}

/* Without the file. */
static void release(unstacked *u)
{
    sheaf__over_release(&u->over);
    for (int i = 0; i < u->nstored; i++)
        free(u->stored[i]);
    free(u->stored);
    free(u->of);
    free(u->shown);
    free(u->all);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

static void close_unstacked(sheaf_source *self)
{
    sheaf_source *file = ((unstacked *)self)->over.under;
    release((unstacked *)self);
    file->close(file);
}

static sheaf_status *check_stored(const sheaf_source_entry *e, int64_t rows, int64_t cols)
{
    const int64_t shape[] = { rows, cols };
    char want[128], found[128];
    if (sheaf__same_shape(e->ndim, e->shape, 2, shape))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
    sheaf_expected(st, "shape %s, the factors of all experts", sheaf__show_shape(want, 2, shape));
    sheaf_found(st, "shape %s", sheaf__show_shape(found, e->ndim, e->shape));
    return sheaf_try_this(st, "the base model this adapter was made for, and r, rank_pattern and "
                              "target_parameters as in its adapter_config.json");
}

/* A factor of one module; `which` 'A' or 'B'. One that the file has not is missed later, by name.
 */
static sheaf_status *add_member(unstacked *u, const sheaf_lora *lora, const sheaf_lora_module *m,
                                char which, bool tensors)
{
    sheaf_source *file = u->over.under;
    char *name = sheaf__lora_stack_name(lora, m, which);
    if (name == NULL)
        return sheaf__no_memory("adapter");
    const sheaf_source_entry *e = file->find(file, name);
    int at = stored_at(u, name);
    sheaf_status *st = NULL;
    if (e != NULL && at < 0) {
        const int64_t all = m->base->stack.members * m->rank;
        st = which == 'A' ? check_stored(e, all, m->a_shape[1])
                          : check_stored(e, m->base->stack.rows, all);
        at = u->nstored++;
        u->stored[at] = name;
    } else
        free(name);
    if (st != NULL || e == NULL)
        return st;
    const int64_t *shape = which == 'A' ? m->a_shape : m->b_shape;
    sheaf_source_entry own = { .dtype = e->dtype, .ndim = 2, .shape = { shape[0], shape[1] } };
    u->of[u->over.count] = (member){ m, at, which == 'B' };
    if (which == 'B' || !tensors)
        return sheaf__over_add(&u->over, strdup(which == 'A' ? m->a_name : m->b_name), own);
    char *own_name = NULL;
    if (asprintf(&own_name, SHEAF_PEFT_PREFIX "%s.lora_A.weight", m->base->module) < 0)
        own_name = NULL;
    return sheaf__over_add(&u->over, own_name, own);
}

typedef struct listed {
    sheaf_source_entry entry;
    member of;
} listed;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const listed *)a)->entry.name, ((const listed *)b)->entry.name);
}

/* There may be many thousands, which are looked up by name. */
static sheaf_status *sort(unstacked *u)
{
    const int64_t n = u->over.count;
    listed *all = malloc((size_t)n * sizeof *all + 1);
    if (all == NULL)
        return sheaf__no_memory("adapter");
    for (int64_t i = 0; i < n; i++)
        all[i] = (listed){ u->over.own[i], u->of[i] };
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int64_t i = 0; i < n; i++) {
        u->over.own[i] = all[i].entry;
        u->of[i] = all[i].of;
    }
    u->over.sorted = true;
    free(all);
    return NULL;
}

static int stacked_modules(const sheaf_lora *lora)
{
    int n = 0;
    for (int i = 0; i < lora->nmodules; i++)
        n += lora->module[i].stacked;
    return n;
}

sheaf_status *sheaf__lora_unstack(sheaf_source **adapter, const sheaf_lora *lora, bool tensors)
{
    sheaf_source *file = *adapter;
    const int n = stacked_modules(lora);
    if (n == 0)
        return NULL;
    unstacked *u = calloc(1, sizeof *u);
    if (u == NULL)
        return sheaf__no_memory("adapter");
    pthread_mutex_init(&u->lock, NULL);
    u->held = -1;
    u->over.under = file;
    u->of = calloc((size_t)n * 2, sizeof *u->of);
    u->stored = calloc((size_t)n * 2, sizeof *u->stored);
    u->shown = calloc((size_t)file->count(file) + 1, sizeof *u->shown);
    sheaf_status *st = sheaf__over_init(&u->over, n * 2);
    u->over.source.read = read_box;
    u->over.source.close = close_unstacked;
    u->over.source.count = count;
    u->over.source.entry = entry;
    TRY(st, u->of == NULL || u->stored == NULL || u->shown == NULL ? sheaf__no_memory("adapter")
                                                                   : NULL);
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        if (m->stacked && (tensors || m->a_of == NULL))
            st = add_member(u, lora, m, 'A', tensors);
        if (m->stacked)
            TRY(st, add_member(u, lora, m, 'B', tensors));
    }
    TRY(st, sort(u));
    for (int64_t i = 0; i < file->count(file) && st == NULL; i++)
        if (stored_at(u, file->entry(file, i)->name) < 0)
            u->shown[u->nshown++] = i;
    if (st == NULL)
        *adapter = &u->over.source;
    else
        release(u);
    return st;
}
