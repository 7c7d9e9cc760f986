/* export.c - see export.h. */
#include "train/export.h"

#include "base/base.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/store/checkpoint.h"
#include "catalog/boxes.h"
#include "data/complaints.h"
#include "dialects/hf/hf.h"
#include "dialects/peft/peft.h"
#include "lora/stacked.h"
#include "ops/quant/quant.h"
#include "train/origin.h"
#include "train/tokenizer.h"

/* ---- reading a tensor as a flat array ---- */

static int64_t width_of(const sheaf_source_entry *e)
{
    return e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
}

static sheaf_status *read_stored(sheaf_source *source, const sheaf_source_entry *e, int64_t first,
                                 int64_t n, char *dst)
{
    const int64_t width = width_of(e), bytes = (int64_t)sheaf_dtype_bytes(e->dtype);
    sheaf_status *st = NULL;
    for (int64_t at = first; at < first + n && st == NULL;) {
        const int64_t left = first + n - at, col = at % width, whole = left / width;
        const int64_t rows = col == 0 && whole > 0 ? whole : 1;
        const int64_t cols = col == 0 && whole > 0 ? width
                             : left < width - col  ? left
                                                   : width - col;
        st = source->read(source, e->name, at / width, rows, col, cols, dst + (at - first) * bytes);
        at += rows * cols;
    }
    return st;
}

/* n numbers of a tensor from index `first` on, in its order, as `dtype`. */
static sheaf_status *read_numbers(void *dst, sheaf_dtype dtype, sheaf_source *source,
                                  const sheaf_source_entry *e, int64_t first, int64_t n,
                                  const sheaf__kernels *kernels)
{
    if (e->dtype == dtype)
        return read_stored(source, e, first, n, dst);
    void *stored = malloc((size_t)n * sheaf_dtype_bytes(e->dtype));
    if (stored == NULL)
        return sheaf__no_memory(e->name);
    sheaf_status *st = read_stored(source, e, first, n, stored);
    if (st == NULL)
        kernels->convert(dst, dtype, stored, e->dtype, n);
    free(stored);
    return st;
}

/* ---- the source ---- */

typedef struct stepped {
    sheaf_source source;
    sheaf_source *masters, *base;
    const sheaf__kernels *kernels;
} stepped;

static const char prefix[] = "master/";

static const sheaf_source_entry *master_of(sheaf_source *masters, const char *name)
{
    char master[600];
    return snprintf(master, sizeof master, "%s%s", prefix, name) < (int)sizeof master
               ? masters->find(masters, master)
               : NULL;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    return ((stepped *)self)->base->find(((stepped *)self)->base, name);
}
static int64_t count(sheaf_source *self)
{
    return ((stepped *)self)->base->count(((stepped *)self)->base);
}
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return ((stepped *)self)->base->entry(((stepped *)self)->base, i);
}

/* A box of the base's view: consecutive rows are read together. */
static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const stepped *s = (const stepped *)self;
    const sheaf_source_entry *e = s->base->find(s->base, name),
                             *m = e == NULL ? NULL : master_of(s->masters, name);
    if (m == NULL)
        return s->base->read(s->base, name, row0, rows, col0, cols, dst);
    const int64_t width = width_of(e), together = cols == width ? rows : 1;
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < rows && st == NULL; r += together)
        st = read_numbers((char *)dst + (size_t)(r * cols) * sheaf_dtype_bytes(e->dtype), e->dtype,
                          s->masters, m, (row0 + r) * width + col0, together * cols, s->kernels);
    return st;
}

static sheaf_source *behind(sheaf_source *self, const char **name)
{
    const stepped *s = (const stepped *)self;
    return master_of(s->masters, *name) != NULL ? NULL : s->base;
}

static const sheaf__quantised_source quantised = { .behind = behind };

static void close_stepped(sheaf_source *self)
{
    free(self);
}

