/* info.c - `sheaf info`: what is this? */
#include "base/base.h"
#include "base/json.h"
#include "base/number.h"
#include "base/print.h"
#include "cli/lib/devices.h"
#include "commands.h"
#include "findings.h"
#include "sheaf/machine.h"

const char cmd_info_usage[] =
    "usage: sheaf info PATH... [FLAG...]\n"
    "       sheaf info --machine\n"
    "Shows what a folder or file holds: a model or checkpoint of any program (docs/dialects.md), a\n"
    "PEFT adapter, a run of sheaf train, or a .safetensors file; its tensors, types and oddities. No\n"
    "tensor data is read: sheaf verify reads all of it.\n";

typedef struct output {
    cli *cli;
    sheaf_json_writer json;
    bool tensors;
} output;

static void print_tensor(FILE *to, const json_t *tensor)
{
    const json_t *shape = json_object_get(tensor, "shape");
    sheaf__print(to, "    %-5s [", json_string_value(json_object_get(tensor, "dtype")));
    for (size_t i = 0; i < json_array_size(shape); i++)
        sheaf__print(to, "%s%" JSON_INTEGER_FORMAT, i == 0 ? "" : ", ",
                     json_integer_value(json_array_get(shape, i)));
    sheaf__print(to, "] %s\n", json_string_value(json_object_get(tensor, "name")));
}

/* A list as "a, b", an object as "a (1), b (2)". */
static void print_all(FILE *to, const char *key, json_t *value)
{
    sheaf_text all = { 0 };
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (json_is_string(one))
            sheaf__text_add(&all, "%s%s", i > 0 ? ", " : "", json_string_value(one));
        else
            sheaf__text_add(&all, "%s%" JSON_INTEGER_FORMAT, i > 0 ? ", " : "",
                            json_integer_value(one));
    }
    for (void *at = json_object_iter(value); at != NULL; at = json_object_iter_next(value, at))
        sheaf__text_add(&all, "%s%s (%" JSON_INTEGER_FORMAT ")", all.size > 0 ? ", " : "",
                        json_object_iter_key(at), json_integer_value(json_object_iter_value(at)));
    cli_fact_line(to, key, all.at == NULL ? "none" : all.at);
    sheaf__text_release(&all);
}

/* Facts with another label than their key. */
static bool print_special(FILE *to, const char *key, json_t *value)
{
    char text[SHEAF__NUMBER + 16];
    if (strcmp(key, "tokens_per_s") == 0) {
        sheaf__number_rate(text, json_number_value(value));
        cli_fact_line(to, "speed", strcat(text, " tokens/s"));
    } else if (strcmp(key, "seconds_left") == 0) {
        cli_fact_line(to, "time_left", sheaf__number_time(text, json_number_value(value)));
    } else if (strcmp(key, "variant") == 0) {
        cli_fact_line(to, "kind", json_string_value(value));
    } else if (strcmp(key, "list") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++)
            print_tensor(to, json_array_get(value, i));
    } else if (strcmp(key, "progress") == 0) {
        const json_t *of = json_object_get(value, "evaluation"),
                     *loss = json_object_get(of, "best_loss");
        if (json_is_number(loss)) {
            sheaf__print(to, "  %-14s %" JSON_INTEGER_FORMAT "\n", "best_step",
                         json_integer_value(json_object_get(of, "best")));
            sheaf__print(to, "  %-14s %g\n", "best_loss", json_number_value(loss));
        }
    } else {
        return strcmp(key, "path") == 0 || strcmp(key, "kind") == 0 ||
               strcmp(key, "findings") == 0 || strcmp(key, "odd") == 0;
    }
    return true;
}

/* "odd" comes before the checkpoints of a run and the sizes of other kinds. */
static void print_odd(FILE *to, const json_t *odd)
{
    for (size_t i = 0; i < json_array_size(odd); i++)
        cli_fact_line(to, "odd", json_string_value(json_array_get(odd, i)));
}

