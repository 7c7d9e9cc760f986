/* findings.c - see findings.h. */
#include "findings.h"

#include "base/base.h"
#include "base/print.h"
#include "base/number.h"
#include "base/spell.h"

/* "F32 (30), BF16 (2)" */
static void types_text(sheaf_text *text, const sheaf_verification_facts *f)
{
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        if (f->dtypes[d] > 0)
            sheaf__text_add(text, "%s%s (%" PRId64 ")", text->size > 0 ? ", " : "",
                            sheaf_dtype_name((sheaf_dtype)d), f->dtypes[d]);
}

static void print_sizes(FILE *to, const sheaf_verification_facts *f)
{
    if (f->tp <= 0 && f->pp <= 0 && f->dp <= 0)
        return;
    sheaf__print(to, "  %-14s ", "parallel size");
    const char *gap = "";
    const struct {
        int n;
        const char *what;
    } sizes[] = { { f->tp, "tensor" }, { f->pp, "pipeline" }, { f->dp, "data" } };
    for (int i = 0; i < 3; i++)
        if (sizes[i].n > 0) {
            sheaf__print(to, "%s%d (%s)", gap, sizes[i].n, sizes[i].what);
            gap = ", ";
        }
    sheaf__print(to, "\n");
}

void cli_facts_print(FILE *to, const sheaf_verification_facts *f)
{
    sheaf_text types = { 0 };
    char bytes[SHEAF__NUMBER];
    const bool adapter = f->tensors == 0 && f->lora > 0;
    types_text(&types, f);
    cli_fact_line(to, "dialect", f->title);
    if (f->model != NULL ||
        (!adapter && strcmp(f->dialect, "sheaf") != 0)) /* a run has its base for that */
        cli_fact_line(to, "model", f->model != NULL ? f->model : "not recognised");
    print_sizes(to, f);
    if (!adapter)
        cli_fact_line(to, "dtype", types.size > 0 && !types.failed ? types.at : "none");
    if (f->quantization != NULL)
        cli_fact_line(to, "quantization", f->quantization);
    if (f->step >= 0)
        sheaf__print(to, "  %-14s %" PRId64 "\n", "step", f->step);
    if (f->vocab >= 0)
        sheaf__print(to, "  %-14s %" PRId64, "vocabulary", f->vocab);
    if (f->vocab >= 0 && f->padded_vocab > f->vocab)
        sheaf__print(to, ", padded to %" PRId64 " rows", f->padded_vocab);
    if (f->vocab >= 0)
        sheaf__print(to, "\n");
    if (!adapter)
        sheaf__print(to, "  %-14s %" PRId64 " with %" PRId64 " elements, %s\n", "tensors",
                     f->tensors, f->elements, sheaf__number_bytes(bytes, (uint64_t)f->bytes));
    if (f->lora > 0)
        sheaf__print(to, "  %-14s %" PRId64 " tensors\n", "LoRA", f->lora);
    if (f->moments > 0)
        sheaf__print(to, "  %-14s %" PRId64 " tensors\n", "optimizer", f->moments);
    if (f->full)
        sheaf__print(to, "  %-14s %s\n", "read", sheaf__number_bytes(bytes, (uint64_t)f->read));
    sheaf__text_release(&types);
}

static void count_or_null(sheaf_json_writer *j, const char *key, int64_t value, int64_t none)
{
    if (value == none)
        sheaf__json_put_text(j, key, NULL);
    else
        sheaf__json_put_int(j, key, value);
}

void cli_facts_json(sheaf_json_writer *j, const sheaf_verification_facts *f)
{
    int most = -1;
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        most = f->dtypes[d] > 0 && (most < 0 || f->dtypes[d] > f->dtypes[most]) ? d : most;
    sheaf__json_put(j, "path:s dialect:s model:s", f->path, f->dialect, f->model);
    count_or_null(j, "tp", f->tp, 0);
    count_or_null(j, "pp", f->pp, 0);
    count_or_null(j, "dp", f->dp, 0);
    sheaf__json_put(j, "dtype:s quantization:s",
                    most >= 0 ? sheaf_dtype_name((sheaf_dtype)most) : NULL, f->quantization);
    count_or_null(j, "step", f->step, -1);
    count_or_null(j, "vocabulary", f->vocab, -1);
    count_or_null(j, "padded_vocabulary", f->padded_vocab, -1);
    sheaf__json_put(
        j, "tensors:d elements:d bytes:d lora_tensors:d optimizer_tensors:d config:s dtypes:{",
        f->tensors, f->elements, f->bytes, f->lora, f->moments, f->config);
    for (int d = 0; d < SHEAF_DTYPE_COUNT; d++)
        if (f->dtypes[d] > 0)
            sheaf__json_put_int(j, sheaf_dtype_name((sheaf_dtype)d), f->dtypes[d]);
    sheaf__json_close(j, '}');
}

