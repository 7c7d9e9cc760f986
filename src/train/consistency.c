/* consistency.c - see consistency.h.
 *
 * The first process shares a text of lines NAME, tab, VALUE; each other one compares it with its
 * own. */
#include "train/consistency.h"

#include <sys/utsname.h>

#include "base/base.h"
#include "train/run.h"

void sheaf__consistency_line(sheaf_text *t, const char *name, const char *value)
{
    sheaf__text_add(t, "%s\t%s\n", name, value == NULL || *value == '\0' ? "none" : value);
}

void sheaf__consistency_common(sheaf_text *t, const sheaf__origin *origin, sheaf_dtype dtype,
                               sheaf_sums sums)
{
    struct utsname machine;
    sheaf__consistency_line(t, "the version of sheaf", SHEAF_VERSION);
    sheaf__consistency_line(t, "the kind of processor",
                            uname(&machine) == 0 ? machine.machine : "unknown");
    if (dtype == SHEAF_BF16 || sheaf__by_mma(sums, dtype))
        sheaf__consistency_line(t, "the order of sums", sheaf__sums_text(sums));
    sheaf__consistency_line(t, "the base model", origin->first_and_last);
    sheaf__consistency_line(t, "the tokenizer", origin->tokenizer);
    sheaf__consistency_line(t, "the adapter", origin->adapter);
}

/* "lr: 0.003" of the settings becomes "`lr`", tab, "0.003". */
static void add_settings(sheaf_text *t, const char *settings)
{
    while (*settings != '\0') {
        const size_t line = strcspn(settings, "\n"), name = strcspn(settings, ":\n");
        const size_t value = name + 2 < line ? name + 2 : line;
        if (name < line)
            sheaf__text_add(t, "`%.*s`\t%.*s\n", (int)name, settings, (int)(line - value),
                            settings + value);
        settings += line + (settings[line] == '\n');
    }
}

/* Flags that may change when a run goes on, but not from process to process. */
static void add_flags(sheaf_text *t, const sheaf_train_options *o)
{
    unsigned offloads = 0;
    sheaf_status_free(sheaf__offloads(&offloads, o->offload)); /* checked with the settings */
    const struct {
        const char *name;
        int64_t value;
    } flags[] = {
        { "tp", o->tp },
        { "dp", o->dp },
        { "steps", o->steps },
        { "save-every", o->save_every },
        { "export-every", o->export_every },
        { "eval-every", o->eval_every },
        { "patience", o->patience },
        { "keep", o->keep },
        { "resume", o->resume },
        { "offload", offloads },
        { "keep-activations", o->kept },
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        sheaf__text_add(t, "`%s`\t%" PRId64 "\n", flags[i].name, flags[i].value);
}

static sheaf_status *describe(char **out, const sheaf__run *r, const sheaf__sets *sets)
{
    const sheaf_train_options *o = r->options;
    const sheaf_data *eval = sets->eval_data;
    sheaf_text t = { 0 };
    sheaf__text_add(&t, "the version of the numeric contract\t%d\n", SHEAF__CONTRACT);
    add_settings(&t, r->settings);
    add_flags(&t, o);
    sheaf__consistency_common(&t, &r->origin, o->dtype, o->sums);
    sheaf__consistency_line(&t, "the data", sheaf_data_hash(sets->data));
    sheaf__consistency_line(&t, "the data of evaluations",
                            eval == NULL ? NULL : sheaf_data_hash(eval));
    return sheaf__text_take(out, &t);
}

/* ---- comparing ---- */

sheaf_status *sheaf__consistency_lines(sheaf_comm *all, const char *mine)
{
    char *first = strdup(mine);
    sheaf__line_change d;
    char value[SHEAF__LINE_VALUE];
    sheaf_status *st = first == NULL ? sheaf__no_memory("facts that processes compare") : NULL;
    st = sheaf__all_agree(all, st);
    TRY(st, sheaf__all_share(all, &first));
    if (st == NULL && sheaf__lines_differ(&d, first, mine, '\t')) {
        st = sheaf_fail(SHEAF_E_ARG, "%.*s", (int)d.key, d.line);
        sheaf_expected(st, "%s, as in the first process, on %s", sheaf__line_value(value, d.was),
                       sheaf__all_host(all, 0));
        sheaf_found(st, "%s", sheaf__line_value(value, d.is));
        sheaf_try_this(st,
                       "give all processes the same: they may see other folders, or another sheaf");
    }
    free(first);
    return sheaf__all_agree(all, st);
}

sheaf_status *sheaf__consistency_begin(const sheaf__run *r, const sheaf__sets *sets)
{
    char *mine = NULL;
    if (sheaf__all_count(r->all) == 1)
        return NULL;
    sheaf_status *st = sheaf__all_agree(r->all, describe(&mine, r, sets));
    TRY(st, sheaf__consistency_lines(r->all, mine));
    free(mine);
    return st;
}

sheaf_status *sheaf__consistency_weights(sheaf_comm *all, const sheaf__origin *origin)
{
    char mine[80];
    if (sheaf__all_count(all) == 1)
        return NULL;
    snprintf(mine, sizeof mine, "the base model\t%s\n", origin->weights);
    return sheaf__consistency_lines(all, mine);
}
