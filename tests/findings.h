/* findings.h - what was found in a checkpoint, looked for. */
#pragma once

#include "tests/check.h"

#include "dialects/common/dialects.h"

static inline void print_findings(const sheaf_catalog *c)
{
    static const char *const severity[] = { "note", "warning", "defect" };
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        fprintf(stderr, "%s %s: %s '%s' expected: %s found: %s cure: %s\n", severity[f->severity],
                f->code, f->path, f->tensor, f->expected, f->found, f->cure);
    }
}

/* Does a text of the finding hold the `size` characters at `part`, or, after a '=', is it them? */
static inline bool finding_holds(const sheaf_finding *f, const char *part, size_t size)
{
    const char *const text[] = { f->path, f->tensor, f->found, f->expected, f->cure };
    const bool whole = size > 0 && part[0] == '=';
    const char *wanted = textf("%.*s", (int)(size - whole), part + whole);
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        if (whole ? strcmp(text[i], wanted) == 0 : strstr(text[i], wanted) != NULL)
            return true;
    return false;
}

/* The first finding of this code and severity (-1: any) whose texts hold all of `parts`, which are
 * "part | part | ..."; "=part": a text that is this. NULL: none. */
static inline const sheaf_finding *finding(const sheaf_catalog *c, int severity, const char *code,
                                           const char *parts)
{
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        bool is = (severity < 0 || (int)f->severity == severity) && strcmp(f->code, code) == 0;
        for (const char *part = parts, *end; is && part != NULL; part = end) {
            end = strstr(part, " | ");
            is = finding_holds(f, part, end == NULL ? strlen(part) : (size_t)(end - part));
            end = end == NULL ? NULL : end + 3;
        }
        if (is)
            return f;
    }
    return NULL;
}

#define CHECK_FINDING(c, severity, code, part)                                                     \
    do {                                                                                           \
        if (finding(c, severity, code, part) == NULL) {                                            \
            print_findings(c);                                                                     \
            fail_msg("%s:%d: no finding '%s' with '%s'", __FILE__, __LINE__, (code), (part));      \
        }                                                                                          \
    } while (0)

#define CHECK_SOUND(c)                                                                             \
    do {                                                                                           \
        if (sheaf__catalog_defects(c) > 0) {                                                       \
            print_findings(c);                                                                     \
            fail_msg("%s:%d: %s has defects", __FILE__, __LINE__, (c)->root);                      \
        }                                                                                          \
    } while (0)

/* No source is made of what has a defect; the status says of which kind the first one is. Frees
 * `c`. */
static inline void check_no_source(sheaf_catalog *c)
{
    sheaf_source *source = NULL;
    const char *first = "";
    for (int64_t i = c->nfindings; i-- > 0;)
        if (c->finding[i].severity == SHEAF_DEFECT)
            first = c->finding[i].code;
    const sheaf_code code = strcmp(first, "damaged") == 0       ? SHEAF_E_FORMAT
                            : strcmp(first, "unsafe") == 0      ? SHEAF_E_UNSAFE
                            : strcmp(first, "unsupported") == 0 ? SHEAF_E_UNSUPPORTED
                                                                : SHEAF_E_LAYOUT;
    CHECK_FAILS(sheaf__catalog_source(&source, c, false), code, "");
}

/* What was read has this finding, and with a defect no source is made of it. Frees `c`. */
static inline void check_found(sheaf_catalog *c, sheaf_severity severity, const char *code,
                               const char *part)
{
    CHECK_FINDING(c, severity, code, part);
    if (severity == SHEAF_DEFECT)
        check_no_source(c);
    else
        sheaf__catalog_free(c);
}

/* Fails with all findings unless there are as many defects. */
static inline void want_defects(const sheaf_catalog *c, int64_t n)
{
    if (sheaf__catalog_defects(c) == n)
        return;
    print_findings(c);
    fail_msg("%s: %d defects, not %d", c->root, (int)sheaf__catalog_defects(c), (int)n);
}

/* Fails unless there are as many defects (-1: one at least) and a finding of this code (NULL: any)
 * whose texts hold `part` (finding()). */
static inline void want_says(const sheaf_catalog *c, int64_t defects, const char *code,
                             const char *part)
{
    const int64_t there = sheaf__catalog_defects(c);
    want_defects(c, defects >= 0 ? defects : there > 0 ? there : 1);
    if (code != NULL)
        CHECK_FINDING(c, -1, code, part);
}

/* The same; and frees the catalog. */
static inline void want_found(sheaf_catalog *c, int64_t defects, const char *code, const char *part)
{
    want_says(c, defects, code, part);
    sheaf__catalog_free(c);
}

/* The same of a finding that is a defect. */
static inline void want_defect(sheaf_catalog *c, int64_t defects, const char *code,
                               const char *part)
{
    want_defects(c, defects >= 0 ? defects : sheaf__catalog_defects(c));
    CHECK_FINDING(c, SHEAF_DEFECT, code, part);
    sheaf__catalog_free(c);
}
