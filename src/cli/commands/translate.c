/* translate.c - `sheaf translate`: a YAML file of another trainer as a recipe. */
#include "library/translate_rules.h"

#include <strings.h>

#include "base/base.h"
#include "base/print.h"
#include "cli/lib/shared.h"
#include "cli/lib/yaml.h"
#include "commands.h"
#include "inputs/chat/chat.h"
#include "library/train_settings.h"

const char cmd_translate_usage[] =
    "usage: sheaf translate FILE.yaml > NAME.recipe\n"
    "Prints the settings of a LLaMA-Factory or Axolotl file as a recipe of sheaf. What has no place\n"
    "in it is listed on standard error: keys that are not known, and those that would change the\n"
    "result and sheaf does not have. Exit code 1 when there are such. Complete the recipe and give\n"
    "it to sheaf train --recipe.\n";

typedef struct translation {
    const sheaf__translate_program *from;
    sheaf__setting table[SHEAF__MAX_SETTINGS]; /* of train, over `options` */
    sheaf_train_options options;
    bool counts_steps; /* the file says max_steps, which counts before epochs */
    bool rises_never;  /* its schedule is one without warm-up, whatever it says of that */
    const cli_yaml *yaml;
    sheaf_text recipe; /* lines */
    char **lost;       /* "line 7: use_dora: DoRA is ..."; owned */
    int nlost;
    bool failed; /* no memory */
} translation;

static bool begins(const char *text, const char *with, size_t n)
{
    return strncmp(text, with, n) == 0;
}

/* What `words` has for a value: malloc'd; NULL without memory. *known: it is named there. */
static char *word_for(const char *words, const char *value, bool *known)
{
    *known = false;
    for (const char *at = words; at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, "|"), equal = strcspn(at, "=|");
        const bool any = equal == 1 && at[0] == '*';
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

static bool is_off(const char *value)
{
    static const char *const off[] = { "", "false", "no", "off", "0", "0.0", "none" };
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0)
            return true;
    return false;
}

static void lose(translation *t, const cli_yaml_entry *e, const char *why)
{
    if (!SHEAF_GROW(&t->lost, NULL, t->nlost + 1) ||
        asprintf(&t->lost[t->nlost], "line %d: %s: %s: %s", e->line, e->key, e->value, why) < 0)
        t->failed = true;
    else
        t->nlost++;
}

/* The value of a setting in the recipe, to the end of the line; NULL: it is not there. */
static const char *given(const translation *t, const char *setting)
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

/* A later line must not give it again. Warm-up is said in one of two ways: 0 says nothing. */
static bool has(const translation *t, const char *setting, const char *value)
{
    const bool steps = strcmp(setting, "warmup") == 0, ratio = strcmp(setting, "warmup-ratio") == 0;
    const char *other = steps ? given(t, "warmup-ratio") : ratio ? given(t, "warmup") : NULL;
    return given(t, setting) != NULL ||
           (other != NULL && strtod(other, NULL) > 0 && strtod(value, NULL) > 0);
}

/* What the file says of a key of its own; NULL. */
static const char *said(const translation *t, const char *key)
{
    for (int i = 0; key != NULL && i < t->yaml->count; i++)
        if (strcmp(t->yaml->entry[i].key, key) == 0)
            return t->yaml->entry[i].value;
    return NULL;
}

/* What `setting` takes is copied; else it is told what there is. */
static bool is_taken(translation *t, const cli_yaml_entry *e, const char *setting,
                     const char *value)
{
    const sheaf__setting *s = sheaf__setting_find(t->table, setting);
    const bool text = strcmp(setting, "template") == 0;
    char why[400];
    sheaf_status *st = NULL;
    if (s == NULL || (text && sheaf__chat_template_known(value) != NULL))
        return true;
    if (text)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", setting), "%s",
                            sheaf__chat_template_names());
    else
        st = sheaf__setting_set(s, value, setting);
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

