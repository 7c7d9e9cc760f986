/* plan_test.c - what a program hears that asks for plans and times by structs and settings: it
 * knows no flags of the command. */
#include "sheaf/sheaf.h"
#include "tests/tiny_llama.h"
#include "tests/sources.h"

enum { MOST_SAID = 8 };

static char pictured[400];

typedef struct said {
    char text[MOST_SAID][400];
    int n;
} said;

static int find_both(void **state)
{
    snprintf(pictured, sizeof pictured, "%s", in_sources("tests/data/configs/cogvlm-224.json"));
    return find_data(state);
}

static void hear(void *context, const sheaf_event *event)
{
    said *s = context;
    if (s->n < MOST_SAID && event->text != NULL)
        snprintf(s->text[s->n++], sizeof *s->text, "%s", event->text);
}

static void check_said(const said *s, const char *what)
{
    bool heard = false;
    for (int i = 0; i < s->n; i++) {
        heard = heard || strstr(s->text[i], what) != NULL;
        if (strstr(s->text[i], "--") != NULL)
            fail_msg("a flag: %s", s->text[i]);
    }
    if (!heard)
        fail_msg("of %d notes none says '%s'", s->n, what);
}

TEST(test_plan__notes_name_settings_and_fields)
{
    sheaf_needs *needs;
    said s = { .n = 0 };
    const sheaf_events events = { hear, &s };
    sheaf_run_train_options run = { .size = sizeof run };
    sheaf_model_open_options open = { .size = sizeof open };
    run.model = open.model = model;
    run.events = open.events = &events;
    run.settings = "seq: 4000\nlora-targets: q_proj\n";
    CHECK_OK(sheaf_run_plan(&needs, &run, NULL));
    sheaf_needs_free(needs);
    check_said(&s, "`seq`: 4000 positions are more than");
    s.n = 0;
    open.positions = 4000;
    CHECK_OK(sheaf_model_plan(&needs, &open, NULL));
    sheaf_needs_free(needs);
    check_said(&s, "`positions`: 4000 positions are more than");
    s.n = 0;
    open.model = NULL;
    open.config = pictured;
    open.positions = 0;
    CHECK_OK(sheaf_model_plan(&needs, &open, NULL));
    sheaf_needs_free(needs);
    check_said(&s, "without `data` every row is taken to have an image");
    for (int i = 0; i < s.n; i++)
        assert_null(strstr(s.text[i], "several")); /* which this family's rows have not */
}

TEST(test_plan__errors_name_settings_and_fields)
{
    sheaf_needs *needs;
    sheaf_model_open_options open = { .size = sizeof open, .model = model, .place = "x" };
    CHECK_FAILS(sheaf_model_plan(&needs, &open, NULL), SHEAF_E_ARG,
                "`place`: 'x' | a number of stages (2)");
    open.place = NULL;
    open.tp = 60;
    CHECK_FAILS(sheaf_model_plan(&needs, &open, NULL), SHEAF_E_ARG, "tp | at most 64 ranks in all");
    open.tp = 0;
    open.device = "dry";
    CHECK_FAILS(sheaf_model_plan(&needs, &open, NULL), SHEAF_E_ARG, "cuda:0,2 (those) | dry");
    open.device = NULL;
    open.model = NULL;
    open.config = pictured;
    open.positions = 20;
    CHECK_FAILS(sheaf_model_plan(&needs, &open, NULL), SHEAF_E_ARG,
                "`seq`, the positions of a row | at least");
}

TEST(test_timing__errors_name_settings_and_fields)
{
    sheaf_needs *needs;
    sheaf_model_open_options open = {
        .size = sizeof open, .model = model, .positions = 12, .place = "2"
    };
    sheaf_plan_options how = { .size = sizeof how, .time = true };
    CHECK_FAILS(sheaf_model_plan(&needs, &open, &how), SHEAF_E_ARG,
                "time of generation | layers on one stage | 2 | `place 1`");
    open.place = NULL;
    how.batch = -1;
    CHECK_FAILS(sheaf_model_plan(&needs, &open, &how), SHEAF_E_ARG,
                "sheaf_plan_options: batch | 0 to 1000000 | -1");
    how.batch = INT64_C(1) << 62;
    CHECK_FAILS(sheaf_model_plan(&needs, &open, &how), SHEAF_E_ARG, "batch | 0 to 1000000");
    how.batch = 1;
    how.trial = true;
    CHECK_FAILS(sheaf_model_plan(&needs, &open, &how), SHEAF_E_ARG,
                "sheaf_plan_options | memory, slots, max_new, batch or time");
    how.trial = false;
    how.max_new = 12;
    CHECK_FAILS(
        sheaf_model_plan(&needs, &open, &how), SHEAF_E_ARG,
        "at least 1 positions | 0: 12 less 12 | `positions` of 13 or more, or a smaller `max-new`");
}

FIXTURE(find_both, remove_scratch);
