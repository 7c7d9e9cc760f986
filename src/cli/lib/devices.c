/* devices.c - see devices.h. */
#include "cli/lib/devices.h"

#include "base/base.h"
#include "base/print.h"
#include "sheaf/machine.h"

sheaf_status *cli_gpus(json_t **out)
{
    char *text = NULL;
    sheaf_status *st = sheaf_machine_gpus(&text);
    *out = st == NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return st != NULL || *out != NULL ? st : sheaf__no_memory("GPUs");
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static double gib_of(const json_t *object, const char *key)
{
    return (double)json_integer_value(json_object_get(object, key)) / (1 << 30);
}

static void print_gpu(FILE *to, json_t *gpu)
{
    char key[32], line[256];
    sheaf_text links = { 0 };
    const char *problem = text_of(gpu, "problem");
    json_t *all = json_object_get(gpu, "links");
    snprintf(key, sizeof key, "cuda:%d", (int)json_integer_value(json_object_get(gpu, "number")));
    snprintf(line, sizeof line,
             "%s, %.1f GiB, capability %s, tensor cores %s, %d multiprocessors, PCI %s",
             text_of(gpu, "name"), gib_of(gpu, "memory"), text_of(gpu, "capability"),
             text_of(gpu, "sums"), (int)json_integer_value(json_object_get(gpu, "multiprocessors")),
             text_of(gpu, "address"));
    cli_fact_line(to, key, line);
    if (*problem == '\0')
        snprintf(line, sizeof line, "%.1f GiB are available; it computes as processors do",
                 gib_of(gpu, "available"));
    cli_fact_line(to, "", *problem == '\0' ? line : problem);
    for (void *at = json_object_iter(all); at != NULL; at = json_object_iter_next(all, at))
        sheaf__text_add(&links, "%scuda:%s %s", links.size > 0 ? ", " : "reads ",
                        json_object_iter_key(at), json_string_value(json_object_iter_value(at)));
    if (links.size > 0)
        cli_fact_line(to, "", links.at);
    sheaf__text_release(&links);
}

static void print_kernels(FILE *to, const json_t *kernels)
{
    char line[1024];
    const char *missing = text_of(kernels, "missing"), *kinds = text_of(kernels, "kinds");
    if (*missing != '\0')
        snprintf(line, sizeof line, "no %s: %s", missing, text_of(kernels, "try"));
    else
        snprintf(line, sizeof line, "%s%s%s", kinds, *kinds == '\0' ? "" : ", in ",
                 text_of(kernels, "module"));
    cli_fact_line(to, "GPU kernels", line);
}

void cli_print_gpus(FILE *to, const json_t *gpus)
{
    json_t *list = json_object_get(gpus, "gpus");
    print_kernels(to, json_object_get(gpus, "kernels"));
    if (json_array_size(list) == 0) {
        cli_fact_line(to, "GPUs", text_of(gpus, "missing"));
        return;
    }
    cli_fact_line(to, "GPUs", text_of(gpus, "driver"));
    for (size_t i = 0; i < json_array_size(list); i++)
        print_gpu(to, json_array_get(list, i));
}

sheaf_status *cli_list_devices(cli *cli)
{
    json_t *gpus = NULL;
    char *text = NULL;
    sheaf_status *st = cli->json ? sheaf_machine_gpus(&text) : cli_gpus(&gpus);
    if (text != NULL)
        sheaf__print(cli->out, "%s\n", text);
    if (st == NULL && !cli->json) {
        cli_fact_line(cli->out, "cpu", "this machine's processors");
        cli_print_gpus(cli->out, gpus);
    }
    free(text);
    json_decref(gpus);
    return st;
}
