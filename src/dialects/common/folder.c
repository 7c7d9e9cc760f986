/* folder.c - see folder.h. */
#include "folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

enum { DEFAULT_CHUNK = 16 << 20, COPY_CHUNK = 1 << 20 };

typedef struct place {
    char *name;
    int shard;
    int64_t index, bytes;             /* index among the shard's tensors */
    int64_t height, width, row_bytes; /* as a box */
} place;

struct sheaf_folder {
    sheaf_output *output;
    char *stem;
    int64_t count;
    place *place; /* as declared */
    int nshards;
    sheaf_safetensors_writer **writer;
    bool late; /* the sizes of some tensors are not known yet */
};

static const char memory_for[] = "out of memory for the list of tensors";

static void folder_free(sheaf_folder *f)
{
    for (int64_t i = 0; f->place != NULL && i < f->count; i++)
        free(f->place[i].name);
    free(f->place);
    free(f->writer);
    free(f->stem);
    free(f);
}

/* ---- dividing tensors into shards ---- */

/* Puts those of the first `count` tensors that are in no shard yet into the next one. */
static void close_shard(sheaf_folder *f, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (f->place[i].shard < 0)
            f->place[i].shard = f->nshards;
    f->nshards++;
}

/* The rule of huggingface_hub: a tensor above the limit gets a shard of its own, which is numbered
 * when it is met; one that does not fit any more begins the next shard. */
static void assign_shards(sheaf_folder *f, int64_t limit)
{
    int64_t size = -1; /* size of those in no shard yet; -1: none */
    for (int64_t i = 0; i < f->count; i++) {
        place *p = &f->place[i];
        p->shard = limit > 0 && p->bytes > limit ? f->nshards++ : -1;
        if (p->shard >= 0)
            continue;
        if (limit > 0 && size >= 0 && size + p->bytes > limit) {
            close_shard(f, i);
            size = -1;
        }
        size = (size < 0 ? 0 : size) + p->bytes;
    }
    if (size >= 0 || f->nshards == 0) /* a model without tensors is one empty file */
        close_shard(f, f->count);
}

static sheaf_status *make_places(sheaf_folder *f, const sheaf_safetensors_spec *specs,
                                 int64_t limit)
{
    for (int64_t i = 0; i < f->count; i++) {
        place *p = &f->place[i];
        const sheaf_safetensors_spec *spec = &specs[i];
        sheaf_status *st = sheaf__safetensors_bytes(&p->bytes, spec);
        if (st != NULL)
            return st;
        sheaf__safetensors_view(&p->height, &p->width, spec->ndim, spec->shape);
        p->row_bytes = p->width * (int64_t)sheaf_dtype_bytes(spec->dtype);
        p->name = strdup(spec->name);
        if (p->name == NULL)
            return sheaf__no_memory(memory_for);
    }
    assign_shards(f, limit);
    return NULL;
}

static sheaf_status *shard_name(char **out, const sheaf_folder *f, int shard)
{
    const int n = f->nshards == 1 ? asprintf(out, "%s.safetensors", f->stem)
                                  : asprintf(out, "%s-%05d-of-%05d.safetensors", f->stem, shard + 1,
                                             f->nshards);
    return n < 0 ? sheaf__no_memory(memory_for) : NULL;
}

static sheaf_status *begin_shard(sheaf_folder *f, int shard, const sheaf_safetensors_spec *specs,
                                 sheaf_safetensors_spec *some, const sheaf_folder_options *o)
{
    const sheaf_safetensors_pair pairs[] = { { "format", "pt" }, /* transformers insists on it */
                                             { SHEAF__BASE_PRINT, (char *)o->base_print } };
    const int64_t npairs = o->base_print != NULL ? 2 : 1;
    bool *late = o->late != NULL ? calloc((size_t)f->count, sizeof *late) : NULL;
    int64_t n = 0;
    char *name = NULL, path[SHEAF_PATH_SIZE];
    for (int64_t i = 0; i < f->count; i++)
        if (f->place[i].shard == shard) {
            f->place[i].index = n;
            if (late != NULL)
                late[n] = o->late[i];
            some[n++] = specs[i];
        }
    sheaf_status *st = o->late != NULL && late == NULL ? sheaf__no_memory(memory_for)
                                                       : shard_name(&name, f, shard);
    TRY(st, sheaf__safetensors_begin_late(&f->writer[shard],
                                          sheaf__path_in(path, sheaf__folder_dir(f), name), some,
                                          late, n, pairs, npairs));
    free(late);
    free(name);
    return st;
}

