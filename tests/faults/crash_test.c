/* crash_test.c - every call that init, merge, convert, a training save and its exports make is once
 * the one that fails, moves too little or is the last of the process.
 *
 * After each the output is absent or complete (for one that replaces another: the old or the
 * new one), compared byte for byte with an undisturbed one; the sources are as they were;
 * nothing else lies about but what a dead process was writing; success was told only where it is
 * true; and the next run succeeds. SHEAF_SOAK=1: 100,000 such points, otherwise a sample. */
#include <glob.h>
#include <sys/wait.h>

#include "calls.h"
#include "denied_memory.h"
#include "tests/faults/random_state.h"
#include "tests/opened.h"

#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/tools/init.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/merge/merge.h"
#include "dialects/hf/hf.h"
#include "dialects/peft/peft.h"
#include "tests/faults/faults.h"
#include "tests/made_sat.h"

static uint64_t dice;
static random_state old_state, new_state;
static sheaf_dtype other_dtype;
static bool with_other_dtype;
static int slices, ways, threads = 1;
static int64_t shard_bytes;

/* ---- what lies in a folder ---- */

/* Names and bytes of all that is in a folder; 0 when there is none. */
static uint64_t tree(const char *path)
{
    char *text = listing_of(path);
    const uint64_t hash = *text == '\0' ? 0 : sheaf__hash(text, strlen(text)).high;
    free(text);
    return hash;
}

/* ---- random models and adapters ---- */

static const char *pick(const char *a, const char *b)
{
    return random_below(&dice, 2) == 0 ? a : b;
}

static void make_config(const char *path)
{
    const int heads = 1 << random_below(&dice, 3), kv = random_below(&dice, 2) == 0 ? 1 : heads,
              width = 2 << random_below(&dice, 2);
    sheaf_text text = { 0 };
    char *config = NULL;
    sheaf__text_add(
        &text,
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": false, \"mlp_bias\": false, "
        "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": null, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
        "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"dtype\": \"%s\", ",
        random_below(&dice, 3) == 0 ? "float16" : pick("float32", "bfloat16"));
    sheaf__text_add(
        &text,
        "\"head_dim\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"num_hidden_layers\": 1, \"vocab_size\": %d, \"tie_word_embeddings\": %s}\n",
        width, heads * width, 3 + (int)random_below(&dice, 20), heads, kv,
        5 + (int)random_below(&dice, 30), pick("true", "false"));
    CHECK_OK(sheaf__text_take(&config, &text));
    CHECK_OK(sheaf__file_write_whole(path, config, strlen(config)));
    free(config);
}

static sheaf_status *random_rows(void *context, int64_t index, int64_t row0, int64_t rows,
                                 void *dst)
{
    const sheaf_safetensors_spec *spec = (const sheaf_safetensors_spec *)context + index;
    for (int64_t i = 0; i < rows * spec->shape[1]; i++)
        ((float *)dst)[i] = (float)(int32_t)random_next(&dice) * 0x1p-33f;
    return NULL;
}

/* An adapter of the matrices of one layer, or some of them. */
static void make_adapter(const char *dst, const char *model)
{
    static const char *const module[] = { "self_attn.q_proj", "self_attn.v_proj",
                                          "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj" };
    enum { MODULES = ARRAY_LEN(module) };
    char name[MODULES * 2][96], weight[96], config[256];
    sheaf_safetensors_spec spec[MODULES * 2];
    sheaf_source *base = NULL;
    sheaf_folder *folder = NULL;
    const int rank = 1 + (int)random_below(&dice, 5), count = 1 + (int)random_below(&dice, MODULES);
    sheaf_text targets = { 0 };
    CHECK_OK(open_stored(&base, model));
    for (int i = 0; i < count; i++) {
        snprintf(weight, sizeof weight, "model.layers.0.%s.weight", module[i]);
        const sheaf_source_entry *e = base->find(base, weight);
        assert_non_null(e);
        for (int b = 0; b < 2; b++) {
            snprintf(name[2 * i + b], sizeof name[0],
                     "base_model.model.model.layers.0.%s.lora_%c.weight", module[i],
                     b == 0 ? 'A' : 'B');
            spec[2 * i + b] = (sheaf_safetensors_spec){ name[2 * i + b],
                                                        SHEAF_F32,
                                                        2,
                                                        { b == 0 ? rank : e->shape[0],
                                                          b == 0 ? e->shape[1] : rank } };
        }
        sheaf__text_add(&targets, "%s\"%s\"", i == 0 ? "" : ", ", strchr(module[i], '.') + 1);
    }
    base->close(base);
    snprintf(
        config, sizeof config,
        "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"r\": %d, \"lora_alpha\": 8, "
        "\"lora_dropout\": 0.0, \"bias\": \"none\", \"target_modules\": [%s]}",
        rank, targets.at);
    sheaf__text_release(&targets);
    CHECK_OK(sheaf_peft_begin(&folder, dst, config, NULL, spec, 2 * count, false));
    CHECK_OK(sheaf__folder_write_all(folder, random_rows, spec, 0));
    CHECK_OK(sheaf__folder_commit(folder));
}

