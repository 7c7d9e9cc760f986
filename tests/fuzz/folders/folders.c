/* folders.c - checkpoints with changed files, whole folders, against verify, info, convert and the
 * loaders.
 *
 * usage: folders SEEDS...                the lines of these files, and the first folders of every
 *                                        checkpoint
 *        folders --from N --count M      folders N to N + M - 1 of all there are
 *
 * A line names a checkpoint of the recordings and changes (change.h, world.h): WORLD
 * KIND:FILE:A:B:C:D ... What must hold: nothing crashes, leaks, hangs or takes memory out of
 * proportion; what is called sound is converted and loaded, and has the tensors of the checkpoint
 * before the changes, unless verify says something it did not say then or a change makes another
 * model that is as consistent as the first. $SHEAF_FUZZ_DIR/current is the line under way. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/store/probe.h"
#include "checkpoint/tools/verify.h"
#include "dialects/hf/hf.h"
#include "dialects/open.h"
#include "dialects/peft/peft.h"
#include "lora/adapter.h"
#include "tests/fuzz/folders/world.h"
#include "tests/golden.h"

enum { SECONDS = 20 /* of processor time, for one folder */, MOST_MEGABYTES = 1500, FIRST = 12 };

static struct {
    int64_t folders, sound, refused, faults;
} told;
static char current[2000];
static int current_fd = -1;

static void fault(const char *what, sheaf_status *st)
{
    told.faults++;
    printf("FAULT %s: %s\n", what, current);
    if (st != NULL)
        sheaf_status_print(st, stdout);
    sheaf_status_free(st);
    fflush(stdout);
}

/* ---- digests ---- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t text_hash(const char *text, uint64_t seed)
{
    return XXH64(text, strlen(text), seed);
}

static uint64_t *digest_findings(const sheaf_catalog *c)
{
    uint64_t *out = calloc((size_t)c->nfindings + 1, sizeof *out);
    if (out == NULL)
        abort();
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        out[i] = text_hash(
            f->found,
            text_hash(f->tensor, text_hash(f->path, text_hash(f->code, (uint64_t)f->severity))));
    }
    qsort(out, (size_t)c->nfindings, sizeof *out, by_number);
    return out;
}

/* Does verify say something that it did not say of the folder as recorded? */
static bool says_more(const world *w, const sheaf_catalog *c)
{
    uint64_t *now = digest_findings(c);
    bool more = false;
    for (int64_t i = 0; i < c->nfindings && !more; i++)
        more = bsearch(&now[i], w->finding, (size_t)w->nfindings, sizeof *now, by_number) == NULL;
    free(now);
    return more;
}

static sheaf_status *digest_source(uint64_t *out, sheaf_source *s)
{
    sheaf_status *st = NULL;
    *out = 0;
    for (int64_t i = 0; st == NULL && i < s->count(s); i++) {
        const sheaf_source_entry *e = s->entry(s, i);
        int64_t rows, cols;
        sheaf__entry_view(&rows, &cols, e);
        const size_t bytes = (size_t)(rows * cols) * sheaf_dtype_bytes(e->dtype);
        char *data = malloc(bytes + 1);
        if (data == NULL)
            abort();
        st = s->read(s, e->name, 0, rows, 0, cols, data);
        uint64_t h = text_hash(e->name, (uint64_t)e->dtype);
        h = XXH64(e->shape, (size_t)e->ndim * sizeof *e->shape, h);
        *out += st == NULL ? XXH64(data, bytes, h) : 0;
        free(data);
    }
    return st;
}

/* ---- what is called sound ---- */

static sheaf_status *check_model(sheaf_probe *look)
{
    char *text = NULL;
    size_t size;
    sheaf_config config;
    sheaf_schema *schema = NULL;
    if (look->config == NULL || strcmp(look->dialect, "hf") != 0)
        return NULL;
    sheaf_status *st = sheaf__file_read_all(&text, &size, look->config, SIZE_MAX);
    if (st == NULL)
        st = sheaf_config_parse(&config, text, size);
    free(text);
    if (st != NULL) { /* a model that sheaf has not: verify says so */
        sheaf_status_free(st);
        return NULL;
    }
    st = sheaf_schema_new(&schema, &config, 1);
    if (st == NULL)
        st = sheaf_hf_check(look->source, schema, config.json);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}