/* As json.dumps(index, indent=2, sort_keys=True) of transformers spells it. */
static sheaf_status *write_index(sheaf_folder *f)
{
    sheaf_text text = { 0 };
    int64_t total = 0, elements = 0;
    char *json = NULL, *name = NULL;
    const place **sorted = calloc((size_t)f->count + 1, sizeof *sorted);
    if (sorted == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < f->count; i++) {
        sorted[i] = &f->place[i];
        total += f->place[i].bytes;
        elements += f->place[i].height * f->place[i].width;
    }
    qsort(sorted, (size_t)f->count, sizeof *sorted, sheaf__by_name_behind);
    sheaf__text_add(&text,
                    "{\n  \"metadata\": {\n    \"total_parameters\": %" PRId64
                    ",\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {\n",
                    elements, total);
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < f->count && st == NULL; i++) {
        char *shard = NULL;
        st = shard_name(&shard, f, sorted[i]->shard);
        sheaf__text_add(&text, "    ");
        sheaf__text_json(&text, sorted[i]->name);
        sheaf__text_add(&text, ": \"%s\"%s\n", st == NULL ? shard : "",
                        i + 1 < f->count ? "," : "");
        free(shard);
    }
    sheaf__text_add(&text, "  }\n}\n");
    free(sorted);
    TRY(st, sheaf__text_take(&json, &text));
    if (st == NULL && asprintf(&name, "%s.safetensors.index.json", f->stem) < 0)
        st = sheaf__no_memory(memory_for);
    TRY(st, sheaf__output_write(f->output, name, json, strlen(json)));
    sheaf__text_release(&text);
    free(json);
    free(name);
    return st;
}

sheaf_status *sheaf__folder_begin(sheaf_folder **out, const char *dst,
                                  const sheaf_safetensors_spec *specs, int64_t count,
                                  const sheaf_folder_options *options)
{
    sheaf_safetensors_spec *some = calloc((size_t)count, sizeof *some);
    sheaf_folder *f = calloc(1, sizeof *f);
    sheaf_status *st = some == NULL || f == NULL ? sheaf__no_memory(memory_for) : NULL;
    if (st == NULL) {
        f->count = count;
        f->place = calloc((size_t)count, sizeof *f->place);
        f->stem = strdup(options->stem);
        st = f->place == NULL || f->stem == NULL ? sheaf__no_memory(memory_for)
                                                 : make_places(f, specs, options->shard_bytes);
    }
    if (st == NULL) {
        f->writer = calloc((size_t)f->nshards, sizeof *f->writer);
        st = f->writer == NULL ? sheaf__no_memory(memory_for)
                               : sheaf__output_begin(&f->output, dst, options->replace);
    }
    for (int s = 0; st == NULL && s < f->nshards; s++)
        st = begin_shard(f, s, specs, some, options);
    if (st == NULL)
        f->late = options->late != NULL;
    TRY(st, f->nshards > 1 && !f->late ? write_index(f) : NULL);
    free(some);
    if (st == NULL)
        *out = f;
    else
        sheaf__folder_abandon(f);
    return st;
}

/* ---- content ---- */

sheaf_status *sheaf__folder_write(sheaf_folder *f, int64_t index, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, const void *src)
{
    if (index < 0 || index >= f->count)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "tensor number"), "0 to %" PRId64, f->count - 1),
            "%" PRId64, index);
    const place *p = &f->place[index];
    return sheaf__safetensors_write_box(f->writer[p->shard], p->index, row0, rows, col0, cols, src);
}

sheaf_status *sheaf__folder_late(sheaf_folder *f, int64_t index, const void *src, int64_t bytes)
{
    place *p = &f->place[index];
    sheaf_status *st = sheaf__safetensors_late(f->writer[p->shard], p->index, src, bytes);
    if (st == NULL)
        p->bytes = p->height = bytes;
    return st;
}

sheaf_status *sheaf__folder_settle(sheaf_folder *f)
{
    sheaf_status *st = NULL;
    for (int s = 0; f->late && s < f->nshards && st == NULL; s++)
        st = sheaf__safetensors_settle(f->writer[s]);
    TRY(st, f->late && f->nshards > 1 ? write_index(f) : NULL);
    f->late = f->late && st != NULL;
    return st;
}

sheaf_status *sheaf__folder_bytes(sheaf_folder *f, const char *name, const void *bytes, size_t size)
{
    return sheaf__output_write(f->output, name, bytes, size);
}

