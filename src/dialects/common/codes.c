/* codes.c - see codes.h: the tensors that belong together, and the remaining ones. */
#include "dialects/common/codes.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"
#include "dialects/common/model_folder.h"
#include "schema/schema.h"

/* ---- one tensor ---- */

/* The logical tensor, with its codes. */
static sheaf_status *finish(sheaf__codes_weight *g)
{
    const int64_t shape[2] = { g->q->out, g->q->in };
    sheaf_logical *t = NULL;
    sheaf_status *st = sheaf__catalog_tensor(&t, g->x->c, g->weight, g->dtype, 2, shape);
    if (st != NULL) {
        g->wrong = true;
        return sheaf__catalog_defect(g->x->c, g->x->c->root, st);
    }
    t->entry.dtype = g->dtype;
    t->entry.ndim = 2;
    memcpy(t->entry.shape, shape, sizeof shape);
    t->kind = SHEAF_WEIGHT;
    t->coded = g->q;
    g->q->form.dtype = g->dtype;
    g->q = NULL;
    return NULL;
}

/* A sign of another quantizer than the config's, or of one that needs a config. */
static sheaf_status *another_quantizer(sheaf__codes_weight *g, const sheaf_logical *sign)
{
    const sheaf__packing *p = g->packing;
    char want[96] = "quantization_config, which says how it is stored", is[64] = "";
    if (g->x->how.by != SHEAF__NO_QUANTIZER)
        snprintf(want, sizeof want, "parts of %s, as quantization_config says",
                 sheaf__quantizer_name(g->x->how.by));
    for (int i = 0; i < sheaf__packings_count; i++) {
        const sheaf__packing *q = &sheaf__packings[i];
        const char *name = sheaf__quantizer_name(q->by);
        const size_t n = strlen(is);
        if (strcmp(q->suffix[q->sign], p->suffix[p->sign]) == 0 && strstr(is, name) == NULL)
            snprintf(is + n, sizeof is - n, "%s%s", n > 0 ? " or " : "", name);
    }
    return sheaf__codes_wrong(g, "conflict", sign, want,
                              "the config.json that was saved with these weights", "one of %s", is);
}

static sheaf_status *twice(sheaf__codes_weight *g, const sheaf_logical *sign,
                           const sheaf_logical *is)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "%s is ", g->weight);
    if (is->coded != NULL) {
        sheaf__form_text(&text, is->coded);
        sheaf__text_add(&text, " already: quantized twice");
    } else
        sheaf__text_add(&text, "%s beside it: one weight, held twice",
                        sheaf_dtype_name(is->entry.dtype));
    sheaf_status *st =
        text.failed ? sheaf__no_memory(g->x->c->root)
                    : sheaf__codes_wrong(g, "conflict", sign, "the codes of one quantizer",
                                         "files of one save: quantize the model in 16 or 32 bits",
                                         "%s", text.at);
    sheaf__text_release(&text);
    return st;
}

/* The tensor that `sign` belongs to, which is that of this packing. */
static sheaf_status *put_together(sheaf__codes_of *x, const sheaf_logical *sign,
                                  const sheaf__packing *p)
{
    char stem[SHEAF__CODES_NAME];
    sheaf__codes_weight g = { .x = x, .packing = p, .stem = stem, .q = calloc(1, sizeof *g.q) };
    const size_t n = strlen(sign->entry.name) - strlen(p->suffix[p->sign]);
    const sheaf__quantizer by = x->how.by != SHEAF__NO_QUANTIZER ? x->how.by : SHEAF__BITSANDBYTES;
    if (g.q == NULL)
        return sheaf__no_memory(x->c->root);
    snprintf(stem, sizeof stem, "%.*s", (int)n, sign->entry.name);
    snprintf(g.weight, sizeof g.weight, "%.*s.weight", (int)sizeof stem - 8, stem);
    sheaf_status *st = sheaf__quantization_of_module(&g.how, &x->how, stem);
    g.wrong = sheaf__catalog_is_finding(st);
    if (g.wrong)
        st = sheaf__catalog_defect(x->c, x->c->root, st);
    const sheaf_logical *is = sheaf__catalog_find(x->c, g.weight);
    const bool in_place = strcmp(p->suffix[SHEAF__CODES_PART], ".weight") == 0;
    if (st != NULL || g.wrong)
        ;
    else if (p->by != by)
        st = another_quantizer(&g, sign);
    else if (is != NULL && (is->coded != NULL || !in_place))
        st = twice(&g, sign, is);
    else
        st = sheaf__codes_make(&g);
    TRY(st, !g.wrong ? finish(&g) : NULL);
    if (g.wrong)
        sheaf__codes_drop(&g);
    sheaf__coded_free(g.q);
    return st;
}

