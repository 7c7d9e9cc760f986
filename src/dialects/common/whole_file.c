/* whole_file.c - whole tensors of safetensors and PyTorch files; see whole.h. */
#include "base/base.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "dialects/common/whole.h"
#include "formats/safetensors.h"
#include "formats/torch.h"
#include "schema/family.h"

enum { MOST_DEPTH = 8, MOST_VALUES = 1 << 22 };

bool sheaf__is_torch_name(const char *name)
{
    return sheaf__ends_with(name, ".bin") || sheaf__ends_with(name, ".pt") ||
           sheaf__ends_with(name, ".pth");
}

/* A constant that follows from config.json; files from before 2023 hold it. (CogVLM's, "mixins...",
 * belongs to it.) */
bool sheaf__is_old_buffer(const char *name)
{
    return sheaf__ends_with(name, "rotary_emb.inv_freq") && !sheaf__sat_begins(name);
}

/* The state of reading one file. */
typedef struct taking {
    const sheaf__whole *whole;
    const char *path;
    int file;
    const sheaf_torch *torch; /* NULL for safetensors */
    int64_t values;           /* visited so far: a pickle may reference one value many times */
} taking;

static sheaf_status *take(taking *t, const char *stored, const sheaf_piece *piece, int ndim,
                          const int64_t *shape)
{
    const sheaf__whole *w = t->whole;
    char *renamed = NULL;
    if ((!w->buffers && sheaf__is_old_buffer(stored)) ||
        (w->wants != NULL && !w->wants(w->context, t->path, stored)))
        return NULL;
    sheaf_status *st = w->rename != NULL ? w->rename(&renamed, stored) : NULL;
    const char *name = renamed != NULL ? renamed : stored;
    sheaf_logical *tensor = st == NULL ? sheaf__catalog_find(w->c, name) : NULL;
    if (tensor != NULL) {
        const char *other =
            tensor->npieces > 0 ? w->c->file[tensor->piece[0].file].path : "another file";
        st =
            sheaf__defect(w->c, "duplicate", t->path, name, "one tensor of this name",
                          strcmp(other, t->path) == 0 ? "" : "move the file of the wrong save away",
                          "it is in %s too%s%s", other,
                          strcmp(stored, name) != 0 ? "; here it is stored as " : "",
                          strcmp(stored, name) != 0 ? stored : "");
    } else if (st == NULL) {
        st = sheaf__catalog_tensor(&tensor, w->c, name, piece->dtype, ndim, shape);
        if (st == NULL) {
            tensor->kind = w->kind;
            if (!w->as_stored || sheaf_dtype_bytes(piece->dtype) > 0)
                st = sheaf__catalog_piece(w->c, tensor, piece);
        }
        st = sheaf__catalog_defect(w->c, t->path, st);
    }
    free(renamed);
    return st;
}

/* A file of one rank, which HuggingFaceStorageWriter of torch.distributed.checkpoint leaves until
 * they are consolidated: parts under the names of whole tensors. "saved_offsets" has the begin of
 * each, but nothing has their number, so rank 0's looks like a whole save. */
static sheaf_status *check_divided(const taking *t, const sheaf_safetensors *file, const char *path)
{
    static const char want[] = "whole tensors";
    static const char cure[] =
        "torch.distributed.checkpoint's consolidate_safetensors_files(), or its HuggingFaceStorageWriter with enable_consolidation=True";
    const char *text = sheaf__safetensors_metadata(file, "DCP_SHARDING_INFO"), *name;
    json_t *root = NULL, *tensor;
    bool inner = false;
    if (text == NULL)
        return NULL;
    sheaf_status *st = sheaf__only_memory(sheaf__json_parse(&root, text, strlen(text)));
    if (st != NULL) /* unknown form: only the key identifies it */
        return st;
    json_object_foreach(root, name, tensor)
    {
        const json_t *offsets = json_object_get(tensor, "saved_offsets");
        for (size_t i = 0; i < json_array_size(offsets); i++)
            inner = inner || json_integer_value(json_array_get(offsets, i)) != 0;
    }
    json_decref(root);
    if (!inner)
        return sheaf__warning(
            t->whole->c, "inferred", path, "", want, cure,
            "rank 0's parts of a save of torch.distributed.checkpoint, or all of one rank's: the file does not say");
    st = sheaf_fail(SHEAF_E_UNSUPPORTED, "one rank's parts, by DCP_SHARDING_INFO in its metadata");
    return sheaf_try_this(sheaf_expected(st, want), cure);
}

