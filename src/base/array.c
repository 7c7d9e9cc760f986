/* array.c - see array.h. Pointers are copied, as an array of any type may be behind one. */
#include "base/array.h"

#include "base/base.h"

bool sheaf__grow(void *array, int64_t *capacity, int64_t need, size_t size)
{
    int64_t wanted = need;
    void *at;
    if (capacity != NULL && need <= *capacity)
        return true;
    if (capacity != NULL && *capacity <= (INT64_MAX - 16) / 2 && *capacity * 2 + 16 > need)
        wanted = *capacity * 2 + 16;
    if (wanted < 0 || wanted > INT64_MAX / 2 / (int64_t)size)
        return false;
    memcpy(&at, array, sizeof at);
    at = realloc(at, (size_t)wanted * size);
    if (at == NULL)
        return false;
    memcpy(array, &at, sizeof at);
    if (capacity != NULL)
        *capacity = wanted;
    return true;
}

static const char *name_at(const void *element, size_t at)
{
    const char *name;
    memcpy(&name, (const char *)element + at, sizeof name);
    return name;
}

void *sheaf__find(const void *array, int64_t count, size_t size, size_t at, const char *wanted)
{
    for (int64_t low = 0, high = count; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const char *element = (const char *)array + (size_t)middle * size;
        const int order = strcmp(wanted, name_at(element, at));
        if (order == 0)
            return (void *)element;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int sheaf__by_name(const void *a, const void *b)
{
    return strcmp(name_at(a, 0), name_at(b, 0));
}

int sheaf__by_name_behind(const void *a, const void *b)
{
    const void *x, *y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return sheaf__by_name(x, y);
}