/* ---- all of them ---- */

/* The packing that a tensor is the sign of, that of quantizer `by` where several have it; NULL: it
 * is none. */
static const sheaf__packing *sign_of(const sheaf_logical *t, sheaf__quantizer by)
{
    const sheaf__packing *found = NULL;
    const size_t n = strlen(t->entry.name);
    for (int i = 0; t->kind == SHEAF_WEIGHT && i < sheaf__packings_count; i++) {
        const sheaf__packing *p = &sheaf__packings[i];
        const char *suffix = p->suffix[p->sign];
        if (n + 8 < SHEAF__CODES_NAME && sheaf__ends_with(t->entry.name, suffix) &&
            (found == NULL || p->by == by))
            found = p;
    }
    return found;
}

static bool has_parts(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (sheaf__codes_is_part(&c->tensor[i]))
            return true;
    return false;
}

/* Tensors that show a weight of this quantizer, or of any. */
static int64_t signs(const sheaf_catalog *c, sheaf__quantizer by)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const sheaf__packing *p = sign_of(&c->tensor[i], by);
        n += p != NULL && (by == SHEAF__NO_QUANTIZER || p->by == by);
    }
    return n;
}

/* Parts without codes, and codes without what says what they stand for. */
static sheaf_status *check_rest(sheaf__codes_of *x)
{
    sheaf_catalog *c = x->c;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        sheaf_logical *t = &c->tensor[i];
        sheaf__codes_weight g = { .x = x, .stem = t->entry.name };
        const bool codes = sheaf__ends_with(t->entry.name, ".weight");
        if (!sheaf__codes_is_part(t))
            continue;
        if (!x->damaged)
            st = sheaf__codes_wrong(
                &g, "missing", t,
                codes ? "the numbers for its codes: scales, and for 4 bits a quant_state"
                      : "the other parts of this weight",
                "download or copy the files of this model again",
                codes ? "codes (%s) without their parts"
                      : "a part of a quantized weight (%s) without the others",
                sheaf_dtype_name(t->entry.dtype));
        t->kind = SHEAF_TAKEN;
        x->failed = true;
    }
    return st;
}

/* Zeros that all tensors have in the other format of GPTQ (vLLM#38966). */
static sheaf_status *check_zeros(sheaf__codes_of *x)
{
    if (!sheaf__is_gptq(x->how.by) || x->with_zeros == 0)
        return NULL;
    static const char *const cures[2][2] = {
        { "set checkpoint_format to \"gptq\" in quantization_config",
          "set checkpoint_format to \"gptq_v2\" in quantization_config" },
        { "set packing_format to \"auto_round:auto_gptq\" in quantization_config",
          "set packing_format to \"auto_round:gptqmodel\" in quantization_config" },
    };
    const bool second = x->how.less_one && x->eights == x->with_zeros,
               first = !x->how.less_one && x->sevens == x->with_zeros;
    if (!first && !second)
        return NULL;
    return sheaf__defect(x->c, "conflict",
                         x->c->config_path != NULL ? x->c->config_path : x->c->root, "",
                         second ? "qzeros of 7, as the format gptq has them (symmetric)"
                                : "qzeros of 8, as the format gptq_v2 has them (symmetric)",
                         cures[x->how.auto_round][second],
                         second ? "8 in all tensors: zeros of gptq_v2, so that each weight would "
                                  "be off by one step"
                                : "7 in all tensors: zeros of gptq, so that each weight would be "
                                  "off by one step");
}

/* ---- biases that are none ---- */

static sheaf_status *is_zero(bool *zero, const sheaf_catalog *c, const sheaf_logical *t)
{
    const int64_t size =
        sheaf__elements(t->entry.ndim, t->entry.shape) * (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    char part[4096];
    sheaf_status *st = NULL;
    *zero = true;
    for (int64_t at = 0; st == NULL && *zero && at < size; at += (int64_t)sizeof part) {
        const int64_t n = size - at < (int64_t)sizeof part ? size - at : (int64_t)sizeof part;
        st = sheaf__part_bytes(part, c, t, at, n);
        for (int64_t i = 0; st == NULL && i < n; i++)
            *zero = *zero && part[i] == 0;
    }
    return st;
}

/* AutoGPTQ stored a bias of zeros for each weight, whatever the model has. */
static sheaf_status *leave_biases(int64_t *left, sheaf_catalog *c, const sheaf_schema *schema)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        char name[SHEAF__CODES_NAME];
        const sheaf_logical *t = &c->tensor[i];
        const int n = (int)strlen(t->entry.name) - (int)strlen(".weight");
        bool zero = false;
        if (t->coded == NULL || !sheaf__is_gptq(t->coded->packing->by) || n < 0 ||
            sheaf_schema_find(schema, t->entry.name) == NULL)
            continue;
        snprintf(name, sizeof name, "%.*s.bias", n < SHEAF__CODES_NAME - 8 ? n : 0, t->entry.name);
        sheaf_logical *bias = sheaf__catalog_find(c, name);
        if (bias == NULL || bias->kind != SHEAF_WEIGHT || sheaf_schema_find(schema, name) != NULL)
            continue;
        st = is_zero(&zero, c, bias);
        if (st == NULL && zero) {
            bias->kind = SHEAF_TAKEN;
            ++*left;
        }
    }
    return st;
}

