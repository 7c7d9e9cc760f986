/* select.c - see select.h. */
#include "train/select.h"

#include <math.h>

#include "base/base.h"

/* ---- patterns ---- */

enum { MOST_DIGITS = 9 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number of up to MOST_DIGITS digits at *at, which moves behind it; -1 when there is none. */
static int64_t number(const char **at)
{
    int64_t n = 0;
    const char *p = *at;
    for (; is_digit(*p); p++) {
        if (p - *at == MOST_DIGITS)
            return -1;
        n = n * 10 + (*p - '0');
    }
    if (p == *at)
        return -1;
    *at = p;
    return n;
}

/* One "5" or "5..7" of a {...}; *at moves behind it. */
static bool range(const char **at, int64_t *first, int64_t *last)
{
    *first = *last = number(at);
    if (*first >= 0 && strncmp(*at, "..", 2) == 0) {
        *at += 2;
        *last = number(at);
    }
    return *first >= 0 && *last >= *first;
}

sheaf_status *sheaf__pattern_check(const char *pattern)
{
    bool sound = *pattern != '\0';
    for (const char *p = pattern; *p != '\0' && sound; p++) {
        if (*p != '{') {
            sound = *p != '}';
            continue;
        }
        int64_t first, last;
        do {
            p++;
            sound = range(&p, &first, &last) && (*p == ',' || *p == '}');
        } while (sound && *p == ',');
        if (!sound)
            break;
    }
    if (sound)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "pattern '%s'", pattern);
    sheaf_expected(st, "letters, * and ?, and numbers as {46..54} or {0,2,5..7}");
    return *pattern == '\0' ? sheaf_found(st, "nothing between two commas") : st;
}

/* Is n in the {...} that begins at `set`? */
static bool holds(const char *set, int64_t n)
{
    int64_t first, last;
    bool found = false;
    do {
        set++;
        if (!range(&set, &first, &last))
            return false;
        found = found || (n >= first && n <= last);
    } while (*set == ',');
    return found;
}

/* One item of the pattern that is no star, at *p, with what stands at *s; both move behind it. */
static bool step(const char **p, const char **s, const char *name, bool any_number)
{
    if (**p == '{') {
        const char *digits = *s;
        if (digits > name && is_digit(digits[-1]))
            return false;
        const int64_t n = number(s);
        if (n < 0 || (!any_number && !holds(*p, n)))
            return false;
        *p = strchr(*p, '}') + 1;
        return true;
    }
    if (**s == '\0' || (**p != '?' && **p != **s))
        return false;
    (*p)++;
    (*s)++;
    return true;
}

/* The rest behind the last star is tried at each later place: earlier stars need no second look. */
bool sheaf__pattern_match(const char *p, const char *name, bool any_number)
{
    const char *after_star = NULL, *retry = NULL, *s = name;
    while (*s != '\0' || *p != '\0') {
        if (*p == '*') {
            after_star = ++p;
            retry = s;
            continue;
        }
        if (*p != '\0' && step(&p, &s, name, any_number))
            continue;
        if (after_star == NULL || *retry == '\0')
            return false;
        p = after_star;
        s = ++retry;
    }
    return true;
}

size_t sheaf__pattern_length(const char *list)
{
    size_t n = 0;
    for (bool inside = false; list[n] != '\0' && (inside || list[n] != ','); n++)
        inside = list[n] == '{' || (inside && list[n] != '}');
    return n;
}

/* ---- selection ---- */

#define FACTOR_PREFIX "base_model.model." /* PEFT's, before the module's path */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool can_train(const sheaf_tensor *tensor)
{
    return !tensor->buffer && !tensor->idle;
}

static bool chosen(const sheaf__selection *s, const sheaf_tensor *tensor, bool any_number)
{
    if (!can_train(tensor))
        return false;
    if (s->method == SHEAF_METHOD_FULL)
        return true;
    for (int i = 0; i < s->npatterns; i++)
        if (sheaf__pattern_match(s->pattern[i], tensor->name, any_number))
            return true;
    return false;
}

bool sheaf__selected(void *self, const sheaf_tensor *tensor)
{
    return chosen(self, tensor, false);
}

/* ---- learning rate and decay ---- */

static const char *bare_name(const char *name)
{
    return starts_with(name, FACTOR_PREFIX) ? name + strlen(FACTOR_PREFIX) : name;
}

