/* catalog.c - see catalog.h: growing the catalog, names, findings. */
#include "catalog/catalog.h"

#include <stdarg.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "catalog/coded.h"
#include "catalog/private.h"

enum {
    MAX_OPEN = 400, /* files of a catalog that stay open: a process may have 1024 */
    MOST_LOOKS = 1 << 24,
    MOST_EXPANDED = 256 << 20
};

const char *const sheaf__moment_words[2] = { "exp_avg.", "exp_avg_sq." };

const char *sheaf__moment_base(const char *name)
{
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(sheaf__moment_words[i]);
        if (strncmp(name, sheaf__moment_words[i], n) == 0)
            return name + n;
    }
    return name;
}

sheaf_status *sheaf__catalog_new(sheaf_catalog **out, const sheaf_dialect *dialect,
                                 const char *root)
{
    sheaf_catalog *c = calloc(1, sizeof *c);
    *out = c;
    if (c == NULL)
        return sheaf__no_memory(root);
    c->dialect = dialect;
    c->looks = MOST_LOOKS;
    c->step = c->vocab = c->padded_vocab = -1;
    c->root = strdup(root);
    if (c->root != NULL)
        return NULL;
    sheaf__catalog_free(c);
    *out = NULL;
    return sheaf__no_memory(root);
}

void sheaf__catalog_free(sheaf_catalog *c)
{
    if (c == NULL)
        return;
    for (int64_t i = 0; i < c->count; i++) {
        free((char *)c->tensor[i].entry.name);
        free(c->tensor[i].piece);
        sheaf__coded_free(c->tensor[i].coded);
    }
    for (int i = 0; i < c->nfiles; i++) {
        free(c->file[i].path);
        if (c->file[i].fd >= 0)
            close(c->file[i].fd);
    }
    for (int64_t i = 0; i < c->nfindings; i++) {
        sheaf_finding *f = &c->finding[i];
        free(f->path);
        free(f->tensor);
        free(f->expected);
        free(f->found);
        free(f->cure);
    }
    if (c->held != NULL)
        closedir(c->held);
    free(c->tensor);
    free(c->file);
    free(c->zip);
    free(c->finding);
    free(c->slot);
    free(c->root);
    free(c->config);
    free(c->config_path);
    free(c->quantization);
    free(c);
}

static uint64_t hash_of(const char *name)
{
    const uint64_t h = sheaf__fnv(SHEAF__FNV, name, strlen(name));
    return h ^ h >> 29;
}

static sheaf_status *find_file(int *file, sheaf_catalog *c, const char *path)
{
    const uint64_t hash = hash_of(path);
    int64_t size;
    for (*file = c->nfiles; (*file)-- > 0;) /* most look-ups want the newest */
        if (c->file[*file].hash == hash && strcmp(c->file[*file].path, path) == 0)
            return NULL;
    if (!SHEAF_GROW(&c->file, &c->files_capacity, c->nfiles + 1))
        return sheaf__no_memory(c->root);
    sheaf_catalog_file f = { .path = strdup(path), .hash = hash, .fd = -1 };
    if (f.path == NULL)
        return sheaf__no_memory(c->root);
    sheaf_status *st = sheaf__file_open_read(&f.fd, &size, path);
    if (st != NULL) {
        free(f.path);
        return st;
    }
    sheaf__file_mark(&f.mark, f.fd);
    if (c->nfiles >= MAX_OPEN) { /* opened again for each read */
        close(f.fd);
        f.fd = -1;
    }
    *file = c->nfiles;
    c->file[c->nfiles++] = f;
    return NULL;
}

static sheaf_status *has_changed(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_CHANGED, "%s: changed while it was read", path);
    sheaf_found(sheaf_expected(st, "a file that stays as it is"), "written to meanwhile");
    return sheaf_try_this(st, "try again once whatever writes it is done");
}

sheaf_status *sheaf__catalog_file(int *file, sheaf_catalog *c, const char *path,
                                  const sheaf_file_mark *as)
{
    sheaf_status *st = find_file(file, c, path);
    if (st == NULL && as != NULL && !sheaf__file_mark_equal(as, &c->file[*file].mark))
        st = has_changed(path);
    return st;
}