/* A SAT folder of a model of either class, in one or more parts. */
static void make_sat(const char *dst)
{
    made m = { .agent = random_below(&dice, 2) == 0,
               .layers = 1,
               .heads = 4,
               .head = 2,
               .ffn = 4,
               .vocab = 4 + 4 * random_below(&dice, 6),
               .vit_layers = 1,
               .vit_heads = 4,
               .vit_ffn = 4,
               .cross = 2,
               .dtype = random_below(&dice, 2) == 0 ? SHEAF_BF16 : SHEAF_F32,
               .seed = random_next(&dice) };
    made_init(&m);
    made_write(&m, dst, 1 << random_below(&dice, 2), 5);
    made_release(&m);
}

static void make_sources(void)
{
    sheaf_weights_init_report report;
    sheaf_weights_convert_report converted;
    make_config(at("src/config.json"));
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){ .spec = at("src/config.json"),
                                                                .dst = at("src/model"),
                                                                .seed = dice }));
    make_adapter(at("src/adapter"), at("src/model"));
    with_other_dtype = random_below(&dice, 2) == 0;
    other_dtype = (sheaf_dtype[]){ SHEAF_F32, SHEAF_BF16, SHEAF_F16 }[random_below(&dice, 3)];
    slices = 1 << random_below(&dice, 4);
    ways = 1 << random_below(&dice, 3);
    shard_bytes = 200 + random_below(&dice, 2000);
    make_sat(at("src/sat"));
    CHECK_OK(sheaf_convert(&converted, &(sheaf_weights_convert_options){ .src = at("src/model"),
                                                                         .dst = at("src/own"),
                                                                         .to = "sheaf",
                                                                         .slices = slices,
                                                                         .step = 7 }));
    const uint64_t shapes = random_next(&dice);
    random_release(&old_state);
    random_release(&new_state);
    random_init(&old_state, shapes, 1, 1);
    random_init(&new_state, shapes, 2, 2);
}

/* ---- the jobs; each writes into root/out ---- */

typedef struct job {
    const char *name;
    const char *dst;       /* of what appears at once */
    const char *before;    /* what it replaces; NULL = nothing was there */
    void (*prepare)(void); /* root/out is empty; may be NULL */
    sheaf_status *(*run)(void);
} job;

static sheaf_status *run_init(void)
{
    sheaf_weights_init_report report;
    return sheaf_init(&report, &(sheaf_weights_init_options){
                                   .spec = at("src/config.json"),
                                   .dst = at("out/new/deep/dst"),
                                   .seed = 3,
                                   .dtype = with_other_dtype ? other_dtype : SHEAF_BOOL,
                                   .threads = threads });
}

static sheaf_status *run_merge(void)
{
    sheaf_weights_merge_report report;
    const char *adapter = at("src/adapter");
    return sheaf_merge(&report, &(sheaf_weights_merge_options){
                                    .base = at("src/model"),
                                    .adapters = &adapter,
                                    .nadapters = 1,
                                    .dst = at("out/dst"),
                                    .dtype = with_other_dtype ? other_dtype : SHEAF_BOOL,
                                    .threads = threads });
}

static sheaf_status *convert(const char *src, sheaf_weights_convert_options how)
{
    sheaf_weights_convert_report report;
    how.src = src;
    how.dst = at("out/dst");
    how.threads = threads;
    how.dtype = with_other_dtype ? other_dtype : SHEAF_BOOL;
    return sheaf_convert(&report, &how);
}

static sheaf_status *to_sheaf(void)
{
    return convert(at("src/model"),
                   (sheaf_weights_convert_options){ .to = "sheaf", .slices = slices });
}
static sheaf_status *to_hf(void)
{
    return convert(at("src/own"),
                   (sheaf_weights_convert_options){ .to = "hf", .shard_bytes = shard_bytes });
}
static sheaf_status *to_sat(void)
{
    return convert(at("src/sat"), (sheaf_weights_convert_options){ .to = "sat", .tp = ways });
}

