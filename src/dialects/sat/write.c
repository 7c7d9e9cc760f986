/* write.c - see write.h. */
#include "dialects/sat/write.h"

#include "base/base.h"
#include "base/json.h"
#include "base/output.h"
#include "dialects/common/model_folder.h"
#include "formats/torch.h"
#include "schema/family.h"

/* A tensor of the checkpoint: one of the model's, or a factor of LoRA. */
typedef struct item {
    const sheaf_tensor *base; /* of a factor: the weight it is for */
    char *name;               /* in the source; NULL: that of base */
    bool adapted; /* X.weight, X.bias are written as X.original.weight, X.original.bias */
    sheaf_dtype dtype;
    int ndim;
    int64_t shape[4];
    int axis,
        blocks; /* each part holds its piece of each of `blocks` blocks of the axis; 0: a copy */
} item;

struct sheaf_sat_writer {
    sheaf_schema *schema;
    int64_t count, lora_rank;
    item *item; /* in the order of SAT's files */
    sheaf_output *output;
    char *config; /* as it will be written */
    int64_t step;
    int ways;
    sheaf_torch_writer **part;
    bool finished;
};

static const char memory_for[] = "writing a SAT checkpoint";

/* ---- checks ---- */

static bool splits(const sheaf_tensor *t, int ways)
{
    for (int i = 0; t->sat_split && i < t->cut.nparts; i++)
        if (t->cut.part[i].units % ways != 0)
            return false;
    return true;
}

/* Can SAT divide this model into so many parts? */
static bool ways_fit(const sheaf_schema *schema, int ways)
{
    for (int64_t i = 0; i < schema->count; i++)
        if (!splits(&schema->tensor[i], ways))
            return false;
    return ways >= 1;
}

static sheaf_status *check_ways(const sheaf_schema *schema, int ways)
{
    if (ways >= 1 && ways <= SHEAF_SAT_MOST_WAYS && ways_fit(schema, ways))
        return NULL;
    sheaf_text possible = { 0 };
    for (int n = 1; n <= SHEAF_SAT_MOST_WAYS; n++)
        if (ways_fit(schema, n))
            sheaf__text_add(&possible, "%s%d", possible.size > 0 ? ", " : "", n);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "model-parallel size");
    sheaf_expected(st, "a number that divides heads, MLPs and vocabulary of this model: %s",
                   possible.at != NULL ? possible.at : "1");
    sheaf__text_release(&possible);
    for (int64_t i = 0; i < schema->count && ways >= 1 && ways <= SHEAF_SAT_MOST_WAYS; i++)
        if (!splits(&schema->tensor[i], ways))
            return sheaf_found(st, "%d; '%s' has %" PRId64 " %s", ways, schema->tensor[i].name,
                               schema->tensor[i].cut.part[0].units,
                               schema->tensor[i].cut.part[0].rows_per_unit > 1 ? "heads"
                                                                               : "rows or columns");
    return sheaf_found(st, "%d", ways);
}

static const char *source_name(const item *t)
{
    return t->name != NULL ? t->name : t->base->name;
}

static sheaf_status *check_tensor(const sheaf_sat_writer *w, item *t, const sheaf_source_entry *e)
{
    if (e == NULL) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", source_name(t));
        return sheaf_found(
            sheaf_expected(st, "every tensor of %s", sheaf_family_name(w->schema->config.family)),
            "none of this name");
    }
    if (!sheaf__same_shape(e->ndim, e->shape, t->ndim, t->shape)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", source_name(t));
        sheaf_expected(
            st, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], %d axes, by the config",
            t->shape[0], t->shape[1], t->shape[2], t->shape[3], t->ndim);
        return sheaf_found(st, "%d axes, the first of %" PRId64, e->ndim,
                           e->ndim > 0 ? e->shape[0] : 1);
    }
    if (sheaf_dtype_bytes(e->dtype) == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': %s in a PyTorch file", source_name(t),
                          sheaf_dtype_name(e->dtype));
    t->dtype = e->dtype;
    return NULL;
}

