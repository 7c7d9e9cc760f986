/* damage_test.c - whatever happens to a file of a checkpoint, it is found and named.
 *
 * Small checkpoints of random shapes are damaged, one random damage a trial, and what is found
 * is held against what a comparison of the bytes says: a finding for the file whose size or header
 * changed, one for each tensor of which a byte changed or is gone, and no other. Undone, the next
 * trial begins. SHEAF_SOAK=1: a million trials, otherwise a sample. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/store/store.h"
#include "checkpoint/tools/verify.h"
#include "formats/safetensors.h"
#include "tests/faults/random_state.h"

enum { FILES = RANDOM_SLICES + 1, MOST_BYTES = 1 << 16, FINDINGS = 64, PER_CHECKPOINT = 500 };

/* One file as it was saved. */
typedef struct original {
    char name[32], path[128];
    char *bytes;
    int64_t size, header; /* the data begins at `header` */
    sheaf_safetensors *parsed;
} original;

static char folder[64], dir[96]; /* of the test; of the checkpoint */
static struct {
    int count;
    original file[FILES], other[FILES];
    char *manifest;
    size_t size;
} saved;
static sheaf_checkpoint *checkpoint;
static uint64_t dice;
static struct {
    int64_t trials, findings, unchanged;
} counted;

/* ---- what is found ---- */

typedef struct finding {
    char file[48], tensor[48];
} finding;
static struct {
    int count;
    finding at[FINDINGS];
} found, wanted;

static void add(void *list, const char *file, const char *tensor)
{
    struct {
        int count;
        finding at[FINDINGS];
    } *l = list;
    for (int i = 0; i < l->count; i++) /* a file may be told twice, for its size and its header */
        if (strcmp(l->at[i].file, file) == 0 && strcmp(l->at[i].tensor, tensor) == 0)
            return;
    assert_true(l->count < FINDINGS);
    snprintf(l->at[l->count].file, sizeof l->at->file, "%s", file);
    snprintf(l->at[l->count++].tensor, sizeof l->at->tensor, "%s", tensor);
}

static void note(void *context, const char *file, const char *tensor, const char *expected,
                 const char *is)
{
    if (*is == '\0')
        fail_msg("%s '%s': what is found is not said", file, tensor);
    add(&found, file, tensor);
}

/* The two lists hold the same; with `quick` the wanted ones of whole files. */
static void compare(const char *what, bool quick)
{
    int files = 0;
    for (int i = 0; i < wanted.count; i++) {
        bool there = false;
        if (quick && wanted.at[i].tensor[0] != '\0')
            continue;
        files++;
        for (int k = 0; k < found.count; k++)
            there |= strcmp(wanted.at[i].file, found.at[k].file) == 0 &&
                     strcmp(wanted.at[i].tensor, found.at[k].tensor) == 0;
        if (!there)
            fail_msg("trial %ld, %s: not found: %s '%s'", (long)counted.trials, what,
                     wanted.at[i].file, wanted.at[i].tensor);
    }
    if (found.count != files)
        fail_msg("trial %ld, %s: %d findings, wanted %d; the first is %s '%s'",
                 (long)counted.trials, what, found.count, files, found.at[0].file,
                 found.at[0].tensor);
}

/* What a file of these bytes must be told for. */
static void want_file(const original *o, const char *bytes, int64_t size)
{
    if (size != o->size ||
        memcmp(bytes, o->bytes, (size_t)(size < o->header ? size : o->header)) != 0)
        add(&wanted, o->name, "");
    for (int64_t i = 0; i < o->parsed->header.count; i++) {
        const sheaf_safetensors_entry *e = &o->parsed->header.entry[i];
        if (e->bytes > 0 &&
            (e->offset + e->bytes > size ||
             memcmp(bytes + e->offset, o->bytes + e->offset, (size_t)e->bytes) != 0))
            add(&wanted, o->name, e->name);
    }
}

static void end_trial(const char *what)
{
    compare(what, false);
    counted.trials++;
    counted.findings += wanted.count;
    counted.unchanged += wanted.count == 0;
    wanted.count = 0;
}

static void examine_folder(const char *what)
{
    sheaf_damages damages = { .found = note };
    found.count = 0;
    CHECK_OK(sheaf_checkpoint_examine(&damages, dir, true));
    compare(what, true);
    found.count = 0;
    CHECK_OK(sheaf_checkpoint_examine(&damages, dir, false));
}

/* "master/NAME" of training is NAME where people are told. */
static bool named(const sheaf_finding *f, const finding *want)
{
    char path[160];
    const char *slash = strncmp(want->tensor, "master/", 7) == 0 ? want->tensor + 7 : want->tensor;
    snprintf(path, sizeof path, "%s/%s", dir, want->file);
    return f->severity == SHEAF_DEFECT && strcmp(f->path, path) == 0 &&
           (strcmp(f->tensor, want->tensor) == 0 || strcmp(f->tensor, slash) == 0);
}

