/* model.c - which model is it, and are these its tensors? See model.h.
 *
 * Rows of the two vocabulary tables are checked against the config before anything else. A table
 * with more rows is cut, because padding has no meaning (zeros, copies, noise); one with fewer is
 * one rank's part that was written as if it were whole (ColossalAI 0.3.7 to 0.4.7), and the other
 * rows cannot be restored. */
#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/class.h"
#include "dialects/common/codes.h"
#include "dialects/common/config_numbers.h"
#include "dialects/common/model.h"
#include "dialects/common/quantised.h"
#include "dialects/common/vocabulary.h"
#include "dialects/common/whole.h"
#include "dialects/common/wrapped.h"
#include "schema/schema.h"

enum { MOST_CONFIG = 16 << 20, LISTED = 200 };

/* ---- config ---- */

sheaf_status *sheaf__catalog_take_config(sheaf_catalog *c, const char *path)
{
    size_t size = 0;
    char *text = NULL;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, MOST_CONFIG);
    if (st == NULL && strlen(text) != size)
        st = sheaf_fail(SHEAF_E_FORMAT, "%s: a NUL in the text", path);
    if (st != NULL) {
        free(text);
        return sheaf__catalog_defect(c, path, st);
    }
    sheaf__catalog_drop_config(c);
    c->config = text;
    c->config_path = strdup(path);
    return c->config_path == NULL ? sheaf__no_memory(path) : NULL;
}

void sheaf__catalog_drop_config(sheaf_catalog *c)
{
    free(c->config);
    free(c->config_path);
    c->config = c->config_path = NULL;
}

sheaf_status *sheaf__catalog_find_config(sheaf_catalog *c, const sheaf_dialect_hints *hints,
                                         const char *dir, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    if (hints != NULL && hints->config != NULL)
        return sheaf__catalog_take_config(c, hints->config);
    if (!sheaf__path_has(dir, name, SHEAF_PATH_NONE))
        return NULL; /* reading a pipe or a folder fails with a finding */
    return sheaf__catalog_take_config(c, sheaf__path_in(path, dir, name));
}

sheaf_status *sheaf__catalog_read_model(sheaf_schema **schema, sheaf_catalog *c,
                                        const sheaf_dialect_hints *hints, const char *const *dirs)
{
    sheaf_config config = { 0 };
    sheaf_status *st = NULL;
    if (schema != NULL)
        *schema = NULL;
    if (hints->config != NULL)
        st = sheaf__catalog_take_config(c, hints->config);
    for (; st == NULL && hints->config == NULL && c->config_path == NULL && *dirs != NULL; dirs++)
        if (sheaf__path_has(*dirs, "config.json", SHEAF_PATH_FILE))
            st = sheaf__catalog_find_config(c, NULL, *dirs, "config.json");
    if (st != NULL || c->config == NULL)
        return st;
    st = sheaf_config_parse(&config, c->config, strlen(c->config));
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_UNSUPPORTED) {
        sheaf_status_free(st); /* reported by sheaf__catalog_check_model() */
        return NULL;
    }
    if (st == NULL) {
        c->vocab = config.vocab;
        c->model = sheaf_family_name(config.family);
    }
    TRY(st, schema != NULL ? sheaf_schema_new(schema, &config, 1) : NULL);
    sheaf_config_release(&config);
    return sheaf__catalog_defect(c, c->config_path, st);
}

bool sheaf__catalog_keeps_buffers(const sheaf_catalog *c)
{
    sheaf_config config = { 0 };
    sheaf_status *st =
        c->config == NULL ? NULL : sheaf_config_parse(&config, c->config, strlen(c->config));
    const bool keeps =
        c->config != NULL && st == NULL && sheaf__family_for(&config)->frequencies != NULL;
    sheaf_status_free(st); /* reported where the config is needed */
    sheaf_config_release(&config);
    return keeps;
}

sheaf_status *sheaf__catalog_recognise(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_unwrap(c);
    if (st != NULL)
        return st;
    const sheaf_logical *table = sheaf__catalog_find(c, "model.embed_tokens.weight");
    if (c->model == NULL && table != NULL &&
        sheaf__catalog_find(c, "model.layers.0.self_attn.q_proj.weight") != NULL)
        c->model = sheaf__catalog_find(c, "model.layers.0.self_attn.q_proj.bias") != NULL ? "qwen2"
                                                                                          : "llama";
    if (table != NULL && table->entry.ndim == 2 && c->vocab < 0)
        c->vocab = table->entry.shape[0];
    return NULL;
}

