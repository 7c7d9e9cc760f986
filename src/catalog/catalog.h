/* catalog.h - all tensors that were found in one or several folders, as pieces.
 *
 * A piece is a box of a logical tensor that lies in a file: which file, where, with which
 * strides, in which dtype. A dialect's reader turns folders into a catalog; the catalog
 * proves that the pieces tile each tensor and hands the tensors out as a sheaf_source.
 * What is wrong with a checkpoint does not stop a reader: it becomes a finding, so that
 * one run reports everything. Only sheaf__catalog_source() fails. */
#pragma once

#include <dirent.h>

#include "base/base.h"
#include "base/file.h"
#include "catalog/dialect.h"
#include "layout/ggml.h"
#include "sheaf/dtype.h"
#include "sheaf/finding.h"
#include "sheaf/source.h"
#include "sheaf/status.h"

#define SHEAF_CATALOG_MAX_DIMS 8

typedef struct sheaf_piece {
    int file; /* of sheaf__catalog_file() */
    int rank; /* the part of the checkpoint it came from (mp_rank); -1 = it has no parts */
    sheaf_dtype dtype;
    int64_t offset; /* byte of its first element, from the start of the file */
    int64_t begin[SHEAF_CATALOG_MAX_DIMS],
        size[SHEAF_CATALOG_MAX_DIMS];       /* its box in the logical tensor */
    int64_t stride[SHEAF_CATALOG_MAX_DIMS]; /* in elements, at least 0 */
    uint64_t digest; /* of its bytes, by checksums in the file: equal ones speak for equal bytes; 0
                        = not known */
    /* Numbers that are not stored as `dtype`: in ggml's blocks along rows, or in another of its
     * types; plus_one: each may be stored one larger. */
    bool converted, plus_one;
    sheaf__gguf_type stored;
} sheaf_piece;

/* The kind of a logical tensor in its model. */
typedef enum sheaf_kind {
    SHEAF_WEIGHT,
    SHEAF_BUFFER, /* computed, not trained (rotary inv_freq) */
    SHEAF_LORA,   /* A or B of an adapter that is not merged */
    SHEAF_MOMENT, /* optimizer state: "exp_avg.NAME", "exp_avg_sq.NAME" */
    SHEAF_TAKEN,  /* became a part of a tensor with codes, and is about to be removed */
} sheaf_kind;

/* Prefixes of a moment's name, before the tensor's. */
extern const char *const sheaf__moment_words[2];
/* sheaf__moment_base - the name behind such a word; `name` itself where there is none. */
const char *sheaf__moment_base(const char *name);
static inline bool sheaf__is_moment(const char *name)
{
    return sheaf__moment_base(name) != name;
}

typedef struct sheaf_logical {
    sheaf_source_entry entry; /* name (owned), dtype, shape */
    sheaf_kind kind;
    /* every part has a copy: its pieces, which lie together, are those of its rank */
    bool replicated;
    /* copies that training moved apart, one below the other: a piece for each part */
    bool drifted;
    /* with tensors_by_names: in a file of its own, and no other tensor has its values */
    bool alone;
    int64_t npieces, capacity;
    sheaf_piece *piece;
    /* it is stored as codes with scales, which have the pieces (coded.h); owned. NULL: as it is */
    struct sheaf__coded *coded;
} sheaf_logical;

/* ---- the catalog ---- */

typedef struct sheaf_catalog_file {
    char *path;    /* owned */
    uint64_t hash; /* of the path: those of shards share long prefixes */
    int fd; /* open for reading until the catalog is freed; -1: there are too many, it is opened for
               each read */
    sheaf_file_mark mark; /* before anything of it was read */
} sheaf_catalog_file;

/* A zip file of PyTorch that lies inside a file of the catalog. */
typedef struct sheaf_catalog_zip {
    int file;
    int64_t begin, length;
} sheaf_catalog_zip;

