/* rope.c - see rope.h. The rules are those of transformers' modeling_rope_utils.py, in its float32
 * where it uses that:
 *
 *   f = theta^(-2j/rot)
 *   linear    f / factor
 *   llama3    slow waves f / factor, fast ones f, between them a mix
 *   yarn      between two dimensions, found from beta_fast and beta_slow, from f to f / factor
 *   dynamic   theta grows with the length of the sequence, beyond max_position_embeddings
 *   longrope  f / short_factor[j], or f / long_factor[j] in sequences beyond the original length
 *
 * and cos and sin are multiplied by an attention factor in yarn and longrope. */
#include "models/rope.h"

#include <math.h>

#include "ops/math/math.h"
#include "ops/math/round.h"

static const double PI = 3.14159265358979323846;

/* theta^(2j/rot) */
static double power(double theta, int64_t j, int64_t rot)
{
    return sheaf__pow_d(theta, 2.0 * (double)j / (double)rot);
}

static float llama3(const sheaf_config *config, float f)
{
    const float factor = (float)config->rope.factor;
    const float low = (float)config->rope.low_freq_factor,
                high = (float)config->rope.high_freq_factor;
    const float original = (float)config->rope.original_length;
    const float wavelength = (float)(2 * PI) / f;
    if (wavelength > original / low)
        return f / factor;
    if (wavelength < original / high)
        return f;
    const float smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
}

/* The dimension whose wave turns `turns` times in the original length. */
static double yarn_dimension(const sheaf_config *c, double turns, int64_t rot)
{
    return (double)rot * sheaf__log_d((double)c->rope.original_length / (turns * 2 * PI)) /
           (2 * sheaf__log_d(c->rope.theta));
}

