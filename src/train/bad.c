/* bad.c - see bad.h. */
#include "train/bad.h"

#include <inttypes.h>
#include <string.h>

void sheaf__bad_rows(sheaf_text *text, const int64_t *row, int64_t count)
{
    enum { MOST = 8 };
    int64_t all = 0, said = 0;
    for (int64_t i = 0; i < count; i++)
        all += row[i] >= 0;
    sheaf__text_add(text, all == 1 ? "row" : "rows");
    for (int64_t i = 0; i < count && said < MOST; i++)
        if (row[i] >= 0)
            sheaf__text_add(text, "%s %" PRId64, said++ > 0 ? "," : "", row[i]);
    if (all > MOST)
        sheaf__text_add(text, ", ...");
}

void sheaf__bad_say(sheaf_text *text, const sheaf__bad *bad, const char *weight)
{
    if (bad->op != NULL) {
        sheaf__text_add(text, "the first %s that is not finite is ",
                        bad->backward ? "gradient" : "value");
        if (bad->layer >= 0)
            sheaf__text_add(text, "in layer %d, ", bad->layer);
        sheaf__text_add(text, "'%s'", bad->value);
        if (strcmp(bad->value, bad->op) != 0)
            sheaf__text_add(text, ", of the op '%s'", bad->op);
    }
    if (weight != NULL)
        sheaf__text_add(text, "%sthe weight '%s' holds a number that is not finite",
                        bad->op != NULL ? "; " : "", weight);
}
