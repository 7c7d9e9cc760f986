/* settings.h - named settings of a struct: one table gives the flags of a command, their help, the
 * keys of a recipe, and the text that a run writes down.
 *
 *     const sheaf__setting table[] = {
 *         { "steps", SHEAF__IS_COUNT, &o.steps, "optimizer steps in all", .min = 1 },
 *         { 0 },
 *     };
 *
 * Messages name a setting as the command's flag, "--steps". */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

/* What a setting's value is; the pointer's type follows. */
enum {
    SHEAF__IS_FLAG = 1, /* bool: --x, --no-x, --x=true, --x=false */
    SHEAF__IS_INT,      /* int, within [min, max] */
    SHEAF__IS_COUNT,    /* int64_t, within [min, max] */
    SHEAF__IS_SEED,     /* uint64_t, any */
    SHEAF__IS_NUMBER,   /* double, finite, within [min, max] */
    SHEAF__IS_CHOICE,   /* int or enum: one of `choices` */
    SHEAF__IS_TEXT, /* const char *, borrowed from where it was given; empty means not given, unless
                       min is 1 */
    SHEAF__IS_PATH, /* the same; must not be empty */
    SHEAF__IS_TIME, /* double, seconds: 90, 90s, 15m, 2h30m, 1d12h */
    SHEAF__IS_TEXTS, /* sheaf__texts: given as often as wanted, never empty; UNSAVED */
    /* const char *: the one value there is, which runs write down; not a flag, and a recipe may
     * only say the same */
    SHEAF__IS_ONE_VALUE,
    SHEAF__IS_KIND = 0xff,
    /* and how it behaves */
    SHEAF__IS_REQUIRED = 0x100,
    SHEAF__IS_FIXED = 0x200, /* may not change when a run is resumed */
    SHEAF__IS_CONTENT =
        0x400, /* names something that may not change, but its name may (a folder) */
    SHEAF__IS_UNSAVED = 0x800, /* not a setting of the run: no recipe key, not written down */
    SHEAF__IS_HIDDEN = 0x1000, /* not in help */
    SHEAF__IS_NEEDED = 0x2000, /* required too, but a run that goes on (--resume) has it stored */
    /* Not written down while it is zero, off, unset or the first choice, which then is the default:
     * settings that came after runs which do not name them, and go on to the same bytes. */
    SHEAF__IS_LATE = 0x4000,
    /* FIXED, and not always written down: to name for a run what it does anyway changes nothing
     * (sheaf__settings_unnamed()). */
    SHEAF__IS_SILENT = 0x8000,
    SHEAF__IS_COMMON = 0x10000, /* in the short help, which a table with such rows has */
    /* The words beside flags, in the order of the table: sheaf train MODEL DATA. */
    SHEAF__IS_WORD = 0x20000,
    SHEAF__IS_CONSTANT = SHEAF__IS_ONE_VALUE | SHEAF__IS_FIXED | SHEAF__IS_HIDDEN,
};

typedef struct sheaf__choice {
    const char *name;
    int value;
} sheaf__choice;

typedef struct sheaf__setting {
    const char *name; /* without dashes; also the recipe key */
    unsigned kind;
    void *value;
    const char *help;
    const char *unit;             /* placeholder in help: "DIR"; NULL = by kind */
    double min, max;              /* INT, COUNT, NUMBER; max 0 = no upper limit. TEXT: see there */
    bool above, below;            /* NUMBER: more than min, less than max */
    const sheaf__choice *choices; /* ends with name NULL */
    const char *advice;  /* what to try instead of a value that is refused; NULL = nothing */
    const char *instead; /* NEEDED: unless this one is given; NULL = none */
    const char
        *heading; /* in help, of this row and those after it; NULL = that of the row before */
    char letter;  /* "-o" for it; 0 = none */
} sheaf__setting;

#define SHEAF__MAX_TEXTS 16
typedef struct sheaf__texts {
    const char *at[SHEAF__MAX_TEXTS]; /* borrowed from where they were given */
    int64_t n;
} sheaf__texts;

#define SHEAF__MAX_SETTINGS 112

/* What is known of a table's settings beside their values. All zero at first; release also after a
 * failure. */
typedef struct sheaf__settings {
    bool given[SHEAF__MAX_SETTINGS];     /* by the caller: a flag on the command line */
    bool from_file[SHEAF__MAX_SETTINGS]; /* by the recipe or by resumed settings */
    bool unnamed[SHEAF__MAX_SETTINGS];   /* SILENT and given, and not by the resumed settings */
    bool resumed;                        /* sheaf__settings_resume() took stored ones over */
    char *held[24];                      /* texts that values point into */
    int nheld;
} sheaf__settings;

void sheaf__settings_release(sheaf__settings *state);
/* sheaf__settings_hold - `text` (malloc'd) lives as long as `state`: a value may point into it.
 * Takes it also after a failure. */
sheaf_status *sheaf__settings_hold(sheaf__settings *state, char *text);

/* sheaf__setting_set - gives one setting a value from text; `from` ("--tp", "recipe.txt:3") is for
 * the message. Errors: SHEAF_E_ARG with what is allowed. */
sheaf_status *sheaf__setting_set(const sheaf__setting *setting, const char *text, const char *from);
/* sheaf__setting_show - the value as text that sheaf__setting_set() reads back to the same value
 * (malloc'd); an unset text gives "". */