static sheaf_status *check_master(const sheaf_source_entry *m, sheaf_source *base)
{
    const char *name = m->name + sizeof prefix - 1;
    const sheaf_source_entry *e = base->find(base, name);
    const int64_t have = sheaf__elements(m->ndim, m->shape),
                  want = e == NULL ? 0 : sheaf__elements(e->ndim, e->shape);
    if (e != NULL && have == want)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s' in the checkpoint", m->name);
    if (e == NULL)
        return sheaf_found(sheaf_expected(st, "a tensor '%s' in the base", name), "none");
    sheaf_expected(st, "%" PRId64 " numbers, as in the base", want);
    return sheaf_found(st, "%" PRId64, have);
}

sheaf_status *sheaf__stepped_source(sheaf_source **out, sheaf_source *masters, sheaf_source *base)
{
    const int64_t n = masters->count(masters);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *m = masters->entry(masters, i);
        sheaf_status *st =
            strncmp(m->name, prefix, sizeof prefix - 1) == 0 ? check_master(m, base) : NULL;
        if (st != NULL)
            return st;
    }
    stepped *s = malloc(sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("a model and its checkpoint");
    *s = (stepped){ { find, count, entry, read_box, close_stepped, &quantised },
                    masters,
                    base,
                    sheaf__kernels_for(NULL) };
    *out = &s->source;
    return NULL;
}

/* ---- the output ---- */

/* The source of an adapter's tensor. */
typedef struct source_of {
    const char *name;               /* in the checkpoint and in the base */
    const sheaf_lora_module *fused; /* the layer whose compact B it is, else NULL */
    const sheaf_lora_module *stack; /* the first of the stack whose factor it is, else NULL */
    char factor;                    /* of a stack: 'A' or 'B' */
    char *stack_name;               /* its name in the adapter, owned */
} source_of;

/* The tensors to write. Those of an adapter come from the checkpoint's masters, or from the base if
 * they were not trained; those of a model from `base` alone.
 */
typedef struct listed {
    sheaf_safetensors_spec *spec;
    int64_t count;
    source_of *from; /* of an adapter: [count] */
    const sheaf_lora *lora;
} listed;

typedef struct origin {
    const listed *l;
    sheaf_source *base, *masters; /* masters: of an adapter */
    const sheaf__kernels *kernels;
} origin;

/* The expanded B of a fused layer, from the compact one. */
static sheaf_status *spread_rows(const origin *o, const sheaf_source_entry *e,
                                 const sheaf_lora_module *m, int64_t row0, int64_t n, void *dst)
{
    float *compact = malloc((size_t)(n * m->rank) * sizeof *compact);
    if (compact == NULL)
        return sheaf__no_memory(e->name);
    sheaf_status *st =
        read_numbers(compact, SHEAF_F32, o->masters, e, row0 * m->rank, n * m->rank, o->kernels);
    if (st == NULL)
        sheaf_lora_spread(dst, compact, m, row0, n, sizeof *compact);
    free(compact);
    return st;
}

/* Rows of a factor of one module of a stack, from the checkpoint. */
static sheaf_status *member_rows(const origin *o, const char *name, int64_t row0, int64_t n,
                                 int64_t cols, float *dst)
{
    const sheaf_source_entry *e = master_of(o->masters, name);
    if (e == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s%s'", prefix, name),
                                          "it in the checkpoint"),
                           "nothing of that name");
    return read_numbers(dst, SHEAF_F32, o->masters, e, row0 * cols, n * cols, o->kernels);
}

/* A of all members, behind each other. */
static sheaf_status *stacked_a(const origin *o, const sheaf_lora_module *first, int64_t row0,
                               int64_t n, float *dst)
{
    sheaf_status *st = NULL;
    const int64_t cols = first->a_shape[1];
    for (const sheaf_lora_module *m = first; m != NULL && st == NULL;
         m = sheaf__lora_stack_next(o->l->lora, m)) {
        const int64_t begin = m->base->stack.member * m->rank, from = begin > row0 ? begin : row0,
                      end = begin + m->rank < row0 + n ? begin + m->rank : row0 + n;
        if (m->a_of == NULL && from < end)
            st = member_rows(o, m->a_name, from - begin, end - from, cols,
                             dst + (from - row0) * cols);
    }
    return st;
}

