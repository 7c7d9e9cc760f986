/* renamed.c - see renamed.h. The rules are those of renames.c, and prefixes. */
#include "lora/renamed.h"

#include "base/base.h"
#include "catalog/over_source.h"
#include "lora/match.h"
#include "lora/names.h"

/* ---- the rule ---- */

/* A tensor of the base under the name that a rule gives it. */
typedef struct alias {
    char *name;
    int64_t tensor;
} alias;

typedef struct naming {
    sheaf_source *adapter;
    const sheaf__tensor_names *base;
    alias *alias;           /* of every tensor of the base, ascending */
    sheaf_renames *renames; /* that made them; the adapter's names may be older still. NULL: none */
    bool old_names;         /* some of the adapter's names are older */
    /* prefixes: the aliases are the adapter's names without `drop`, or with `add` in front */
    const char *drop, *add;
    int64_t lost;    /* tensors that name a module and have no place, by the best rule so far, */
    const char *odd; /* and the first factor among them; NULL: none */
} naming;

static void forget(naming *n)
{
    for (int64_t i = 0; n->alias != NULL && i < n->base->count; i++)
        free(n->alias[i].name);
    free(n->alias);
    sheaf__renames_free(n->renames);
    n->alias = NULL;
    n->renames = NULL;
    n->drop = n->add = NULL;
    n->old_names = false;
}

/* Renames all tensors of the base by one group of rules, -1: none; *apart: no two get one name. */
static sheaf_status *make_aliases(bool *apart, naming *n, int group)
{
    const int64_t count = n->base->count;
    sheaf_status *st = group < 0 ? NULL : sheaf__renames_new(&n->renames, group);
    n->alias = calloc((size_t)count + 1, sizeof *n->alias);
    TRY(st, n->alias == NULL ? sheaf__no_memory("names of tensors") : NULL);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        const char *name = n->base->name(n->base->self, i);
        n->alias[i].tensor = i;
        if (group >= 0)
            st = sheaf__renames_apply(&n->alias[i].name, n->renames, name);
        else if ((n->alias[i].name = strdup(name)) == NULL)
            st = sheaf__no_memory("names of tensors");
    }
    if (st != NULL)
        return st;
    qsort(n->alias, (size_t)count, sizeof *n->alias, sheaf__by_name);
    *apart = true;
    for (int64_t i = 1; i < count; i++)
        *apart = *apart && strcmp(n->alias[i].name, n->alias[i - 1].name) != 0;
    return NULL;
}

static sheaf_status *find(int64_t *tensor, naming *n, const char *name)
{
    char *new = NULL;
    const alias *is = SHEAF_FIND(alias, name, n->alias, n->base->count, name);
    sheaf_status *st =
        is == NULL && n->renames != NULL ? sheaf__renames_apply(&new, n->renames, name) : NULL;
    if (new != NULL) {
        is = SHEAF_FIND(alias, name, n->alias, n->base->count, new);
        n->old_names |= is != NULL;
    }
    free(new);
    *tensor = is == NULL ? -1 : is->tensor;
    return st;
}

static sheaf_status *place_path(int64_t *tensor, naming *n, const char *path, int length,
                                const char *end)
{
    const size_t ndrop = n->drop == NULL ? 0 : strlen(n->drop);
    *tensor = -1;
    if (ndrop > 0 && (size_t)length > ndrop && strncmp(path, n->drop, ndrop) == 0) {
        path += ndrop;
        length -= (int)ndrop;
    }
    sheaf_status *st = NULL;
    for (int added = 0; added < (n->add != NULL ? 2 : 1) && st == NULL && *tensor < 0; added++) {
        char *name = NULL;
        if (asprintf(&name, "%s%.*s%s", added ? n->add : "", length, path, end) < 0)
            return sheaf__no_memory("names of tensors");
        st = find(tensor, n, name);
        free(name);
    }
    return st;
}

/* An adapter's name of one tensor. */
typedef struct part {
    sheaf_lora_part kind;
    const char *path, *end; /* of the module, `length` long; ".weight", or "" of a whole tensor */
    size_t length;
} part;

