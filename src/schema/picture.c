/* picture.c - see picture.h. */
#include "schema/picture.h"

#include "base/base.h"
#include "schema/family.h"

int sheaf__towers_of(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->towers == NULL ? 0 : family->towers(out, config);
}

int sheaf__tower_beside(sheaf__tower *out, const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    *out = (sheaf__tower){ 0 };
    for (int i = 0; i < n; i++)
        if (tower[i].beside && tower[i].gives > 0) {
            *out = tower[i];
            return i;
        }
    return -1;
}

int64_t sheaf__tower_numbers(const sheaf__tower *tower)
{
    return tower->channels * tower->height * tower->width;
}

void sheaf__picture_place(sheaf__picture *out, int64_t n, float *const *pixels,
                          const sheaf__tower *tower, int towers)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = (sheaf__picture){ 0 };
        for (int t = 0; t < towers; t++)
            out[i].of[t] = (sheaf__view){
                .pixels =
                    pixels[t] == NULL ? NULL : pixels[t] + i * sheaf__tower_numbers(&tower[t]),
                .height = tower[t].height,
                .width = tower[t].width,
            };
    }
}

sheaf__picture *sheaf__picture_room_like(const sheaf__picture *like, int64_t n,
                                         const sheaf__tower *tower, int towers)
{
    size_t numbers = 0;
    for (int t = 0; t < towers; t++)
        for (int64_t i = 0; i < n; i++)
            numbers += (size_t)(like != NULL && tower[t].ragged
                                    ? sheaf__view_numbers(&like[i].of[t], &tower[t])
                                    : sheaf__tower_numbers(&tower[t]));
    sheaf__picture *out = malloc((size_t)n * sizeof *out + numbers * sizeof(float) + 1);
    if (out == NULL)
        return NULL;
    float *next = (float *)(out + n), *none[SHEAF__MOST_TOWERS] = { NULL };
    sheaf__picture_place(out, n, none, tower, towers);
    for (int64_t i = 0; like != NULL && i < n; i++) {
        out[i].frame = like[i].frame;
        out[i].joins = like[i].joins;
    }
    for (int t = 0; t < towers; t++)
        for (int64_t i = 0; i < n; i++) {
            sheaf__view *view = &out[i].of[t];
            if (like != NULL && tower[t].ragged)
                *view = like[i].of[t];
            view->pixels = next;
            next += sheaf__view_numbers(view, &tower[t]);
        }
    return out;
}

int sheaf__picture_misfit(const sheaf__picture *picture, const sheaf__tower *tower, int towers)
{
    for (int t = 0; t < towers; t++) {
        const sheaf__view *view = &picture->of[t];
        if (view->pixels == NULL || !sheaf__view_fits(view, &tower[t]))
            return t;
    }
    return -1;
}

/* The tower whose rows stand in the sequence, and its number; -1: none. */
static int tower_inside(sheaf__tower *out, const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    for (int i = 0; i < n; i++)
        if (!tower[i].beside) {
            *out = tower[i];
            return i;
        }
    return -1;
}

int64_t sheaf__image_rows(const sheaf_config *config)
{
    sheaf__tower tower;
    return tower_inside(&tower, config) < 0 ? 0 : tower.gives;
}

/* ---- counts ---- */

sheaf__picture_counts sheaf__counts_ordinary(const sheaf_config *config, int64_t images)
{
    sheaf__picture_counts counts = { .images = images, .groups = images };
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    for (int t = 0; t < n; t++)
        counts.patches[t] = images * tower[t].patches;
    return counts;
}

void sheaf__counts_see(sheaf__picture_counts *c, int64_t largest[SHEAF__MOST_TOWERS],
                       const sheaf__picture *picture, const sheaf__tower *tower, int towers)
{
    c->images++;
    c->groups += !picture->joins;
    for (int t = 0; t < towers; t++) {
        const int64_t n =
            tower[t].ragged ? sheaf__view_patches(&picture->of[t], &tower[t]) : tower[t].patches;
        if (sheaf__picture_inside(picture, &tower[t])) {
            c->behind[t] += n;
            continue;
        }
        largest[t] = n > largest[t] ? n : largest[t];
        c->patches[t] = tower[t].padded ? c->images * largest[t] : c->patches[t] + n;
    }
}

sheaf__picture_counts sheaf__counts_of(const sheaf__picture *picture, int64_t n,
                                       const sheaf_config *config)
{
    sheaf__picture_counts counts = { 0 };
    int64_t largest[SHEAF__MOST_TOWERS] = { 0 };
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    for (int64_t i = 0; i < n; i++)
        sheaf__counts_see(&counts, largest, &picture[i], tower, towers);
    return counts;
}

void sheaf__counts_add(sheaf__picture_counts *to, const sheaf__picture_counts *of, int64_t n)
{
    to->images += n * of->images;
    to->groups += n * of->groups;
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++) {
        to->patches[t] += n * of->patches[t];
        to->behind[t] += n * of->behind[t];
    }
}

