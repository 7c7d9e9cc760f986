/* provenance.c - see provenance.h. */
#include "monitor/provenance.h"

#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/memory.h"

static void add_entry(sheaf_text *text, const sheaf_provenance *run)
{
    char host[256] = "", cpu[64], started[32] = "";
    struct tm utc;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &utc) != NULL)
        strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    gethostname(host, sizeof host - 1);
    sheaf__system_text(cpu, "/proc/cpuinfo", "model name");
    sheaf_json_writer j = { *text };
    sheaf__json_begin(&j);
    sheaf__json_put(
        &j,
        "started:s step:d steps:d host:s pid:i version:s cpu:s ranks:i threads:i transport:s command:[",
        started, run->step, run->steps, host, getpid(), SHEAF_VERSION, cpu, run->ranks,
        run->threads, run->transport);
    for (int i = 0; i < run->nwords; i++)
        sheaf__json_put_text(&j, NULL, run->word[i]);
    sheaf__json_close(&j, ']');
    sheaf__json_end(&j);
    *text = j.text;
}

/* The existing entries, each on its line, and the base (malloc'd, NULL without one).
 * SHEAF_E_FORMAT: not such a file. */
static sheaf_status *keep_entries(sheaf_text *text, char **base, const char *path)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_load(&root, path);
    if (st != NULL)
        return st;
    const json_t *runs = json_object_get(root, "runs");
    if (!json_is_array(runs))
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s: 'runs'", path), "a list");
    for (size_t i = 0; i < json_array_size(runs) && st == NULL; i++) {
        char *entry = NULL;
        st = sheaf_in(sheaf__json_text(&entry, json_array_get(runs, i), 0), "%s", path);
        if (st == NULL)
            sheaf__text_add(text, "%s,\n", entry);
        free(entry);
    }
    if (st == NULL && json_is_object(json_object_get(root, "base")))
        st = sheaf_in(sheaf__json_text(base, json_object_get(root, "base"), JSON_COMPACT), "%s",
                      path);
    json_decref(root);
    return st;
}

sheaf_status *sheaf_provenance_add(const char *path, const sheaf_provenance *run,
                                   const sheaf_events *events)
{
    sheaf_text text = { 0 };
    char *all = NULL, *base = NULL;
    sheaf__text_add(&text, "{\"runs\": [\n");
    const size_t head = text.size;
    sheaf_status *st =
        sheaf__path_kind(path) == SHEAF_PATH_NONE ? NULL : keep_entries(&text, &base, path);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_FORMAT) {
        sheaf_warn(events, "%s starts anew: %s", path, sheaf_status_where(st));
        sheaf_status_free(st);
        st = NULL;
        text.size = head;
    }
    add_entry(&text, run);
    sheaf__text_add(&text, "\n]");
    if (run->base != NULL || base != NULL)
        sheaf__text_add(&text, ",\n\"base\": %s", run->base != NULL ? run->base : base);
    sheaf__text_add(&text, "}\n");
    const size_t size = text.size;
    TRY(st, sheaf__text_take(&all, &text));
    TRY(st, sheaf__file_write_whole(path, all, size));
    sheaf__text_release(&text);
    free(base);
    free(all);
    return st;
}

int64_t sheaf_provenance_steps(const json_t *root)
{
    const json_t *runs = json_object_get(root, "runs");
    const size_t n = json_array_size(runs);
    const int64_t steps =
        n == 0 ? 0 : json_integer_value(json_object_get(json_array_get(runs, n - 1), "steps"));
    return steps < 0 ? 0 : steps;
}

const char *sheaf_provenance_state(bool running, int64_t last_step, int64_t steps)
{
    return running ? "running" : steps > 0 && last_step >= steps ? "done" : "not running";
}
