/* part.c - one file of a SAT checkpoint: names, rules, digests. See parts.h. */
#include <xxhash.h>

#include "base/base.h"
#include "dialects/sat/parts.h"

/* ---- names ---- */

static bool copy_name(char out[512], const char *text, size_t size, const char *tail)
{
    if (size + strlen(tail) >= 512)
        return false;
    memcpy(out, text, size);
    strcpy(out + size, tail);
    return true;
}

/* Is `name` X followed by `infix` and a number? *size is the length of X. */
static bool is_factor(size_t *size, int *part, const char *name, const char *infix)
{
    const char *dot = strrchr(name, '.');
    const size_t n = strlen(infix), digits = dot == NULL ? 0 : strspn(dot + 1, "0123456789");
    if (digits == 0 || digits > 3 || dot[1 + digits] != '\0' || (size_t)(dot - name) < n ||
        strncmp(dot - n, infix, n) != 0)
        return false;
    *size = (size_t)(dot - name) - n;
    *part = atoi(dot + 1);
    return true;
}

bool sheaf__sat_name_of(sheaf__sat_name *out, const char *name)
{
    char weight[512];
    size_t size = 0;
    *out = (sheaf__sat_name){ .kind = SHEAF_SAT_PLAIN };
    if (!copy_name(out->logical, name, strlen(name), ""))
        return false;
    if (is_factor(&size, &out->part, name, ".matrix_A"))
        out->kind = SHEAF_SAT_A;
    else if (is_factor(&size, &out->part, name, ".matrix_B"))
        out->kind = SHEAF_SAT_B;
    if (out->kind != SHEAF_SAT_PLAIN) {
        if (!copy_name(out->linear, name, size, "") || !copy_name(weight, name, size, ".weight"))
            return false;
        out->known = sheaf__sat_rule_of(&out->rule, weight);
        return true;
    }
    const bool is_weight = sheaf__ends_with(name, ".original.weight");
    if (is_weight || sheaf__ends_with(name, ".original.bias")) {
        size = strlen(name) - strlen(is_weight ? ".original.weight" : ".original.bias");
        out->adapted = true;
        copy_name(out->linear, name, size, "");
        copy_name(out->logical, name, size, is_weight ? ".weight" : ".bias");
    }
    out->known = sheaf__sat_rule_of(&out->rule, out->logical);
    return true;
}

/* ---- digests ---- */

static sheaf_status *hash_bytes(uint64_t *out, const sheaf_torch *file,
                                const sheaf_torch_storage *storage)
{
    enum { BUFFER_BYTES = 1 << 16 };
    XXH64_state_t *state = XXH64_createState();
    char *buffer = malloc(BUFFER_BYTES);
    sheaf_status *st = state == NULL || buffer == NULL ? sheaf__no_memory(file->path) : NULL;
    if (st == NULL)
        XXH64_reset(state, 0);
    for (int64_t at = 0; st == NULL && at < storage->bytes; at += BUFFER_BYTES) {
        const size_t n =
            (size_t)(storage->bytes - at < BUFFER_BYTES ? storage->bytes - at : BUFFER_BYTES);
        st = sheaf__file_read_at(file->fd, buffer, n, storage->offset + at, file->path);
        if (st == NULL)
            XXH64_update(state, buffer, n);
    }
    *out = st == NULL ? XXH64_digest(state) : 0;
    XXH64_freeState(state);
    free(buffer);
    return st;
}

sheaf_status *sheaf__sat_digest(uint64_t *out, const sheaf_torch *file,
                                const sheaf_pickle_tensor *t)
{
    const sheaf_torch_storage *storage = &file->storage[t->storage];
    uint64_t facts[5 + 2 * SHEAF_PICKLE_MAX_DIMS] = { (uint64_t)t->dtype, (uint64_t)t->ndim,
                                                      (uint64_t)t->offset, (uint64_t)storage->bytes,
                                                      storage->crc };
    for (int i = 0; i < t->ndim; i++) {
        facts[5 + 2 * i] = (uint64_t)t->shape[i];
        facts[6 + 2 * i] = (uint64_t)t->stride[i];
    }
    sheaf_status *st = storage->has_crc ? NULL : hash_bytes(&facts[4], file, storage);
    *out = XXH64(facts, sizeof facts, 0);
    return st;
}

/* Digests of a part's contents, in the order of the file, which is that of the model. */
static sheaf_status *digest_part(sheaf__sat_part *part)
{
    const int64_t n = sheaf__pickle_count(part->module);
    uint64_t names = 0, copies = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(part->module, i));
        const sheaf_pickle_tensor *t =
            sheaf__pickle_tensor(part->file->doc, sheaf__pickle_value(part->module, i));
        sheaf__sat_name what;
        if (name == NULL || t == NULL || !sheaf__sat_name_of(&what, name))
            continue;
        names = XXH64(name, strlen(name), names);
        names = XXH64(&t->dtype, sizeof t->dtype, names);
        names = XXH64(t->shape, (size_t)t->ndim * sizeof *t->shape, names);
        if (what.kind != SHEAF_SAT_PLAIN || !what.known || what.rule.parts > 0)
            continue; /* copies of LoRA factors drift apart in training by a defect of SAT */
        uint64_t digest;
        sheaf_status *st = sheaf__sat_digest(&digest, part->file, t);
        if (st != NULL)
            return st;
        copies = XXH64(name, strlen(name), copies);
        copies = XXH64(&digest, sizeof digest, copies);
    }
    part->names = names;
    part->copies = copies;
    return NULL;
}