/* How many A, and B, the layer has in SAT: one for each part of its rows. */
static int factors_of(const sheaf_tensor *weight)
{
    return weight->cut.axis == 0 && weight->cut.nparts > 1 ? weight->cut.nparts : 1;
}

static bool is_adapted(const sheaf_sat_writer *w, sheaf_source *source, const char *module)
{
    char name[600];
    snprintf(name, sizeof name, "%s.matrix_A.0", module);
    return w->lora_rank > 0 && source->find(source, name) != NULL;
}

/* A is [rank, in], B is [out of a part, rank]. SAT cuts the factor along the axis of its weight's
 * cut. */
static sheaf_status *add_factors(sheaf_sat_writer *w, const sheaf_tensor *weight)
{
    const int parts = factors_of(weight);
    for (int i = 0; i < 2 * parts; i++) {
        const bool a = i < parts;
        item *t = &w->item[w->count];
        *t = (item){ .base = weight, .ndim = 2, .shape = { w->lora_rank, weight->shape[1], 1, 1 } };
        if (!a) {
            t->shape[0] = weight->shape[0] / parts;
            t->shape[1] = w->lora_rank;
        }
        t->axis = a ? 1 : 0;
        t->blocks = weight->sat_split && weight->cut.axis == t->axis ? 1 : 0;
        if (asprintf(&t->name, "%s.matrix_%c.%d", weight->module, a ? 'A' : 'B', i % parts) < 0) {
            t->name = NULL;
            return sheaf__no_memory(memory_for);
        }
        w->count++;
    }
    return NULL;
}

/* The tensors in SAT's order: a layer's factors come after its weight and its bias. */
static sheaf_status *list_items(sheaf_sat_writer *w, sheaf_source *source)
{
    const sheaf_schema *schema = w->schema;
    sheaf_status *st = NULL;
    w->item = calloc((size_t)schema->count * (1 + 2 * SHEAF_MAX_PARTS), sizeof *w->item);
    if (w->item == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; st == NULL && i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i], *next = i + 1 < schema->count ? t + 1 : NULL;
        const bool adapted =
            t->ndim <= 2 && strcmp(t->name, t->module) != 0 && is_adapted(w, source, t->module);
        item *it = &w->item[w->count++];
        *it = (item){ .base = t,
                      .adapted = adapted,
                      .ndim = t->ndim,
                      .axis = t->cut.axis,
                      .blocks = t->sat_split ? t->cut.nparts : 0 };
        memcpy(it->shape, t->shape, sizeof it->shape);
        const sheaf_tensor *weight = t->bias && i > 0 ? t - 1 : t;
        if (adapted && (next == NULL || strcmp(next->module, t->module) != 0))
            st = weight->ndim == 2
                     ? add_factors(w, weight)
                     : sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "factors of '%s'", t->module),
                                      "a linear layer");
    }
    return st;
}

static bool has_item(const sheaf_sat_writer *w, const char *name)
{
    for (int64_t i = 0; i < w->count; i++)
        if (strcmp(source_name(&w->item[i]), name) == 0)
            return true;
    return false;
}

static sheaf_status *match(sheaf_sat_writer *w, sheaf_source *source)
{
    sheaf_status *st = list_items(w, source);
    for (int64_t i = 0; st == NULL && i < w->count; i++)
        st = check_tensor(w, &w->item[i], source->find(source, source_name(&w->item[i])));
    const bool more = st == NULL && source->count(source) > w->count; /* it has all of these */
    for (int64_t i = 0; st == NULL && more && i < source->count(source); i++) {
        const char *name = source->entry(source, i)->name;
        if (!has_item(w, name))
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                                            "only tensors of %s, by the config",
                                            sheaf_family_name(w->schema->config.family)),
                             "one more");
    }
    return st;
}

/* ---- the small files ---- */