typedef struct sheaf_catalog {
    /* Facts, filled by the reader; owned strings. */
    const sheaf_dialect *dialect; /* a constant */
    char *root;                   /* the folder (or file) that was read */
    const char *model;            /* "llama", "cogvlm", ...: a constant; NULL = not recognised */
    char *config; /* text of config.json, model_config.json or what says as much; NULL = none */
    char *config_path;  /* its path; NULL = none, or it was put together */
    char *quantization; /* quantization_config of tensors with codes, which `config` then lacks */
    int tp, pp, dp;     /* parallel sizes; 0 = not known */
    int64_t step;       /* -1 = not known */
    int64_t vocab, padded_vocab; /* rows of the tables: true, and as stored; -1 = not known */
    int64_t copies;              /* tensors of which each part has one; by sheaf__catalog_ranks() */
    bool copies_vary;            /* one of them is not the same element throughout */
    bool copies_contradict;      /* the parts are of several runs or steps, as a finding says */
    bool by_names;               /* names of files and folders alone say which rank's a part is */
    bool tensors_by_names;       /* and which tensor a file holds */
    bool as_stored;      /* names and shapes are the files', and were not held against a config */
    unsigned file_names; /* by which of the family's file_names (schema/family.h) its files spell
                            names, a bit each; 0: not known, or not in Hugging Face's form */

    int64_t count, capacity;
    sheaf_logical *tensor; /* in the order found; after sheaf__catalog_sort(), by name */
    DIR *
        held; /* a folder that stays while it is read (checkpoint/store/checkpoint.h); NULL: none */
    int nfiles;
    int64_t files_capacity;
    sheaf_catalog_file *file;
    int64_t nzips, zips_capacity;
    sheaf_catalog_zip *zip; /* files that are whole zip files are not listed here */
    int64_t nfindings, findings_capacity;
    sheaf_finding *finding;
    int64_t *slot, slots; /* hash table of names */
    int64_t
        expanded;  /* bytes of pieces that are more than their files, as strides of 0 make them */
    int64_t looks; /* values of pickles that are looked at yet for tensors that are not read */
} sheaf_catalog;

/* sheaf__catalog_new - empty; free with sheaf__catalog_free(), which accepts NULL and closes
 * files. */
sheaf_status *sheaf__catalog_new(sheaf_catalog **out, const sheaf_dialect *dialect,
                                 const char *root);
void sheaf__catalog_free(sheaf_catalog *catalog);

/* sheaf__catalog_file - opens a file for reading and gives its number; the same path twice is
 * the same file. `as`: the mark of the file whose header or pickle was read; NULL: nothing of it
 * was read yet. Errors: SHEAF_E_IO; SHEAF_E_CHANGED where it is another than `as`. */
sheaf_status *sheaf__catalog_file(int *file, sheaf_catalog *catalog, const char *path,
                                  const sheaf_file_mark *as);

/* sheaf__catalog_open - to read it, thread-safe; *fd is sheaf__catalog_done()'s in any case, which
 * passes `st` on. Errors: SHEAF_E_CHANGED where the file is not what its mark says: what was read
 * then, and what now, may be of two models. */
sheaf_status *sheaf__catalog_open(int *fd, const sheaf_catalog_file *file);
sheaf_status *sheaf__catalog_done(int fd, const sheaf_catalog_file *file, sheaf_status *st);

/* sheaf__catalog_zip - `length` bytes of a file from `begin` are a zip file, with checksums of its
 * own. */
sheaf_status *sheaf__catalog_zip(sheaf_catalog *catalog, int file, int64_t begin, int64_t length);

/* sheaf__catalog_tensor - the tensor of this name, created (with this dtype and shape) when there
 * is none. One that exists keeps what it has: compare. The pointer is good until the next call. */
sheaf_status *sheaf__catalog_tensor(sheaf_logical **out, sheaf_catalog *catalog, const char *name,
                                    sheaf_dtype dtype, int ndim, const int64_t *shape);
/* sheaf__catalog_find - NULL when there is none. */
sheaf_logical *sheaf__catalog_find(const sheaf_catalog *catalog, const char *name);
/* sheaf__catalog_path_of - the file of its first piece; the root where it has none. */
const char *sheaf__catalog_path_of(const sheaf_catalog *catalog, const sheaf_logical *tensor);
/* sheaf__catalog_piece - adds a copy of `piece`, whose box must lie in the tensor and whose bytes
 * in the file. A piece without elements is left out. Errors: SHEAF_E_LAYOUT, SHEAF_E_MEMORY. */
sheaf_status *sheaf__catalog_piece(sheaf_catalog *catalog, sheaf_logical *tensor,
                                   const sheaf_piece *piece);
/* sheaf__piece_dense - begin 0, the size of `shape`, row-major strides; file, rank, dtype, offset
 * as given. */
sheaf_piece sheaf__piece_dense(int file, int rank, sheaf_dtype dtype, int64_t offset, int ndim,
                               const int64_t *shape);

/* sheaf__finding - adds a finding: `found` by printf; of the other texts, which are copied, NULL
 * means "". They say what a person can act on; `cure` is the whole command, as it can be typed, or
 * words; see sheaf__cure(). */
sheaf_status *sheaf__finding(sheaf_catalog *catalog, sheaf_severity severity, const char *code,
                             const char *path, const char *tensor, const char *expected,
                             const char *cure, const char *found, ...) SHEAF_PRINTF(8, 9);
