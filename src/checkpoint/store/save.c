/* save.c - writes one checkpoint from the parts of all ranks.
 *
 * Ranks agree before each phase, so one rank's failure ends it for all:
 *   1  every rank checks its part; rank 0 makes the partial folder
 *   2  every rank writes and syncs the files of its slices, hashing on the way;
 *      nothing is communicated here
 *   3  the hashes are gathered; rank 0 compares what must be equal, writes the
 *      manifest, renames the folder and syncs its parent
 *   4  all agree; rank 0 removes what is older than --keep */
#include <limits.h>

#include "base/base.h"
#include "base/file.h"
#include "base/output.h"
#include "checkpoint/store/store.h"
#include "comm/all.h"
#include "formats/safetensors.h"

/* The message of a rank to the others before anything is written. */
typedef struct identity {
    sheaf_hash layout, progress;
} identity;

typedef struct saver {
    sheaf_checkpoints *store;
    sheaf_comm *comm;
    const sheaf_state *state;
    const sheaf_state_tensor **order; /* tensors by name */
    /* first names, shapes and cuts; then the hashes of this rank; then of all */
    sheaf_manifest *manifest;
    char *path;             /* the final one */
    char partial[PATH_MAX]; /* rank 0's folder, broadcast */
    sheaf_output *output;   /* rank 0 alone */
    sheaf_hash *all;        /* gathered records */
} saver;

static bool is_cut(const sheaf_state_tensor *t)
{
    return t->cut != NULL && t->cut->nparts > 0;
}

static int writer_of(const saver *s, int slice)
{
    return s->store->options.writer != NULL
               ? s->store->options.writer[slice]
               : sheaf_owner_rank(s->state->slices, sheaf_comm_ranks(s->comm), slice);
}

static bool writes(const saver *s, int slice)
{
    return writer_of(s, slice) == sheaf_comm_rank(s->comm);
}

/* ---- 1: checks ---- */

static sheaf_status *check_tensor(const saver *s, const sheaf_state_tensor *t)
{
    sheaf_status *st = NULL;
    if (t->ndim < 1 || t->ndim > 2 || t->shape[0] < 0 || (t->ndim == 2 && t->shape[1] < 0))
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s': shape", t->name),
                              "one or two sizes");
    if (!is_cut(t))
        return t->slice[0] != NULL
                   ? NULL
                   : sheaf_fail(SHEAF_E_LAYOUT, "'%s': this rank has no copy to save", t->name);
    if (t->cut->axis < 0 || t->cut->axis >= t->ndim || t->cut->slices != s->state->slices)
        return sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s': cut", t->name),
                              "an axis of it, in %d slices", s->state->slices);
    st = sheaf_cut_check(t->cut, t->shape[t->cut->axis]);
    for (int i = 0; i < s->state->slices && st == NULL; i++)
        if (writes(s, i) && t->slice[i] == NULL && sheaf_cut_slice_rows(t->cut, i) > 0)
            st = sheaf_fail(SHEAF_E_LAYOUT, "slice %d: this rank has no data to save", i);
    return sheaf_in(st, "'%s'", t->name);
}

static sheaf_status *sort_names(saver *s)
{
    const int64_t n = s->state->count;
    s->order = calloc((size_t)n + 1, sizeof *s->order);
    if (s->order == NULL)
        return sheaf__no_memory("out of memory for the list of tensors");
    for (int64_t i = 0; i < n; i++)
        s->order[i] = &s->state->tensor[i];
    qsort(s->order, (size_t)n, sizeof *s->order, sheaf__by_name_behind);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(s->order[i - 1]->name, s->order[i]->name) == 0)
            return sheaf_fail(SHEAF_E_LAYOUT, "'%s': two tensors of this name", s->order[i]->name);
    return NULL;
}

/* The manifest without hashes and sizes. */
static sheaf_status *draft(saver *s)
{
    const sheaf_state *state = s->state;
    sheaf_status *st = sheaf__manifest_new(&s->manifest, state->slices, state->count);
    if (st != NULL)
        return st;
    s->manifest->step = state->step;
    s->manifest->progress = strdup(state->progress);
    if (s->manifest->progress == NULL)
        return sheaf__no_memory("out of memory for the manifest");
    for (int64_t i = 0; i < state->count && st == NULL; i++) {
        const sheaf_state_tensor *from = s->order[i];
        st = sheaf__manifest_set(s->manifest, i, from->name, sheaf__state_dtype(from), from->ndim,
                                 from->shape, from->cut);
    }
    return st;
}

