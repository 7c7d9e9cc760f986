/* captcha.c - draws pictures of four digits with which a small model can learn to read.
 *
 *   captcha STYLE DIR TRAIN HELD [SEED]
 *
 * STYLE is "night" (thin light digits on dark, in waves) or "day" (thick dark digits on light,
 * under lines). Writes TRAIN pictures into DIR/train and HELD into DIR/heldout, named LABEL.k.png
 * (night) or LABEL.k.jpg (day), which is the captcha format of `sheaf train --data DIR/train`. No
 * number that is held out is among the training pictures, in any style, for HELD and SEED being the
 * same. The same arguments give the same pictures. */
#include <errno.h>
#include <math.h>
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* After stdio.h, whose FILE it uses. */
#include <jpeglib.h>

enum { WIDTH = 112, HEIGHT = 48, DIGITS = 4, NUMBERS = 10000, MOST_POINTS = 18, UNIT = 20 };

/* ---- random numbers: splitmix64 ---- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double between(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)(next(state) >> 11) / 9007199254740992.0;
}

/* ---- digits: lines through points, in 20ths of the digit's box; a point of -1 lifts the pen
 * ---- */

static const struct {
    int n;
    signed char at[MOST_POINTS][2];
} glyph[10] = {
    { 13,
      { { 10, 0 },
        { 15, 1 },
        { 18, 5 },
        { 19, 10 },
        { 18, 15 },
        { 15, 19 },
        { 10, 20 },
        { 5, 19 },
        { 2, 15 },
        { 1, 10 },
        { 2, 5 },
        { 5, 1 },
        { 10, 0 } } },
    { 3, { { 5, 5 }, { 11, 0 }, { 11, 20 } } },
    { 9,
      { { 1, 5 },
        { 4, 1 },
        { 10, 0 },
        { 16, 1 },
        { 19, 5 },
        { 18, 9 },
        { 10, 14 },
        { 1, 20 },
        { 19, 20 } } },
    { 13,
      { { 1, 3 },
        { 5, 0 },
        { 13, 0 },
        { 18, 4 },
        { 16, 8 },
        { 8, 10 },
        { -1, -1 },
        { 16, 11 },
        { 19, 15 },
        { 16, 19 },
        { 10, 20 },
        { 4, 19 },
        { 1, 17 } } },
    { 4, { { 14, 20 }, { 14, 0 }, { 0, 14 }, { 20, 14 } } },
    { 9,
      { { 18, 0 },
        { 3, 0 },
        { 2, 9 },
        { 10, 7 },
        { 17, 10 },
        { 19, 14 },
        { 15, 19 },
        { 7, 20 },
        { 1, 18 } } },
    { 12,
      { { 16, 0 },
        { 8, 2 },
        { 3, 8 },
        { 1, 14 },
        { 4, 19 },
        { 10, 20 },
        { 16, 19 },
        { 19, 14 },
        { 16, 10 },
        { 10, 8 },
        { 4, 10 },
        { 1, 14 } } },
    { 3, { { 0, 0 }, { 20, 0 }, { 8, 20 } } },
    { 18,
      { { 10, 0 },
        { 16, 1 },
        { 18, 5 },
        { 16, 8 },
        { 10, 10 },
        { 4, 8 },
        { 2, 5 },
        { 4, 1 },
        { 10, 0 },
        { -1, -1 },
        { 10, 10 },
        { 17, 12 },
        { 19, 15 },
        { 16, 19 },
        { 10, 20 },
        { 3, 19 },
        { 1, 15 },
        { 10, 10 } } },
    { 12,
      { { 4, 20 },
        { 12, 18 },
        { 17, 12 },
        { 19, 6 },
        { 16, 1 },
        { 10, 0 },
        { 4, 1 },
        { 1, 6 },
        { 4, 10 },
        { 10, 12 },
        { 16, 10 },
        { 19, 6 } } },
};

static double from_segment(double x, double y, double ax, double ay, double bx, double by)
{
    const double dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
    double t = length > 0 ? ((x - ax) * dx + (y - ay) * dy) / length : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypot(x - ax - t * dx, y - ay - t * dy);
}