/* The scale of the first pattern that matches; NULL: none does. */
static const double *scale_of(const sheaf__selection *s, const char *name)
{
    for (int i = 0; i < s->nscaled; i++)
        if (sheaf__pattern_match(s->scaled[i], bare_name(name), false))
            return &s->scale[i];
    return NULL;
}

double sheaf__learning_scale(const sheaf__selection *s, const char *name)
{
    const double *scale = scale_of(s, name);
    return scale == NULL ? 1 : *scale;
}

/* Of loraplus.py in PEFT: its groups, where no pattern names the tensor. */
static double plus_scale(const sheaf__selection *s, const sheaf__trained *t)
{
    static const double of_tables = 1e-6; /* loraplus_lr_embedding, no share of the others' */
    return strstr(t->name, ".lora_embedding_") != NULL           ? of_tables / s->lr
           : strstr(t->name, ".lora_B.") != NULL || t->ndim == 1 ? s->lora_plus
                                                                 : 1;
}

void sheaf__learning_set(sheaf__trained_set *set, const sheaf__selection *s)
{
    for (int i = 0; i < set->count; i++) {
        sheaf__trained *t = set->item[i];
        t->lr_scale = s->lora_plus > 0 && scale_of(s, t->name) == NULL
                          ? plus_scale(s, t)
                          : sheaf__learning_scale(s, t->name);
        if (s->family->decays != NULL)
            t->decay = s->family->decays(t->name);
    }
}

/* ---- parsing the lists ---- */

/* The name nearest to a pattern that matches none of these. */
static sheaf_status *no_match(const char *flag, const char *pattern, const char *const *name,
                              int names, const char *idle)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`%s`: '%s'", flag, pattern);
    sheaf_expected(st, "a pattern that some tensor that can be trained matches");
    if (idle != NULL)
        return sheaf_found(st, "only such that no training changes, like %s", idle);
    sheaf_found(st, "none of %d tensors", names);
    const char *nearest = sheaf__nearest(pattern, name, names);
    if (nearest == NULL && names > 0)
        return sheaf_try_this(st, "* matches any letters: '*%s'",
                              strchr(name[0], '.') == NULL ? name[0] : strchr(name[0], '.'));
    return nearest == NULL ? st : sheaf_try_this(st, "did you mean %s", nearest);
}

/* Of --train: of all that can be trained. */
static sheaf_status *none_to_train(const sheaf_schema *schema, const char *flag,
                                   const char *pattern)
{
    const char **name = malloc((size_t)schema->count * sizeof *name + 1), *idle = NULL;
    int names = 0;
    for (int64_t i = 0; name != NULL && i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (can_train(t))
            name[names++] = t->name;
        else if (sheaf__pattern_match(pattern, t->name, false))
            idle = t->name;
    }
    sheaf_status *st = no_match(flag, pattern, name, names, idle);
    free(name);
    return st;
}

/* Patterns of one list grow by one; *out is its text, owned by the list. */
static sheaf_status *grow(char ***list, int *n, const char *text, size_t size, const char *flag)
{
    char *pattern = SHEAF_GROW(list, NULL, *n + 1) ? strndup(text, size) : NULL;
    if (pattern == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "`%s`", flag);
    (*list)[(*n)++] = pattern;
    return sheaf_in(sheaf__pattern_check(pattern), "`%s`", flag);
}

/* A recipe for the 63 layers of the real tower also works for a model with three. */
static const char no_layer[] = "`%s`: this model has no layer of '%s'";

static sheaf_status *add_pattern(sheaf__selection *s, const sheaf_schema *schema, const char *flag,
                                 const char *text, size_t size, const sheaf_events *events)
{
    sheaf_status *st = grow(&s->pattern, &s->npatterns, text, size, flag);
    if (st != NULL)
        return st;
    const char *pattern = s->pattern[s->npatterns - 1];
    bool found[2] = { false, false };
    for (int64_t i = 0; i < schema->count; i++)
        for (int any = 0; any < 2 && can_train(&schema->tensor[i]); any++)
            found[any] =
                found[any] || sheaf__pattern_match(pattern, schema->tensor[i].name, any != 0);
    if (!found[false] && found[true])
        sheaf_note(events, no_layer, flag, pattern);
    return found[true] ? NULL : none_to_train(schema, flag, pattern);
}

/* NULL where there is nothing in it. */
static const char *list_of(const char *text)
{
    return text == NULL || *text == '\0' ? NULL : text;
}

/* The next item of a list, which moves behind it, or becomes NULL at its end. Behind a comma there
 * is one, be it empty. */