static sheaf_status *check_biases(sheaf__codes_of *x)
{
    sheaf_catalog *c = x->c;
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    int64_t left = 0;
    if (!sheaf__is_gptq(x->how.by) || c->config == NULL)
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    const bool parsed = st == NULL;
    TRY(st, sheaf_schema_new(&schema, &config, 1));
    TRY(st, leave_biases(&left, c, schema));
    sheaf_schema_free(schema);
    if (parsed)
        sheaf_config_release(&config);
    st = sheaf__only_memory(st); /* others report the config, and what cannot be read */
    if (st != NULL || left == 0)
        return st;
    return sheaf__note(c, "inferred", c->root, "", "", "",
                       "%" PRId64 " biases of zeros, as AutoGPTQ stores them beside weights whose "
                       "layers have none, are left out",
                       left);
}

/* ---- the config ---- */

/* quantize_config.json of AutoGPTQ, quant_config.json of AutoAWQ, where the config says nothing. */
static sheaf_status *look_beside(json_t **out, const sheaf_catalog *c)
{
    static const struct {
        const char *file, *method;
    } beside[] = { { "quantize_config.json", "gptq" }, { "quant_config.json", "awq" } };
    for (size_t i = 0; *out == NULL && i < sizeof beside / sizeof *beside; i++) {
        char path[SHEAF_PATH_SIZE];
        if (sheaf__path_kind(c->root) != SHEAF_PATH_DIR ||
            !sheaf__path_has(c->root, beside[i].file, SHEAF_PATH_FILE))
            continue;
        sheaf_status *st = sheaf__json_load(out, sheaf__path_in(path, c->root, beside[i].file));
        if (st != NULL)
            return st;
        if (json_object_get(*out, "quant_method") == NULL &&
            json_object_set_new(*out, "quant_method", json_string(beside[i].method)) != 0)
            return sheaf__no_memory(path);
    }
    return NULL;
}

static void read_dtype(sheaf__codes_of *x, const json_t *config)
{
    static const char *const keys[] = { "dtype", "torch_dtype" };
    const json_t *inner = json_object_get(config, "text_config");
    x->dtype = SHEAF_BF16;
    for (size_t i = 0; i < 4; i++) {
        const char *name = json_string_value(json_object_get(i < 2 ? config : inner, keys[i % 2]));
        const int d = name == NULL ? -1 : sheaf_dtype_from_torch_name(name);
        if (d == SHEAF_F32 || d == SHEAF_F16 || d == SHEAF_BF16) {
            x->dtype = (sheaf_dtype)d;
            return;
        }
    }
}

/* Reads the quantizer of the config. *read: there is none, or sheaf reads it. */
static sheaf_status *read_config(sheaf__codes_of *x, bool *read, const char **part)
{
    sheaf_catalog *c = x->c;
    char *text = NULL;
    sheaf_status *st = NULL;
    *read = true;
    *part = NULL;
    if (c->config != NULL) /* one that cannot be parsed is reported by others */
        sheaf_status_free(sheaf__json_parse(&x->config, c->config, strlen(c->config)));
    read_dtype(x, x->config);
    const json_t *value = sheaf__quantization_of(x->config, part);
    if (value == NULL) {
        st = look_beside(&x->beside, c);
        value = x->beside;
    }
    if (st == NULL && value != NULL) {
        st = sheaf__quantization_read(&x->how, value);
        *read = st == NULL && x->how.by != SHEAF__OTHER_QUANTIZER;
        sheaf_status_free(st); /* the reader of the config says it */
        char **to = *read ? &c->quantization : &text;
        st = *read || value == x->beside ? sheaf__json_text(to, value, JSON_COMPACT) : NULL;
        if (text != NULL && c->config != NULL)
            TRY(st, sheaf_hf_config_change(&c->config, "quantization_config", text));
        free(text);
    } else
        st = sheaf__catalog_defect(c, c->root, st);
    return st;
}