/* Distance of a point, in units of the digit's box, to its lines. */
static double from_digit(int digit, double x, double y)
{
    double nearest = 1e9;
    for (int i = 1; i < glyph[digit].n; i++) {
        const signed char *a = glyph[digit].at[i - 1], *b = glyph[digit].at[i];
        if (a[0] < 0 || b[0] < 0)
            continue;
        const double d = from_segment(x * UNIT, y * UNIT, a[0], a[1], b[0], b[1]) / UNIT;
        nearest = d < nearest ? d : nearest;
    }
    return nearest;
}

/* ---- a picture ---- */

typedef struct style {
    const char *name, *ending;
    double paper[2], ink[2]; /* ranges of brightness */
    double pen[2];           /* width in pixels */
    double wave;             /* pixels */
    int lines;
    double noise;
} style;

static const style styles[] = {
    { "night", "png", { 10, 60 }, { 180, 250 }, { 1.8, 2.8 }, 2.5, 0, 14 },
    { "day", "jpg", { 190, 250 }, { 0, 70 }, { 4.0, 5.5 }, 0.5, 3, 10 },
};
enum { STYLES = sizeof styles / sizeof *styles };

typedef struct place {
    double x, y, wide, high, turn, lean;
} place; /* of a digit: its middle, its size */

typedef struct picture {
    const style *style;
    uint64_t random;
    int digit[DIGITS];
    place at[DIGITS];
    double pen, wave, phase[2], length[2], line[8][4];
    uint8_t pixels[HEIGHT][WIDTH][3];
} picture;

static void arrange(picture *p)
{
    uint64_t *r = &p->random;
    for (int i = 0; i < DIGITS; i++) {
        const double column = (double)WIDTH / DIGITS;
        p->at[i] = (place){ column * (i + 0.5) + between(r, -3, 3),
                            HEIGHT / 2.0 + between(r, -5, 5),
                            between(r, 14, 19),
                            between(r, 26, 33),
                            between(r, -0.2, 0.2),
                            between(r, -0.2, 0.2) };
    }
    p->pen = between(r, p->style->pen[0], p->style->pen[1]);
    p->wave = between(r, 0.5, 1) * p->style->wave;
    for (int i = 0; i < 2; i++) {
        p->phase[i] = between(r, 0, 6.283);
        p->length[i] = between(r, 18, 36);
    }
    for (int i = 0; i < p->style->lines; i++)
        for (int k = 0; k < 4; k++)
            p->line[i][k] =
                k % 2 == 0 ? (k == 0 ? between(r, -10, 20) : between(r, WIDTH - 20, WIDTH + 10))
                           : between(r, 0, HEIGHT);
}

/* How much ink a pixel gets, 0 to 1. */
static double ink_at(const picture *p, double x, double y)
{
    const double wx = x + p->wave * sin(y * 6.283 / p->length[0] + p->phase[0]);
    const double wy = y + p->wave * sin(x * 6.283 / p->length[1] + p->phase[1]);
    double nearest = 1e9;
    for (int i = 0; i < DIGITS; i++) {
        const place *d = &p->at[i];
        const double dx = wx - d->x, dy = wy - d->y;
        if (fabs(dx) > d->wide || fabs(dy) > d->high)
            continue;
        const double u = dx * cos(d->turn) + dy * sin(d->turn) + d->lean * dy,
                     v = dy * cos(d->turn) - dx * sin(d->turn);
        const double far =
            from_digit(p->digit[i], u / d->wide + 0.5, v / d->high + 0.5) * (d->wide + d->high) / 2;
        nearest = far < nearest ? far : nearest;
    }
    const double ink = p->pen / 2 - nearest + 0.5;
    double lines = 0;
    for (int i = 0; i < p->style->lines; i++) {
        const double *l = p->line[i], one = 1.1 - from_segment(x, y, l[0], l[1], l[2], l[3]);
        lines = one > lines ? one : lines;
    }
    const double most = ink > lines ? ink : lines;
    return most < 0 ? 0 : most > 1 ? 1 : most;
}

