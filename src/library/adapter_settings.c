/* adapter_settings.c - see session.h. */
#include "base/base.h"
#include "library/session.h"

#include "lora/adapter.h"
#include "models/open.h"

typedef struct compared {
    const sheaf__settings *state;
    const sheaf__setting *table;
    const sheaf_train_options *o;
    const sheaf_schema *schema;
    const sheaf_lora *is; /* the adapter's */
    /* Its values of --lora-rank and --lora-alpha. */
    int64_t rank;
    double alpha;
} compared;

/* Given by a flag. An empty text is not given. */
static bool given(const compared *c, const char *name)
{
    const sheaf__setting *o = sheaf__setting_find(c->table, name);
    const char *text =
        (o->kind & SHEAF__IS_KIND) == SHEAF__IS_TEXT ? *(const char **)o->value : "-";
    return sheaf__settings_given(c->state, c->table, name) && text != NULL && text[0] != '\0';
}

/* Given by a flag or a recipe, which may be for new adapters. */
static bool named(const compared *c, const char *name)
{
    return sheaf__settings_named(c->state, c->table, name);
}

/* `is`: the adapter's value in the flag's form; NULL: not expressible. */
static sheaf_status *differs(const compared *c, const char *name, const char *is)
{
    char *said_so = sheaf__setting_show(sheaf__setting_find(c->table, name));
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`%s`", name);
    if (is != NULL)
        sheaf_expected(st, "%s, as the config of `adapter %s` has it", is, c->o->adapter);
    else
        sheaf_expected(st, "the value in the config of `adapter %s`", c->o->adapter);
    sheaf_found(st, "%s", said_so == NULL ? "another" : said_so);
    free(said_so);
    return sheaf_try_this(st,
                          "without `%s`: the adapter's config decides; a new adapter begins "
                          "without `adapter`",
                          name);
}

/* A recipe's lines of LoRA are ignored, with a note; they stay in the settings.
 */
static void note_recipe(const compared *c, const sheaf_events *events)
{
    static const char *const names[] = {
        "lora-rank",   "lora-alpha",        "lora-dropout",       "lora-rslora",
        "lora-dora",   "lora-bias",         "lora-targets",       "lora-exclude",
        "lora-layers", "lora-rank-pattern", "lora-alpha-pattern", "modules-to-save"
    };
    sheaf_text list = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (named(c, names[i]) && !sheaf__settings_given(c->state, c->table, names[i]))
            sheaf__text_add(&list, "%s%s", list.size > 0 ? ", " : "", names[i]);
    if (list.size > 0)
        sheaf_note(events, "of the recipe %s: the config of `adapter` decides", list.at);
    sheaf__text_release(&list);
}

/* ---- numbers ---- */

static double value_of(const sheaf_lora_module *module, bool alpha)
{
    return alpha ? module->alpha : (double)module->rank;
}

/* The rank or alpha of most modules. For fused layers a file has the sum over all parts. */
static double usual(const sheaf_lora *lora, bool alpha, double absent)
{
    double value = absent;
    for (int i = 0, most = 0; i < lora->nmodules; i++) {
        int n = 0;
        for (int j = 0; j < lora->nmodules; j++)
            n += value_of(&lora->module[j], alpha) == value_of(&lora->module[i], alpha);
        if (n > most) {
            most = n;
            value = value_of(&lora->module[i], alpha);
        }
    }
    return value;
}

/* A setting's text with the adapter's value (malloc'd). */
static char *show_as(const compared *c, const char *name, const void *value)
{
    sheaf__setting as = *sheaf__setting_find(c->table, name);
    as.value = (void *)value;
    return sheaf__setting_show(&as);
}

/* Numbers of flags must be the adapter's; those that neither a flag nor a recipe gives become the
 * adapter's, if a flag can have them: settings are read back. */
static sheaf_status *take_numbers(const compared *c)
{
    const sheaf_lora_options *is = &c->is->options;
    const int bias = (int)is->bias;
    const struct {
        const char *name, *pattern; /* modules by the pattern have others */
        const void *is, *stored;
    } numbers[] = { { "lora-rank", "lora-rank-pattern", &c->rank, &is->rank },
                    { "lora-alpha", "lora-alpha-pattern", &c->alpha, &is->alpha },
                    { "lora-dropout", NULL, &is->dropout, &is->dropout },
                    { "lora-rslora", NULL, &is->rslora, &is->rslora },
                    { "lora-dora", NULL, &is->dora, &is->dora },
                    { "lora-bias", NULL, &bias, &bias } };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && st == NULL; i++) {
        const char *name = numbers[i].name;
        const sheaf__setting *o = sheaf__setting_find(c->table, name);
        char *mine = sheaf__setting_show(o), *its = show_as(c, name, numbers[i].is),
             *stored = show_as(c, name, numbers[i].stored);
        if (mine == NULL || its == NULL || stored == NULL)
            st = sheaf__no_memory("the config of `adapter`");
        else if (!named(c, name))
            sheaf_status_free(sheaf__setting_set(o, its, name));
        else if (given(c, name) && (numbers[i].pattern == NULL || !given(c, numbers[i].pattern)) &&
                 strcmp(mine, its) != 0 && strcmp(mine, stored) != 0)
            st = differs(c, name, its);
        free(mine);
        free(its);
        free(stored);
    }
    return st;
}

/* ---- lists, compared by the modules that they select ---- */

