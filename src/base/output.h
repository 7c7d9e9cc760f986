/* output.h - a folder that appears only when it is complete.
 *
 * Everything is written into "DST.partial-PID-MARK" beside DST, synced, and renamed to DST
 * in one step by commit; a crash leaves DST as it was and a folder whose name
 * sheaf__path_is_partial() knows, which sheaf__output_sweep() removes: it is locked (flock) while
 * a process writes it. Other threads and ranks may write into
 * sheaf__output_dir() themselves; only one of them begins and commits. */
#pragma once

#include "base/events.h"
#include "base/file.h"

typedef struct sheaf_output sheaf_output;

/* sheaf__output_begin - parents of `dst` are made. With `replace` false, a `dst` that exists
 * must be an empty folder, or a link to one: SHEAF_E_ARG. One that cannot be replaced, because a
 * file system is mounted there or nothing can be made beside it, is filled: the partial folder lies
 * in it, and commit moves what is in that up, configs and manifests last. With
 * `replace` true a folder there is exchanged at commit, then deleted; until then it stays as it is.
 */
sheaf_status *sheaf__output_begin(sheaf_output **out, const char *dst, bool replace);
/* sheaf__output_check - could it begin at `dst`, with `replace` false? For commands that work long
 * before they begin. Errors: SHEAF_E_ARG; those of sheaf__path_check_new(). */
sheaf_status *sheaf__output_check(const char *dst);
/* sheaf__output_sweep - removes what killed processes left of `dst`, with a note for each: folders
 * beside and in it with our mark in their names (see sheaf__partial_path()) that no process writes.
 * Everything else stays, and what cannot be removed. For callers that are about to begin `dst` and
 * report it. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__output_sweep(const char *dst, const sheaf_events *events);
/* sheaf__rename_new - `from`, a file, becomes `to`, durably; of several that try at once one wins.
 * Errors: SHEAF_E_ARG when something is there. */
sheaf_status *sheaf__rename_new(const char *from, const char *to);
/* sheaf__output_inside - *out: `path` from the root and without links (malloc'd), if it is `folder`
 * or lies in it, else NULL. Neither has to exist. Errors: SHEAF_E_MEMORY, SHEAF_E_IO. */
sheaf_status *sheaf__output_inside(char **out, const char *path, const char *folder);
/* sheaf__path_is_mount - is a file system mounted at this folder? False where the system does
 * not say. */
bool sheaf__path_is_mount(const char *path);
/* sheaf__output_outside - errors: SHEAF_E_ARG when `dst` is the folder `src` or would lie in it,
 * links followed; what is read must not grow. A `src` that is no folder is fine. */
sheaf_status *sheaf__output_outside(const char *dst, const char *src);
/* Borrowed: the folder to write into. */
const char *sheaf__output_dir(const sheaf_output *output);
/* sheaf__output_create - a new file in it, which the caller syncs and closes. */
sheaf_status *sheaf__output_create(sheaf_file *file, sheaf_output *output, const char *name);
/* sheaf__output_write - a whole file in it, synced. */
sheaf_status *sheaf__output_write(sheaf_output *output, const char *name, const void *bytes,
                                  size_t size);
/* sheaf__output_commit - frees `output` in any case. On failure DST is as it was and the
 * partial folder is removed (unless that fails too), except when only the last fsync
 * failed: then DST is the new one, and the status says so. */
sheaf_status *sheaf__output_commit(sheaf_output *output);
/* sheaf__output_abandon - removes what was written. Accepts NULL. */
void sheaf__output_abandon(sheaf_output *output);
