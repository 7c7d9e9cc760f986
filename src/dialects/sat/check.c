/* check.c - checks the tensors against the config. See parts.h. */
#include "base/base.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/model.h"
#include "dialects/common/model_folder.h"
#include "dialects/common/tower_sizes.h"
#include "dialects/sat/parts.h"

typedef struct check {
    sheaf_catalog *c;
    const sheaf__sat_set *set;
    const char *path;           /* of the config; NULL = none */
    json_t *json;               /* parsed; NULL = unreadable */
    int64_t tower, cross, text; /* tensors of each sort */
    int64_t tower_elements, cross_elements;
    int64_t factors; /* of LoRA */
    bool insists;    /* the class in the text is the user's, not the file's */
} check;

static void count_sorts(check *k)
{
    for (int64_t i = 0; i < k->c->count; i++) {
        const sheaf_logical *t = &k->c->tensor[i];
        sheaf_sat_rule rule;
        if (t->kind == SHEAF_LORA)
            k->factors++;
        else if (sheaf__sat_rule_of(&rule, t->entry.name)) {
            k->tower += rule.tower;
            k->cross += rule.cross;
            k->text += !rule.tower && !rule.cross;
            k->tower_elements += rule.tower ? sheaf__elements(t->entry.ndim, t->entry.shape) : 0;
            k->cross_elements += rule.cross ? sheaf__elements(t->entry.ndim, t->entry.shape) : 0;
        }
    }
}

/* ---- the class ---- */

/* Does a class or model_type name the family with the second tower, or the one without? */
static bool is_class(const char *name, bool tower)
{
    const sheaf__family *family = sheaf__sat_family(tower);
    return name != NULL && (strstr(name, family->title) != NULL || strcmp(name, family->name) == 0);
}

/* The value of model_class, and the command that sets it. */
static const char *class_of(char text[64], bool tower)
{
    snprintf(text, 64, "\"%s\"", sheaf__sat_family(tower)->classes[0]);
    return text;
}
static const char *class_cure(char text[128], bool tower)
{
    const sheaf__family *family = sheaf__sat_family(tower);
    snprintf(text, 128, "sheaf convert {} {+%s} --to sat --model-class %s", family->name,
             family->classes[0]);
    return text;
}

static sheaf_status *report_class(check *k, const char *declared, bool agent)
{
    const char *names = sheaf__sat_family(true)->tower_names;
    char cure[128], expected[160];
    snprintf(expected, sizeof expected, "the tensors of CogAgent's high-resolution tower (%s)",
             names);
    if (agent)
        return sheaf__defect(
            k->c, "class", k->path, "", "a config of CogAgent, as the tensors are",
            class_cure(cure, true),
            "model_config.json says %.100s, which would have lost %" PRId64
            " tensors of the high-resolution tower "
            "(%s; %" PRId64 " elements) and %" PRId64 " of cross-attention (%" PRId64 " elements)",
            declared, k->tower, names, k->tower_elements, k->cross, k->cross_elements);
    return sheaf__defect(
        k->c, "class", k->path, "", expected,
        k->cross > 0
            ? "go back to the parts from before that merge, and join them with sheaf convert"
            : class_cure(cure, false),
        k->cross > 0
            ? "none, but %" PRId64
              " tensors of cross-attention: a CogAgent whose tower was lost, as a merge as CogVLM "
              "does; model_config.json says %.100s"
            : "none, and %" PRId64
              " of cross-attention: these are CogVLM's; model_config.json says %.100s",
        k->cross, declared);
}

/* Sets the class of the tensors in the parsed text: *agent. */
static sheaf_status *check_class(check *k, bool *agent, const char *wanted)
{
    const char *declared = json_string_value(json_object_get(k->json, "model_class"));
    char class[64], cure[128];
    *agent = k->tower > 0;
    if (k->tower + k->cross + k->text == 0)
        return sheaf__defect(k->c, "class", k->c->root, "", "tensors of CogVLM or CogAgent",
                             "sheaf verify {} --from deepspeed",
                             "none: another program that uses DeepSpeed may have written it");
    const char *name = wanted != NULL ? wanted : declared;
    sheaf_status *st =
        name == NULL && k->json != NULL && json_is_object(k->json)
            ? sheaf_hf_config_change(&k->c->config, "model_class", class_of(class, *agent))
            : NULL;
    if (st != NULL)
        return st;
    if (name == NULL) /* files written by sheaf have it */
        return sheaf__note(k->c, "inferred", k->c->root, "",
                           "a model_config.json that names the class", "", "%s",
                           *agent         ? "by its tensors: CogAgent"
                           : k->cross > 0 ? "by its tensors: CogAgent without its tower"
                                          : "by its tensors: CogVLM");
    if (*agent && !is_class(name, true) &&
        !is_class(name, false)) /* for CogVLM the config's reader reports it */
        return sheaf__defect(k->c, "class", k->path, "", "a config of CogAgent, as the tensors are",
                             class_cure(cure, true),
                             "model_config.json says %.100s, which no program here knows", name);
    if (*agent ? is_class(name, false)
               : is_class(name, true) || (is_class(name, false) && k->cross > 0))
        return report_class(k, name, *agent);
    return NULL;
}