static part part_of(const char *name)
{
    static const char inner[] = ".base_layer"; /* of several stacks in one module: lora/stacked.h */
    part p = { .end = ".weight" };
    p.kind = sheaf__lora_part(&p.path, &p.length, name);
    if (p.kind == SHEAF_PART_WHOLE)
        p.end = "";
    while (p.kind != SHEAF_PART_WHOLE && p.length >= sizeof inner &&
           memcmp(p.path + p.length - (sizeof inner - 1), inner, sizeof inner - 1) == 0)
        p.length -= sizeof inner - 1;
    return p;
}

/* The tensor of the base that this one belongs to; -1: none. */
static sheaf_status *place(int64_t *tensor, naming *n, const part *p)
{
    return place_path(tensor, n, p->path, (int)p->length, p->end);
}

/* *yes: the base has a tensor for each that names one. Keeps in n->lost and n->odd what is
 * least. */
static sheaf_status *all_placed(bool *yes, naming *n)
{
    sheaf_source *a = n->adapter;
    const bool prefixed = n->drop != NULL || n->add != NULL; /* too many to look for the best */
    const int64_t most = prefixed ? 1 : n->lost;
    const char *odd = NULL;
    int64_t lost = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < a->count(a) && lost < most && st == NULL; i++) {
        int64_t tensor;
        const part p = part_of(a->entry(a, i)->name);
        if (p.kind != SHEAF_PART_WHOLE && p.kind != SHEAF_PART_A && p.kind != SHEAF_PART_TABLE_A &&
            p.kind != SHEAF_PART_TOKENS)
            continue;
        st = place(&tensor, n, &p);
        if (st != NULL || tensor >= 0)
            continue;
        lost++;
        if (odd == NULL && (p.kind == SHEAF_PART_A || p.kind == SHEAF_PART_TABLE_A))
            odd = a->entry(a, i)->name;
    }
    if (st == NULL && lost < most) {
        n->lost = lost;
        n->odd = odd;
    }
    *yes = st == NULL && lost == 0;
    return st;
}

/* "transformer.h.0" is "h.0" in files of the bare model; an adapter of the bare model has
 * "layers.0" for "model.layers.0". Such a difference is accepted if it explains all names. */
static sheaf_status *try_prefixes(bool *yes, naming *n)
{
    static const char *const before[] = { "transformer.",    "model.",    "base_model.",
                                          "language_model.", "encoder.",  "bert.",
                                          "roberta.",        "gpt_neox.", "vit.",
                                          "deit.",           "beit.",     "dinov2.",
                                          "swin.",           "segformer." };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < 2 * (sizeof before / sizeof *before) && st == NULL && !*yes; i++) {
        n->drop = i % 2 == 0 ? before[i / 2] : NULL;
        n->add = i % 2 == 1 ? before[i / 2] : NULL;
        n->old_names = false;
        st = all_placed(yes, n);
    }
    return st;
}

/* *yes: a rule explains all names; *plain: they are the base's own. Names of other files before
 * prefixes, which explain less. */
static sheaf_status *find_rule(bool *yes, bool *plain, naming *n)
{
    sheaf_status *st = NULL;
    *yes = false;
    for (int k = 0; k < 2; k++)
        for (int group = -1; group < sheaf__renames_groups() && st == NULL && !*yes; group++) {
            bool apart = false;
            forget(n);
            st = make_aliases(&apart, n, group);
            if (st == NULL && (apart || group < 0))
                st = k == 0 ? all_placed(yes, n) : try_prefixes(yes, n);
            *plain = k == 0 && group < 0;
        }
    return st;
}

