/* made_test.h - for tests of dialects: a small model with known values, and a reading held against them. */
#ifndef SHEAF_DIALECTS_MADE_TEST_H
#define SHEAF_DIALECTS_MADE_TEST_H

#include "tests/check.h"
#include "tests/files.h"
#include "tests/golden.h"

#include <dirent.h>
#include <inttypes.h>
#include <unistd.h>

#include "dialects/dialects.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

/* ---- reading ---- */

static inline void print_findings(const sheaf_catalog *c)
{
    static const char *const severity[] = { "note", "warning", "defect" };
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        fprintf(stderr, "%s %s: %s '%s' expected: %s found: %s cure: %s\n", severity[f->severity], f->code, f->path, f->tensor, f->expected,
                f->found, f->cure);
    }
}

/* The finding of this code and severity whose path, tensor, expectation or text holds `part`; NULL. */
static inline const sheaf_finding *finding(const sheaf_catalog *c, sheaf_severity severity, const char *code, const char *part)
{
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        if (f->severity == severity && strcmp(f->code, code) == 0 &&
            (strstr(f->path, part) != NULL || strstr(f->tensor, part) != NULL || strstr(f->found, part) != NULL ||
             strstr(f->expected, part) != NULL))
            return f;
    }
    return NULL;
}

#define CHECK_FINDING(c, severity, code, part)                                                    \
    do {                                                                                          \
        if (finding(c, severity, code, part) == NULL) {                                           \
            print_findings(c);                                                                    \
            fail_msg("%s:%d: no finding '%s' with '%s'", __FILE__, __LINE__, (code), (part));     \
        }                                                                                         \
    } while (0)

#define CHECK_SOUND(c)                                                                            \
    do {                                                                                          \
        if (sheaf__catalog_defects(c) > 0) {                                                      \
            print_findings(c);                                                                    \
            fail_msg("%s:%d: %s has defects", __FILE__, __LINE__, (c)->root);                     \
        }                                                                                         \
    } while (0)

static inline sheaf_catalog *read_made(const sheaf_dialect *dialect, const char *path, const char *config)
{
    const sheaf_dialect_hints hints = { .config = config };
    sheaf_catalog *c = NULL;
    CHECK_OK(dialect->read(&c, path, &hints));
    CHECK_OK(sheaf__catalog_check(c));
    return c;
}

/* The tensor's bytes, dense; the caller frees. */
static inline void *bytes_of(const sheaf_catalog *c, const sheaf_logical *t, int64_t *size)
{
    int64_t rows = 1, cols = 1;
    for (int i = 0; i < t->told.ndim; i++)
        *(i > 0 && i == t->told.ndim - 1 ? &cols : &rows) *= t->told.shape[i];
    *size = rows * cols * (int64_t)sheaf_dtype_bytes(t->told.dtype);
    void *room = malloc((size_t)*size + 1);
    assert_non_null(room);
    CHECK_OK(sheaf__catalog_read(c, t, 0, rows, 0, cols, room));
    return room;
}

/* Every tensor of the file is in the catalog, bit for bit. `rows`: of a table with more rows only these are compared. */
static inline int64_t check_against(const sheaf_catalog *c, const char *path, bool rows)
{
    sheaf_safetensors *file = NULL;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    const int64_t count = file->header.count;
    for (int64_t i = 0; i < count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        const sheaf_logical *t = sheaf__catalog_find(c, e->name);
        int64_t size;
        if (t == NULL)
            fail_msg("%s: no '%s'", c->root, e->name);
        if (t->told.ndim != e->ndim || t->told.dtype != e->dtype)
            fail_msg("%s: '%s' of another form", c->root, e->name);
        for (int k = 0; k < e->ndim; k++)
            if (rows && k == 0 ? t->told.shape[k] < e->shape[k] : t->told.shape[k] != e->shape[k])
                fail_msg("%s: '%s' axis %d: %" PRId64 " for %" PRId64, c->root, e->name, k, t->told.shape[k], e->shape[k]);
        char *got = bytes_of(c, t, &size), *want = malloc((size_t)e->bytes + 1);
        assert_true(want != NULL && size >= e->bytes);
        CHECK_OK(sheaf__safetensors_read(file, e, 0, want, e->bytes));
        CHECK_BYTES(e->name, got, want, e->bytes);
        free(got);
        free(want);
    }
    sheaf__safetensors_close(file);
    return count;
}

#endif