sheaf_status *sheaf__catalog_open(int *fd, const sheaf_catalog_file *file)
{
    int64_t size;
    *fd = file->fd;
    return *fd >= 0 ? NULL : sheaf__file_open_read(fd, &size, file->path);
}

sheaf_status *sheaf__catalog_done(int fd, const sheaf_catalog_file *file, sheaf_status *st)
{
    sheaf_file_mark now = file->mark;
    if (fd >= 0)
        sheaf__file_mark(&now, fd);
    if (!sheaf__file_mark_equal(&now, &file->mark)) {
        sheaf_status_free(st);
        st = has_changed(file->path);
    }
    if (fd >= 0 && file->fd < 0)
        close(fd);
    return st;
}

sheaf_status *sheaf__catalog_zip(sheaf_catalog *c, int file, int64_t begin, int64_t length)
{
    if (!SHEAF_GROW(&c->zip, &c->zips_capacity, c->nzips + 1))
        return sheaf__no_memory(c->root);
    c->zip[c->nzips++] = (sheaf_catalog_zip){ file, begin, length };
    return NULL;
}

/* ---- names ---- */

/* The slot of `name`: what it holds is its tensor's index + 1, or 0. */
static int64_t slot_of(const sheaf_catalog *c, const char *name)
{
    int64_t at = (int64_t)(hash_of(name) & (uint64_t)(c->slots - 1));
    while (c->slot[at] != 0 && strcmp(c->tensor[c->slot[at] - 1].entry.name, name) != 0)
        at = (at + 1) & (c->slots - 1);
    return at;
}

static sheaf_status *rehash(sheaf_catalog *c, int64_t slots)
{
    int64_t *slot = calloc((size_t)slots, sizeof *slot);
    if (slot == NULL)
        return sheaf__no_memory(c->root);
    free(c->slot);
    c->slot = slot;
    c->slots = slots;
    for (int64_t i = 0; i < c->count; i++)
        c->slot[slot_of(c, c->tensor[i].entry.name)] = i + 1;
    return NULL;
}

sheaf_logical *sheaf__catalog_find(const sheaf_catalog *c, const char *name)
{
    if (c->slots == 0)
        return NULL;
    const int64_t i = c->slot[slot_of(c, name)];
    return i == 0 ? NULL : &c->tensor[i - 1];
}

sheaf_status *sheaf__catalog_tensor(sheaf_logical **out, sheaf_catalog *c, const char *name,
                                    sheaf_dtype dtype, int ndim, const int64_t *shape)
{
    *out = sheaf__catalog_find(c, name);
    if (*out != NULL)
        return NULL;
    int64_t elements = 1; /* without axes of no elements: the others' product must fit too */
    for (int i = 0; i < ndim; i++)
        if (i == SHEAF_CATALOG_MAX_DIMS || shape[i] < 0 ||
            __builtin_mul_overflow(elements, shape[i] > 0 ? shape[i] : 1, &elements))
            return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': its shape cannot be held", name);
    if (elements > INT64_MAX / 16)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s': its shape cannot be held", name);
    if (!SHEAF_GROW(&c->tensor, &c->capacity, c->count + 1))
        return sheaf__no_memory(c->root);
    sheaf_status *st =
        2 * (c->count + 1) > c->slots ? rehash(c, c->slots == 0 ? 256 : 2 * c->slots) : NULL;
    if (st != NULL)
        return st;
    char *copy = strdup(name);
    if (copy == NULL)
        return sheaf__no_memory(c->root);
    sheaf_logical *t = &c->tensor[c->count++];
    *t = (sheaf_logical){ .entry = { copy, dtype, ndim, { 0 } } };
    memcpy(t->entry.shape, shape, (size_t)ndim * sizeof *shape);
    c->slot[slot_of(c, copy)] = c->count;
    *out = t;
    return NULL;
}

sheaf_status *sheaf__catalog_sort(sheaf_catalog *c)
{
    if (c->count == 0) { /* all of them may have been removed */
        if (c->slots > 0)
            memset(c->slot, 0, (size_t)c->slots * sizeof *c->slot);
        return NULL;
    }
    qsort(c->tensor, (size_t)c->count, sizeof *c->tensor, sheaf__by_name);
    return rehash(c, c->slots);
}