static sheaf_status *prepare(saver *s)
{
    sheaf_status *st = NULL;
    if (s->state->slices < 1 || s->state->slices > SHEAF_MAX_SLICES || s->state->step < 0)
        return sheaf_fail(SHEAF_E_ARG, "%d slices, step %" PRId64, s->state->slices,
                          s->state->step);
    for (int64_t i = 0; i < s->state->count && st == NULL; i++)
        st = check_tensor(s, &s->state->tensor[i]);
    TRY(st, sort_names(s));
    TRY(st, draft(s));
    TRY(st, sheaf__store_path(&s->path, s->store, s->state->step));
    return st;
}

/* The hash of the draft covers names, shapes, cuts, slices, contract and step. */
static sheaf_status *identify(identity *out, saver *s)
{
    char *text = NULL, *progress = s->manifest->progress;
    char none[] = "{}";
    size_t size = 0;
    out->progress = sheaf__hash(progress, strlen(progress));
    s->manifest->progress = none;
    sheaf_status *st = sheaf__manifest_write(&text, &size, s->manifest);
    s->manifest->progress = progress;
    if (st == NULL)
        out->layout = sheaf__hash(text, size);
    free(text);
    return st;
}

static const char saving[] = "saving step";

/* Context is added before the agreement, so that the rank comes first in the message. */
static sheaf_status *agree(saver *s, sheaf_status *mine)
{
    return sheaf_comm_agree(s->comm, sheaf_in(mine, "%s %" PRId64, saving, s->state->step));
}

static sheaf_status *compare_identities(saver *s)
{
    const int ranks = sheaf_comm_ranks(s->comm), me = sheaf_comm_rank(s->comm);
    identity *all = calloc((size_t)ranks, sizeof *all);
    sheaf_status *st = all == NULL ? sheaf__no_memory("out of memory") : identify(&all[me], s);
    st = sheaf_comm_agree(s->comm, st);
    TRY(st, sheaf__all_gather(s->comm, all, sizeof *all));
    for (int r = 1; r < ranks && st == NULL; r++)
        if (!sheaf__hash_equal(all[0].layout, all[r].layout))
            st = sheaf_fail(SHEAF_E_LAYOUT,
                            "ranks 0 and %d disagree about step, names, shapes or slices", r);
        else if (!sheaf__hash_equal(all[0].progress, all[r].progress))
            st =
                sheaf_fail(SHEAF_E_LAYOUT, "ranks 0 and %d disagree about the progress to save", r);
    free(all);
    return st;
}

static sheaf_status *begin(saver *s)
{
    sheaf_status *st = NULL;
    if (sheaf_comm_rank(s->comm) == 0) {
        st = sheaf__output_begin(&s->output, s->path, true);
        if (st == NULL && strlen(sheaf__output_dir(s->output)) >= sizeof s->partial)
            st = sheaf_fail(SHEAF_E_ARG, "%s: the path is too long", s->path);
        if (st == NULL)
            strcpy(s->partial, sheaf__output_dir(s->output));
    }
    st = agree(s, st);
    return st != NULL ? st : sheaf_comm_broadcast(s->comm, s->partial, sizeof s->partial, 0);
}

/* ---- 2: files ---- */

/* Bytes of a part from `at` on: hashed, and written to the file if there is one. */
static sheaf_status *write_piece(const saver *s, sheaf_safetensors_writer *file, int64_t index,
                                 const char *part, int64_t at, int64_t bytes, sheaf_hasher *hasher)
{
    sheaf__device *device = s->state->device;
    void *piece = (char *)part + at;
    sheaf_status *st =
        device == NULL ? NULL : sheaf__borrow(&piece, device, part + at, (size_t)bytes, true);
    if (st != NULL)
        return st;
    sheaf__hasher_add(hasher, piece, (size_t)bytes);
    if (file != NULL)
        st = sheaf__safetensors_write(file, index, at, piece, bytes);
    if (device != NULL)
        st = sheaf__first_of(st,
                             sheaf__return(piece, device, (char *)part + at, (size_t)bytes, false));
    return st;
}

