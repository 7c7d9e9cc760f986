/* data_sets.c - see data_sets.h. All of a row stays where it was read (sheaf__data_set_of). */
#include "data/data_sets.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json_write.h"
#include "data/data_images.h"

/* ---- the list ---- */

void sheaf__data_list_release(sheaf__data_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->path[i]);
    *list = (sheaf__data_list){ 0 };
}

/* The first n letters, a path from `folder` (NULL: from here), malloc'd; NULL: no memory. */
static char *path_of(const char *folder, const char *text, size_t n)
{
    char *name = strndup(text, n), *path = NULL;
    if (name == NULL || folder == NULL || name[0] == '/')
        return name;
    sheaf_status_free(sheaf__path_join(&path, folder, name));
    free(name);
    return path;
}

static bool exists(const char *folder, const char *text, size_t n)
{
    char *path = n == 0 ? NULL : path_of(folder, text, n);
    const bool there = path != NULL && sheaf__path_kind(path) != SHEAF_PATH_NONE;
    free(path);
    return there;
}

/* The length of what is a number by its characters; strtod() takes more: blanks, hexadecimal. */
static size_t digits_of(const char *text)
{
    return strspn(text, "0123456789.+-eE");
}

/* Begin of a name's weight, behind its last colon; the end of the name: it has none. */
static size_t weight_at(const char *folder, const char *text, size_t n)
{
    size_t colon = n;
    if (exists(folder, text, n))
        return n;
    for (size_t i = 0; i < n; i++)
        if (text[i] == ':' || text[i] == ',') /* a weight has no comma */
            colon = text[i] == ':' ? i : n;
    if (colon == n || exists(folder, text, colon))
        return colon;
    /* Nothing is there by either name: is it a number? */
    return text[colon + 1] != '\0' && digits_of(text + colon + 1) >= n - colon - 1 ? colon : n;
}

/* The length of the name in front, with its weight: the longest that names something that is
 * there, else up to the first comma. */
static size_t first_of(const char *folder, const char *text)
{
    for (size_t n = strlen(text); n > 0; n--)
        if ((text[n] == '\0' || text[n] == ',') && exists(folder, text, weight_at(folder, text, n)))
            return n;
    return strcspn(text, ",");
}

static sheaf_status *bad_weight(const char *name, const char *expected, const char *found)
{
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "weight of %s", name), "%s", expected), "%s", found);
}

static sheaf_status *add(sheaf__data_list *list, const char *folder, const char *text, size_t n,
                         bool weights)
{
    const size_t colon = weight_at(folder, text, n);
    char word[64];
    if (list->count == SHEAF__MOST_SETS)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "list of data sets"),
                                             "%d files at most", (int)SHEAF__MOST_SETS),
                              "put files into one folder, and name that");
    if (colon == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "list of data sets"),
                                          "the name of a file or folder, or several with a comma "
                                          "between them"),
                           "none %s", text[0] == ',' ? "before a comma" : "at the end");
    char *path = path_of(folder, text, colon);
    if (path == NULL)
        return sheaf__data_no_memory(0);
    list->path[list->count++] = path;
    if (colon == n)
        return list->weighted ? bad_weight(path, "a number, as the others have one", "none") : NULL;
    const bool whole = n - colon - 1 < sizeof word; /* digits left out would be another number */
    snprintf(word, sizeof word, "%.*s", (int)(n - colon - 1), text + colon + 1);
    if (!weights)
        return sheaf_try_this(
            bad_weight(path, "none: they say how often training takes records", word),
            "leave the weights out: every record counts once");
    if (list->count > 1 && !list->weighted)
        return bad_weight(path, "none, as the files before it have none", word);
    list->weighted = true;
    char *end;
    const double weight = strtod(word, &end);
    list->weight[list->count - 1] = weight;
    return whole && word[digits_of(word)] == '\0' && *end == '\0' && isfinite(weight) && weight > 0
               ? NULL
               : bad_weight(path, whole ? "a number above 0" : "a number of at most 63 characters",
                            word);
}