/* ---- rows of the vocabulary ---- */

/* Removes rows of padding. */
static void cut_rows(sheaf_logical *t, int64_t rows)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < t->npieces; i++) {
        sheaf_piece p = t->piece[i];
        p.size[0] = p.begin[0] + p.size[0] > rows ? rows - p.begin[0] : p.size[0];
        if (p.size[0] > 0)
            t->piece[kept++] = p;
    }
    t->npieces = kept;
    t->entry.shape[0] = rows;
}

sheaf_status *sheaf__catalog_check_rows(sheaf_catalog *c, sheaf_logical *t, int64_t vocab)
{
    const int64_t rows = t->entry.shape[0];
    const char *path = sheaf__catalog_path_of(c, t), *name = t->entry.name;
    int64_t padded = 0;
    char expected[80];
    const int ways = sheaf__vocabulary_ways(rows, vocab, &padded);
    snprintf(expected, sizeof expected, "%" PRId64 " rows, the vocabulary in the config", vocab);
    if (ways > 0) {
        c->tp = ways;
        c->padded_vocab = padded;
        return sheaf__defect(
            c, "missing", path, name, expected,
            "give the files of the other ranks' rows to sheaf convert too, as further sources; without it, an older save",
            "%" PRId64 " rows: rank 0's part of a %d-way save, rows %" PRId64 "..%" PRId64
            " are not in these files (%" PRId64 " rows when padded)",
            rows, ways, rows, vocab - 1, padded);
    }
    if (!sheaf__vocabulary_padded(rows, vocab))
        return sheaf__defect(
            c, rows < vocab ? "missing" : "shape", path, name, expected,
            rows < vocab ? "use a complete copy of the model"
                         : "if the further rows are tokens, correct vocab_size in config.json",
            "%" PRId64 " rows", rows);
    c->padded_vocab = rows;
    cut_rows(t, vocab);
    return sheaf__warning(c, "padded", sheaf__catalog_path_of(c, t), name, expected,
                          "sheaf convert {} {+unpadded} --to hf{config}",
                          "%" PRId64 " rows: %" PRId64 " of them are padding", rows, rows - vocab);
}

/* Checks a table, and removes the same rows from its moments. */
static sheaf_status *check_table(sheaf_catalog *c, sheaf_logical *t, int64_t vocab)
{
    const int64_t rows = t->entry.shape[0];
    sheaf_status *st = sheaf__catalog_check_rows(c, t, vocab);
    for (int k = 0; st == NULL && k < 2; k++) {
        char name[512];
        const int n = snprintf(name, sizeof name, "%s%s", sheaf__moment_words[k], t->entry.name);
        sheaf_logical *m = n > 0 && (size_t)n < sizeof name ? sheaf__catalog_find(c, name) : NULL;
        if (t->entry.shape[0] < rows && m != NULL && m->kind == SHEAF_MOMENT &&
            m->entry.ndim == t->entry.ndim && m->entry.shape[0] == rows)
            cut_rows(m, vocab);
    }
    return st;
}

/* ---- which model ---- */

const char *sheaf__family_of(const sheaf_catalog *c)
{
    const sheaf__tensor_names names = sheaf__catalog_names(c);
    const sheaf__family *family = sheaf__family_by_names(&names);
    return family == NULL ? NULL : family->name;
}

/* ---- names and shapes ---- */

typedef struct checking {
    sheaf_catalog *c;
    const sheaf_schema *schema;
    int64_t vocab;
    bool damaged;
    int64_t missing, foreign, shapes; /* found so far; those beyond LISTED are only counted */
    sheaf_text advice;                /* the wrong numbers of the config; empty: not known */
    bool few;                         /* a few, and nothing else is */
} checking;

/* The remedy where names or sizes are not the model's; `own` where nothing else is known, and
 * before a number that may be wrong where it is one for files. */
static sheaf_status *cure_for(sheaf_text *out, const checking *x, const char *own, bool files)
{
    if (x->advice.size == 0 || (files && !x->few))
        sheaf__text_add(out, "%s", own);
    else
        sheaf__text_add(out, "%s%s%s", files ? own : "", files ? "; or " : "", x->advice.at);
    return out->failed ? sheaf__no_memory(x->c->root) : NULL;
}

