/* load.c - reading one checkpoint: its manifest and the slices of a rank. damage.c reads all of
 * it. */
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "checkpoint/store/store.h"
#include "formats/safetensors.h"

enum { MAX_MANIFEST = 64 << 20 };

/* ---- opening ---- */

sheaf_status *sheaf__checkpoint_from(sheaf_checkpoint **out, const char *dir, char *text,
                                     size_t size)
{
    sheaf_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL) {
        free(text);
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", dir);
    }
    c->text = text;
    c->size = size;
    c->dir = strdup(dir);
    sheaf_status *st = c->dir == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", dir) : NULL;
    TRY(st, sheaf_in(sheaf__manifest_read(&c->manifest, text, size), "%s/manifest.json", dir));
    if (st == NULL)
        *out = c;
    else
        sheaf_checkpoint_close(c);
    return st;
}

static const char *path_of(char path[SHEAF_PATH_SIZE], const sheaf_checkpoint *c, int slice)
{
    char name[32];
    return sheaf__path_in(path, c->dir, sheaf__manifest_file(name, c->manifest->slices, slice));
}

/* Does the file of `slice` exist with the manifest's size? */
static sheaf_status *check_file(const sheaf_checkpoint *c, int slice)
{
    char path[SHEAF_PATH_SIZE];
    int fd = -1;
    int64_t size = 0;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path_of(path, c, slice));
    if (fd >= 0)
        close(fd);
    if (st == NULL && size != c->manifest->bytes[slice]) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: file size", path),
                            "%" PRId64 " bytes, as the manifest says", c->manifest->bytes[slice]);
        sheaf_found(st, "%" PRId64 " bytes", size);
    }
    return st;
}

sheaf_status *sheaf__checkpoint_open_manifest(sheaf_checkpoint **out, const char *dir)
{
    char path[SHEAF_PATH_SIZE], *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(
        &text, &size, sheaf__path_in(path, dir, "manifest.json"), MAX_MANIFEST);
    return TRY(st, sheaf__checkpoint_from(out, dir, text, size));
}

sheaf_status *sheaf_checkpoint_open(sheaf_checkpoint **out, const char *dir)
{
    sheaf_checkpoint *c = NULL;
    sheaf_status *st = sheaf__checkpoint_open_manifest(&c, dir);
    for (int s = 0; st == NULL && s <= c->manifest->slices; s++)
        st = check_file(c, s);
    if (st == NULL)
        *out = c;
    else
        sheaf_checkpoint_close(c);
    return st;
}

void sheaf_checkpoint_close(sheaf_checkpoint *c)
{
    if (c == NULL)
        return;
    sheaf__manifest_free(c->manifest);
    free(c->text);
    free(c->dir);
    free(c);
}

/* ---- does the checkpoint fit the state? ---- */

static sheaf_status *check_run(const sheaf_checkpoint *c, const sheaf_state *state)
{
    if (c->manifest->slices != state->slices) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`slices`"),
                                          "%d, with which this run began", c->manifest->slices);
        return sheaf_found(st, "%d", state->slices);
    }
    return NULL;
}

static bool same_cut(const sheaf_cut *a, const sheaf_cut *b)
{
    const int nparts = b == NULL ? 0 : b->nparts;
    if (a->nparts != nparts || (nparts > 0 && a->axis != b->axis))
        return false;
    for (int i = 0; i < nparts; i++)
        if (a->part[i].units != b->part[i].units ||
            a->part[i].rows_per_unit != b->part[i].rows_per_unit)
            return false;
    return true;
}

static sheaf_status *check_tensor(const sheaf_manifest_tensor *stored, const sheaf_state_tensor *t)
{
    if (stored == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", t->name),
                              "this tensor in the checkpoint");
    const sheaf_dtype dtype = sheaf__state_dtype(t);
    if (stored->dtype != dtype)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", t->name),
                                          "%s, as training saves it", sheaf_dtype_name(dtype)),
                           "%s", sheaf_dtype_name(stored->dtype));
    if (!sheaf__same_shape(stored->ndim, stored->shape, t->ndim, t->shape)) {
        char want[128], is[128];
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s': shape", t->name);
        sheaf_expected(st, "%s", sheaf__show_shape(want, t->ndim, t->shape));
        return sheaf_found(st, "%s", sheaf__show_shape(is, stored->ndim, stored->shape));
    }
    return same_cut(&stored->cut, t->cut)
               ? NULL
               : sheaf_fail(SHEAF_E_LAYOUT, "'%s': cut in another way", t->name);
}

