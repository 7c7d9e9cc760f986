/* options.c - see options.h. */
#include "lora/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "base/array.h"

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

static void free_patterns(sheaf_pattern *list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i].key);
    free(list);
}

void sheaf_lora_options_release(sheaf_lora_options *o)
{
    free_list(o->targets, o->ntargets);
    free(o->target_regex);
    free_list(o->exclude, o->nexclude);
    free(o->exclude_regex);
    free(o->layers);
    free_list(o->layers_pattern, o->nlayers_pattern);
    free_patterns(o->rank_pattern, o->nrank_pattern);
    free_patterns(o->alpha_pattern, o->nalpha_pattern);
    free_list(o->modules_to_save, o->nmodules_to_save);
    for (int i = 0; i < o->ntokens; i++) {
        free(o->tokens[i].module);
        free(o->tokens[i].row);
    }
    free(o->tokens);
    free(o->base_name);
    free(o->unknown_keys);
    *o = (sheaf_lora_options){ 0 };
}

/* The copies below leave what they could not copy NULL and set *failed. */
static char *copy_text(const char *text, bool *failed)
{
    char *copy = text == NULL ? NULL : strdup(text);
    *failed |= text != NULL && copy == NULL;
    return copy;
}

static char **copy_list(char *const *list, int n, bool *failed)
{
    if (list == NULL)
        return NULL;
    char **copy = calloc((size_t)n + 1, sizeof *copy);
    if (copy == NULL) {
        *failed = true;
        return NULL;
    }
    for (int i = 0; i < n; i++)
        copy[i] = copy_text(list[i], failed);
    return copy;
}

static sheaf_pattern *copy_patterns(const sheaf_pattern *list, int n, bool *failed)
{
    if (n == 0)
        return NULL;
    sheaf_pattern *copy = calloc((size_t)n, sizeof *copy);
    if (copy == NULL) {
        *failed = true;
        return NULL;
    }
    for (int i = 0; i < n; i++)
        copy[i] = (sheaf_pattern){ copy_text(list[i].key, failed), list[i].value, list[i].plain };
    return copy;
}

sheaf_status *sheaf__lora_options_copy(sheaf_lora_options *out, const sheaf_lora_options *from)
{
    bool failed = false;
    *out = *from;
    out->targets = copy_list(from->targets, from->ntargets, &failed);
    out->target_regex = copy_text(from->target_regex, &failed);
    out->exclude = copy_list(from->exclude, from->nexclude, &failed);
    out->exclude_regex = copy_text(from->exclude_regex, &failed);
    out->layers_pattern = copy_list(from->layers_pattern, from->nlayers_pattern, &failed);
    out->rank_pattern = copy_patterns(from->rank_pattern, from->nrank_pattern, &failed);
    out->alpha_pattern = copy_patterns(from->alpha_pattern, from->nalpha_pattern, &failed);
    out->modules_to_save = copy_list(from->modules_to_save, from->nmodules_to_save, &failed);
    out->base_name = copy_text(from->base_name, &failed);
    out->unknown_keys = copy_text(from->unknown_keys, &failed);
    out->tokens = NULL; /* only a merge takes them, and it copies nothing */
    out->ntokens = 0;
    out->layers = NULL;
    if (from->nlayers > 0) {
        out->layers = calloc((size_t)from->nlayers, sizeof *out->layers);
        failed |= out->layers == NULL;
        if (out->layers != NULL)
            memcpy(out->layers, from->layers, (size_t)from->nlayers * sizeof *out->layers);
    }
    if (!failed)
        return NULL;
    /* Lists that were not copied must not be walked. */
    out->ntargets = out->targets != NULL ? out->ntargets : 0;
    out->nexclude = out->exclude != NULL ? out->nexclude : 0;
    out->nlayers_pattern = out->layers_pattern != NULL ? out->nlayers_pattern : 0;
    out->nrank_pattern = out->rank_pattern != NULL ? out->nrank_pattern : 0;
    out->nalpha_pattern = out->alpha_pattern != NULL ? out->nalpha_pattern : 0;
    out->nmodules_to_save = out->modules_to_save != NULL ? out->nmodules_to_save : 0;
    sheaf_lora_options_release(out);
    return sheaf__no_memory("LoRA options");
}

