/* plan_print.c - prints the result of `sheaf plan` as text, from its JSON: see plan_print.h. */
#include "plan_print.h"

#include "base/print.h"

static double real(const json_t *of, const char *key)
{
    return json_number_value(json_object_get(of, key));
}

static long long whole(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

static double mib(double bytes)
{
    return bytes / 1048576;
}

static const char *more(long long n)
{
    return n == 1 ? "" : "s";
}

/* ---- by rank ---- */

/* A number, or the sum of all that an object has. */
static double sum_of(json_t *value)
{
    double sum = json_number_value(value);
    for (void *at = json_object_iter(value); at != NULL; at = json_object_iter_next(value, at))
        sum += sum_of(json_object_iter_value(at));
    return sum;
}

static void print_row(const cli *cli, const json_t *ranks, const char *key, const char *name,
                      double unit)
{
    sheaf__print(cli->out, "\n%-17s", name);
    for (size_t r = 0; r < json_array_size(ranks); r++)
        sheaf__print(cli->out, "%10.1f", real(json_array_get(ranks, r), key) / unit);
}

static void print_kinds(const cli *cli, const json_t *ranks)
{
    const char *kind;
    for (int k = 0; (kind = sheaf_needs_kind(k)) != NULL; k++) {
        char name[32];
        snprintf(name, sizeof name, "  %s", kind);
        print_row(cli, ranks, strcmp(kind, "exchange") == 0 ? "exchange_buffers" : kind, name,
                  1048576);
    }
}

/* For each: bytes held from the first step to the last. */
static void print_components(const cli *cli, const json_t *ranks)
{
    json_t *names = json_object_get(json_array_get(ranks, 0), "components");
    for (void *at = json_object_iter(names); at != NULL; at = json_object_iter_next(names, at)) {
        const char *name = json_object_iter_key(at);
        double all = 0, held[SHEAF_MAX_SLICES];
        for (size_t r = 0; r < json_array_size(ranks); r++)
            all += held[r] = sum_of(
                json_object_get(json_object_get(json_array_get(ranks, r), "components"), name));
        if (all > 0)
            sheaf__print(cli->out, "\n  %-15s", name);
        for (size_t r = 0; all > 0 && r < json_array_size(ranks); r++)
            sheaf__print(cli->out, "%10.1f", mib(held[r]));
    }
    sheaf__print(cli->out, "\n  %-15s", "during a step");
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        const json_t *rank = json_array_get(ranks, r);
        sheaf__print(cli->out, "%10.1f",
                     mib(real(rank, "peak") - sum_of(json_object_get(rank, "components"))));
    }
}

static void print_sizes(const cli *cli, const json_t *all, const char *adapter)
{
    const json_t *of = json_object_get(all, "adapter");
    if (adapter != NULL)
        sheaf__print(
            cli->out,
            "%s; in training the copies take %.1f MiB of masters, %.1f of gradients and %.1f of moments, all ranks together\n",
            adapter, mib(real(of, "copies_trained")), mib(real(of, "copies_gradients")),
            mib(real(of, "copies_optimizer")));
}

static void print_images(const cli *cli, const json_t *all, bool pictures)
{
    const long long images = whole(all, "images"), image = whole(all, "image"),
                    rows = whole(all, "micro_batch");
    if (images == rows)
        sheaf__print(cli->out, " (%lld of each an image)", image);
    else if (images > rows)
        sheaf__print(cli->out, " (at most %lld images, each %lld of them)", images, image);
    else if (pictures)
        sheaf__print(cli->out, images == 0 ? " (no images)" : " (%lld of at most %lld an image)",
                     image, images);
}

static void print_setting(const cli *cli, const cli_plan *q, const json_t *all, int ranks)
{
    const long long tp = whole(all, "tp"), dp = whole(all, "dp");
    const char *sums = json_string_value(json_object_get(all, "sums"));
    sheaf__print(cli->out,
                 "%.2f million parameters, %.3f million trained (%.4g %%); %lld x %lld tokens",
                 real(all, "parameters") / 1e6, real(all, "trained") / 1e6,
                 100 * real(all, "trained_share"), whole(all, "micro_batch"), whole(all, "seq"));
    print_images(cli, all, q->facts.pictures);
    if (real(all, "padding") >= 0.0005)
        sheaf__print(cli->out, " in the longest micro-batch, %.1f %% of all positions padding",
                     100 * real(all, "padding"));
    sheaf__print(cli->out, ", %s%s%s, ", sheaf_dtype_torch_name(q->dtype),
                 sums == NULL ? "" : " by ", sums == NULL ? "" : sums);
    if (dp > 1)
        sheaf__print(cli->out, "%lld groups of %lld rank%s", dp, tp, more(tp));
    else
        sheaf__print(cli->out, "%d rank%s", ranks, more(ranks));
    sheaf__print(cli->out, " of %d slice%s%s\n", q->slices, more(q->slices),
                 json_is_true(json_object_get(all, "checkpointing")) ? ", checkpointing" : "");
}

