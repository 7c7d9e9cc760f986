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
static bool said(const compared *c, const char *name)
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
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--%s", name);
    if (is != NULL)
        sheaf_expected(st, "%s, as the config of --adapter %s has it", is, c->o->adapter);
    else
        sheaf_expected(st, "what the config of --adapter %s has", c->o->adapter);
    sheaf_found(st, "%s", said_so == NULL ? "another" : said_so);
    free(said_so);
    return sheaf_try_this(st,
                          "without --%s: the adapter's config decides; a new adapter begins "
                          "without --adapter",
                          name);
}

/* A recipe's lines of LoRA are ignored, with a note; they stay in the settings.
 */
static void note_recipe(const compared *c, const sheaf_events *events)
{
    static const char *const names[] = {
        "lora-rank",         "lora-alpha",         "lora-dropout",   "lora-rslora",
        "lora-bias",         "lora-targets",       "lora-exclude",   "lora-layers",
        "lora-rank-pattern", "lora-alpha-pattern", "modules-to-save"
    };
    sheaf_text list = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (named(c, names[i]) && !sheaf__settings_given(c->state, c->table, names[i]))
            sheaf__text_add(&list, "%s%s", list.size > 0 ? ", " : "", names[i]);
    if (list.size > 0)
        sheaf_note(events, "of the recipe %s: the config of --adapter decides", list.at);
    sheaf__text_release(&list);
}

/* ---- numbers ---- */

static double rank_of(const sheaf_lora_module *module)
{
    return (double)module->rank;
}

static double alpha_of(const sheaf_lora_module *module)
{
    return module->alpha;
}

/* The value of most modules. For fused layers a file has the sum over all parts. */
static double usual(const sheaf_lora *lora, double (*of)(const sheaf_lora_module *), double absent)
{
    double value = absent;
    for (int i = 0, most = 0; i < lora->nmodules; i++) {
        int n = 0;
        for (int j = 0; j < lora->nmodules; j++)
            n += of(&lora->module[j]) == of(&lora->module[i]);
        if (n > most) {
            most = n;
            value = of(&lora->module[i]);
        }
    }
    return value;
}

/* `value`: the adapter's. */
static sheaf_status *differs_as(const compared *c, const char *name, const void *value)
{
    sheaf__setting as = *sheaf__setting_find(c->table, name);
    as.value = (void *)value;
    char *text = sheaf__setting_show(&as);
    sheaf_status *st = differs(c, name, text);
    free(text);
    return st;
}

static sheaf_status *check_numbers(const compared *c)
{
    const sheaf_train_options *o = c->o;
    const sheaf_lora_options *is = &c->is->options;
    const int bias = (int)is->bias;
    if (said(c, "lora-rank") && !said(c, "lora-rank-pattern") && o->lora_rank != c->rank &&
        o->lora_rank != is->rank)
        return differs_as(c, "lora-rank", &c->rank);
    if (said(c, "lora-alpha") && !said(c, "lora-alpha-pattern") && o->lora_alpha != c->alpha &&
        o->lora_alpha != is->alpha)
        return differs_as(c, "lora-alpha", &c->alpha);
    if (said(c, "lora-dropout") && o->lora_dropout != is->dropout)
        return differs_as(c, "lora-dropout", &is->dropout);
    if (said(c, "lora-rslora") && o->lora_rslora != is->rslora)
        return differs_as(c, "lora-rslora", &is->rslora);
    if (said(c, "lora-bias") && (int)o->lora_bias != bias)
        return differs_as(c, "lora-bias", &bias);
    return NULL;
}

/* ---- lists, compared by the modules that they select ---- */

/* Modules without a pattern and without a flag: the adapter's value is right. */
#define ANY_RANK 65536
#define ANY_ALPHA 1e-300

