/* safetensors_write.c - writing; see safetensors.h.
 *
 * The header is the official writer's: tensors by descending dtype, then by name; the
 * metadata first; padded with spaces to a multiple of 8. Late tensors, whose length is not known
 * when the file begins, lie behind all others; their header is written twice, the second time with
 * as many spaces as it is shorter. */
#include "fill.h"
#include "safetensors.h"
#include "base/base.h"

enum { LENGTH_BYTES = 8, ALIGNMENT = 8 };

struct sheaf_safetensors_writer {
    sheaf__fill_file file;
    sheaf_safetensors_spec *spec; /* as declared, names owned; side by side with file.tensor */
    char *metadata;               /* its part of the header */
    size_t header;                /* bytes of length and header */
    char **late; /* contents of late tensors, parallel to spec; NULL: there are none */
    bool *is_late;
};

sheaf_status *sheaf__safetensors_bytes(int64_t *bytes, const sheaf_safetensors_spec *spec)
{
    int64_t bits = sheaf_dtype_bits(spec->dtype);
    bool bad = spec->ndim < 0 || spec->ndim > SHEAF_SAFETENSORS_MAX_DIMS;
    for (int i = 0; !bad && i < spec->ndim; i++)
        bad = spec->shape[i] < 0 || __builtin_mul_overflow(bits, spec->shape[i], &bits);
    if (bad || bits % 8 != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor '%s': shape", spec->name),
                              "at most %d axes, whole bytes, and a size below 2^63 bits",
                              SHEAF_SAFETENSORS_MAX_DIMS);
    *bytes = bits / 8;
    return NULL;
}

/* ---- header ---- */

static int by_dtype_then_name(const void *pa, const void *pb)
{
    const sheaf_safetensors_spec *a = *(sheaf_safetensors_spec *const *)pa,
                                 *b = *(sheaf_safetensors_spec *const *)pb;
    return a->dtype != b->dtype ? (a->dtype > b->dtype ? -1 : 1) : strcmp(a->name, b->name);
}

/* Moves the late ones behind the others; both keep their order. */
static void late_last(const sheaf_safetensors_writer *w, sheaf_safetensors_spec **sorted,
                      sheaf_safetensors_spec **spare)
{
    int64_t n = 0, late = 0;
    for (int64_t i = 0; w->is_late != NULL && i < w->file.count; i++)
        if (w->is_late[sorted[i] - w->spec])
            spare[late++] = sorted[i];
        else
            sorted[n++] = sorted[i];
    memcpy(sorted + n, spare, (size_t)late * sizeof *sorted);
}

static sheaf_status *check_names(sheaf_safetensors_spec **sorted, int64_t count)
{
    qsort(sorted, (size_t)count, sizeof *sorted, sheaf__by_name_behind);
    for (int64_t i = 0; i < count; i++) {
        const bool twice = i > 0 && strcmp(sorted[i - 1]->name, sorted[i]->name) == 0;
        if (twice || strcmp(sorted[i]->name, "__metadata__") == 0)
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor '%s'", sorted[i]->name),
                                  twice ? "each name once" : "another name");
    }
    return NULL;
}

static sheaf_status *add_metadata(sheaf_text *text, const sheaf_safetensors_pair *metadata,
                                  int64_t npairs)
{
    if (npairs == 0)
        return NULL;
    sheaf_safetensors_pair *sorted = malloc((size_t)npairs * sizeof *sorted);
    if (sorted == NULL)
        return sheaf__no_memory("out of memory for metadata");
    memcpy(sorted, metadata, (size_t)npairs * sizeof *sorted);
    qsort(sorted, (size_t)npairs, sizeof *sorted, sheaf__by_name);
    sheaf__text_add(text, "\"__metadata__\":{");
    for (int64_t i = 0; i < npairs; i++) {
        sheaf__text_add(text, i > 0 ? "," : "");
        sheaf__text_json(text, sorted[i].key);
        sheaf__text_add(text, ":");
        sheaf__text_json(text, sorted[i].value);
    }
    sheaf__text_add(text, "}");
    free(sorted);
    return NULL;
}

