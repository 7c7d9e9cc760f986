/* translate.c - translates settings of another trainer to a recipe: sheaf/recipe.h. */
#include <math.h>
#include <strings.h>

#include "base/base.h"
#include "base/numeric_env.h"
#include "inputs/chat/chat.h"
#include "library/train_settings.h"
#include "library/translate_rules.h"
#include "sheaf/recipe.h"

struct sheaf_translation {
    const sheaf__translate_program *from;
    const sheaf_foreign_setting *setting; /* [count] */
    int64_t count;
    sheaf__setting table[SHEAF__MAX_SETTINGS]; /* of train, over `options` */
    sheaf_train_options options;
    bool counts_steps; /* the file has max_steps, which overrides epochs */
    bool rises_never;  /* its schedule ignores warm-up settings */
    sheaf_text recipe; /* lines */
    char **lost;       /* [nlost] */
    int64_t nlost;
    bool failed; /* no memory */
};

static bool begins(const char *text, const char *with, size_t n)
{
    return strncmp(text, with, n) == 0;
}

static bool is_off(const char *value)
{
    static const char *const off[] = { "", "false", "no", "off", "0", "0.0", "none" };
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0)
            return true;
    return false;
}

/* The translation of a value by `words`: malloc'd; NULL without memory. *known: it is listed. */
static char *word_for(const char *words, const char *value, bool *known)
{
    *known = false;
    for (const char *at = words; at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, "|"), equal = strcspn(at, "=|");
        const bool any = (equal == 1 && at[0] == '*') || (begins(at, "off=", 4) && is_off(value));
        if (any || (strlen(value) == equal && strncasecmp(value, at, equal) == 0)) {
            *known = true;
            return equal < n ? strndup(at + equal + 1, n - equal - 1) : strdup(value);
        }
        at += n + (at[n] == '|');
    }
    if (words != NULL && value[0] == '\0' && words[0] != '\0' && words[strlen(words) - 1] == '|')
        *known = true;
    return strdup(value);
}

static void lose(sheaf_translation *t, const sheaf_foreign_setting *e, const char *why)
{
    if (!SHEAF_GROW(&t->lost, NULL, t->nlost + 1) ||
        asprintf(&t->lost[t->nlost], "line %d: %s: %s: %s", e->line, e->key, e->value,
                 why != NULL && why[0] != '\0' ? why : "sheaf has no such thing") < 0)
        t->failed = true;
    else
        t->nlost++;
}

/* The value of a setting in the recipe, to the end of the line; NULL: absent. */
static const char *given(const sheaf_translation *t, const char *setting)
{
    const size_t n = strlen(setting);
    for (const char *at = t->recipe.at; at != NULL && *at != '\0';) {
        if (begins(at, setting, n) && at[n] == ':')
            return at + n + 1;
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    return NULL;
}

/* A setting must not be given twice, but one of the two warm-up settings may be 0. */
static bool has(const sheaf_translation *t, const char *setting, const char *value)
{
    const bool steps = strcmp(setting, "warmup") == 0, ratio = strcmp(setting, "warmup-ratio") == 0;
    const char *other = steps ? given(t, "warmup-ratio") : ratio ? given(t, "warmup") : NULL;
    return given(t, setting) != NULL ||
           (other != NULL && strtod(other, NULL) > 0 && strtod(value, NULL) > 0);
}

/* The file's value of a key; NULL. */
static const char *value_of(const sheaf_translation *t, const char *key)
{
    for (int64_t i = 0; key != NULL && i < t->count; i++)
        if (strcmp(t->setting[i].key, key) == 0)
            return t->setting[i].value;
    return NULL;
}

/* Is the value valid for `setting`? Else lists it with the allowed values. */
static bool is_taken(sheaf_translation *t, const sheaf_foreign_setting *e, const char *setting,
                     const char *value)
{
    const sheaf__setting *s = sheaf__setting_find(t->table, setting);
    const bool text = strcmp(setting, "template") == 0;
    char why[400];
    if (s == NULL || (text && sheaf__chat_template_known(value) != NULL))
        return true;
    sheaf_status *st = text ? sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", setting), "%s",
                                             sheaf__chat_template_names())
                            : sheaf__setting_set(s, value, setting);
    if (st == NULL)
        return true;
    snprintf(why, sizeof why, "%s takes %s", setting, sheaf_status_expected(st));
    lose(t, e, why);
    sheaf_status_free(st);
    return false;
}

/* Numbers as YAML has them: 500_000. */
static void drop_underscores(char *value)
{
    char *to = value;
    if (value[0] == '\0' || strspn(value, "0123456789_") < strlen(value))
        return;
    for (const char *from = value; *from != '\0'; from++)
        if (*from != '_')
            *to++ = *from;
    *to = '\0';
}

/* max_steps overrides epochs, unless below 1; warm-up steps below 1 are a share of all steps, as in
 * transformers 5. NULL: not in the recipe. */
