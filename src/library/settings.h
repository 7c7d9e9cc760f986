/* settings.h - named settings of a struct: one table for the flags of a command, their help, the
 * keys of a recipe, and the settings that a run stores.
 *
 *     const sheaf__setting table[] = {
 *         { "steps", SHEAF__IS_COUNT, &o.steps, "optimizer steps in all", .min = 1 },
 *         { 0 },
 *     };
 *
 * Messages name a setting as base/spell.h has it, "`steps`". */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "sheaf/status.h"

/* The kind of a setting's value, which implies the pointer's type. */
enum {
    SHEAF__IS_FLAG = 1, /* bool: --x, --no-x, --x=true, --x=false */
    SHEAF__IS_INT,      /* int, within [min, max] */
    SHEAF__IS_COUNT,    /* int64_t, within [min, max] */
    SHEAF__IS_SEED,     /* uint64_t, any */
    SHEAF__IS_NUMBER,   /* double, finite, within [min, max] */
    SHEAF__IS_CHOICE,   /* int or enum: one of `choices` */
    SHEAF__IS_TEXT,  /* const char *, borrowed from its source; empty means not given, unless min is
                        1 */
    SHEAF__IS_PATH,  /* the same; must not be empty */
    SHEAF__IS_TIME,  /* double, seconds: 90, 90s, 15m, 2h30m, 1d12h */
    SHEAF__IS_TEXTS, /* sheaf__texts: may be repeated, never empty; UNSAVED */
    SHEAF__IS_KIND = 0xff,
    /* properties */
    SHEAF__IS_REQUIRED = 0x100,
    SHEAF__IS_FIXED = 0x200,   /* may not change when a run is resumed */
    SHEAF__IS_CONTENT = 0x400, /* names content that may not change, though its path may */
    SHEAF__IS_UNSAVED = 0x800, /* not a setting of the run: no recipe key, not written down */
    SHEAF__IS_HIDDEN = 0x1000, /* not in help */
    SHEAF__IS_NEEDED = 0x2000, /* required too, unless a resumed run has it stored */
    /* Not stored while it is zero, off, unset or the first choice, which must be the default:
     * stored settings name what was chosen. */
    SHEAF__IS_LATE = 0x4000,
    /* FIXED, but not always stored: naming the value that a run uses anyway is allowed
     * (sheaf__settings_unnamed()). */
    SHEAF__IS_SILENT = 0x8000,
    SHEAF__IS_COMMON = 0x10000, /* in the short help, for tables with such rows */
    /* Positional arguments, in the order of the table: sheaf train MODEL DATA. */
    SHEAF__IS_WORD = 0x20000,
    SHEAF__IS_RUNNING = 0x80000, /* of running alone: `sheaf plan` takes it, and hides it */
    SHEAF__IS_LIST = 0x40000,    /* a path, or several with weights or without (data/data_sets.h) */
    SHEAF__IS_YIELDING = 0x100000, /* FIXED; little data lowers what a named recipe says */
    SHEAF__IS_ZERO = 0x200000,     /* NUMBER: 0 is another default, so one that is given is -1 */
};

typedef struct sheaf__choice {
    const char *name;
    int value;
    bool equivalent; /* the result is that of the first choice: FIXED does not tell them apart */
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
    const char *advice;           /* advice for a refused value; NULL = none */
    const char *instead;          /* NEEDED: not needed if this one is given; NULL = none */
    const char
        *heading; /* in help, of this row and those after it; NULL = that of the row before */
    char letter;  /* "-o" for it; 0 = none */
    /* Of a run that goes on elsewhere: *out (malloc'd) is the value from `folder`; *there: it is
     * found there. NULL: of a PATH with CONTENT its own way, else the value stays. */
    sheaf_status *(*from)(char **out, bool *there, const char *folder, const char *value);
} sheaf__setting;

#define SHEAF__MAX_TEXTS 16
typedef struct sheaf__texts {
    const char *at[SHEAF__MAX_TEXTS]; /* borrowed from where they were given */
    int64_t n;
} sheaf__texts;

#define SHEAF__MAX_SETTINGS 160

/* The state of a table's settings beside their values. Starts as zeros; release also after a
 * failure. */
typedef struct sheaf__settings {
    bool given[SHEAF__MAX_SETTINGS];     /* by the caller: a flag on the command line */
    bool from_file[SHEAF__MAX_SETTINGS]; /* by the recipe or by resumed settings */
    bool unnamed[SHEAF__MAX_SETTINGS];   /* SILENT and given, and not by the resumed settings */
    bool named_recipe; /* the recipe was given by its name: one that comes with sheaf */
    bool resumed;      /* sheaf__settings_resume() applied stored ones */
    char *held[24];    /* texts that values point into */
    int nheld;
} sheaf__settings;