static void draw(picture *p)
{
    double paper[3], ink[3];
    arrange(p);
    for (int c = 0; c < 3; c++) {
        paper[c] = between(&p->random, p->style->paper[0], p->style->paper[1]);
        ink[c] = between(&p->random, p->style->ink[0], p->style->ink[1]);
    }
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const double amount = ink_at(p, x, y);
            for (int c = 0; c < 3; c++) {
                const double noise =
                    (between(&p->random, -1, 1) + between(&p->random, -1, 1)) * p->style->noise;
                const double value = paper[c] + (ink[c] - paper[c]) * amount + noise;
                p->pixels[y][x][c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5);
            }
        }
}

/* ---- files ---- */

static int save_png(const picture *p, const char *path)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = PNG_FORMAT_RGB
    };
    return png_image_write_to_file(&image, path, 0, p->pixels, 0, NULL) ? 0 : -1;
}

/* An error inside of libjpeg ends the program with a message: its default. */
static int save_jpeg(picture *p, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return -1;
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = WIDTH;
    jpeg.image_height = HEIGHT;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        JSAMPROW row = p->pixels[y][0];
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return fclose(f);
}

/* Numbers [0, held) of the list are held out; pictures of one of these two sets go round its
 * part. */
typedef struct set {
    const char *name;
    int begin, numbers, pictures;
} set;

static int write_set(const style *style, const char *dir, const set *set, const int *number,
                     uint64_t seed)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, set->name);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        return -1;
    }
    for (int i = 0; i < set->pictures; i++) {
        const int label = number[set->begin + i % set->numbers];
        picture p = { .style = style,
                      .random = seed ^ (uint64_t)(set->begin + 1) << 40 ^ (uint64_t)i << 4 ^
                                (uint64_t)style->lines };
        for (int d = 0, rest = label; d < DIGITS; d++, rest /= 10)
            p.digit[DIGITS - 1 - d] = rest % 10;
        draw(&p);
        snprintf(path, sizeof path, "%s/%s/%04d.%d.%s", dir, set->name, label, i / set->numbers,
                 style->ending);
        if ((strcmp(style->ending, "png") == 0 ? save_png(&p, path) : save_jpeg(&p, path)) != 0) {
            perror(path);
            return -1;
        }
    }
    printf("%s/%s: %d pictures of %d numbers\n", dir, set->name, set->pictures,
           set->pictures < set->numbers ? set->pictures : set->numbers);
    return 0;
}

/* A count from the command line; -1: none. */
static int count_of(const char *text, int most)
{
    char *end;
    const long n = strtol(text, &end, 10);
    return *text == '\0' || *end != '\0' || n < 1 || n > most ? -1 : (int)n;
}

int main(int argc, char **argv)
{
    const style *style = NULL;
    for (int i = 0; i < STYLES && argc > 1; i++)
        style = strcmp(argv[1], styles[i].name) == 0 ? &styles[i] : style;
    const int train = argc > 4 ? count_of(argv[3], 1000000) : -1,
              held = argc > 4 ? count_of(argv[4], NUMBERS / 2) : -1;
    if (style == NULL || train < 0 || held < 0 || argc > 6) {
        fprintf(stderr, "usage: captcha night|day DIR TRAIN HELD [SEED]   (at most %d held out)\n",
                NUMBERS / 2);
        return 2;
    }
    const uint64_t seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 1;
    uint64_t random = seed;
    static int number[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        const int j = (int)(next(&random) % (uint64_t)(i + 1));
        number[i] = number[j];
        number[j] = i;
    }
    if (mkdir(argv[2], 0777) != 0 && errno != EEXIST) {
        perror(argv[2]);
        return 1;
    }
    const set sets[] = { { "train", held, NUMBERS - held, train }, { "heldout", 0, held, held } };
    for (int i = 0; i < 2; i++)
        if (write_set(style, argv[2], &sets[i], number, next(&random)) != 0)
            return 1;
    return 0;
}