/* What `sheaf verify` says of the folder: all that is wanted, and sound only without damage. */
static void verify_folder(const char *what)
{
    sheaf_verify_report report;
    CHECK_OK(sheaf_verify(&report, dir, &(sheaf_weights_verify_options){ 0 }));
    for (int i = 0; i < wanted.count; i++) {
        bool there = false;
        for (int64_t k = 0; k < report.catalog->nfindings; k++)
            there |= named(&report.catalog->finding[k], &wanted.at[i]);
        if (!there)
            fail_msg("trial %ld, %s: verify does not name %s '%s'", (long)counted.trials, what,
                     wanted.at[i].file, wanted.at[i].tensor);
    }
    if (sheaf_verify_sound(&report) != (wanted.count == 0))
        fail_msg("trial %ld, %s: verify says %s", (long)counted.trials, what,
                 wanted.count == 0 ? report.catalog->finding[0].found : "sound");
    sheaf_verify_release(&report);
}

static void examine_file(int slice)
{
    sheaf_damages damages = { .found = note };
    found.count = 0;
    CHECK_OK(sheaf__checkpoint_examine(&damages, checkpoint, slice, false));
}

/* ---- files ---- */

static void put_bytes(const char *path, const char *bytes, int64_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && ftruncate(fd, size) == 0 && pwrite(fd, bytes, (size_t)size, 0) == size);
    close(fd);
}

static void restore(int slice)
{
    put_bytes(saved.file[slice].path, saved.file[slice].bytes, saved.file[slice].size);
}

static void open_original(original *o, const char *where, int slices, int slice)
{
    size_t size = 0;
    sheaf__manifest_file(o->name, slices, slice);
    snprintf(o->path, sizeof o->path, "%s/%s", where, o->name);
    CHECK_OK(sheaf__file_read_all(&o->bytes, &size, o->path, MOST_BYTES));
    CHECK_OK(sheaf__safetensors_open(&o->parsed, o->path));
    o->size = (int64_t)size;
    o->header = 0;
    for (int i = 7; i >= 0; i--)
        o->header = o->header << 8 | (unsigned char)o->bytes[i];
    o->header += 8;
}

static void forget(void)
{
    for (int i = 0; i < saved.count; i++) {
        sheaf__safetensors_close(saved.file[i].parsed);
        sheaf__safetensors_close(saved.other[i].parsed);
        free(saved.file[i].bytes);
        free(saved.other[i].bytes);
    }
    free(saved.manifest);
    sheaf_checkpoint_close(checkpoint);
    memset(&saved, 0, sizeof saved);
    checkpoint = NULL;
    CHECK_OK(sheaf__remove_tree(folder));
}

/* A checkpoint of shape `seed` with two steps, of which the second is damaged. */
static void begin(uint64_t seed)
{
    char path[128];
    random_state r;
    new_folder(folder);
    for (int step = 1; step <= 2; step++) {
        random_init(&r, seed, seed * 2 + (uint64_t)step, step);
        CHECK_OK(random_save(folder, &r, 0));
        saved.count = r.state.slices + 1;
        random_release(&r);
    }
    snprintf(dir, sizeof dir, "%s/checkpoints/step-00000001", folder);
    for (int i = 0; i < saved.count; i++)
        open_original(&saved.other[i], dir, saved.count - 1, i);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-00000002", folder);
    for (int i = 0; i < saved.count; i++)
        open_original(&saved.file[i], dir, saved.count - 1, i);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    CHECK_OK(sheaf__file_read_all(&saved.manifest, &saved.size, path, 1 << 20));
    CHECK_OK(sheaf_checkpoint_open(&checkpoint, dir));
    verify_folder("undamaged");
    examine_folder("undamaged");
    compare("undamaged", false);
}

/* ---- damages of one file ---- */

/* The bytes after a random change; they may be the same. */
static int64_t spoil(const char **what, char *bytes, int64_t size)
{
    const int64_t at = size > 0 ? random_below(&dice, size) : 0;
    int64_t n = size > 0 ? 1 + random_below(&dice, size - at < 64 ? size - at : 64) : 0;
    switch (random_below(&dice, 8)) {
    case 0:
    case 1:
    case 2:
        *what = "bits flipped";
        for (int64_t k = size > 0 ? 1 << random_below(&dice, 4) : 0; k > 0; k--)
            bytes[random_below(&dice, size)] ^= (char)(1 << random_below(&dice, 8));
        return size;
    case 3:
        *what = "a bit flipped";
        bytes[at] ^= (char)(1 << random_below(&dice, 8));
        return size;
    case 4: *what = "cut short"; return at;
    case 5:
        *what = "appended to";
        for (n = 1 + random_below(&dice, 64); n > 0; n--)
            bytes[size++] = (char)random_next(&dice);
        return size;
    case 6:
        *what = "a range of zeros";
        memset(bytes + at, 0, (size_t)n);
        return size;
    default:
        *what = "a range moved over another";
        memmove(bytes + random_below(&dice, size - n + 1), bytes + at, (size_t)n);
        return size;
    }
}

