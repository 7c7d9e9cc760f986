/* requantise.c - merging onto weights in 4 or 8 bits that stay so; see plan.h.
 *
 * What PEFT's merge_and_unload() does onto such a base: the changed weight, in float32, is
 * quantised anew, with new scales. Others are copied as the base's files have them. */
#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "catalog/packing.h"
#include "checkpoint/merge/plan.h"
#include "checkpoint/store/stream.h"
#include "dialects/open.h"
#include "ops/quant/quantise.h"

/* ---- what can be ---- */

static sheaf_status *refuse(const sheaf__merge_tensor *t, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' of the base: `requantize`", t->name);
    sheaf_expected(st, "weights of bitsandbytes, NF4, FP4 or int8");
    sheaf_found(st, "%s", found);
    return sheaf_try_this(st,
                          "without `requantize` the merged model has plain weights, which sheaf "
                          "convert --quantize takes");
}

sheaf_status *sheaf__merge_requantise_open(sheaf__merge_plan *p,
                                           const sheaf_weights_merge_options *o)
{
    sheaf_status *st = NULL;
    if (o->quantize != SHEAF_QUANTIZE_NONE)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`requantize`"),
                                             "a base that is stored in 4 or 8 bits"),
                              "sheaf convert %s BASE --to hf --quantize ..., and merge onto that",
                              o->base);
    if (p->nquantised == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`requantize`"),
                                          "a base with weights in 4 or 8 bits"),
                           "%s, whose weights are plain", o->base);
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        if (t->requantised && !sheaf__bnb_writes(t->form))
            st = refuse(t, "another form");
        else if (t->requantised && t->form->codes == SHEAF__INT8 && t->panel < t->cols)
            st = refuse(t, "int8 with rows that are too wide for these ranks");
    }
    return TRY(st, sheaf__open_source(&p->files, o->base,
                                      &(sheaf_dialect_hints){
                                          .config = o->config, .as_stored = true, .raw = true }));
}

/* ---- the output ---- */

static const sheaf__merge_tensor *with_form(const sheaf__merge_plan *p, const char *name)
{
    for (int64_t i = 0; i < p->count; i++)
        if (p->tensor[i].form != NULL && strcmp(p->tensor[i].name, name) == 0)
            return &p->tensor[i];
    return NULL;
}

/* The weight that a tensor of the files is a part of; NULL: none, it is plain. */
static const sheaf__merge_tensor *weight_of(const sheaf__merge_plan *p, const char *name)
{
    const sheaf__merge_tensor *t = NULL;
    char weight[600];
    for (int i = 0; t == NULL && i < sheaf__packings_count * SHEAF__PARTS; i++) {
        const char *suffix = sheaf__packings[i / SHEAF__PARTS].suffix[i % SHEAF__PARTS];
        if (suffix == NULL || !sheaf__ends_with(name, suffix))
            continue;
        snprintf(weight, sizeof weight, "%.*s.weight", (int)(strlen(name) - strlen(suffix)), name);
        t = with_form(p, weight);
    }
    return t;
}

/* Tensors of the files that belong to weights which stay as they are. */
static sheaf_status *list_kept(sheaf__merge_kept *kept, const sheaf__merge_plan *p)
{
    const int64_t n = p->files->count(p->files);
    kept->entry = calloc((size_t)n + 1, sizeof *kept->entry);
    if (kept->entry == NULL)
        return sheaf__no_memory("merge");
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = p->files->entry(p->files, i);
        const sheaf__merge_tensor *t = weight_of(p, e->name);
        if (t != NULL && t->kept)
            kept->entry[kept->count++] = *e;
    }
    return NULL;
}

sheaf_status *sheaf__merge_requantise_begin(sheaf__merge_output *out, const sheaf__merge_plan *p)
{
    sheaf_status *st = list_kept(&out->kept, p);
    const size_t most = (size_t)(p->count + out->kept.count) + 1;
    sheaf__coded_tensor *list = calloc(most, sizeof *list);
    int64_t n = out->kept.count; /* these first, in their order */
    out->index = calloc(most, sizeof *out->index);
    TRY(st, list == NULL || out->index == NULL ? sheaf__no_memory("merge") : NULL);
    for (int64_t i = 0; i < n && st == NULL; i++)
        list[i].spec = out->kept.entry[i];
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        if (t->kept)
            continue;
        list[n].spec = p->specs[i];
        if (t->requantised) {
            list[n].packing = sheaf__packing_of(SHEAF__BITSANDBYTES, t->form->codes);
            list[n].form = *t->form;
            list[n].form.dtype = SHEAF_F32; /* as PEFT: what is quantised is float32 */
        }
        out->index[i] = n++;
    }
    TRY(st, sheaf__packer_new(&out->quantising, list, n));
    free(list);
    return st;
}

sheaf_status *sheaf__merge_kept_put(void *output, int64_t index, int64_t row0, int64_t rows,
                                    int64_t col0, int64_t cols, const void *src)
{
    const sheaf__merge_output *out = output;
    return sheaf__packer_put(out->quantising, index, row0, rows, col0, cols, src);
}

/* ---- the check ---- */

typedef struct checking {
    sheaf__merge_workers *workers;
    sheaf_source *written;
    const sheaf_source_entry *entry;
    pthread_mutex_t lock;
    double worst, sum, largest; /* differences of a tensor; its largest merged value */
    double *sums;               /* of each chunk: their sum does not depend on threads */
} checking;

static sheaf_status *damaged(const sheaf__merge_tensor *t, int64_t row0, int64_t rows,
                             const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "'%s', rows %" PRId64 " to %" PRId64, t->name, row0,
                                  row0 + rows - 1);
    sheaf_found(sheaf_expected(st, "the written values to read back as computed"), "%s", found);
    return sheaf_try_this(st, "this output is not kept; suspect memory or disk of this machine");
}

