/* quantization.c - see quantization.h. Keys as transformers, gptqmodel, autoawq, compressed-tensors
 * and bitsandbytes write them. */
#include "schema/quantization.h"

#include "base/base.h"
#include "base/regex.h"
#include "schema/config_keys.h"

enum { MOST_GROUP = 1 << 24 };

const char *sheaf__quantizer_name(sheaf__quantizer by)
{
    static const char *const names[] = { NULL, "bitsandbytes", "GPTQ", "GPTQ", "AWQ", "FP8", NULL };
    return by > SHEAF__OTHER_QUANTIZER ? "compressed-tensors" : names[by];
}

const json_t *sheaf__quantization_of(const json_t *config, const char **part)
{
    static const char key[] = "quantization_config";
    static const char *const parts[] = { NULL, "text_config", "llm_config" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *of = parts[i] == NULL ? config : json_object_get(config, parts[i]),
                     *value = json_object_get(of, key);
        if (value != NULL && !json_is_null(value)) {
            *part = parts[i];
            return value;
        }
    }
    *part = NULL;
    return NULL;
}

/* Refuses a setting of a known quantizer, or an unknown one. NULL: something is refused already. */
static sheaf_status *refuse(sheaf_json_reader *r, const char *key, const char *expected)
{
    char name[SHEAF__QUANTIZATION];
    sheaf_status *st = sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%s", expected);
    sheaf__quantization_name(name, r->object);
    const char *is = st == NULL ? "" : sheaf_status_found(st);
    if (*name != '\0' && st != NULL)
        sheaf_found(st, "%s%s%s", name, strcmp(key, "quant_method") != 0 ? ": " : "",
                    strcmp(key, "quant_method") != 0 ? is : "");
    return sheaf_try_this(st, "the model that was quantized, in 16 or 32 bits; with `quantize nf4` "
                              "sheaf quantizes it itself");
}

static int64_t read_group(sheaf_json_reader *r, int64_t absent)
{
    const int64_t group = sheaf__json_int(r, "group_size", -1, MOST_GROUP, absent);
    return group < 0 ? 0 : group;
}

