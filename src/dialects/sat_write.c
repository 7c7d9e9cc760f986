/* sat_write.c - see sat_write.h. */
#include "dialects/sat_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/output.h"
#include "base/text.h"
#include "dialects/hf.h"
#include "formats/torch.h"

enum { CHUNK = 8 << 20 }; /* bytes read at once, and at least a row */

typedef struct writing {
    sheaf_source *source;
    const sheaf_sat_write_options *how;
    const sheaf_schema *schema;
    sheaf_output *output;
    int ways;
    sheaf_torch_writer **part;
    const sheaf_source_entry **entry; /* one for each tensor of the schema */
    char *chunk, *cut;
    int64_t done, total;              /* bytes */
} writing;

/* ---- can it be? ---- */

static bool splits(const sheaf_tensor *t, int ways)
{
    for (int i = 0; t->sat_split && i < t->cut.nparts; i++)
        if (t->cut.part[i].units % ways != 0)
            return false;
    return true;
}

bool sheaf_sat_ways_fit(const sheaf_schema *schema, int ways)
{
    for (int64_t i = 0; i < schema->count; i++)
        if (!splits(&schema->tensor[i], ways))
            return false;
    return ways >= 1;
}

static sheaf_status *check_ways(const sheaf_schema *schema, int ways)
{
    if (ways >= 1 && ways <= SHEAF_SAT_MOST_WAYS && sheaf_sat_ways_fit(schema, ways))
        return NULL;
    sheaf_text possible = { 0 };
    for (int n = 1; n <= SHEAF_SAT_MOST_WAYS; n++)
        if (sheaf_sat_ways_fit(schema, n))
            sheaf__text_add(&possible, "%s%d", possible.size > 0 ? ", " : "", n);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "model-parallel size");
    sheaf_expected(st, "a number that divides heads, MLPs and vocabulary of this model: %s", possible.at != NULL ? possible.at : "1");
    sheaf__text_release(&possible);
    for (int64_t i = 0; i < schema->count && ways >= 1 && ways <= SHEAF_SAT_MOST_WAYS; i++)
        if (!splits(&schema->tensor[i], ways))
            return sheaf_found(st, "%d; '%s' has %" PRId64 " %s", ways, schema->tensor[i].name, schema->tensor[i].cut.part[0].units,
                               schema->tensor[i].cut.part[0].rows_per_unit > 1 ? "heads" : "rows or columns");
    return sheaf_found(st, "%d", ways);
}

static sheaf_status *check_tensor(const writing *w, const sheaf_tensor *t, const sheaf_source_entry *e)
{
    if (e == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", t->name);
        return sheaf_found(sheaf_expected(st, "every tensor of %s", sheaf_family_name(w->schema->config.family)), "none of this name");
    }
    bool same = e->ndim == t->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = e->shape[d] == t->shape[d];
    if (!same) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", t->name);
        sheaf_expected(st, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], %d axes, by the config", t->shape[0], t->shape[1],
                       t->shape[2], t->shape[3], t->ndim);
        return sheaf_found(st, "%d axes, the first of %" PRId64, e->ndim, e->ndim > 0 ? e->shape[0] : 1);
    }
    if (sheaf_dtype_bytes(e->dtype) == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': %s in a PyTorch file", t->name, sheaf_dtype_name(e->dtype));
    return NULL;
}

static sheaf_status *match(writing *w)
{
    sheaf_status *st = NULL;
    w->entry = calloc((size_t)w->schema->count, sizeof *w->entry);
    if (w->entry == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "writing a SAT checkpoint");
    for (int64_t i = 0; st == NULL && i < w->schema->count; i++) {
        const sheaf_tensor *t = &w->schema->tensor[i];
        w->entry[i] = w->source->find(w->source, t->name);
        st = check_tensor(w, t, w->entry[i]);
        if (st == NULL)
            w->total += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * (int64_t)sheaf_dtype_bytes(w->entry[i]->dtype);
    }
    for (int64_t i = 0; st == NULL && i < w->source->count(w->source); i++) {
        const char *name = w->source->entry(w->source, i)->name;
        if (sheaf_schema_find(w->schema, name) == NULL)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name), "only tensors of %s, by the config",
                                            sheaf_family_name(w->schema->config.family)), "one more");
    }
    return st;
}

/* ---- the small files ---- */