void sheaf__catalog_keep(sheaf_catalog *c, unsigned kinds)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if ((kinds >> c->tensor[i].kind & 1) != 0) {
            const sheaf_logical moved = c->tensor[n];
            c->tensor[n++] = c->tensor[i];
            c->tensor[i] = moved;
        }
    }
    for (int64_t i = n; i < c->count; i++) {
        free((char *)c->tensor[i].entry.name);
        free(c->tensor[i].piece);
        sheaf__coded_free(c->tensor[i].coded);
    }
    c->count = n;
}

/* ---- pieces ---- */

sheaf_piece sheaf__piece_dense(int file, int rank, sheaf_dtype dtype, int64_t offset, int ndim,
                               const int64_t *shape)
{
    sheaf_piece p = { .file = file, .rank = rank, .dtype = dtype, .offset = offset };
    for (int64_t i = ndim - 1, stride = 1; i >= 0; i--) {
        p.size[i] = shape[i];
        p.stride[i] = stride;
        if (__builtin_mul_overflow(stride, shape[i] > 0 ? shape[i] : 1, &stride))
            stride = 1; /* sheaf__catalog_tensor() refuses such a shape */
    }
    return p;
}

/* The end of the piece's last byte; -1 when that is no number. */
static int64_t piece_end(const sheaf_piece *p, int ndim)
{
    int64_t last = 0, step, end;
    for (int i = 0; i < ndim; i++)
        if (p->stride[i] < 0 || __builtin_mul_overflow(p->size[i] - 1, p->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return -1;
    const int64_t each = p->converted ? sheaf__gguf_type_block(p->stored) : 1,
                  bytes = p->converted ? sheaf__gguf_type_bytes(p->stored)
                                       : (int64_t)sheaf_dtype_bytes(p->dtype);
    if (p->offset < 0 || __builtin_add_overflow(last / each, 1, &last) ||
        __builtin_mul_overflow(last, bytes, &end) || __builtin_add_overflow(end, p->offset, &end))
        return -1;
    return end;
}

/* sheaf__ggml_values() makes numbers of at most 32 bits: of integers and F64 it makes none. */
static sheaf_status *check_converted(const sheaf_piece *p, const char *path, const char *name)
{
    const sheaf__gguf_type_row *stored = sheaf__gguf_type_at(p->stored);
    if (!p->converted || stored->dtype == SHEAF_F32 || stored->dtype == SHEAF_F16 ||
        stored->dtype == SHEAF_BF16)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: tensor '%s'", path, name);
    sheaf_expected(st, "f32, f16, bf16 or blocks: its numbers are computed from the stored ones");
    sheaf_found(st, "%s", stored->name);
    return sheaf_try_this(st, "make this GGUF file again: llama.cpp writes this tensor in f32");
}

sheaf_status *sheaf__catalog_piece(sheaf_catalog *c, sheaf_logical *t, const sheaf_piece *p)
{
    const sheaf_catalog_file *file = &c->file[p->file];
    int64_t elements = 1;
    for (int i = 0; i < t->entry.ndim; i++) {
        if (p->begin[i] < 0 || p->size[i] < 0 || p->begin[i] > t->entry.shape[i] - p->size[i]) {
            sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s: tensor '%s', axis %d", file->path,
                                          t->entry.name, i);
            sheaf_expected(st, "a part inside [0, %" PRId64 ")", t->entry.shape[i]);
            return sheaf_found(st, "%" PRId64 " from %" PRId64, p->size[i], p->begin[i]);
        }
        elements *= p->size[i]; /* no more than the tensor's */
    }
    if (elements == 0)
        return NULL;
    if (sheaf_dtype_bytes(p->dtype) == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: tensor '%s': elements below a byte", file->path,
                          t->entry.name);
    sheaf_status *converted = check_converted(p, file->path, t->entry.name);
    if (converted != NULL)
        return converted;
    const int64_t end = piece_end(p, t->entry.ndim);
    if (end < 0 || end > file->mark.size) {
        sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: tensor '%s'", file->path, t->entry.name);
        sheaf_expected(st, "data up to byte %" PRId64, end);
        return sheaf_found(st, "a file of %" PRId64 " bytes", file->mark.size);
    }
    const int64_t bytes = elements * (int64_t)sheaf_dtype_bytes(p->dtype);
    c->expanded += bytes > file->mark.size && c->expanded < INT64_MAX - bytes ? bytes : 0;
    if (bytes > file->mark.size && c->expanded > MOST_EXPANDED &&
        c->expanded / 64 > file->mark.size) {
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: tensor '%s'", file->path, t->entry.name);
        sheaf_expected(st, "tensors that are at most 64 times their file, or %d MiB",
                       MOST_EXPANDED >> 20);
        sheaf_found(st, "%" PRId64 " bytes, expanded from a file of %" PRId64, c->expanded,
                    file->mark.size);
        return sheaf_try_this(st, "save it with .contiguous(), if that many values are meant");
    }
    if (t->npieces == t->capacity) { /* most tensors have one: not SHEAF_GROW, which gives more */
        const int64_t capacity = t->capacity == 0 ? 1 : t->capacity * 2;
        if (!SHEAF_GROW(&t->piece, NULL, capacity))
            return sheaf__no_memory(c->root);
        t->capacity = capacity;
    }
    t->piece[t->npieces++] = *p;
    return NULL;
}

const char *sheaf__catalog_path_of(const sheaf_catalog *c, const sheaf_logical *t)
{
    if (t->coded != NULL)
        t = &t->coded->part[SHEAF__CODES_PART];
    return t->npieces > 0 ? c->file[t->piece[0].file].path : c->root;
}

/* ---- findings ---- */

sheaf_status *sheaf__finding(sheaf_catalog *c, sheaf_severity severity, const char *code,
                             const char *path, const char *tensor, const char *expected,
                             const char *cure, const char *found, ...)
{
    const char *text[] = { path, tensor, expected };
    char *copy[5] = { NULL };
    va_list args;
    va_start(args, found);
    const bool made = vasprintf(&copy[3], found, args) >= 0;
    va_end(args);
    if (!made)
        copy[3] = NULL;
    sheaf_status *st = sheaf__cure(&copy[4], c, cure != NULL ? cure : "");
    for (int i = 0; i < 3; i++)
        copy[i] = strdup(text[i] != NULL ? text[i] : "");
    bool failed = st != NULL || !SHEAF_GROW(&c->finding, &c->findings_capacity, c->nfindings + 1);
    for (int i = 0; i < 5; i++)
        failed = failed || copy[i] == NULL;
    sheaf_status_free(st);
    if (!failed)
        c->finding[c->nfindings++] =
            (sheaf_finding){ severity, code, copy[0], copy[1], copy[2], copy[3], copy[4] };
    for (int i = 0; failed && i < 5; i++)
        free(copy[i]);
    return failed ? sheaf__no_memory(c->root) : NULL;
}

bool sheaf__catalog_is_finding(const sheaf_status *st)
{
    return st != NULL && sheaf_status_code(st) != SHEAF_E_MEMORY &&
           sheaf_status_code(st) != SHEAF_E_CHANGED;
}

sheaf_status *sheaf__catalog_defect_as(sheaf_catalog *c, const char *path, sheaf_status *st,
                                       const char *word, const char *cure)
{
    if (!sheaf__catalog_is_finding(st))
        return st;
    const sheaf_code code = sheaf_status_code(st);
    if (word == NULL)
        word = code == SHEAF_E_UNSUPPORTED ? "unsupported"
               : code == SHEAF_E_UNSAFE    ? "unsafe"
               : code == SHEAF_E_LAYOUT    ? "conflict"
                                           : "damaged";
    const char *found = sheaf_status_found(st), *try = sheaf_status_try(st);
    sheaf_status *noted =
        sheaf__defect(c, word, path, "", sheaf_status_expected(st), *try != '\0' ? try : cure,
                      "%s%s%s", sheaf_status_where(st), *found != '\0' ? ": " : "", found);
    sheaf_status_free(st);
    return noted;
}

sheaf_status *sheaf__catalog_defect(sheaf_catalog *c, const char *path, sheaf_status *st)
{
    return sheaf__catalog_defect_as(c, path, st, NULL, "");
}

int64_t sheaf__catalog_defects(const sheaf_catalog *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->nfindings; i++)
        n += c->finding[i].severity == SHEAF_DEFECT;
    return n;
}

const sheaf_finding *sheaf__catalog_finding(const sheaf_catalog *c, const char *code)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, code) == 0)
            return &c->finding[i];
    return NULL;
}

/* ---- commands that cure what was found, with the paths of the checkpoint at hand ---- */

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