enum { FEW_RANKS = 8 };

/* To whom, where that is not plain. */
static void print_sent_to(const cli *cli, const json_t *ranks, int n)
{
    for (int to = 0; n > 2 && n <= FEW_RANKS && to < n; to++) {
        sheaf__print(cli->out, "\n  to rank %-7d", to);
        for (int r = 0; r < n; r++) {
            const json_t *list = json_object_get(json_array_get(ranks, (size_t)r), "sent_to");
            sheaf__print(cli->out, "%10.1f",
                         mib(json_number_value(json_array_get(list, (size_t)to))));
        }
    }
}

static void print_ranks(const cli *cli, const cli_plan *q, const json_t *all)
{
    const json_t *ranks = json_object_get(all, "ranks");
    const int n = (int)json_array_size(ranks), tp = (int)whole(all, "tp");
    const bool place = q->ask.place != NULL;
    print_setting(cli, q, all, n);
    for (int r = 0; place && r < n; r += tp) {
        const json_t *rank = json_array_get(ranks, (size_t)r);
        const long long first = whole(rank, "first_layer");
        sheaf__print(cli->out, "stage %lld, ranks %d to %d: layers %lld to %lld\n",
                     whole(rank, "stage"), r, r + tp - 1, first, first + whole(rank, "layers") - 1);
    }
    sheaf__print(cli->out, "MiB by rank      ");
    for (int r = 0; r < n; r++)
        sheaf__print(cli->out, "%10d", r);
    if (q->by == CLI_PLAN_BY_KIND)
        print_kinds(cli, ranks);
    else
        print_components(cli, ranks);
    print_row(cli, ranks, "peak", "  peak", 1048576);
    print_row(cli, ranks, "flops_per_step", place ? "GFLOP" : "GFLOP a step", 1e9);
    print_row(cli, ranks, "sent_per_step", "MiB sent", 1048576);
    if (!place)
        print_sent_to(cli, ranks, n);
    if (whole(all, "dp") > 1) { /* sums within a group, gradients and weights between them */
        print_row(cli, ranks, "sent_sums", "  sums", 1048576);
        print_row(cli, ranks, "sent_gradients", "  gradients", 1048576);
        print_row(cli, ranks, "sent_weights", "  weights", 1048576);
    }
    if (json_is_true(json_object_get(all, "apart")))
        sheaf__print(
            cli->out,
            "\nof a GPU's memory at most %.1f MiB for a rank; beside the ranks %.1f MiB of "
            "the host's\n",
            mib(real(all, "largest_rank")), mib(real(all, "host")));
    else
        sheaf__print(cli->out,
                     "\nall ranks in one process: %.1f MiB (%.1f MiB of it beside the ranks)\n",
                     mib(real(all, "peak")), mib(real(all, "host")));
    if (whole(all, "offloaded") > 0)
        sheaf__print(cli->out, "offloaded: %.1f MiB\n", mib(real(all, "offloaded")));
    if (json_object_get(all, "checkpoint_bytes") != NULL)
        sheaf__print(cli->out, "on disk: %.1f MiB a checkpoint, %.1f MiB the result\n",
                     mib(real(all, "checkpoint_bytes")), mib(real(all, "result_bytes")));
    print_sizes(cli, all, q->facts.adapter);
}

/* ---- what fits ---- */

static double gib_or_mib(double bytes, const char **unit)
{
    const bool gib = bytes >= 1073741824;
    *unit = gib ? "GiB" : "MiB";
    return mib(bytes) / (gib ? 1024 : 1);
}

static void note(const cli *cli, sheaf_text *line)
{
    if (!line->failed)
        sheaf_note(&cli->events, "%s", line->at);
    sheaf__text_release(line);
}