/* Is the text of a key, in small letters, one of these? Absent: yes. */
static bool is_one_of(sheaf_json_reader *r, const char *key, const char *list)
{
    char word[32] = "";
    const char *text = sheaf__json_string(r, key);
    for (size_t i = 0; text != NULL && text[i] != '\0' && i + 1 < sizeof word; i++)
        word[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
    return text == NULL || sheaf__is_listed(list, word, strlen(word));
}

/* ---- settings of single modules ---- */

/* gptqmodel takes the first pattern that re.match finds, "-:" leaves what it matches plain;
 * auto-round takes the module's name, else the first that re.search finds. */
static sheaf_status *matches(bool *out, bool auto_round, const char *pattern, const char *module)
{
    const bool marked = strncmp(pattern, "+:", 2) == 0 || strncmp(pattern, "-:", 2) == 0;
    *out = false;
    if (!auto_round)
        return sheaf__regex_match(out, NULL, "", pattern + 2 * marked, "", module, false);
    sheaf_status *st = sheaf__regex_match(out, NULL, ".*?(?:", pattern, ")", module, false);
    return sheaf__only_memory(st); /* a name that is no pattern matches nothing */
}

sheaf_status *sheaf__quantization_of_module(sheaf__quantization *out, const sheaf__quantization *of,
                                            const char *module)
{
    const char *pattern;
    json_t *value;
    const json_t *chosen = of->auto_round ? json_object_get(of->modules, module) : NULL;
    *out = *of;
    if (chosen == NULL)
        json_object_foreach((json_t *)of->modules, pattern, value)
        {
            bool yes;
            sheaf_status *st = matches(&yes, of->auto_round, pattern, module);
            if (st != NULL)
                return st;
            if (yes && (!of->auto_round || json_object_size(value) > 0)) {
                chosen = !of->auto_round && pattern[0] == '-' ? NULL : value;
                break;
            }
        }
    sheaf_json_reader r = { .object = chosen, .inside = "quantization_config: " };
    if (chosen == NULL)
        return NULL;
    out->group = read_group(&r, of->group > 0 ? of->group : -1);
    out->symmetric = sheaf__json_bool(&r, "sym", of->symmetric);
    out->act_order = sheaf__json_bool(&r, "desc_act", of->act_order);
    return r.st;
}

/* Of `text`, which stands in a setting of the module or the pattern. */
static void refuse_module(sheaf_json_reader *r, const char *key, const char *pattern,
                          const char *text)
{
    sheaf_status *st = refuse(r, key, "as many bits and one format for all modules, or plain ones");
    sheaf_found(st, "%s of '%.200s'", text, pattern);
}

static void read_module(sheaf__quantization *q, sheaf_json_reader *r, const char *key,
                        const char *pattern, const json_t *value)
{
    static const char *const others[] = { "format",       "checkpoint_format", "method",
                                          "quant_method", "pack_dtype",        "adapter" };
    sheaf_json_reader m = { .object = value, .inside = "quantization_config: " };
    sheaf__quantization own;
    bool yes;
    if (!q->auto_round && pattern[0] == '-')
        m.object = NULL;
    else if (!json_is_object(value)) {
        refuse_module(r, key, pattern, "no object");
        return;
    }
    const int64_t all = q->by == SHEAF__GPTQ_8 ? 8 : 4,
                  bits = sheaf__json_int(&m, "bits", 1, 64, all);
    const char *type = sheaf__json_string(&m, "data_type");
    const bool plain = q->auto_round && bits >= 16;
    if (bits != all && !plain) {
        char text[32];
        snprintf(text, sizeof text, "%d bits", (int)bits);
        refuse_module(r, key, pattern, text);
    } else if (type != NULL && strcmp(type, "int") != 0 && !plain)
        refuse_module(r, key, pattern, type);
    for (size_t i = 0; !q->auto_round && i < sizeof others / sizeof *others; i++)
        if (json_object_get(m.object, others[i]) != NULL)
            refuse_module(r, key, pattern, others[i]);
    sheaf__config_leave(r, &m);
    if (r->st == NULL && m.object != NULL) /* the values have their types */
        r->st = sheaf__quantization_of_module(
            &own,
            &(sheaf__quantization){ .modules = json_object_get(r->object, key),
                                    .auto_round = true },
            pattern);
    sheaf_status *st = q->auto_round ? NULL : matches(&yes, false, pattern, "");
    if (st != NULL) {
        refuse_module(r, key, pattern, sheaf_status_found(st));
        sheaf_status_free(st);
    }
}

/* ---- what each writes ---- */

static void read_modules(sheaf__quantization *q, sheaf_json_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    const char *pattern;
    json_t *of;
    if (value == NULL || json_is_null(value))
        return;
    if (!json_is_object(value)) {
        refuse(r, key, "an object");
        return;
    }
    q->modules = value;
    json_object_foreach((json_t *)value, pattern, of) if (r->st == NULL)
        read_module(q, r, key, pattern, of);
}

static void read_gptq(sheaf__quantization *q, sheaf_json_reader *r)
{
    const char *format = sheaf__json_string(r, "checkpoint_format");
    if (format == NULL)
        format = sheaf__json_string(r, "format");
    q->less_one = format == NULL || strcmp(format, "gptq") == 0;
    q->symmetric = sheaf__json_bool(r, "sym", false);
    q->act_order = sheaf__json_bool(r, "desc_act", false);
    q->group = read_group(r, -1);
    const int64_t bits = sheaf__json_int(r, "bits", 1, 64, SHEAF_JSON_NEEDED);
    q->by = bits == 8 ? SHEAF__GPTQ_8 : SHEAF__GPTQ_4;
    if (bits != 4 && (bits != 8 || !q->symmetric || q->act_order))
        refuse(r, "bits", "4, of GPTQ, or 8 with sym and without desc_act");
    else if (!q->less_one && strcmp(format, "gptq_v2") != 0)
        refuse(r,
               json_object_get(r->object, "checkpoint_format") != NULL ? "checkpoint_format"
                                                                       : "format",
               "gptq or gptq_v2");
    else if (json_is_true(json_object_get(r->object, "is_marlin_format")))
        refuse(r, "is_marlin_format", "false: Marlin has another order");
    read_modules(q, r, "dynamic");
}

static void read_awq(sheaf__quantization *q, sheaf_json_reader *r)
{
    /* of AutoAWQ, gptqmodel, transformers 5 */
    static const char *const orders[] = { "version", "checkpoint_format", "format" };
    const char *bits = json_object_get(r->object, "bits") == NULL ? "w_bit" : "bits";
    q->group = json_object_get(r->object, "q_group_size") == NULL
                   ? read_group(r, -1)
                   : sheaf__json_int(r, "q_group_size", 0, MOST_GROUP, 0);
    if (sheaf__json_int(r, bits, 1, 64, SHEAF_JSON_NEEDED) != 4)
        refuse(r, bits, "4, of AWQ");
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (!is_one_of(r, orders[i], "gemm"))
            refuse(r, orders[i], "gemm, of AWQ: others have another order");
    read_modules(q, r, "dynamic");
}

/* auto-round packs as GPTQ or as AWQ does (its inference/backend.py). */
static void read_auto_round(sheaf__quantization *q, sheaf_json_reader *r)
{
    const json_t *rotation = json_object_get(r->object, "rotation_config");
    q->auto_round = true;
    q->group = read_group(r, 128);
    q->symmetric = sheaf__json_bool(r, "sym", true);
    q->less_one = is_one_of(r, "packing_format", "auto auto_round:gptq auto_round:auto_gptq");
    if (is_one_of(r, "packing_format", "auto_round:awq auto_round:auto_awq") && !q->less_one)
        q->by = SHEAF__AWQ_4;
    else if (!q->less_one && !is_one_of(r, "packing_format", "auto_round auto_round:gptqmodel"))
        refuse(r, "packing_format",
               "auto_round:auto_gptq, auto_round:auto_awq, auto_round:gptqmodel or auto_round");
    if (sheaf__json_int(r, "bits", 1, 64, 4) != 4)
        refuse(r, "bits", "4, of auto-round");
    else if (!is_one_of(r, "data_type", "int"))
        refuse(r, "data_type", "int, of auto-round");
    else if (sheaf__json_int(r, "act_bits", 1, 64, 16) < 16)
        refuse(r, "act_bits", "16: activations as they are");
    else if (rotation != NULL && json_object_size(rotation) > 0)
        refuse(r, "rotation_config", "none: weights that are not rotated");
    read_modules(q, r, "extra_config");
}

static void read_fp8(sheaf__quantization *q, sheaf_json_reader *r)
{
    const json_t *block = json_object_get(r->object, "weight_block_size");
    if (!json_is_array(block) || json_array_size(block) != 2) {
        refuse(r, "weight_block_size", "two sizes: FP8 by blocks");
        return;
    }
    for (size_t i = 0; i < 2; i++)
        q->block[i] = (int64_t)json_integer_value(json_array_get(block, i));
    if (q->block[0] < 1 || q->block[1] < 1 || q->block[0] > MOST_GROUP || q->block[1] > MOST_GROUP)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "weight_block_size", "two positive numbers");
    else if (!is_one_of(r, "fmt", "e4m3"))
        refuse(r, "fmt", "e4m3");
    else if (!is_one_of(r, "activation_scheme", "dynamic"))
        refuse(r, "activation_scheme", "dynamic");
}

