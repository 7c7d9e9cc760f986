/* start.c - new factors: of random numbers, or made of whole weights (lora/start.h), each by one
 * rank. */
#include <math.h>

#include "base/base.h"
#include "base/random.h"
#include "catalog/boxes.h"
#include "lora/start.h"
#include "models/build.h"
#include "ops/tensor/tensor.h"
#include "tape/transfer.h"

/* Numbers of a factor by their place in the whole: those of `all`; else random ones of a seed,
 * normal of this deviation or, for 0, uniform within `bound`. */
typedef struct numbers {
    const float *all;
    uint64_t seed, key;
    float deviation, bound;
} numbers;

static float number(const numbers *of, uint64_t at)
{
    if (of->all != NULL)
        return of->all[at];
    if (of->deviation > 0)
        return of->deviation * sheaf__random_normal(of->seed, of->key, at);
    return (2 * sheaf__unit_float(sheaf__random_tensor_u32(of->seed, of->key, at)) - 1) * of->bound;
}

/* The slices of a factor that are here. */
static sheaf_status *fill(sheaf__device *device, const sheaf__trained *t, const numbers *of)
{
    sheaf_status *st = NULL;
    for (int s = t->first; s < t->first + t->count; s++) {
        const size_t bytes = (size_t)t->numel[s] * sizeof(float);
        float *x = NULL;
        TRY(st, sheaf__borrow(&x, device, t->master[s], bytes, false));
        for (int part = 0; part < sheaf__trained_parts(t) && x != NULL; part++) {
            sheaf_range rows, cols;
            float *to = x + sheaf__trained_at(t, part, s);
            sheaf__trained_box(t, part, s, &rows, &cols);
            for (int64_t r = rows.begin; r < rows.end; r++)
                for (int64_t c = cols.begin; c < cols.end; c++)
                    *to++ = number(of, (uint64_t)(r * t->shape[1] + c));
        }
        TRY(st, sheaf__return(x, device, t->master[s], bytes, true));
    }
    return st;
}

/* ---- element by element ---- */

static sheaf_status *fresh_factor(const sheaf__model *m, const sheaf__trained *t, float deviation)
{
    return fill(m->context->device, t,
                &(numbers){ .seed = m->options.seed,
                            .key = sheaf__name_key(t->name),
                            .deviation = deviation,
                            /* kaiming_uniform(a = sqrt 5) */
                            .bound = (float)(1.0 / sqrt((double)t->shape[1])) });
}

static sheaf_status *zero_factor(const sheaf__model *m, const sheaf__trained *t)
{
    for (int s = t->first; s < t->first + t->count; s++)
        sheaf__op_zero(m->context->device, t->master[s], t->numel[s], SHEAF_F32);
    return NULL;
}

/* Of a table A is zero, and B as torch.nn.init.normal_() makes it; else B is zero, mostly. */
sheaf_status *sheaf__fresh_factors(const sheaf__model *m, const sheaf_lora_module *module,
                                   const sheaf__factors *f)
{
    const sheaf_lora_init init = m->options.lora->options.init;
    const float deviation = init == SHEAF_LORA_GAUSSIAN ? 1 / (float)module->rank : 0;
    if (sheaf__start_is_whole(init))
        return NULL;
    if (module->base->role == SHEAF_EMBED)
        return sheaf__first_of(zero_factor(m, f->a), fresh_factor(m, f->b, 1));
    return sheaf__first_of(fresh_factor(m, f->a, deviation), init == SHEAF_LORA_RANDOM
                                                                 ? fresh_factor(m, f->b, 0)
                                                                 : zero_factor(m, f->b));
}

/* ---- of whole weights ---- */

/* Rows [row0, row0 + rows) of the base's weight, in float32. */
static sheaf_status *read_weight(float *to, sheaf_source *base, const char *name, int64_t row0,
                                 int64_t rows, int64_t cols)
{
    const sheaf_source_entry *e = base->find(base, name);
    if (e == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                              "a tensor of this name in the files");
    return sheaf__start_read(to, cols, base, e, row0, rows, cols);
}

static sheaf_status *take(float **out, sheaf__device *device, int64_t n)
{
    void *block = NULL;
    sheaf_status *st =
        sheaf__host_alloc(&block, device, (size_t)n * sizeof **out, SHEAF_MEM_SCRATCH);
    *out = block;
    return st;
}

/* The share of `rows` rows of the weight from row0 on, part `part` of a module: of A [shape] and
 * B. */