/* max_steps counts before epochs, and below 1 not at all; a part of a warm-up step is a share of
 * all steps, as transformers 5 has it. NULL: it is in no recipe. */
static const char *setting_of(const translation *t, const sheaf__translate_rule *rule,
                              const char *value)
{
    const char *setting = rule->setting;
    const double x = strtod(value, NULL);
    if (strcmp(setting, "steps") == 0 && x < 1)
        return NULL;
    if (strcmp(setting, "epochs") == 0 && t->counts_steps)
        return NULL;
    if (t->rises_never && begins(setting, "warmup", 6))
        return NULL;
    if (strcmp(setting, "warmup") == 0 && x > 0 && x < 1)
        return "warmup-ratio";
    return setting;
}

static void remark(translation *t, const cli_yaml_entry *e, const char *why)
{
    if (why != NULL)
        sheaf__text_add(&t->recipe, "# %s: %s\n", e->key, why);
}

static void put(translation *t, const cli_yaml_entry *e, const sheaf__translate_rule *rule,
                const char *value, const char *why)
{
    const char *setting = setting_of(t, rule, value);
    if (value[0] == '\0' || setting == NULL)
        return;
    if (strpbrk(value, "\n\r") != NULL) {
        lose(t, e, "a value of several lines");
        return;
    }
    const bool data = strcmp(setting, "data") == 0 || strcmp(setting, "eval-data") == 0;
    if (data && strchr(value, ',') != NULL) {
        lose(t, e, "several data sets: put their files into one folder, and name that");
        return;
    }
    sheaf_text line = { 0 };
    sheaf__settings_line(&line, setting, value);
    const char *same = given(t, setting);
    if (line.failed)
        t->failed = true;
    else if (same != NULL && begins(line.at + strlen(setting) + 1, same, strcspn(same, "\n") + 1)) {
        /* as packing and neat_packing say the same */
    } else if (has(t, setting, value)) {
        lose(t, e, "gives again what another key gave");
    } else if (is_taken(t, e, setting, value)) {
        remark(t, e, rule->note);
        remark(t, e, why);
        sheaf__text_add(&t->recipe, "%s", line.at);
    }
    sheaf__text_release(&line);
}

/* Every value of a list must be among the words of its rule. */
static void need_only(translation *t, const cli_yaml_entry *e, const sheaf__translate_rule *rule)
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
            lose(t, e, rule->note != NULL ? rule->note : "sheaf has no such thing");
        free(word);
    }
    t->failed |= list == NULL;
    free(list);
}

static void apply(translation *t, const cli_yaml_entry *e, const sheaf__translate_rule *rule)
{
    bool known;
    char *value = word_for(rule->words, e->value, &known), *why = NULL;
    if (value == NULL) {
        t->failed = true;
        return;
    }
    if (known && rule->kind == TRANSLATE_COPY) {
        why = strchr(value, '#');
        if (why != NULL)
            *why++ = '\0';
    }
    drop_underscores(value);
    switch (rule->kind) {
    case TRANSLATE_COPY:
        if (known && value[0] == '!')
            lose(t, e, value + 1);
        else
            put(t, e, rule, value, why);
        break;
    case TRANSLATE_YES:
        if (!is_off(e->value))
            put(t, e, rule, "true", NULL);
        break;
    case TRANSLATE_NO: put(t, e, rule, is_off(e->value) ? "true" : "false", NULL); break;
    case TRANSLATE_PRESENT:
        if (!is_off(e->value))
            put(t, e, rule, value, NULL);
        break;
    case TRANSLATE_IGNORED: break;
    case TRANSLATE_REFUSED:
        if (!is_off(e->value))
            lose(t, e, rule->note != NULL ? rule->note : "sheaf has no such thing");
        break;
    case TRANSLATE_ONLY: need_only(t, e, rule); break;
    }
    free(value);
}

