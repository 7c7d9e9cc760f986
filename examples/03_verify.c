/* 03_verify.c - is a checkpoint complete, consistent and undamaged?
 *
 *   03_verify PATH
 *
 * Prints each finding with what cures it, and exits with 1 when PATH is not sound. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sheaf/sheaf.h>

static void print_finding(const sheaf_finding *f)
{
    static const char *const severity[] = { "note", "warning", "defect" };
    const char *slash = strrchr(f->path, '/'); /* the last part of the path will do here */
    printf("%s: %s: %s %s\n", severity[f->severity], f->code, slash == NULL ? f->path : slash + 1,
           f->tensor);
    if (*f->expected != '\0')
        printf("  expected: %s\n", f->expected);
    printf("  found:    %s\n", f->found);
    if (*f->cure != '\0')
        printf("  try:      %s\n", f->cure);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: 03_verify PATH\n");
        return 2;
    }
    sheaf_verification *verification = NULL;
    sheaf_verification_facts facts;
    SHEAF_INIT(&facts);
    sheaf_weights_verify_options how;
    SHEAF_INIT(&how);
    how.threads = 1;
    sheaf_status *st = sheaf_weights_verify(&verification, argv[1], &how);
    if (st == NULL)
        st = sheaf_verification_info(&facts, verification);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        sheaf_verification_free(verification);
        return 3;
    }
    printf("%s: %" PRId64 " tensors, %" PRId64 " bytes read\n", facts.dialect, facts.tensors,
           facts.read);
    for (int64_t i = 0; i < sheaf_verification_count(verification); i++)
        print_finding(sheaf_verification_finding(verification, i));
    printf(facts.sound ? "sound\n" : "not sound\n");
    sheaf_verification_free(verification);
    return facts.sound ? 0 : 1;
}