static void save_old(void)
{
    CHECK_OK(random_save(at("out"), &old_state, 0));
}
static sheaf_status *run_save(void)
{
    return random_save(at("out"), &new_state, 0);
}
static sheaf_status *run_save_keep(void)
{
    return random_save(at("out"), &new_state, 1);
}

/* As a run exports its result over that of the run before. */
static sheaf_status *export(float value)
{
    static const sheaf_safetensors_spec spec[] = { { "x", SHEAF_F32, 2, { 3, 4 } },
                                                   { "y", SHEAF_F32, 1, { 9 } } };
    float rows[12];
    sheaf_folder *folder = NULL;
    sheaf_status *st = sheaf__output_sweep(at("out/dst"), NULL);
    if (st == NULL)
        st = sheaf_hf_begin(&folder, at("out/dst"), value == 0 ? "{}" : "{\"a\": 1}", spec, 2,
                            &(sheaf_folder_options){ .shard_bytes = 48, .replace = true });
    if (st != NULL)
        return st;
    for (int i = 0; i < 12; i++)
        rows[i] = value;
    st = sheaf__folder_write(folder, 0, 0, 3, 0, 4, rows);
    if (st == NULL)
        st = sheaf__folder_write(folder, 1, 0, 9, 0, 1, rows);
    if (st == NULL)
        return sheaf__folder_commit(folder);
    sheaf__folder_abandon(folder);
    return st;
}

static void export_old(void)
{
    CHECK_OK(export(0));
}
static sheaf_status *run_export(void)
{
    return export(1);
}

static const job jobs[] = {
    { "init", "out/new/deep/dst", NULL, NULL, run_init },
    { "merge", "out/dst", NULL, NULL, run_merge },
    { "convert to sheaf", "out/dst", NULL, NULL, to_sheaf },
    { "convert to hf", "out/dst", NULL, NULL, to_hf },
    { "convert to sat", "out/dst", NULL, NULL, to_sat },
    { "save", "out/checkpoints/step-00000002", NULL, save_old, run_save },
    { "save, keep 1", "out/checkpoints/step-00000002", NULL, save_old, run_save_keep },
    { "export", "out/dst", "out/dst", export_old, run_export },
};

/* ---- what may be there afterwards ---- */

static struct {
    uint64_t wanted, before, sources, step_1;
} know;
static const char *current_job, *current_plan;
static long current_n;

static void wrong(const char *what, const char *name)
{
    fail_msg("%s, %s %ld: %s %s", current_job, current_plan, current_n, what, name);
}

static void start(const job *j)
{
    CHECK_OK(sheaf__remove_tree(at("out")));
    CHECK_OK(sheaf__make_dir(at("out")));
    if (j->prepare != NULL)
        j->prepare();
}

/* Nothing beside the output but `allowed`: a lock, older steps, and where `partial` what is
 * unfinished. */
static void check_beside(const job *j, bool partial)
{
    char **names = NULL, *parent = NULL;
    int64_t n = 0;
    CHECK_OK(sheaf__path_parent(&parent, at(j->dst)));
    if (sheaf__path_kind(parent) == SHEAF_PATH_DIR)
        CHECK_OK(sheaf__list_dir(&names, &n, parent));
    for (int64_t i = 0; i < n; i++)
        if (strcmp(names[i], strrchr(j->dst, '/') + 1) != 0 && strcmp(names[i], "lock") != 0 &&
            strcmp(names[i], "step-00000001") != 0 &&
            strncmp(names[i], "step-00000001.partial-", 22) !=
                0 /* its removal failed, which is only a warning */
            && strstr(names[i], ".replaced-") == NULL /* check_output() wants it there */
            && !(partial && sheaf__path_is_partial(names[i])))
            wrong("left over:", names[i]);
    sheaf__names_free(names, n);
    free(parent);
}

/* What is at "DST.replaced-...", 0 if nothing. */
static uint64_t replaced(const job *j)
{
    char pattern[300];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.replaced-*", at(j->dst));
    const uint64_t is =
        glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1 ? tree(found.gl_pathv[0]) : 0;
    globfree(&found);
    return is;
}