static const char *setting_of(const sheaf_translation *t, const char *setting, const char *value)
{
    const double x = strtod(value, NULL);
    if ((strcmp(setting, "steps") == 0 && x < 1) ||
        (strcmp(setting, "epochs") == 0 && t->counts_steps) ||
        (t->rises_never && begins(setting, "warmup", 6)))
        return NULL;
    return strcmp(setting, "warmup") == 0 && x > 0 && x < 1 ? "warmup-ratio" : setting;
}

static void remark(sheaf_translation *t, const sheaf_foreign_setting *e, const char *why)
{
    if (why != NULL)
        sheaf__text_add(&t->recipe, "# %s: %s\n", e->key, why);
}

/* Adds what stands in a list, without blanks around it, up to its comma; *at is behind that, NULL:
 * it was the last. */
static void add_item(sheaf_text *to, const char *before, const char **at)
{
    const char *item = *at + strspn(*at, " ");
    size_t n = strcspn(item, ",");
    *at = item[n] == ',' ? item + n + 1 : NULL;
    while (n > 0 && item[n - 1] == ' ')
        n--;
    sheaf__text_add(to, "%s%.*s", before, (int)n, item);
}

/* The value of --data: all names, those of further entries ("datasets[1].path") too, with the
 * weights of LLaMA-Factory where they are mixed by weight (malloc'd). NULL: lost. */
static char *data_list(sheaf_translation *t, const sheaf_foreign_setting *e, const char *value)
{
    const char *strategy = value_of(t, "mix_strategy"), *weight = value_of(t, "interleave_probs"),
               *number = strstr(e->key, "[0]");
    const bool mixed =
        strcmp(e->key, "dataset") == 0 && strategy != NULL && begins(strategy, "interleave", 10);
    sheaf_text names = { 0 }, list = { 0 };
    char key[128];
    sheaf__text_add(&names, "%s", value);
    for (int i = 1; number != NULL; i++) {
        snprintf(key, sizeof key, "%.*s[%d]%s", (int)(number - e->key), e->key, i, number + 3);
        const char *more = value_of(t, key);
        if (more == NULL)
            break;
        sheaf__text_add(&names, ",%s", more);
    }
    bool short_of = false;
    const char *name = names.failed ? NULL : names.at;
    while (name != NULL) {
        add_item(&list, name == names.at ? "" : ",", &name);
        short_of |= mixed && weight == NULL && value_of(t, "interleave_probs") != NULL;
        if (mixed && weight != NULL)
            add_item(&list, ":", &weight);
        else if (mixed)
            sheaf__text_add(&list, ":1");
    }
    if (mixed && (short_of || weight != NULL)) {
        lose(t, e, "interleave_probs: one for each of them");
        sheaf__text_release(&list);
    }
    t->failed |= names.failed || list.failed;
    sheaf__text_release(&names);
    return list.at;
}

static void put(sheaf_translation *t, const sheaf_foreign_setting *e,
                const sheaf__translate_rule *rule, const char *value, const char *why)
{
    const char *setting = value[0] == '\0' ? NULL : setting_of(t, rule->setting, value);
    if (setting == NULL)
        return;
    if (strpbrk(value, "\n\r") != NULL) {
        lose(t, e, "a value of several lines");
        return;
    }
    const bool data = strcmp(setting, "data") == 0 || strcmp(setting, "eval-data") == 0;
    char *list = data ? data_list(t, e, value) : NULL;
    if (data && list == NULL)
        return;
    value = data ? list : value;
    sheaf_text line = { 0 };
    sheaf__settings_line(&line, setting, value);
    const char *same = given(t, setting);
    if (line.failed)
        t->failed = true;
    else if (same != NULL && begins(line.at + strlen(setting) + 1, same, strcspn(same, "\n") + 1)) {
        /* as packing and neat_packing mean the same */
    } else if (has(t, setting, value)) {
        lose(t, e, "gives again what another key gave");
    } else if (is_taken(t, e, setting, value)) {
        remark(t, e, rule->note);
        remark(t, e, why);
        sheaf__text_add(&t->recipe, "%s", line.at);
    }
    sheaf__text_release(&line);
    free(list);
}

/* Every value of a list must be among the words of its rule. */
static void need_only(sheaf_translation *t, const sheaf_foreign_setting *e,
                      const sheaf__translate_rule *rule)
{
    char *list = strdup(e->value), *rest = NULL;
    for (char *one = list == NULL ? NULL : strtok_r(list, ",", &rest); one != NULL;
         one = strtok_r(NULL, ",", &rest)) {
        bool known;
        char *word = word_for(rule->words, one, &known);
        t->failed |= word == NULL;
        if (word != NULL && known && word[0] == '!')
            lose(t, e, word + 1);
        else if (word != NULL && known && word[0] == '#')
            remark(t, e, word + 1);
        else if (!known)
            lose(t, e, rule->note);
        free(word);
    }
    t->failed |= list == NULL;
    free(list);
}