static void tell(const naming *n, const char *path, const sheaf_events *events)
{
    const char *prefix = n->drop != NULL ? n->drop : n->add;
    if (prefix != NULL)
        sheaf_note(events, "%s: its names %s '%s', which the base's %s", path,
                   n->drop != NULL ? "begin with" : "lack", prefix,
                   n->drop != NULL ? "lack" : "begin with");
    const char *form = n->renames == NULL ? NULL : sheaf__renames_form(n->renames, n->old_names);
    if (form != NULL) {
        sheaf_note(events, "%s: its names are those of %s of this model", path, form);
        return;
    }
    if (n->old_names) {
        sheaf_note(events,
                   "%s: its names are those of an older transformers than the base's, or of the "
                   "text model by itself",
                   path);
        return;
    }
    for (int64_t i = 0; n->renames != NULL && i < n->base->count; i++) {
        const char *name = n->base->name(n->base->self, n->alias[i].tensor);
        if (strcmp(n->alias[i].name, name) != 0) {
            sheaf_note(
                events,
                "%s: its names are those that transformers gives this model on load: '%s' is '%s' in the base",
                path, n->alias[i].name, name);
            return;
        }
    }
}

/* ---- what the adapter would call each tensor of the base ---- */

enum { MOST_PAIRS = 64 };

/* Beginnings of names in the adapter and in the base, as one of its tensors shows them. */
typedef struct pair {
    char *theirs, *ours;
} pair;

typedef struct names {
    char **of; /* [base->count]; NULL: not known */
    pair pair[MOST_PAIRS];
    int npairs;
} names;

static void names_release(names *x, int64_t count)
{
    for (int64_t i = 0; x->of != NULL && i < count; i++)
        free(x->of[i]);
    free(x->of);
    for (int i = 0; i < x->npairs; i++) {
        free(x->pair[i].theirs);
        free(x->pair[i].ours);
    }
}

/* From "model.layers.0.a" and "model.language_model.layers.0.a": "model.layers." and
 * "model.language_model.layers.". */
static sheaf_status *learn(names *x, const char *theirs, const char *ours)
{
    const char *a = theirs + strlen(theirs), *b = ours + strlen(ours);
    while (a > theirs && b > ours && a[-1] == b[-1])
        a--, b--;
    while (*a != '\0' && ((a > theirs && a[-1] != '.') || (b > ours && b[-1] != '.')))
        a++, b++;
    const size_t n = strcspn(a, ".") + 1; /* the first word that both have */
    if (strlen(a) < n)
        return NULL;
    for (int i = 0; i < x->npairs; i++)
        if (strncmp(x->pair[i].ours, ours, (size_t)(b - ours) + n) == 0 &&
            strlen(x->pair[i].ours) == (size_t)(b - ours) + n)
            return NULL;
    if (x->npairs == MOST_PAIRS)
        return NULL;
    pair *p = &x->pair[x->npairs++];
    p->theirs = strndup(theirs, (size_t)(a - theirs) + n);
    p->ours = strndup(ours, (size_t)(b - ours) + n);
    return p->theirs == NULL || p->ours == NULL ? sheaf__no_memory("names of tensors") : NULL;
}

static sheaf_status *by_pairs(char **out, const names *x, const char *name)
{
    for (int i = 0; i < x->npairs; i++) {
        const size_t n = strlen(x->pair[i].ours);
        if (strncmp(name, x->pair[i].ours, n) == 0)
            return asprintf(out, "%s%s", x->pair[i].theirs, name + n) < 0
                       ? sheaf__no_memory("names of tensors")
                       : NULL;
    }
    return NULL;
}

/* Those that it has, those like them, and the rest where transformers renames the base's. */
static sheaf_status *find_names(names *x, naming *n)
{
    sheaf_source *a = n->adapter;
    const bool exact = !n->old_names && n->drop == NULL && n->add == NULL;
    sheaf_status *st = NULL;
    x->of = calloc((size_t)n->base->count + 1, sizeof *x->of);
    if (x->of == NULL)
        return sheaf__no_memory("names of tensors");
    for (int64_t i = 0; i < a->count(a) && st == NULL; i++) {
        int64_t t = -1;
        const part p = part_of(a->entry(a, i)->name);
        st = place(&t, n, &p);
        if (st != NULL || t < 0 || x->of[t] != NULL)
            continue;
        if (asprintf(&x->of[t], "%.*s%s", (int)p.length, p.path, p.end) < 0)
            return sheaf__no_memory("names of tensors");
        st = learn(x, x->of[t], n->base->name(n->base->self, t));
    }
    for (int64_t i = 0; i < n->base->count && st == NULL; i++) {
        const int64_t t = n->alias[i].tensor;
        if (x->of[t] == NULL)
            st = by_pairs(&x->of[t], x, n->base->name(n->base->self, t));
        if (st == NULL && x->of[t] == NULL && exact &&
            (x->of[t] = strdup(n->alias[i].name)) == NULL)
            st = sheaf__no_memory("names of tensors");
    }
    return st;
}