typedef struct compressed {
    sheaf__quantizer by;
    const char *format, *type, *strategies;
    int64_t group;
    const char *expected;
} compressed;

#define FORMAT(id, ...) { SHEAF__##id, __VA_ARGS__ },
static const compressed compressed_formats[] = { SHEAF__COMPRESSED(FORMAT) };
#undef FORMAT

/* The weights of one group of config_groups. */
static void read_scheme(sheaf__quantization *q, sheaf_json_reader *r, const compressed *as,
                        const json_t *group)
{
    const json_t *of = json_object_get(group, "weights"),
                 *activations = json_object_get(group, "input_activations");
    sheaf_json_reader w = { .object = of, .inside = "config_groups.weights." };
    if (!json_is_object(of) || (activations != NULL && !json_is_null(activations))) {
        refuse(r, "config_groups", "weights in 4 bits, and activations as they are");
        return;
    }
    const bool known = sheaf__json_int(&w, "num_bits", 1, 64, SHEAF_JSON_NEEDED) == 4 &&
                       is_one_of(&w, "type", as->type) && is_one_of(&w, "strategy", as->strategies);
    q->group = read_group(&w, -1);
    q->symmetric = sheaf__json_bool(&w, "symmetric", true) || q->symmetric;
    if (w.st == NULL && (!known || (as->group > 0 && q->group != as->group)))
        refuse(r, "config_groups", as->expected);
    sheaf__config_leave(r, &w);
}

