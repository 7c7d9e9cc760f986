/* config_numbers.c - see config_numbers.h.
 *
 * A size of a tensor is mostly linear in each number of a config: one other value of the number
 * gives the slope, and with it the value that the files ask for. That value counts if it leaves
 * fewer tensors that do not fit; the best one is kept, and the search goes on with it. */
#include "dialects/common/config_numbers.h"

#include "base/base.h"
#include "base/json.h"
#include "dialects/common/class.h"
#include "dialects/common/model.h"
#include "schema/family.h"

enum {
    MOST_KEYS = 128,
    MOST_CHANGES = 6,
    MOST_MISFITS = 6,     /* looked at in each round: sizes of different numbers */
    MOST_TENSORS = 40000, /* of a schema that is made again and again */
    MOST_DEPTH = 3
};

/* ---- numbers of the config ---- */

typedef struct key {
    json_t *object;
    const char *name, *inside; /* inside: the key of its object; "" at the top */
    bool idle;                 /* no size depends on it */
} key;

/* A size that does not fit; axis -1: how many layers, or the like, there are by the names. */
typedef struct misfit {
    char name[256];
    int axis;
    int64_t wanted, stored;
} misfit;

typedef struct search {
    const sheaf_catalog *stored;
    json_t *root;
    key key[MOST_KEYS];
    int keys;
    misfit at[MOST_MISFITS];
    int misfits;
    int64_t count;   /* of sizes and tensors that do not fit */
    int64_t tensors; /* of the schema */
} search;

static void list_keys(search *s, json_t *object, const char *inside, int depth)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (json_is_object(value) && depth < MOST_DEPTH)
            list_keys(s, value, name, depth + 1);
        if (s->keys < MOST_KEYS &&
            (json_is_boolean(value) || (json_is_integer(value) && json_integer_value(value) > 0)))
            s->key[s->keys++] = (key){ object, name, inside, false };
    }
}

static int64_t value_of(const key *k)
{
    const json_t *value = json_object_get(k->object, k->name);
    return json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
}

static sheaf_status *set_value(const key *k, int64_t value)
{
    json_t *old = json_object_get(k->object, k->name);
    json_t *made = json_is_boolean(old) ? json_boolean(value != 0) : json_integer(value);
    return made == NULL || json_object_set_new(k->object, k->name, made) != 0
               ? sheaf__no_memory("numbers of the config")
               : NULL;
}

/* *out NULL: the config contradicts itself. */
static sheaf_status *make_schema(sheaf_schema **out, const search *s)
{
    char *text = NULL;
    sheaf_config config = { 0 };
    *out = NULL;
    sheaf_status *st = sheaf__json_text(&text, s->root, JSON_COMPACT);
    TRY(st, sheaf_config_parse(&config, text, strlen(text)));
    TRY(st, sheaf_schema_new(out, &config, 1));
    sheaf_config_release(&config);
    free(text);
    return sheaf__only_memory(st);
}

/* ---- what does not fit ---- */

/* A moment, or a factor of LoRA, does not. */
static bool counts(const sheaf_logical *t)
{
    return t->kind == SHEAF_WEIGHT || t->kind == SHEAF_BUFFER;
}

static void add_misfit(search *s, const char *name, int axis, int64_t wanted, int64_t stored)
{
    for (int i = 0; i < s->misfits; i++)
        if (s->at[i].axis == axis && s->at[i].wanted == wanted && s->at[i].stored == stored)
            return;
    if (s->misfits == MOST_MISFITS || strlen(name) >= sizeof s->at->name)
        return;
    misfit *m = &s->at[s->misfits++];
    *m = (misfit){ .axis = axis, .wanted = wanted, .stored = stored };
    memcpy(m->name, name, strlen(name) + 1);
}

/* 1 + the largest number that stands behind `prefix` in a name. */
static int64_t past(const char *name, const char *prefix, size_t n, int64_t most)
{
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9')
        return most;
    const int64_t number = strtoll(name + n, NULL, 10);
    return number < INT32_MAX && number + 1 > most ? number + 1 : most;
}

/* How many layers, experts or the like both have, by a name that one of them lacks. */
static void count_names(search *s, const sheaf_schema *schema, const char *name)
{
    for (const char *dot = name; (dot = strchr(dot, '.')) != NULL;) {
        dot++;
        if (*dot < '0' || *dot > '9')
            continue;
        const size_t n = (size_t)(dot - name);
        int64_t wanted = 0, stored = 0;
        for (int64_t i = 0; i < schema->count; i++)
            wanted = past(schema->tensor[i].name, name, n, wanted);
        for (int64_t i = 0; i < s->stored->count; i++) {
            if (counts(&s->stored->tensor[i]))
                stored = past(s->stored->tensor[i].entry.name, name, n, stored);
        }
        if (wanted != stored)
            add_misfit(s, name, -1, wanted, stored);
    }
}

