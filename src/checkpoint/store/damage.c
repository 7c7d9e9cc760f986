/* damage.c - compares the files of a checkpoint with its manifest.
 *
 * Headers are not trusted: the bytes of a file are a function of the manifest, so its size, header
 * and tensor offsets are known. A tensor is read at its computed offset, whatever the header says,
 * so one damage never hides another. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "checkpoint/store/store.h"
#include "formats/safetensors.h"

/* The current file. */
typedef struct examined {
    const sheaf_checkpoint *checkpoint;
    sheaf_damages *damages;
    char name[32], path[SHEAF_PATH_SIZE];
    int slice, fd;
    int64_t size;  /* it has */
    int64_t count; /* tensors it should hold */
    const sheaf_manifest_tensor **tensor;
    int64_t *offset;
} examined;

static void add_damage(sheaf_damages *d, const char *file, const char *tensor, const char *expected,
                       const char *is)
{
    d->count++;
    if (d->found != NULL)
        d->found(d->context, file, tensor, expected, is);
}

/* Reports a status as damage and frees it; returns a status that is not damage. */
static sheaf_status *report(sheaf_damages *d, const char *file, const char *tensor,
                            sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    const char *is = sheaf_status_found(st);
    add_damage(d, file, tensor, sheaf_status_expected(st),
               *is != '\0' ? is : sheaf_status_where(st));
    sheaf_status_free(st);
    return NULL;
}

/* ---- one file ---- */

/* The expected header of the file, and the offsets of its tensors. */
static sheaf_status *plan(examined *e, char **header, size_t *size)
{
    const sheaf_manifest *m = e->checkpoint->manifest;
    sheaf_safetensors_spec *specs = NULL;
    int64_t n = 0;
    e->tensor = calloc((size_t)m->count + 1, sizeof *e->tensor);
    e->offset = calloc((size_t)m->count + 1, sizeof *e->offset);
    sheaf_status *st = e->tensor == NULL || e->offset == NULL
                           ? sheaf__no_memory("out of memory")
                           : sheaf__manifest_specs(&specs, &n, m, e->slice);
    for (int64_t i = 0; i < m->count && st == NULL; i++)
        if (sheaf__manifest_holds(m, &m->tensor[i], e->slice))
            e->tensor[e->count++] = &m->tensor[i];
    TRY(st, sheaf__safetensors_plan(header, size, e->offset, specs, n));
    free(specs);
    return st;
}

static sheaf_status *check_header(examined *e, const char *header, size_t size)
{
    char expected[64], found[64];
    if ((int64_t)size > e->size) { /* its size is reported already */
        add_damage(e->damages, e->name, "", "the whole header", "the file ends in it");
        return NULL;
    }
    char *is = malloc(size);
    sheaf_status *st = is == NULL ? sheaf__no_memory("out of memory")
                                  : sheaf__file_read_at(e->fd, is, size, 0, e->path);
    size_t i = 0;
    while (st == NULL && i < size && is[i] == header[i])
        i++;
    if (st == NULL && i < size) {
        snprintf(expected, sizeof expected, "byte %zu of the header: %02x", i,
                 (unsigned char)header[i]);
        snprintf(found, sizeof found, "%02x", (unsigned char)is[i]);
        add_damage(e->damages, e->name, "", expected, found);
    }
    free(is);
    return report(e->damages, e->name, "", st);
}

static sheaf_status *check_tensor(examined *e, int64_t i)
{
    char a[33], b[33], expected[80], is[80];
    const sheaf_manifest_tensor *t = e->tensor[i];
    const int64_t bytes = sheaf__manifest_bytes(t, e->slice);
    const sheaf_hash want = *sheaf__manifest_hash(t, e->slice);
    sheaf_hash found;
    if (bytes > 0 && e->size - e->offset[i] < bytes) {
        snprintf(expected, sizeof expected, "bytes %" PRId64 " to %" PRId64 " of the file",
                 e->offset[i], e->offset[i] + bytes - 1);
        snprintf(is, sizeof is, "it has %" PRId64 " bytes", e->size);
        add_damage(e->damages, e->name, t->name, expected, is);
        return NULL;
    }
    sheaf_status *st = sheaf__file_hash(&found, e->fd, e->offset[i], bytes, e->path, NULL, NULL);
    if (st != NULL)
        return report(e->damages, e->name, t->name, st);
    if (!sheaf__hash_equal(want, found)) {
        snprintf(expected, sizeof expected, "hash %s", sheaf__hash_text(a, want));
        add_damage(e->damages, e->name, t->name, expected, sheaf__hash_text(b, found));
    }
    return NULL;
}