/* Gives each tensor its offset in the data and appends its line of the header. */
static sheaf_status *add_tensors(sheaf_text *text, sheaf_safetensors_writer *w,
                                 sheaf_safetensors_spec **sorted, bool comma, int64_t *total)
{
    *total = 0;
    for (int64_t i = 0; i < w->file.count; i++) {
        const sheaf_safetensors_spec *s = sorted[i];
        sheaf__fill *t = &w->file.tensor[s - w->spec];
        t->offset = *total;
        if (__builtin_add_overflow(*total, t->bytes, total))
            return sheaf_fail(SHEAF_E_ARG, "tensor '%s': the file would be larger than 2^63 bytes",
                              s->name);
        sheaf__text_add(text, comma || i > 0 ? "," : "");
        sheaf__text_json(text, s->name);
        sheaf__text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", sheaf_dtype_name(s->dtype));
        for (int d = 0; d < s->ndim; d++)
            sheaf__text_add(text, "%s%" PRId64, d > 0 ? "," : "", s->shape[d]);
        sheaf__text_add(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", t->offset, *total);
    }
    return NULL;
}

/* The header's text, and the place of each tensor; of at least `least` bytes. */
static sheaf_status *header_text(char **out, size_t *size, int64_t *total,
                                 sheaf_safetensors_writer *w, size_t least)
{
    const int64_t n = w->file.count;
    sheaf_text text = { 0 };
    sheaf_safetensors_spec **sorted = calloc(2 * (size_t)n + 1, sizeof *sorted);
    if (sorted == NULL)
        return sheaf__no_memory("out of memory for the header");
    for (int64_t i = 0; i < n; i++)
        sorted[i] = &w->spec[i];
    sheaf_status *st = check_names(sorted, n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_dtype_then_name);
    late_last(w, sorted, sorted + n);
    sheaf__text_bytes(&text, "\0\0\0\0\0\0\0\0{", LENGTH_BYTES + 1);
    sheaf__text_add(&text, "%s", w->metadata);
    TRY(st, add_tensors(&text, w, sorted, *w->metadata != '\0', total));
    free(sorted);
    sheaf__text_add(&text, "}");
    while ((text.size % ALIGNMENT != 0 || text.size < least) && !text.failed)
        sheaf__text_bytes(&text, " ", 1);
    *size = text.size;
    TRY(st, sheaf__text_take(out, &text));
    sheaf__text_release(&text);
    return st;
}

static sheaf_status *make_header(char **out, size_t *size, sheaf_safetensors_writer *w)
{
    const int64_t n = w->file.count;
    int64_t total = 0;
    sheaf_status *st = header_text(out, size, &total, w, w->header);
    if (st == NULL && *size - LENGTH_BYTES > SHEAF_SAFETENSORS_MAX_HEADER)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "header"),
                            "at most %d bytes; use several files", SHEAF_SAFETENSORS_MAX_HEADER);
    if (st == NULL && __builtin_add_overflow(total, (int64_t)*size, &w->file.size))
        st = sheaf_fail(SHEAF_E_ARG, "the file would be larger than 2^63 bytes");
    for (int i = 0; st == NULL && i < LENGTH_BYTES; i++)
        (*out)[i] = (char)((*size - LENGTH_BYTES) >> (8 * i) & 0xff);
    for (int64_t i = 0; st == NULL && i < n; i++)
        w->file.tensor[i].offset += (int64_t)*size;
    w->header = *size;
    return st;
}

/* ---- begin, write, finish ---- */

/* Ends the writer, and the file as sheaf__fill_finish(). */
static sheaf_status *end(sheaf_safetensors_writer *w, sheaf_status *st)
{
    for (int64_t i = 0; w->late != NULL && i < w->file.count; i++)
        free(w->late[i]);
    st = sheaf__fill_finish(&w->file, st);
    free(w->late);
    free(w->is_late);
    free(w->metadata);
    free(w->spec);
    free(w);
    return st;
}

static sheaf_status *copy_specs(sheaf_safetensors_writer *w, const sheaf_safetensors_spec *specs)
{
    for (int64_t i = 0; i < w->file.count; i++) {
        sheaf__fill *t = &w->file.tensor[i];
        sheaf_status *st = sheaf__safetensors_bytes(&t->bytes, &specs[i]);
        if (st != NULL)
            return st;
        w->spec[i] = specs[i];
        w->spec[i].name = t->name = strdup(specs[i].name);
        if (t->name == NULL)
            return sheaf__no_memory("out of memory for names");
    }
    return NULL;
}

static sheaf_status *note_late(sheaf_safetensors_writer *w, const bool *late)
{
    const size_t n = (size_t)w->file.count + 1;
    if (late == NULL)
        return NULL;
    w->late = calloc(n, sizeof *w->late);
    w->is_late = calloc(n, sizeof *w->is_late);
    if (w->late == NULL || w->is_late == NULL)
        return sheaf__no_memory("out of memory");
    memcpy(w->is_late, late, (n - 1) * sizeof *late);
    return NULL;
}

/* A writer without a file: every tensor has its place, which the header tells. */
static sheaf_status *plan_file(sheaf_safetensors_writer **out, char **header, size_t *size,
                               const sheaf_safetensors_spec *specs, const bool *late, int64_t count,
                               const sheaf_safetensors_pair *metadata, int64_t npairs)
{
    sheaf_text pairs = { 0 };
    sheaf_safetensors_writer *w = *out = calloc(1, sizeof *w);
    *header = NULL;
    if (w == NULL)
        return sheaf__no_memory("out of memory");
    sheaf_status *st = sheaf__fill_new(&w->file, count);
    w->spec = calloc((size_t)count + 1, sizeof *w->spec);
    TRY(st, w->spec == NULL ? sheaf__no_memory("out of memory") : copy_specs(w, specs));
    TRY(st, note_late(w, late));
    TRY(st, add_metadata(&pairs, metadata, npairs));
    sheaf__text_add(&pairs, "%s", "");
    TRY(st, sheaf__text_take(&w->metadata, &pairs));
    sheaf__text_release(&pairs);
    TRY(st, make_header(header, size, w));
    if (st == NULL)
        return NULL;
    *out = NULL;
    free(*header);
    return end(w, st);
}