/* B of all members, whose columns alternate. */
static sheaf_status *stacked_b(const origin *o, const sheaf_lora_module *first, int64_t row0,
                               int64_t n, float *dst)
{
    const int64_t rank = first->rank, members = first->base->stack.members;
    float *own = malloc((size_t)(n * rank) * sizeof *own);
    sheaf_status *st = own == NULL ? sheaf__no_memory(first->b_name) : NULL;
    for (const sheaf_lora_module *m = first; m != NULL && st == NULL;
         m = sheaf__lora_stack_next(o->l->lora, m)) {
        const int64_t begin = m->base->stack.row, from = begin > row0 ? begin : row0,
                      last = begin + m->b_shape[0], end = last < row0 + n ? last : row0 + n;
        if (from >= end)
            continue;
        st = member_rows(o, m->b_name, from - begin, end - from, rank, own);
        for (int64_t r = 0; r < end - from && st == NULL; r++)
            for (int64_t k = 0; k < rank; k++)
                dst[(from - row0 + r) * rank * members + k * members + m->base->stack.member] =
                    own[r * rank + k];
    }
    free(own);
    return st;
}

static sheaf_status *rows(void *self, int64_t index, int64_t row0, int64_t n, void *dst)
{
    const origin *o = self;
    const source_of *of = o->masters == NULL ? NULL : &o->l->from[index];
    if (of != NULL && of->stack != NULL)
        return of->factor == 'A' ? stacked_a(o, of->stack, row0, n, dst)
                                 : stacked_b(o, of->stack, row0, n, dst);
    const sheaf_safetensors_spec *spec = &o->l->spec[index];
    const int64_t cols = spec->ndim > 1 ? spec->shape[spec->ndim - 1] : 1;
    const char *name = of == NULL ? spec->name : of->name;
    const sheaf_lora_module *fused = of == NULL ? NULL : of->fused;
    const sheaf_source_entry *e = o->masters == NULL ? NULL : master_of(o->masters, name);
    const int64_t want = fused != NULL ? sheaf__elements(2, fused->b_shape)
                                       : sheaf__elements(spec->ndim, spec->shape);
    if (e != NULL && sheaf__elements(e->ndim, e->shape) != want)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s' in the checkpoint", e->name),
                              "%lld numbers", (long long)want);
    if (e != NULL && fused != NULL)
        return spread_rows(o, e, fused, row0, n, dst);
    sheaf_source *source = e != NULL ? o->masters : o->base;
    if (e == NULL)
        e = o->base->find(o->base, name);
    if (e == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", name),
                                          "it in the checkpoint or in the base"),
                           "nothing of that name");
    sheaf_source_entry named = *e; /* the name in the adapter differs */
    named.name = source == o->base ? name : e->name;
    return read_numbers(dst, spec->dtype, source, &named, row0 * cols, n * cols, o->kernels);
}

enum { CHUNK = 1 << 20 }; /* bytes at a time */

/* A and B of a stack, under names that no module has. */
static sheaf_status *list_stack(listed *l, const sheaf_lora *lora, const sheaf_lora_module *m)
{
    const int64_t all = m->base->stack.members * m->rank;
    for (int b = 0; b < 2; b++) {
        const char factor = b ? 'B' : 'A';
        char *name = sheaf__lora_stack_name(lora, m, factor);
        if (name == NULL)
            return sheaf__no_memory("adapter");
        l->from[l->count] = (source_of){ .stack = m, .factor = factor, .stack_name = name };
        l->spec[l->count++] = (sheaf_safetensors_spec){
            name, SHEAF_F32, 2, { b ? m->base->stack.rows : all, b ? all : m->a_shape[1] }
        };
    }
    return NULL;
}