static const char *next_item(const char **list, size_t *size)
{
    const char *item = *list + strspn(*list, " ");
    *size = sheaf__pattern_length(item);
    *list = item[*size] == ',' ? item + *size + 1 : NULL;
    return item;
}

static sheaf_status *read_patterns(sheaf__selection *s, const sheaf_schema *schema,
                                   const sheaf_train_options *o, const sheaf_events *events)
{
    static const char flag[] = "train";
    const char *list = list_of(o->train);
    sheaf_status *st = NULL;
    if (o->method == SHEAF_METHOD_HEAD && list == NULL) {
        const sheaf_role role = schema->config.tied ? SHEAF_EMBED : SHEAF_HEAD;
        for (int64_t i = 0; i < schema->count && st == NULL; i++)
            if (schema->tensor[i].role == role && !schema->tensor[i].bias)
                st = add_pattern(s, schema, flag, schema->tensor[i].name,
                                 strlen(schema->tensor[i].name), events);
        return st;
    }
    for (size_t size; list != NULL && st == NULL;) {
        const char *item = next_item(&list, &size);
        st = add_pattern(s, schema, flag, item, size, events);
    }
    return st;
}

/* The names of what is trained, and from `count` to `all` of what would be if patterns meant layers
 * of any number. */
static sheaf_status *trained_names(const char ***out, int *count, int *all,
                                   const sheaf__selection *s, const sheaf_schema *schema,
                                   const sheaf_lora *lora)
{
    const int modules = lora == NULL ? 0 : lora->nmodules, saved = lora == NULL ? 0 : lora->nsaved;
    const char **name =
        malloc((size_t)(schema->count + 3 * modules + saved) * sizeof *name + sizeof *name);
    int n = 0;
    *out = name;
    if (name == NULL)
        return sheaf__no_memory("`lr-scale`");
    for (int64_t i = 0; i < schema->count; i++)
        if (chosen(s, &schema->tensor[i], false))
            name[n++] = schema->tensor[i].name;
    for (int i = 0; i < modules; i++) {
        name[n++] = bare_name(lora->module[i].a_name);
        name[n++] = bare_name(lora->module[i].b_name);
        if (lora->module[i].m_name != NULL)
            name[n++] = bare_name(lora->module[i].m_name);
    }
    for (int i = 0; i < saved; i++)
        name[n++] = lora->saved[i]->name;
    *count = n;
    for (int64_t i = 0; i < schema->count; i++)
        if (chosen(s, &schema->tensor[i], true) && !chosen(s, &schema->tensor[i], false))
            name[n++] = schema->tensor[i].name;
    *all = n;
    return NULL;
}

static sheaf_status *bad_scale(const char *text, size_t size)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`lr-scale`");
    sheaf_expected(st, "PATTERN=X,PATTERN=X with numbers of 0 or more");
    return sheaf_found(st, "%.*s", (int)size, text);
}

static sheaf_status *add_scale(sheaf__selection *s, const char *text, size_t size)
{
    const char *equals = memrchr(text, '=', size);
    char number[64];
    const size_t digits = equals == NULL ? 0 : (size_t)(text + size - equals - 1);
    if (equals == NULL || equals == text || digits == 0 || digits >= sizeof number)
        return bad_scale(text, size);
    memcpy(number, equals + 1, digits);
    number[digits] = '\0';
    char *end;
    const double scale = strtod(number, &end);
    if (*end != '\0' || number[0] == ' ' || !isfinite(scale) || scale < 0)
        return bad_scale(text, size);
    if (!SHEAF_GROW(&s->scale, NULL, s->nscaled + 1))
        return sheaf__no_memory("`lr-scale`");
    s->scale[s->nscaled] = scale;
    return grow(&s->scaled, &s->nscaled, text, (size_t)(equals - text), "lr-scale");
}

static sheaf_status *read_scales(sheaf__selection *s, const sheaf_schema *schema,
                                 const sheaf_lora *lora, const char *list,
                                 const sheaf_events *events)
{
    const char **name = NULL;
    int names = 0, all = 0;
    sheaf_status *st = list == NULL ? NULL : trained_names(&name, &names, &all, s, schema, lora);
    for (size_t size; list != NULL && st == NULL;) {
        const char *item = next_item(&list, &size);
        if ((st = add_scale(s, item, size)) != NULL)
            break;
        const char *pattern = s->scaled[s->nscaled - 1];
        bool found[2] = { false, false };
        for (int i = 0; i < all; i++) {
            found[false] =
                found[false] || (i < names && sheaf__pattern_match(pattern, name[i], false));
            found[true] = found[true] || sheaf__pattern_match(pattern, name[i], true);
        }
        if (!found[false] && found[true])
            sheaf_note(events, no_layer, "lr-scale", pattern);
        st = found[true] ? NULL : no_match("lr-scale", pattern, name, names, NULL);
    }
    free(name);
    return st;
}