/* ---- opening ---- */

static sheaf_status *look_inside(sheaf__sat_part *part)
{
    const sheaf_pickle *root = part->file->doc->root;
    part->module = sheaf__pickle_get(root, "module");
    if (!sheaf__pickle_is(part->module, SHEAF_PICKLE_DICT)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "%s", part->path);
        sheaf_expected(st, "a dict with \"module\", as SAT writes it");
        return sheaf_found(st,
                           part->module == NULL ? "no \"module\"" : "a \"module\" that is no dict");
    }
    if (!sheaf__pickle_int(&part->step, sheaf__pickle_get(root, "iteration")) || part->step < 0)
        part->step = -1;
    if (!sheaf__pickle_int(&part->ways, sheaf__pickle_get(root, "mp_world_size")) ||
        part->ways < 1 || part->ways > SHEAF_SAT_MOST_RANKS)
        part->ways = 0;
    return digest_part(part);
}

sheaf_status *sheaf__sat_part_open(sheaf__sat_part *part)
{
    part->step = -1;
    part->why = sheaf__torch_open(&part->file, part->path);
    if (part->why == NULL)
        part->why = look_inside(part);
    if (part->why == NULL) {
        sheaf__torch_close_file(part->file); /* of many open files few are chosen */
        return NULL;
    }
    sheaf__torch_close(part->file);
    part->file = NULL;
    part->module = NULL;
    sheaf_status *st = sheaf_status_code(part->why) == SHEAF_E_MEMORY ? part->why : NULL;
    if (st != NULL)
        part->why = NULL;
    return st;
}

void sheaf__sat_part_release(sheaf__sat_part *part)
{
    free(part->path);
    if (part->file != NULL)
        sheaf__torch_close(part->file);
    sheaf_status_free(part->why);
}

sheaf_status *sheaf__sat_by_deepspeed(bool *yes, const char *path)
{
    static const char *const keys[] = { "ds_version", "ds_config", "param_shapes", "global_steps" };
    sheaf_torch *file = NULL;
    sheaf_status *st = sheaf__torch_open(&file, path);
    *yes = false;
    if (file == NULL)
        return sheaf__only_memory(st);
    const sheaf_pickle *root = file->doc->root, *module = sheaf__pickle_get(root, "module");
    bool sat = sheaf__pickle_get(root, "iteration") != NULL, deepspeed = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        deepspeed = deepspeed || sheaf__pickle_get(root, keys[i]) != NULL;
    for (int64_t i = 0; deepspeed && !sat && sheaf__pickle_is(module, SHEAF_PICKLE_DICT) &&
                        i < sheaf__pickle_count(module);
         i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(module, i));
        sat = name != NULL && sheaf__sat_begins(name);
    }
    sheaf__torch_close(file);
    *yes = deepspeed && !sat;
    return NULL;
}

static const sheaf_pickle_tensor *find_tensor(const sheaf__sat_part *part, const char *name,
                                              int ndim)
{
    const sheaf_pickle_tensor *t =
        sheaf__pickle_tensor(part->file->doc, sheaf__pickle_get(part->module, name));
    return t != NULL && t->ndim == ndim && t->shape[0] > 0 ? t : NULL;
}

/* `whole` rows divided by the rows of `t`, those of one part. */
static int quotient(int64_t whole, const sheaf_pickle_tensor *t)
{
    if (t == NULL || whole < 1 || whole % t->shape[0] != 0 ||
        whole / t->shape[0] > SHEAF_SAT_MOST_RANKS)
        return 0;
    return (int)(whole / t->shape[0]);
}

int sheaf__sat_ways_by_shape(const sheaf__sat_part *part, int64_t vocab)
{
    static const char *const qkv[] = {
        "transformer.layers.0.attention.query_key_value.weight",
        "transformer.layers.0.attention.query_key_value.original.weight"
    };
    if (part->file == NULL)
        return 0;
    const sheaf_pickle_tensor *norm = find_tensor(part, "transformer.final_layernorm.weight", 1);
    for (int i = 0; i < 2; i++) {
        const sheaf_pickle_tensor *t = find_tensor(part, qkv[i], 2);
        if (norm != NULL && t != NULL && norm->shape[0] <= INT32_MAX)
            return quotient(3 * norm->shape[0], t);
    }
    return quotient(vocab, find_tensor(part, sheaf__sat_family(false)->head, 2));
}