/* The output as it may be found: absent, old or new. True when it is the new one. */
static bool check_output(const job *j, bool between_renames)
{
    const uint64_t is = tree(at(j->dst));
    if (is == know.wanted)
        return true;
    if (is != know.before && !(is == 0 && between_renames && replaced(j) == know.before))
        wrong(is == 0 ? "nothing at" : "a half or mixed state at", j->dst);
    return false;
}

/* A whole older step, or none where it may be removed once the new one is there. */
static void check_older(const job *j, bool complete)
{
    if (know.step_1 == 0)
        return;
    const uint64_t is = tree(at("out/checkpoints/step-00000001"));
    if (is != know.step_1 && !(is == 0 && complete && j->run == run_save_keep))
        wrong("the step before is not what it was:", "step-00000001");
}

static void run_again(const job *j, bool complete)
{
    if (complete && j->before == NULL &&
        j->prepare == NULL) /* there already: it would be refused */
        return;
    CHECK_OK(j->run());
    if (!check_output(j, false))
        wrong("the next run did not write", j->dst);
    check_older(j, true);
    check_beside(j, false); /* what a dead process left is gone */
}

/* ---- faults ---- */

typedef struct plan {
    const char *name;
    call_kind kind;
    call_fate fate;
    int error;
    bool from_then_on, legal; /* legal: the job must succeed all the same */
    bool no_exchange;         /* on a file system that cannot exchange two names */
} plan;

static const plan plans[] = {
    { "dies at call", CALL_ANY, FATE_DIE, 0, false, false },
    { "without exchange, dies at call", CALL_ANY, FATE_DIE, 0, false, false, true },
    { "without exchange, rename fails", CALL_RENAME, FATE_FAIL, EIO, false, false, true },
    { "dies within write", CALL_WRITE, FATE_TORN, 0, false, false },
    { "open fails", CALL_OPEN, FATE_FAIL, EIO, false, false },
    { "no descriptors from open", CALL_OPEN, FATE_FAIL, EMFILE, true, false },
    { "interrupted open", CALL_OPEN, FATE_FAIL, EINTR, false, true },
    { "read fails", CALL_READ, FATE_FAIL, EIO, false, false },
    { "short read", CALL_READ, FATE_SHORT, 0, false, true },
    { "interrupted read", CALL_READ, FATE_FAIL, EINTR, false, true },
    { "write fails", CALL_WRITE, FATE_FAIL, EIO, false, false },
    { "disk full at write", CALL_WRITE, FATE_FAIL, ENOSPC, true, false },
    { "short write", CALL_WRITE, FATE_SHORT, 0, false, true },
    { "interrupted write", CALL_WRITE, FATE_FAIL, EINTR, false, true },
    { "interrupted sync", CALL_SYNC, FATE_FAIL, EINTR, false, true },
    { "sync fails", CALL_SYNC, FATE_FAIL, EIO, false, false },
    { "no sync from", CALL_SYNC, FATE_FAIL, EIO, true, false },
    { "rename fails", CALL_RENAME, FATE_FAIL, EIO, false, false },
    { "no rename from", CALL_RENAME, FATE_FAIL, ENOSPC, true, false },
    { "unknown rename", CALL_RENAME, FATE_FAIL, EINVAL, false, false },
    { "folder fails", CALL_MKDIR, FATE_FAIL, EIO, false, false },
    { "folder on a full disk", CALL_MKDIR, FATE_FAIL, ENOSPC, true, false },
    { "removal fails", CALL_UNLINK, FATE_FAIL, EIO, false, false },
    { "no removal from", CALL_UNLINK, FATE_FAIL, EIO, true, false },
    { "no mapping", CALL_MMAP, FATE_FAIL, ENOMEM, false, false },
};

/* What was told to be done would survive a power failure. */
static void check_durable(void)
{
    assert_false(calls.overflow);
    if (calls.lost[0] != '\0')
        wrong("renamed before it was synced:", calls.lost);
    for (int k = 0; k < calls.unsynced_count; k++)
        if (strstr(calls.unsynced[k].path, "/lock") == NULL) /* is nothing but held */
            wrong("told to be done before it was synced:", calls.unsynced[k].path);
}

static struct {
    int64_t points, died, failed, succeeded, denied;
} tally;

/* In this process, or in another one where it is to die. Returns whether it came to the n-th
 * call. */
