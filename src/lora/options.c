/* options.c - see adapter.h. */
#include "lora/adapter.h"

#include <errno.h>
#include <math.h>
#include <strings.h>

#include "base/base.h"

sheaf_status *sheaf__lora_options_default(sheaf_lora_options *out)
{
    *out = (sheaf_lora_options){ .rank = 8, .alpha = 8 };
    return NULL;
}

static void free_list(char **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

static void clear_names(sheaf_lora_names *names)
{
    free_list(names->list, names->n);
    free(names->regex);
    *names = (sheaf_lora_names){ 0 };
}

bool sheaf__lora_has_name(const sheaf_lora_names *names, const char *name)
{
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->list[i], name) == 0)
            return true;
    return false;
}

bool sheaf__lora_add_name(sheaf_lora_names *names, const char *name)
{
    if (sheaf__lora_has_name(names, name))
        return true;
    if (!SHEAF_GROW(&names->list, NULL, names->n + 1) ||
        (names->list[names->n] = strdup(name)) == NULL)
        return false;
    names->n++;
    return true;
}

static void clear_patterns(sheaf_patterns *patterns)
{
    for (int i = 0; i < patterns->n; i++)
        free(patterns->at[i].key);
    free(patterns->at);
    *patterns = (sheaf_patterns){ 0 };
}

void sheaf_lora_options_release(sheaf_lora_options *o)
{
    clear_names(&o->targets);
    clear_names(&o->exclude);
    clear_names(&o->parameters);
    clear_names(&o->layers_pattern);
    clear_names(&o->modules_to_save);
    clear_patterns(&o->rank_pattern);
    clear_patterns(&o->alpha_pattern);
    free(o->layers);
    for (int i = 0; i < o->ntokens; i++) {
        free(o->tokens[i].module);
        free(o->tokens[i].row);
    }
    free(o->tokens);
    free(o->base_name);
    free(o->peft_version);
    free(o->unknown_keys);
    *o = (sheaf_lora_options){ 0 };
}

sheaf_status *sheaf__lora_try_base(sheaf_status *st, const sheaf_lora_options *o, const char *more)
{
    const bool named = o->base_name != NULL && o->base_name[0] != '\0';
    return sheaf_try_this(st, "the base model this adapter was made for%s%.200s%s%s",
                          named ? ": its adapter_config.json names '" : "",
                          named ? o->base_name : "", named ? "'" : "", more);
}

/* The functions below replace pointers of `from` in *out by copies; on failure they leave them
 * empty and set *failed. */
static void copy_text(char **text, bool *failed)
{
    *failed |= *text != NULL && (*text = strdup(*text)) == NULL;
}

static void copy_names(sheaf_lora_names *names, bool *failed)
{
    char *const *from = names->list;
    const int n = names->n;
    names->list = n > 0 ? calloc((size_t)n, sizeof *names->list) : NULL;
    names->n = names->list != NULL ? n : 0;
    *failed |= names->n < n;
    for (int i = 0; i < names->n; i++)
        *failed |= (names->list[i] = strdup(from[i])) == NULL;
    copy_text(&names->regex, failed);
}

static void copy_patterns(sheaf_patterns *patterns, bool *failed)
{
    const sheaf_patterns from = *patterns;
    patterns->at = from.n > 0 ? calloc((size_t)from.n, sizeof *patterns->at) : NULL;
    patterns->n = patterns->at != NULL ? from.n : 0;
    *failed |= patterns->n < from.n;
    for (int i = 0; i < patterns->n; i++) {
        patterns->at[i] = from.at[i];
        copy_text(&patterns->at[i].key, failed);
    }
}

