/* wrappers.c - see wrappers.h. */
#include "schema/wrappers.h"

#include "base/base.h"

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
