/* translate.c - `sheaf translate`: a YAML file of another trainer as a recipe. */
#include "base/base.h"
#include "base/print.h"
#include "cli/lib/yaml.h"
#include "commands.h"

const char cmd_translate_usage[] =
    "usage: sheaf translate FILE.yaml > NAME.recipe\n"
    "Prints the settings of a LLaMA-Factory or Axolotl file as a recipe for sheaf train --recipe.\n"
    "Keys that are unknown, or that would change the result but have no counterpart in sheaf, are\n"
    "listed on standard error; the exit code is then 1.\n";

static void print(const cli *cli, const sheaf_translation *t, const char *recipe)
{
    const char *lost;
    if (!cli->json) {
        sheaf__print_lines(cli->out, recipe);
        return;
    }
    sheaf_json_writer j = { 0 };
    sheaf__json_open(&j, NULL, '{');
    sheaf__json_put_text(&j, "program", sheaf_translation_program(t));
    sheaf__json_put_text(&j, "recipe", recipe);
    sheaf__json_open(&j, "lost", '[');
    for (int64_t i = 0; (lost = sheaf_translation_lost(t, i)) != NULL; i++)
        sheaf__json_put_text(&j, NULL, lost);
    sheaf__json_close(&j, ']');
    cli_json_end(cli->out, &j);
}

int cmd_translate(cli *cli, int argc, char **argv)
{
    const cli_option options[] = { { 0 } };
    cli_paths paths;
    cli_yaml yaml = { 0 };
    sheaf_translation *t = NULL;
    char *recipe = NULL;
    const char *lost = NULL;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, cli_yaml_read(&yaml, paths.word[0]));
    TRY(st, sheaf_in(sheaf_translation_new(&t, yaml.entry, yaml.count), "%s", paths.word[0]));
    if (st == NULL) {
        sheaf_text text = { 0 };
        for (char *c = paths.word[0]; *c != '\0'; c++) /* a name ends no comment */
            if (*c == '\n' || *c == '\r')
                *c = '?';
        sheaf__text_add(&text, "# from %s, a file of %s\n%s", paths.word[0],
                        sheaf_translation_program(t), sheaf_translation_recipe(t));
        st = sheaf__text_take(&recipe, &text);
    }
    if (st == NULL)
        print(cli, t, recipe);
    for (int64_t i = 0; st == NULL && (lost = sheaf_translation_lost(t, i)) != NULL; i++)
        sheaf_warn(&cli->events, "not in the recipe: %s", lost);
    const bool whole = t != NULL && sheaf_translation_lost(t, 0) == NULL;
    free(recipe);
    sheaf_translation_free(t);
    cli_yaml_release(&yaml);
    return driver_answer(cli, st, whole);
}
