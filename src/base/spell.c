/* spell.c - see spell.h. */
#include "base/spell.h"

#include "base/base.h"

/* The bytes of the name of a field that begins behind the backquote at `text`, and in *value those
 * of its value; 0: there is none. */
static size_t field_at(const char *text, size_t *value)
{
    *value = 0;
    if (text[0] != '`' || text[1] < 'a' || text[1] > 'z')
        return 0;
    const size_t name = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz0123456789-");
    const char *end = text + 1 + name;
    if (*end == ' ')
        *value = strcspn(end + 1, "`\n");
    return end[*value > 0 ? *value + 1 : 0] == '`' ? name : 0;
}

static char *put(char *to, const char *text, size_t size)
{
    return mempcpy(to, text, size);
}

/* "top_k": as a key; NULL: it is none. Writes no more than `to` has room for. */
static char *put_key(char *to, const char *name, size_t size, sheaf__is_key *is_key)
{
    to[0] = to[size + 1] = '"';
    for (size_t i = 0; i < size; i++)
        to[1 + i] = name[i] == '-' ? '_' : name[i];
    return is_key != NULL && is_key(to + 1, size) ? to + size + 2 : NULL;
}

char *sheaf__spell_fields(const char *text, sheaf__is_key *is_key)
{
    char *out = malloc(2 * strlen(text) + 1), *to = out;
    while (out != NULL && *text != '\0') {
        size_t value;
        const size_t name = field_at(text, &value);
        if (name == 0) {
            const char *quote = *text == '"' ? strchr(text + 1, '"') : NULL;
            const size_t size = quote != NULL ? (size_t)(quote + 1 - text) : 1;
            to = put(to, text, size);
            text += size;
            continue;
        }
        char *key = put_key(to, text + 1, name, is_key);
        to = key != NULL ? key : put(put(to, "--", 2), text + 1, name);
        text += 1 + name;
        if (value > 0) {
            to = put(put(to, ": ", key != NULL), " ", 1);
            to = put(to, text + 1, value);
            text += 1 + value;
        }
        text++;
    }
    if (out != NULL)
        *to = '\0';
    return out;
}
