/* select.c - see select.h. */
#include "train/select.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool sheaf__selected(void *self, const sheaf_tensor *tensor)
{
    const sheaf__selection *s = self;
    if (s->method == SHEAF_METHOD_FULL)
        return true;
    for (int i = 0; i < s->npatterns; i++)
        if (fnmatch(s->pattern[i], tensor->name, 0) == 0)
            return true;
    return false;
}

static sheaf_status *no_match(const sheaf_schema *schema, const char *pattern)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--head-patterns: '%s'", pattern);
    sheaf_expected(st, "a pattern that some tensor of the model matches");
    sheaf_found(st, "none of %lld tensors", (long long)schema->count);
    const char **name = malloc((size_t)schema->count * sizeof *name + 1);
    for (int64_t i = 0; name != NULL && i < schema->count; i++)
        name[i] = schema->tensor[i].name;
    const char *nearest = name == NULL ? NULL : sheaf__nearest(pattern, name, (int)schema->count);
    sheaf_try_this(st, "%s%s", nearest == NULL ? "* matches any letters: '*.norm.weight', '*lm_head*'" : "did you mean ",
                   nearest == NULL ? "" : nearest);
    free(name);
    return st;
}

static sheaf_status *add_pattern(sheaf__selection *s, const sheaf_schema *schema, const char *text, size_t size)
{
    char **bigger = realloc(s->pattern, (size_t)(s->npatterns + 1) * sizeof *bigger);
    char *pattern = strndup(text, size);
    if (bigger != NULL)
        s->pattern = bigger;
    if (bigger == NULL || pattern == NULL) {
        free(pattern);
        return sheaf_fail(SHEAF_E_MEMORY, "--head-patterns");
    }
    s->pattern[s->npatterns++] = pattern;
    for (int64_t i = 0; i < schema->count; i++)
        if (fnmatch(pattern, schema->tensor[i].name, 0) == 0)
            return NULL;
    return no_match(schema, pattern);
}

sheaf_status *sheaf__select(sheaf__selection *out, const sheaf_schema *schema, sheaf_method method,
                            const char *patterns)
{
    *out = (sheaf__selection){ .method = method };
    if (method != SHEAF_METHOD_HEAD)
        return NULL;
    if (patterns == NULL || patterns[0] == '\0')
        patterns = schema->config.tied ? "model.embed_tokens.weight" : "lm_head.weight";
    sheaf_status *st = NULL;
    for (const char *p = patterns; *p != '\0' && st == NULL;) {
        const size_t size = strcspn(p, ",");
        if (size > 0)
            st = add_pattern(out, schema, p, size);
        p += size + (p[size] == ',');
    }
    if (st != NULL)
        sheaf__selection_release(out);
    return st;
}

void sheaf__selection_release(sheaf__selection *s)
{
    for (int i = 0; i < s->npatterns; i++)
        free(s->pattern[i]);
    free(s->pattern);
    *s = (sheaf__selection){ 0 };
}
