/* model.c - see model.h. */
#include "base/base.h"
#include "models/build.h"

#include "ops/attention/attention.h"
#include "ops/offload.h"
#include "tape/rows.h"
#include "tape/transfer.h"
#include "tape/scaled.h"

static int64_t share_of(int64_t width, int64_t heads)
{
    return heads == 0 ? 0 : width / heads;
}

/* Heads that attention computes; other models can be converted and merged all the same. */
static sheaf_status *check_heads(const sheaf_config *c)
{
    const struct {
        const char *whose;
        int64_t width;
    } head[] = { { "head_dim", c->head_dim },
                 { "cross_hidden_size_per_attention_head", c->cross_head_dim },
                 { "heads of the vision tower", share_of(c->vit.hidden, c->vit.heads) },
                 { "heads of the second tower", c->encoder.head_width },
                 { "heads of the resampler", share_of(c->hidden, c->resampler.heads) } };
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        if (head[i].width > SHEAF__HEAD_DIM_MAX)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "config: %s", head[i].whose),
                               "at most %d elements in a head", SHEAF__HEAD_DIM_MAX),
                "%" PRId64, head[i].width);
    return NULL;
}

static sheaf_status *open_away(sheaf__model *m)
{
    const sheaf__model_options *o = &m->options;
    sheaf__device *device = m->context->device;
    sheaf_status *st = NULL;
    if (o->away)
        st = sheaf__offload_new(&m->away, device, SHEAF_MEM_WEIGHTS, o->folder);
    if (o->activations_away)
        TRY(st, sheaf__offload_new(&m->activations, device, SHEAF_MEM_ACTIVATIONS, o->folder));
    m->context->away = m->away;
    m->context->activations = m->activations;
    return st;
}

sheaf_status *sheaf__model_new(sheaf__model **out, sheaf__context *context,
                               const sheaf_schema *schema, const sheaf__model_options *options)
{
    sheaf_status *st = check_heads(&schema->config);
    if (st != NULL)
        return st;
    sheaf__model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf__no_memory("model");
    *m = (sheaf__model){ .context = context, .schema = schema, .options = *options };
    m->end_layer = schema->config.layers;
    m->begins = m->ends = true;
    if (options->place != NULL && context->stages > 1) {
        m->first_layer = options->place->begin[context->stage];
        m->end_layer = options->place->begin[context->stage + 1];
        m->begins = context->stage == 0;
        m->ends = context->stage == context->head_stage;
    }
    st = sheaf__build_parts(&m->layer, m, schema->config.layers, sizeof *m->layer);
    if (options->lora != NULL)
        TRY(st, sheaf__build_parts(&m->lora, m, options->lora->nmodules, sizeof *m->lora));
    for (int64_t i = 0; st == NULL && i < schema->config.layers; i++) {
        m->layer[i].rope = sheaf__layer_in(schema->config.no_rope, i) ? NULL : &m->rope;
        m->layer[i].window = sheaf__window_of(&schema->config, i);
    }
    TRY(st, sheaf__trained_set_new(&m->trained, context));
    if (st == NULL) {
        m->trained->divided = options->divided && context->groups > 1;
        m->trained->moments_away = options->moments_away;
        m->trained->folder = options->folder;
        m->trained->eight_bits = options->eight_bits;
        st = open_away(m);
    }
    TRY(st, sheaf__family_for(&schema->config)->build(m));
    TRY(st, sheaf__build_away(m));
    if (st == NULL && m->trained->count > 0)
        st = sheaf__trained_allocate(m->trained);
    if (st != NULL) {
        sheaf__model_free(m);
        return st;
    }
    *out = m;
    return NULL;
}

void sheaf__model_free(sheaf__model *m)
{
    if (m == NULL)
        return;
    sheaf__build_free(m);
    sheaf__trained_set_free(m->trained);
    sheaf__offload_free(m->away);
    sheaf__offload_free(m->activations);
    m->context->away = m->context->activations = NULL;
    free(m);
}

