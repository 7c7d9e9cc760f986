/* dialects.h - the table of what can be read, and how a folder is recognised. */
#ifndef SHEAF_DIALECTS_COMMON_DIALECTS_H
#define SHEAF_DIALECTS_COMMON_DIALECTS_H

#include "catalog/catalog.h"
#include "formats/pickle.h"

typedef struct sheaf_dialect_hints {
    const char *config;      /* --config FILE: the model's config where the folder has none; NULL */
    const char *model;       /* --model-class, when the user insists; NULL */
    bool drop_unread;        /* what cannot be read ("unread") is left out, with a warning */
    const char *const *also; /* further folders that may hold parts of the same checkpoint, ends
                                with NULL; or NULL */
} sheaf_dialect_hints;

/* All that are known, the most particular first; ends with NULL. */
extern const sheaf_dialect *const sheaf__dialects[];

/* sheaf__dialect_of - the first whose is() says yes; NULL when none does. */
const sheaf_dialect *sheaf__dialect_of(const char *path);
/* sheaf__dialect_is_foreign - could it be a model's checkpoint that only sheaf__dialect_read() can
 * open? Not Hugging Face's folders, which sheaf_hf_open() opens, nor adapters, which are no model.
 */
bool sheaf__dialect_is_foreign(const char *path);
/* sheaf__dialect_named - NULL when there is none; see sheaf__nearest() for a better name. */
const sheaf_dialect *sheaf__dialect_named(const char *name);

/* sheaf__dialect_read - recognises, reads, checks: what info, verify, convert, merge and diff
 * begin with. Errors: SHEAF_E_IO; SHEAF_E_UNSUPPORTED when nothing here is recognised, with what
 * was seen. */
sheaf_status *sheaf__dialect_read(sheaf_catalog **out, const char *path,
                                  const sheaf_dialect_hints *hints);

/* sheaf__dialect_check - what follows a dialect's read(): sheaf__catalog_check() and _ranks(), and
 * are the weights of a dtype that can be run? */
sheaf_status *sheaf__dialect_check(sheaf_catalog *catalog, const sheaf_dialect_hints *hints);
/* sheaf__dialect_denied - SHEAF_E_IO with the first path, of those with a defect (catalog may be
 * NULL) and of what lies at or up to four folders below `path`, that this process may not read;
 * NULL when there is none. */
sheaf_status *sheaf__dialect_denied(const char *path, const sheaf_catalog *catalog);
/* sheaf__dialect_unread - a value at `name` of a PyTorch file that is no tensor here: a finding
 * "unread" where it is, or holds, one for its program. *told (may be NULL) says whether there was
 * one. */
sheaf_status *sheaf__dialect_unread(bool *told, sheaf_catalog *catalog, const char *path,
                                    const char *name, const sheaf_pickle *value);

#endif
