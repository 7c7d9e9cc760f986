/* commands.h - the subcommands: one cmd_*.c each, listed in commands.c. */
#pragma once

#include "cli/lib/cli.h"

int cmd_diff(cli *cli, int argc, char **argv);
int cmd_info(cli *cli, int argc, char **argv);
int cmd_init(cli *cli, int argc, char **argv);
void cmd_init_names(sheaf_text *to); /* the small models of the families, a line each */
int cmd_merge(cli *cli, int argc, char **argv);
int cmd_report(cli *cli, int argc, char **argv);
int cmd_watch(cli *cli, int argc, char **argv);
extern const char cmd_report_usage[], cmd_watch_usage[];

int cmd_render(cli *cli, int argc, char **argv);

extern const char cmd_diff_usage[], cmd_info_usage[], cmd_init_usage[], cmd_merge_usage[],
    cmd_render_usage[];

extern const char cmd_verify_usage[], cmd_convert_usage[];
int cmd_convert(cli *cli, int argc, char **argv);
int cmd_verify(cli *cli, int argc, char **argv);

extern const char cmd_tokenize_usage[];
int cmd_tokenize(cli *cli, int argc, char **argv);

extern const char cmd_chat_usage[], cmd_plan_usage[], cmd_train_usage[], cmd_eval_usage[],
    cmd_generate_usage[], cmd_serve_usage[];
int cmd_chat(cli *cli, int argc, char **argv);
int cmd_serve(cli *cli, int argc, char **argv);
int cmd_plan(cli *cli, int argc, char **argv);
int cmd_train(cli *cli, int argc, char **argv);
int cmd_eval(cli *cli, int argc, char **argv);
int cmd_generate(cli *cli, int argc, char **argv);