static sheaf_status *list_module(listed *l, const sheaf_lora *lora, const sheaf_lora_module *m)
{
    if (m->stacked)
        return sheaf__lora_stack_first(lora, m) == m ? list_stack(l, lora, m) : NULL;
    l->from[l->count].name = m->a_name;
    l->spec[l->count++] =
        (sheaf_safetensors_spec){ m->a_name, SHEAF_F32, 2, { m->a_shape[0], m->a_shape[1] } };
    l->from[l->count] = (source_of){ m->b_name, .fused = m->parts > 1 && !m->dense ? m : NULL };
    l->spec[l->count++] =
        (sheaf_safetensors_spec){ m->b_name, SHEAF_F32, 2, { m->b_shape[0], m->file_rank } };
    if (m->m_name != NULL) {
        l->from[l->count].name = m->m_name;
        l->spec[l->count++] =
            (sheaf_safetensors_spec){ m->m_name, SHEAF_F32, 1, { m->b_shape[0] } };
    }
    return NULL;
}

static void list_saved(listed *l, const sheaf_tensor *t, const char *name)
{
    sheaf_safetensors_spec *spec = &l->spec[l->count];
    l->from[l->count++].name = t->name;
    *spec = (sheaf_safetensors_spec){ name, SHEAF_F32, t->ndim, { 0 } };
    memcpy(spec->shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
}

static sheaf_status *list_adapter(listed *l, const sheaf_lora *lora)
{
    const size_t count = 3 * (size_t)lora->nmodules + (size_t)lora->nsaved + 1;
    l->lora = lora;
    l->spec = calloc(count, sizeof *l->spec);
    l->from = calloc(count, sizeof *l->from);
    sheaf_status *st = l->spec == NULL || l->from == NULL ? sheaf__no_memory("adapter") : NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++)
        st = list_module(l, lora, &lora->module[i]);
    if (st != NULL)
        return st;
    for (int i = 0; i < lora->nsaved; i++) {
        list_saved(l, lora->saved[i], lora->saved_name[i]);
        if (lora->twin_name != NULL && lora->saved[i]->role == SHEAF_EMBED)
            list_saved(l, lora->saved[i], lora->twin_name);
    }
    return NULL;
}

sheaf_status *sheaf__export_adapter(const char *dst, bool replace, const sheaf_lora *lora,
                                    const char *model, sheaf_source *masters, sheaf_source *base,
                                    const char *progress, const char *tokenizer,
                                    const sheaf__chat_files *chat)
{
    listed l = { 0 };
    char *config = NULL, print[33];
    sheaf_folder *folder = NULL;
    sheaf_lora_options options = lora->options;
    options.base_name = (char *)model;
    sheaf_status *st = list_adapter(&l, lora);
    TRY(st, sheaf_lora_options_json(&config, &options));
    TRY(st, sheaf__origin_weights(print, progress));
    TRY(st, sheaf_peft_begin(&folder, dst, config, print, l.spec, l.count, replace));
    TRY(st, sheaf__chat_files_put(folder, chat));
    TRY(st, tokenizer != NULL ? sheaf_hf_copy_tokenizer(folder, tokenizer) : NULL);
    if (st == NULL) {
        origin from = { &l, base, masters, sheaf__kernels_for(NULL) };
        st = sheaf__folder_write_all(folder, rows, &from, CHUNK);
    }
    st = sheaf__folder_end(folder, st);
    free(config);
    for (int64_t i = 0; i < l.count; i++)
        free(l.from[i].stack_name);
    free(l.from);
    free(l.spec);
    return st;
}

sheaf_status *sheaf__export_model(const char *dst, bool replace, const sheaf__opened *opened,
                                  const char *model, sheaf_source *masters,
                                  const sheaf__chat_files *chat)
{
    listed l = { 0 };
    char *config = NULL;
    sheaf_folder *folder = NULL;
    sheaf_source *stepped = NULL, *base = opened->widened != NULL ? opened->widened : opened->base;
    sheaf_status *st = sheaf__stepped_source(&stepped, masters, base);
    TRY(st, sheaf_hf_specs(&l.spec, &l.count, opened->schema, base, SHEAF_F32));
    TRY(st, sheaf_hf_config_whole(&config, opened->config.json, &opened->config, false));
    TRY(st, sheaf_hf_begin(
                &folder, dst, config, l.spec, l.count,
                &(sheaf_folder_options){ .replace = replace, .file_names = opened->file_names }));
    if (st == NULL) {
        origin from = { &l, stepped, NULL, sheaf__kernels_for(NULL) };
        st = sheaf__chat_files_put(folder, chat);
        TRY(st, sheaf_hf_copy_extras(folder, model, NULL));
        TRY(st, sheaf__folder_write_all(folder, rows, &from, CHUNK));
    }
    st = sheaf__folder_end(folder, st);
    if (stepped != NULL)
        stepped->close(stepped);
    free(config);
    free(l.spec);
    return st;
}

