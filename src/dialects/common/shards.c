/* shards.c - see shards.h. */
#include "shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
    sheaf_source_entry told; /* name owned */
    const sheaf_safetensors *file;
    const sheaf_safetensors_entry *stored;
} item;

struct sheaf_shards {
    sheaf_source source; /* first, so that a pointer to it is one to the whole */
    sheaf_safetensors **file;
    int64_t nfiles, files_room;
    item *item;
    int64_t count, room;
};

static sheaf_status *no_memory(void)
{
    return sheaf_fail(SHEAF_E_MEMORY, "out of memory for the list of tensors");
}

sheaf_status *sheaf__shards_new(sheaf_shards **out)
{
    *out = calloc(1, sizeof **out);
    return *out == NULL ? no_memory() : NULL;
}

sheaf_status *sheaf__shards_open(sheaf_shards *s, const char *path, const sheaf_safetensors **file)
{
    if (s->nfiles == s->files_room) {
        const int64_t room = s->files_room * 2 + 4;
        sheaf_safetensors **more = realloc(s->file, (size_t)room * sizeof *more);
        if (more == NULL)
            return no_memory();
        s->file = more;
        s->files_room = room;
    }
    sheaf_status *st = sheaf__safetensors_open(&s->file[s->nfiles], path);
    if (st == NULL)
        *file = s->file[s->nfiles++];
    return st;
}

sheaf_status *sheaf__shards_add(sheaf_shards *s, const sheaf_safetensors *file,
                                const sheaf_safetensors_entry *entry, const char *name)
{
    if (s->count == s->room) {
        const int64_t room = s->room * 2 + 64;
        item *more = realloc(s->item, (size_t)room * sizeof *more);
        if (more == NULL)
            return no_memory();
        s->item = more;
        s->room = room;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return no_memory();
    item *i = &s->item[s->count++];
    *i =
        (item){ .told = { copy, entry->dtype, entry->ndim, { 0 } }, .file = file, .stored = entry };
    memcpy(i->told.shape, entry->shape, sizeof i->told.shape);
    return NULL;
}

/* ---- as a source ---- */

static item *find_item(sheaf_shards *s, const char *name)
{
    int64_t low = 0, high = s->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int c = strcmp(name, s->item[middle].told.name);
        if (c == 0)
            return &s->item[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const sheaf_source_entry *source_find(sheaf_source *self, const char *name)
{
    item *i = find_item((sheaf_shards *)self, name);
    return i == NULL ? NULL : &i->told;
}

static int64_t source_count(sheaf_source *self)
{
    return ((sheaf_shards *)self)->count;
}

static const sheaf_source_entry *source_entry(sheaf_source *self, int64_t index)
{
    return &((sheaf_shards *)self)->item[index].told;
}

static sheaf_status *source_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const item *i = find_item((sheaf_shards *)self, name);
    if (i == NULL)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    return sheaf__safetensors_read_box(i->file, i->stored, row0, rows, col0, cols, dst);
}

static void source_close(sheaf_source *self)
{
    sheaf__shards_close((sheaf_shards *)self);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->told.name, ((const item *)b)->told.name);
}

sheaf_status *sheaf__shards_source(sheaf_source **out, sheaf_shards *s)
{
    if (s->count > 0)
        qsort(s->item, (size_t)s->count, sizeof *s->item, by_name);
    for (int64_t i = 1; i < s->count; i++)
        if (strcmp(s->item[i - 1].told.name, s->item[i].told.name) == 0) {
            sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", s->item[i].told.name);
            sheaf_expected(st, "one tensor of this name");
            return sheaf_found(st, "'%s' in %s and '%s' in %s", s->item[i - 1].stored->name,
                               s->item[i - 1].file->path, s->item[i].stored->name,
                               s->item[i].file->path);
        }
    s->source =
        (sheaf_source){ source_find, source_count, source_entry, source_read, source_close };
    *out = &s->source;
    return NULL;
}

const char *sheaf__shards_file(const sheaf_source *source, int64_t index)
{
    const sheaf_shards *s = (const sheaf_shards *)source;
    return index < s->nfiles ? s->file[index]->path : NULL;
}

void sheaf__shards_close(sheaf_shards *s)
{
    if (s == NULL)
        return;
    for (int64_t i = 0; i < s->count; i++)
        free((char *)s->item[i].told.name);
    for (int64_t i = 0; i < s->nfiles; i++)
        sheaf__safetensors_close(s->file[i]);
    free(s->item);
    free(s->file);
    free(s);
}
