/* vision.c - see vision.h. */
#include "families/common/vision.h"

#include "base/base.h"
#include "schema/config_keys.h"
#include "schema/grid.h"

enum { MOST_HEADS = 1 << 16, MOST_QUERIES = 1 << 20 };
enum { RESAMPLER_HEAD = 128 }; /* width of its heads, fixed in upstream's code */

void sheaf__resampler_config(sheaf_json_reader *r, sheaf_config *c, const char *queries,
                             const char *square)
{
    sheaf_resampler *s = &c->resampler;
    const int64_t heads = c->hidden / RESAMPLER_HEAD;
    s->queries = sheaf__json_int(r, queries, 1, MOST_QUERIES, SHEAF_JSON_NEEDED);
    s->heads = sheaf__json_int(r, "resampler_num_heads", 1, MOST_HEADS,
                               heads > 0 ? heads : SHEAF_JSON_NEEDED);
    s->norm_eps = sheaf__json_real(r, "resampler_ln_eps", 0, 1, 1e-6);
    if (r->st != NULL)
        return;
    const int64_t side = sheaf__square_side(s->queries);
    if (square != NULL && side * side != s->queries)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, queries, "a square number: %s", square);
    else if (c->hidden % s->heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "resampler_num_heads",
                         "a number that divides hidden_size, %" PRId64, c->hidden);
    else if (c->hidden % 4 != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "hidden_size",
                         "a multiple of 4: positions of the resampler have four parts");
}

bool sheaf__tower_is_named(sheaf_json_reader *r, const char *key, const char *name,
                           const char *expected)
{
    const char *is = sheaf__json_string(r, key);
    if (r->st != NULL)
        return false;
    if (is != NULL && strncmp(is, name, strlen(name)) == 0)
        return true;
    sheaf_status *st =
        sheaf__json_fail(r, is == NULL ? SHEAF_E_FORMAT : SHEAF_E_UNSUPPORTED, key, "%s", expected);
    if (is == NULL)
        sheaf_found(st, "no such key");
    else
        sheaf_found(st, "\"%.100s\"", is);
    return false;
}

void sheaf__config_keys(sheaf_json_reader *r, const char *read, const char *harmless,
                        const sheaf_unsupported_key *unsupported, sheaf_text *unknown)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        const sheaf_unsupported_key *u = unsupported;
        while (u != NULL && u->key != NULL && strcmp(u->key, key) != 0)
            u++;
        if (u != NULL && u->key != NULL) {
            if (!sheaf__config_value_is_neutral(u->neutral, value))
                sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%s: another value %s",
                                 sheaf__neutral_text(u->neutral), u->why);
        } else if (!sheaf__is_listed(read, key, strlen(key)) &&
                   !sheaf__is_listed(harmless, key, strlen(key))) {
            sheaf__text_add(unknown, "%s%s%s", unknown->size > 0 ? "," : "",
                            r->inside != NULL ? r->inside : "", key);
        }
    }
}

void sheaf__config_leave(sheaf_json_reader *all, const sheaf_json_reader *inner)
{
    if (all->st == NULL)
        all->st = inner->st;
    else
        sheaf_status_free(inner->st);
}