static sheaf_status *check_adapter(const char *path)
{
    sheaf_lora_options options;
    char *config = NULL;
    sheaf_status *st = sheaf_peft_config_path(&config, path);
    if (st == NULL && (st = sheaf_lora_options_read(&options, config, NULL)) == NULL)
        sheaf_lora_options_release(&options);
    free(config);
    return st;
}

/* *held: the config was held against the tensors. */
static sheaf_status *load(uint64_t *tensors, const char *path, bool adapter, bool held)
{
    sheaf_probe look = { 0 };
    sheaf_status *st = sheaf_probe_open(&look, path, false);
    if (st == NULL && adapter)
        st = check_adapter(path);
    if (st == NULL && held)
        st = check_model(&look);
    if (st == NULL && look.source != NULL)
        st = digest_source(tensors, look.source);
    sheaf_probe_close(&look);
    return st;
}

static sheaf_status *convert(uint64_t *tensors, const char *path, const char *scratch)
{
    char dst[700], file[800];
    sheaf_weights_convert_report report;
    sheaf_source *source = NULL;
    snprintf(dst, sizeof dst, "%s/converted", scratch);
    snprintf(file, sizeof file, "%s/model.safetensors", dst);
    sheaf_status *st = sheaf_convert(
        &report,
        &(sheaf_weights_convert_options){ .src = path, .dst = dst, .to = "hf", .threads = 1 });
    if (st == NULL)
        st = sheaf__open_source(
            &source, file,
            &(sheaf_dialect_hints){ .from = "hf", .as_stored = true, .buffers = true });
    if (st == NULL)
        st = digest_source(tensors, source);
    if (source != NULL)
        source->close(source);
    sheaf_status_free(sheaf__remove_tree(dst));
    return st;
}

/* Does another model of the same names make sense to verify: nothing is held against it? Padding of
 * tables is to be converted first, as verify says. */
static bool is_held(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].code, "unsupported") == 0 ||
            strcmp(c->finding[i].code, "padded") == 0 ||
            strcmp(c->finding[i].code, "unmerged") == 0)
            return false;
    return c->model != NULL;
}

static bool says(const sheaf_catalog *c, const char *words)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strstr(c->finding[i].found, words) != NULL)
            return true;
    return false;
}

/* Would a copy over this file be noticed, where tensors go by the names of files? Not over a norm,
 * which may hold few values yet, nor over a table, to which a head may be tied. */
static bool has_own_values(const world *w, const change *k, const sheaf_catalog *c)
{
    const char *name = w->file[k->file % (uint32_t)w->count].name;
    return c->tensors_by_names && strstr(name, "_proj.") != NULL;
}

/* Was that all that changed what verify says it cannot tell? */
static bool is_untold(const world *w, const seed *s, const sheaf_catalog *c)
{
    const bool names = says(c, "by the names of files and folders alone") ||
                       says(c, "by the copies of"),
               no_config = says(c, "no config: shapes were not held");
    bool all = true;
    for (int i = 0; i < s->count; i++) {
        const uint32_t kind = s->change[i].kind % CHANGE_KINDS;
        if (names && (kind == CHANGE_SWAP || kind == CHANGE_RENAME ||
                      (kind == CHANGE_COPY && !has_own_values(w, &s->change[i], c))))
            return true;
        all = all && (kind == CHANGE_TWICE ||
                      (no_config && (kind == CHANGE_CONTENT || kind == CHANGE_BYTES)));
    }
    return all;
}

static void check_sound(const world *w, const seed *s, const sheaf_catalog *c, bool consistent,
                        const char *scratch)
{
    uint64_t loaded = 0, converted = 0;
    const bool peft = c->dialect->adapter;
    sheaf_status *st = load(&loaded, w->path, c->dialect->adapter, is_held(c));
    if (st != NULL) {
        fault("called sound, not loaded", st);
        return;
    }
    int64_t weights = 0;
    for (int64_t i = 0; i < c->count; i++)
        weights += c->tensor[i].kind != SHEAF_MOMENT;
    if (weights == 0 && c->count > 0) /* an optimizer's state alone */
        return;
    if (!peft && (st = convert(&converted, w->path, scratch)) != NULL) {
        fault("called sound, not converted", st);
        return;
    }
    /* Names of a model that nobody knows, and of an adapter without its base, are what the file
     * says. */
    consistent = consistent || !w->known || c->model == NULL || is_untold(w, s, c);
    if (!consistent && w->has_tensors && (peft ? loaded : converted) != w->tensors &&
        !says_more(w, c))
        fault("called sound, other tensors", NULL);
}