static void damage_one_file(bool whole_folder)
{
    static char bytes[MOST_BYTES + 64];
    const int slice = (int)random_below(&dice, saved.count);
    const char *what = "";
    const original *o = &saved.file[slice];
    memcpy(bytes, o->bytes, (size_t)o->size);
    const int64_t size = spoil(&what, bytes, o->size);
    put_bytes(o->path, bytes, size);
    want_file(o, bytes, size);
    if (whole_folder) {
        verify_folder(what);
        examine_folder(what);
    } else
        examine_file(slice);
    end_trial(what);
    restore(slice);
}

/* ---- of the manifest ---- */

static void damage_manifest(bool on_disk)
{
    static char text[1 << 20];
    char path[128];
    const char *what = "";
    memcpy(text, saved.manifest, saved.size);
    const int64_t size = spoil(&what, text, (int64_t)saved.size);
    const bool same = size == (int64_t)saved.size && memcmp(text, saved.manifest, saved.size) == 0;
    found.count = wanted.count = 0;
    if (!same)
        add(&wanted, "manifest.json", "");
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (on_disk) {
        put_bytes(path, text, size);
        verify_folder(what);
        examine_folder(what);
        put_bytes(path, saved.manifest, (int64_t)saved.size);
    } else {
        sheaf_manifest *m = NULL;
        sheaf_status *st = sheaf__manifest_read(&m, text, (size_t)size);
        if (st != NULL)
            add(&found, "manifest.json", "");
        sheaf_status_free(st);
        sheaf__manifest_free(m);
    }
    end_trial(what);
}

/* ---- of whole files ---- */

static void place(const original *at, const original *from)
{
    put_bytes(at->path, from->bytes, from->size);
    want_file(at, from->bytes, from->size);
}

static void damage_folder(void)
{
    char path[128];
    const int a = (int)random_below(&dice, saved.count), b = (int)random_below(&dice, saved.count);
    const char *what;
    snprintf(path, sizeof path, "%s/%s", dir,
             random_below(&dice, 2) == 0 ? "slice_100.safetensors" : "notes.partial-12");
    switch (random_below(&dice, 6)) {
    case 0:
        what = "two files swapped";
        place(&saved.file[a], &saved.file[b]);
        place(&saved.file[b], &saved.file[a]);
        break;
    case 1:
        what = "one file over another";
        place(&saved.file[a], &saved.file[b]);
        break;
    case 2:
        what = "a file of another step";
        place(&saved.file[a], &saved.other[a]);
        break;
    case 3:
        what = "the manifest is missing";
        snprintf(path, sizeof path, "%s/manifest.json", dir);
        assert_int_equal(unlink(path), 0);
        add(&wanted, "manifest.json", "");
        break;
    case 4:
        what = "a file is missing";
        assert_int_equal(unlink(saved.file[a].path), 0);
        add(&wanted, saved.file[a].name, "");
        break;
    default:
        what = "a foreign file";
        put_bytes(path, saved.file[a].bytes, saved.file[a].size);
        add(&wanted, strrchr(path, '/') + 1, "");
    }
    verify_folder(what);
    examine_folder(what);
    end_trial(what);
    if (strstr(path, "manifest") != NULL)
        put_bytes(path, saved.manifest, (int64_t)saved.size);
    else
        unlink(path); /* the foreign one */
    restore(a);
    restore(b);
}

/* ---- trials ---- */

TEST(test_examine__every_damage_is_found_and_named)
{
    const int64_t trials = getenv("SHEAF_SOAK") != NULL ? 1000000 : 10000 / every(5);
    for (uint64_t seed = 1; counted.trials - counted.unchanged < trials; seed++) {
        begin(seed);
        dice = seed;
        for (int i = 0; i < PER_CHECKPOINT && counted.trials - counted.unchanged < trials; i++) {
            const int64_t kind = random_below(&dice, 20);
            if (kind < 12)
                damage_one_file(false);
            else if (kind < 13)
                damage_one_file(true);
            else if (kind < 17)
                damage_manifest(false);
            else if (kind < 18)
                damage_manifest(true);
            else
                damage_folder();
        }
        examine_folder("undone");
        compare("undone", false);
        forget();
    }
    printf("# %ld damages, %ld findings, all named; %ld trials changed no byte and found nothing\n",
           (long)(counted.trials - counted.unchanged), (long)counted.findings,
           (long)counted.unchanged);
    assert_true(counted.trials - counted.unchanged >= trials);
}