static sheaf_status *export_from(const char *dst, const char *checkpoint,
                                 const sheaf_train_options *o, const sheaf__opened *opened,
                                 const sheaf_events *events)
{
    sheaf_checkpoint *from = NULL;
    sheaf_source *masters = NULL;
    const char *name = o->base_name != NULL ? o->base_name : o->model;
    const sheaf__chat_files chat = sheaf__run_chat_files(o, o->model, o->tokens_in);
    sheaf_status *st = sheaf_checkpoint_open(&from, checkpoint);
    TRY(st, sheaf__checkpoint_source(&masters, from));
    TRY(st, sheaf__output_sweep(dst, events));
    TRY(st, o->method == SHEAF_METHOD_LORA
                ? sheaf__export_adapter(dst, true, opened->lora, name, masters, opened->weights,
                                        from->manifest->progress, o->tokens_in, &chat)
                : sheaf__export_model(dst, true, opened, o->model, masters, &chat));
    if (masters != NULL)
        masters->close(masters);
    sheaf_checkpoint_close(from);
    return st;
}

/* OUT/PART/step-N. */
static const char *step_folder(char path[SHEAF_PATH_SIZE], const sheaf_train_options *o,
                               const char *part, int64_t step)
{
    char name[SHEAF__STEP_NAME];
    snprintf(path, SHEAF_PATH_SIZE, "%s/%s/%s", o->out, part, sheaf__step_name(name, step));
    return path;
}

sheaf_status *sheaf__export_step(const sheaf_train_options *o, const sheaf__opened *opened,
                                 int64_t step, bool only_missing, const sheaf_events *events)
{
    char checkpoint[SHEAF_PATH_SIZE], dst[SHEAF_PATH_SIZE];
    step_folder(dst, o, "exports", step);
    if (only_missing && sheaf__path_kind(dst) != SHEAF_PATH_NONE)
        return NULL;
    sheaf_status *st =
        export_from(dst, step_folder(checkpoint, o, "checkpoints", step), o, opened, events);
    if (st == NULL)
        sheaf_note(events, "wrote %s", dst);
    return st;
}

/* The best step's checkpoint is lost; the last one is whole. */
static sheaf_status *best_is_lost(sheaf_status *st, const char *checkpoint, const char *out)
{
    sheaf_damages damages = { 0 };
    sheaf_status *looked = sheaf_checkpoint_examine(&damages, checkpoint, false);
    if (looked == NULL && damages.count > 0)
        sheaf__try_path(sheaf_in(st, "`use-best`"),
                        "put that checkpoint back, or take the last step as the result: sheaf "
                        "train --resume --out ",
                        out, " --no-use-best");
    sheaf_status_free(looked);
    return st;
}

sheaf_status *sheaf__export(char **result, char **checkpoint, const sheaf_train_options *o,
                            const sheaf__opened *opened, int64_t step, int64_t from,
                            const sheaf_events *events)
{
    const bool lora = o->method == SHEAF_METHOD_LORA;
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = sheaf__path_join(result, o->out, lora ? "adapter" : "model");
    *checkpoint = strdup(step_folder(path, o, "checkpoints", step));
    if (st == NULL && *checkpoint == NULL)
        st = sheaf__no_memory("result of the run");
    TRY(st, export_from(*result, step_folder(path, o, "checkpoints", from), o, opened, events));
    return st != NULL && from != step ? best_is_lost(st, path, o->out) : st;
}
