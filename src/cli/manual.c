/* manual.c - writes the man pages and the completion of shells from the tables that give --help;
 * built and run by the build, never installed.
 *
 *   sheaf_manual man FOLDER           sheaf.1 and sheaf-COMMAND.1
 *   sheaf_manual bash|zsh|fish        the shell's script, to standard output */
#include <errno.h>

#include "base/base.h"
#include "cli/lib/cli.h"

#define ENDS "0 done, 1 the answer is no, 2 wrong usage, 3 could not be done"

/* ---- the tables ---- */

/* Calls `explain` with the table of options that a command has while it runs. */
static void walk(const cli_command *command,
                 void (*explain)(const cli_command *, const cli_option *, FILE *), FILE *to)
{
    char name[64], flag[] = "--help", *words[] = { name, flag, NULL };
    cli cli = { .out = to, .err = stderr, .command = command, .explain = explain };
    snprintf(name, sizeof name, "%s", command->name);
    if (command->run(&cli, 2, words) != DRIVER_DONE)
        exit(DRIVER_FAILED);
    driver_release(&cli);
}

static bool is_flag(const cli_option *o)
{
    return (o->kind & CLI_KIND) == CLI_FLAG;
}

/* Does the value name a file or folder? */
static bool is_path(const cli_option *o)
{
    return (o->kind & CLI_KIND) == CLI_PATH ||
           (o->unit != NULL && (strstr(o->unit, "DIR") || strstr(o->unit, "FILE")));
}

/* "name" or "no-name", whichever changes something. */
static const char *prefix_of(const cli_option *o)
{
    return is_flag(o) && *(const bool *)o->value ? "no-" : "";
}

static void choices(const cli_option *o, FILE *to)
{
    for (const cli_choice *c = o->choices; c->name != NULL; c++)
        fprintf(to, "%s%s", c == o->choices ? "" : " ", c->name);
}

static bool has_choices(const cli_option *o)
{
    return (o->kind & CLI_KIND) == CLI_CHOICE;
}

/* ---- pages ---- */

/* `n` bytes of plain text: hyphens that can be copied, no requests. */
static void roff_bytes(FILE *to, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((text[i] == '.' || text[i] == '\'') && (i == 0 || text[i - 1] == '\n'))
            fputs("\\&", to);
        if (text[i] == '\\')
            fputs("\\(rs", to);
        else if (text[i] == '-')
            fputs("\\-", to);
        else
            fputc(text[i], to);
    }
}

static void roff(FILE *to, const char *text)
{
    roff_bytes(to, text, strlen(text));
}

static void title(FILE *to, const char *page)
{
    fprintf(to, ".TH %s 1 \"\" \"sheaf %s\" \"sheaf\"\n.ad l\n.SH NAME\n", page, SHEAF_VERSION);
}

/* Lines of `text` that begin with a blank stay lines. */
static void paragraphs(FILE *to, const char *text)
{
    bool kept = false;
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        if ((*text == ' ') != kept) {
            kept = !kept;
            fputs(kept ? ".nf\n" : ".fi\n", to);
        }
        roff_bytes(to, text, n);
        fputc('\n', to);
        text += n + (text[n] == '\n');
    }
    if (kept)
        fputs(".fi\n", to);
}