/* With factors, SAT's class that makes space for them before it reads a file; a class of
 * fine-tuning stays. */
static sheaf_status *make_config(sheaf_sat_writer *w, const char *json)
{
    char ways[16], rank[24], tests[64], *one = NULL;
    json_t *object = NULL;
    sheaf_status *st = sheaf__json_parse(&object, json, strlen(json));
    const char *class = json_string_value(json_object_get(object, "model_class"));
    const bool lora = json_is_true(json_object_get(object, "use_lora")),
               tunes = class != NULL && strncmp(class, "FineTune", 8) == 0;
    json_decref(object);
    snprintf(ways, sizeof ways, "%d", w->ways);
    snprintf(rank, sizeof rank, "%" PRId64, w->lora_rank);
    snprintf(tests, sizeof tests, "\"%s\"", sheaf__family_for(&w->schema->config)->classes[2]);
    TRY(st, sheaf_hf_config_set(&one, json, "model_parallel_size", ways));
    TRY(st, sheaf_hf_config_edit(&w->config, one, "eva_args", "model_parallel_size", ways));
    free(one);
    if (w->lora_rank == 0)
        return TRY(st, lora ? sheaf_hf_config_change(&w->config, "use_lora", "false") : NULL);
    TRY(st, !tunes ? sheaf_hf_config_change(&w->config, "model_class", tests) : NULL);
    TRY(st, sheaf_hf_config_change(&w->config, "use_lora", "true"));
    TRY(st, sheaf_hf_config_change(&w->config, "lora_rank", rank));
    /* all layers have space, unused in those without factors */
    return TRY(st, sheaf_hf_config_change(&w->config, "layer_range", "null"));
}

static sheaf_status *write_small(const sheaf_sat_writer *w)
{
    char latest[32];
    const int n = snprintf(latest, sizeof latest, "%" PRId64, w->step);
    sheaf_status *st =
        sheaf__output_write(w->output, "model_config.json", w->config, strlen(w->config));
    return st != NULL ? st : sheaf__output_write(w->output, "latest", latest, (size_t)n);
}

/* ---- the parts ---- */

/* The view of sheaf_source.read. */
static int64_t width_of(const item *t)
{
    return t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
}
static int64_t height_of(const item *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / width_of(t);
}

/* {"module": {name: tensor}}, each tensor with the shape it has in one part. */
static sheaf_status *describe_part(const sheaf_sat_writer *w, sheaf_pickle_doc *doc)
{
    sheaf_pickle *root = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT),
                 *module = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT);
    for (int64_t i = 0; i < w->count; i++) {
        const item *t = &w->item[i];
        int64_t shape[4];
        char original[600];
        memcpy(shape, t->shape, sizeof shape);
        if (t->blocks > 0)
            shape[t->axis] /= w->ways;
        snprintf(original, sizeof original, "%s.original%s", t->base->module,
                 t->base->name + strlen(t->base->module));
        sheaf__pickle_set(doc, module, t->adapted ? original : source_name(t),
                          sheaf__pickle_make_tensor(doc, t->dtype, t->ndim, shape));
    }
    sheaf__pickle_set(doc, root, "module", module);
    return sheaf__pickle_made(doc, root);
}

static sheaf_status *begin_part(sheaf_sat_writer *w, int rank, const char *dir)
{
    sheaf_pickle_doc *doc = NULL;
    char path[SHEAF_PATH_SIZE], name[64];
    sheaf_status *st = sheaf__pickle_new(&doc);
    TRY(st, describe_part(w, doc));
    snprintf(name, sizeof name, "mp_rank_%02d_model_states.pt", rank);
    TRY(st, sheaf__torch_begin(&w->part[rank], sheaf__path_in(path, dir, name), doc));
    sheaf__pickle_free(doc);
    return st;
}

/* A box of what part `rank` holds of a tensor: at row `row0`, column `col0`, `width` columns in
 * all. Rows of `src` are `apart` bytes apart. */