/* The same of one severity; macros, as a function cannot pass printf's arguments on. */
#define sheaf__defect(catalog, ...) sheaf__finding((catalog), SHEAF_DEFECT, __VA_ARGS__)
#define sheaf__warning(catalog, ...) sheaf__finding((catalog), SHEAF_WARNING, __VA_ARGS__)
#define sheaf__note(catalog, ...) sheaf__finding((catalog), SHEAF_NOTE, __VA_ARGS__)
/* sheaf__cure - `cure` (malloc'd) with what a shell reads as the root for {}, a new name beside the
 * root for {+word} (ROOT-word) and, where the config was given, --config again for {config}. */
sheaf_status *sheaf__cure(char **out, const sheaf_catalog *catalog, const char *cure);
/* sheaf__catalog_is_finding - does this failure say something about the files? Not SHEAF_E_MEMORY,
 * nor SHEAF_E_CHANGED of a file that changes meanwhile, which is neither sound nor damaged; nor
 * NULL.
 */
bool sheaf__catalog_is_finding(const sheaf_status *st);
/* sheaf__catalog_defect - turns a finding into one (code by the status: "damaged" for
 * SHEAF_E_FORMAT, ...) and frees it. Passes other failures and NULL through. */
sheaf_status *sheaf__catalog_defect(sheaf_catalog *catalog, const char *path, sheaf_status *st);
/* sheaf__catalog_defect_as - the same with this code (NULL: by the status) and, where the status
 * says none, this cure. */
sheaf_status *sheaf__catalog_defect_as(sheaf_catalog *catalog, const char *path, sheaf_status *st,
                                       const char *code, const char *cure);
int64_t sheaf__catalog_defects(const sheaf_catalog *catalog);
/* sheaf__catalog_finding - the first of this code; NULL when there is none. */
const sheaf_finding *sheaf__catalog_finding(const sheaf_catalog *catalog, const char *code);

/* sheaf__catalog_sort - tensors by name; called by sheaf__catalog_check(). */
sheaf_status *sheaf__catalog_sort(sheaf_catalog *catalog);
/* sheaf__catalog_keep - only the tensors of these kinds, 1 << SHEAF_WEIGHT and others; sort before
 * looking up names. */
void sheaf__catalog_keep(sheaf_catalog *catalog, unsigned kinds);
/* sheaf__catalog_check - do the pieces of each tensor tile it? Adds a finding for each hole
 * ("missing"), overlap ("conflict"), mixture of dtypes ("dtype") and part that is a copy of
 * another part ("duplicate"). Copies of replicated tensors are not
 * read here: sheaf__catalog_compare(). */
sheaf_status *sheaf__catalog_check(sheaf_catalog *catalog);
/* sheaf__catalog_ranks - are the parts of one run? By their copies of common tensors, by what their
 * files say of them or by samples: a finding "foreign" for each part that is not, "conflict" where
 * the right ones cannot be known, a warning "replica" where copies drifted. Called by
 * sheaf__dialect_check() after sheaf__catalog_check(). */
sheaf_status *sheaf__catalog_ranks(sheaf_catalog *catalog);
/* sheaf__catalog_rank_notes - a note for what files do not say of their parts: which rank's each
 * is, and whether they are of one run. *any: there was one. */
sheaf_status *sheaf__catalog_rank_notes(bool *any, sheaf_catalog *catalog);
/* sheaf__catalog_compare - reads all copies of every replicated tensor; a finding "replica" for
 * each that differs, naming the ranks. progress may be NULL. */
sheaf_status *sheaf__catalog_compare(sheaf_catalog *catalog);

/* sheaf__catalog_read - a box of a tensor's view (sheaf_source.read); thread-safe; O(1) memory.
 * Holes are an error, never zeros. What is stored as codes is dequantised. */
sheaf_status *sheaf__catalog_read(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                  int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                  void *dst);

/* sheaf__catalog_same - has `part` the dtype and values of the box of `whole` that begins at row0,
 * col0 (of its view)? */
sheaf_status *sheaf__catalog_same(bool *same, const sheaf_catalog *catalog,
                                  const sheaf_logical *whole, int64_t row0, int64_t col0,
                                  const sheaf_catalog *other, const sheaf_logical *part);

/* sheaf__catalog_refusal - the first defect among the findings, as SHEAF_E_FORMAT (damaged),
 * _UNSAFE, _UNSUPPORTED or else _LAYOUT; NULL without one. */
sheaf_status *sheaf__catalog_refusal(const sheaf_catalog *catalog);

/* sheaf__catalog_source - the weights and buffers of a catalog (not LoRA, not moments unless `all`)
 * as a source, which owns the catalog from now on, also after a failure. Errors: that of
 * sheaf__catalog_refusal(). */
sheaf_status *sheaf__catalog_source(sheaf_source **out, sheaf_catalog *catalog, bool all);