sheaf_status *sheaf__lora_options_copy(sheaf_lora_options *out, const sheaf_lora_options *from)
{
    bool failed = false;
    *out = *from;
    copy_names(&out->targets, &failed);
    copy_names(&out->exclude, &failed);
    copy_names(&out->parameters, &failed);
    copy_names(&out->layers_pattern, &failed);
    copy_names(&out->modules_to_save, &failed);
    copy_patterns(&out->rank_pattern, &failed);
    copy_patterns(&out->alpha_pattern, &failed);
    copy_text(&out->base_name, &failed);
    copy_text(&out->peft_version, &failed);
    copy_text(&out->unknown_keys, &failed);
    out->tokens = NULL; /* only for a merge, which copies no options */
    out->ntokens = 0;
    const size_t bytes = (size_t)from->nlayers * sizeof *out->layers;
    out->layers = from->nlayers > 0 ? malloc(bytes) : NULL;
    failed |= from->nlayers > 0 && out->layers == NULL;
    if (out->layers != NULL)
        memcpy(out->layers, from->layers, bytes);
    if (!failed)
        return NULL;
    sheaf_lora_options_release(out);
    return sheaf__no_memory("LoRA options");
}

static sheaf_status *bad_list(const char *text)
{
    sheaf_text names = { 0 };
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "list of names");
    sheaf_found(sheaf_expected(st, "names with single commas between them"), "%s", text);
    for (size_t n; *(text += strspn(text, ", ")) != '\0'; text += n) {
        n = strcspn(text, ", ");
        sheaf__text_add(&names, "%s%.*s", names.size > 0 ? "," : "", (int)n, text);
    }
    if (names.size > 0 && !names.failed)
        sheaf_try_this(st, "%s", names.at);
    sheaf__text_release(&names);
    return st;
}

/* Splits at commas, ignoring blanks around them; names contain no blanks. */
static sheaf_status *split(char ***out, int *n, const char *text)
{
    int count = 0, most = 1;
    for (const char *p = text; *p != '\0'; p++)
        most += *p == ',';
    char **list = calloc((size_t)most, sizeof *list), *copy = strdup(text), *rest = copy;
    sheaf_status *st = list == NULL || copy == NULL ? sheaf__no_memory(text) : NULL;
    for (char *word; st == NULL && (word = strsep(&rest, ",")) != NULL;) {
        word += strspn(word, " ");
        size_t length = strlen(word);
        while (length > 0 && word[length - 1] == ' ')
            length--;
        if (length == 0 || memchr(word, ' ', length) != NULL)
            st = bad_list(text);
        else if ((list[count] = strndup(word, length)) == NULL)
            st = sheaf__no_memory(text);
        else
            count++;
    }
    free(copy);
    if (st != NULL) {
        free_list(list, count);
        return st;
    }
    *out = list;
    *n = count;
    return NULL;
}

static bool is_regex(const char *text)
{
    return strpbrk(text, "\\*+?()[]{}|^$") != NULL;
}

static sheaf_status *set_names(sheaf_lora_names *out, const char *text, bool regex)
{
    clear_names(out);
    if (text == NULL || *text == '\0')
        return NULL;
    if (!regex || !is_regex(text))
        return split(&out->list, &out->n, text);
    out->regex = strdup(text);
    return out->regex != NULL ? NULL : sheaf__no_memory("pattern");
}

sheaf_status *sheaf__lora_set_targets(sheaf_lora_options *out, const char *text)
{
    out->all_linear =
        text != NULL && (strcasecmp(text, "all-linear") == 0 || strcasecmp(text, "all") == 0);
    out->sat_set = text == NULL                       ? SHEAF_SAT_SET_NONE
                   : strcasecmp(text, "sat") == 0     ? SHEAF_SAT_SET_TEXT
                   : strcasecmp(text, "sat-vit") == 0 ? SHEAF_SAT_SET_VIT
                                                      : SHEAF_SAT_SET_NONE;
    clear_names(&out->parameters);
    return set_names(&out->targets,
                     out->all_linear || out->sat_set != SHEAF_SAT_SET_NONE ? NULL : text, true);
}

/* "pissa_niter_16": PEFT's approximation in so many rounds, of what is exact here */
static bool is_rounds(const char *text)
{
    static const char rounds[] = "pissa_niter_";
    const size_t n = sizeof rounds - 1;
    return strncmp(text, rounds, n) == 0 && text[n] != '\0' &&
           text[n + strspn(text + n, "0123456789")] == '\0';
}

