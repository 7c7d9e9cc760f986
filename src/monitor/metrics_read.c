/* metrics_read.c - the last lines of metrics.jsonl; see metrics.h. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "monitor/metrics.h"

enum { MOST_BYTES = 1 << 20, STEPS = 20 }; /* of the end; a line of 64 ranks has some 10 KB */

/* The end of the file, from the beginning of a line to the end of one. */
static sheaf_status *read_end(char **out, const char *path)
{
    int fd;
    int64_t size;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    if (st != NULL)
        return st;
    const int64_t begin = size > MOST_BYTES ? size - MOST_BYTES : 0;
    char *text = malloc((size_t)(size - begin) + 1);
    st = text == NULL ? sheaf__no_memory(path)
                      : sheaf__file_read_at(fd, text, (size_t)(size - begin), begin, path);
    close(fd);
    if (st != NULL) {
        free(text);
        return st;
    }
    text[size - begin] = '\0';
    for (char *at = text; (at = memchr(at, '\0', (size_t)(text + size - begin - at))) != NULL;)
        *at = '?'; /* a file system's zeros: a line that is none */
    char *last = strrchr(text, '\n'), *first = begin > 0 ? strchr(text, '\n') : NULL;
    if (last != NULL)
        last[1] = '\0';
    else
        text[0] = '\0'; /* one that is being written */
    if (first != NULL)
        memmove(text, first + 1, strlen(first + 1) + 1);
    *out = text;
    return NULL;
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* false: no line of ours. Lines are taken from the last one backwards. */
static bool take_line(sheaf__metrics_last *out, const json_t *line, int *steps, double *tokens,
                      double *seconds)
{
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    if (step < 1)
        return false;
    if (json_object_get(line, "eval_loss") != NULL) {
        if (out->eval_step == 0) {
            out->eval_step = step;
            out->eval_loss = number(line, "eval_loss");
        }
        return true;
    }
    if (json_object_get(line, "loss") == NULL)
        return false;
    if (out->step == 0) {
        out->step = step;
        out->loss = number(line, "loss");
    }
    const double read = number(line, "tokens"), rate = number(line, "tokens_per_s");
    if (rate > 0 && read > 0) {
        *tokens += read;
        *seconds += read / rate;
        ++*steps;
    }
    return true;
}

sheaf_status *sheaf__metrics_read(sheaf__metrics_last *out, const char *path)
{
    char *text = NULL;
    *out = (sheaf__metrics_last){ .loss = NAN, .eval_loss = NAN };
    sheaf_status *st = read_end(&text, path);
    double tokens = 0, seconds = 0;
    int steps = 0;
    for (bool first = true; text != NULL && text[0] != '\0' && steps < STEPS; first = false) {
        text[strlen(text) - 1] = '\0';
        char *begin = strrchr(text, '\n');
        begin = begin == NULL ? text : begin + 1;
        json_t *line = json_loads(begin, 0, NULL);
        if (!take_line(out, line, &steps, &tokens, &seconds) && first)
            st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: the last line", path),
                                "a step or an evaluation, as train writes them");
        json_decref(line);
        *begin = '\0';
    }
    free(text);
    if (steps > 0) {
        out->tokens_per_s = tokens / seconds;
        out->seconds_per_step = seconds / steps;
    }
    return st;
}