/* ---- redundant numbers ---- */

static sheaf_status *check_ways(check *k)
{
    const json_t *declared = json_object_get(k->json, "model_parallel_size");
    sheaf_status *st = NULL;
    if (json_is_integer(declared) && json_integer_value(declared) != k->set->ways)
        st = sheaf__warning(k->c, "conflict", k->path, "",
                            "the number of parts, by files and shapes",
                            "sheaf convert {} {+joined} --to sat --tp 1",
                            "model_parallel_size %" PRId64 ", %d parts",
                            (int64_t)json_integer_value(declared), k->set->ways);
    for (int i = 0; st == NULL && i < k->set->nparts; i++) {
        const sheaf__sat_part *p = &k->set->part[i];
        if (p->chosen && p->ways > 0 && p->ways != k->set->ways)
            st = sheaf__defect(
                k->c, "conflict", p->path, "", "a part of the same save as the others", "",
                "mp_world_size %" PRId64 ", there are %d parts", p->ways, k->set->ways);
    }
    return st;
}

static sheaf_status *check_steps(check *k)
{
    const sheaf__sat_folder *f = NULL;
    sheaf_status *st = NULL;
    int64_t inside = -1;
    for (int i = 0; i < k->set->nparts; i++)
        if (k->set->part[i].chosen) {
            f = f != NULL ? f : &k->set->folder[k->set->part[i].folder];
            inside = k->set->part[i].step > inside ? k->set->part[i].step : inside;
        }
    k->c->step = f != NULL && f->step >= 0 ? f->step : inside;
    for (int i = 0; st == NULL && i < k->set->nparts; i++) {
        const sheaf__sat_part *p = &k->set->part[i];
        if (p->chosen && p->step >= 0 && p->step != inside)
            st = sheaf__defect(k->c, "stale", p->path, "", "parts of one step", "",
                               "part %d is of step %" PRId64 ", another of step %" PRId64, p->rank,
                               p->step, inside);
    }
    if (st == NULL && f != NULL && f->step >= 0 && inside >= 0 && inside != f->step)
        st =
            sheaf__warning(k->c, "conflict", f->dir, "", "the step that the files state", "",
                           "a folder of step %" PRId64 ", files of step %" PRId64, f->step, inside);
    return st;
}

/* ---- LoRA ---- */

/* Layers with factors; *differ: in how many of them a factor that should be copied is another in
 * each part. */
static sheaf_status *count_factors(check *k, int64_t *layers, int64_t *differ, int64_t *rank,
                                   bool *even)
{
    sheaf_status *st = NULL;
    *layers = *differ = 0;
    *rank = -1;
    *even = true;
    for (int64_t i = 0; st == NULL && i < k->c->count; i++) {
        const sheaf_logical *t = &k->c->tensor[i];
        sheaf__sat_name what;
        if (t->kind != SHEAF_LORA || t->entry.ndim != 2 ||
            !sheaf__sat_name_of(&what, t->entry.name))
            continue;
        const bool is_b = what.kind == SHEAF_SAT_B;
        const bool each = is_b == (what.rule.axis == 1) && !t->replicated && k->set->ways > 1;
        const int64_t r = t->entry.shape[is_b] / (each ? k->set->ways : 1);
        *layers += is_b && what.part == 0;
        *differ += each && what.part == 0;
        *even = *even && (*rank < 0 || *rank == r);
        *rank = r;
        char other[512 + 16];
        snprintf(other, sizeof other, "%s.matrix_%c.%d", what.linear, is_b ? 'A' : 'B', what.part);
        if (sheaf__catalog_find(k->c, other) == NULL)
            st = sheaf__defect(k->c, "missing", k->c->root, other,
                               "both factors of an adapted layer", "", "one of them");
    }
    return st;
}