/* How a tensor of the schema lies in the files; table: with other rows, which are reported apart.
 */
typedef enum fit { FITS, IS_MISSING, IS_TABLE, IS_OTHER_SHAPE } fit;

static fit fit_of(const checking *x, const sheaf_tensor *t, const sheaf_logical *is)
{
    if (is == NULL)
        return t->buffer ? FITS : IS_MISSING;
    if (sheaf__same_shape(is->entry.ndim, is->entry.shape, t->ndim, t->shape))
        return FITS;
    const bool columns =
        is->entry.ndim == t->ndim && t->ndim > 0 &&
        sheaf__same_shape(t->ndim - 1, is->entry.shape + 1, t->ndim - 1, t->shape + 1);
    return (t->role == SHEAF_EMBED || t->role == SHEAF_HEAD || sheaf__is_vocabulary(t->name)) &&
                   columns && t->shape[0] == x->vocab
               ? IS_TABLE
               : IS_OTHER_SHAPE;
}

static sheaf_status *report_missing(checking *x, const sheaf_tensor *t)
{
    sheaf_text cure = { 0 };
    char want[128];
    if (x->damaged || ++x->missing > LISTED)
        return NULL;
    sheaf_status *st = cure_for(&cure, x,
                                t->role == SHEAF_HEAD
                                    ? "use a complete copy of the model, or set "
                                      "tie_word_embeddings to true in the config, if the head is "
                                      "the table of embeddings"
                                    : "use a complete copy of the model",
                                true);
    TRY(st, sheaf__defect(x->c, "missing", x->c->root, t->name,
                          sheaf__show_shape(want, t->ndim, t->shape), cure.at,
                          "no tensor of this name"));
    sheaf__text_release(&cure);
    return st;
}

/* Of how many ranks is it the part of one, by its size along the cut? 0: of none. For keys and
 * values rather the number of heads is wrong. */
static int ways_of(const sheaf_tensor *t, const sheaf_logical *is)
{
    const int axis = t->cut.axis;
    const int64_t *shape = is->entry.shape;
    int64_t padded = 0;
    if (t->cut.nparts != 1 || t->role == SHEAF_K || t->role == SHEAF_V ||
        is->entry.ndim != t->ndim || (t->ndim == 2 && shape[1 - axis] != t->shape[1 - axis]))
        return 0;
    const int ways = sheaf__vocabulary_ways(shape[axis], t->shape[axis], &padded);
    return padded == t->shape[axis] ? ways : 0;
}

static sheaf_status *report_shape(checking *x, const sheaf_tensor *t, const sheaf_logical *is)
{
    sheaf_text cure = { 0 };
    char want[128], found[128], part[96];
    const int ways = ways_of(t, is);
    if (++x->shapes > LISTED)
        return NULL;
    snprintf(part, sizeof part, "give the whole model: this looks like one part of a %d-way save",
             ways);
    sheaf_status *st = cure_for(&cure, x, ways > 0 ? part : sheaf__config_cure(x->c), ways > 0);
    TRY(st, sheaf__defect(x->c, "shape", sheaf__catalog_path_of(x->c, is), t->name,
                          sheaf__show_shape(want, t->ndim, t->shape), cure.at, "%s",
                          sheaf__show_shape(found, is->entry.ndim, is->entry.shape)));
    sheaf__text_release(&cure);
    return st;
}

static sheaf_status *check_tensor(checking *x, const sheaf_tensor *t)
{
    sheaf_logical *is = sheaf__catalog_find(x->c, t->name);
    if (is != NULL && t->buffer)
        is->kind = SHEAF_BUFFER;
    switch (fit_of(x, t, is)) {
    case IS_MISSING: return report_missing(x, t);
    case IS_TABLE: return check_table(x->c, is, x->vocab);
    case IS_OTHER_SHAPE: return report_shape(x, t, is);
    case FITS: break;
    }
    return NULL;
}

