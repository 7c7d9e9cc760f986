/* prefix_cache.c - see prefix_cache.h. */
#include "infer/prefix_cache.h"

#include "base/base.h"
#include "infer/next_token.h"
#include "models/rope.h"

static uint8_t kind_at(const sheaf__prompt *p, int64_t j)
{
    return (uint8_t)((p->embed != NULL && p->embed[j]) | (p->expert != NULL && p->expert[j]) << 1);
}

static int64_t equal_rows(const sheaf__prefix_cache *prefix, const sheaf__prompt *p)
{
    const int64_t most = prefix->n < p->n ? prefix->n : p->n;
    int64_t n = 0;
    while (n < most && prefix->ids[n] == p->ids[n] &&
           prefix->position[n] == sheaf__prompt_position(p, n) && prefix->kind[n] == kind_at(p, n))
        n++;
    return n;
}

int64_t sheaf__prompt_common_rows(const sheaf__prompt *a, const sheaf__prompt *b)
{
    int64_t n = 0;
    if (a->embed != NULL || b->embed != NULL || a->expert != NULL || b->expert != NULL)
        return 0;
    while (n < a->n && n + 1 < b->n && a->ids[n] == b->ids[n] &&
           sheaf__prompt_position(a, n) == sheaf__prompt_position(b, n))
        n++;
    return n;
}

int64_t sheaf__prompt_seen_rows(const sheaf__prompt *p)
{
    int64_t n = p->embed == NULL && p->expert == NULL ? 0 : p->n;
    while (n > 0 && kind_at(p, n - 1) == 0)
        n--;
    return n;
}

/* The last row is always computed, for its logits. */
static int64_t usable_rows(const sheaf__prefix_cache *prefix, const sheaf__prompt *p)
{
    const bool looks = p->embed != NULL || p->pictures > 0;
    if (prefix->picture != p->look || (looks && p->look == 0))
        return 0;
    const int64_t equal = equal_rows(prefix, p), n = equal < p->n ? equal : p->n - 1;
    return n < sheaf__prompt_seen_rows(p) ? 0 : n;
}

sheaf_status *sheaf__prefix_cache_reserve(sheaf__prefix_cache *prefix, int64_t length)
{
    const size_t rows = (size_t)length;
    prefix->ids = malloc(rows * sizeof *prefix->ids);
    prefix->position = malloc(rows * sizeof *prefix->position);
    prefix->kind = malloc(rows);
    if (prefix->ids == NULL || prefix->position == NULL || prefix->kind == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "cache of the prompt, %lld positions", (long long)length);
    prefix->length = length;
    return NULL;
}

static sheaf_status *take_space(sheaf__prefix_cache *prefix, sheaf__model *model, int64_t length)
{
    sheaf__prefix_cache_release(prefix, model);
    sheaf_status *st = sheaf__kv_cache_new(&prefix->kv_cache, model, 1, length);
    TRY(st, sheaf__prefix_cache_reserve(prefix, length));
    if (st != NULL)
        sheaf__prefix_cache_release(prefix, model);
    return st;
}

int64_t sheaf__prefix_cache_usable(const sheaf__prefix_cache *prefix, const sheaf_config *config,
                                   const sheaf__prompt *prompt)
{
    const int64_t n = usable_rows(prefix, prompt);
    /* Cached keys have the angles of prefix->n rows: those that stay are to tell them, too. */
    return sheaf__rope_changes(config, prefix->n, prompt->n) ||
                   sheaf__rope_changes(config, prefix->n, n)
               ? 0
               : n;
}

int64_t sheaf__prefix_cache_reuse(sheaf__prefix_cache *prefix, const sheaf_config *config,
                                  const sheaf__prompt *prompt)
{
    prefix->n = sheaf__prefix_cache_usable(prefix, config, prompt);
    prefix->picture = prompt->look;
    return prefix->n;
}

sheaf_status *sheaf__prefix_cache_hold(sheaf__prefix_cache *prefix, sheaf__model *model,
                                       int64_t length)
{
    return length <= prefix->length
               ? NULL
               : take_space(prefix, model, length > prefix->least ? length : prefix->least);
}

void sheaf__prefix_cache_set(sheaf__prefix_cache *prefix, const sheaf__prompt *p, int64_t n)
{
    for (int64_t j = prefix->n; j < n; j++) {
        prefix->ids[j] = p->ids[j];
        prefix->position[j] = sheaf__prompt_position(p, j);
        prefix->kind[j] = kind_at(p, j);
    }
    prefix->n = n;
}

void sheaf__prefix_cache_add(sheaf__prefix_cache *prefix, int32_t id, int32_t position)
{
    prefix->ids[prefix->n] = id;
    prefix->position[prefix->n] = position;
    prefix->kind[prefix->n++] = 0;
}

void sheaf__prefix_cache_release(sheaf__prefix_cache *prefix, sheaf__model *model)
{
    sheaf__kv_cache_release(&prefix->kv_cache, model);
    free(prefix->ids);
    free(prefix->position);
    free(prefix->kind);
    *prefix = (sheaf__prefix_cache){ .least = prefix->least };
}

sheaf_status *sheaf__rank_cache_look(sheaf__rank_cache *cache, sheaf__model *model, int64_t look,
                                     const sheaf__picture_counts *pictures)
{
    if (cache->look == look)
        return NULL;
    sheaf__image_cache_release(&cache->image_cache, model);
    cache->look = 0;
    sheaf_status *st = sheaf__image_cache_new(&cache->image_cache, model, pictures);
    if (st == NULL)
        cache->look = look;
    return st;
}

void sheaf__rank_cache_release(sheaf__rank_cache *cache, sheaf__model *model)
{
    sheaf__prefix_cache_release(&cache->prefix, model);
    sheaf__image_cache_release(&cache->image_cache, model);
    cache->look = 0;
}
