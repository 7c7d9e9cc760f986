/* catalog_twins.c - is one part another's file under a wrong name?
 *
 * Each part of a divided tensor has values of its own. Two parts that have pieces of the same tensors, begin
 * alike in each of them and are not constant in all are one part twice. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "dialects/catalog_private.h"

enum { SAMPLE_BYTES = 4096, MOST_PARTS = 256 };

typedef struct part {
    int rank, file;
    uint64_t digest; /* of its samples and of which tensors they are */
    int64_t tensors; /* that had one */
    int64_t last;    /* of them; -1 = none yet */
    bool varied;     /* one of them was not the same element throughout */
} part;

static uint64_t mix(uint64_t h, const void *data, size_t size)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ byte[i]) * 0x100000001b3u; /* FNV-1a */
    return h;
}

static part *part_of(part *parts, int *count, int rank, int file)
{
    for (int i = 0; i < *count; i++)
        if (parts[i].rank == rank)
            return &parts[i];
    if (*count == MOST_PARTS)
        return NULL;
    parts[*count] = (part){ .rank = rank, .file = file, .digest = 0xcbf29ce484222325u, .last = -1 };
    return &parts[(*count)++];
}

/* Elements of a piece that lie together in its file, from its first. */
static int64_t together(const sheaf_piece *p, int ndim)
{
    int64_t n = 1;
    for (int i = ndim - 1; i >= 0 && (p->size[i] == 1 || p->stride[i] == n); i--)
        n *= p->size[i];
    return n;
}

static sheaf_status *take_sample(part *of, const sheaf_catalog *c, int64_t tensor, const sheaf_piece *p)
{
    char sample[SAMPLE_BYTES];
    const size_t each = sheaf_dtype_bytes(p->dtype);
    const int64_t have = together(p, c->tensor[tensor].told.ndim), most = (int64_t)(SAMPLE_BYTES / each);
    const size_t bytes = (size_t)(have < most ? have : most) * each;
    int64_t size;
    int fd = c->file[p->file].fd;
    sheaf_status *st = fd >= 0 ? NULL : sheaf__file_open_read(&fd, &size, c->file[p->file].path);
    if (st == NULL)
        st = sheaf__file_read_at(fd, sample, bytes, p->offset, c->file[p->file].path);
    if (fd != c->file[p->file].fd)
        close(fd);
    if (st != NULL)
        return st;
    of->digest = mix(mix(mix(of->digest, &tensor, sizeof tensor), p->size, sizeof p->size), sample, bytes);
    of->varied |= bytes > each && memcmp(sample, sample + each, bytes - each) != 0;
    of->tensors++;
    of->last = tensor;
    return NULL;
}

/* Of the first piece that each part has. */
static sheaf_status *take_samples(part *parts, int *count, const sheaf_catalog *c, int64_t tensor)
{
    const sheaf_logical *t = &c->tensor[tensor];
    sheaf_status *st = NULL;
    for (int64_t k = 0; st == NULL && k < t->npieces; k++) {
        const sheaf_piece *p = &t->piece[k];
        part *of = p->rank < 0 || sheaf_dtype_bytes(p->dtype) == 0 ? NULL : part_of(parts, count, p->rank, p->file);
        if (of != NULL && of->last != tensor)
            st = take_sample(of, c, tensor, p);
    }
    return st;
}

sheaf_status *sheaf__catalog_twins(sheaf_catalog *c)
{
    part *parts = malloc(MOST_PARTS * sizeof *parts);
    sheaf_status *st = parts == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", c->root) : NULL;
    int count = 0;
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        if (!c->tensor[i].replicated && c->tensor[i].npieces > 1)
            st = sheaf__catalog_defect(c, c->root, take_samples(parts, &count, c, i));
    for (int i = 1; st == NULL && i < count; i++)
        for (int k = 0; k < i; k++) {
            const part *a = &parts[k], *b = &parts[i];
            if (!b->varied || a->digest != b->digest || a->file == b->file)
                continue;
            st = sheaf__catalog_notef(c, SHEAF_DEFECT, "duplicate", c->file[b->file].path, "", "values of its own in tensors that are divided",
                                      "copy part by part again from where the checkpoint was written",
                                      "the values of part %d, %s, in all %" PRId64 " of them: one of the two is a copy under a wrong name", a->rank,
                                      c->file[a->file].path, b->tensors);
            break;
        }
    free(parts);
    return st;
}
