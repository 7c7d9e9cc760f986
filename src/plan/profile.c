/* profile.c - profiles as JSON: sheaf_profile_write() and _read() of time.h.
 *
 *   {"sheaf_profile": 1, "machine": "...", "cores": 2, "dtype": "bfloat16 tiles", "threads": 1,
 *    "tp": 1, "dp": 1, "slices": 8, "ranks": "threads", "trained": N, "fresh": B, "update": s,
 * "update_waiting": s, "beside": s, "first": s, "spread": x, "busy": x, "ops": [{"name", "shape",
 * "kind", "way", "flops", "bytes", "count", "seconds", "waiting"}, ...]}
 *
 * of training also "weight_copies": N, since it is told; of generation "batch": N, "next_beside":
 * s, "next": ops of a token of each. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "plan/time.h"

enum { VERSION = 1, MOST_THREADS = 1 << 16 };
/* What a file may say: thirty years of a step, more operations and bytes than can be counted. */
#define MOST_SECONDS 1e9
#define MOST_SIZE 1e30
#define MOST_SHARE 1e9
#define CLOCKS_DIFFER 1e-6 /* seconds, of two clocks that are read one after the other */

static sheaf_status *no_profile(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s", path);
    sheaf_expected(st, "a profile of version %d, as sheaf plan --time --save-profile writes it",
                   VERSION);
    return sheaf_found(st, "another file");
}

/* ---- writing ---- */

static void put_entry(sheaf_json_writer *j, const sheaf__work_entry *e)
{
    sheaf__json_open(j, NULL, '{');
    sheaf__json_put_text(j, "name", e->name);
    sheaf__json_put_text(j, "shape", e->shape);
    sheaf__json_put_text(j, "kind", sheaf__work_kind_name(e->kind));
    sheaf__json_put_text(j, "way", sheaf__work_way_name(e->way));
    sheaf__json_put_real(j, "flops", e->flops);
    sheaf__json_put_real(j, "bytes", e->bytes);
    sheaf__json_put_int(j, "count", e->count);
    sheaf__json_put_real(j, "seconds", e->seconds);
    sheaf__json_put_real(j, "waiting", e->waiting);
    sheaf__json_close(j, '}');
}

static void put_ops(sheaf_json_writer *j, const char *key, const sheaf__work *work)
{
    sheaf__json_open(j, key, '[');
    for (int64_t i = 0; i < work->n; i++)
        put_entry(j, &work->entry[i]);
    sheaf__json_close(j, ']');
}

sheaf_status *sheaf_profile_may_replace(const char *path)
{
    sheaf_profile before = { 0 };
    if (sheaf__path_kind(path) == SHEAF_PATH_NONE)
        return sheaf__file_may_write(path);
    sheaf_status *other = sheaf_profile_read(&before, path);
    sheaf_profile_release(&before);
    return other == NULL ? sheaf__file_may_write(path)
                         : sheaf_try_this(other, "another name: only a profile is replaced");
}