/* `json` with a key inside one of its objects set; the text as it is when there is no such object. */
static sheaf_status *set_inside(char **out, const char *json, const char *object, const char *key, const char *value)
{
    sheaf_json_scan scan;
    char *inner = NULL, *changed = NULL;
    *out = NULL;
    sheaf_status *st = sheaf__scan_init(&scan, json, strlen(json), true);
    if (st == NULL && !sheaf__scan_take(&scan, '{'))
        st = sheaf__scan_fail(&scan, "an object");
    for (bool first = true, more = true; st == NULL && inner == NULL; first = false) {
        char *name = NULL;
        st = sheaf__scan_next_key(&scan, first, &more, &name);
        if (st != NULL || !more)
            break;
        const bool found = strcmp(name, object) == 0 && sheaf__scan_peek(&scan) == '{';
        const char *begin = scan.at;
        free(name);
        st = sheaf__scan_skip(&scan, 1);
        if (st == NULL && found && (inner = strndup(begin, (size_t)(scan.at - begin))) == NULL)
            st = sheaf_fail(SHEAF_E_MEMORY, "config");
    }
    if (st == NULL && inner != NULL)
        st = sheaf_hf_config_set(&changed, inner, key, value);
    if (st == NULL && inner != NULL)
        st = sheaf_hf_config_set(out, json, object, changed);
    else if (st == NULL && (*out = strdup(json)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "config");
    free(inner);
    free(changed);
    return st;
}

static sheaf_status *uses_lora(bool *yes, const char *json)
{
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_parse(&object, json, strlen(json));
    *yes = st == NULL && json_is_true(json_object_get(object, "use_lora"));
    json_decref(object);
    return st;
}

static sheaf_status *make_config(char **out, const char *json, int ways)
{
    char number[16], *one = NULL, *two = NULL;
    bool lora = false;
    snprintf(number, sizeof number, "%d", ways);
    sheaf_status *st = sheaf_hf_config_set(&one, json, "model_parallel_size", number);
    if (st == NULL)
        st = set_inside(&two, one, "eva_args", "model_parallel_size", number);
    if (st == NULL)
        st = uses_lora(&lora, json);
    if (st == NULL && lora)
        st = sheaf_hf_config_set(out, two, "use_lora", "false");
    else if (st == NULL) {
        *out = two;
        two = NULL;
    }
    free(one);
    free(two);
    return st;
}

static sheaf_status *write_small(const writing *w, int64_t step)
{
    char *config = NULL, latest[32];
    const int n = snprintf(latest, sizeof latest, "%" PRId64, step);
    sheaf_status *st = make_config(&config, w->how->config, w->ways);
    if (st == NULL)
        st = sheaf__output_write(w->output, "model_config.json", config, strlen(config));
    if (st == NULL)
        st = sheaf__output_write(w->output, "latest", latest, (size_t)n);
    free(config);
    return st;
}

/* ---- the parts ---- */

static int64_t width_of(const sheaf_tensor *t) { return t->ndim > 1 ? t->shape[t->ndim - 1] : 1; }

/* {"module": {name: tensor}}, each tensor with the shape it has in one part. */
static sheaf_status *begin_part(writing *w, int rank, const char *dir)
{
    sheaf_pickle_doc *doc = NULL;
    char *path = NULL, name[64];
    sheaf_status *st = sheaf__pickle_new(&doc);
    if (st != NULL)
        return st;
    sheaf_pickle *root = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT), *module = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT);
    for (int64_t i = 0; i < w->schema->count; i++) {
        const sheaf_tensor *t = &w->schema->tensor[i];
        int64_t shape[4];
        memcpy(shape, t->shape, sizeof shape);
        if (t->sat_split)
            shape[t->cut.axis] /= w->ways;
        sheaf__pickle_set(doc, module, t->name, sheaf__pickle_make_tensor(doc, w->entry[i]->dtype, t->ndim, shape));
    }
    sheaf__pickle_set(doc, root, "module", module);
    st = sheaf__pickle_made(doc, root);
    snprintf(name, sizeof name, "mp_rank_%02d_model_states.pt", rank);
    if (st == NULL)
        st = sheaf__path_join(&path, dir, name);
    if (st == NULL)
        st = sheaf__torch_begin(&w->part[rank], path, doc, w->how->faults);
    sheaf__pickle_free(doc);
    free(path);
    return st;
}

/* Rows [row0, row0 + rows) of a tensor divided along axis 0: runs of rows that belong to one part. */
static sheaf_status *write_by_rows(const writing *w, int64_t i, int64_t row0, int64_t rows, int64_t row_bytes)
{
    const sheaf_tensor *t = &w->schema->tensor[i];
    const int64_t block = t->shape[0] / t->cut.nparts, local = block / w->ways;
    sheaf_status *st = NULL;
    for (int64_t at = row0; st == NULL && at < row0 + rows;) {
        const int64_t part = at / block, rank = at % block / local, inside = at % local;
        const int64_t n = local - inside < row0 + rows - at ? local - inside : row0 + rows - at;
        st = sheaf__torch_write(w->part[rank], i, (part * local + inside) * row_bytes, w->chunk + (at - row0) * row_bytes, n * row_bytes);
        at += n;
    }
    return st;
}

/* The same of one divided along axis 1: a band of columns for each part. */
static sheaf_status *write_by_columns(const writing *w, int64_t i, int64_t row0, int64_t rows, int64_t row_bytes)
{
    const int64_t local = row_bytes / w->ways;
    sheaf_status *st = NULL;
    for (int rank = 0; st == NULL && rank < w->ways; rank++) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(w->cut + r * local, w->chunk + r * row_bytes + rank * local, (size_t)local);
        st = sheaf__torch_write(w->part[rank], i, row0 * local, w->cut, rows * local);
    }
    return st;
}

