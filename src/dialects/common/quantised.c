/* quantised.c - see quantised.h. */
#include "dialects/common/quantised.h"

#include "base/base.h"
#include "base/json.h"
#include "dialects/common/model.h"
#include "dialects/common/model_folder.h"
#include "schema/quantization.h"

static const char key[] = "quantization_config";

/* Dtypes of packed numbers. int64 and bool are positions and masks. */
static bool is_packed(sheaf_dtype d)
{
    return d != SHEAF_F64 && d != SHEAF_F32 && d != SHEAF_BF16 && d != SHEAF_F16 &&
           d != SHEAF_I64 && d != SHEAF_U64 && d != SHEAF_BOOL && d != SHEAF_C64;
}

/* Is there a quantization_config? *how: its method; *part: the object that has it, NULL at the top.
 */
static bool says_so(char how[SHEAF__QUANTIZATION], const char **part, const char *config)
{
    json_t *root = NULL;
    *part = NULL;
    if (config == NULL)
        return false;
    sheaf_status_free(sheaf__json_parse(&root, config, strlen(config)));
    const json_t *value = sheaf__quantization_of(root, part);
    const bool yes = json_is_object(value);
    how[0] = '\0';
    if (yes)
        sheaf__quantization_name(how, value);
    json_decref(root);
    return yes;
}

static bool is_scale(const char *name)
{
    static const char *const words[] = {
        "scale", "absmax", "quant_map", "zero", "SCB", "codebook"
    };
    const char *last = strrchr(name, '.');
    last = last != NULL ? last + 1 : name;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(last, words[i]) != NULL)
            return true;
    return false;
}

/* ---- a stale config ---- */

sheaf_status *sheaf__catalog_stale_quantization(sheaf_catalog *c)
{
    char how[SHEAF__QUANTIZATION], *edited = NULL;
    const char *part;
    const sheaf__tensor_names names = sheaf__catalog_names(c);
    if (c->count == 0 || !says_so(how, &part, c->config) ||
        sheaf__quantization_by_names(names.name, c, c->count) != NULL ||
        sheaf__catalog_finding(c, "unread") != NULL)
        return NULL;
    for (int64_t i = 0; i < c->count; i++)
        if (is_packed(c->tensor[i].entry.dtype) || is_scale(c->tensor[i].entry.name))
            return NULL;
    sheaf_status *st = sheaf_hf_config_edit(&edited, c->config, part, key, NULL);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path != NULL ? c->config_path : c->root, st);
    free(c->config);
    c->config = edited;
    return sheaf__warning(
        c, "conflict", c->config_path != NULL ? c->config_path : c->root, "",
        "quantized weights, as quantization_config says",
        "sheaf convert {} {+plain} --to hf{config}",
        "weights in floats: quantization_config (%s) is of another form of the model and is left out",
        how[0] != '\0' ? how : "of an unknown kind");
}

/* ---- tensors that must not be rounded ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

sheaf_status *sheaf__quantised_find(sheaf__quantised *out, sheaf_source *source, const char *config)
{
    char how[SHEAF__QUANTIZATION];
    const char *part;
    const sheaf__tensor_names names = sheaf__source_names(source);
    const int64_t n = names.count;
    *out = (sheaf__quantised){ 0 };
    if ((out->module = calloc((size_t)n + 1, sizeof *out->module)) == NULL)
        return sheaf__no_memory("list of tensors");
    out->any =
        says_so(how, &part, config) || sheaf__quantization_by_names(names.name, source, n) != NULL;
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const char *dot = strrchr(e->name, '.');
        out->any = out->any || (is_packed(e->dtype) && e->dtype != SHEAF_U8 &&
                                e->dtype != SHEAF_I8 && e->dtype != SHEAF_I32);
        if (dot == NULL || !(is_packed(e->dtype) || (e->dtype == SHEAF_I64 && e->ndim > 1)))
            continue; /* QuIP# indexes its codes in 64 bits */
        out->module[out->count] = strndup(e->name, (size_t)(dot - e->name));
        if (out->module[out->count++] == NULL) {
            out->count--;
            sheaf__quantised_release(out);
            return sheaf__no_memory("list of tensors");
        }
    }
    qsort(out->module, (size_t)out->count, sizeof *out->module, by_text);
    return NULL;
}

bool sheaf__quantised_keeps(const sheaf__quantised *q, const char *name)
{
    char module[600], *at = module;
    if (!q->any)
        return false;
    if (is_scale(name))
        return true;
    snprintf(module, sizeof module, "%s", name);
    for (char *dot; (dot = strrchr(module, '.')) != NULL;) { /* beside packed numbers, or below */
        *dot = '\0';
        if (bsearch(&at, q->module, (size_t)q->count, sizeof *q->module, by_text) != NULL)
            return true;
    }
    return false;
}

void sheaf__quantised_release(sheaf__quantised *q)
{
    for (int64_t i = 0; i < q->count; i++)
        free(q->module[i]);
    free(q->module);
    *q = (sheaf__quantised){ 0 };
}
