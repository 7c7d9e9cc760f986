/* scaler.c - see scaler.h. */
#include "train/scaler.h"

#include <math.h>

#include "base/base.h"

enum { WINDOW = 2000, HYSTERESIS = 1 }; /* torch's GradScaler */
static const double first_scale = 65536, least_scale = 1, largest_scale = 0x1p127;

static bool is_power_of_two(double x)
{
    int exponent;
    return isfinite(x) && x > 0 && frexp(x, &exponent) == 0.5;
}

static sheaf_status *check_power(const char *flag, double x)
{
    if (is_power_of_two(x) && x <= largest_scale && x >= 0x1p-126)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`%s`", flag);
    sheaf_expected(st, "a power of two, so that scaling is exact: 1024, 65536");
    return sheaf_found(st, "%g", x);
}

sheaf_status *sheaf__scaler_options_read(sheaf__scaler_options *out, const char *how, double scale,
                                         int64_t window, int64_t hysteresis, double least)
{
    const bool dynamic = how == NULL || how[0] == '\0' || strcmp(how, "dynamic") == 0;
    *out = (sheaf__scaler_options){ .dynamic = dynamic,
                                    .scale = scale > 0 ? scale : first_scale,
                                    .window = window > 0 ? window : WINDOW,
                                    .hysteresis = hysteresis > 0 ? hysteresis : HYSTERESIS,
                                    .least = least > 0 ? least : least_scale };
    if (!dynamic) {
        char *end;
        out->scale = strtod(how, &end);
        if (*end != '\0')
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`loss-scale`"),
                                              "dynamic, or a power of two"),
                               "%s", how);
        out->least = out->scale;
    }
    sheaf_status *st = check_power(dynamic ? "loss-scale-init" : "loss-scale", out->scale);
    TRY(st, check_power("loss-scale-min", out->least));
    if (st == NULL && out->least > out->scale)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`loss-scale-min`"),
                                        "at most %g, the first scale", out->scale),
                         "%g", out->least);
    return st;
}

void sheaf__scaler_init(sheaf__scaler *s, const sheaf__scaler_options *options)
{
    *s = (sheaf__scaler){ .options = *options,
                          .scale = options->scale,
                          .left = options->hysteresis };
}

void sheaf__scaler_good(sheaf__scaler *s)
{
    if (!s->options.dynamic || ++s->good < s->options.window)
        return;
    s->good = 0;
    s->left = s->options.hysteresis;
    if (s->scale < largest_scale)
        s->scale *= 2;
}

bool sheaf__scaler_overflow(sheaf__scaler *s)
{
    if (s->left <= 1 && s->scale <= s->options.least)
        return false;
    s->good = 0;
    s->skipped++;
    if (s->left > 1)
        s->left--;
    else
        s->scale /= 2;
    return true;
}

void sheaf__scaler_text(sheaf_text *text, const sheaf__scaler *s)
{
    sheaf__text_add(text,
                    "{\"scale\": %.17g, \"good\": %" PRId64 ", \"left\": %" PRId64
                    ", \"skipped\": %" PRId64 "}",
                    s->scale, s->good, s->left, s->skipped);
}

void sheaf__scaler_read(sheaf__scaler *s, const json_t *object)
{
    const double scale = json_number_value(json_object_get(object, "scale"));
    if (!is_power_of_two(scale))
        return;
    s->scale = scale;
    s->good = json_integer_value(json_object_get(object, "good"));
    s->left = json_integer_value(json_object_get(object, "left"));
    s->skipped = json_integer_value(json_object_get(object, "skipped"));
}