/* transformers' min_lr is a rate, ours a share of the rate (malloc'd). */
static char *share_of_rate(const sheaf_translation *t, const char *value)
{
    const char *rate = value_of(t, "learning_rate");
    const double share = strtod(value, NULL) / (rate == NULL ? NAN : strtod(rate, NULL));
    char *text = NULL;
    for (int digits = 6; digits <= 17 && (text == NULL || strtod(text, NULL) != share); digits++) {
        free(text);
        if (asprintf(&text, "%.*g", digits, share) < 0)
            return NULL;
    }
    return text;
}

static void copy(sheaf_translation *t, const sheaf_foreign_setting *e,
                 const sheaf__translate_rule *rule)
{
    bool known;
    char *value = word_for(rule->words, e->value, &known);
    char *why = value == NULL || !known ? NULL : strchr(value, '#');
    if (why != NULL)
        *why++ = '\0';
    if (value != NULL)
        drop_underscores(value);
    if (value != NULL && strcmp(e->key, "lr_scheduler_kwargs.min_lr") == 0) {
        char *rate = value;
        value = share_of_rate(t, rate);
        free(rate);
    }
    if (value == NULL)
        t->failed = true;
    else if (known && value[0] == '!')
        lose(t, e, value + 1);
    else
        put(t, e, rule, value, why);
    free(value);
}

/* Defaults of the program that differ from sheaf's. */
static void add_defaults(sheaf_translation *t)
{
    bool titled = false;
    for (const sheaf__translate_default *d = t->from->always; d->setting != NULL; d++) {
        const char *method = given(t, "method");
        const bool full = method != NULL && !begins(method, " lora", 5);
        char twice[32];
        snprintf(twice, sizeof twice, "%lld", 2 * (long long)t->options.lora_rank);
        if (given(t, d->setting) != NULL || value_of(t, d->unless) != NULL ||
            (full && begins(d->setting, "lora-", 5)) ||
            (strcmp(d->setting, "epochs") == 0 && given(t, "steps") != NULL) ||
            (begins(d->setting, "warmup", 6) && (t->rises_never || given(t, "warmup") != NULL)))
            continue;
        if (!titled)
            sheaf__text_add(&t->recipe, "# what %s does where its file says nothing\n",
                            t->from->name);
        titled = true;
        sheaf__text_add(&t->recipe, "%s: %s\n", d->setting, d->value != NULL ? d->value : twice);
    }
}

static void translate(sheaf_translation *t)
{
    sheaf_train_options_default(&t->options);
    sheaf__train_settings(t->table, &t->options, false);
    const char *steps = value_of(t, "max_steps"), *schedule = value_of(t, "lr_scheduler_type");
    if (schedule == NULL)
        schedule = value_of(t, "lr_scheduler");
    t->counts_steps = steps != NULL && strtod(steps, NULL) >= 1;
    t->rises_never = schedule != NULL && strcasecmp(schedule, "constant") == 0;
    sheaf__text_add(&t->recipe, "%s", "");
    for (int64_t i = 0; i < t->count; i++) {
        const sheaf_foreign_setting *e = &t->setting[i];
        const sheaf__translate_rule *rule = sheaf__translate_find(t->from, e->key);
        if (rule == NULL)
            lose(t, e, "unknown");
        else if (rule->kind == TRANSLATE_COPY)
            copy(t, e, rule);
        else if (rule->kind == TRANSLATE_ONLY)
            need_only(t, e, rule);
    }
    add_defaults(t);
}

static const sheaf__translate_program *program_of(const sheaf_foreign_setting *setting,
                                                  int64_t count)
{
    for (const sheaf__translate_program *p = sheaf__translate_programs; p->name != NULL; p++)
        for (int64_t i = 0; i < count; i++)
            if (sheaf__translate_is(p->signs, setting[i].key))
                return p;
    return NULL;
}

sheaf_status *sheaf_translation_new(sheaf_translation **out, const sheaf_foreign_setting *setting,
                                    int64_t count)
{
    SHEAF__NUMERIC_ENV;
    const sheaf__translate_program *from = program_of(setting, count);
    *out = NULL;
    if (from == NULL)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "settings"),
                           "those of LLaMA-Factory (with model_name_or_path) or of Axolotl (with "
                           "base_model)"),
            "neither's keys");
    sheaf_translation *t = calloc(1, sizeof *t);
    if (t != NULL) {
        t->from = from;
        t->setting = setting;
        t->count = count;
        translate(t);
    }
    if (t != NULL && !t->failed && !t->recipe.failed) {
        *out = t;
        return NULL;
    }
    sheaf_translation_free(t);
    return sheaf__no_memory("settings");
}

void sheaf_translation_free(sheaf_translation *t)
{
    if (t == NULL)
        return;
    for (int64_t i = 0; i < t->nlost; i++)
        free(t->lost[i]);
    free(t->lost);
    sheaf__text_release(&t->recipe);
    free(t);
}

const char *sheaf_translation_program(const sheaf_translation *t)
{
    return t->from->name;
}

const char *sheaf_translation_recipe(const sheaf_translation *t)
{
    return t->recipe.at;
}

const char *sheaf_translation_lost(const sheaf_translation *t, int64_t i)
{
    return i >= 0 && i < t->nlost ? t->lost[i] : NULL;
}
