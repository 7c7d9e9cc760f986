/* prefix_cache.h - one rank's keys and values of one sequence, kept from call to call for the
 * common prefix with the next prompt.
 *
 * Sums over keys start at key 0 (ops/attention/attention.h), so that rows computed after cached
 * ones have the bits of one pass over the whole sequence. */
#pragma once

#include "infer/generate.h"

typedef struct sheaf__prefix_cache {
    int64_t least;            /* set by the owner: least positions to allocate */
    sheaf__kv_cache kv_cache; /* space for `length` positions */
    int64_t length;
    int64_t n; /* cached rows */
    int32_t *ids, *position;
    uint8_t *kind;   /* text, or a row of a picture; [length] each */
    int64_t picture; /* sheaf__prompt.look of the pictures */
} sheaf__prefix_cache;

/* sheaf__prefix_cache_hold - makes room for `length` positions; growing drops all rows. Errors:
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__prefix_cache_hold(sheaf__prefix_cache *prefix, sheaf__model *model,
                                       int64_t length);
/* sheaf__prefix_cache_reserve - for a cache that another owns: only notes what is in it, of at most
 * `length` rows. */
sheaf_status *sheaf__prefix_cache_reserve(sheaf__prefix_cache *prefix, int64_t length);
/* sheaf__prefix_cache_usable - how many rows at the start of `prompt` are cached, 0 to prompt->n -
 * 1; _reuse: the same, and later rows are dropped. */
int64_t sheaf__prefix_cache_usable(const sheaf__prefix_cache *prefix, const sheaf_config *config,
                                   const sheaf__prompt *prompt);
int64_t sheaf__prefix_cache_reuse(sheaf__prefix_cache *prefix, const sheaf_config *config,
                                  const sheaf__prompt *prompt);
/* sheaf__prompt_common_rows - how many rows at the start of a prompt, 0 to b->n - 1, are those of
 * another, of prompts without pictures. */
int64_t sheaf__prompt_common_rows(const sheaf__prompt *a, const sheaf__prompt *b);
/* sheaf__prompt_seen_rows - rows up to the last one of its pictures, which are read and cached
 * together or not at all. */
int64_t sheaf__prompt_seen_rows(const sheaf__prompt *prompt);
/* sheaf__prefix_cache_set - records that n rows of the prompt are cached, at least those that were;
 * _add: one more token at its position. */
void sheaf__prefix_cache_set(sheaf__prefix_cache *prefix, const sheaf__prompt *prompt, int64_t n);
void sheaf__prefix_cache_add(sheaf__prefix_cache *prefix, int32_t id, int32_t position);
/* sheaf__prefix_cache_release - frees all memory; it can be used again. */
void sheaf__prefix_cache_release(sheaf__prefix_cache *prefix, sheaf__model *model);

/* The caches of one rank between answers. */
struct sheaf__rank_cache {
    sheaf__prefix_cache prefix;
    sheaf__image_cache image_cache; /* output of the towers for the pictures `look` */
    int64_t look;                   /* 0: none */
};

/* sheaf__rank_cache_look - its room for the output of the towers is that of the pictures `look`:
 * empty, unless it was that before. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__rank_cache_look(sheaf__rank_cache *cache, sheaf__model *model, int64_t look,
                                     const sheaf__picture_counts *pictures);
/* sheaf__rank_cache_release - frees all memory; it can be used again. */
void sheaf__rank_cache_release(sheaf__rank_cache *cache, sheaf__model *model);