/* ---- findings ---- */

static void print_one(FILE *to, const sheaf_finding *f)
{
    sheaf__print(to, "%s: %s", sheaf__severity_name(f->severity), f->code);
    if (*f->path != '\0')
        sheaf__print(to, ": %s", f->path);
    if (*f->tensor != '\0')
        sheaf__print(to, ": '%s'", f->tensor);
    sheaf__print(to, "\n");
    const char *const line[][2] = { { "  expected: ", f->expected },
                                    { "  found:    ", f->found },
                                    { "  try:      ", f->cure } };
    for (int i = 0; i < 3; i++)
        if (line[i][1][0] != '\0')
            cli_print_fields(to, line[i][0], line[i][1]);
}

enum { WHOLE = 2, NAMES = 3 }; /* of findings with one cause: printed in full, or by name alone */

/* Findings that differ only in their tensors, or in `found`, mostly have one cause. */
static bool same_cause(const sheaf_finding *a, const sheaf_finding *b)
{
    const bool of_tensors = *a->tensor != '\0';
    return a->severity == b->severity && of_tensors == (*b->tensor != '\0') &&
           strcmp(a->code, b->code) == 0 && strcmp(a->path, b->path) == 0 &&
           strcmp(a->cure, b->cure) == 0 && (of_tensors || strcmp(a->expected, b->expected) == 0);
}

/* Prints a finding and later ones like it; marks them. */
static void print_same(FILE *to, const sheaf_finding *all, int64_t count, int64_t first,
                       bool *printed)
{
    int64_t n = 0;
    for (int64_t i = first; i < count; i++) {
        const sheaf_finding *f = &all[i];
        if (printed[i] || (i > first && !same_cause(f, &all[first])))
            continue;
        printed[i] = true;
        if (n++ < WHOLE)
            print_one(to, f);
        else if (n <= WHOLE + NAMES && *f->tensor != '\0')
            sheaf__print(to, "%s'%s'", n == WHOLE + 1 ? "  likewise: " : ", ", f->tensor);
        else if (n <= WHOLE + NAMES) {
            char *found = sheaf__spell_fields(f->found, NULL);
            sheaf__print(to, "%s%.60s", n == WHOLE + 1 ? "  likewise: " : ", ",
                         found != NULL ? found : f->found);
            free(found);
        }
    }
    if (n > WHOLE + NAMES)
        sheaf__print(to, " and %" PRId64 " more", n - WHOLE - NAMES);
    if (n > WHOLE)
        sheaf__print(to, "\n");
}

void cli_findings_print(FILE *to, const sheaf_finding *all, int64_t count, int64_t most)
{
    static const sheaf_severity order[] = { SHEAF_DEFECT, SHEAF_WARNING, SHEAF_NOTE };
    bool *printed = calloc((size_t)count + 1, sizeof *printed);
    int64_t shown = 0, rest = 0;
    for (int s = 0; s < 3; s++)
        for (int64_t i = 0; i < count; i++) {
            if (all[i].severity != order[s] || (printed != NULL && printed[i]))
                continue;
            if (shown == most)
                rest++;
            else if (printed != NULL)
                print_same(to, all, count, i, printed);
            else
                print_one(to, &all[i]);
            shown += shown < most;
        }
    if (rest > 0)
        sheaf__print(to, "and %" PRId64 " more: --json lists all\n", rest);
    free(printed);
}

void cli_findings_json(sheaf_json_writer *j, const sheaf_verification *v)
{
    for (int64_t i = 0; i < sheaf_verification_count(v); i++) {
        sheaf_finding f = *sheaf_verification_finding(v, i);
        char *cure = sheaf__spell_fields(f.cure, NULL);
        f.cure = cure != NULL ? cure : f.cure;
        sheaf__json_put_finding(j, &f);
        free(cure);
    }
}
