/* resampler.c - see resampler.h. */
#include "models/resampler.h"

#include <stdio.h>

#include "models/build.h"
#include "schema/grid.h"

sheaf__pictures sheaf__pass_pictures(const sheaf__model *m, const sheaf__pass *pass, int tower)
{
    sheaf__tower all[SHEAF__MOST_TOWERS];
    sheaf__towers_of(all, &m->schema->config);
    const sheaf__picture_counts *n = &pass->pictures;
    return (sheaf__pictures){ .in = pass->images_in,
                              .images = all[tower].repeats > 0 ? n->groups : n->images,
                              .listed = n->images,
                              .patches = pass->pictures.patches[tower],
                              .tower = all[tower],
                              .number = tower };
}

/* An optional tensor; NULL: absent. */
static const sheaf_tensor *maybe(const sheaf__model *m, const char *prefix, const char *name)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return sheaf_schema_find(m->schema, whole);
}

sheaf_status *sheaf__resampler_build(sheaf__model *m, sheaf__resampler *r, const char *prefix)
{
    const int64_t width = m->schema->config.hidden;
    const double eps = m->schema->config.resampler.norm_eps;
    static const char weight[] = "attn.in_proj_weight", bias[] = "attn.in_proj_bias";
    const sheaf_tensor *positions = maybe(m, prefix, "pos_embed"),
                       *kv = maybe(m, prefix, "kv_proj.weight");
    sheaf_status *st =
        positions == NULL ? NULL : sheaf__build_vector(m, &r->positions, positions, width);
    TRY(st, kv == NULL ? NULL : sheaf__build_linear(m, &r->kv, kv, NULL, 0));
    TRY(st, sheaf__named_layernorm(m, &r->norm_kv, prefix, "ln_kv", eps));
    TRY(st, sheaf__named_vector(m, &r->query, prefix, "query", width));
    TRY(st, sheaf__named_layernorm(m, &r->norm_q, prefix, "ln_q", eps));
    TRY(st, sheaf__named_linear(m, &r->q, prefix, weight, bias, 0));
    TRY(st, sheaf__named_linear(m, &r->k, prefix, weight, bias, 1));
    TRY(st, sheaf__named_linear(m, &r->v, prefix, weight, bias, 2));
    TRY(st,
        sheaf__named_linear(m, &r->out, prefix, "attn.out_proj.weight", "attn.out_proj.bias", 0));
    TRY(st, sheaf__named_layernorm(m, &r->norm_post, prefix, "ln_post", eps));
    TRY(st, sheaf__named_linear(m, &r->proj, prefix, "proj", NULL, 0));
    r->proj.transposed = true;
    const int64_t side = sheaf__square_side(r->query.rows);
    r->grid.of[0] = (sheaf__view){ .height = side, .width = side };
    r->grid_in.picture = &r->grid;
    return st;
}

/* All pictures have the same queries, which are projected once. */
static sheaf__value *record_queries(sheaf__model *m, sheaf__resampler *r, sheaf__tape *tape,
                                    const sheaf__pass *pass, const sheaf__step_info *info)
{
    sheaf__value *q = sheaf__record_vector(tape, &r->query);
    q = sheaf__record_layernorm(tape, q, &r->norm_q, NULL);
    if (r->positions.name != NULL) {
        const int64_t side = sheaf__square_side(r->query.rows);
        const sheaf__pictures grid = {
            .in = &r->grid_in,
            .images = 1,
            .patches = r->query.rows,
            .tower = { .height = side, .width = side, .patch = 1, .patches = r->query.rows },
        };
        q = sheaf__record_grid_positions(
            tape, q, &grid,
            &(sheaf__position_grid){ SHEAF__GRID_AS_IS, &r->positions, side, side, false });
    }
    sheaf__stage(pass, tape, "resampler_q", -1, SHEAF__TEXT, q);
    sheaf__record_columns(tape, &q, q, (sheaf__linear *const[]){ &r->q }, 1, info);
    return sheaf__record_repeat(tape, q, pass->pictures.groups);
}

sheaf__value *sheaf__resampler_record(sheaf__model *m, sheaf__resampler *r, sheaf__tape *tape,
                                      const sheaf__pass *pass, sheaf__value *x,
                                      const sheaf__pictures *pictures, sheaf__position_kind keys)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf__step_info *info = &pass->info[sheaf__rows_after(pictures->number)],
                           *given = &pass->info[sheaf__rows_given(pictures->number)];
    const int64_t side = sheaf__square_side(r->positions.rows);
    const sheaf__position_grid grid =
        keys == SHEAF__GRID_SINCOS
            ? (sheaf__position_grid){ keys }
            : (sheaf__position_grid){ keys, &r->positions, side, side, false };
    sheaf__value *z = x, *k, *v;
    if (r->kv.name != NULL)
        z = sheaf__record_rows(tape, sheaf__record_own_columns(tape, x, &r->kv), &r->kv, NULL, NULL,
                               info);
    z = sheaf__record_layernorm(tape, z, &r->norm_kv, NULL);
    sheaf__value *placed = sheaf__record_grid_positions(tape, z, pictures, &grid);
    if (pictures->tower.frames > 0)
        placed = sheaf__record_grid_positions(tape, placed, pictures,
                                              &(sheaf__position_grid){ SHEAF__GRID_FRAMES });
    sheaf__stage(pass, tape, "resampler_v", -1, SHEAF__TEXT, z);
    sheaf__stage(pass, tape, "resampler_k", -1, SHEAF__TEXT, placed);
    sheaf__record_columns(tape, &k, placed, (sheaf__linear *const[]){ &r->k }, 1, info);
    sheaf__record_columns(tape, &v, z, (sheaf__linear *const[]){ &r->v }, 1, info);
    const int64_t width = c->hidden / c->resampler.heads;
    const sheaf__heads heads = { .kv_heads = k->cols / width, .group = 1, .head_dim = width };
    sheaf__pictures seen = *pictures;
    seen.groups = pass->pictures.groups;
    sheaf__value *y = sheaf__record_picture_attention(tape, record_queries(m, r, tape, pass, given),
                                                      k, v, &heads, &seen, c->resampler.queries);
    y = sheaf__record_rows(tape, y, &r->out, NULL, NULL, given);
    sheaf__stage(pass, tape, "resampler_attention", -1, SHEAF__TEXT, y);
    y = sheaf__record_layernorm(tape, y, &r->norm_post, NULL);
    sheaf__record_columns(tape, &y, y, (sheaf__linear *const[]){ &r->proj }, 1, given);
    return y;
}