sheaf_status *sheaf__safetensors_plan(char **header, size_t *size, int64_t *offset,
                                      const sheaf_safetensors_spec *specs, int64_t count)
{
    sheaf_safetensors_writer *w;
    sheaf_status *st = plan_file(&w, header, size, specs, NULL, count, NULL, 0);
    for (int64_t i = 0; st == NULL && i < count; i++)
        offset[i] = w->file.tensor[i].offset;
    return st == NULL ? end(w, NULL) : st;
}

sheaf_status *sheaf__safetensors_begin(sheaf_safetensors_writer **out, const char *path,
                                       const sheaf_safetensors_spec *specs, int64_t count,
                                       const sheaf_safetensors_pair *metadata, int64_t npairs)
{
    return sheaf__safetensors_begin_late(out, path, specs, NULL, count, metadata, npairs);
}

sheaf_status *sheaf__safetensors_begin_late(sheaf_safetensors_writer **out, const char *path,
                                            const sheaf_safetensors_spec *specs, const bool *late,
                                            int64_t count, const sheaf_safetensors_pair *metadata,
                                            int64_t npairs)
{
    char *header;
    size_t size = 0;
    sheaf_safetensors_writer *w;
    sheaf_status *st = plan_file(&w, &header, &size, specs, late, count, metadata, npairs);
    if (st != NULL)
        return sheaf_in(st, "%s", path);
    st = sheaf__fill_create(&w->file, path, header, size);
    free(header);
    if (st != NULL)
        return end(w, st);
    *out = w;
    return NULL;
}

int64_t sheaf__safetensors_size(const sheaf_safetensors_writer *w)
{
    return w->file.size;
}

sheaf_status *sheaf__safetensors_write(sheaf_safetensors_writer *w, int64_t index, int64_t begin,
                                       const void *src, int64_t bytes)
{
    return sheaf__fill_write(&w->file, index, begin, src, bytes);
}

sheaf_status *sheaf__safetensors_write_box(sheaf_safetensors_writer *w, int64_t index, int64_t row0,
                                           int64_t rows, int64_t col0, int64_t cols,
                                           const void *src)
{
    const sheaf_safetensors_spec *t = &w->spec[index];
    sheaf_status *st =
        sheaf__safetensors_check_box(t->name, t->dtype, t->ndim, t->shape, row0, rows, col0, cols);
    if (st != NULL)
        return sheaf_in(st, "%s", w->file.file.path);
    const int64_t size = (int64_t)sheaf_dtype_bytes(t->dtype);
    int64_t height, width;
    sheaf__safetensors_view(&height, &width, t->ndim, t->shape);
    if (cols == width)
        return sheaf__safetensors_write(w, index, row0 * width * size, src, rows * width * size);
    for (int64_t r = 0; st == NULL && r < rows; r++)
        st = sheaf__safetensors_write(w, index, ((row0 + r) * width + col0) * size,
                                      (const char *)src + r * cols * size, cols * size);
    return st;
}

sheaf_status *sheaf__safetensors_late(sheaf_safetensors_writer *w, int64_t index, const void *src,
                                      int64_t bytes)
{
    const sheaf__fill *t = &w->file.tensor[index];
    sheaf_status *st = sheaf__check_range(w->file.file.path, t->name, 0, bytes, t->bytes);
    if (st != NULL)
        return st;
    char *copy = malloc((size_t)bytes + 1);
    if (copy == NULL)
        return sheaf__no_memory(t->name);
    memcpy(copy, src, (size_t)bytes);
    w->spec[index].shape[0] = bytes;
    free(w->late[index]);
    w->late[index] = copy;
    return NULL;
}

sheaf_status *sheaf__safetensors_settle(sheaf_safetensors_writer *w)
{
    char *header = NULL;
    size_t size = 0;
    if (w->late == NULL)
        return NULL;
    for (int64_t i = 0; i < w->file.count; i++)
        if (w->is_late[i] && w->late[i] == NULL)
            return NULL; /* the end reports it */
        else if (w->is_late[i])
            w->file.tensor[i].bytes = w->spec[i].shape[0];
    sheaf_status *st = make_header(&header, &size, w);
    TRY(st, sheaf__file_write_at(&w->file.file, header, size, 0));
    for (int64_t i = 0; i < w->file.count && st == NULL; i++)
        if (w->is_late[i])
            st = sheaf__fill_write(&w->file, i, 0, w->late[i], w->file.tensor[i].bytes);
    TRY(st, sheaf__file_reserve(&w->file.file, w->file.size));
    free(header);
    for (int64_t i = 0; i < w->file.count; i++)
        free(w->late[i]);
    free(w->late);
    w->late = NULL;
    return st;
}

sheaf_status *sheaf__safetensors_finish(sheaf_safetensors_writer *w)
{
    return end(w, sheaf__safetensors_settle(w));
}

void sheaf__safetensors_abandon(sheaf_safetensors_writer *w)
{
    if (w != NULL)
        sheaf_status_free(end(w, sheaf_fail(SHEAF_E_STOPPED, "abandoned")));
}
