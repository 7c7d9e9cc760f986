/* inside_test.c - the rounding mode, traps and decimal point of a program reach no file and no
 * result, and are its own again when a call returns; what it gave to be called may change them. */
#include <locale.h>

#include "base/numeric_env.h"
#include "base/thread.h"
#include "schema/config.h"
#include "sheaf/sheaf.h"
#include "tests/tiny_llama.h"

/* A decimal comma for all threads, from the system's locales or made here; where neither is to be
 * had, the locale stays "C", and only the mode is put to the test. */
static void choose_comma(void)
{
    const char *const commas[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    char command[600];
    for (size_t i = 0; i < ARRAY_LEN(commas); i++)
        if (setlocale(LC_ALL, commas[i]) != NULL)
            return;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
             scratch.dir);
    setenv("LOCPATH", scratch.dir, 1);
    if (system(command) == 0)
        assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
    unsetenv("LOCPATH");
}

static void be_awkward(void)
{
    choose_comma();
    assert_int_equal(fesetround(FE_UPWARD), 0);
}

/* A hook that leaves a mode behind, and sees the program's own locale. */
static bool meddle(void *context, const sheaf_event_step *step)
{
    *(bool *)context = uselocale((locale_t)0) == LC_GLOBAL_LOCALE;
    fesetround(FE_DOWNWARD);
    return step->step > 0;
}

static void run(const char *out, bool *saw)
{
    sheaf_run_train_options how = {
        .size = sizeof how,
        .model = model,
        .data = data,
        .out = out,
        .steps = 4,
        .threads = 2,
        .settings = "lora-rank: 4\nlr: 0.0123\nlora-dropout: 0.1\nsave-every: 2\nseed: 7\n",
        .step = saw == NULL ? NULL : meddle,
        .context = saw
    };
    CHECK_OK(sheaf_run_train(NULL, &how));
}

TEST(test_train__leaves_the_same_bytes_whatever_the_program_chose)
{
    bool saw = false;
    run(at("plain"), NULL);
    be_awkward();
    run(at("other"), &saw);
    const int rounding = fegetround();
    fesetround(FE_TONEAREST);
    setlocale(LC_ALL, "C");
    assert_int_equal(rounding, FE_UPWARD);
    assert_true(saw);
    check_same_file(at("plain"), at("other"), "adapter/adapter_config.json");
    check_same_file(at("plain"), at("other"), "adapter/adapter_model.safetensors");
    check_same_file(at("plain"), at("other"), "checkpoints/step-00000004/manifest.json");
}

static double epsilon_of(const char *text)
{
    sheaf_config c;
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    const double is = c.rms_eps;
    sheaf_config_release(&c);
    return is;
}

TEST(test_config__reads_the_same_numbers)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8,"
        "\"intermediate_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 1,"
        "\"rms_norm_eps\": 1.1e-5}";
    const double plain = epsilon_of(text);
    be_awkward();
    const double other = epsilon_of(text);
    fesetround(FE_TONEAREST);
    setlocale(LC_ALL, "C");
    CHECK_NEAR("rms_norm_eps", other, plain, 0);
}

static void *look(void *context)
{
    locale_t *own = context;
    *own = fegetround() == FE_TONEAREST ? uselocale((locale_t)0) : (locale_t)0;
    return NULL;
}

/* Also the locale of one thread of the program, and of threads of ours. */
TEST(test_inside__is_the_same_in_every_thread)
{
    locale_t chosen = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0), of_thread = LC_GLOBAL_LOCALE;
    pthread_t thread;
    assert_true(chosen != (locale_t)0);
    uselocale(chosen);
    fesetround(FE_UPWARD);
    sheaf__numeric_env before = sheaf__numeric_env_enter();
    const locale_t inside = uselocale((locale_t)0);
    const int rounding = fegetround();
    sheaf__numeric_env_restore(&before);
    const int error = sheaf__thread_start(&thread, look, &of_thread);
    if (error == 0)
        pthread_join(thread, NULL);
    const locale_t after = uselocale(LC_GLOBAL_LOCALE);
    const int after_rounding = fegetround();
    fesetround(FE_TONEAREST);
    freelocale(chosen);
    assert_int_equal(error, 0);
    assert_true(inside != chosen && inside != LC_GLOBAL_LOCALE && after == chosen);
    assert_true(rounding == FE_TONEAREST && after_rounding == FE_UPWARD);
    assert_true(of_thread != (locale_t)0 && of_thread != LC_GLOBAL_LOCALE);
}

FIXTURE(find_data, remove_scratch);