void sheaf__settings_release(sheaf__settings *state);
/* sheaf__settings_hold - keeps `text` (malloc'd) until `state` is released, as values may point
 * into it. Takes it over also after a failure. */
sheaf_status *sheaf__settings_hold(sheaf__settings *state, char *text);

/* sheaf__setting_set - sets one setting from text; `from` ("--tp", "recipe.txt:3") is for the
 * message. Errors: SHEAF_E_ARG with the allowed values. */
sheaf_status *sheaf__setting_set(const sheaf__setting *setting, const char *text, const char *from);
/* sheaf__setting_show - the value as text, from which sheaf__setting_set() gets the same value
 * (malloc'd); an unset text gives "". */
char *sheaf__setting_show(const sheaf__setting *setting);
/* sheaf__setting_silent - is it LATE and at its default? */
bool sheaf__setting_silent(const sheaf__setting *setting);
/* sheaf__setting_fixes - is it FIXED, and is the result another than by its first choice? */
bool sheaf__setting_fixes(const sheaf__setting *setting);
/* sheaf__settings_append - appends the rows of one table to another one; both end with a zero
 * entry.
 */
void sheaf__settings_append(sheaf__setting *table, const sheaf__setting *rows);
/* sheaf__setting_find - by its name; NULL. By that of another name of a row (`instead`, with the
 * same value) this row: it is given, stored and resumed as one setting. */
const sheaf__setting *sheaf__setting_find(const sheaf__setting *table, const char *name);
bool sheaf__settings_given(const sheaf__settings *state, const sheaf__setting *table,
                           const char *name);
/* sheaf__settings_yields - does a recipe alone say it, one that comes with sheaf? */
bool sheaf__settings_yields(const sheaf__settings *state, const sheaf__setting *table,
                            const char *name);
/* sheaf__settings_named - given, or in a recipe or in resumed settings. */
bool sheaf__settings_named(const sheaf__settings *state, const sheaf__setting *table,
                           const char *name);
/* sheaf__settings_required - the error for missing REQUIRED and, with needed_too, NEEDED settings,
 * all in one message. */
sheaf_status *sheaf__settings_required(const sheaf__settings *state, const sheaf__setting *table,
                                       bool needed_too);

/* sheaf__settings_read - sets the settings that the caller did not give from `key: value` lines.
 * Takes over `text` (malloc'd), also after a failure; `name` is for messages. */
sheaf_status *sheaf__settings_read(sheaf__settings *state, const sheaf__setting *table, char *text,
                                   const char *name);
/* sheaf__settings_text - every setting of the table as a recipe (malloc'd); with `only_fixed` just
 * the FIXED ones, in table order: the same bytes on any machine, with any paths and ranks. */
sheaf_status *sheaf__settings_text(char **out, const sheaf__setting *table, bool only_fixed);
/* sheaf__settings_resume - applies settings stored by sheaf__settings_text() that neither the
 * caller nor a recipe gave; a given FIXED one that differs is refused, but for a YIELDING one of a
 * named recipe, where the stored one is lower. `name` is for messages. */
sheaf_status *sheaf__settings_resume(sheaf__settings *state, const sheaf__setting *table,
                                     const char *text, const char *name);
/* sheaf__settings_unnamed - after it, for the SILENT setting `name` if it was not stored, which
 * means `means`. Errors: SHEAF_E_ARG if another value was given. */
sheaf_status *sheaf__settings_unnamed(const sheaf__settings *state, const sheaf__setting *table,
                                      const char *name, const char *means);
/* sheaf__settings_resume_rest - applies only the settings that are not FIXED: the others were
 * stored elsewhere. */
sheaf_status *sheaf__settings_resume_rest(sheaf__settings *state, const sheaf__setting *table,
                                          const char *text, const char *name);

/* The settings of a training run: the flags of `sheaf train` and `sheaf plan`
 * (library/train_settings.h), and their values. */
typedef struct sheaf__run_settings {
    sheaf__settings *state; /* borrowed */
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    struct sheaf_train_options *options; /* train/options.h; owned */
    /* The driver (library/session.h); NULL: a program that embeds sheaf. Borrowed. */
    const struct sheaf__run_driver *driver;
} sheaf__run_settings;