/* ---- the options ---- */

static sheaf_status *set_value(sheaf_patterns *to, const char *module, double value)
{
    sheaf_pattern *grown = realloc(to->at, ((size_t)to->n + 1) * sizeof *grown);
    if (grown == NULL)
        return sheaf__no_memory("LoRA options");
    to->at = grown;
    to->at[to->n] = (sheaf_pattern){ strdup(module), value, true };
    return to->at[to->n++].key == NULL ? sheaf__no_memory("LoRA options") : NULL;
}

/* The meaning of options for a module, by one of its names. */
typedef struct meaning {
    bool target, saved, whole; /* whole: the tensor's own name is among modules to save */
    double rank, alpha;
} meaning;

static sheaf_status *mean(meaning *out, const sheaf_lora_options *o, const char *name)
{
    *out = (meaning){ .rank = (double)o->rank, .alpha = o->alpha };
    if (!sheaf__ends_with(name, ".weight")) {
        out->whole = sheaf__lora_saves_tensor(o, name);
        return NULL;
    }
    sheaf_hit hit = SHEAF_HIT_NONE;
    char *module = strndup(name, strlen(name) - strlen(".weight"));
    sheaf_status *st = module == NULL ? sheaf__no_memory("LoRA options") : NULL;
    TRY(st, sheaf__lora_hit(&hit, o, module));
    out->target = hit == SHEAF_HIT_TARGET;
    if (st == NULL && out->target) {
        st = sheaf__lora_pattern_value(&out->rank, &o->rank_pattern, module, out->rank);
        TRY(st, sheaf__lora_pattern_value(&out->alpha, &o->alpha_pattern, module, out->alpha));
    }
    if (st == NULL) {
        out->saved = sheaf__lora_saves(o, module);
        out->whole = sheaf__lora_saves_tensor(o, name);
    }
    free(module);
    return st;
}

/* Adds what `is` says of a tensor of the base to options without any of it. */
static sheaf_status *add(sheaf_lora_options *to, const meaning *is, const char *name)
{
    char *module = sheaf__ends_with(name, ".weight")
                       ? strndup(name, strlen(name) - strlen(".weight"))
                       : strdup(name);
    bool ok = module != NULL;
    sheaf_status *st = NULL;
    if (ok && is->target)
        ok = sheaf__lora_add_name(&to->targets, module);
    if (ok && is->saved)
        ok = sheaf__lora_add_name(&to->modules_to_save, module);
    if (ok && is->whole)
        ok = sheaf__lora_add_name(&to->modules_to_save, name);
    if (ok && is->target && is->rank != (double)to->rank)
        st = set_value(&to->rank_pattern, module, is->rank);
    if (ok && is->target && is->alpha != to->alpha)
        TRY(st, set_value(&to->alpha_pattern, module, is->alpha));
    free(module);
    return ok ? st : sheaf__no_memory("LoRA options");
}

/* Entries are ends of paths to PEFT: a module whose path ends with another's is excluded. */
static sheaf_status *keep_out(sheaf_lora_options *o, const char *name)
{
    meaning is;
    sheaf_status *st = mean(&is, o, name);
    if (st != NULL || !is.target)
        return st;
    char *module = strndup(name, strlen(name) - strlen(".weight"));
    if (module == NULL ||
        (!sheaf__lora_has_name(&o->targets, module) && !sheaf__lora_add_name(&o->exclude, module)))
        st = sheaf__no_memory("LoRA options");
    free(module);
    return st;
}

