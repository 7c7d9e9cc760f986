/* rollout_log.c - see rollout_log.h. */
#include "train/rollout_log.h"

#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "checkpoint/store/manifest.h"

/* Notes where whole batches of the text end: their lines name one step, the next that is due, and
 * this version of the numeric contract: what another one wrote is made again. */
static sheaf_status *scan(sheaf__rollout_log *log, const char *text, size_t size)
{
    int64_t lines = 0;
    for (const char *at = text, *stop; at < text + size; at = stop + 1) {
        json_t *line = NULL;
        stop = memchr(at, '\n', (size_t)(text + size - at));
        if (stop == NULL)
            break;
        sheaf_status_free(sheaf__json_parse_line(&line, at, (size_t)(stop - at)));
        const json_int_t step = json_integer_value(json_object_get(line, "step")),
                         contract = json_integer_value(json_object_get(line, "contract"));
        json_decref(line);
        if (step != log->batches * log->every + 1 || contract != SHEAF__CONTRACT)
            break;
        if (++lines < log->rows)
            continue;
        if (!SHEAF_GROW(&log->end, &log->capacity, log->batches + 1))
            return sheaf__no_memory("rollouts.jsonl");
        log->end[log->batches++] = stop + 1 - text;
        lines = 0;
    }
    return NULL;
}

sheaf_status *sheaf__rollout_log_open(sheaf__rollout_log *log, const char *out, bool resume,
                                      int64_t rows, int64_t every)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_file file = { .fd = -1 };
    *log = (sheaf__rollout_log){ .rows = rows, .every = every };
    sheaf_status *st = sheaf__path_join(&log->path, out, "rollouts.jsonl");
    const bool there = st == NULL && sheaf__path_has(out, "rollouts.jsonl", SHEAF_PATH_FILE);
    if (there && resume) {
        st = sheaf__file_read_all(&text, &size, log->path, (size_t)1 << 40);
        TRY(st, scan(log, text, size));
        free(text);
        return st;
    }
    if (there && unlink(log->path) != 0)
        st = sheaf_fail(SHEAF_E_IO, "%s", log->path);
    TRY(st, sheaf__file_create(&file, log->path));
    return sheaf__first_of(st, sheaf__file_close(&file));
}

void sheaf__rollout_log_close(sheaf__rollout_log *log)
{
    free(log->path);
    free(log->end);
    *log = (sheaf__rollout_log){ 0 };
}

static int64_t end_of(const sheaf__rollout_log *log, int64_t batch)
{
    return batch == 0 ? 0 : log->end[batch - 1];
}

sheaf_status *sheaf__rollout_log_find(char **text, const sheaf__rollout_log *log, int64_t batch)
{
    int fd = -1;
    int64_t all;
    *text = NULL;
    if (batch >= log->batches)
        return NULL;
    const size_t size = (size_t)(log->end[batch] - end_of(log, batch));
    *text = calloc(size + 1, 1);
    sheaf_status *st = *text == NULL ? sheaf__no_memory("rollouts.jsonl")
                                     : sheaf__file_open_read(&fd, &all, log->path);
    TRY(st, sheaf__file_read_at(fd, *text, size, end_of(log, batch), log->path));
    if (fd >= 0)
        close(fd);
    if (st != NULL) {
        free(*text);
        *text = NULL;
    }
    return st;
}

sheaf_status *sheaf__rollout_log_add(sheaf__rollout_log *log, const char *text, size_t size)
{
    const int64_t begin = end_of(log, log->batches);
    sheaf_file file = { .fd = -1 };
    if (!SHEAF_GROW(&log->end, &log->capacity, log->batches + 1))
        return sheaf__no_memory("rollouts.jsonl");
    sheaf_status *st = sheaf__file_open_write(&file, log->path);
    if (st == NULL && ftruncate(file.fd, (off_t)begin) != 0)
        st = sheaf_fail(SHEAF_E_IO, "%s", log->path);
    TRY(st, sheaf__file_write_at(&file, text, size, begin));
    TRY(st, sheaf__file_sync(&file));
    st = sheaf__first_of(st, sheaf__file_close(&file));
    if (st == NULL)
        log->end[log->batches++] = begin + (int64_t)size;
    return st;
}