static bool disturbed(const job *j, const plan *p, long n, bool *ok, bool *died)
{
    *died = false;
    calls_no_exchange = p->no_exchange;
    if (p->fate == FATE_DIE || p->fate == FATE_TORN) {
        int status = 0;
        const pid_t pid = fork();
        if (pid == 0) {
            calls_begin(p->kind, n, p->from_then_on, p->fate, p->error);
            sheaf_status *st = j->run();
            _exit(st == NULL ? 0 : 1);
        }
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        *died = WEXITSTATUS(status) == CALL_DIED;
        *ok = WEXITSTATUS(status) == 0;
        return *died;
    }
    calls_begin(p->kind, n, p->from_then_on, p->fate, p->error);
    sheaf_status *st = j->run();
    calls_end();
    *ok = st == NULL;
    sheaf_status_free(st);
    if (*ok)
        check_durable();
    return calls.seen[p->kind] >= n;
}

static void check_after(const job *j, bool ok, bool died, bool legal, bool kept_from_removing)
{
    const bool complete = check_output(j, died && calls_no_exchange);
    if (ok && !complete)
        wrong("success was told, but there is no", j->dst);
    if (legal && !ok)
        wrong("a legal call stopped", j->name);
    check_older(j, complete);
    /* where only the last sync failed, what was replaced stays beside it */
    check_beside(j, died || kept_from_removing || (complete && !ok && j->before != NULL));
    if (tree(at("src")) != know.sources)
        wrong("the sources changed:", "src");
    run_again(j, complete);
    tally.points++;
    tally.died += died;
    tally.failed += !ok && !died;
    tally.succeeded += ok;
}

/* Calls of one kind that an undisturbed run makes. */
static long calls_of(const job *j, call_kind kind, bool no_exchange)
{
    start(j);
    calls_no_exchange = no_exchange;
    calls_begin(kind, 0, false, FATE_PASS, 0);
    CHECK_OK(j->run());
    calls_end();
    return calls.seen[kind];
}

/* Every n, or `some` of them, the first and the last among them. */
static long next_n(long n, long all, long some)
{
    const long step = some <= 0 || all <= some ? 1 : 1 + (long)random_below(&dice, 2 * all / some);
    return n < all && n + step > all ? all : n + step;
}

static void try_plan(const job *j, const plan *p, long some)
{
    if (p->no_exchange && j->before == NULL)
        return;
    const long all = calls_of(j, p->kind, p->no_exchange);
    current_plan = p->name;
    for (long n = 1; n <= all; n = next_n(n, all, some)) {
        bool ok, died;
        current_n = n;
        start(j);
        if (!disturbed(j, p, n, &ok, &died))
            wrong("not reached:", j->name);
        /* a folder is opened to be removed */
        check_after(j, ok, died, p->legal,
                    p->kind == CALL_UNLINK ||
                        (p->kind == CALL_OPEN && (p->from_then_on || j->before != NULL)));
    }
}

/* The n-th allocation fails, with `rest` all later ones too; false when there are fewer. */
static bool deny(const job *j, long n, bool rest, bool *ok, long *live)
{
    sheaf_faults hook = {
        SHEAF_FAULT_MALLOC, n > 0 ? SHEAF_FAULT_FAIL : SHEAF_FAULT_NONE, n, rest, 0, NULL
    };
    start(j);
    deny_begin(n);
    atomic_store(&deny_rest, rest);
    sheaf_status *st = UNDER(DENIED_MEMORY_WORKS ? NULL : &hook, j->run());
    *ok = st == NULL;
    sheaf_status_free(st);
    deny_end();
    *live = atomic_load(&deny_live);
    return (DENIED_MEMORY_WORKS ? atomic_load(&deny_seen) : (long)hook.seen) >= n;
}

static void try_memory(const job *j, bool rest, long some)
{
    bool ok;
    long live;
    current_plan = rest ? "no memory from allocation" : "allocation denied";
    calls_no_exchange = false;
    deny(j, 0, false, &ok, &live); /* what is made once */
    deny(j, 0, false, &ok, &live);
    if (live != 0)
        fail_msg("%s, allocation %ld denied: %ld blocks were not given back", j->name, 0l, live);
    const long all = DENIED_MEMORY_WORKS ? atomic_load(&deny_seen) : 10;
    for (long n = 1; n <= all; n = next_n(n, all, some)) {
        current_n = n;
        if (!deny(j, n, rest, &ok, &live))
            return;
        if (live != 0)
            fail_msg("%s, allocation %ld denied: %ld blocks were not given back", j->name, n, live);
        check_after(j, ok, false, false, true); /* removing needs memory too */
        tally.denied++;
    }
}