/* ---- one folder ---- */

static void on_time(int number)
{
    static const char text[] = "FAULT too long: ";
    (void)number;
    if (write(1, text, sizeof text - 1) < 0 || write(1, current, strlen(current)) < 0)
        _exit(3);
    abort();
}

static void give_time(int seconds)
{
    const struct itimerval limit = { .it_value = { .tv_sec = seconds } };
    setitimer(ITIMER_PROF, &limit, NULL);
}

static void look_at(const world *w)
{
    sheaf_probe look = { 0 };
    sheaf_status_free(sheaf_probe_open(&look, w->path, false));
    sheaf_probe_close(&look);
}

static void check_folder(const world *w, const seed *s, bool consistent, const char *scratch)
{
    sheaf_verify_report report;
    sheaf_weights_verify_options options = { .quick = true, .threads = 1 };
    sheaf_status *st = sheaf_verify(&report, w->path, &options);
    for (int full = 0; st == NULL && full < 2 && sheaf_verify_sound(&report); full++) {
        if (full == 1) {
            told.sound++;
            check_sound(w, s, report.catalog, consistent, scratch);
            break;
        }
        sheaf_verify_release(&report);
        options.quick = false;
        st = sheaf_verify(&report, w->path, &options);
    }
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY)
        fault("memory", st);
    else
        sheaf_status_free(st);
    told.refused += report.catalog == NULL || !sheaf_verify_sound(&report);
    sheaf_verify_release(&report);
    if (told.folders % 8 == 0)
        look_at(w);
}

static void spell(const seed *s)
{
    int n = snprintf(current, sizeof current, "%s", s->world);
    for (int i = 0; i < s->count; i++) {
        const change *c = &s->change[i];
        n += snprintf(current + n, sizeof current - (size_t)n, " %u:%u:%u:%u:%u:%u", c->kind,
                      c->file, c->n[0], c->n[1], c->n[2], c->n[3]);
    }
    strcat(current, "\n");
    if (current_fd >= 0 &&
        (ftruncate(current_fd, 0) != 0 || pwrite(current_fd, current, strlen(current), 0) < 0))
        abort();
    current[strlen(current) - 1] = '\0';
}

static void run(world *w, const seed *s, const char *scratch)
{
    bool consistent = false, changed = false;
    struct rusage used;
    spell(s);
    give_time(SECONDS);
    for (int i = 0; i < s->count; i++)
        changed = world_change(w, &s->change[i], &consistent) || changed;
    told.folders++;
    check_folder(w, s, consistent, scratch);
    if (getenv("SHEAF_FUZZ_KEEP") != NULL) { /* to look at */
        printf("%s\n", w->path);
        exit(0);
    }
    world_restore(w);
    give_time(0);
    if (getrusage(RUSAGE_SELF, &used) == 0 && used.ru_maxrss > (int64_t)MOST_MEGABYTES * 1024) {
        fault("memory", NULL);
        abort();
    }
}

/* ---- which ones ---- */

static seed numbered(world *const *worlds, int count, uint64_t number)
{
    seed s = { .count = 1 };
    uint64_t at = 0;
    const world *w = worlds[number % (uint64_t)count];
#define NEXT sheaf__random_tensor_u32(number, 77, at++)
    snprintf(s.world, sizeof s.world, "%s", w->name);
    while (s.count < MOST_CHANGES && NEXT % 4 == 0)
        s.count++;
    for (int i = 0; i < s.count; i++) {
        change *c = &s.change[i];
        c->kind = NEXT % 10 < 7 ? (uint32_t)CHANGE_CONTENT : NEXT % CHANGE_KINDS;
        c->file = NEXT % (uint32_t)w->count;
        for (int k = 0; k < 4; k++)
            c->n[k] = NEXT & 0x7fffffff;
    }
#undef NEXT
    return s;
}

static bool read_seed(seed *s, const char *line)
{
    int n = 0;
    *s = (seed){ 0 };
    if (*line == '#' || sscanf(line, "%299s%n", s->world, &n) != 1)
        return false;
    for (int more = 0; s->count < MOST_CHANGES; s->count++, line += more) {
        change *c = &s->change[s->count];
        if (s->count == 0)
            line += n;
        if (sscanf(line, " %u:%u:%u:%u:%u:%u%n", &c->kind, &c->file, &c->n[0], &c->n[1], &c->n[2],
                   &c->n[3], &more) != 6)
            break;
    }
    return s->count > 0;
}