void sheaf__model_refresh(sheaf__model *m)
{
    for (int i = 0; i < m->nmodules; i++)
        switch (m->module[i].kind) {
        case SHEAF__LINEAR: sheaf__linear_refresh(m->context, m->module[i].part); break;
        case SHEAF__RMSNORM: sheaf__norm_refresh(m->context, m->module[i].part); break;
        case SHEAF__LAYERNORM: sheaf__layernorm_refresh(m->context, m->module[i].part); break;
        case SHEAF__VECTOR: sheaf__vector_refresh(m->context, m->module[i].part); break;
        case SHEAF__TABLE: sheaf__table_refresh(m->context, m->module[i].part); break;
        }
}

static const char *what_gives(const sheaf__tower *tower)
{
    return tower->beside ? "high-resolution image" : "image";
}

/* The image's rows and the source of cross-attention: from the towers, or from the cache. */
static void see(sheaf__value **image, sheaf__value **memory, sheaf__model *m, sheaf__tape *tape,
                const sheaf__pass *pass)
{
    const sheaf__family *family = sheaf__family_for(&m->schema->config);
    const sheaf__image_cache *image_cache = pass->image_cache;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &m->schema->config);
    const bool full = image_cache != NULL && image_cache->full;
    sheaf__value *given[SHEAF__MOST_TOWERS] = { NULL };
    for (int i = 0; i < towers; i++) {
        if (full && image_cache->given[i] != NULL)
            given[i] = sheaf__record_recall(tape, image_cache->given[i], what_gives(&tower[i]),
                                            sheaf__counts_give(&pass->pictures, tower, i),
                                            tower[i].columns);
        else if (!full)
            given[i] = family->encode(m, tape, pass, i);
        *(tower[i].beside ? memory : image) = given[i];
    }
    for (int i = 0; i < towers && image_cache != NULL && !full; i++)
        if (given[i] != NULL)
            sheaf__record_store(tape, given[i], image_cache->given[i]);
}

/* Sends what layers read of images to every pipeline stage. */
static void hand(sheaf__value **image, sheaf__value **memory, sheaf__model *m, sheaf__tape *tape,
                 const sheaf__pass *pass)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &m->schema->config);
    for (int i = 0; i < towers; i++) {
        sheaf__value **what = tower[i].beside ? memory : image;
        if (tower[i].gives > 0 && (tower[i].beside || tower[i].behind > 0))
            *what = sheaf__record_transfer(tape, *what, 0, what_gives(&tower[i]),
                                           sheaf__counts_give(&pass->pictures, tower, i),
                                           tower[i].columns);
    }
}

void sheaf__model_record(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass)
{
    sheaf__value *memory = NULL, *image = NULL;
    if (pass->pictures.images > 0 && m->begins)
        see(&image, &memory, m, tape, pass);
    if (pass->pictures.images > 0 && m->context->stages > 1)
        hand(&image, &memory, m, tape, pass);
    if (!m->begins) {
        sheaf__decoder_record(m, tape, NULL, image, memory, pass);
        return;
    }
    sheaf__value *x =
        sheaf__record_embedding(tape, &m->embedding, pass->batch * pass->queries, pass->in);
    if (m->embedding.lora != NULL)
        x = sheaf__record_embedding_lora(tape, x, &m->embedding, pass->in);
    if (m->scale > 0)
        sheaf__record_scale(tape, x, m->scale);
    if (pass->noise != NULL)
        sheaf__record_noise(tape, x, pass->noise);
    if (m->times > 0) /* noise is on the table's rows, as TRL's hook has it */
        sheaf__record_times_number(tape, x, m->times);
    if (image != NULL)
        sheaf__family_for(&m->schema->config)->place(m, tape, x, image, pass);
    sheaf__stage(pass, tape, "adapter", -1, SHEAF__TEXT, image);
    sheaf__stage(pass, tape, "encoder", -1, SHEAF__TEXT, memory);
    sheaf__stage(pass, tape, "embedding", -1, SHEAF__TEXT, x);
    sheaf__decoder_record(m, tape, x, image, memory, pass);
}

/* ---- caches of generation ---- */