/* sheaf__run_settings_open - sets the defaults. The caller may append flags of its own to the
 * table. `planning`: neither data nor OUT is required. Errors: SHEAF_E_MEMORY; close it
 * then too. */
sheaf_status *sheaf__run_settings_open(sheaf__run_settings *run, sheaf__settings *state,
                                       bool planning);
void sheaf__run_settings_close(sheaf__run_settings *run);
/* sheaf__run_plan - as sheaf_run_plan() by settings that are known, which are then those that the
 * plan found, unless it is a table. Messages name flags. */
struct sheaf_needs;
struct sheaf_plan_options;
sheaf_status *sheaf__run_plan(struct sheaf_needs **out, const sheaf__run_settings *run,
                              const struct sheaf_plan_options *how, const sheaf_events *events);

/* sheaf__objective_settings - appends to `table` those of the rows of `train` (a run's table) that
 * say what is minimised. */
void sheaf__objective_settings(sheaf__setting *table, const sheaf__setting *train);

/* sheaf__peer_advise - adds to `st` the setting that corresponds to `word`, a flag of another
 * program or spelling without its dashes ("=VALUE" may follow); `dashes` precede our names. false:
 * not known. */
bool sheaf__peer_advise(sheaf_status *st, const sheaf__setting *table, const char *word,
                        const char *dashes);
/* sheaf__peer_advise_file - `st`, with the way to a recipe as what to try where the file at `path`
 * is one of LLaMA-Factory or Axolotl. */
sheaf_status *sheaf__peer_advise_file(sheaf_status *st, const char *path);
/* sheaf__peer_is_out - does it mean --out in other programs? */
bool sheaf__peer_is_out(const char *word);

/* ---- values and help of settings of several commands ---- */

/* Ranges of sampling, of flags, requests and options: logits that are divided by it are
 * finite, and of probabilities something is left to choose from. */
#define SHEAF__LEAST_SAMPLING 1e-6
#define SHEAF__MOST_SAMPLING 1e6
enum { SHEAF__MOST_TOP_K = 1000000000, SHEAF__MOST_NEW = 10000000 };

extern const sheaf__choice sheaf__loss_choices[]; /* answers, last, all as sheaf_loss_on */
extern const sheaf__choice sheaf__long_choices[]; /* error, cut, skip as sheaf_on_long */
extern const sheaf__choice sheaf__bad_choices[];  /* error, skip as sheaf_on_bad */
#define SHEAF__BAD_HELP                                                                            \
    "bad records: an error (default), or skipped; their number and the first ones are reported"
#define SHEAF__FIELDS_HELP "other names of fields in the records: question=prompt,answer=completion"
#define SHEAF__LOSS_HELP                                                                           \
    "what is learned of a text: all answers, the last of a conversation, everything, or "          \
    "everything behind the first prompt; default: "
#define SHEAF__TOKENIZER_HELP                                                                      \
    "folder, tokenizer.json or tokenizer.model; default: the run's, else in the model's folder, else bytes"
#define SHEAF__TEMPLATE_HELP                                                                       \
    "chat template by name (CogVLM and CogAgent: base, chat, vqa, chat_old); default: "
#define SHEAF__DATE_HELP                                                                           \
    "date that the chat template writes (Llama 3.1 and 3.2, SmolLM3): YYYY-MM-DD, or a text where the template takes one"
#define SHEAF__QUERY_HELP "question about each image of a folder; default: "
#define SHEAF__LONG_HELP                                                                           \
    "texts longer than `seq`: an error (default), cut, or skipped; their number is reported"
#define SHEAF__SPECIALS_HELP "special tokens written in texts are read as tokens, not as plain text"
#define SHEAF__CACHE_HELP                                                                          \
    "folder that caches tokenised texts; default: none, or OUT/cache for large data"
extern const sheaf__choice sheaf__sums_choices[];     /* as sheaf_sums */
extern const sheaf__choice sheaf__quantize_choices[]; /* as sheaf_quantize */
#define SHEAF__QUANTIZE_HELP                                                                       \
    "quantise the frozen linear layers of a plain base while it is loaded, as bitsandbytes does: to 4 bits (nf4-double: with scales in 8) or 8; part of the result"
#define SHEAF__DEVICE_HELP                                                                         \
    "where it computes: cpu (default), cuda (NVIDIA GPUs: rank r on GPU r modulo their number), cuda:0,2 (those); list shows them"
#define SHEAF__SUMS_HELP                                                                           \
    "bfloat16: order of sums, part of the result; mma8, mma16 also float16: as tensor cores, slow; default: the fastest here"