/* The changed flags of the proposal, beside --tp. */
static void print_fit(const cli *cli, const cli_plan *q, const json_t *all)
{
    const json_t *to = json_object_get(all, "proposal"),
                 *helps = json_object_get(all, "would_help");
    const char *whose = json_string_value(json_object_get(all, "memory_of")), *unit, *missing_unit;
    const double memory = gib_or_mib(real(all, "memory"), &unit);
    sheaf_text text = { 0 };
    if (q->facts.fits) {
        const long long rows = whole(to, "micro_batch"), times = whole(to, "accumulate"),
                        larger = whole(all, "larger_micro_batch");
        sheaf__text_add(&text, "fits: --tp %lld", whole(to, "tp"));
        if (whole(to, "dp") != q->requested.dp)
            sheaf__text_add(&text, " --dp %lld", whole(to, "dp"));
        if (json_is_true(json_object_get(to, "checkpointing")))
            sheaf__text_add(&text, " --checkpointing");
        if (json_object_get(to, "keep_activations") != NULL)
            sheaf__text_add(&text, " --keep-activations %s",
                            json_string_value(json_object_get(to, "keep_activations")));
        if (json_object_get(to, "offload") != NULL)
            sheaf__text_add(&text, " --offload %s",
                            json_string_value(json_object_get(to, "offload")));
        if (rows != q->requested.micro_batch)
            sheaf__text_add(&text, " --micro-batch %lld --accumulate %lld", rows, times);
        if (q->seq != q->requested.seq)
            sheaf__text_add(&text, " --seq %lld%s", (long long)q->seq,
                            q->has_data ? " (longer rows must be cut)" : "");
        if (larger > 0)
            sheaf__text_add(&text, "; --micro-batch %lld --accumulate %lld fits too", larger,
                            rows * times / larger);
        const double need = gib_or_mib((double)q->facts.need, &unit);
        if (whole(all, "gpus") > 1)
            sheaf__text_add(&text, " (%.4g %s on each of %lld GPUs)", need, unit,
                            whole(all, "gpus"));
        else
            sheaf__text_add(&text, " (%.4g %s of one %s)", need, unit, whose);
    } else {
        const double missing = gib_or_mib(real(all, "misses_by"), &missing_unit);
        sheaf__text_add(&text, "no setting");
        if (q->ask.slots != NULL)
            sheaf__text_add(&text, " up to %lld ranks", whole(all, "tp"));
        sheaf__text_add(&text, " fits %.4g %s of one %s; the smallest misses by %.4g %s", memory,
                        unit, whose, missing, missing_unit);
    }
    note(cli, &text);
    for (size_t i = 0; i < json_array_size(helps); i++) {
        const json_t *help = json_array_get(helps, i);
        const double then = gib_or_mib(real(help, "largest_rank"), &unit);
        sheaf__text_add(&text, "with %s: %.4g %s, which %s",
                        json_string_value(json_object_get(help, "flags")), then, unit,
                        json_is_true(json_object_get(help, "fits")) ? "fits"
                                                                    : "does not fit either");
        note(cli, &text);
    }
}

/* ---- how long it takes ---- */

/* "3.2 hours" */
static void print_duration(FILE *to, double hours)
{
    const double minutes = 60 * hours;
    sheaf__print(to, "%.3g %s\n",
                 minutes < 1     ? 60 * minutes
                 : minutes < 120 ? minutes
                                 : hours,
                 minutes < 1     ? "seconds"
                 : minutes < 120 ? "minutes"
                                 : "hours");
}

static void print_work(const cli *cli, const json_t *all)
{
    const json_t *trial = json_object_get(all, "trial");
    const long long rows = whole(all, "rows"), epoch = whole(all, "epoch_steps"),
                    steps = whole(all, "steps");
    const double tokens = real(all, "tokens");
    const bool many = tokens >= 1e5;
    sheaf__print(cli->out,
                 "data: %lld row%s, %lld tokens, %lld of them labels; an epoch is %lld step%s; "
                 "%lld step%s read %.*f%s tokens\n",
                 rows, more(rows), whole(all, "epoch_tokens"), whole(all, "epoch_labels"), epoch,
                 more(epoch), steps, more(steps), many ? 2 : 0, many ? tokens / 1e6 : tokens,
                 many ? " million" : "");
    if (trial == NULL)
        return;
    sheaf__print(cli->out, "trial: %lld step%s in %.1f s, %.0f tokens/s; the run would take ",
                 whole(trial, "steps"), more(whole(trial, "steps")), real(trial, "seconds"),
                 real(trial, "tokens_per_s"));
    print_duration(cli->out, real(all, "hours"));
}