static void print_fact(FILE *to, const char *key, json_t *value)
{
    if (print_special(to, key, value))
        return;
    switch (json_typeof(value)) {
    case JSON_STRING: cli_fact_line(to, key, json_string_value(value)); return;
    case JSON_INTEGER:
        sheaf__print(to, "  %-14s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
        return;
    case JSON_REAL: sheaf__print(to, "  %-14s %g\n", key, json_real_value(value)); return;
    case JSON_TRUE: cli_fact_line(to, key, "yes"); return;
    case JSON_FALSE: cli_fact_line(to, key, "no"); return;
    case JSON_NULL: cli_fact_line(to, key, "not said"); return;
    default: print_all(to, key, value);
    }
}

static void print_findings(FILE *to, const json_t *list)
{
    const size_t count = json_array_size(list);
    sheaf_finding *all = calloc(count + 1, sizeof *all); /* texts are those of the list */
    for (size_t i = 0; i < count && all != NULL; i++) {
        sheaf_finding *f = &all[i];
        const char *severity = "";
        json_unpack(json_array_get(list, i), "{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "code",
                    &f->code, "severity", &severity, "path", &f->path, "tensor", &f->tensor,
                    "expected", &f->expected, "found", &f->found, "cure", &f->cure);
        while (f->severity < SHEAF_DEFECT &&
               strcmp(sheaf__severity_name(f->severity), severity) != 0)
            f->severity++;
    }
    if (all != NULL)
        cli_findings_print(to, all, (int64_t)count, 12);
    free(all);
}

/* Prints the facts of a path as lines, with the findings of a checkpoint that is another program's
 * or not whole. */
static sheaf_status *print_path(const cli *cli, const char *path, const char *text)
{
    json_t *facts = json_loads(text, 0, NULL);
    bool is_whole = true, odd_is_out = false;
    if (facts == NULL)
        return sheaf__no_memory(path);
    const char *kind = json_string_value(json_object_get(facts, "kind"));
    const json_t *odd = json_object_get(facts, "odd");
    if (strcmp(kind, "checkpoint") == 0)
        is_whole = json_object_get(facts, "contract") != NULL;
    sheaf__print(cli->out, "%s: %s\n", path,
                 strcmp(kind, "metrics") == 0 ? "metrics of a run" : kind);
    for (void *at = json_object_iter(facts); at != NULL; at = json_object_iter_next(facts, at)) {
        const char *key = json_object_iter_key(at);
        if (!odd_is_out && (strcmp(key, "checkpoints") == 0 || strcmp(key, "tensors") == 0)) {
            print_odd(cli->out, odd);
            odd_is_out = true;
        }
        print_fact(cli->out, key, json_object_iter_value(at));
        if (!is_whole && strcmp(key, "findings") == 0)
            print_findings(cli->out, json_object_iter_value(at));
    }
    if (!odd_is_out)
        print_odd(cli->out, odd);
    json_decref(facts);
    return NULL;
}

static sheaf_status *show_path(output *t, const char *path)
{
    char *text = NULL;
    sheaf_path_info_options how = { .size = sizeof how, .tensors = t->tensors };
    sheaf_status *st = sheaf_path_info(&text, path, &how);
    if (st == NULL && t->cli->json)
        sheaf__json_put_raw(&t->json, NULL, text);
    else
        TRY(st, print_path(t->cli, path, text));
    free(text);
    return st;
}

/* ---- this machine ---- */

static sheaf_status *show_machine(output *t)
{
    sheaf_json_writer own = { .compact = true };
    json_t *facts = NULL, *gpus = NULL;
    char *text = NULL;
    sheaf_machine_facts m = { .size = sizeof m };
    sheaf_status *st = sheaf_machine_info(&m);
    if (st != NULL)
        return st;
    sheaf__json_put(
        &own, "{ processor:s kernels:s pairs:s tiles:s sums:s cores:i memory:d available:d }",
        m.processor, m.kernels, m.pairs, m.tiles, m.sums, m.cores, m.memory, m.available);
    st = sheaf__text_take(&text, &own.text);
    TRY(st, sheaf__json_parse(&facts, text, strlen(text)));
    TRY(st, cli_gpus(&gpus));
    free(text);
    text = NULL;
    if (st == NULL && t->cli->json) {
        json_object_set(gpus, "gpu_kernels", json_object_get(gpus, "kernels"));
        json_object_del(gpus, "kernels"); /* those of the processor have that key */
        json_object_update(facts, gpus);
        st = sheaf__json_text(&text, facts, 0);
        sheaf__json_put_raw(&t->json, "machine", text == NULL ? "" : text);
    } else if (st == NULL) {
        sheaf__print(t->cli->out, "this machine\n");
        for (void *at = json_object_iter(facts); at != NULL; at = json_object_iter_next(facts, at))
            print_fact(t->cli->out, json_object_iter_key(at), json_object_iter_value(at));
        cli_print_gpus(t->cli->out, gpus);
    }
    free(text);
    json_decref(facts);
    json_decref(gpus);
    return st;
}

int cmd_info(cli *cli, int argc, char **argv)
{
    output t = { .cli = cli };
    bool machine = false;
    const cli_option options[] = {
        { "tensors", CLI_FLAG, &t.tensors, "list every tensor" },
        { "machine", CLI_FLAG, &machine, "processor, memory and GPUs of this machine" },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    if (st == NULL && paths.count == 0 && !machine)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf info"), "a PATH, or --machine");
    if (st == NULL && cli->json)
        sheaf__json_begin(&t.json);
    if (st == NULL && machine)
        st = show_machine(&t);
    if (st == NULL && cli->json)
        sheaf__json_open(&t.json, "paths", '[');
    for (int i = 0; st == NULL && i < paths.count; i++)
        st = show_path(&t, paths.word[i]);
    if (st == NULL && cli->json) {
        sheaf__json_close(&t.json, ']');
        cli_json_end(cli->out, &t.json);
    }
    sheaf__text_release(&t.json.text);
    return driver_report(cli, st);
}