static sheaf_status *take_cache(sheaf__cache *cache, sheaf__model *m, int64_t batch, int64_t length,
                                int64_t width)
{
    const size_t bytes = (size_t)(batch * length * width) * sheaf_dtype_bytes(m->context->dtype);
    cache->length = length;
    sheaf_status *st = sheaf__alloc(&cache->k, m->context, bytes, SHEAF_MEM_CACHE);
    return st == NULL ? sheaf__alloc(&cache->v, m->context, bytes, SHEAF_MEM_CACHE) : st;
}

sheaf_status *sheaf__kv_cache_new(sheaf__kv_cache *out, sheaf__model *m, int64_t batch,
                                  int64_t length)
{
    const int64_t layers = m->schema->config.layers;
    sheaf__tower beside;
    sheaf__tower_beside(&beside, &m->schema->config);
    *out = (sheaf__kv_cache){ calloc((size_t)layers + 1, sizeof *out->self),
                              calloc((size_t)layers + 1, sizeof *out->cross), layers };
    sheaf_status *st = out->self == NULL || out->cross == NULL ? sheaf__no_memory("cache") : NULL;
    for (int64_t i = m->first_layer; i < m->end_layer && st == NULL; i++) {
        st = take_cache(&out->self[i], m, batch, length, m->layer[i].expert[SHEAF__TEXT].k.owned);
        if (st == NULL && m->layer[i].has_cross)
            st = take_cache(&out->cross[i], m, batch, beside.gives, m->layer[i].cross_k.owned);
    }
    return sheaf_in(st, "cache of %lld positions for %lld sequences", (long long)length,
                    (long long)batch);
}

void sheaf__kv_cache_copy(const sheaf__kv_cache *kv_cache, const sheaf__model *m, int64_t to,
                          int64_t from, int64_t rows)
{
    const int64_t wide = m->schema->config.head_dim;
    for (int64_t i = m->first_layer; i < m->end_layer; i++) {
        const sheaf__cache *c = &kv_cache->self[i];
        const int64_t each = c->length * wide,
                      heads = m->layer[i].expert[SHEAF__TEXT].k.owned / wide;
        const size_t size = (size_t)(heads * each) * sheaf_dtype_bytes(m->context->dtype);
        char *const of[] = { c->k, c->v };
        for (int k = 0; k < 2; k++)
            sheaf__copy_box(m->context, of[k] + (size_t)to * size, each,
                            of[k] + (size_t)from * size, each, heads, rows * wide);
    }
}

void sheaf__kv_cache_release(sheaf__kv_cache *kv_cache, sheaf__model *m)
{
    for (int64_t i = 0; i < kv_cache->layers; i++) {
        sheaf__cache *const cache[] = { kv_cache->self == NULL ? NULL : &kv_cache->self[i],
                                        kv_cache->cross == NULL ? NULL : &kv_cache->cross[i] };
        for (int j = 0; j < 2; j++)
            if (cache[j] != NULL) {
                sheaf__free(m->context, cache[j]->k);
                sheaf__free(m->context, cache[j]->v);
            }
    }
    free(kv_cache->self);
    free(kv_cache->cross);
    *kv_cache = (sheaf__kv_cache){ 0 };
}

sheaf_status *sheaf__image_cache_new(sheaf__image_cache *out, sheaf__model *m,
                                     const sheaf__picture_counts *pictures)
{
    const size_t bytes = sheaf_dtype_bytes(m->context->dtype);
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &m->schema->config);
    sheaf_status *st = NULL;
    *out = (sheaf__image_cache){ 0 };
    for (int i = 0; i < towers && m->begins && st == NULL; i++)
        if (tower[i].gives > 0)
            st = sheaf__alloc(&out->given[i], m->context,
                              (size_t)(sheaf__counts_give(pictures, tower, i) * tower[i].columns) *
                                  bytes,
                              SHEAF_MEM_CACHE);
    return sheaf_in(st, "what is seen of %lld pictures", (long long)pictures->images);
}

void sheaf__image_cache_release(sheaf__image_cache *image_cache, sheaf__model *m)
{
    for (int i = 0; i < SHEAF__MOST_TOWERS; i++)
        sheaf__free(m->context, image_cache->given[i]);
    *image_cache = (sheaf__image_cache){ 0 };
}
