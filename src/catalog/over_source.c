/* over_source.c - see over_source.h. */
#include "catalog/over_source.h"

#include "base/base.h"
#include "ops/quant/quant.h"

int64_t sheaf__over_find(const sheaf__over_source *s, const char *name)
{
    int64_t i = s->count;
    if (s->sorted) {
        const sheaf_source_entry *e =
            SHEAF_FIND(const sheaf_source_entry, name, s->own, s->count, name);
        return e == NULL ? -1 : e - s->own;
    }
    while (i-- > 0 && strcmp(s->own[i].name, name) != 0) {
    }
    return i;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    const int64_t i = sheaf__over_find(s, name);
    return i >= 0 ? &s->own[i] : s->under != NULL ? s->under->find(s->under, name) : NULL;
}

static int64_t below(const sheaf__over_source *s)
{
    return s->under != NULL ? s->under->count(s->under) : 0;
}

static int64_t count(sheaf_source *self)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    return below(s) + (s->under == NULL || s->beside ? s->count : 0);
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    return i >= below(s) ? &s->own[i - below(s)] : find(self, s->under->entry(s->under, i)->name);
}

static sheaf_source *behind(sheaf_source *self, const char **name)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    return sheaf__over_find(s, *name) >= 0 ? NULL : s->under;
}

static const sheaf__quantised_source quantised = { .behind = behind };

sheaf_status *sheaf__over_init(sheaf__over_source *s, int64_t most)
{
    s->source.find = find;
    s->source.count = count;
    s->source.entry = entry;
    s->source.quantised = &quantised;
    s->own = calloc((size_t)most + 1, sizeof *s->own);
    return s->own != NULL ? NULL : sheaf__no_memory("list of tensors");
}

sheaf_status *sheaf__over_add(sheaf__over_source *s, char *name, sheaf_source_entry entry)
{
    if (name == NULL)
        return sheaf__no_memory("list of tensors");
    entry.name = name;
    s->own[s->count++] = entry;
    return NULL;
}

void sheaf__over_sort(sheaf__over_source *s)
{
    qsort(s->own, (size_t)s->count, sizeof *s->own, sheaf__by_name);
    s->sorted = true;
}

void sheaf__over_release(sheaf__over_source *s)
{
    for (int64_t i = 0; i < s->count; i++)
        free((char *)s->own[i].name);
    free(s->own);
}

void sheaf__over_free(void *over)
{
    sheaf__over_source *s = over;
    if (s == NULL)
        return;
    if (s->release != NULL)
        s->release(s);
    sheaf__over_release(s);
    free(s);
}

static void close_over(sheaf_source *self)
{
    sheaf_source *under = ((sheaf__over_source *)self)->under;
    sheaf__over_free(self);
    if (under != NULL)
        under->close(under);
}

void *sheaf__over_new(size_t size, sheaf_source *under, int64_t most,
                      sheaf_status *(*read)(sheaf_source *self, const char *name, int64_t row0,
                                            int64_t rows, int64_t col0, int64_t cols, void *dst),
                      void (*release)(sheaf__over_source *self))
{
    sheaf__over_source *s = calloc(1, size);
    sheaf_status *st = s == NULL ? NULL : sheaf__over_init(s, most);
    if (s == NULL || st != NULL) {
        sheaf_status_free(st);
        free(s);
        return NULL;
    }
    s->under = under;
    s->source.read = read;
    s->source.close = close_over;
    s->release = release;
    return s;
}

sheaf_status *sheaf__over_end(sheaf_source **out, void *over, sheaf_status *st)
{
    if (st == NULL)
        *out = over;
    else
        sheaf__over_free(over);
    return st;
}