static int replay(world *const *worlds, int count, const char *path, const char *scratch)
{
    char line[1000];
    int n = 0;
    FILE *from = fopen(path, "r");
    if (from == NULL) {
        perror(path);
        exit(3);
    }
    while (fgets(line, sizeof line, from) != NULL) {
        seed s;
        for (int i = 0; read_seed(&s, line) && i < count; i++)
            if (strcmp(worlds[i]->name, s.world) == 0) {
                run(worlds[i], &s, scratch);
                n++;
            }
    }
    fclose(from);
    return n;
}

/* The folder as recorded, and written anew by the same means as changed ones: the same answer. */
static void begin(world *w, const char *scratch)
{
    sheaf_verify_report report;
    seed s = { .count = 1, .change = { { CHANGE_CONTENT, 0, { FUZZ_NO_CHANGE, 0, 0, 0 } } } };
    world_restore(w);
    snprintf(s.world, sizeof s.world, "%s", w->name);
    spell(&s);
    sheaf_status *st =
        sheaf_verify(&report, w->path, &(sheaf_weights_verify_options){ .threads = 1 });
    if (st != NULL) {
        sheaf_status_free(st); /* some recordings are of broken files */
        return;
    }
    w->sound = sheaf_verify_sound(&report);
    w->known = report.catalog->model != NULL;
    w->finding = digest_findings(report.catalog);
    w->nfindings = report.catalog->nfindings;
    st = report.catalog->dialect->adapter ? load(&w->tensors, w->path, true, false)
                                          : convert(&w->tensors, w->path, scratch);
    w->has_tensors = st == NULL;
    sheaf_status_free(st);
    sheaf_verify_release(&report);
    bool consistent = false;
    for (int i = 0; i < w->count; i++) {
        s.change[0].file = (uint32_t)i;
        if (w->file[i].format == FUZZ_TORCH || w->file[i].format == FUZZ_PICKLE)
            world_change(w, &s.change[0], &consistent);
    }
    const int64_t sound = told.sound;
    if (w->sound)
        check_folder(w, &s, false, scratch);
    if (w->sound && told.sound == sound)
        fault("written anew it is not sound", NULL);
    world_restore(w);
}

int main(int argc, char **argv)
{
    char scratch[500], recorded[512], path[600];
    const char *base = getenv("SHEAF_FUZZ_DIR");
    uint64_t from = 0, count = 0;
    int worlds = 0;
    world *at[256];
    snprintf(scratch, sizeof scratch, "%s/sheaf-folders-XXXXXX",
             base != NULL                                     ? base
             : sheaf__path_kind("/dev/shm") == SHEAF_PATH_DIR ? "/dev/shm"
                                                              : "/tmp");
    if (mkdtemp(scratch) == NULL)
        return 3;
    snprintf(path, sizeof path, "%s/current", base != NULL ? base : scratch);
    current_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    signal(SIGPROF, on_time);
    signal(SIGPIPE, SIG_IGN);
    world *all = world_load(golden_root(recorded), scratch);
    for (world *w = all; w != NULL && worlds < 256; w = w->next) {
        at[worlds++] = w;
        begin(w, scratch);
    }
    const bool numbers =
        argc == 5 && strcmp(argv[1], "--from") == 0 && strcmp(argv[3], "--count") == 0;
    if (numbers) {
        from = strtoull(argv[2], NULL, 10);
        count = strtoull(argv[4], NULL, 10);
    } else
        count = (uint64_t)worlds * FIRST;
    int seeds = 0;
    for (int i = 1; !numbers && i < argc; i++)
        seeds += replay(at, worlds, argv[i], scratch);
    for (uint64_t n = from; n < from + count; n++) {
        const seed s = numbered(at, worlds, n);
        run(at[n % (uint64_t)worlds], &s, scratch);
    }
    const bool good = told.faults == 0 && worlds > 0;
    printf("%s - %d checkpoints, %d seeds, %" PRId64 " folders: %" PRId64 " sound, %" PRId64
           " not, %" PRId64 " faults\n",
           good ? "ok" : "not ok", worlds, seeds, told.folders, told.sound, told.refused,
           told.faults);
    world_free(all);
    close(current_fd);
    sheaf_status_free(sheaf__remove_tree(scratch));
    return !good;
}
