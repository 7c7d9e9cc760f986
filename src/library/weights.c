/* weights.c - opens, compares and initialises weights: sheaf/checkpoint.h. */
#include "base/base.h"
#include "base/thread.h"
#include "base/numeric_env.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/tools/init.h"
#include "catalog/boxes.h"
#include "library/structs.h"
#include "sheaf/checkpoint.h"

struct sheaf_weights {
    sheaf_probe probe;
    sheaf_weights_facts facts;
};

static size_t bytes_of(const sheaf_source_entry *e)
{
    return ((size_t)sheaf__elements(e->ndim, e->shape) * (size_t)sheaf_dtype_bits(e->dtype) + 7) /
           8;
}

static void count(sheaf_weights *w)
{
    w->facts = (sheaf_weights_facts){ .kind = w->probe.kind,
                                      .dialect = w->probe.dialect,
                                      .config = w->probe.config,
                                      .tied = w->probe.tied,
                                      .tensors = sheaf_weights_count(w) };
    for (int64_t i = 0; i < w->facts.tensors; i++) {
        const sheaf_source_entry *e = sheaf_weights_entry(w, i);
        w->facts.elements += sheaf__elements(e->ndim, e->shape);
        w->facts.bytes += (int64_t)bytes_of(e);
    }
}

sheaf_status *sheaf_weights_open(sheaf_weights **out, const char *path,
                                 const sheaf_weights_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_weights_options o;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_weights_options");
    sheaf_weights *w = NULL;
    *out = NULL;
    if (st == NULL && path == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_weights_open"), "a path");
    if (st == NULL && (w = calloc(1, sizeof *w)) == NULL)
        st = sheaf__no_memory(path);
    const sheaf_dialect_hints hints = { .from = o.dialect, .config = o.config };
    TRY(st, o.dialect == NULL && o.config == NULL ? sheaf_probe_open(&w->probe, path, false)
                                                  : sheaf_probe_open_as(&w->probe, path, &hints));
    if (st != NULL) {
        sheaf_weights_close(w);
        return st;
    }
    count(w);
    *out = w;
    return NULL;
}

void sheaf_weights_close(sheaf_weights *w)
{
    if (w != NULL)
        sheaf_probe_close(&w->probe);
    free(w);
}

sheaf_status *sheaf_weights_info(sheaf_weights_facts *facts, const sheaf_weights *w)
{
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_weights_facts");
    if (st == NULL)
        sheaf__struct_fill(facts, &w->facts, sizeof w->facts);
    return st;
}

int64_t sheaf_weights_count(const sheaf_weights *w)
{
    sheaf_source *source = w->probe.source;
    return source == NULL ? 0 : source->count(source);
}

const sheaf_source_entry *sheaf_weights_entry(const sheaf_weights *w, int64_t index)
{
    sheaf_source *source = w->probe.source;
    return index < 0 || index >= sheaf_weights_count(w) ? NULL : source->entry(source, index);
}

const sheaf_source_entry *sheaf_weights_find(const sheaf_weights *w, const char *name)
{
    sheaf_source *source = w->probe.source;
    return source == NULL || name == NULL ? NULL : source->find(source, name);
}

sheaf_status *sheaf_weights_read(void *dst, size_t bytes, const sheaf_weights *w, const char *name,
                                 int64_t row0, int64_t rows)
{
    const sheaf_source_entry *e = sheaf_weights_find(w, name);
    int64_t all, columns;
    if (e == NULL)
        return sheaf_fail(SHEAF_E_ARG, "no tensor '%s'", name == NULL ? "" : name);
    sheaf__entry_view(&all, &columns, e);
    if (row0 < 0 || row0 > all || rows < -1 || rows > all - row0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "'%s'", name), "rows within %lld",
                                          (long long)all),
                           "%lld from row %lld on", (long long)rows, (long long)row0);
    rows = rows < 0 ? all - row0 : rows;
    const size_t size =
        ((size_t)rows * (size_t)columns * (size_t)sheaf_dtype_bits(e->dtype) + 7) / 8;
    if (bytes != size)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "'%s'", name),
                                          "room of %zu bytes, the size of %lld rows", size,
                                          (long long)rows),
                           "%zu", bytes);
    return rows == 0 || columns == 0
               ? NULL
               : w->probe.source->read(w->probe.source, name, row0, rows, 0, columns, dst);
}

/* ---- diff and init ---- */

sheaf_status *sheaf_weights_diff(sheaf_weights_diff_report *report, const char *a, const char *b,
                                 const sheaf_weights_diff_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_weights_diff_options o;
    sheaf_weights_diff_report r;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_weights_diff_options");
    TRY(st, sheaf__struct_check(report, "sheaf_weights_diff_report"));
    if (st == NULL && (a == NULL || b == NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_weights_diff"), "two paths");
    TRY(st, sheaf_diff(&r, a, b, &o));
    if (st == NULL)
        sheaf__struct_fill(report, &r, sizeof r);
    return st;
}

sheaf_status *sheaf_weights_init(sheaf_weights_init_report *report,
                                 const sheaf_weights_init_options *options)
{
    SHEAF__NUMERIC_ENV;
    static const char what[] = "sheaf_weights_init_options";
    sheaf_weights_init_options o;
    sheaf_weights_init_report r;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, what);
    TRY(st, sheaf__struct_check(report, "sheaf_weights_init_report"));
    TRY(st, sheaf__check_dtype(what, o.dtype));
    TRY(st, sheaf__check_count(what, "threads", o.threads, SHEAF__MOST_THREADS));
    TRY(st, sheaf__check_count(what, "quantize", o.quantize, SHEAF_QUANTIZE_INT8));
    if (st == NULL && (o.spec == NULL || o.dst == NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "spec and dst");
    o.threads = sheaf__cores(o.threads);
    TRY(st, sheaf_init(&r, &o));
    if (st == NULL)
        sheaf__struct_fill(report, &r, sizeof r);
    return st;
}

const char *sheaf_weights_init_name(const char **what, int i)
{
    const sheaf__family_spec *spec = i < 0 ? NULL : sheaf__init_spec_at(i);
    *what = spec == NULL ? NULL : spec->what;
    return spec == NULL ? NULL : spec->name;
}
