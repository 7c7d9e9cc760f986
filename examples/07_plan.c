/* 07_plan.c - the memory that fine-tuning would take, at 1, 2, 4 and 8 ranks.
 *
 *   07_plan CONFIG
 *
 * CONFIG is a config.json: no weights are needed, so models may be planned for that do not fit
 * here. */
#include <inttypes.h>
#include <stdio.h>

#include <sheaf/sheaf.h>

static sheaf_status *plan(const char *settings, int ranks)
{
    sheaf_run_train_options how;
    SHEAF_INIT(&how);
    how.settings = settings;
    how.tp = ranks;
    how.threads = 8;
    sheaf_needs *needs = NULL;
    sheaf_needs_facts facts;
    SHEAF_INIT(&facts);
    sheaf_status *st = sheaf_run_plan(&needs, &how, NULL);
    if (st == NULL)
        st = sheaf_needs_info(&facts, needs);
    if (st == NULL && ranks == 1)
        printf("%.1f million parameters, %.2f million of them trained\n",
               (double)facts.parameters / 1e6, (double)facts.trained / 1e6);
    if (st == NULL)
        printf("%d rank%s: %.0f MiB on the fullest,", ranks, ranks == 1 ? "" : "s",
               (double)facts.fullest / 1048576);
    for (int kind = 0; st == NULL && sheaf_needs_kind(kind) != NULL; kind++)
        if (sheaf_needs_bytes(needs, 0, kind) > 0)
            printf(" %s %.0f", sheaf_needs_kind(kind),
                   (double)sheaf_needs_bytes(needs, 0, kind) / 1048576);
    printf("\n");
    sheaf_needs_free(needs);
    return st;
}

int main(int argc, char **argv)
{
    char settings[4200];
    if (argc != 2 || snprintf(settings, sizeof settings,
                              "config: %s\nmethod: lora\nlora-rank: 8\nseq: 512\ndtype: bfloat16\n"
                              "sums: tiles\n" /* else the order that is fastest here */,
                              argv[1]) >= (int)sizeof settings) {
        fprintf(stderr, "usage: 07_plan CONFIG\n");
        return 2;
    }
    sheaf_status *st = NULL;
    for (int ranks = 1; ranks <= 8 && st == NULL; ranks *= 2)
        st = plan(settings, ranks);
    if (st == NULL)
        return 0;
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}
