/* cure.c - commands that cure what was found, with the paths of the checkpoint at hand; see
 * catalog.h. */
#include "base/base.h"
#include "base/file.h"
#include "catalog/catalog.h"

/* "ROOT-word"; where ROOT has no name of its own, "word" beside it. */
static void add_beside(sheaf_text *text, const char *root, const char *word, size_t size)
{
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    const char *last = memrchr(root, '/', n);
    last = last == NULL ? root : last + 1;
    const size_t rest = (size_t)(root + n - last);
    const bool named = rest > 0 && strncmp(last, ".", rest) != 0 && strncmp(last, "..", rest) != 0;
    char *path = NULL;
    if (asprintf(&path, named ? "%.*s-%.*s" : "%.*s/../%.*s", (int)n, root, (int)size, word) < 0) {
        text->failed = true;
        return;
    }
    sheaf__text_word(text, path);
    free(path);
}

/* --config again, where it was given: it does not lie where the checkpoint does. */
static void add_config(sheaf_text *text, const sheaf_catalog *c)
{
    const char *root = c->root, *file = strrchr(root, '/');
    const size_t n = sheaf__path_kind(root) == SHEAF_PATH_DIR || file == NULL
                         ? strlen(root)
                         : (size_t)(file - root);
    if (c->config_path == NULL || strncmp(c->config_path, root, n) == 0)
        return;
    sheaf__text_add(text, " --config ");
    sheaf__text_word(text, c->config_path);
}

sheaf_status *sheaf__cure(char **out, const sheaf_catalog *c, const char *cure)
{
    sheaf_text text = { 0 };
    while (*cure != '\0') {
        const char *end = *cure == '{' ? strchr(cure, '}') : NULL;
        if (end == cure + 1) {
            sheaf__text_word(&text, c->root);
        } else if (end != NULL && cure[1] == '+') {
            add_beside(&text, c->root, cure + 2, (size_t)(end - cure - 2));
        } else if (end != NULL && strncmp(cure, "{config}", 8) == 0) {
            add_config(&text, c);
        } else {
            sheaf__text_bytes(&text, cure++, 1);
            continue;
        }
        cure = end + 1;
    }
    return sheaf__text_take(out, &text);
}