/* A scale of 0 freezes a tensor; not all may be frozen. B starts as zeros, and A has no gradient
 * while B is zero: A alone learns only if `continued`, an adapter, has a B. */
static sheaf_status *check_scales(const sheaf__selection *s, const sheaf_schema *schema,
                                  const sheaf_lora *lora, const char *continued)
{
    const bool has_b = continued != NULL && continued[0] != '\0';
    bool learns = false, any = lora != NULL;
    for (int64_t i = 0; i < schema->count && !learns; i++)
        if (chosen(s, &schema->tensor[i], false)) {
            any = true;
            learns = sheaf__learning_scale(s, schema->tensor[i].name) > 0;
        }
    for (int i = 0; lora != NULL && i < lora->nmodules && !learns; i++)
        learns = sheaf__learning_scale(s, lora->module[i].b_name) > 0 ||
                 (has_b && sheaf__learning_scale(s, lora->module[i].a_name) > 0) ||
                 (lora->module[i].m_name != NULL &&
                  sheaf__learning_scale(s, lora->module[i].m_name) > 0);
    for (int i = 0; lora != NULL && i < lora->nsaved && !learns; i++)
        learns = sheaf__learning_scale(s, lora->saved[i]->name) > 0;
    if (learns || !any)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`lr-scale`"),
                                      "a scale above 0 for some tensor that is trained"),
                       has_b || lora == NULL ? "0 for all of them"
                                             : "0 for all of them but A, and B begins as zeros");
}

sheaf_status *sheaf__select(sheaf__selection *out, const sheaf_schema *schema,
                            const sheaf_lora *lora, const sheaf_train_options *options,
                            const sheaf_events *events)
{
    *out = (sheaf__selection){ .method = options->method,
                               .lora_plus =
                                   options->method == SHEAF_METHOD_LORA ? options->lora_plus : 0,
                               .lr = options->lr,
                               .family = sheaf__family_for(&schema->config) };
    sheaf_status *st =
        options->method == SHEAF_METHOD_FULL ? NULL : read_patterns(out, schema, options, events);
    TRY(st, read_scales(out, schema, lora, list_of(options->lr_scale), events));
    TRY(st, check_scales(out, schema, lora, options->adapter));
    if (st != NULL)
        sheaf__selection_release(out);
    return st;
}

void sheaf__selection_release(sheaf__selection *s)
{
    for (int i = 0; i < s->npatterns; i++)
        free(s->pattern[i]);
    for (int i = 0; i < s->nscaled; i++)
        free(s->scaled[i]);
    free(s->pattern);
    free(s->scaled);
    free(s->scale);
    *s = (sheaf__selection){ 0 };
}

sheaf_status *sheaf__run_base_open(sheaf__run_base *b, const sheaf_train_options *o,
                                   const sheaf__open_options *from)
{
    sheaf__open_options how;
    sheaf_status *st = sheaf__train_options_open(&how, &b->fresh, o);
    how.model = from->model;
    how.config = from->config;
    how.for_training = how.hashed = true;
    how.new_run = from->new_run;
    how.as_stored = from->as_stored;
    how.events = from->events;
    TRY(st, sheaf__open_model(&b->opened, &how));
    TRY(st, sheaf__select(&b->selection, b->opened.schema, b->opened.lora, o, from->events));
    if (st == NULL && b->opened.lora != NULL)
        st = sheaf_lora_save_also(b->opened.lora, b->opened.schema, sheaf__selected, &b->selection);
    TRY(st, sheaf__run_tokenizer_open(&b->tokenizer, o, &b->opened));
    return TRY(st, sheaf__opened_quantise(&b->opened, o->quantize, sheaf__selected, &b->selection));
}

void sheaf__run_base_release(sheaf__run_base *b)
{
    sheaf__selection_release(&b->selection);
    sheaf_lora_options_release(&b->fresh);
    sheaf__run_tokenizer_release(&b->tokenizer);
    sheaf__opened_close(&b->opened);
}