/* One tensor's part of one file: 0 of a replicated tensor, `slice` of a cut one. */
static sheaf_status *write_part(saver *s, sheaf_safetensors_writer *file, int64_t index,
                                int64_t tensor, int slice)
{
    const sheaf_state_tensor *from = s->order[tensor];
    sheaf_manifest_tensor *to = &s->manifest->tensor[tensor];
    const int64_t bytes = sheaf__manifest_bytes(to, slice);
    const char *part = (const char *)from->slice[is_cut(from) ? slice : 0];
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = hasher == NULL ? sheaf__no_memory("hash of a tensor") : NULL;
    for (int64_t at = 0, n; at < bytes && st == NULL; at += n) {
        n = bytes - at < SHEAF__STATE_PIECE ? bytes - at : SHEAF__STATE_PIECE;
        st = write_piece(s, file, index, part, at, n, hasher);
    }
    if (st == NULL)
        *sheaf__manifest_hash(to, slice) = sheaf__hasher_end(hasher);
    sheaf__hasher_free(hasher);
    return st;
}

static sheaf_status *write_parts(saver *s, sheaf_safetensors_writer *file, int slice)
{
    int64_t index = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < s->state->count && st == NULL; i++)
        if (sheaf__manifest_holds(s->manifest, &s->manifest->tensor[i], slice))
            st = write_part(s, file, index++, i, slice);
    return st;
}

/* The file of `slice`, or of what is replicated when slice == S. */
static sheaf_status *write_file(saver *s, int slice)
{
    sheaf_safetensors_writer *file = NULL;
    sheaf_status *st = sheaf__manifest_begin(&file, s->manifest, slice, s->partial);
    TRY(st, write_parts(s, file, slice));
    if (st == NULL)
        return sheaf__safetensors_finish(file);
    sheaf__safetensors_abandon(file);
    return st;
}

static sheaf_status *write_files(saver *s)
{
    const int slices = s->state->slices;
    sheaf_status *st = NULL;
    for (int i = 0; i < slices && st == NULL; i++)
        if (writes(s, i))
            st = write_file(s, i);
    if (st == NULL && sheaf_comm_rank(s->comm) == 0)
        st = write_file(s, slices);
    else if (st == NULL) /* only the hashes, to be compared */
        st = write_parts(s, NULL, slices);
    return st;
}

/* ---- 3: hashes of all ranks, manifest, rename ---- */

/* A record holds a hash of every replicated tensor, then for each slice that its rank writes the
 * size of the file, in the place of a hash, and a hash of every cut tensor's part. */
static size_t record_size(const saver *s, int rank)
{
    const sheaf_manifest *m = s->manifest;
    int64_t cut = 0, slices = 0;
    for (int64_t i = 0; i < m->count; i++)
        cut += m->tensor[i].cut.nparts > 0;
    for (int slice = 0; slice < m->slices; slice++)
        slices += writer_of(s, slice) == rank;
    return (size_t)(m->count - cut + slices * (1 + cut));
}

/* Fills the record of `rank` from the manifest, or the manifest from what it has of slices. */
static void pass_record(const saver *s, sheaf_hash *record, int rank, bool fill)
{
    const sheaf_manifest *m = s->manifest;
    for (int64_t i = 0; i < m->count; i++)
        if (m->tensor[i].cut.nparts == 0) {
            if (fill)
                *record = m->tensor[i].hash;
            record++;
        }
    for (int slice = 0; slice < m->slices; slice++) {
        if (writer_of(s, slice) != rank)
            continue;
        if (fill)
            record->high = (uint64_t)m->bytes[slice];
        else
            m->bytes[slice] = (int64_t)record->high;
        record++;
        for (int64_t i = 0; i < m->count; i++) {
            if (m->tensor[i].cut.nparts == 0)
                continue;
            sheaf_hash *hash = sheaf__manifest_hash(&m->tensor[i], slice);
            *(fill ? record : hash) = *(fill ? hash : record);
            record++;
        }
    }
}

static sheaf_status *gather(saver *s)
{
    const int ranks = sheaf_comm_ranks(s->comm), me = sheaf_comm_rank(s->comm);
    size_t *bytes = calloc((size_t)ranks, sizeof *bytes), total = 0, before = 0;
    for (int r = 0; r < ranks; r++) {
        before = r == me ? total : before;
        total += record_size(s, r);
    }
    s->all = calloc(total + 1, sizeof *s->all);
    sheaf_status *st =
        agree(s, bytes == NULL || s->all == NULL ? sheaf__no_memory("out of memory for the hashes")
                                                 : NULL);
    for (int r = 0; r < ranks && st == NULL; r++)
        bytes[r] = record_size(s, r) * sizeof *s->all;
    if (st == NULL) {
        pass_record(s, s->all + before, me, true);
        st = sheaf_comm_gather(s->comm, s->all, bytes);
    }
    free(bytes);
    return st;
}

