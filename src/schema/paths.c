/* paths.c - see paths.h. */
#include "schema/paths.h"

/* A path around its first part that is a number: [0, head), [head, tail) the digits, the rest.
 * None: head = tail = the end. */
typedef struct split {
    size_t head, tail;
} split;

static split split_of(const char *path)
{
    for (const char *p = path; p != NULL; p = strchr(p, '.')) {
        p += *p == '.';
        const size_t digits = strspn(p, "0123456789");
        if (digits > 0 && (p[digits] == '.' || p[digits] == '\0'))
            return (split){ (size_t)(p - path), (size_t)(p - path) + digits };
    }
    return (split){ strlen(path), strlen(path) };
}

const char *sheaf__numbered_name(char *out, size_t size, const char *pattern, int64_t number)
{
    const char *hash = strchr(pattern, '#');
    if (hash == NULL)
        snprintf(out, size, "%s", pattern);
    else
        snprintf(out, size, "%.*s%" PRId64 "%s", (int)(hash - pattern), pattern, number, hash + 1);
    return out;
}

static bool same_pattern(const char *a, const char *b)
{
    const split x = split_of(a), y = split_of(b);
    return x.head == y.head && (x.tail > x.head) == (y.tail > y.head) &&
           memcmp(a, b, x.head) == 0 && strcmp(a + x.tail, b + y.tail) == 0;
}

static void add_literal(sheaf_text *text, const char *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const bool plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
                                  from[i]) != NULL;
        sheaf__text_add(text, "%s%c", plain ? "" : "\\", from[i]);
    }
}

void sheaf__paths_pattern(sheaf_text *text, const char *const *paths, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool listed = false;
        int64_t more = 0;
        for (int64_t k = 0; k < i && !listed; k++)
            listed = same_pattern(paths[k], paths[i]);
        for (int64_t k = i + 1; k < n && !listed; k++)
            more += same_pattern(paths[k], paths[i]);
        if (listed)
            continue;
        const split at = split_of(paths[i]);
        sheaf__text_add(text, "%s", i > 0 ? "|" : "");
        add_literal(text, paths[i], at.head);
        sheaf__text_add(text, "%s%.*s", more > 0 ? "(" : "", (int)(at.tail - at.head),
                        paths[i] + at.head);
        for (int64_t k = i + 1; k < n && more > 0; k++)
            if (same_pattern(paths[k], paths[i])) {
                const split other = split_of(paths[k]);
                sheaf__text_add(text, "|%.*s", (int)(other.tail - other.head),
                                paths[k] + other.head);
            }
        sheaf__text_add(text, "%s", more > 0 ? ")" : "");
        add_literal(text, paths[i] + at.tail, strlen(paths[i] + at.tail));
    }
}

/* ---- wrappers of modules ---- */

/* DataParallel's word is also an honest name of a module, so it counts at the beginning alone. */
static const struct {
    const char *word;
    bool inside;
} words[] = {
    { "module.", false },
    { "_orig_mod.", true },
    { "_forward_module.", true }, /* Lightning's strategies */
    { "_fsdp_wrapped_module.", true },
    { "_fpw_module.", true }, /* FSDP until torch 1.13 */
    { "_checkpoint_wrapped_module.", true },
};

static const char *word_at(const char *at, bool first)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((first || words[i].inside) && strncmp(at, words[i].word, strlen(words[i].word)) == 0)
            return words[i].word;
    return NULL;
}

const char *sheaf__unwrap(char *name)
{
    const char *found = NULL;
    for (char *at = name; at != NULL;) {
        const char *word = word_at(at, at == name);
        if (word != NULL) {
            found = found != NULL ? found : word;
            memmove(at, at + strlen(word), strlen(at + strlen(word)) + 1);
        } else {
            at = strchr(at, '.');
            at = at != NULL ? at + 1 : NULL;
        }
    }
    return found;
}