static sheaf_status *write_rows(writing *w, int64_t i, int64_t row0, int64_t rows)
{
    const sheaf_tensor *t = &w->schema->tensor[i];
    const int64_t cols = width_of(t), row_bytes = cols * (int64_t)sheaf_dtype_bytes(w->entry[i]->dtype);
    sheaf_status *st = w->source->read(w->source, t->name, row0, rows, 0, cols, w->chunk);
    if (st == NULL && t->sat_split)
        st = t->cut.axis == 0 ? write_by_rows(w, i, row0, rows, row_bytes) : write_by_columns(w, i, row0, rows, row_bytes);
    for (int rank = 0; st == NULL && !t->sat_split && rank < w->ways; rank++)
        st = sheaf__torch_write(w->part[rank], i, row0 * row_bytes, w->chunk, rows * row_bytes);
    w->done += rows * row_bytes;
    const sheaf_event event = { .kind = SHEAF_EVENT_PROGRESS, .text = "bytes", .done = w->done, .total = w->total };
    sheaf_emit(w->how->events, &event);
    return st;
}

static sheaf_status *write_tensors(writing *w)
{
    int64_t widest = CHUNK;
    for (int64_t i = 0; i < w->schema->count; i++) {
        const int64_t bytes = width_of(&w->schema->tensor[i]) * (int64_t)sheaf_dtype_bytes(w->entry[i]->dtype);
        widest = bytes > widest ? bytes : widest;
    }
    w->chunk = malloc((size_t)widest);
    w->cut = malloc((size_t)widest);
    sheaf_status *st = w->chunk == NULL || w->cut == NULL ? sheaf_fail(SHEAF_E_MEMORY, "writing a SAT checkpoint") : NULL;
    for (int64_t i = 0; st == NULL && i < w->schema->count; i++) {
        const sheaf_tensor *t = &w->schema->tensor[i];
        const int64_t cols = width_of(t), rows = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / cols;
        const int64_t most = widest / (cols * (int64_t)sheaf_dtype_bytes(w->entry[i]->dtype));
        for (int64_t r = 0; st == NULL && r < rows; r += most)
            st = write_rows(w, i, r, rows - r < most ? rows - r : most);
    }
    return st;
}

static sheaf_status *write_parts(writing *w, int64_t step)
{
    char *dir = NULL, name[32];
    snprintf(name, sizeof name, "%" PRId64, step);
    sheaf_status *st = sheaf__path_join(&dir, sheaf__output_dir(w->output), name);
    if (st == NULL)
        st = sheaf__make_dir(dir, w->how->faults);
    for (int rank = 0; st == NULL && rank < w->ways; rank++)
        st = begin_part(w, rank, dir);
    if (st == NULL)
        st = write_tensors(w);
    for (int rank = 0; st == NULL && rank < w->ways; rank++) {
        sheaf_torch_writer *part = w->part[rank];
        w->part[rank] = NULL;
        st = sheaf__torch_finish(part);
    }
    if (st == NULL)
        st = sheaf__dir_sync(dir, w->how->faults);
    free(dir);
    return st;
}

/* ---- all of it ---- */

static sheaf_status *write_all(writing *w, const char *dst)
{
    const int64_t step = w->how->step > 0 ? w->how->step : 1;
    w->part = calloc((size_t)w->ways, sizeof *w->part);
    sheaf_status *st = w->part == NULL ? sheaf_fail(SHEAF_E_MEMORY, "writing a SAT checkpoint") : match(w);
    if (st == NULL)
        st = sheaf__output_begin(&w->output, dst, w->how->replace, w->how->faults);
    if (st == NULL)
        st = write_parts(w, step);
    if (st == NULL)
        st = write_small(w, step);
    for (int rank = 0; w->part != NULL && rank < w->ways; rank++)
        sheaf__torch_abandon(w->part[rank]);
    if (st == NULL)
        return sheaf__output_commit(w->output);
    sheaf__output_abandon(w->output);
    return st;
}

sheaf_status *sheaf_sat_write(const char *dst, sheaf_source *source, const sheaf_sat_write_options *how)
{
    writing w = { .source = source, .how = how, .ways = how->ways > 0 ? how->ways : 1 };
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    if (how->config == NULL)
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", dst), "the model's config"), "none"),
                              "--config FILE, with its model_config.json");
    sheaf_status *st = sheaf_config_parse(&config, how->config, strlen(how->config));
    if (st == NULL && config.family != SHEAF_COGVLM && config.family != SHEAF_COGAGENT)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", dst), "CogVLM or CogAgent, for SAT's form"),
                         "a model of family %s", sheaf_family_name(config.family));
    if (st == NULL)
        st = sheaf_schema_new(&schema, &config, 1);
    if (st == NULL)
        st = check_ways(schema, how->ways > 0 ? how->ways : how->ways == 0 ? 1 : how->ways);
    w.schema = schema;
    if (st == NULL)
        st = write_all(&w, dst);
    free(w.part);
    free(w.entry);
    free(w.chunk);
    free(w.cut);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}