static void check_size(examined *e)
{
    char expected[64], is[32];
    const int64_t want = e->checkpoint->manifest->bytes[e->slice];
    if (e->size == want)
        return;
    snprintf(expected, sizeof expected, "%" PRId64 " bytes, as the manifest says", want);
    snprintf(is, sizeof is, "%" PRId64 " bytes", e->size);
    add_damage(e->damages, e->name, "", expected, is);
}

sheaf_status *sheaf__checkpoint_examine(sheaf_damages *damages, const sheaf_checkpoint *checkpoint,
                                        int slice, bool quick)
{
    examined e = { .checkpoint = checkpoint, .damages = damages, .slice = slice, .fd = -1 };
    char *header = NULL;
    size_t size = 0;
    sheaf__manifest_file(e.name, checkpoint->manifest->slices, slice);
    sheaf__path_in(e.path, checkpoint->dir, e.name);
    sheaf_status *st = report(damages, e.name, "", sheaf__file_open_read(&e.fd, &e.size, e.path));
    if (st == NULL && e.fd >= 0) {
        st = report(damages, "manifest.json", "", plan(&e, &header, &size));
        if (st == NULL && header != NULL) {
            check_size(&e);
            st = check_header(&e, header, size);
        }
        for (int64_t i = 0; i < e.count && st == NULL && header != NULL && !quick; i++)
            st = check_tensor(&e, i);
    }
    if (e.fd >= 0)
        close(e.fd);
    free(header);
    free(e.tensor);
    free(e.offset);
    return st;
}

/* ---- the folder ---- */

/* The hash of a cut tensor is the hash of its slices' hashes. */
static void check_joined(sheaf_damages *d, const sheaf_checkpoint *c)
{
    char a[33], b[33];
    for (int64_t i = 0; i < c->manifest->count; i++) {
        const sheaf_manifest_tensor *t = &c->manifest->tensor[i];
        if (t->cut.nparts == 0)
            continue;
        const sheaf_hash is = sheaf__manifest_joined(c->manifest, i);
        if (!sheaf__hash_equal(t->hash, is))
            add_damage(d, "manifest.json", t->name, sheaf__hash_text(a, t->hash),
                       sheaf__hash_text(b, is));
    }
}

static bool belongs(const sheaf_checkpoint *c, const char *name)
{
    char file[32];
    for (int s = 0; s <= c->manifest->slices; s++)
        if (strcmp(name, sheaf__manifest_file(file, c->manifest->slices, s)) == 0)
            return true;
    return strcmp(name, "manifest.json") == 0;
}

static sheaf_status *check_names(sheaf_damages *d, const sheaf_checkpoint *c)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = report(d, "", "", sheaf__list_dir(&names, &n, c->dir));
    for (int64_t i = 0; i < n; i++)
        if (!belongs(c, names[i]))
            add_damage(d, names[i], "", "only the files that the manifest names",
                       "a file of another origin");
    sheaf__names_free(names, n);
    return st;
}

sheaf_status *sheaf_checkpoint_examine(sheaf_damages *damages, const char *dir, bool quick)
{
    sheaf_checkpoint *c = NULL;
    sheaf_status *st =
        report(damages, "manifest.json", "", sheaf__checkpoint_open_manifest(&c, dir));
    if (c == NULL)
        return st;
    check_joined(damages, c);
    st = check_names(damages, c);
    for (int slice = 0; slice <= c->manifest->slices && st == NULL; slice++)
        st = sheaf__checkpoint_examine(damages, c, slice, quick);
    sheaf_checkpoint_close(c);
    return st;
}