static sheaf_status *take_safetensors(taking *t, const char *path)
{
    sheaf_safetensors *file = NULL;
    sheaf_status *st = sheaf__safetensors_open(&file, path);
    if (st != NULL)
        return st;
    const char *format = sheaf__safetensors_metadata(file, "format");
    st = sheaf__catalog_file(&t->file, t->whole->c, path, &file->mark);
    if (st == NULL && format != NULL &&
        (strcmp(format, "tf") == 0 || strcmp(format, "flax") == 0 || strcmp(format, "np") == 0))
        st = sheaf__defect(
            t->whole->c, "unsupported", path, "", "metadata 'format': pt",
            "other frameworks use other names and transpose weights: convert it with transformers",
            "%s", format);
    TRY(st, check_divided(t, file, path));
    for (int64_t i = 0; st == NULL && i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        const sheaf_piece p =
            sheaf__piece_dense(t->file, t->whole->rank, e->dtype, e->offset, e->ndim, e->shape);
        st = take(t, e->name, &p, e->ndim, e->shape);
    }
    sheaf__safetensors_close(file);
    return st;
}

/* A tensor, or the tensors in a dict; other values are no weights, unless they are tensors for
 * their program. */
static sheaf_status *take_value(taking *t, const char *name, const sheaf_pickle *value, int depth)
{
    const sheaf_pickle_tensor *tensor = sheaf__pickle_tensor(t->torch->doc, value);
    if (++t->values > MOST_VALUES)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "values in the pickle"), "at most %d",
                              MOST_VALUES);
    if (tensor != NULL) {
        const sheaf_piece p = sheaf__piece_of(t->file, t->whole->rank, t->torch, tensor);
        return take(t, *name != '\0' ? name : "tensor", &p, tensor->ndim, tensor->shape);
    }
    if (!sheaf__pickle_is(value, SHEAF_PICKLE_DICT) || depth >= MOST_DEPTH)
        return sheaf__dialect_unread(NULL, t->whole->c, t->path, *name != '\0' ? name : "tensor",
                                     value);
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < sheaf__pickle_count(value); i++) {
        const sheaf_pickle *at = sheaf__pickle_key(value, i);
        const char *key = sheaf__pickle_text(at);
        char *text = NULL, number[32] = "?";
        int64_t n;
        if (key == NULL && sheaf__pickle_int(&n, at))
            snprintf(number, sizeof number, "%" PRId64, n);
        if (asprintf(&text, "%s%s%s", name, *name != '\0' ? "." : "", key != NULL ? key : number) <
            0)
            return sheaf__no_memory(t->path);
        if (key != NULL)
            st = take_value(t, text, sheaf__pickle_value(value, i), depth + 1);
        else /* only texts are names */
            st = sheaf__dialect_unread(NULL, t->whole->c, t->path, text,
                                       sheaf__pickle_value(value, i));
        free(text);
    }
    return st;
}

/* Keys of the weights in files that hold more than these. */
static const sheaf_pickle *weights_of(const sheaf_pickle *root)
{
    static const char *const keys[] = { "state_dict", "model_state_dict", "model", "module" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const sheaf_pickle *inner = sheaf__pickle_get(root, keys[i]);
        if (sheaf__pickle_is(inner, SHEAF_PICKLE_DICT))
            return inner;
    }
    return root;
}

static sheaf_status *take_torch(taking *t, const char *path)
{
    sheaf_torch *torch = NULL;
    sheaf_status *st = sheaf__torch_open(&torch, path);
    if (st != NULL)
        return st;
    t->torch = torch;
    st = sheaf__catalog_file(&t->file, t->whole->c, path, &torch->mark);
    TRY(st, take_value(t, "", weights_of(torch->doc->root), 0));
    sheaf__torch_close(torch);
    return st;
}

sheaf_status *sheaf__dialect_unread(bool *noted, sheaf_catalog *c, const char *path,
                                    const char *name, const sheaf_pickle *value)
{
    char buffer[SHEAF_PICKLE_UNREAD_MOST];
    const char *is = sheaf__pickle_unread(value, buffer, &c->looks);
    if (noted != NULL)
        *noted = is != NULL;
    return is == NULL
               ? NULL
               : sheaf__defect(
                     c, "unread", path, name, "a dense tensor of a dtype that sheaf reads",
                     "make it one in Python and save again, or leave it out: sheaf convert {} {+rest} --to hf --drop-unread{config}",
                     "%s", is);
}

sheaf_status *sheaf__whole_file(bool *read, const sheaf__whole *whole, const char *path)
{
    taking t = { .whole = whole, .path = path };
    const bool torch = sheaf__is_torch_name(path) ||
                       (!sheaf__ends_with(path, ".safetensors") && sheaf__torch_is(path));
    sheaf_status *st = torch ? take_torch(&t, path) : take_safetensors(&t, path);
    *read = st == NULL;
    const bool absent = st != NULL && sheaf__path_kind(path) == SHEAF_PATH_NONE;
    return sheaf__catalog_defect_as(whole->c, path, st, absent ? "missing" : NULL,
                                    absent ? "download or copy this file too"
                                    : st != NULL && sheaf_status_code(st) == SHEAF_E_FORMAT
                                        ? "download or copy this file again"
                                        : "");
}