/* The n-th call of the file layer, whichever of several threads makes it. */
static void try_threads(const job *j, sheaf_fault_action action, long some)
{
    const bool dies = action == SHEAF_FAULT_KILL || action == SHEAF_FAULT_TORN;
    sheaf_faults count = { .op = SHEAF_FAULT_ANY };
    start(j);
    CHECK_OK(UNDER(&count, j->run()));
    const long all = (long)count.seen;
    current_plan = dies ? "several threads, killed at call" : "several threads, failing call";
    calls_no_exchange = false;
    for (long n = 1; n <= all; n = next_n(n, all, some)) {
        sheaf_faults faults = { SHEAF_FAULT_ANY, action, n, action == SHEAF_FAULT_ENOSPC, 0, NULL };
        bool ok, died = false;
        current_n = n;
        start(j);
        if (dies) {
            int status = 0;
            const pid_t pid = fork();
            if (pid == 0) {
                sheaf_status *st = UNDER(&faults, j->run());
                _exit(st == NULL ? 0 : 1);
            }
            assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
            died = WIFSIGNALED(status);
            ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        } else {
            sheaf_status *st = UNDER(&faults, j->run());
            ok = st == NULL;
            sheaf_status_free(st);
        }
        check_after(j, ok, died, false,
                    faults.from_then_on || j->before != NULL); /* or it was a removal that failed */
    }
}

/* ---- trials ---- */

static void learn(const job *j)
{
    current_job = j->name;
    current_plan = "undisturbed";
    know.sources = tree(at("src"));
    start(j);
    know.before = j->before == NULL ? 0 : tree(at(j->before));
    know.step_1 = tree(at("out/checkpoints/step-00000001"));
    CHECK_OK(j->run());
    know.wanted = tree(at(j->dst));
    assert_true(know.wanted != 0 && know.wanted != know.before);
}

static void new_root(uint64_t seed)
{
    if (scratch.dir[0] != '\0')
        CHECK_OK(sheaf__remove_tree(scratch.dir));
    new_folder(scratch.dir);
    CHECK_OK(sheaf__make_dir(at("src")));
    dice = seed;
    make_sources();
}

/* Killing cannot show a missing sync; the order of calls does. */
TEST(test_output__all_is_on_disk_before_it_has_its_name)
{
    char manifest[500];
    for (uint64_t seed = 1; seed <= (uint64_t)(20 / every(4)); seed++) {
        new_root(seed);
        for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
            const job *j = &jobs[i];
            learn(j);
            start(j);
            calls_begin(CALL_ANY, 0, false, FATE_PASS, 0);
            CHECK_OK(j->run());
            calls_end();
            check_durable();
            snprintf(manifest, sizeof manifest, "%s/manifest.json", at(j->dst));
            if (sheaf__path_kind(manifest) == SHEAF_PATH_FILE &&
                strcmp(strrchr(calls.newest, '/'), "/manifest.json") != 0)
                wrong("made after the manifest:", calls.newest);
        }
    }
}

TEST(test_output__any_call_may_be_the_last)
{
    const bool soak = getenv("SHEAF_SOAK") != NULL;
    for (uint64_t seed = 1; tally.points - tally.denied < (soak ? 100000 : 300); seed++) {
        new_root(seed);
        for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
            learn(&jobs[i]);
            for (size_t p = 0; p < ARRAY_LEN(plans); p++)
                try_plan(&jobs[i], &plans[p], soak ? 0 : 4 / every(2));
            for (int rest = 0; rest < 2; rest++)
                try_memory(&jobs[i], rest != 0, soak && seed == 1 ? 0 : soak ? 40 : 6 / every(2));
            threads = 2 + (int)random_below(&dice, 3);
            for (sheaf_fault_action a = SHEAF_FAULT_FAIL; a <= SHEAF_FAULT_TORN; a++)
                try_threads(&jobs[i], a, soak ? 30 : 4 / every(2));
            threads = 1;
        }
    }
    printf(
        "# %ld points besides %ld denied allocations: %ld deaths, %ld failures, %ld went on, 0 half or mixed states\n",
        (long)(tally.points - tally.denied), (long)tally.denied, (long)tally.died,
        (long)tally.failed, (long)tally.succeeded);
    assert_true(tally.died > tally.points / 20 && tally.failed > tally.points / 10 &&
                tally.succeeded > tally.points / 10);
}

static int teardown(void **state)
{
    random_release(&old_state);
    random_release(&new_state);
    sheaf_status_free(sheaf__remove_tree(scratch.dir));
    return 0;
}

FIXTURE(NULL, teardown);