static void read_compressed(sheaf__quantization *q, sheaf_json_reader *r)
{
    const json_t *groups = json_object_get(r->object, "config_groups");
    const compressed *as = NULL;
    const char *key;
    json_t *group;
    for (size_t i = 0; as == NULL && i < sizeof compressed_formats / sizeof *as; i++)
        if (is_one_of(r, "format", compressed_formats[i].format)) /* the first where it is absent */
            as = &compressed_formats[i];
    if (as == NULL || !json_is_object(groups) || json_object_size(groups) == 0) {
#define FORMAT(id, format, ...) " or " format
        refuse(r, "format", &SHEAF__COMPRESSED(FORMAT)[sizeof " or " - 1]);
#undef FORMAT
        return;
    }
    q->by = as->by;
    const char *sparse =
        json_string_value(json_object_get(json_object_get(r->object, "sparsity_config"), "format"));
    if (sparse != NULL && strcmp(sparse, "dense") != 0)
        refuse(r, "sparsity_config", "none, or the format dense");
    json_object_foreach((json_t *)groups, key, group) read_scheme(q, r, as, group);
    if (json_object_size(groups) > 1 && as->group == 0)
        q->group = 0; /* by the shapes */
}

static bool loads(const json_t *value, const char *one, const char *two)
{
    return json_is_true(json_object_get(value, one)) || json_is_true(json_object_get(value, two));
}

sheaf_status *sheaf__quantization_read(sheaf__quantization *out, const json_t *value)
{
    static const struct {
        const char *method;
        sheaf__quantizer by;
        void (*read)(sheaf__quantization *q, sheaf_json_reader *r);
    } known[] = {
        { "gptq", SHEAF__GPTQ_4, read_gptq },
        { "awq", SHEAF__AWQ_4, read_awq },
        { "auto-round", SHEAF__GPTQ_4, read_auto_round },
        { "intel/auto-round", SHEAF__GPTQ_4, read_auto_round }, /* until 0.5 */
        { "compressed-tensors", SHEAF__COMPRESSED_TENSORS_4, read_compressed },
        { "fp8", SHEAF__FP8_BLOCKS, read_fp8 },
    };
    sheaf_json_reader r = { .object = value, .inside = "quantization_config." };
    *out = (sheaf__quantization){ .by = SHEAF__OTHER_QUANTIZER };
    if (!json_is_object(value)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "'quantization_config'");
        return sheaf_found(sheaf_expected(st, "an object"), "another value");
    }
    const char *method = sheaf__json_string(&r, "quant_method");
    if ((method == NULL || strcmp(method, "bitsandbytes") == 0) &&
        (method != NULL || loads(value, "load_in_4bit", "_load_in_4bit") ||
         loads(value, "load_in_8bit", "_load_in_8bit")))
        out->by = SHEAF__BITSANDBYTES;
    for (size_t i = 0; method != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i].method) == 0) {
            out->by = known[i].by;
            known[i].read(out, &r);
        }
    if (r.st == NULL && out->by == SHEAF__OTHER_QUANTIZER)
        refuse(&r, "quant_method",
               "bitsandbytes, gptq, awq, auto-round, compressed-tensors or fp8: others are not "
               "read");
    if (r.st != NULL)
        out->by = SHEAF__OTHER_QUANTIZER;
    return r.st;
}