/* With `list`, notes the first of each sort in s->at. */
static int64_t compare(search *s, const sheaf_schema *schema, bool list)
{
    const char *first = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const sheaf_logical *is = sheaf__catalog_find(s->stored, t->name);
        const sheaf_source_entry *e = is == NULL ? NULL : &is->entry;
        if (e == NULL) {
            n += !t->buffer;
            first = first == NULL && !t->buffer ? t->name : first;
            continue;
        }
        n += e->ndim != t->ndim;
        for (int axis = 0; e->ndim == t->ndim && axis < t->ndim; axis++)
            if (e->shape[axis] != t->shape[axis]) {
                n++;
                if (list)
                    add_misfit(s, t->name, axis, t->shape[axis], e->shape[axis]);
            }
    }
    for (int64_t i = 0; i < s->stored->count; i++) {
        const sheaf_logical *is = &s->stored->tensor[i];
        if (!counts(is) || !sheaf__is_stranger(schema, is->entry.name))
            continue;
        n++;
        first = first == NULL ? is->entry.name : first;
    }
    if (list && first != NULL)
        count_names(s, schema, first);
    return n;
}

/* ---- one number ---- */

/* The size that a misfit is about, in another schema; -1: there is none. */
static int64_t size_in(const sheaf_schema *schema, const misfit *m)
{
    const sheaf_tensor *t = sheaf_schema_find(schema, m->name);
    return t == NULL || m->axis >= t->ndim ? -1 : t->shape[m->axis];
}

/* Do the same sizes not fit here? */
static bool is_same(search *s, const sheaf_schema *schema)
{
    bool same = schema->count == s->tensors && compare(s, schema, false) == s->count;
    for (int i = 0; i < s->misfits; i++)
        same = same && (s->at[i].axis < 0 || size_in(schema, &s->at[i]) == s->at[i].wanted);
    return same;
}

/* Values of a number that misfits ask for: n of them. */
static sheaf_status *propose(int64_t out[MOST_MISFITS], int *n, search *s, key *k)
{
    const int64_t is = value_of(k), other[] = { 2 * is, is + 1, is / 2 };
    sheaf_schema *schema = NULL;
    sheaf_status *st = NULL;
    int64_t step = 0;
    *n = 0;
    for (int i = 0; i < 3 && st == NULL && schema == NULL; i++)
        if (other[i] > 0 && other[i] < INT32_MAX) {
            step = other[i] - is;
            st = set_value(k, other[i]);
            TRY(st, make_schema(&schema, s));
        }
    TRY(st, set_value(k, is));
    k->idle = st == NULL && schema != NULL && is_same(s, schema);
    for (int i = 0; st == NULL && schema != NULL && i < s->misfits; i++) {
        const misfit *m = &s->at[i];
        const int64_t moved = m->axis < 0 ? 0 : size_in(schema, m) - m->wanted,
                      by = m->stored - m->wanted;
        const bool divides = moved != 0 && by * step % moved == 0;
        const int64_t value = m->axis < 0 ? is + by : divides ? is + by * step / moved : 0;
        if (!k->idle && value > 0 && value < INT32_MAX && value != is)
            out[(*n)++] = value;
    }
    sheaf_schema_free(schema);
    return st;
}

typedef struct change {
    key *k;
    int64_t value, count;
} change;

/* Sets k to `value`, and back: is it better than *best? */
static sheaf_status *try_value(change *best, search *s, key *k, int64_t value)
{
    const int64_t is = value_of(k);
    sheaf_schema *schema = NULL;
    sheaf_status *st = set_value(k, value);
    TRY(st, make_schema(&schema, s));
    const int64_t count = st == NULL && schema != NULL ? compare(s, schema, false) : INT64_MAX;
    if (count < best->count)
        *best = (change){ k, value, count };
    sheaf_schema_free(schema);
    return TRY(st, set_value(k, is));
}

static sheaf_status *try_key(change *best, search *s, key *k)
{
    int64_t value[MOST_MISFITS];
    int n = 0;
    if (json_is_boolean(json_object_get(k->object, k->name)))
        return try_value(best, s, k, !value_of(k));
    sheaf_status *st = propose(value, &n, s, k);
    for (int i = 0; i < n && st == NULL; i++)
        st = try_value(best, s, k, value[i]);
    return st;
}

/* ---- all of them ---- */