/* A table with trained rows by the base's name of it. */
static sheaf_status *rename_tokens(sheaf_lora_options *o, const char *theirs, const char *ours)
{
    const size_t end = strlen(".weight");
    const sheaf_lora_tokens *t =
        sheaf__ends_with(theirs, ".weight") && sheaf__ends_with(ours, ".weight")
            ? sheaf__lora_tokens(o, theirs, strlen(theirs) - end)
            : NULL;
    if (t == NULL || t->module == NULL || sheaf__lora_tokens(o, ours, strlen(ours) - end) == t)
        return NULL;
    sheaf_lora_tokens *own = &o->tokens[t - o->tokens];
    free(own->module);
    own->module = strndup(ours, strlen(ours) - end);
    return own->module == NULL ? sheaf__no_memory("LoRA options") : NULL;
}

static sheaf_status *rename_options(sheaf_lora_options *o, const names *x,
                                    const sheaf__tensor_names *base)
{
    sheaf_lora_options new = { 0 };
    bool same = true;
    sheaf_status *st = sheaf__lora_options_copy(&new, o);
    sheaf_lora_options gone = { .targets = new.targets,
                                .exclude = new.exclude,
                                .modules_to_save = new.modules_to_save,
                                .layers = new.layers,
                                .layers_pattern = new.layers_pattern,
                                .rank_pattern = new.rank_pattern,
                                .alpha_pattern = new.alpha_pattern };
    new.targets = new.exclude = new.modules_to_save = new.layers_pattern = (sheaf_lora_names){ 0 };
    new.rank_pattern = new.alpha_pattern = (sheaf_patterns){ 0 };
    new.layers = NULL;
    new.nlayers = 0;
    sheaf_lora_options_release(&gone);
    for (int64_t i = 0; i < base->count && st == NULL; i++) {
        const char *name = base->name(base->self, i);
        meaning is, was;
        st = mean(&is, o, name);
        was = is;
        TRY(st, x->of[i] != NULL ? mean(&was, o, x->of[i]) : NULL);
        if (x->of[i] == NULL) /* it has no part of the base with such names, and needs none */
            was.target = false;
        same = same && is.target == was.target && is.saved == was.saved && is.whole == was.whole &&
               is.rank == was.rank && is.alpha == was.alpha;
        TRY(st, add(&new, &was, name));
        TRY(st, x->of[i] != NULL ? rename_tokens(o, x->of[i], name) : NULL);
        TRY(st, x->of[i] != NULL ? rename_tokens(&new, x->of[i], name) : NULL);
    }
    for (int64_t i = 0; i < base->count && st == NULL && !same; i++)
        st = keep_out(&new, base->name(base->self, i));
    if (st == NULL && !same && !o->all_linear) {
        const sheaf_lora_options old = *o;
        *o = new;
        new = old;
    }
    sheaf_lora_options_release(&new);
    return st;
}

/* ---- the tensors ---- */

/* A tensor by the base's name. */
static sheaf_status *add_renamed(sheaf__renamed_source *to, naming *n, const sheaf_source_entry *e)
{
    int64_t tensor = -1;
    const part p = part_of(e->name);
    sheaf_status *st = place(&tensor, n, &p);
    if (st != NULL)
        return st;
    const char *ours = tensor < 0 ? NULL : n->base->name(n->base->self, tensor);
    char *name = NULL;
    if (ours == NULL || !sheaf__ends_with(ours, p.end))
        name = strdup(e->name);
    else if (asprintf(&name, SHEAF_PEFT_PREFIX "%.*s%s", (int)(strlen(ours) - strlen(p.end)), ours,
                      p.path + p.length) < 0)
        name = NULL;
    /* of a whole tensor the end of its name is in `ours` */
    return sheaf__renamed_add(to, name, e);
}

static sheaf_status *rename_tensors(sheaf_source **adapter, naming *n)
{
    const int64_t count = n->adapter->count(n->adapter);
    sheaf__renamed_source *s = sheaf__renamed_new(n->adapter, count);
    sheaf_status *st = s == NULL ? sheaf__no_memory("names of tensors") : NULL;
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = add_renamed(s, n, n->adapter->entry(n->adapter, i));
    if (st == NULL)
        sheaf__over_sort(&s->over);
    return sheaf__over_end(adapter, s, st);
}

/* ---- all of it ---- */