static sheaf_status *put_box(const sheaf_sat_writer *w, int rank, int64_t i, int64_t row0,
                             int64_t rows, int64_t col0, int64_t cols, int64_t width,
                             const char *src, int64_t apart)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(w->item[i].dtype), line = cols * bytes;
    char *buffer = NULL;
    sheaf_status *st = NULL;
    if (cols == width && apart != line && rows > 1) { /* contiguous rows of the part: one write */
        if ((buffer = malloc((size_t)(rows * line))) == NULL)
            return sheaf__no_memory(memory_for);
        for (int64_t r = 0; r < rows; r++)
            memcpy(buffer + r * line, src + r * apart, (size_t)line);
        src = buffer;
        apart = line;
    }
    if (cols == width && apart == line)
        st = sheaf__torch_write(w->part[rank], i, row0 * line, src, rows * line);
    else
        for (int64_t r = 0; st == NULL && r < rows; r++)
            st = sheaf__torch_write(w->part[rank], i, ((row0 + r) * width + col0) * bytes,
                                    src + r * apart, line);
    free(buffer);
    return st;
}

/* The share of part `rank` in block `b` of the box: all of it where the tensor is a copy. */
static sheaf_status *put_block(const sheaf_sat_writer *w, int rank, int64_t b, int64_t i,
                               const int64_t from[2], const int64_t size[2], const char *src)
{
    const item *t = &w->item[i];
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(t->dtype), apart = size[1] * bytes;
    int64_t begin[2] = { from[0], from[1] }, to[2] = { from[0], from[1] },
            n[2] = { size[0], size[1] }, width = width_of(t);
    if (t->blocks > 0) {
        const int a = t->axis;
        const int64_t local = t->shape[a] / t->blocks / w->ways,
                      first = (b * w->ways + rank) * local, end = first + local;
        begin[a] = from[a] > first ? from[a] : first;
        n[a] = (from[a] + size[a] < end ? from[a] + size[a] : end) - begin[a];
        to[a] = begin[a] - first + b * local;
        width = a == 1 ? t->blocks * local : width;
        if (n[a] <= 0)
            return NULL;
    }
    return put_box(w, rank, i, to[0], n[0], to[1], n[1], width,
                   src + (begin[0] - from[0]) * apart + (begin[1] - from[1]) * bytes, apart);
}

sheaf_status *sheaf_sat_put(sheaf_sat_writer *w, int64_t i, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols, const void *src)
{
    if (i < 0 || i >= w->count)
        return sheaf_fail(SHEAF_E_ARG, "tensor %" PRId64 " of a SAT checkpoint", i);
    const item *t = &w->item[i];
    if (row0 < 0 || rows < 0 || row0 > height_of(t) - rows || col0 < 0 || cols < 0 ||
        col0 > width_of(t) - cols)
        return sheaf_fail(SHEAF_E_ARG, "tensor '%s': a box outside of it", source_name(t));
    const int64_t from[2] = { row0, col0 }, size[2] = { rows, cols };
    sheaf_status *st = NULL;
    for (int rank = 0; rows > 0 && cols > 0 && rank < w->ways; rank++)
        for (int64_t b = 0; st == NULL && b < (t->blocks > 0 ? t->blocks : 1); b++)
            st = put_block(w, rank, b, i, from, size, src);
    return st;
}

/* ---- begin and end ---- */

int64_t sheaf_sat_count(const sheaf_sat_writer *w)
{
    return w->count;
}
const char *sheaf_sat_name(const sheaf_sat_writer *w, int64_t i)
{
    return i >= 0 && i < w->count ? source_name(&w->item[i]) : NULL;
}

static const char *step_folder(char dir[SHEAF_PATH_SIZE], const sheaf_sat_writer *w)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, w->step);
    return sheaf__path_in(dir, sheaf_sat_dir(w), name);
}