/* "q_proj v_proj": no module has a name with a space. */
static sheaf_status *spaces(const char *text)
{
    char *joined = strdup(text);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "list of names");
    sheaf_found(sheaf_expected(st, "names with single commas between them"), "%s", text);
    if (joined == NULL)
        return st;
    size_t n = 0;
    for (const char *p = text + strspn(text, ", "); *p != '\0'; p += strspn(p, ", ")) {
        const size_t length = strcspn(p, ", ");
        if (n > 0)
            joined[n++] = ',';
        memmove(joined + n, p, length);
        n += length;
        p += length;
    }
    joined[n] = '\0';
    sheaf_try_this(st, "%s", joined);
    free(joined);
    return st;
}

/* Splits at commas; an empty entry is an error. */
static sheaf_status *split(char ***out, int *n, const char *text)
{
    int count = 1;
    for (const char *p = text; *p != '\0'; p++)
        count += *p == ',';
    char **list = calloc((size_t)count + 1, sizeof *list);
    if (list == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%d names", count);
    const char *p = text;
    for (int i = 0; i < count; i++) {
        size_t length = strcspn(p, ",");
        const char *from = p;
        p += length + 1;
        while (length > 0 && *from == ' ') {
            from++;
            length--;
        }
        while (length > 0 && from[length - 1] == ' ')
            length--;
        if (memchr(from, ' ', length) != NULL) {
            free_list(list, i);
            return spaces(text);
        }
        list[i] = length > 0 ? strndup(from, length) : NULL;
        if (list[i] == NULL) {
            free_list(list, i);
            if (length > 0)
                return sheaf_fail(SHEAF_E_MEMORY, "%d names", count);
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "list of names"),
                                              "names with single commas between them"),
                               "%s", text);
        }
    }
    *out = list;
    *n = count;
    return NULL;
}

static bool is_regex(const char *text)
{
    return strpbrk(text, "\\*+?()[]{}|^$") != NULL;
}

static void clear_list(char ***list, int *n)
{
    free_list(*list, *n);
    *list = NULL;
    *n = 0;
}

static sheaf_status *set_names(char ***list, int *n, char **regex, const char *text)
{
    clear_list(list, n);
    free(*regex);
    *regex = NULL;
    if (text == NULL || *text == '\0')
        return NULL;
    if (!is_regex(text))
        return split(list, n, text);
    *regex = strdup(text);
    return *regex != NULL ? NULL : sheaf__no_memory("pattern");
}

sheaf_status *sheaf__lora_set_targets(sheaf_lora_options *out, const char *text)
{
    out->all_linear =
        text != NULL && (strcasecmp(text, "all-linear") == 0 || strcasecmp(text, "all") == 0);
    out->sat_set = text == NULL                       ? SHEAF_SAT_SET_NONE
                   : strcasecmp(text, "sat") == 0     ? SHEAF_SAT_SET_TEXT
                   : strcasecmp(text, "sat-vit") == 0 ? SHEAF_SAT_SET_VIT
                                                      : SHEAF_SAT_SET_NONE;
    return set_names(&out->targets, &out->ntargets, &out->target_regex,
                     out->all_linear || out->sat_set != SHEAF_SAT_SET_NONE ? NULL : text);
}

sheaf_status *sheaf__lora_set_exclude(sheaf_lora_options *out, const char *text)
{
    return set_names(&out->exclude, &out->nexclude, &out->exclude_regex, text);
}

sheaf_status *sheaf__lora_set_saved(sheaf_lora_options *out, const char *text)
{
    clear_list(&out->modules_to_save, &out->nmodules_to_save);
    if (text == NULL || *text == '\0')
        return NULL;
    return split(&out->modules_to_save, &out->nmodules_to_save, text);
}

sheaf_status *sheaf__lora_set_layers(sheaf_lora_options *out, const char *text)
{
    clear_list(&out->layers_pattern, &out->nlayers_pattern);
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

sheaf_status *sheaf__lora_set_pattern(sheaf_pattern **list, int *n, const char *text, bool whole)
{
    free_patterns(*list, *n);
    *list = NULL;
    *n = 0;
    if (text == NULL)
        return NULL;
    while (*(text += strspn(text, " ")) != '\0') {
        if (!SHEAF_GROW(list, NULL, *n + 1))
            return sheaf__no_memory("list of patterns");
        sheaf_status *st = take_pattern(&(*list)[*n], &text, whole);
        if (st != NULL)
            return st;
        *n += 1;
    }
    return NULL;
}