static sheaf_status *check_lora(check *k)
{
    const bool says = json_is_true(json_object_get(k->json, "use_lora"));
    if (k->factors == 0)
        return !says ? NULL
                     : sheaf__warning(k->c, "missing", k->path, "",
                                      "factors of LoRA, as use_lora is true", "",
                                      "none: SAT would go on with fresh ones silently");
    int64_t layers, differ, rank;
    bool even;
    sheaf_status *st = count_factors(k, &layers, &differ, &rank, &even);
    if (st != NULL)
        return st;
    const json_t *declared = json_object_get(k->json, "lora_rank");
    if (!even || (json_is_integer(declared) && json_integer_value(declared) != rank)) {
        st = sheaf__defect(
            k->c, "conflict", k->path, "", "one rank of LoRA, lora_rank in model_config.json", "",
            even ? "factors of rank %" PRId64 " where lora_rank is %" PRId64
                   ", by which they are scaled"
                 : "factors of several ranks, %" PRId64 " among them; lora_rank is %" PRId64,
            rank, json_is_integer(declared) ? (int64_t)json_integer_value(declared) : -1);
        return st;
    }
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "LoRA of rank %" PRId64 " on %" PRId64 " linear layers, not merged",
                    rank, layers);
    if (differ > 0)
        sheaf__text_add(
            &text,
            "; in %" PRId64
            " of them each of the %d parts has factors of its own: SAT lets the copies drift, and adds each "
            "rank's product of a layer divided along its input without summing over ranks, so these are %d pairs of rank %" PRId64
            ", one for each slice of the weight. Merging takes each in its slice, as SAT's own merge does (the sum, "
            "which is not quite the function that was trained); as one adapter such layers have up to %d times the rank",
            differ, k->set->ways, k->set->ways, rank, k->set->ways);
    if (text.failed)
        st = sheaf__no_memory(k->c->root);
    else
        st = sheaf__warning(k->c, "unmerged", k->c->root, "", "weights with LoRA merged into them",
                            "sheaf merge {} {+merged}{config}", "%s", text.at);
    sheaf__text_release(&text);
    return st;
}

/* ---- all of it ---- */

/* Parses the file's config with the class of the tensors. */
static sheaf_status *parse(check *k, sheaf_config *config, bool agent)
{
    const bool said_agent =
        is_class(json_string_value(json_object_get(k->json, "model_class")), true);
    const char *const declared = k->c->config;
    char class[64], *text = NULL;
    if (said_agent == agent && !k->insists)
        return sheaf_config_parse(config, declared, strlen(declared));
    sheaf_status *st = sheaf_hf_config_edit(&text, declared, NULL, "model_type", NULL);
    TRY(st, sheaf_hf_config_change(&text, "model_class", class_of(class, agent)));
    TRY(st, sheaf_config_parse(config, text, strlen(text)));
    free(text);
    return st;
}

static sheaf_status *check_model(check *k, bool agent)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    sheaf_status *st = parse(k, &config, agent);
    if (st != NULL)
        return sheaf__catalog_defect(k->c, k->path, st);
    if (config.unknown_keys != NULL)
        st = sheaf__note(k->c, "foreign", k->path, "", "", "",
                         "keys that sheaf does not know and keeps: %s", config.unknown_keys);
    k->c->vocab = k->c->padded_vocab = config.vocab;
    TRY(st, sheaf__catalog_tower_sizes(k->c, &config, k->json, k->path));
    TRY(st, sheaf__catalog_defect(k->c, k->path, sheaf_schema_new(&schema, &config, 1)));
    TRY(st, schema != NULL ? sheaf__catalog_check_schema(k->c, schema, -1, false) : NULL);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}

static sheaf_status *load_config(check *k, const char *wanted)
{
    size_t size = 0;
    if (k->path == NULL)
        return sheaf__warning(k->c, "missing", k->c->root, "",
                              "model_config.json, which rank 0 writes", sheaf__config_cure(k->c),
                              "none");
    sheaf_status *st = sheaf__file_read_all(&k->c->config, &size, k->path, SHEAF_JSON_MAX_BYTES);
    TRY(st, sheaf__json_parse(&k->json, k->c->config, size));
    if (st != NULL) {
        free(k->c->config);
        k->c->config = NULL;
        return sheaf__catalog_defect(k->c, k->path, st);
    }
    k->c->config_path = strdup(k->path);
    if (k->c->config_path == NULL)
        return sheaf__no_memory(k->c->root);
    char class[64];
    const bool agent = is_class(wanted, true);
    const char *declared = json_string_value(json_object_get(k->json, "model_class"));
    if ((!agent && !is_class(wanted, false)) || agent == is_class(declared, true))
        return NULL;
    k->insists = true;
    return sheaf_hf_config_change(&k->c->config, "model_class", class_of(class, agent));
}

sheaf_status *sheaf__sat_check(sheaf_catalog *c, const sheaf__sat_set *set, const char *config_path,
                               const sheaf_dialect_hints *hints)
{
    check k = { .c = c, .set = set, .path = config_path };
    bool agent = false;
    count_sorts(&k);
    sheaf_status *st = load_config(&k, hints->model);
    TRY(st, check_steps(&k));
    TRY(st, check_ways(&k));
    TRY(st, c->count > 0 ? check_class(&k, &agent, hints->model) : NULL);
    if (c->count > 0 && k.tower + k.cross + k.text > 0)
        c->model = sheaf__sat_family(agent)->name;
    TRY(st, c->count > 0 && k.json != NULL ? check_model(&k, agent) : NULL);
    TRY(st, check_lora(&k));
    json_decref(k.json);
    return st;
}
