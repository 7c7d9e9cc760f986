/* match.c - see match.h. */
#include "lora/match.h"

#include "base/base.h"
#include "base/regex.h"

static bool ends_with(const char *text, size_t length, const char *end)
{
    const size_t n = strlen(end);
    return n <= length && memcmp(text + length - n, end, n) == 0;
}

bool sheaf__ends_with_item(const char *path, size_t length, const char *item)
{
    const size_t n = strlen(item);
    return ends_with(path, length, item) && (n == length || path[length - n - 1] == '.');
}

const char *sheaf__lora_parameter(const sheaf_tensor *tensor, const char *item)
{
    const char *const paths[] = { tensor->stack.of, tensor->name };
    for (int i = 0; i < 2; i++)
        if (paths[i] != NULL && sheaf__ends_with_item(paths[i], strlen(paths[i]), item))
            return paths[i];
    return NULL;
}

bool sheaf__lora_saves(const sheaf_lora_options *o, const char *path)
{
    const size_t whole = strlen(path);
    for (int i = 0; i < o->modules_to_save.n; i++)
        for (size_t length = 1; length <= whole; length++)
            if ((path[length] == '.' || path[length] == '\0') &&
                ends_with(path, length, o->modules_to_save.list[i]))
                return true;
    return false;
}

bool sheaf__lora_saves_tensor(const sheaf_lora_options *o, const char *name)
{
    return sheaf__lora_has_name(&o->modules_to_save, name);
}

static sheaf_status *excluded(bool *out, const sheaf_lora_options *o, const char *path)
{
    *out = false;
    if (o->exclude.regex != NULL) {
        sheaf_status *st = sheaf__regex_match(out, NULL, "", o->exclude.regex, "", path, true);
        if (st != NULL || *out)
            return st;
    }
    for (int i = 0; i < o->exclude.n; i++)
        if (sheaf__ends_with_item(path, strlen(path), o->exclude.list[i])) {
            *out = true;
            return NULL;
        }
    /* A module that is saved whole never carries an adapter as well. */
    for (int i = 0; i < o->modules_to_save.n; i++) {
        sheaf_status *st = sheaf__regex_match(out, NULL, "(^|.*\\.)", o->modules_to_save.list[i],
                                              "($|\\..*)", path, false);
        if (st != NULL || *out)
            return st;
    }
    return NULL;
}

/* layers_to_transform: is the layer number in `path` one of them? It is the first number, as PEFT
 * takes it since 0.20; the last one would be that of an expert. */
sheaf_status *sheaf__lora_layer_wanted(bool *out, const sheaf_lora_options *o, const char *path)
{
    *out = true;
    if (o->nlayers == 0)
        return NULL;
    bool found = false;
    int64_t layer = -1;
    sheaf_status *st = NULL;
    if (o->layers_pattern.n == 0)
        st = sheaf__regex_match(&found, &layer, "", ".*?\\.[^.]*\\.(\\d+)\\.", "", path, false);
    for (int i = 0; i < o->layers_pattern.n && st == NULL && !found; i++)
        st = sheaf__regex_match(&found, &layer, "(?:^|.*?\\.)", o->layers_pattern.list[i],
                                "\\.(\\d+)\\.", path, false);
    *out = false;
    for (int i = 0; i < o->nlayers && found; i++)
        *out |= o->layers[i] == layer;
    return st;
}

sheaf_status *sheaf__lora_hit(sheaf_hit *out, const sheaf_lora_options *o, const char *path)
{
    bool yes;
    sheaf_status *st = excluded(&yes, o, path);
    *out = yes ? SHEAF_HIT_EXCLUDED : SHEAF_HIT_NONE;
    if (st != NULL || yes)
        return st;
    if (o->targets.regex != NULL) {
        st = sheaf__regex_match(&yes, NULL, "", o->targets.regex, "", path, true);
        *out = yes ? SHEAF_HIT_TARGET : SHEAF_HIT_NONE;
        return st;
    }
    /* A whole path matches in any layer. */
    if (sheaf__lora_has_name(&o->targets, path)) {
        *out = SHEAF_HIT_TARGET;
        return NULL;
    }
    for (int i = 0; i < o->targets.n; i++)
        if (sheaf__ends_with_item(path, strlen(path), o->targets.list[i])) {
            st = sheaf__lora_layer_wanted(&yes, o, path);
            *out = yes ? SHEAF_HIT_TARGET : SHEAF_HIT_NONE;
            return st;
        }
    return NULL;
}

bool sheaf__lora_is_plain(const char *key)
{
    const char *rest = key + (*key == '^');
    return rest[strspn(
               rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] == '\0';
}

static bool plain_match(const char *key, const char *path)
{
    const bool anchored = *key == '^';
    key += anchored;
    const size_t n = strlen(key), length = strlen(path);
    if (n > length || (n < length && (anchored || path[length - n - 1] != '.')))
        return false;
    for (size_t i = n; i-- > 0;) /* paths of one model differ at their ends */
        if (key[i] != '.' && key[i] != path[length - n + i])
            return false;
    return true;
}

sheaf_status *sheaf__lora_pattern_value(double *out, const sheaf_patterns *patterns,
                                        const char *path, double absent)
{
    const sheaf_pattern *list = patterns->at;
    *out = absent;
    for (int i = 0; i < patterns->n; i++) {
        const bool plain = list[i].plain || sheaf__lora_is_plain(list[i].key);
        bool yes = plain && plain_match(list[i].key, path);
        sheaf_status *st =
            plain ? NULL
                  : sheaf__regex_match(&yes, NULL, "(.*\\.)?(", list[i].key, ")$", path, false);
        if (st != NULL)
            return st;
        if (yes) {
            *out = list[i].value;
            return NULL;
        }
    }
    return NULL;
}

const sheaf_lora_tokens *sheaf__lora_tokens(const sheaf_lora_options *o, const char *path,
                                            size_t length)
{
    for (int i = 0; i < o->ntokens; i++)
        if (o->tokens[i].module == NULL || sheaf__ends_with_item(path, length, o->tokens[i].module))
            return &o->tokens[i];
    return NULL;
}

bool sheaf__lora_saves_bias(const sheaf_lora_options *o, const char *name)
{
    return (o->bias != SHEAF_BIAS_NONE && sheaf__ends_with(name, ".bias")) ||
           (o->bias == SHEAF_BIAS_ALL && sheaf__ends_with(name, "_bias"));
}

bool sheaf__lora_named_bias(const sheaf_lora_options *o, const char *name)
{
    char module[512];
    const char *dot = strrchr(name, '.');
    if (o->bias != SHEAF_BIAS_ALL || dot == NULL || !sheaf__ends_with(name, "_bias") ||
        (size_t)(dot - name) >= sizeof module)
        return false;
    snprintf(module, sizeof module, "%.*s", (int)(dot - name), name);
    return !sheaf__lora_saves(o, module) && !sheaf__lora_saves_tensor(o, name);
}

bool sheaf__lora_leaves_named(const sheaf_lora_options *o, sheaf_source *adapter)
{
    for (int64_t i = 0; i < adapter->count(adapter); i++)
        if (sheaf__lora_named_bias(o, adapter->entry(adapter, i)->name))
            return false;
    return true;
}