char *sheaf__setting_show(const sheaf__setting *setting);
/* sheaf__setting_silent - is it LATE and at its default? */
bool sheaf__setting_silent(const sheaf__setting *setting);
/* sheaf__setting_find - by its name; NULL. */
const sheaf__setting *sheaf__setting_find(const sheaf__setting *table, const char *name);
bool sheaf__settings_given(const sheaf__settings *state, const sheaf__setting *table,
                           const char *name);
/* sheaf__settings_named - given, or in a recipe or in settings that are resumed. */
bool sheaf__settings_named(const sheaf__settings *state, const sheaf__setting *table,
                           const char *name);
/* sheaf__settings_required - REQUIRED and, with needed_too, NEEDED settings that nothing gave, all
 * in one message. */
sheaf_status *sheaf__settings_required(const sheaf__settings *state, const sheaf__setting *table,
                                       bool needed_too);

/* sheaf__settings_read - `key: value` lines fill the settings that the caller did not give. Takes
 * `text` (malloc'd), also after a failure; `name` is for messages. */
sheaf_status *sheaf__settings_read(sheaf__settings *state, const sheaf__setting *table, char *text,
                                   const char *name);
/* sheaf__settings_line - `name: value`, quoted where sheaf__settings_read() would read another
 * value. `value`: one line, not empty. */
void sheaf__settings_line(sheaf_text *text, const char *name, const char *value);
/* sheaf__settings_text - every setting of the table as a recipe (malloc'd); with `only_fixed` just
 * those that are FIXED, in table order: the same bytes whatever the machine, the paths and the
 * number of ranks. */
sheaf_status *sheaf__settings_text(char **out, const sheaf__setting *table, bool only_fixed);
/* sheaf__settings_resume - takes over settings stored by sheaf__settings_text(): those that neither
 * the caller nor a recipe gave get the stored value; a given one that differs is refused when it is
 * FIXED. `name` is for messages. */
sheaf_status *sheaf__settings_resume(sheaf__settings *state, const sheaf__setting *table,
                                     const char *text, const char *name);
/* sheaf__settings_unnamed - after it, of the SILENT setting `name` where the stored settings do not
 * name it, which means `means`. Errors: SHEAF_E_ARG where another value was given. */
sheaf_status *sheaf__settings_unnamed(const sheaf__settings *state, const sheaf__setting *table,
                                      const char *name, const char *means);
/* sheaf__settings_too_old - SHEAF_E_UNSUPPORTED: a run that does not name `name`. */
sheaf_status *sheaf__settings_too_old(const char *name);
/* sheaf__settings_resume_rest - of such a text only what is not FIXED: all else was stored
 * elsewhere. */
sheaf_status *sheaf__settings_resume_rest(sheaf__settings *state, const sheaf__setting *table,
                                          const char *text, const char *name);

/* The settings of a training run: the flags of `sheaf train` and `sheaf plan`
 * (library/train_settings.h), and where their values are. */
typedef struct sheaf__run_settings {
    sheaf__settings *state; /* borrowed */
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    int count;                           /* of them, without the zero entry */
    struct sheaf_train_options *options; /* train/options.h; owned */
    /* What runs it (library/session.h); NULL: a program that embeds sheaf. Borrowed. */
    const struct sheaf__run_driver *driver;
} sheaf__run_settings;

/* sheaf__run_settings_open - the defaults. The caller may append flags of its own and a new end to
 * the table. `planning`: neither data nor OUT is required. Errors: SHEAF_E_MEMORY; close it then
 * too. */
sheaf_status *sheaf__run_settings_open(sheaf__run_settings *run, sheaf__settings *state,
                                       bool planning);
void sheaf__run_settings_close(sheaf__run_settings *run);

/* sheaf__peer_advise - says in `st` what does here what `word`, a flag without its dashes that the
 * table has not ("=VALUE" may follow), does in other programs, or by another spelling; `dashes`
 * before a name of ours. false: it is not known. */
bool sheaf__peer_advise(sheaf_status *st, const sheaf__setting *table, const char *word,
                        const char *dashes);
/* Is it what they call --out? */
bool sheaf__peer_is_out(const char *word);

/* ---- values and help of settings that several commands have ---- */

extern const sheaf__choice sheaf__loss_choices[]; /* answers, last, all as sheaf_loss_on */
extern const sheaf__choice sheaf__long_choices[]; /* error, cut, skip as sheaf_on_long */
extern const sheaf__choice sheaf__bad_choices[];  /* error, skip as sheaf_on_bad */
#define SHEAF__BAD_HELP                                                                            \
    "bad records: an error (default), or skipped; their number and the first one are reported"
#define SHEAF__FIELDS_HELP "other names of fields in the records: question=prompt,answer=completion"
#define SHEAF__LOSS_HELP                                                                           \
    "what is learned of a text: all answers (default), the last of a conversation, or everything"
#define SHEAF__LONG_HELP                                                                           \
    "texts longer than --seq: an error (default), cut, or skipped; their number is reported"
#define SHEAF__SPECIALS_HELP "special tokens written in texts are read as tokens, not as plain text"
#define SHEAF__CACHE_HELP                                                                          \
    "folder that caches tokenised texts; default: none, or OUT/cache for large data"
extern const sheaf__choice sheaf__sums_choices[]; /* pairs, tiles as sheaf_bf16_sums */
#define SHEAF__SUMS_HELP "bfloat16: order of sums, part of the result; default: the fastest here"
