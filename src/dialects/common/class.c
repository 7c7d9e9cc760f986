/* class.c - are these tensors of the model that the config says? See class.h. */
#include "dialects/common/class.h"

#include "base/base.h"
#include "dialects/common/model.h"
#include "dialects/common/whole.h"

enum { NAMED = 5 };

bool sheaf__is_stranger(const sheaf_schema *schema, const char *name)
{
    return sheaf_schema_find(schema, name) == NULL && !sheaf__is_old_buffer(name) &&
           !sheaf__is_spare(&schema->config, name) &&
           !(schema->config.tied && strcmp(name, sheaf__head_name) == 0);
}

/* Names of which the first are listed. */
typedef struct listed {
    sheaf_text text;
    int64_t n;
    bool biases; /* all are */
} listed;

static void list(listed *l, const char *name)
{
    if (l->n++ < NAMED)
        sheaf__text_add(&l->text, "%s%.200s", l->n > 1 ? ", " : "", name);
    l->biases = (l->n == 1 || l->biases) && sheaf__ends_with(name, ".bias");
}

/* Tensors of the files that the model lacks, and of the model that the files lack. One whose tower,
 * or the like, is missing as a whole is incomplete, not another. */
static void compare(listed *more, listed *less, const sheaf_catalog *c, const sheaf_schema *schema)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    bool here[SHEAF_PLAN_COMPONENTS] = { [SHEAF_PLAN_TEXT] = true };
    for (int64_t i = 0; i < c->count; i++) {
        const sheaf_logical *t = &c->tensor[i];
        if ((t->kind == SHEAF_WEIGHT || t->kind == SHEAF_BUFFER) &&
            sheaf__is_stranger(schema, t->entry.name))
            list(more, t->entry.name);
        else
            here[sheaf__family_component(family, t->entry.name)] = true;
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!t->buffer && here[sheaf__family_component(family, t->name)] &&
            sheaf__catalog_find(c, t->name) == NULL)
            list(less, t->name);
    }
}

static const char *name_in_schema(const void *self, int64_t i)
{
    return ((const sheaf_schema *)self)->tensor[i].name;
}

/* Is another model the reason that tensors are too many or missing? Parts of one model may be
 * damaged, which other findings say. */
static bool is_other(const sheaf__identity *is, const sheaf_catalog *c, const sheaf_schema *schema,
                     const listed *more, const listed *less)
{
    const sheaf__tensor_names wanted = { name_in_schema, schema, schema->count };
    const sheaf__identity want = sheaf__model_by_names(&wanted);
    if (want.family == is->family && want.variant == is->variant)
        return false;
    return more->n > 0 || (less->n > 0 && sheaf__catalog_defects(c) == 0);
}

static sheaf_status *report(sheaf_catalog *c, const sheaf_config *config, const sheaf__identity *is,
                            const listed *more, const listed *less)
{
    sheaf_text title = { 0 }, expected = { 0 }, cure = { 0 }, rest = { 0 };
    const char *declared = sheaf__config_title(config);
    sheaf__identity_title(&title, is);
    sheaf__text_add(&expected, "tensors of %s, as it says", declared);
    sheaf__text_add(&cure,
                    "the config of %s: give its path with `config`, or put it beside the weights",
                    title.failed ? "" : title.at);
    if (more->n > 0)
        sheaf__text_add(&rest, "; %" PRId64 " would be lost: %s%s", more->n, more->text.at,
                        more->n > NAMED ? ", ..." : "");
    else if (less->n > 0)
        sheaf__text_add(&rest, "; %s has %" PRId64 " more: %s%s", declared, less->n, less->text.at,
                        less->n > NAMED ? ", ..." : "");
    if (more->n > 0 && more->biases)
        sheaf__text_add(&cure, "; or see attention_bias and mlp_bias in this one");
    sheaf_status *st =
        title.failed || expected.failed || cure.failed || rest.failed
            ? sheaf__no_memory(c->root)
            : sheaf__defect(c, "class", c->config_path != NULL ? c->config_path : c->root, "",
                            expected.at, cure.at, "tensors of %s%s", title.at,
                            rest.at != NULL ? rest.at : "");
    sheaf__text_release(&title);
    sheaf__text_release(&expected);
    sheaf__text_release(&cure);
    sheaf__text_release(&rest);
    return st;
}

sheaf_status *sheaf__catalog_check_class(bool *other, sheaf_catalog *c, const sheaf_config *config,
                                         const sheaf_schema *schema)
{
    const sheaf__tensor_names names = sheaf__catalog_names(c);
    const sheaf__identity is = sheaf__model_by_names(&names);
    listed more = { 0 }, less = { 0 };
    sheaf_status *st = NULL;
    *other = false;
    if (is.family == NULL || sheaf__may_be(&is, config))
        return NULL;
    if (schema != NULL) {
        compare(&more, &less, c, schema);
        *other = is_other(&is, c, schema, &more, &less);
    } else
        *other =
            sheaf__family_for(config) != is.family && sheaf__family_for(config)->towers != NULL;
    if (*other)
        st = more.text.failed || less.text.failed ? sheaf__no_memory(c->root)
                                                  : report(c, config, &is, &more, &less);
    sheaf__text_release(&more.text);
    sheaf__text_release(&less.text);
    return st;
}

sheaf_status *sheaf__catalog_check_stored_class(sheaf_catalog *c)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    bool other;
    if (c->config == NULL || c->count == 0)
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    if (st != NULL)
        return sheaf__only_memory(st); /* whoever uses the model reports it */
    const sheaf__tensor_names names = sheaf__catalog_names(c);
    const sheaf__identity is = sheaf__model_by_names(&names);
    if (is.family != NULL && !sheaf__may_be(&is, &config)) {
        st = sheaf__only_memory(sheaf_schema_new(&schema, &config, 1)); /* likewise */
        TRY(st, sheaf__catalog_check_class(&other, c, &config, schema));
    }
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}

sheaf_status *sheaf__catalog_refuse_class(const sheaf_catalog *c)
{
    const sheaf_finding *f = sheaf__catalog_finding(c, "class");
    return f != NULL && f->severity == SHEAF_DEFECT ? sheaf__catalog_refusal(c) : NULL;
}