/* Paths from `folder`; NULL: from here. */
static sheaf_status *read_list(sheaf__data_list *out, const char *folder, const char *text,
                               bool weights)
{
    sheaf_status *st = NULL;
    *out = (sheaf__data_list){ 0 };
    while (st == NULL) {
        const size_t n = first_of(folder, text);
        st = add(out, folder, text, n, weights);
        if (text[n] == '\0')
            break;
        text += n + 1;
    }
    return st;
}

sheaf_status *sheaf__data_list_read(sheaf__data_list *out, const char *text, bool weights)
{
    return read_list(out, NULL, text, weights);
}

sheaf_status *sheaf__data_list_in(char **out, bool *there, const char *folder, const char *text)
{
    sheaf__data_list list;
    sheaf_text all = { 0 };
    char number[SHEAF__JSON_NUMBER];
    sheaf_status *st = read_list(&list, folder, text, true);
    *there = st == NULL;
    for (int i = 0; i < list.count && st == NULL; i++) {
        *there &= sheaf__path_kind(list.path[i]) != SHEAF_PATH_NONE;
        sheaf__text_add(&all, "%s%s", i == 0 ? "" : ",", list.path[i]);
        if (list.weighted)
            sheaf__text_add(&all, ":%s", sheaf__number_json(number, list.weight[i]));
    }
    sheaf__data_list_release(&list);
    if (st == NULL && all.failed)
        st = sheaf__data_no_memory(0);
    if (st == NULL)
        *out = all.at;
    else
        sheaf__text_release(&all);
    return st;
}

/* ---- several data sets as one ---- */

/* Of an epoch's samples, where the share of each part ends: weights added up, and rounded. */
static sheaf_status *divide(sheaf__data_sets *m, const sheaf__data_list *list, int64_t rows)
{
    double all = 0, sum = 0;
    for (int p = 0; p < m->count; p++)
        all += list->weight[p];
    for (int p = 0; p < m->count; p++)
        m->end_of_share[p] = (sum += list->weight[p]) / all;
    m->end_of_share[m->count - 1] = 1;
    for (int p = 0; p < m->count; p++)
        if (sheaf__share_end(m, p, rows) == (p == 0 ? 0 : sheaf__share_end(m, p - 1, rows)))
            return sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "weight of %s", m->path[p]),
                                           "at least one sample of an epoch of %" PRId64, rows),
                            "%.6g of %.6g", list->weight[p], all),
                "a larger weight, or leave the file out");
    return NULL;
}

/* A file's groups are its own: their numbers begin at *next, which goes behind them. */
static void shift_groups(sheaf_data *data, int64_t *next)
{
    const int64_t first = *next;
    for (int64_t r = 0; data->rollout != NULL && r < data->rows; r++) {
        data->rollout[r].group += first;
        *next = data->rollout[r].group < *next ? *next : data->rollout[r].group + 1;
    }
}

sheaf_status *sheaf__data_sets_join(sheaf_data *data, const sheaf__data_list *list)
{
    sheaf__data_sets *m = data->sets;
    int64_t group = 0;
    for (int p = 0; p < m->count; p++) {
        sheaf_data *from = m->set[p];
        shift_groups(from, &group);
        data->rows += from->rows;
        data->tokens += from->tokens;
        data->joined |= from->joined;
        data->seq = from->seq > data->seq ? from->seq : data->seq;
        data->longest = from->longest > data->longest ? from->longest : data->longest;
        if (data->images != NULL)
            data->images->labelled |= from->images->labelled;
        if (data->prompt_template == NULL)
            data->prompt_template = from->prompt_template;
        m->begin[p + 1] = data->rows;
    }
    m->weighted = list->weighted;
    return m->weighted ? divide(m, list, data->rows) : NULL;
}