static bool is_foreign(const checking *x, const sheaf_logical *t)
{
    sheaf_sat_rule rule;
    return (t->kind == SHEAF_WEIGHT || t->kind == SHEAF_BUFFER) &&
           sheaf__is_stranger(x->schema, t->entry.name) &&
           (!x->c->dialect->own_lora ||
            sheaf__sat_rule_of(&rule, t->entry.name)); /* else noted when read */
}

static sheaf_status *check_foreign(checking *x, const sheaf_logical *t)
{
    if ((t->kind == SHEAF_WEIGHT || t->kind == SHEAF_BUFFER) && x->schema->config.tied &&
        strcmp(t->entry.name, sheaf__head_name) == 0 &&
        sheaf_schema_find(x->schema, t->entry.name) == NULL)
        return sheaf__note(x->c, "inferred", sheaf__catalog_path_of(x->c, t), t->entry.name, "", "",
                           "stored although tied to the table of embeddings");
    if (!is_foreign(x, t) || ++x->foreign > LISTED)
        return NULL;
    sheaf_text cure = { 0 };
    sheaf_status *st = cure_for(&cure, x, sheaf__config_cure(x->c), false);
    TRY(st, sheaf__defect(x->c, "foreign", sheaf__catalog_path_of(x->c, t), t->entry.name,
                          "only tensors that the config asks for", cure.at,
                          "a tensor that this model does not have"));
    sheaf__text_release(&cure);
    return st;
}

/* Will anything be reported whose remedy may be another number? The search for it makes many
 * schemas. */
static bool needs_advice(const checking *x)
{
    for (int64_t i = 0; i < x->schema->count; i++) {
        const sheaf_tensor *t = &x->schema->tensor[i];
        const fit is = fit_of(x, t, sheaf__catalog_find(x->c, t->name));
        if (is == IS_MISSING || is == IS_OTHER_SHAPE)
            return true;
    }
    for (int64_t i = 0; i < x->c->count; i++)
        if (is_foreign(x, &x->c->tensor[i]))
            return true;
    return false;
}

/* How many parameters that hold several tensors, or one of another name, are here behind the
 * prefix. */
static int64_t held_with(const sheaf_catalog *c, const sheaf_schema *schema, const char *prefix)
{
    char name[512];
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (t->stack.of == NULL || t->stack.member > 0 || t->stack.row > 0)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, t->stack.of);
        n += sheaf__catalog_find(c, name) != NULL;
    }
    return n;
}

/* Removes a common prefix of all names: the dict or the module around the model. */
static sheaf_status *take_prefix(sheaf_catalog *c, const sheaf_schema *schema)
{
    static const char *const prefixes[] = { "model.", "base_model.model." };
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
        const size_t n = strlen(prefixes[k]);
        int64_t fits = 0, twice = 0, count = 0;
        for (int64_t i = 0; i < c->count; i++) {
            const char *name = c->tensor[i].entry.name;
            const bool has = strncmp(name, prefixes[k], n) == 0;
            count += c->tensor[i].kind != SHEAF_MOMENT;
            fits += has && sheaf_schema_find(schema, name + n) != NULL;
            twice += has && sheaf__catalog_find(c, name + n) != NULL;
        }
        fits += held_with(c, schema, prefixes[k]);
        if (twice > 0 || fits < 2 || fits * 10 < count * 9) /* a few may be foreign */
            continue;
        for (int64_t i = 0; i < c->count; i++) {
            const sheaf_logical *t = &c->tensor[i];
            char *name = (char *)(t->kind == SHEAF_MOMENT ? sheaf__moment_base(t->entry.name)
                                                          : t->entry.name);
            if (strncmp(name, prefixes[k], n) == 0)
                memmove(name, name + n, strlen(name) - n + 1);
        }
        sheaf_status *st = sheaf__note(c, "inferred", c->root, "", "names as the model has them",
                                       "", "names begin with '%s', which is left out", prefixes[k]);
        return st != NULL ? st : sheaf__catalog_sort(c); /* rebuilds the table of names */
    }
    return NULL;
}

static sheaf_status *note_more(checking *x, const char *code, int64_t count)
{
    if (count <= LISTED)
        return NULL;
    return sheaf__defect(x->c, code, x->c->root, "", "the tensors that the config asks for", "",
                         "%" PRId64 " more tensors like these", count - LISTED);
}