/* If copies of one tensor differ, a rank has diverged: no consistent state exists to save. */
static sheaf_status *compare_copies(const saver *s, const sheaf_hash *record, int rank)
{
    char a[33], b[33];
    int64_t n = 0; /* replicated tensors before */
    for (int64_t i = 0; i < s->state->count; i++) {
        const sheaf_manifest_tensor *t = &s->manifest->tensor[i];
        if (t->cut.nparts > 0)
            continue;
        const sheaf_hash first = s->all[n], is = record[n];
        n++;
        if (sheaf__hash_equal(first, is))
            continue;
        sheaf_status *st =
            sheaf_fail(SHEAF_E_NUMBER, "'%s': the copies of ranks 0 and %d differ", t->name, rank);
        sheaf_expected(st, "hash %s, as on rank 0", sheaf__hash_text(a, first));
        sheaf_found(st, "%s", sheaf__hash_text(b, is));
        return sheaf_try_this(
            st, "resume from the last checkpoint; if it happens again, test this machine's memory");
    }
    return NULL;
}

static sheaf_status *collect(saver *s)
{
    sheaf_hash *record = s->all;
    sheaf_status *st = NULL;
    for (int r = 0; r < sheaf_comm_ranks(s->comm); r++) {
        TRY(st, compare_copies(s, record, r));
        pass_record(s, record, r, false);
        record += record_size(s, r);
    }
    sheaf__manifest_join(s->manifest);
    return st;
}

/* A complete checkpoint of this step exists: an equal one counts as saved, another is replaced only
 * if it is damaged, as no run can resume from it. */
static sheaf_status *meet_existing(bool *equal, const saver *s, const char *text, size_t size)
{
    sheaf_checkpoint *there = NULL;
    *equal = false;
    sheaf_status *st = sheaf__only_memory(sheaf_checkpoint_open(&there, s->path));
    if (there == NULL) /* absent or damaged: replaced by the new one */
        return st;
    const bool same = there->size == size && memcmp(there->text, text, size) == 0;
    sheaf_damages damages = { 0 };
    for (int slice = 0; slice <= there->manifest->slices && st == NULL; slice++)
        st = sheaf__checkpoint_examine(&damages, there, slice, false);
    sheaf_checkpoint_close(there);
    const bool ours = s->store->replace > 0 && s->store->replace == s->state->step;
    *equal = st == NULL && same && damages.count == 0;
    if (st != NULL || same || damages.count > 0 || ours)
        return st;
    st = sheaf_fail(SHEAF_E_ARG, "%s: another checkpoint of this step is there", s->path);
    sheaf_expected(st, "none, or an equal one");
    return sheaf_try_this(st, "use another `out`, or `resume` to go on from it");
}

static sheaf_status *commit(saver *s)
{
    char *text = NULL;
    size_t size = 0;
    bool equal = false;
    sheaf_status *st = collect(s);
    TRY(st, sheaf__manifest_write(&text, &size, s->manifest));
    TRY(st, meet_existing(&equal, s, text, size));
    TRY(st, !equal ? sheaf__output_write(s->output, "manifest.json", text, size) : NULL);
    if (st == NULL && !equal) {
        sheaf_output *output = s->output;
        s->output = NULL; /* commit frees it */
        st = sheaf__output_commit(output);
    }
    free(text);
    return st;
}

sheaf_status *sheaf_checkpoints_save(sheaf_checkpoints *store, sheaf_comm *comm,
                                     const sheaf_state *state)
{
    saver s = { .store = store, .comm = comm, .state = state };
    const bool first = sheaf_comm_rank(comm) == 0;
    sheaf_status *st = agree(&s, prepare(&s));
    TRY(st, agree(&s, compare_identities(&s)));
    TRY(st, begin(&s));
    TRY(st, agree(&s, write_files(&s)));
    TRY(st, gather(&s));
    TRY(st, agree(&s, first ? commit(&s) : NULL));
    sheaf__output_abandon(s.output); /* NULL once committed and on other ranks */
    if (st == NULL && first) {
        sheaf_note(store->options.events, "saved %s", s.path);
        sheaf__store_prune(store);
    }
    sheaf__manifest_free(s.manifest);
    free(s.order);
    free(s.path);
    free(s.all);
    return st == NULL || strstr(sheaf_status_where(st), saving) != NULL /* as ranks agreed */
               ? st
               : sheaf_in(st, "%s %" PRId64, saving, state->step);
}
