/* status_print.c - a status as a user reads it; see sheaf/status.h. Apart from status.c, which
 * print.c stands on. */
#include <string.h>

#include "base/print.h"
#include "sheaf/status.h"

/* A list under one label: its lines are indented, so that none can be taken for one of ours. */
static void print_line(FILE *to, const char *label, const char *line)
{
    static const char next[] = "\n            ";
    const char *end;
    for (; (end = strstr(line, next)) != NULL; line = end + sizeof next - 1) {
        fputs(label, to);
        sheaf__print(to, "%.*s", (int)(end - line), line);
        label = next;
    }
    fputs(label, to);
    sheaf__print(to, "%s\n", line);
}

void sheaf_status_print(const sheaf_status *st, FILE *to)
{
    static const char *const label[] = { "sheaf: ", "  expected: ", "  found:    ",
                                         "  try:      " };
    const char *const line[] = { sheaf_status_where(st), sheaf_status_expected(st),
                                 sheaf_status_found(st), sheaf_status_try(st) };
    for (size_t i = 0; i < sizeof line / sizeof *line; i++)
        if (*line[i] != '\0')
            print_line(to, label[i], line[i]);
}