/* What the program does where its file says nothing. */
static void add_defaults(translation *t)
{
    bool titled = false;
    for (const sheaf__translate_default *d = t->from->always; d->setting != NULL; d++) {
        const char *method = given(t, "method");
        const bool full = method != NULL && !begins(method, " lora", 5);
        char twice[32];
        snprintf(twice, sizeof twice, "%lld", 2 * (long long)t->options.lora_rank);
        if (given(t, d->setting) != NULL || said(t, d->unless) != NULL ||
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

static void translate(translation *t)
{
    sheaf_train_options_default(&t->options);
    sheaf__train_settings(t->table, &t->options, false);
    const char *steps = said(t, "max_steps"), *schedule = said(t, "lr_scheduler_type");
    if (schedule == NULL)
        schedule = said(t, "lr_scheduler");
    t->counts_steps = steps != NULL && strtod(steps, NULL) >= 1;
    t->rises_never = schedule != NULL && strcasecmp(schedule, "constant") == 0;
    for (int i = 0; i < t->yaml->count; i++) {
        const cli_yaml_entry *e = &t->yaml->entry[i];
        const sheaf__translate_rule *rule = sheaf__translate_find(t->from, e->key);
        if (rule == NULL)
            lose(t, e, "unknown");
        else
            apply(t, e, rule);
    }
    add_defaults(t);
}

static const sheaf__translate_program *program_of(const cli_yaml *yaml)
{
    const char *name = cli_yaml_program(yaml);
    const sheaf__translate_program *p = sheaf__translate_programs;
    while (name != NULL && p->name != NULL && strcmp(p->name, name) != 0)
        p++;
    return name == NULL || p->name == NULL ? NULL : p;
}

static void print_json(const cli *cli, const translation *t)
{
    sheaf_json_writer j = { 0 };
    sheaf__json_open(&j, NULL, '{');
    sheaf__json_put_text(&j, "program", t->from->name);
    sheaf__json_put_text(&j, "recipe", t->recipe.at == NULL ? "" : t->recipe.at);
    sheaf__json_open(&j, "lost", '[');
    for (int i = 0; i < t->nlost; i++)
        sheaf__json_put_text(&j, NULL, t->lost[i]);
    sheaf__json_close(&j, ']');
    cli_json_end(cli->out, &j);
}

int cmd_translate(cli *cli, int argc, char **argv)
{
    const cli_option options[] = { { 0 } };
    cli_paths paths;
    cli_yaml yaml = { 0 };
    translation t = { .yaml = &yaml };
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, cli_yaml_read(&yaml, paths.word[0]));
    if (st == NULL && (t.from = program_of(&yaml)) == NULL) {
        st = sheaf_expected(
            sheaf_fail(SHEAF_E_DATA, "%s", paths.word[0]),
            "a file of LLaMA-Factory (with model_name_or_path) or of Axolotl (with base_model)");
        sheaf_found(st, "neither's keys");
    }
    if (st == NULL) {
        for (char *c = paths.word[0]; *c != '\0'; c++) /* a name ends no comment */
            if (*c == '\n' || *c == '\r')
                *c = '?';
        sheaf__text_add(&t.recipe, "# from %s, a file of %s\n", paths.word[0], t.from->name);
        translate(&t);
        if (t.failed || t.recipe.failed)
            st = sheaf__no_memory(paths.word[0]);
    }
    if (st == NULL && cli->json)
        print_json(cli, &t);
    else if (st == NULL)
        sheaf__print_lines(cli->out, t.recipe.at);
    for (int i = 0; i < t.nlost; i++)
        if (st == NULL)
            sheaf_warn(&cli->events, "not in the recipe: %s", t.lost[i]);
    const bool whole = t.nlost == 0;
    for (int i = 0; i < t.nlost; i++)
        free(t.lost[i]);
    free(t.lost);
    sheaf__text_release(&t.recipe);
    cli_yaml_release(&yaml);
    return cli_answer(cli, st, whole);
}