static void page_option(FILE *to, const char *flag, const char *help)
{
    const size_t name =
        strncmp(flag, "--", 2) == 0 ? strcspn(flag, " ") : 4 + strcspn(flag + 4, " ");
    fputs(".TP\n\\fB", to);
    roff_bytes(to, flag, name);
    fputs("\\fR", to);
    if (flag[name] != '\0') {
        fputs(" \\fI", to);
        roff(to, flag + name + 1);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    roff(to, help);
    fputc('\n', to);
}

static void page(const cli_command *command, const cli_option *options, FILE *to)
{
    char name[64];
    snprintf(name, sizeof name, "SHEAF\\-%s", command->name);
    for (char *c = name; *c != '\0'; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    title(to, name);
    fprintf(to, "sheaf\\-%s \\- ", command->name);
    roff(to, command->summary);
    /* "usage: " and lines below it that are set in as far */
    const char *at = command->usage + strlen("usage: ");
    fputs("\n.SH SYNOPSIS\n.nf\n", to);
    for (;;) {
        const size_t n = strcspn(at, "\n");
        roff_bytes(to, at, n);
        fputc('\n', to);
        at += n + (at[n] == '\n');
        if (*at != ' ')
            break;
        at += strlen("usage: ");
    }
    fputs(".fi\n.SH DESCRIPTION\n", to);
    paragraphs(to, at);
    if (command->names != NULL) {
        sheaf_text names = { 0 };
        command->names(&names);
        paragraphs(to, names.failed ? "" : names.at);
        sheaf__text_release(&names);
    }
    fputs(".SH OPTIONS\n", to);
    cli_help_row rows[CLI_MAX_OPTIONS];
    const int n = cli_help_rows(rows, options);
    for (int i = 0; i < n; i++) {
        char flag[CLI_FLAG_TEXT], help[CLI_HELP_TEXT];
        if ((i == 0 && strcmp(rows[n - 1].heading, rows[0].heading) != 0) ||
            (i > 0 && strcmp(rows[i - 1].heading, rows[i].heading) != 0))
            fprintf(to, ".SS %s\n", rows[i].heading);
        cli_flag_text(flag, rows[i].option);
        cli_help_text(help, rows[i].option);
        page_option(to, flag, help);
    }
    page_option(to, "--help", "the flags used most as text; --help all: every flag");
    fputs(".SH EXIT STATUS\n" ENDS "\n.SH SEE ALSO\n.BR sheaf (1)\n", to);
}

static void first_page(FILE *to)
{
    title(to, "SHEAF");
    fputs("sheaf \\- fine\\-tunes, merges and runs language models divided over several devices\n"
          ".SH SYNOPSIS\n\\fBsheaf\\fR \\fICOMMAND\\fR [\\fIFLAG\\fR...] [\\fIWORD\\fR...]\n"
          ".SH DESCRIPTION\nHow many devices are used never changes a byte of the result.\n"
          ".SH COMMANDS\n",
          to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++) {
        fprintf(to, ".TP\n.BR sheaf\\-%s (1)\n", c->name);
        roff(to, c->summary);
        fputc('\n', to);
    }
    fputs(".TP\n\\fBsheaf help\\fR \\fICOMMAND\\fR\nthe flags of one\n"
          ".TP\n\\fBsheaf \\-\\-version\\fR\nthe version\n"
          ".SH EXIT STATUS\n" ENDS "\n",
          to);
}

/* Of the command in general, then of each. */
static bool pages(const char *folder)
{
    for (int i = -1; i < 0 || cli_commands[i].name != NULL; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/sheaf%s%s.1", folder, i < 0 ? "" : "-",
                 i < 0 ? "" : cli_commands[i].name);
        FILE *to = fopen(path, "w");
        if (to == NULL) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            return false;
        }
        if (i < 0)
            first_page(to);
        else
            walk(&cli_commands[i], page, to);
        if (fclose(to) != 0)
            return false;
    }
    return true;
}

/* ---- bash ---- */

static void bash_flags(const cli_command *command, const cli_option *options, FILE *to)
{
    fprintf(to, "    %s)\n        flags='", command->name);
    for (const cli_option *o = options; o->name != NULL; o++)
        if (!(o->kind & CLI_HIDDEN)) {
            if (o->letter != '\0')
                fprintf(to, "-%c ", o->letter);
            fprintf(to, "--%s%s ", prefix_of(o), o->name);
        }
    fputs("--help'\n        case $before in\n", to);
    for (const cli_option *o = options; o->name != NULL; o++) {
        if (is_flag(o) || (o->kind & CLI_HIDDEN))
            continue;
        fprintf(to, "        --%s", o->name);
        if (o->letter != '\0')
            fprintf(to, "|-%c", o->letter);
        fputs(") ", to);
        if (has_choices(o)) {
            fputs("values='", to);
            choices(o, to);
            fputs("' ;;\n", to);
        } else {
            fputs(is_path(o) ? "files=1 ;;\n" : "given=1 ;;\n", to);
        }
    }
    fputs("        *) files=1 ;;\n        esac ;;\n", to);
}

static void names_of_commands(FILE *to)
{
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        fprintf(to, "%s ", c->name);
}