/* Replaces the lists in *out, a copy of the adapter's options, by those of flags. */
static sheaf_status *say_lists(sheaf_lora_options *out, const compared *c)
{
    const sheaf_train_options *o = c->o;
    const bool all = said(c, "lora-targets"); /* then all three come from flags */
    const bool exclude = said(c, "lora-exclude"), layers = said(c, "lora-layers"),
               ranks = said(c, "lora-rank-pattern"), alphas = said(c, "lora-alpha-pattern");
    sheaf_status *st = NULL;
    if (all)
        st = sheaf_in(sheaf__lora_set_targets(out, o->lora_targets), "--lora-targets");
    if (all || exclude)
        TRY(st, sheaf_in(sheaf__lora_set_exclude(out, exclude ? o->lora_exclude : NULL),
                         "--lora-exclude"));
    if (all || layers)
        TRY(st,
            sheaf_in(sheaf__lora_set_layers(out, layers ? o->lora_layers : NULL), "--lora-layers"));
    if (ranks) {
        out->rank = said(c, "lora-rank") ? o->lora_rank : ANY_RANK;
        TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->rank_pattern, o->lora_rank_pattern, true),
                         "--lora-rank-pattern"));
    }
    if (alphas) {
        out->alpha = said(c, "lora-alpha") ? o->lora_alpha : ANY_ALPHA;
        TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->alpha_pattern, o->lora_alpha_pattern, false),
                         "--lora-alpha-pattern"));
    }
    out->whole_rank &= !ranks && !alphas;
    if (said(c, "modules-to-save"))
        TRY(st, sheaf_in(sheaf__lora_set_saved(out, o->modules_to_save), "--modules-to-save"));
    return st;
}

static bool same_modules(const compared *c, const sheaf_lora *other)
{
    bool same = other->nmodules == c->is->nmodules;
    for (int i = 0; same && i < other->nmodules; i++)
        same = other->module[i].base == c->is->module[i].base;
    return same;
}

static bool same_ranks(const compared *c, const sheaf_lora *other)
{
    bool same = true;
    for (int i = 0; same && i < other->nmodules; i++)
        same = other->module[i].rank == c->is->module[i].rank || other->module[i].rank == ANY_RANK;
    return same;
}

static bool same_alphas(const compared *c, const sheaf_lora *other)
{
    bool same = true;
    for (int i = 0; same && i < other->nmodules; i++)
        same =
            other->module[i].alpha == c->is->module[i].alpha || other->module[i].alpha == ANY_ALPHA;
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
    static const struct {
        const char *flag;
        bool (*same)(const compared *c, const sheaf_lora *other);
    } lists[] = { { "lora-targets", same_modules },      { "lora-exclude", same_modules },
                  { "lora-layers", same_modules },       { "lora-rank-pattern", same_ranks },
                  { "lora-alpha-pattern", same_alphas }, { "modules-to-save", same_saved } };
    sheaf_lora_options options = { 0 };
    sheaf_lora *other = NULL;
    sheaf_status *none = NULL, *st = sheaf__lora_options_copy(&options, &c->is->options);
    TRY(st, say_lists(&options, c));
    if (st == NULL)
        none = sheaf_lora_resolve(&other, c->schema, &options);
    for (size_t i = 0; st == NULL && i < sizeof lists / sizeof *lists; i++)
        if (said(c, lists[i].flag) &&
            (none != NULL || !same_modules(c, other) || !lists[i].same(c, other)))
            st = differs(c, lists[i].flag, NULL);
    sheaf_status_free(none);
    sheaf_lora_free(other);
    sheaf_lora_options_release(&options);
    return st;
}

/* Only values that a flag can have: settings are read back. */
static void take(sheaf_train_options *o, const compared *c)
{
    const sheaf_lora_options *is = &c->is->options;
    if (!named(c, "lora-rank") && c->rank >= 1 && c->rank <= 65536)
        o->lora_rank = c->rank;
    if (!named(c, "lora-alpha") && c->alpha > 0)
        o->lora_alpha = c->alpha;
    if (!named(c, "lora-dropout"))
        o->lora_dropout = is->dropout;
    if (!named(c, "lora-rslora"))
        o->lora_rslora = is->rslora;
    if (!named(c, "lora-bias"))
        o->lora_bias = is->bias;
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
                             .rank = (int64_t)usual(opened.lora, rank_of, (double)is->rank),
                             .alpha = usual(opened.lora, alpha_of, is->alpha) };
        st = check_numbers(&c);
        TRY(st, check_lists(&c));
        if (st == NULL) {
            note_recipe(&c, events);
            take(o, &c);
        }
    }
    sheaf_status_free(unread);
    sheaf__opened_close(&opened);
    return st;
}