static sheaf_status *begin_parts(sheaf_sat_writer *w, const char *dst, bool replace)
{
    char dir[SHEAF_PATH_SIZE];
    w->part = calloc((size_t)w->ways, sizeof *w->part);
    sheaf_status *st = w->part == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, sheaf__output_begin(&w->output, dst, replace));
    TRY(st, sheaf__make_dir(step_folder(dir, w)));
    for (int rank = 0; st == NULL && rank < w->ways; rank++)
        st = begin_part(w, rank, dir);
    return st;
}

/* Removes the key that sheaf adds to the config.json of SAT's models. */
static sheaf_status *drop_key(char **out, const char *config)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, config, strlen(config));
    if (st == NULL && json_object_del(root, "model_type") == 0)
        st = sheaf__json_text(out, root, JSON_INDENT(4) | JSON_SORT_KEYS);
    else if (st == NULL && (*out = strdup(config)) == NULL)
        st = sheaf__no_memory("config");
    json_decref(root);
    return st;
}

static sheaf_status *check_config(sheaf_sat_writer *w, const char *dst, const char *text)
{
    sheaf_config config = { 0 };
    char *own = NULL;
    if (text == NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", dst), "the model's config"),
                        "none"),
            "give the path of its model_config.json with `config`");
    sheaf_status *st = sheaf_config_parse(&config, text, strlen(text));
    if (st == NULL && sheaf__family_for(&config)->classes == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", dst),
                                        "CogVLM or CogAgent, for SAT's form"),
                         "a model of family %s", sheaf_family_name(config.family));
    TRY(st, sheaf_schema_new(&w->schema, &config, 1));
    sheaf_config_release(&config);
    TRY(st, check_ways(w->schema, w->ways));
    TRY(st, drop_key(&own, text));
    TRY(st, make_config(w, own));
    free(own);
    return st;
}

sheaf_status *sheaf_sat_begin(sheaf_sat_writer **out, const char *dst, sheaf_source *source,
                              const sheaf_sat_write_options *how)
{
    sheaf_sat_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory(memory_for);
    w->ways = how->ways != 0 ? how->ways : 1;
    w->step = how->step > 0 ? how->step : 1;
    w->lora_rank = how->lora_rank;
    sheaf_status *st = check_config(w, dst, how->config);
    TRY(st, match(w, source));
    TRY(st, begin_parts(w, dst, how->replace));
    if (st == NULL)
        *out = w;
    else
        sheaf_sat_abandon(w);
    return st;
}

static void release(sheaf_sat_writer *w)
{
    for (int rank = 0; w->part != NULL && rank < w->ways; rank++)
        sheaf__torch_abandon(w->part[rank]);
    free(w->part);
    for (int64_t i = 0; i < w->count; i++)
        free(w->item[i].name);
    free(w->item);
    free(w->config);
    sheaf_schema_free(w->schema);
    free(w);
}

const char *sheaf_sat_dir(const sheaf_sat_writer *w)
{
    return sheaf__output_dir(w->output);
}

sheaf_status *sheaf_sat_finish(sheaf_sat_writer *w)
{
    char dir[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    for (int rank = 0; st == NULL && rank < w->ways; rank++) {
        sheaf_torch_writer *part = w->part[rank];
        w->part[rank] = NULL;
        st = sheaf__torch_finish(part);
    }
    TRY(st, sheaf__dir_sync(step_folder(dir, w)));
    TRY(st, write_small(w));
    w->finished = st == NULL;
    return st;
}

sheaf_status *sheaf_sat_commit(sheaf_sat_writer *w)
{
    sheaf_status *st = w->finished ? NULL : sheaf_sat_finish(w);
    if (st != NULL) {
        sheaf_sat_abandon(w);
        return st;
    }
    sheaf_output *output = w->output;
    release(w);
    return sheaf__output_commit(output);
}

void sheaf_sat_abandon(sheaf_sat_writer *w)
{
    if (w == NULL)
        return;
    sheaf_output *output = w->output;
    release(w); /* closes the files first */
    sheaf__output_abandon(output);
}