static sheaf_status *check_state(const sheaf_checkpoint *c, const sheaf_state *state)
{
    sheaf_status *st = check_run(c, state);
    bool *wanted = calloc((size_t)c->manifest->count + 1, sizeof *wanted);
    TRY(st, wanted == NULL ? sheaf__no_memory("out of memory") : NULL);
    for (int64_t i = 0; i < state->count && st == NULL; i++) {
        const sheaf_manifest_tensor *stored =
            sheaf__manifest_find(c->manifest, state->tensor[i].name);
        st = check_tensor(stored, &state->tensor[i]);
        if (st == NULL)
            wanted[stored - c->manifest->tensor] = true;
    }
    for (int64_t i = 0; i < c->manifest->count && st == NULL; i++)
        if (!wanted[i])
            st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", c->manifest->tensor[i].name),
                                "nothing of this name: it is not trained in this run");
    free(wanted);
    return sheaf_in(st, "%s", c->dir);
}

/* ---- reading ---- */

static sheaf_status *check_part(sheaf_hash is, const char *path, const sheaf_manifest_tensor *t,
                                int slice)
{
    char a[33], b[33];
    const sheaf_hash want = *sheaf__manifest_hash(t, slice);
    if (sheaf__hash_equal(want, is))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s: '%s': damaged", path, t->name);
    sheaf_expected(st, "hash %s", sheaf__hash_text(a, want));
    sheaf_found(st, "%s", sheaf__hash_text(b, is));
    return sheaf_try_this(
        st, "move this checkpoint away; `resume` then goes on from the one before it");
}

/* Bytes of a part from `at` on. */
static sheaf_status *read_piece(sheaf__device *device, char *part, const sheaf_safetensors *file,
                                const sheaf_safetensors_entry *entry, int64_t at, int64_t bytes,
                                sheaf_hasher *hasher)
{
    void *piece = part + at;
    sheaf_status *st =
        device == NULL ? NULL : sheaf__borrow(&piece, device, part + at, (size_t)bytes, false);
    if (st != NULL)
        return st;
    st = sheaf__safetensors_read(file, entry, at, piece, bytes);
    if (st == NULL)
        sheaf__hasher_add(hasher, piece, (size_t)bytes);
    if (device != NULL)
        st =
            sheaf__first_of(st, sheaf__return(piece, device, part + at, (size_t)bytes, st == NULL));
    return st;
}

static sheaf_status *read_part(sheaf__device *device, float *dst, const sheaf_safetensors *file,
                               const sheaf_manifest_tensor *t, int slice)
{
    const sheaf_safetensors_entry *entry = sheaf__safetensors_find(file, t->name);
    const int64_t bytes = sheaf__manifest_bytes(t, slice);
    if (!sheaf__manifest_agrees(t, entry, slice))
        return sheaf_fail(SHEAF_E_FORMAT, "%s: '%s': not as the manifest says", file->path,
                          t->name);
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = hasher == NULL ? sheaf__no_memory(t->name) : NULL;
    for (int64_t at = 0, n; at < bytes && st == NULL; at += n) {
        n = bytes - at < SHEAF__STATE_PIECE ? bytes - at : SHEAF__STATE_PIECE;
        st = read_piece(device, (char *)dst, file, entry, at, n, hasher);
    }
    TRY(st, check_part(sheaf__hasher_end(hasher), file->path, t, slice));
    sheaf__hasher_free(hasher);
    return st;
}

/* Does the state have buffers for the file of `slice`? */
static bool wants(const sheaf_state_tensor *t, int slices, int slice)
{
    const bool cut = t->cut != NULL && t->cut->nparts > 0;
    return slice == slices ? !cut : cut && t->slice[slice] != NULL;
}

static sheaf_status *load_file(const sheaf_checkpoint *c, const sheaf_state *state, int slice)
{
    sheaf_safetensors *file = NULL;
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < state->count && st == NULL; i++) {
        const sheaf_state_tensor *t = &state->tensor[i];
        if (!wants(t, state->slices, slice))
            continue;
        if (file == NULL)
            st = sheaf__safetensors_open(&file, path_of(path, c, slice));
        TRY(st, read_part(state->device, t->slice[slice == state->slices ? 0 : slice], file,
                          sheaf__manifest_find(c->manifest, t->name), slice));
    }
    if (file != NULL)
        sheaf__safetensors_close(file);
    return st;
}

sheaf_status *sheaf_checkpoint_load(sheaf_checkpoint *c, const sheaf_state *state)
{
    sheaf_status *st = check_state(c, state);
    for (int slice = 0; slice <= state->slices && st == NULL; slice++)
        st = load_file(c, state, slice);
    return st;
}