static float yarn(const sheaf_config *c, int64_t j, int64_t rot)
{
    double low = yarn_dimension(c, c->rope.beta_fast, rot),
           high = yarn_dimension(c, c->rope.beta_slow, rot);
    if (c->rope.truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < (double)(rot - 1) ? high : (double)(rot - 1);
    if (low == high)
        high += 0.001; /* no division by zero */
    float ramp = ((float)j - (float)low) / (float)(high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    const float whole = (float)power(c->rope.theta, j, rot), keep = 1 - ramp;
    const float slow = 1.0f / ((float)c->rope.factor * whole), fast = 1.0f / whole;
    return slow * (1 - keep) + fast * keep;
}

static double dynamic_theta(const sheaf_config *c, int64_t rot, int64_t length)
{
    if (length <= c->max_position)
        return c->rope.theta;
    const float factor = (float)c->rope.factor,
                stretch =
                    factor * (float)length / (float)c->max_position - (float)(c->rope.factor - 1);
    const float grown = (float)sheaf__pow_d((double)stretch, (double)rot / (double)(rot - 2));
    return (double)((float)c->rope.theta * grown);
}

static bool is_long(const sheaf_config *c, int64_t length)
{
    return length > c->rope.original_length;
}

float sheaf__rope_frequency(const sheaf_config *config, int64_t j, int64_t rot, int64_t length)
{
    const float f = (float)(1.0 / power(config->rope.theta, j, rot));
    switch (config->rope.type) {
    case SHEAF_ROPE_DEFAULT: break;
    case SHEAF_ROPE_LINEAR: return f / (float)config->rope.factor;
    case SHEAF_ROPE_LLAMA3: return llama3(config, f);
    case SHEAF_ROPE_DYNAMIC:
        return (float)(1.0 / power(dynamic_theta(config, rot, length), j, rot));
    case SHEAF_ROPE_YARN: return yarn(config, j, rot);
    case SHEAF_ROPE_LONGROPE:
        return 1.0f / ((float)(is_long(config, length) ? config->rope.long_factor
                                                       : config->rope.short_factor)[j] *
                       (float)power(config->rope.theta, j, rot));
    }
    return f;
}

static double yarn_scale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * sheaf__log_d(factor) + 1;
}

/* The factor of cos and sin. */
static double attention_of(const sheaf_config *c)
{
    const double factor = c->rope.factor;
    if (c->rope.type != SHEAF_ROPE_YARN && c->rope.type != SHEAF_ROPE_LONGROPE)
        return 1;
    if (c->rope.attention_factor != 0)
        return c->rope.attention_factor;
    if (c->rope.type == SHEAF_ROPE_LONGROPE)
        return factor <= 1
                   ? 1
                   : sqrt(1 + sheaf__log_d(factor) / sheaf__log_d((double)c->rope.original_length));
    return c->rope.mscale == 0
               ? yarn_scale(factor, 1)
               : yarn_scale(factor, c->rope.mscale) / yarn_scale(factor, c->rope.mscale_all_dim);
}

void sheaf__rope_fill_pair(sheaf__rope_table *t, int64_t j, float frequency, float attention,
                           sheaf_dtype dtype, sheaf_dtype angle)
{
    const int64_t angles = sheaf__rope_angles(t), each = angles / (t->rot / 2);
    for (int64_t pos = 0; pos < t->positions; pos++) {
        const float a = sheaf__rounded(
            sheaf__rounded((float)pos, angle) * sheaf__rounded(frequency, angle), angle);
        for (int64_t i = pos * angles + j * each; i < pos * angles + (j + 1) * each; i++) {
            t->cos[i] = sheaf__rounded((float)sheaf__cos_d((double)a) * attention, dtype);
            t->sin[i] = sheaf__rounded((float)sheaf__sin_d((double)a) * attention, dtype);
        }
    }
}

static size_t bytes_of(const sheaf__rope_table *t)
{
    return (size_t)(t->positions * sheaf__rope_angles(t)) * sizeof(float);
}

sheaf_status *sheaf__rope_borrow(sheaf__rope_table *host, const sheaf__rope_table *t,
                                 sheaf__device *device)
{
    *host = *t;
    host->sin = NULL;
    sheaf_status *st = sheaf__borrow(&host->cos, device, t->cos, bytes_of(t), false);
    return TRY(st, sheaf__borrow(&host->sin, device, t->sin, bytes_of(t), false));
}

sheaf_status *sheaf__rope_return(const sheaf__rope_table *host, const sheaf__rope_table *t,
                                 sheaf__device *device, bool writes)
{
    sheaf_status *st = sheaf__return(host->cos, device, t->cos, bytes_of(t), writes);
    return sheaf__first_of(st, sheaf__return(host->sin, device, t->sin, bytes_of(t), writes));
}

/* ---- tables that follow the length of a run ---- */

/* The pairs of a table, for sequences of a length. */
typedef struct filling {
    sheaf__rope_table host;
    const sheaf_config *config; /* NULL: of the default type, with theta */
    double theta;
    int64_t length;
    float attention;
    sheaf_dtype dtype;
} filling;

static void fill_pairs(void *arg, int64_t begin, int64_t end, int worker)
{
    filling *f = arg;
    const int64_t rot = f->host.rot;
    for (int64_t j = begin; j < end; j++)
        sheaf__rope_fill_pair(&f->host, j,
                              f->config == NULL
                                  ? (float)(1.0 / power(f->theta, j, rot))
                                  : sheaf__rope_frequency(f->config, j, rot, f->length),
                              f->attention, f->dtype, SHEAF_F32);
}

static sheaf_status *fill(sheaf__device *device, const sheaf__rope_table *t, filling f)
{
    sheaf_status *st = sheaf__rope_borrow(&f.host, t, device);
    if (st == NULL && f.host.sin != NULL)
        sheaf__pool_rows(device->pool, t->rot / 2, 1, fill_pairs, &f);
    return sheaf__first_of(st, sheaf__rope_return(&f.host, t, device, st == NULL));
}

bool sheaf__rope_follows_length(const sheaf_config *config)
{
    return config->rope.type == SHEAF_ROPE_DYNAMIC || config->rope.type == SHEAF_ROPE_LONGROPE;
}

/* Lengths that have the same angles are one. */
static int64_t same_length(const sheaf_config *c, int64_t length)
{
    if (c->rope.type == SHEAF_ROPE_LONGROPE)
        return is_long(c, length) ? c->rope.original_length + 1 : 0;
    return c->rope.type == SHEAF_ROPE_DYNAMIC && length > c->max_position ? length : 0;
}

static sheaf_status *lengthen(sheaf__rope_table *t, sheaf__device *device, int64_t length)
{
    const int64_t same = same_length(t->config, length);
    if (same == t->length)
        return NULL;
    const sheaf__rope_table was = *t;
    t->cos = was.other_cos;
    t->sin = was.other_sin;
    t->length = was.other_length;
    t->other_cos = was.cos;
    t->other_sin = was.sin;
    t->other_length = was.length;
    if (same == t->length)
        return NULL;
    t->length = -1; /* until it is filled */
    sheaf_status *st = fill(device, t,
                            (filling){ .config = t->config,
                                       .length = same,
                                       .attention = (float)attention_of(t->config),
                                       .dtype = t->dtype });
    t->length = st == NULL ? same : -1;
    return st;
}

sheaf_status *sheaf__rope_fill(sheaf__rope_table *t, const sheaf_config *config,
                               sheaf__device *device, sheaf_dtype dtype)
{
    if (sheaf__rope_follows_length(config)) {
        t->config = config;
        t->dtype = dtype;
        t->lengthen = lengthen;
    }
    return fill(
        device, t,
        (filling){ .config = config, .attention = (float)attention_of(config), .dtype = dtype });
}

sheaf_status *sheaf__rope_fill_plain(sheaf__rope_table *t, double theta, sheaf__device *device,
                                     sheaf_dtype dtype)
{
    return fill(device, t, (filling){ .theta = theta, .attention = 1, .dtype = dtype });
}

static uint8_t axis_of(const sheaf_config *c, int64_t j)
{
    const int64_t *section = c->rope.section;
    if (c->rope.interleaved)
        return (uint8_t)(j % 3 != 0 && j < 3 * section[j % 3] ? j % 3 : 0);
    return (uint8_t)(j < section[0] ? 0 : j < section[0] + section[1] ? 1 : 2);
}

sheaf_status *sheaf__rope_axes(sheaf__angles *out, const sheaf_config *config, int64_t rot,
                               sheaf_dtype dtype)
{
    if (rot / 2 > SHEAF_MAX_ROPE_PAIRS)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "config: head_dim"),
                           "at most %d elements in a head, as positions have three axes",
                           2 * SHEAF_MAX_ROPE_PAIRS),
            "%lld", (long long)rot);
    *out = (sheaf__angles){ .pairs = rot / 2,
                            .attention = (float)attention_of(config),
                            .dtype = dtype };
    for (int64_t j = 0; j < out->pairs; j++) {
        out->frequency[j] = sheaf__rope_frequency(config, j, rot, 0);
        out->axis[j] = axis_of(config, j);
    }
    return NULL;
}

bool sheaf__rope_changes(const sheaf_config *config, int64_t before, int64_t after)
{
    return same_length(config, before) != same_length(config, after);
}