/* The codes of values that fill whole blocks, within rows that were read back. */
static sheaf_status *compare_codes(const checking *c, const sheaf__merge_tensor *t,
                                   const float *values, int64_t row0, int64_t rows)
{
    const sheaf__quant *form = sheaf__source_form(c->written, t->name);
    if (form == NULL)
        return damaged(t, row0, rows, "no codes");
    const sheaf__quant_box box = { t->cols, row0, rows, 0, t->cols };
    const bool eight = form->codes == SHEAF__INT8;
    const int64_t n = rows * t->cols, groups = rows * sheaf__quant_groups(form, &box),
                  block = eight ? t->cols : form->block, begin = row0 * t->cols;
    const int64_t skip = (block - begin % block) % block,
                  all = begin + n == t->rows * t->cols ? n - skip : (n - skip) / block * block;
    uint8_t *codes = malloc((size_t)(2 * n + groups)), *scale_codes = codes + 2 * n;
    float *scales = malloc((size_t)(2 * groups + n) * sizeof *scales);
    sheaf_status *st = codes == NULL || scales == NULL ? sheaf__no_memory(t->name) : NULL;
    TRY(st, sheaf__source_codes(c->written, t->name, row0, rows, 0, t->cols,
                                &(sheaf__quant_parts){ codes, form->doubled ? NULL : scales,
                                                       form->doubled ? scale_codes : NULL, NULL }));
    if (st == NULL && all > 0) {
        float *absmax = scales + groups;
        if (eight)
            sheaf__quantise_rows(codes + n, absmax, values, SHEAF_F32, rows, t->cols);
        else
            sheaf__quantise4(codes + n, absmax, values + skip, SHEAF_F32, all, block, form->codes);
        if (memcmp(codes + skip, codes + n, (size_t)all) != 0)
            st = damaged(t, row0, rows, "other codes");
    }
    free(scales);
    free(codes);
    return st;
}

static sheaf_status *one_chunk(void *context, int64_t row0, int64_t rows, int64_t index, int worker)
{
    checking *c = context;
    const sheaf__merge_rows *m = &c->workers->rows;
    sheaf__merge_scratch *s = &c->workers->scratch[worker];
    sheaf__lora_change ignored;
    const int64_t n = rows * m->cols;
    double worst = 0, largest = 0, sum = 0;
    sheaf_status *st = sheaf__stopped(c->workers->stop, "merge");
    TRY(st, sheaf__merge_tile(&ignored, s, &c->workers->rows, row0, rows));
    TRY(st, m->cols == m->t->cols ? compare_codes(c, m->t, s->out, row0, rows) : NULL);
    TRY(st, sheaf__lora_read_view(c->written, c->entry, row0, rows, m->col0, m->cols, s->stored));
    if (st != NULL)
        return st;
    m->kernels->convert(s->w, SHEAF_F32, s->stored, c->entry->dtype, n);
    for (int64_t i = 0; i < n; i++) {
        const double merged = (double)((const float *)s->out)[i],
                     by = fabs((double)s->w[i] - merged);
        worst = by > worst || isnan(by) ? by : worst;
        largest = fabs(merged) > largest ? fabs(merged) : largest;
        sum += by;
    }
    c->sums[index] += sum;
    pthread_mutex_lock(&c->lock);
    c->worst = worst > c->worst || isnan(worst) ? worst : c->worst;
    c->largest = largest > c->largest ? largest : c->largest;
    pthread_mutex_unlock(&c->lock);
    return st;
}

static sheaf_status *check_tensor(checking *c, const sheaf__merge_tensor *t)
{
    const int64_t chunks = sheaf__stream_chunks(t->rows, t->chunk);
    c->entry = c->written->find(c->written, t->name);
    c->sums = calloc((size_t)chunks + 1, sizeof *c->sums);
    c->worst = c->sum = c->largest = 0;
    c->workers->rows.t = t;
    sheaf_status *st = c->sums == NULL    ? sheaf__no_memory(t->name)
                       : c->entry == NULL ? damaged(t, 0, t->rows, "no such tensor")
                                          : NULL;
    for (int64_t col = 0; col < t->cols && st == NULL; col += t->panel) {
        st = sheaf__merge_rows_panel(&c->workers->rows, col);
        TRY(st, sheaf__stream_rows(c->workers->pool, t->rows, t->chunk, one_chunk, c));
    }
    for (int64_t i = 0; i < chunks && st == NULL; i++)
        c->sum += c->sums[i];
    free(c->sums);
    /* The farthest from two neighbours of the tables is 0.17 of a block's largest value. */
    if (st == NULL && !(c->worst <= 0.2 * c->largest))
        st = damaged(t, 0, t->rows, "values far from them");
    return st;
}

sheaf_status *sheaf__merge_check_requantised(sheaf__merge_workers *workers,
                                             const sheaf__merge_plan *plan, sheaf_source *written,
                                             sheaf_weights_merge_report *report)
{
    checking c = { .workers = workers, .written = written, .lock = PTHREAD_MUTEX_INITIALIZER };
    double sum = 0, elements = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < plan->count && st == NULL; i++) {
        const sheaf__merge_tensor *t = &plan->tensor[i];
        if (!t->requantised)
            continue;
        st = check_tensor(&c, t);
        sum += c.sum;
        elements += (double)(t->rows * t->cols);
        report->rows_checked += t->rows;
        if (c.worst >= report->requantise_worst) {
            report->requantise_worst = c.worst;
            snprintf(report->requantise_tensor, sizeof report->requantise_tensor, "%s", t->name);
        }
    }
    report->requantise_mean = elements > 0 ? sum / elements : 0;
    pthread_mutex_destroy(&c.lock);
    return st;
}
