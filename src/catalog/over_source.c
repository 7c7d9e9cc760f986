/* over_source.c - see over_source.h. */
#include "catalog/over_source.h"

#include "base/base.h"
#include "ops/quant/quant.h"

int64_t sheaf__over_find(const sheaf__over_source *s, const char *name)
{
    int64_t i = s->count;
    if (s->sorted) {
        const struct sheaf__over_name *is =
            SHEAF_FIND(struct sheaf__over_name, name, s->by_name, s->count, name);
        return is == NULL ? -1 : is->at;
    }
    while (i-- > 0 && strcmp(s->own[i].name, name) != 0) {
    }
    return i;
}

/* The source whose tensors show beside its own; NULL: none. */
static sheaf_source *shown(const sheaf__over_source *s)
{
    return s->alone ? NULL : s->under;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    const int64_t i = sheaf__over_find(s, name);
    return i >= 0 ? &s->own[i] : shown(s) != NULL ? s->under->find(s->under, name) : NULL;
}

static int64_t count(sheaf_source *self)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    return shown(s) == NULL ? s->count : s->under->count(s->under) + (s->beside ? s->count : 0);
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    if (shown(s) == NULL)
        return &s->own[s->sorted ? s->by_name[i].at : i];
    const int64_t below = s->under->count(s->under);
    return i < below ? find(self, s->under->entry(s->under, i)->name) : &s->own[i - below];
}

static sheaf_source *behind(sheaf_source *self, const char **name)
{
    const sheaf__over_source *s = (const sheaf__over_source *)self;
    return sheaf__over_find(s, *name) >= 0 ? NULL : shown(s);
}

static const sheaf__quantised_source quantised = { .behind = behind };

sheaf_status *sheaf__over_init(sheaf__over_source *s, int64_t most)
{
    s->source.find = find;
    s->source.count = count;
    s->source.entry = entry;
    s->source.quantised = &quantised;
    s->own = calloc((size_t)most + 1, sizeof *s->own);
    s->by_name = calloc((size_t)most + 1, sizeof *s->by_name);
    return s->own != NULL && s->by_name != NULL ? NULL : sheaf__no_memory("list of tensors");
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
    for (int64_t i = 0; i < s->count; i++)
        s->by_name[i] = (struct sheaf__over_name){ s->own[i].name, i };
    qsort(s->by_name, (size_t)s->count, sizeof *s->by_name, sheaf__by_name);
    s->sorted = true;
}

void sheaf__over_release(sheaf__over_source *s)
{
    for (int64_t i = 0; i < s->count; i++)
        free((char *)s->own[i].name);
    free(s->own);
    free(s->by_name);
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
        sheaf__over_free(s);
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

/* ---- tensors by other names ---- */

static sheaf_status *renamed_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, void *dst)
{
    const sheaf__renamed_source *s = (const sheaf__renamed_source *)self;
    const int64_t i = sheaf__over_find(&s->over, name);
    if (i < 0)
        return sheaf_fail(SHEAF_E_LAYOUT, "no tensor '%s'", name);
    return s->over.under->read(s->over.under, s->stored[i], row0, rows, col0, cols, dst);
}

static void renamed_release(sheaf__over_source *self)
{
    free(((sheaf__renamed_source *)self)->stored);
}

sheaf__renamed_source *sheaf__renamed_new(sheaf_source *under, int64_t most)
{
    sheaf__renamed_source *s =
        sheaf__over_new(sizeof *s, under, most, renamed_read, renamed_release);
    if (s == NULL)
        return NULL;
    s->over.alone = true;
    s->stored = calloc((size_t)most + 1, sizeof *s->stored);
    if (s->stored != NULL)
        return s;
    sheaf__over_free(s);
    return NULL;
}

sheaf_status *sheaf__renamed_add(sheaf__renamed_source *s, char *name,
                                 const sheaf_source_entry *stored)
{
    s->stored[s->over.count] = stored->name;
    return sheaf__over_add(&s->over, name, *stored);
}