static sheaf_status *make_part(float *a, float *b, const sheaf__model *m, sheaf_source *base,
                               const sheaf_lora_module *module, int part, int64_t row0,
                               int64_t rows)
{
    const sheaf_lora_init init = m->options.lora->options.init;
    const bool held = sheaf__start_is_held(init);
    const int64_t in = module->a_shape[1], all = module->b_shape[1], rank = held ? all / 2 : all;
    sheaf__device *device = m->context->device;
    float *w = NULL;
    sheaf_status *st = NULL;
    if (held) {
        st = take(&w, device, rows * in);
        TRY(st, read_weight(w, base, module->base->name, row0, rows, in));
    }
    a += part * all * in;
    b += row0 * all;
    const sheaf__start how = { .w = w,
                               .name = module->base->name,
                               .out = rows,
                               .in = in,
                               .rank = rank,
                               .scale = module->scale,
                               .seed = m->options.seed,
                               .key = sheaf__name_key(module->a_name) + 3 * (uint64_t)part,
                               .pool = device->pool,
                               .device = device };
    TRY(st, held ? sheaf__start_hold(a, b, true, init, &how)
                 : sheaf__start_make(a, b, all, init, &how));
    sheaf__host_free(device, w);
    return st;
}

/* Parts of a module that are made one by one, and the rows of one. */
static int parts_of(const sheaf_lora_module *module)
{
    return module->dense ? 1 : module->parts;
}

static int64_t part_rows(const sheaf_lora_module *module, int part)
{
    const sheaf_part *of = &module->base->cut.part[part];
    return parts_of(module) > 1 ? of->units * of->rows_per_unit : module->b_shape[0];
}

/* Of A and B. */
static int64_t numbers_of(const sheaf_lora_module *module)
{
    return sheaf__elements(2, module->a_shape) + sheaf__elements(2, module->b_shape);
}

/* All of a module: A, behind it B. */
static sheaf_status *make_module(float *a, const sheaf__model *m, sheaf_source *base,
                                 const sheaf_lora_module *module)
{
    float *b = a + sheaf__elements(2, module->a_shape);
    sheaf_status *st = NULL;
    int64_t row = 0;
    for (int p = 0; p < parts_of(module) && st == NULL; row += part_rows(module, p++))
        st = make_part(a, b, m, base, module, p, row, part_rows(module, p));
    return st;
}

/* Each rank makes the factors of one module, and all have those of as many then. */
static sheaf_status *make_some(sheaf__model *m, sheaf_source *base, int first)
{
    const sheaf__context *c = m->context;
    const sheaf_lora *lora = m->options.lora;
    sheaf_status *st = NULL;
    float *made = NULL;
    for (int turn = 0; turn <= c->ranks; turn++) { /* its own, then all of them in order */
        const int rank = turn == 0 ? c->rank : turn - 1, i = first + rank;
        if (i >= lora->nmodules)
            continue;
        const sheaf_lora_module *module = &lora->module[i];
        const int64_t of_a = sheaf__elements(2, module->a_shape), n = numbers_of(module);
        const bool own = rank == c->rank;
        float *all = made;
        if (all == NULL || !own)
            st = sheaf__first_of(st, take(&all, c->device, n));
        made = own ? all : made;
        if (turn == 0) {
            TRY(st, make_module(made, m, base, module));
            continue;
        }
        if (c->comm != NULL)
            TRY(st, sheaf_comm_broadcast(c->comm, all, (size_t)n * sizeof *all, rank));
        TRY(st, fill(c->device, m->lora[i].a, &(numbers){ .all = all }));
        TRY(st, fill(c->device, m->lora[i].b, &(numbers){ .all = all + of_a }));
        if (!own)
            sheaf__host_free(c->device, all);
    }
    sheaf__host_free(c->device, made);
    return st;
}

static bool makes_start(const sheaf__model *m)
{
    const sheaf_lora *lora = m->options.lora;
    return lora != NULL && m->options.train_lora && sheaf__start_is_whole(lora->options.init);
}

/* Of the modules that this rank makes, the largest, or of all ranks' the largest factors twice: its
 * own lie beside those of another. */
size_t sheaf__model_start_bytes(const sheaf__model *m)
{
    const sheaf_lora *lora = m->options.lora;
    size_t most = 0;
    for (int i = 0; makes_start(m) && i < lora->nmodules; i++) {
        const sheaf_lora_module *module = &lora->module[i];
        const sheaf_lora_init init = lora->options.init;
        const bool held = sheaf__start_is_held(init);
        const int64_t in = module->a_shape[1], rank = module->b_shape[1] / (held ? 2 : 1);
        const size_t factors = (size_t)numbers_of(module) * sizeof(float),
                     two = m->context->ranks > 1 ? 2 * factors : 0;
        most = two > most ? two : most;
        for (int p = 0; p < parts_of(module) && i % m->context->ranks == m->context->rank; p++) {
            const int64_t rows = part_rows(module, p);
            const size_t bytes = factors + sheaf__start_bytes(init, rows, in, rank) +
                                 (held ? (size_t)(rows * in) * sizeof(float) : 0);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

sheaf_status *sheaf__model_start(sheaf__model *m, sheaf_source *base, sheaf_status *st)
{
    const sheaf_lora *lora = m->options.lora;
    if (!makes_start(m))
        return st;
    for (int i = 0; i < lora->nmodules && st == NULL; i += m->context->ranks)
        st = make_some(m, base, i);
    return m->context->comm != NULL ? sheaf_comm_agree(m->context->comm, st) : st;
}