static void reach(int64_t *to, int64_t n, bool larger)
{
    if (larger == (n > *to))
        *to = n;
}

void sheaf__counts_reach(sheaf__picture_counts *to, const sheaf__picture_counts *of, bool larger)
{
    reach(&to->images, of->images, larger);
    reach(&to->groups, of->groups, larger);
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++) {
        reach(&to->patches[t], of->patches[t], larger);
        reach(&to->behind[t], of->behind[t], larger);
    }
}

int64_t sheaf__counts_give(const sheaf__picture_counts *c, const sheaf__tower *tower, int t)
{
    return sheaf__tower_gives(&tower[t], c->groups, c->patches[t]);
}

int64_t sheaf__counts_numbers(const sheaf__picture_counts *c, const sheaf__tower *tower, int t)
{
    const sheaf__tower *of = &tower[t];
    return of->ragged ? (c->patches[t] + c->behind[t]) * of->channels * of->patch * of->patch
                      : c->images * sheaf__tower_numbers(of);
}

int64_t sheaf__counts_positions(const sheaf_config *config, const sheaf__picture_counts *counts)
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    sheaf__tower tower;
    const int t = tower_inside(&tower, config);
    return t < 0 ? 0
                 : counts->groups * (image->before + image->after) +
                       sheaf__tower_gives(&tower, counts->groups, counts->patches[t]);
}

int64_t sheaf__picture_seen(const sheaf__picture *picture, int64_t n, int64_t i,
                            const sheaf__tower *tower, int t)
{
    int64_t k = i, most = sheaf__view_patches(&picture[i].of[t], tower);
    while (tower->padded && k > 0 && picture[k - 1].row == picture[i].row)
        k--;
    for (; tower->padded && k < n && picture[k].row == picture[i].row; k++) {
        const int64_t patches = sheaf__view_patches(&picture[k].of[t], tower);
        most = patches > most ? patches : most;
    }
    return most;
}

int64_t sheaf__image_experts(const sheaf_config *config)
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    const int64_t gives = sheaf__image_rows(config);
    return gives == 0 || !image->experts ? 0 : image->before + gives;
}

int64_t sheaf__image_positions(const sheaf_config *config)
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    const int64_t gives = sheaf__image_rows(config);
    return gives == 0 ? 0 : image->before + gives + image->after;
}

int32_t sheaf__image_id(const sheaf_config *config)
{
    return sheaf__family_for(config)->image.pads && config->pad >= 0 ? (int32_t)config->pad : 0;
}

void (*sheaf__pictures_of(const sheaf_config *config))(sheaf__picture_form *, const sheaf_config *)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    return sheaf__towers_of(tower, config) > 0 ? sheaf__family_for(config)->pictures : NULL;
}

void sheaf__image_shared_positions(int32_t *position, const uint8_t *embed, int64_t n,
                                   const sheaf_config *config)
{
    const int64_t before = sheaf__family_for(config)->image.before,
                  gives = sheaf__image_rows(config), whole = sheaf__image_positions(config);
    int64_t inside = 0; /* positions of images, the last of which may be incomplete */
    int32_t next = 0;
    for (int64_t t = 0; t < n; t++) {
        const int64_t at = embed[t] ? inside++ % whole - before : 0;
        next += t > 0 && !(at > 0 && at < gives);
        position[t] = next;
    }
}

static void set_position(int32_t *position, int64_t stride, int32_t t, int32_t r, int32_t c)
{
    position[0] = t;
    position[stride] = r;
    position[2 * stride] = c;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

int32_t sheaf__grid_positions(int32_t *position, int64_t stride, int64_t n, const uint8_t *embed,
                              const uint8_t *seen, const sheaf__picture *picture,
                              const sheaf__tower *tower)
{
    /* of a video: its position, that of its frames, and the number of the one before */
    int32_t next = 0, begin = 0, first = 0, before = 0;
    for (int64_t t = 0; t < n; t++, position++) {
        if (seen != NULL && !seen[t]) {
            set_position(position, stride, 0, 0, 0);
            continue;
        }
        if (embed == NULL || !embed[t]) {
            set_position(position, stride, next, next, next);
            next++;
            continue;
        }
        while (sheaf__picture_inside(picture, tower))
            picture++;
        const int32_t unit = (int32_t)sheaf__unit_of(tower),
                      rows = (int32_t)picture->of[0].height / unit,
                      cols = (int32_t)picture->of[0].width / unit;
        if (before == 0 || picture->frame < before || !embed[t - 1] ||
            (seen != NULL && !seen[t - 1])) {
            begin = next;
            first = picture->frame;
        }
        const int32_t time = begin + picture->frame - first;
        before = picture->frame;
        for (int32_t k = 0; k < rows * cols && t + k < n; k++)
            set_position(position + k, stride, time, begin + k / cols, begin + k % cols);
        next = larger(larger(next, time + 1), begin + larger(rows, cols));
        t += (int64_t)rows * cols - 1;
        position += (int64_t)rows * cols - 1;
        picture++;
    }
    return next;
}