/* Modules without a pattern and without a flag: the adapter's value is right. */
#define ANY_RANK 65536
#define ANY_ALPHA 1e-300

/* Replaces the lists in *out, a copy of the adapter's options, by those of flags. */
static sheaf_status *say_lists(sheaf_lora_options *out, const compared *c)
{
    const sheaf_train_options *o = c->o;
    const bool ranks = given(c, "lora-rank-pattern"), alphas = given(c, "lora-alpha-pattern");
    const struct {
        const char *name, *text;
        sheaf_status *(*set)(sheaf_lora_options *out, const char *text);
        bool with_targets; /* flags of targets give these too */
    } lists[] = { { "lora-targets", o->lora_targets, sheaf__lora_set_targets, true },
                  { "lora-exclude", o->lora_exclude, sheaf__lora_set_exclude, true },
                  { "lora-layers", o->lora_layers, sheaf__lora_set_layers, true },
                  { "modules-to-save", o->modules_to_save, sheaf__lora_set_saved, false } };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const bool is_given = given(c, lists[i].name);
        if (is_given || (lists[i].with_targets && given(c, "lora-targets")))
            TRY(st, sheaf_in(lists[i].set(out, is_given ? lists[i].text : NULL), "`%s`",
                             lists[i].name));
    }
    if (ranks) {
        out->rank = given(c, "lora-rank") ? o->lora_rank : ANY_RANK;
        TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->rank_pattern, o->lora_rank_pattern, true),
                         "`lora-rank-pattern`"));
    }
    if (alphas) {
        out->alpha = given(c, "lora-alpha") ? o->lora_alpha : ANY_ALPHA;
        TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->alpha_pattern, o->lora_alpha_pattern, false),
                         "`lora-alpha-pattern`"));
    }
    out->whole_rank &= !ranks && !alphas;
    return st;
}

static bool same_modules(const sheaf_lora *is, const sheaf_lora *other)
{
    bool same = other->nmodules == is->nmodules;
    for (int i = 0; same && i < other->nmodules; i++)
        same = other->module[i].base == is->module[i].base;
    return same;
}

static bool same_values(const sheaf_lora *is, const sheaf_lora *other, bool alpha)
{
    bool same = true;
    for (int i = 0; same && i < other->nmodules; i++) {
        const double value = value_of(&other->module[i], alpha);
        same = value == value_of(&is->module[i], alpha) || value == (alpha ? ANY_ALPHA : ANY_RANK);
    }
    return same;
}

/* An adapter also lists the tensors of --train there. */
static bool same_saved(const compared *c, const sheaf_lora *other)
{
    const bool trains = c->o->train != NULL && c->o->train[0] != '\0';
    bool same = trains || other->nsaved == c->is->nsaved;
    for (int i = 0; same && i < other->nsaved; i++) {
        same = false;
        for (int j = 0; j < c->is->nsaved && !same; j++)
            same = other->saved[i] == c->is->saved[j];
    }
    return same;
}

/* Do the adapter's options with the lists of flags mean the same for this model? */
static sheaf_status *check_lists(const compared *c)
{
    sheaf_lora_options options = { 0 };
    sheaf_lora *other = NULL;
    sheaf_status *none = NULL, *st = sheaf__lora_options_copy(&options, &c->is->options);
    TRY(st, say_lists(&options, c));
    if (st == NULL)
        none = sheaf_lora_resolve(&other, c->schema, &options);
    const bool modules = st == NULL && none == NULL && same_modules(c->is, other);
    const struct {
        const char *flag;
        bool same;
    } lists[] = { { "lora-targets", modules },
                  { "lora-exclude", modules },
                  { "lora-layers", modules },
                  { "lora-rank-pattern", modules && same_values(c->is, other, false) },
                  { "lora-alpha-pattern", modules && same_values(c->is, other, true) },
                  { "modules-to-save", modules && same_saved(c, other) } };
    for (size_t i = 0; st == NULL && i < sizeof lists / sizeof *lists; i++)
        if (given(c, lists[i].flag) && !lists[i].same)
            st = differs(c, lists[i].flag, NULL);
    sheaf_status_free(none);
    sheaf_lora_free(other);
    sheaf_lora_options_release(&options);
    return st;
}

sheaf_status *sheaf__adapter_settings(const sheaf__settings *state, const sheaf__setting *table,
                                      sheaf_train_options *o, const sheaf_events *events)
{
    sheaf__opened opened = { 0 };
    if (o->method != SHEAF_METHOD_LORA || o->adapter == NULL || o->adapter[0] == '\0')
        return NULL;
    sheaf_status *unread =
        sheaf__open_model(&opened, &(sheaf__open_options){ .model = o->model,
                                                           .config = o->config,
                                                           .slices = o->slices,
                                                           .adapter = o->adapter,
                                                           .config_only = true });
    sheaf_status *st = NULL;
    if (unread == NULL && opened.lora != NULL) {
        const sheaf_lora_options *is = &opened.lora->options;
        const compared c = { .state = state,
                             .table = table,
                             .o = o,
                             .schema = opened.schema,
                             .is = opened.lora,
                             .rank = (int64_t)usual(opened.lora, false, (double)is->rank),
                             .alpha = usual(opened.lora, true, is->alpha) };
        st = take_numbers(&c);
        TRY(st, check_lists(&c));
        if (st == NULL)
            note_recipe(&c, events);
    }
    sheaf_status_free(unread);
    sheaf__opened_close(&opened);
    return st;
}