sheaf_status *sheaf__quantization_refusal(const char *config)
{
    sheaf__quantization q;
    const char *part;
    json_t *root = NULL;
    sheaf_status *st = config == NULL ? NULL : sheaf__json_parse(&root, config, strlen(config));
    const json_t *value = sheaf__quantization_of(root, &part);
    if (value != NULL)
        st = sheaf__quantization_read(&q, value);
    json_decref(root);
    return st;
}

/* ---- names ---- */

const char *sheaf__quantization_by_names(const char *(*name)(const void *self, int64_t i),
                                         const void *self, int64_t count)
{
    static const struct {
        const char *part, *name;
    } signs[] = {
        { ".W_q", "HQQ" },
        { ".codebooks", "AQLM" },
        { ".Qidxs", "QuIP#" },
        { ".weight._data", "quanto" },
        { ".weight_scales", "EETQ" },
        { ".weight_global_scale", "NVFP4" },
        { "_proj_blocks", "MXFP4" },
        { ".g_idx", "GPTQ" },
        { ".quant_state.bitsandbytes__", "bitsandbytes, 4 bits" },
        { ".SCB", "bitsandbytes, 8 bits" },
        { ".weight_scale_inv", "FP8" },
        { ".weight_packed", "compressed-tensors" },
        { ".qweight", "GPTQ or AWQ" },
        { ".weight_scale", "FP8 or the like" },
    };
    for (size_t k = 0; k < sizeof signs / sizeof *signs; k++)
        for (int64_t i = 0; i < count; i++)
            if (strstr(name(self, i), signs[k].part) != NULL)
                return signs[k].name;
    return NULL;
}

void sheaf__quantization_name(char name[SHEAF__QUANTIZATION], const json_t *value)
{
    static const struct {
        const char *method, *name;
    } known[] = {
        { "gptq", "GPTQ" },
        { "awq", "AWQ" },
        { "bitsandbytes", "bitsandbytes" },
        { "fp8", "FP8" },
        { "hqq", "HQQ" },
        { "aqlm", "AQLM" },
        { "eetq", "EETQ" },
        { "quip", "QuIP#" },
        { "mxfp4", "MXFP4" },
        { "gptq_marlin", "GPTQ in Marlin's order" },
        { "awq_marlin", "AWQ in Marlin's order" },
    };
    const char *method = json_string_value(json_object_get(value, "quant_method"));
    json_int_t bits = json_integer_value(json_object_get(value, "bits"));
    for (int k = 0; k < 2; k++)
        if (json_is_true(json_object_get(value, k == 0 ? "load_in_4bit" : "load_in_8bit")) ||
            json_is_true(json_object_get(value, k == 0 ? "_load_in_4bit" : "_load_in_8bit"))) {
            method = method != NULL ? method : "bitsandbytes";
            bits = k == 0 ? 4 : 8;
        }
    for (size_t i = 0; method != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].method, method) == 0)
            method = known[i].name;
    *name = '\0';
    if (method != NULL && bits > 0)
        snprintf(name, SHEAF__QUANTIZATION, "%.32s, %d bits", method, (int)bits);
    else if (method != NULL)
        snprintf(name, SHEAF__QUANTIZATION, "%.32s", method);
}