static void print_parts(const cli *cli, const json_t *seconds, double step)
{
    static const char *const names[][2] = {
        { "products", "products" },     { "attention", "attention" }, { "head", "head and loss" },
        { "elements", "element-wise" }, { "optimizer", "optimizer" }, { "beside", "reading" },
        { "waiting", "waiting" }
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const double part = real(seconds, names[i][0]);
        if (part >= 0.0005 * step)
            sheaf__print(cli->out, "  %-15s%10.4g ms%7.1f %%\n", names[i][1], 1e3 * part,
                         100 * part / step);
    }
}

static void print_time(const cli *cli, const json_t *time)
{
    const json_t *seconds = json_object_get(time, "seconds");
    const double step = real(time, "step"), prompt = real(time, "prompt"),
                 token = real(time, "token");
    const long long batch = whole(time, "batch"), steps = whole(time, "steps");
    if (prompt > 0) {
        sheaf__print(cli->out, "time: %lld prompt%s of %.0f tokens in %.4g ms, %.4g tokens/s\n",
                     batch, more(batch), real(time, "prompt_tokens") / (double)batch, 1e3 * prompt,
                     real(time, "prompt_tokens_per_s"));
        print_parts(cli, json_object_get(time, "prompt_seconds"), prompt);
        sheaf__print(
            cli->out,
            "a token of each: %.4g ms, %.4g tokens/s; %lld of them after a prompt: %.4g s\n",
            1e3 * token, real(time, "tokens_per_s"), whole(time, "max_new"), real(time, "all"));
        print_parts(cli, seconds, token);
        return;
    }
    sheaf__print(cli->out, "time: %.4g ms a step, %.4g tokens/s\n", 1e3 * step,
                 real(time, "tokens_per_s"));
    print_parts(cli, seconds, step);
    if (steps == 0)
        return;
    sheaf__print(cli->out, "  %lld step%s would take ", steps, more(steps));
    print_duration(cli->out, real(time, "hours"));
}

/* ---- every number of ranks ---- */

/* Cells come row by row. Of small models a table in GiB would be one of zeros. */
static void print_table(const cli *cli, const json_t *cells)
{
    const size_t n = json_array_size(cells);
    double most = 0;
    size_t columns = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *cell = json_array_get(cells, i);
        most = real(cell, "largest_rank") > most ? real(cell, "largest_rank") : most;
        columns += whole(cell, "tp") == 1;
    }
    const bool small = most < 1073741824;
    sheaf_note(&cli->events, "%s of the fullest rank", small ? "MiB" : "GiB");
    sheaf__print(cli->out, "| ranks |");
    for (size_t i = 0; i < columns; i += 2) {
        const json_t *cell = json_array_get(cells, i);
        const double trained = real(cell, "trained");
        sheaf__print(cli->out, " %s, %.4g %c trained | checkpointing |",
                     json_string_value(json_object_get(cell, "method")),
                     trained / (trained < 1e9 ? 1e6 : 1e9), trained < 1e9 ? 'M' : 'G');
    }
    sheaf__print(cli->out, "\n|---|");
    for (size_t i = 0; i < columns; i++)
        sheaf__print(cli->out, "---|");
    for (size_t i = 0; i < n; i++) {
        const json_t *cell = json_array_get(cells, i);
        if (i % columns == 0)
            sheaf__print(cli->out, "\n| %lld |", whole(cell, "tp"));
        sheaf__print(cli->out, " %.1f |", mib(real(cell, "largest_rank")) / (small ? 1 : 1024));
    }
    fputc('\n', cli->out);
}

void cli_plan_print(const cli *cli, const cli_plan *q, const json_t *all)
{
    const json_t *time = json_object_get(all, "time"), *table = json_object_get(all, "table");
    if (table != NULL && !cli->json)
        print_table(cli, table);
    else if (!cli->json)
        print_ranks(cli, q, all);
    if (!cli->json && json_object_get(all, "rows") != NULL)
        print_work(cli, all);
    if (!cli->json && time != NULL)
        print_time(cli, time);
    if (q->ask.memory > 0)
        print_fit(cli, q, all);
}