/* n->adapter and n->base are set. */
static sheaf_status *rename_all(naming *n, sheaf_lora_options *o, sheaf_source **adapter,
                                const char *path, const sheaf_events *events)
{
    names x = { 0 };
    bool yes = false, plain = false;
    n->lost = INT64_MAX;
    sheaf_status *st = find_rule(&yes, &plain, n);
    if (st == NULL && yes && !plain) {
        tell(n, path, events);
        st = find_names(&x, n);
        TRY(st, rename_options(o, &x, n->base));
        TRY(st, rename_tensors(adapter, n));
    }
    names_release(&x, n->base->count);
    forget(n);
    return st;
}

sheaf_status *sheaf__lora_rename(sheaf_lora_options *o, sheaf_source **adapter, const char *path,
                                 const sheaf__tensor_names *base, const sheaf_events *events)
{
    naming n = { .adapter = *adapter, .base = base };
    return rename_all(&n, o, adapter, path, events);
}

/* ---- a model that sheaf runs ---- */

/* Names of all its tensors, and of each stack of experts' matrices, by the module that adapters
 * name for it. */
typedef struct listed {
    char **name;
    int64_t count;
} listed;

static const char *name_of(const void *self, int64_t i)
{
    return ((const listed *)self)->name[i];
}

static sheaf_status *list_names(listed *l, const sheaf_schema *schema)
{
    l->name = calloc(2 * (size_t)schema->count + 1, sizeof *l->name);
    if (l->name == NULL)
        return sheaf__no_memory("names of tensors");
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        char *stack = NULL;
        if ((l->name[l->count++] = strdup(t->name)) == NULL)
            return sheaf__no_memory("names of tensors");
        if (t->stack.of == NULL)
            continue;
        if (asprintf(&stack, "%.*s.weight", (int)(strrchr(t->stack.of, '.') - t->stack.of),
                     t->stack.of) < 0)
            return sheaf__no_memory("names of tensors");
        bool new = true; /* those of a layer stand together */
        for (int64_t k = l->count; k-- > 0 && l->count - k < 8 && new;)
            new = strcmp(l->name[k], stack) != 0;
        l->name[l->count] = stack;
        l->count += new;
        if (!new) {
            free(stack);
            l->name[l->count] = NULL;
        }
    }
    return NULL;
}

static sheaf_status *another_model(const naming *n, const sheaf_lora_options *o,
                                   const sheaf_schema *schema)
{
    const sheaf_tensor *like = NULL;
    for (int64_t i = 0; i < schema->count && like == NULL; i++)
        if (schema->tensor[i].layer >= 0 && !schema->tensor[i].bias &&
            sheaf__is_linear(schema->tensor[i].role))
            like = &schema->tensor[i];
    const part p = part_of(n->odd);
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "an adapter for another model");
    sheaf_expected(st, "factors of this model's layers, those of %s, '%s' for one",
                   sheaf__config_title(&schema->config), like == NULL ? "" : like->module);
    sheaf_found(st, "%" PRId64 " for modules that it has by none of its namings, '%.*s' for one",
                n->lost, (int)p.length, p.path);
    return sheaf__lora_try_base(st, o, "");
}

sheaf_status *sheaf__lora_rename_for(sheaf_lora_options *o, sheaf_source **adapter,
                                     const char *path, const sheaf_config *config,
                                     const sheaf_events *events)
{
    sheaf_config untied = *config; /* borrowed; an adapter may name both uses of a table */
    sheaf_schema *schema = NULL;
    listed l = { 0 };
    untied.tied = false;
    sheaf_status *st = sheaf_schema_new(&schema, &untied, 1);
    TRY(st, list_names(&l, schema));
    const sheaf__tensor_names base = { name_of, &l, l.count };
    naming n = { .adapter = *adapter, .base = &base };
    TRY(st, rename_all(&n, o, adapter, path, events));
    if (st == NULL && n.odd != NULL)
        st = another_model(&n, o, schema);
    for (int64_t i = 0; i < l.count; i++)
        free(l.name[i]);
    free(l.name);
    sheaf_schema_free(schema);
    return st;
}