sheaf_status *sheaf_profile_write(const sheaf_profile *p, const char *path)
{
    sheaf_json_writer j = { 0 };
    char *text = NULL;
    sheaf_status *no = sheaf_profile_may_replace(path);
    if (no != NULL)
        return no;
    sheaf__json_begin(&j);
    sheaf__json_put_int(&j, "sheaf_profile", VERSION);
    sheaf__json_put_text(&j, "machine", p->machine);
    sheaf__json_put_int(&j, "cores", p->cores);
    sheaf__json_put_text(&j, "dtype", p->of.dtype);
    sheaf__json_put_int(&j, "threads", p->of.threads);
    sheaf__json_put_int(&j, "tp", p->of.tp);
    sheaf__json_put_int(&j, "dp", p->of.dp);
    sheaf__json_put_int(&j, "slices", p->of.slices);
    sheaf__json_put_text(&j, "ranks", p->of.ranks);
    if (p->of.copies > 0)
        sheaf__json_put_int(&j, "weight_copies", p->of.copies);
    if (p->of.batch > 0)
        sheaf__json_put_int(&j, "batch", p->of.batch);
    sheaf__json_put_real(&j, "trained", p->size.trained);
    sheaf__json_put_real(&j, "fresh", p->size.fresh);
    sheaf__json_put_real(&j, "update", p->work.update);
    sheaf__json_put_real(&j, "update_waiting", p->work.update_waiting);
    sheaf__json_put_real(&j, "beside", p->beside);
    sheaf__json_put_real(&j, "first", p->first);
    sheaf__json_put_real(&j, "spread", p->spread);
    sheaf__json_put_real(&j, "busy", p->busy);
    put_ops(&j, "ops", &p->work);
    if (p->of.batch > 0) {
        sheaf__json_put_real(&j, "next_beside", p->next_beside);
        put_ops(&j, "next", &p->next);
    }
    sheaf__json_end(&j);
    sheaf__text_add(&j.text, "\n");
    sheaf_status *st = sheaf__text_take(&text, &j.text);
    TRY(st, sheaf__file_write_whole(path, text, strlen(text)));
    free(text);
    return st;
}

/* ---- reading ---- */

static void take_text(char *out, size_t size, sheaf_json_reader *r, const char *key)
{
    const char *text = sheaf__json_string(r, key);
    if (r->st != NULL)
        return;
    if (text == NULL || strlen(text) >= size)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a text of less than %zu bytes", size);
    else
        memcpy(out, text, strlen(text) + 1);
}

static double seconds_of(sheaf_json_reader *r, const char *key)
{
    return sheaf__json_real(r, key, 0, MOST_SECONDS, SHEAF_JSON_NEEDED_REAL);
}

/* Seconds that are among `all` others. */
static double waiting_of(sheaf_json_reader *r, const char *key, double all)
{
    const double seconds = seconds_of(r, key);
    if (seconds > all + CLOCKS_DIFFER)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "at most the %.17g seconds that it is part of",
                         all);
    return seconds < all ? seconds : all;
}

/* A share may be more than all where a machine is disturbed, but not without end. */
static double share_of(sheaf_json_reader *r, const char *key)
{
    return sheaf__json_real(r, key, 0, MOST_SHARE, SHEAF_JSON_NEEDED_REAL);
}

/* Operations, bytes or elements: whole ones. */
static double size_of(sheaf_json_reader *r, const char *key)
{
    const double size = sheaf__json_real(r, key, 0, MOST_SIZE, SHEAF_JSON_NEEDED_REAL);
    if (size > 0 && size < 1)
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "0, or at least 1");
    return size;
}

/* The place of a name among `n`. */
static int choice(sheaf_json_reader *r, const char *key, const char *(*name)(int), int n)
{
    const char *text = sheaf__json_string(r, key);
    for (int i = 0; text != NULL && i < n; i++)
        if (strcmp(text, name(i)) == 0)
            return i;
    sheaf__json_fail(r, SHEAF_E_FORMAT, key, "%s, or another of %d words", name(0), n);
    return 0;
}

static const char *kind_name(int i)
{
    return sheaf__work_kind_name((sheaf__work_kind)i);
}
static const char *way_name(int i)
{
    return sheaf__work_way_name((sheaf__work_way)i);
}

static sheaf_status *take_entry(sheaf__work *work, const json_t *object)
{
    sheaf__work_entry e = { 0 };
    sheaf_json_reader r = { .object = object };
    take_text(e.name, sizeof e.name, &r, "name");
    take_text(e.shape, sizeof e.shape, &r, "shape");
    e.kind = (sheaf__work_kind)choice(&r, "kind", kind_name, SHEAF__WORK_KINDS);
    e.way = (sheaf__work_way)choice(&r, "way", way_name, SHEAF__WORK_WAYS);
    e.flops = size_of(&r, "flops");
    e.bytes = size_of(&r, "bytes");
    e.count = sheaf__json_int(&r, "count", 1, INT64_C(1) << 40, SHEAF_JSON_NEEDED);
    e.seconds = seconds_of(&r, "seconds");
    e.waiting = waiting_of(&r, "waiting", e.seconds);
    if (r.st == NULL)
        sheaf__work_add(work, &e);
    return r.st;
}