sheaf_status *sheaf__folder_text(sheaf_folder *f, const char *name, const char *text)
{
    return sheaf__folder_bytes(f, name, text, strlen(text));
}

/* Gives the copy the permissions of the original; ignored on file systems without modes. */
static void keep_private(const sheaf_file *to, int from)
{
    struct stat original, copy;
    if (fstat(from, &original) == 0 && fstat(to->fd, &copy) == 0)
        (void)!fchmod(to->fd, copy.st_mode & original.st_mode & 0777);
}

static sheaf_status *copy_bytes(sheaf_file *to, int fd, int64_t size, const char *path)
{
    char *chunk = malloc(COPY_CHUNK);
    sheaf_status *st = chunk == NULL ? sheaf__no_memory(memory_for) : NULL;
    for (int64_t done = 0; st == NULL && done < size; done += COPY_CHUNK) {
        const size_t n = size - done < COPY_CHUNK ? (size_t)(size - done) : COPY_CHUNK;
        st = sheaf__file_read_at(fd, chunk, n, done, path);
        TRY(st, sheaf__file_write_at(to, chunk, n, done));
    }
    free(chunk);
    return st != NULL ? st : sheaf__file_sync(to);
}

sheaf_status *sheaf__folder_copy(sheaf_folder *f, const char *from, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    int fd = -1;
    int64_t size = 0;
    sheaf_file to = { .fd = -1 };
    if (sheaf__path_kind(sheaf__path_in(path, sheaf__folder_dir(f), name)) != SHEAF_PATH_NONE ||
        sheaf__path_kind(sheaf__path_in(path, from, name)) == SHEAF_PATH_NONE)
        return NULL;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    TRY(st, sheaf__output_create(&to, f->output, name));
    if (st == NULL) {
        keep_private(&to, fd);
        st = copy_bytes(&to, fd, size, path);
        st = sheaf__first_of(st, sheaf__file_close(&to));
    }
    if (fd >= 0)
        close(fd);
    return st;
}

sheaf_status *sheaf__folder_write_all(sheaf_folder *f, sheaf_folder_rows rows, void *context,
                                      size_t chunk)
{
    sheaf_status *st = NULL;
    void *buffer = NULL;
    size_t capacity = 0;
    if (chunk == 0)
        chunk = DEFAULT_CHUNK;
    for (int64_t i = 0; i < f->count && st == NULL; i++) {
        const place *p = &f->place[i];
        const size_t row = p->row_bytes > 0 ? (size_t)p->row_bytes : 1;
        const int64_t some = row < chunk ? (int64_t)(chunk / row) : 1;
        if (row * (size_t)some > capacity) {
            free(buffer);
            capacity = row * (size_t)some;
            buffer = calloc(capacity, 1);
            st = buffer == NULL ? sheaf__no_memory(memory_for) : NULL;
        }
        for (int64_t r = 0; r < p->height && st == NULL; r += some) {
            const int64_t n = p->height - r < some ? p->height - r : some;
            st = rows(context, i, r, n, buffer);
            TRY(st, sheaf__folder_write(f, i, r, n, 0, p->width, buffer));
        }
    }
    free(buffer);
    return st;
}

/* ---- the end ---- */

const char *sheaf__folder_dir(const sheaf_folder *f)
{
    return sheaf__output_dir(f->output);
}

sheaf_status *sheaf__folder_sync(sheaf_folder *f)
{
    sheaf_status *st = sheaf__folder_settle(f);
    for (int s = 0; s < f->nshards && st == NULL; s++) {
        if (f->writer[s] != NULL)
            st = sheaf__safetensors_finish(f->writer[s]);
        f->writer[s] = NULL;
    }
    return st;
}

sheaf_status *sheaf__folder_commit(sheaf_folder *f)
{
    sheaf_status *st = sheaf__folder_sync(f);
    if (st != NULL) {
        sheaf__folder_abandon(f);
        return st;
    }
    st = sheaf__output_commit(f->output);
    folder_free(f);
    return st;
}

void sheaf__folder_abandon(sheaf_folder *f)
{
    if (f == NULL)
        return;
    for (int s = 0; f->writer != NULL && s < f->nshards; s++)
        sheaf__safetensors_abandon(f->writer[s]);
    sheaf__output_abandon(f->output);
    folder_free(f);
}

sheaf_status *sheaf__folder_end(sheaf_folder *f, sheaf_status *st)
{
    if (st == NULL)
        return sheaf__folder_commit(f);
    sheaf__folder_abandon(f);
    return st;
}