sheaf_status *sheaf__catalog_check_schema(sheaf_catalog *c, const sheaf_schema *schema,
                                          int64_t vocab, bool damaged)
{
    checking x = { .c = c, .schema = schema, .vocab = vocab, .damaged = damaged };
    int changed;
    sheaf_status *st =
        damaged || !needs_advice(&x)
            ? NULL
            : sheaf__config_advice(&x.advice, &changed, &x.few, &schema->config, c->config, c);
    for (int tables = 1; tables >= 0; tables--) /* the tables first, see above */
        for (int64_t i = 0; st == NULL && i < schema->count; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            if ((t->role == SHEAF_EMBED || t->role == SHEAF_HEAD) == (tables != 0))
                st = check_tensor(&x, t);
        }
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        st = check_foreign(&x, &c->tensor[i]);
    TRY(st, note_more(&x, "missing", x.missing));
    TRY(st, note_more(&x, "foreign", x.foreign));
    sheaf__text_release(&x.advice);
    return TRY(st, note_more(&x, "shape", x.shapes));
}

static sheaf_status *check_config(sheaf_catalog *c, const sheaf_config *config, bool damaged)
{
    sheaf_schema *schema = NULL;
    bool other = false;
    sheaf_status *bad = sheaf_schema_new(&schema, config, 1);
    if (bad != NULL && sheaf_status_code(bad) == SHEAF_E_MEMORY)
        return bad;
    sheaf_status *st = sheaf__catalog_check_class(&other, c, config, schema);
    if (st != NULL || other)
        sheaf_status_free(bad);
    else
        st = sheaf__catalog_defect(c, c->config_path, bad);
    if (schema != NULL)
        c->vocab = config->vocab;
    if (schema != NULL && !other) {
        c->model = sheaf_family_name(config->family);
        TRY(st, take_prefix(c, schema));
        const int64_t before = sheaf__catalog_defects(c);
        TRY(st, sheaf__catalog_unstack_by(c, schema));
        /* tensors within a parameter of another shape are not missing */
        damaged = damaged || sheaf__catalog_defects(c) > before;
        TRY(st, sheaf__catalog_check_schema(c, schema, config->vocab, damaged));
    }
    sheaf_schema_free(schema);
    return st;
}

/* ---- models that are not supported ---- */

static bool names_no_model(const char *config)
{
    json_t *root = NULL;
    sheaf_status_free(sheaf__json_parse(&root, config, strlen(config)));
    const bool yes = json_is_object(root) && json_object_get(root, "model_type") == NULL &&
                     json_object_get(root, "architectures") == NULL;
    json_decref(root);
    return yes;
}

/* An unsupported model: its tensors can still be read. `why` is the error of the config's reader;
 * frees it. */
static sheaf_status *note_unsupported(sheaf_catalog *c, const char *by_tensors, sheaf_status *why)
{
    const char *path = c->config_path != NULL ? c->config_path : c->root;
    sheaf_status *st = sheaf__warning(
        c, "unsupported", path, "", sheaf_status_expected(why), sheaf_status_try(why),
        "%s %s%s; tensors were not checked against it", sheaf_status_where(why),
        sheaf_status_found(why), by_tensors == NULL ? ": a model that is not supported yet" : "");
    sheaf_status_free(why);
    return st;
}

sheaf_status *sheaf__catalog_check_model(sheaf_catalog *c, bool damaged)
{
    sheaf_config config;
    sheaf_status *st = sheaf__catalog_unwrap(c);
    TRY(st, sheaf__catalog_codes(&damaged, c));
    TRY(st, sheaf__catalog_stale_quantization(c));
    if (st != NULL)
        return st;
    const char *by_tensors = sheaf__family_of(c);
    if (c->model == NULL)
        c->model = by_tensors;
    if (c->config == NULL && (by_tensors == NULL || c->count == 0))
        return NULL;
    if (c->config == NULL)
        return sheaf__note(c, "inferred", c->root, "", "config.json", sheaf__config_cure(c),
                           "no config: shapes were not checked against one");
    st = sheaf_config_parse(&config, c->config, strlen(c->config));
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY &&
        (sheaf_status_code(st) == SHEAF_E_UNSUPPORTED ||
         (by_tensors == NULL && names_no_model(c->config))))
        return note_unsupported(c, by_tensors, st);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path, st);
    st = check_config(c, &config, damaged);
    sheaf_config_release(&config);
    return st;
}