static sheaf_status *take_ops(sheaf__work *out, sheaf_json_reader *r, const char *key)
{
    const json_t *ops = sheaf__json_list(r, key);
    sheaf_status *st = r->st;
    for (size_t i = 0; st == NULL && i < json_array_size(ops); i++) {
        const json_t *one = json_array_get(ops, i);
        st = json_is_object(one)
                 ? sheaf_in(take_entry(out, one), "'%s': entry %zu", key, i + 1)
                 : sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'%s'", key), "objects");
    }
    if (st == NULL && out->n == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'%s'", key), "at least one");
    return st == NULL && out->no_memory ? sheaf_fail(SHEAF_E_MEMORY, "profile") : st;
}

/* How ranks were measured; files from before it was told have threads. */
static void take_ranks(sheaf_profile_setting *out, sheaf_json_reader *r)
{
    static const char *const known[] = { "threads", "mpi", "alone" };
    const char *text = sheaf__json_string(r, "ranks");
    for (int i = 0; i < 3; i++)
        if (strcmp(text == NULL ? known[0] : text, known[i]) == 0) {
            snprintf(out->ranks, sizeof out->ranks, "%s", known[i]);
            return;
        }
    sheaf__json_fail(r, SHEAF_E_FORMAT, "ranks", "threads, mpi or alone");
}

static sheaf_status *take_profile(sheaf_profile *out, sheaf_json_reader *r)
{
    take_text(out->machine, sizeof out->machine, r, "machine");
    out->cores = (int)sheaf__json_int(r, "cores", 1, MOST_THREADS, SHEAF_JSON_NEEDED);
    take_text(out->of.dtype, sizeof out->of.dtype, r, "dtype");
    out->of.threads = (int)sheaf__json_int(r, "threads", 1, MOST_THREADS, SHEAF_JSON_NEEDED);
    out->of.tp = (int)sheaf__json_int(r, "tp", 1, SHEAF_MAX_SLICES, SHEAF_JSON_NEEDED);
    out->of.dp = (int)sheaf__json_int(r, "dp", 1, SHEAF_MAX_SLICES, SHEAF_JSON_NEEDED);
    out->of.slices = (int)sheaf__json_int(r, "slices", 1, SHEAF_MAX_SLICES, SHEAF_JSON_NEEDED);
    take_ranks(&out->of, r);
    out->of.copies = (int)sheaf__json_int(r, "weight_copies", 1, 2, 0);
    out->of.batch = sheaf__json_int(r, "batch", 1, INT64_C(1) << 40, 0);
    out->size.trained = size_of(r, "trained");
    out->size.fresh = size_of(r, "fresh");
    out->work.update = seconds_of(r, "update");
    out->work.update_waiting = waiting_of(r, "update_waiting", out->work.update);
    out->beside = seconds_of(r, "beside");
    out->first = seconds_of(r, "first");
    out->spread = share_of(r, "spread");
    out->busy = share_of(r, "busy");
    out->next_beside = out->of.batch > 0 ? seconds_of(r, "next_beside") : 0;
    sheaf_status *st = r->st == NULL ? take_ops(&out->work, r, "ops") : r->st;
    return st == NULL && out->of.batch > 0 ? take_ops(&out->next, r, "next") : st;
}

sheaf_status *sheaf_profile_read(sheaf_profile *out, const char *path)
{
    json_t *all = NULL;
    *out = (sheaf_profile){ 0 };
    sheaf_status *st = sheaf__json_load(&all, path);
    if (st != NULL)
        return st;
    sheaf_json_reader r = { .object = all };
    const json_t *version = json_object_get(all, "sheaf_profile");
    st = !json_is_integer(version) || json_integer_value(version) != VERSION
             ? no_profile(path)
             : sheaf_in(take_profile(out, &r), "%s", path);
    json_decref(all);
    return st;
}