static sheaf_status *drop_key(sheaf_catalog *c, const char *part)
{
    char *edited = NULL;
    if (c->config == NULL)
        return NULL;
    sheaf_status *st = sheaf_hf_config_edit(&edited, c->config, part, "quantization_config", NULL);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path != NULL ? c->config_path : c->root, st);
    free(c->config);
    c->config = edited;
    return NULL;
}

/* Without a config, names do not say which zeros are stored, and how many bits a code has. */
static sheaf_status *report_no_config(bool *damaged, sheaf_catalog *c)
{
    const int64_t n = signs(c, SHEAF__NO_QUANTIZER);
    if (n == 0 || c->as_stored || c->config == NULL) /* or as it is, tensor by tensor */
        return NULL;
    for (int64_t i = 0; i < c->count; i++)
        if (sheaf__codes_is_part(&c->tensor[i]))
            c->tensor[i].kind = SHEAF_TAKEN;
    *damaged = true;
    sheaf__catalog_keep(c, ~(1u << SHEAF_TAKEN));
    sheaf_status *st = sheaf__catalog_sort(c);
    return TRY(st, sheaf__defect(c, "missing", c->config_path != NULL ? c->config_path : c->root,
                                 "", "quantization_config, or quantize_config.json beside it",
                                 "put the config.json or quantize_config.json that was saved with "
                                 "these weights there",
                                 "nothing of how %" PRId64 " quantized weights are stored", n));
}

static sheaf_status *put_all_together(sheaf__codes_of *x, const char *part)
{
    sheaf_catalog *c = x->c;
    const int64_t count = c->count;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < count; i++) {
        const sheaf__packing *p = sign_of(&c->tensor[i], x->how.by);
        if (p != NULL)
            st = put_together(x, &c->tensor[i], p);
    }
    TRY(st, check_zeros(x));
    TRY(st, check_biases(x));
    TRY(st, check_rest(x));
    TRY(st, drop_key(c, part));
    sheaf__catalog_keep(c, ~(1u << SHEAF_TAKEN));
    return TRY(st, sheaf__catalog_sort(c));
}

sheaf_status *sheaf__catalog_codes(bool *damaged, sheaf_catalog *c)
{
    sheaf__codes_of x = { .c = c, .damaged = *damaged };
    const char *part = NULL;
    bool read = false;
    if (!has_parts(c))
        return NULL;
    sheaf_status *st = read_config(&x, &read, &part);
    if (st == NULL && read && x.how.by == SHEAF__NO_QUANTIZER && signs(c, SHEAF__BITSANDBYTES) == 0)
        st = report_no_config(damaged, c);
    else if (st == NULL && read)
        st = put_all_together(&x, part);
    *damaged = *damaged || x.failed;
    json_decref(x.config);
    json_decref(x.beside);
    return st;
}

/* ---- what there is ---- */

static bool same_form(const sheaf__coded *a, const sheaf__coded *b)
{
    return a->packing == b->packing && sheaf__quant_alike(&a->form, &b->form) &&
           a->group == b->group && a->block_rows == b->block_rows;
}

void sheaf__catalog_forms(sheaf_text *out, int64_t *coded, const sheaf_catalog *c)
{
    int64_t tensors = 0;
    *coded = 0;
    for (int64_t i = 0; i < c->count; i++) {
        tensors += c->tensor[i].kind == SHEAF_WEIGHT || c->tensor[i].kind == SHEAF_BUFFER;
        *coded += c->tensor[i].coded != NULL;
    }
    for (int64_t i = 0; *coded > 0 && i < c->count; i++) {
        const sheaf__coded *q = c->tensor[i].coded;
        int64_t n = 0;
        bool first = q != NULL;
        for (int64_t k = 0; first && k < i; k++)
            first = c->tensor[k].coded == NULL || !same_form(q, c->tensor[k].coded);
        for (int64_t k = i; first && k < c->count; k++)
            n += c->tensor[k].coded != NULL && same_form(q, c->tensor[k].coded);
        if (!first)
            continue;
        sheaf__text_add(out, "%s", out->size > 0 ? "; " : "");
        sheaf__form_text(out, q);
        if (n < *coded)
            sheaf__text_add(out, " (%" PRId64 ")", n);
    }
    if (*coded > 0)
        sheaf__text_add(out, "; %" PRId64 " of %" PRId64 " tensors quantized", *coded, tensors);
}
