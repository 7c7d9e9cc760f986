/* other_form.c - see other_form.h. */
#include "dialects/common/other_form.h"

#include "base/base.h"
#include "catalog/boxes.h"
#include "catalog/catalog.h"
#include "catalog/over_source.h"

static sheaf_status *add(sheaf__renamed_source *t, const char *name, const char *there)
{
    const sheaf_source_entry *e = t->over.under->find(t->over.under, there);
    if (e == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", there),
                                          "every tensor of the model"),
                           "none of this name");
    return sheaf__renamed_add(t, strdup(name), e);
}

/* "exp_avg.NAME" */
static sheaf_status *add_moment(sheaf__renamed_source *t, const sheaf__family *to, const char *name)
{
    const char *base = sheaf__moment_base(name);
    char spelled[SHEAF__SPELLED], whole[SHEAF__SPELLED + 32];
    if (base == name)
        return NULL;
    sheaf__spell_form(spelled, to, false, base);
    snprintf(whole, sizeof whole, "%.*s%s", (int)(base - name), name, spelled);
    return add(t, whole, name);
}

/* ---- tables that are stored several times ---- */

static int64_t columns_of(const sheaf_source_entry *e)
{
    return e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
}

static sheaf_status *check_same(sheaf_source *source, const char *one, const char *other)
{
    const sheaf_source_entry *a = source->find(source, one), *b = source->find(source, other);
    const int64_t numel = sheaf__elements(a->ndim, a->shape), cols = columns_of(a);
    const size_t bytes = (size_t)numel * sheaf_dtype_bytes(a->dtype);
    if (b != NULL && b->dtype == a->dtype &&
        sheaf__same_shape(a->ndim, a->shape, b->ndim, b->shape)) {
        char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
        sheaf_status *st = x == NULL || y == NULL ? sheaf__no_memory(one) : NULL;
        TRY(st, source->read(source, one, 0, numel / cols, 0, cols, x));
        TRY(st, source->read(source, other, 0, numel / cols, 0, cols, y));
        const bool same = st == NULL && memcmp(x, y, bytes) == 0;
        free(x);
        free(y);
        if (st != NULL || same)
            return st;
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", one);
    sheaf_expected(st, "the same as '%s': the other form has one for both", other);
    return sheaf_try_this(sheaf_found(st, "another"),
                          "sheaf convert SRC DST --to sheaf keeps the model as it is");
}

/* Tensors of the model that no tensor of the other form is read from. */
static sheaf_status *check_rest(sheaf_source *from, const sheaf_schema *schema,
                                const sheaf__family *to)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const char *name = schema->tensor[i].name;
        char spelled[SHEAF__SPELLED], read[SHEAF__SPELLED];
        sheaf__spell_form(spelled, to, false, name);
        sheaf__spell_form(read, to, true, spelled);
        if (strcmp(read, name) != 0 && from->find(from, name) != NULL)
            st = check_same(from, name, read);
    }
    return st;
}

/* ---- the whole ---- */

static sheaf_status *make(sheaf_source **out, sheaf_source *from, const sheaf_schema *is,
                          const sheaf_schema *will, const sheaf__family *to)
{
    sheaf__renamed_source *t =
        sheaf__renamed_new(from, will->count + from->count(from)); /* moments too */
    sheaf_status *st = t == NULL ? sheaf__no_memory("tensors in another form") : NULL;
    for (int64_t i = 0; i < will->count && st == NULL; i++) {
        char there[SHEAF__SPELLED];
        sheaf__spell_form(there, to, true, will->tensor[i].name);
        st = add(t, will->tensor[i].name, there);
    }
    for (int64_t i = 0; i < from->count(from) && st == NULL; i++)
        st = add_moment(t, to, from->entry(from, i)->name);
    TRY(st, check_rest(from, is, to));
    return sheaf__over_end(out, t, st);
}

sheaf_status *sheaf__translate(sheaf_source **source, sheaf_schema **schema, char **config,
                               sheaf_config *parsed)
{
    const sheaf__family *family = sheaf__family_for(parsed), *to = sheaf__other_family(family);
    char *text = NULL;
    sheaf_config read = { 0 };
    sheaf_schema *will = NULL;
    sheaf_status *st = family->other->config(&text, *config, parsed);
    TRY(st, sheaf_config_parse(&read, text, strlen(text)));
    TRY(st, sheaf_schema_new(&will, &read, (*schema)->slices));
    TRY(st, make(source, *source, *schema, will, to));
    if (st != NULL) {
        sheaf_schema_free(will);
        sheaf_config_release(&read);
        free(text);
        return st;
    }
    sheaf_schema_free(*schema);
    sheaf_config_release(parsed);
    free(*config);
    *schema = will;
    *config = text;
    *parsed = read;
    return NULL;
}