/* The misfit that a change is for: the first that it mends. */
static const char *mended(const search *s, const sheaf_schema *after)
{
    for (int i = 0; i < s->misfits; i++)
        if (s->at[i].axis < 0 || size_in(after, &s->at[i]) == s->at[i].stored)
            return s->at[i].name;
    return NULL;
}

static void tell(sheaf_text *out, const change *c, const char *name)
{
    const bool flag = json_is_boolean(json_object_get(c->k->object, c->k->name));
    const int64_t is = value_of(c->k);
    char was[24], now[24];
    snprintf(was, sizeof was, "%" PRId64, is);
    snprintf(now, sizeof now, "%" PRId64, c->value);
    sheaf__text_add(out, "%s%s%s%s %s, where it says %s", out->size > 0 ? "; " : "", c->k->inside,
                    *c->k->inside != '\0' ? "." : "", c->k->name,
                    !flag      ? now
                    : c->value ? "true"
                               : "false",
                    !flag ? was
                    : is  ? "true"
                          : "false");
    if (name != NULL)
        sheaf__text_add(out, " (by %s)", name);
}

/* *rest: sizes and tensors that do not fit with these numbers either. */
static sheaf_status *find_numbers(sheaf_text *out, int *changed, int64_t *rest, const char *json,
                                  const sheaf_catalog *stored)
{
    search s = { .stored = stored };
    sheaf_schema *schema = NULL;
    *changed = 0;
    *rest = 0;
    sheaf_status *st = sheaf__only_memory(sheaf__json_parse(&s.root, json, strlen(json)));
    if (st == NULL && s.root != NULL) {
        list_keys(&s, s.root, "", 0);
        st = make_schema(&schema, &s);
    }
    while (st == NULL && schema != NULL && schema->count < MOST_TENSORS) {
        s.misfits = 0;
        s.tensors = schema->count;
        s.count = *rest = compare(&s, schema, true);
        change best = { NULL, 0, s.count };
        for (int i = 0; st == NULL && s.count > 0 && *changed < MOST_CHANGES && i < s.keys; i++)
            if (!s.key[i].idle)
                st = try_key(&best, &s, &s.key[i]);
        if (st != NULL || best.k == NULL)
            break;
        const int64_t is = value_of(best.k);
        sheaf_schema_free(schema);
        schema = NULL;
        st = set_value(best.k, best.value);
        TRY(st, make_schema(&schema, &s));
        TRY(st, set_value(best.k, is));
        if (st == NULL)
            tell(out, &best, mended(&s, schema));
        TRY(st, set_value(best.k, best.value));
        ++*changed;
    }
    sheaf_schema_free(schema);
    json_decref(s.root);
    return st != NULL ? st : out->failed ? sheaf__no_memory("numbers of the config") : NULL;
}

sheaf_status *sheaf__config_advice(sheaf_text *out, int *changed, bool *few,
                                   const sheaf_config *config, const char *json,
                                   const sheaf_catalog *stored)
{
    enum { FEW = 2 };
    const sheaf__tensor_names names = sheaf__catalog_names(stored);
    const sheaf__identity is = sheaf__model_by_names(&names);
    const char *declared = sheaf__config_title(config);
    sheaf_text numbers = { 0 }, title = { 0 };
    int64_t rest = 0;
    *changed = 0;
    *few = false;
    if (json == NULL || is.family == NULL)
        return NULL;
    sheaf_status *st = find_numbers(&numbers, changed, &rest, json, stored);
    sheaf__identity_title(&title, &is);
    if (st == NULL && title.failed)
        st = sheaf__no_memory("numbers of the config");
    *few = st == NULL && *changed > 0 && *changed <= FEW && rest == 0;
    /* Of this very model without another number that helps: it is the weights that lack tensors. */
    const bool other = st == NULL && strcmp(title.at, declared) != 0,
               wrong = *changed > 0 || (rest > 0 && other);
    if (st == NULL && *few)
        sheaf__text_add(out, "correct the config, of %s: %s; or give", declared, numbers.at);
    else if (st == NULL && wrong)
        sheaf__text_add(out, "give");
    if (st == NULL && wrong)
        sheaf__text_add(out, " the config of these weights%s%s",
                        other ? ", which have the names of " : "", other ? title.at : "");
    if (st == NULL && !*few && *changed > 0)
        sheaf__text_add(out, "; this one, of %s, would have to have %s%s", declared, numbers.at,
                        rest > 0 ? ", and more" : "");
    else if (st == NULL && !*few && wrong)
        sheaf__text_add(out, "; this one is of %s", declared);
    sheaf__text_release(&numbers);
    sheaf__text_release(&title);
    return st == NULL && out->failed ? sheaf__no_memory("numbers of the config") : st;
}