static void bash(FILE *to)
{
    fputs("# Completion of sheaf for bash; made from the tables that give --help.\n"
          "_sheaf() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local flags= values= files=0 given=0\n"
          "    COMPREPLY=()\n"
          "    # bash splits --flag=value at the sign\n"
          "    if [ \"$word\" = = ]; then\n        word=\n"
          "    elif [ \"$before\" = = ]; then\n        before=${COMP_WORDS[COMP_CWORD-2]}\n    fi\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        values='",
          to);
    names_of_commands(to);
    fputs("help version'\n    else\n    case ${COMP_WORDS[1]} in\n    help) values='", to);
    names_of_commands(to);
    fputs("' ;;\n", to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        walk(c, bash_flags, to);
    fputs("    esac\n    fi\n"
          "    if [ -n \"$values\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
          "    elif [ \"$given\" = 0 ] && [ \"${word:0:1}\" = - ]; then\n"
          "        COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
          "    elif [ \"$files\" = 1 ]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        local IFS=$'\\n'\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _sheaf sheaf\n",
          to);
}

/* ---- zsh and fish ---- */

/* Help as far as its first semicolon, inside single quotes; `special` get a backslash, and quote
 * marks are written as `quote`. */
static void brief(FILE *to, const char *help, const char *special, const char *quote)
{
    char *text = sheaf__spell_fields(help, NULL);
    for (const char *at = text; at != NULL && *at != '\0' && *at != ';'; at++) {
        if (*at == '\'') {
            fputs(quote, to);
            continue;
        }
        if (strchr(special, *at) != NULL)
            fputc('\\', to);
        fputc(*at, to);
    }
    free(text);
}

#define ZSH_SPECIAL "[]:\\"
#define ZSH_QUOTE "'\\''"

static void zsh_flags(const cli_command *command, const cli_option *options, FILE *to)
{
    fprintf(to, "    %s)\n        _arguments", command->name);
    for (const cli_option *o = options; o->name != NULL; o++) {
        if (o->kind & CLI_HIDDEN)
            continue;
        fputs(" \\\n            ", to);
        if (o->letter != '\0')
            fprintf(to, "'(-%c --%s)'{-%c,--%s%s}'[", o->letter, o->name, o->letter, o->name,
                    is_flag(o) ? "" : "=");
        else
            fprintf(to, "'--%s%s%s[", prefix_of(o), o->name, is_flag(o) ? "" : "=");
        brief(to, o->help, ZSH_SPECIAL, ZSH_QUOTE);
        fputc(']', to);
        if (has_choices(o)) {
            fputs(":value:(", to);
            choices(o, to);
            fputc(')', to);
        } else if (!is_flag(o)) {
            fputs(is_path(o) ? ":path:_files" : ":value: ", to);
        }
        fputc('\'', to);
    }
    fputs(" \\\n            '--help[flags and their meaning]'", to);
    fputs(" \\\n            '*:path:_files' ;;\n", to);
}

static void zsh(FILE *to)
{
    fputs("#compdef sheaf\n# Completion of sheaf for zsh; made from the tables that give --help.\n"
          "local -a commands\ncommands=(\n",
          to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++) {
        fprintf(to, "    '%s:", c->name);
        brief(to, c->summary, ":\\", ZSH_QUOTE);
        fputs("'\n", to);
    }
    fputs("    'help:what a command takes'\n    'version:the version'\n)\n"
          "if (( CURRENT == 2 )); then\n    _describe command commands\n    return\nfi\n"
          "shift words\n(( CURRENT-- ))\ncase $words[1] in\n"
          "    help) _describe command commands ;;\n",
          to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        walk(c, zsh_flags, to);
    fputs("esac\n", to);
}

#define FISH_SPECIAL "\\"
#define FISH_QUOTE "\\'"

static void fish_flags(const cli_command *command, const cli_option *options, FILE *to)
{
    for (const cli_option *o = options; o->name != NULL; o++) {
        if (o->kind & CLI_HIDDEN)
            continue;
        fprintf(to, "complete -c sheaf -n '__fish_seen_subcommand_from %s' -l %s%s", command->name,
                prefix_of(o), o->name);
        if (o->letter != '\0')
            fprintf(to, " -s %c", o->letter);
        if (has_choices(o)) {
            fputs(" -x -a '", to);
            choices(o, to);
            fputc('\'', to);
        } else if (!is_flag(o)) {
            fputs(is_path(o) ? " -r -F" : " -x", to);
        }
        fputs(" -d '", to);
        brief(to, o->help, FISH_SPECIAL, FISH_QUOTE);
        fputs("'\n", to);
    }
    fprintf(to,
            "complete -c sheaf -n '__fish_seen_subcommand_from %s' -l help -d 'flags and their "
            "meaning'\n",
            command->name);
}

static void fish(FILE *to)
{
    fputs("# Completion of sheaf for fish; made from the tables that give --help.\n", to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++) {
        fprintf(to, "complete -c sheaf -n __fish_use_subcommand -f -a %s -d '", c->name);
        brief(to, c->summary, FISH_SPECIAL, FISH_QUOTE);
        fputs("'\n", to);
    }
    fputs("complete -c sheaf -n __fish_use_subcommand -f -a help -d 'what a command takes'\n"
          "complete -c sheaf -n __fish_use_subcommand -f -a version -d 'the version'\n"
          "complete -c sheaf -n '__fish_seen_subcommand_from help' -f -a '",
          to);
    names_of_commands(to);
    fputs("'\n", to);
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        walk(c, fish_flags, to);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "man") == 0)
        return pages(argv[2]) ? DRIVER_DONE : DRIVER_FAILED;
    if (argc == 2 && strcmp(argv[1], "bash") == 0)
        bash(stdout);
    else if (argc == 2 && strcmp(argv[1], "zsh") == 0)
        zsh(stdout);
    else if (argc == 2 && strcmp(argv[1], "fish") == 0)
        fish(stdout);
    else
        return DRIVER_USAGE;
    return fflush(stdout) == 0 ? DRIVER_DONE : DRIVER_FAILED;
}