sheaf_status *sheaf__lora_set_init(sheaf_lora_options *out, const char *text)
{
    static const char *const names[] = { "default",    "random", "gaussian",
                                         "orthogonal", "pissa",  "olora" };
    if (text == NULL || *text == '\0')
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0 || (i == SHEAF_LORA_PISSA && is_rounds(text))) {
            out->init = (sheaf_lora_init)i;
            return NULL;
        }
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "beginning of an adapter");
    sheaf_expected(st, "default, random, gaussian, orthogonal, pissa, pissa_niter_N or olora");
    sheaf_found(st, "%s", text);
    return sheaf_try_this(st,
                          "pissa, which needs no data; an adapter that PEFT began otherwise and "
                          "saved as plain LoRA: `adapter DIR`");
}

void sheaf__lora_double(sheaf_lora_options *o)
{
    const double by = o->rslora ? sqrt(2) : 2;
    o->rank *= 2;
    o->alpha *= by;
    for (int i = 0; i < o->rank_pattern.n; i++)
        o->rank_pattern.at[i].value *= 2;
    for (int i = 0; i < o->alpha_pattern.n; i++)
        o->alpha_pattern.at[i].value *= by;
}

sheaf_status *sheaf__lora_set_exclude(sheaf_lora_options *out, const char *text)
{
    return set_names(&out->exclude, text, true);
}

sheaf_status *sheaf__lora_set_saved(sheaf_lora_options *out, const char *text)
{
    return set_names(&out->modules_to_save, text, false);
}

sheaf_status *sheaf__lora_set_layers(sheaf_lora_options *out, const char *text)
{
    clear_names(&out->layers_pattern);
    free(out->layers);
    out->layers = NULL;
    out->nlayers = 0;
    if (text == NULL || *text == '\0')
        return NULL;
    char **words = NULL;
    int n = 0;
    sheaf_status *st = split(&words, &n, text);
    if (st != NULL)
        return st;
    out->layers = calloc((size_t)n, sizeof *out->layers);
    if (out->layers == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%d layers", n);
    for (int i = 0; i < n && st == NULL; i++) {
        char *end;
        errno = 0;
        const long long value = strtoll(words[i], &end, 10);
        if (words[i][0] < '0' || words[i][0] > '9' || *end != '\0' || errno != 0)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "list of layers"),
                                            "numbers of layers, from 0, with commas between them"),
                             "%s", words[i]);
        else
            out->layers[out->nlayers++] = value;
    }
    free_list(words, n);
    return st;
}

static sheaf_status *bad_pattern(const char *text, bool whole)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "list of patterns");
    sheaf_expected(st, "PATTERN=%s with commas between them", whole ? "RANK" : "ALPHA");
    return sheaf_found(st, "%s", text);
}

/* One "PATTERN=VALUE" from the front of *text, which moves past it and its comma. A
 * comma only ends an entry when a number stands before it. */
static sheaf_status *take_pattern(sheaf_pattern *out, const char **text, bool whole)
{
    for (const char *equals = strchr(*text, '='); equals != NULL;
         equals = strchr(equals + 1, '=')) {
        char *end;
        const double value = strtod(equals + 1, &end);
        const bool number = end > equals + 1 && (*end == ',' || *end == '\0') &&
                            strspn(equals + 1, "0123456789.eE+-") >= (size_t)(end - equals - 1);
        if (!number || equals == *text)
            continue;
        if (!isfinite(value) || value <= 0 || (whole && (value != floor(value) || value > 65536)))
            return bad_pattern(*text, whole);
        *out = (sheaf_pattern){ strndup(*text, (size_t)(equals - *text)), value };
        *text = *end == ',' ? end + 1 : end;
        return out->key != NULL ? NULL : sheaf__no_memory("pattern");
    }
    return bad_pattern(*text, whole);
}

sheaf_status *sheaf__lora_set_pattern(sheaf_patterns *out, const char *text, bool whole)
{
    clear_patterns(out);
    if (text == NULL)
        return NULL;
    while (*(text += strspn(text, " ")) != '\0') {
        if (!SHEAF_GROW(&out->at, NULL, out->n + 1))
            return sheaf__no_memory("list of patterns");
        sheaf_status *st = take_pattern(&out->at[out->n], &text, whole);
        if (st != NULL)
            return st;
        out->n++;
    }
    return NULL;
}
