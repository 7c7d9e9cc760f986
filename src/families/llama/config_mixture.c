/* config_mixture.c - the keys of a mixture of experts. */
#include "base/base.h"
#include "families/llama/llama.h"

enum { MOST_EXPERTS = 1024, MOST_WIDTH = 1 << 26 };

/* Published files and transformers 5 spell it differently; one that has both must agree. */
static void read_count(sheaf_json_reader *r, sheaf_config *c, const sheaf__mixture_form *form)
{
    static const char key[] = "num_local_experts";
    c->num_experts = sheaf__json_int(r, key, 1, MOST_EXPERTS, form->count);
    if (form->count_key == NULL || json_object_get(r->object, form->count_key) == NULL)
        return;
    const int64_t other = sheaf__json_int(r, form->count_key, 1, MOST_EXPERTS, SHEAF_JSON_NEEDED);
    if (r->st == NULL && json_object_get(r->object, key) != NULL && other != c->num_experts)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, form->count_key, "%" PRId64 ", as '%s' is",
                                     c->num_experts, key),
                    "%" PRId64, other);
    c->num_experts = other;
}

/* Layers with an MLP of intermediate_size instead. */
static void read_mlp_layers(sheaf_json_reader *r, sheaf_config *c)
{
    static const char key[] = "mlp_only_layers";
    const json_t *list = sheaf__json_list(r, key);
    const int64_t step = sheaf__json_int(r, "decoder_sparse_step", 1, INT32_MAX, 1);
    for (int64_t i = 0; i < c->layers && r->st == NULL; i++)
        if ((i + 1) % step != 0)
            sheaf__layer_add(c->mlp_layers, i);
    for (size_t i = 0; i < json_array_size(list) && r->st == NULL; i++) {
        const json_t *layer = json_array_get(list, i);
        const json_int_t n = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (n < 0)
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "numbers of layers, from 0");
        else if (n < c->layers) /* the class ignores others */
            sheaf__layer_add(c->mlp_layers, n);
    }
}

void sheaf__llama_mixture(sheaf_json_reader *r, sheaf_config *c, const sheaf__mixture_form *form)
{
    read_count(r, c, form);
    c->top_k = sheaf__json_int(r, "num_experts_per_tok", 1, MOST_EXPERTS, form->top_k);
    c->expert_ffn =
        form->sized ? sheaf__json_int(r, "moe_intermediate_size", 1, MOST_WIDTH, SHEAF_JSON_NEEDED)
                    : c->ffn;
    c->shares_of_all = form->shared && !sheaf__json_bool(r, "norm_topk_prob", false);
    if (form->some)
        read_mlp_layers(r, c);
    if (r->st == NULL && c->top_k > c->num_experts)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_experts_per_tok",
                                     "at most the number of experts, %" PRId64, c->num_experts),
                    "%" PRId64, c->top_k);
    /* Without experts it would be another family. */
    int64_t mlps = 0;
    for (int64_t i = 0; i < c->layers; i++)
        mlps += sheaf__layer_in(c->mlp_layers, i);
    if (r->st == NULL && mlps == c->layers)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "mlp_only_layers",
                         "experts in at least one layer");
    const double coefficient = sheaf__json_real(r, "router_aux_loss_coef", 0, 1e6, 0.001);
    c->router_loss = sheaf__json_bool(r, "output_router_logits", false) ? coefficient : 0;
    if (sheaf__json_real(r, "router_jitter_noise", 0, 1e6, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "router_jitter_noise",
                         "0: another value multiplies rows by noise in training");
}
