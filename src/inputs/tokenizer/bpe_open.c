/* bpe_open.c - the model BPE of a tokenizer.json. */

#include "bpe.h"
#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

static const char memory_for[] = "merges of a tokenizer";

void sheaf__bpe_close(sheaf__bpe_model *b)
{
    if (b == NULL)
        return;
    free(b->slot);
    free(b->may);
    free(b->character);
    free(b->unk);
    free(b);
}

/* ---- the table of merges ---- */

static void place(sheaf__bpe_model *b, sheaf__merge merge)
{
    uint64_t i = sheaf__pair_hash(merge.left, merge.right) & b->mask;
    while (b->slot[i].left != UINT32_MAX)
        i = (i + 1) & b->mask;
    b->slot[i] = merge;
}

static bool resize(sheaf__bpe_model *b, uint64_t slots)
{
    sheaf__merge *old = b->slot;
    const uint64_t before = old == NULL ? 0 : b->mask + 1;
    b->slot = malloc(slots * sizeof *b->slot);
    if (b->slot == NULL) {
        b->slot = old;
        return false;
    }
    b->mask = slots - 1;
    memset(b->slot, 0xff, slots * sizeof *b->slot);
    for (uint64_t i = 0; i < before; i++)
        if (old[i].left != UINT32_MAX)
            place(b, old[i]);
    free(old);
    return true;
}

/* A duplicate pair has its last rank, as in `tokenizers`. */
static bool add_merge(sheaf__bpe_model *b, sheaf__merge merge)
{
    const sheaf__merge *there = sheaf__merge_find(b, merge.left, merge.right);
    if (there != NULL) {
        b->slot[there - b->slot] = merge;
        return true;
    }
    if ((uint64_t)(b->merges + 1) * 2 > b->mask + 1 && !resize(b, (b->mask + 1) * 2))
        return false;
    place(b, merge);
    b->merges++;
    return true;
}

/* After the last merge: a smaller table stays in the cache. */
static bool finish_merges(sheaf__bpe_model *b)
{
    int bits = 10;
    uint64_t slots = 64;
    while (slots < (uint64_t)b->merges * 2)
        slots *= 2;
    if (slots <= b->mask && !resize(b, slots))
        return false;
    while (((int64_t)1 << bits) < b->merges * 16)
        bits++;
    b->may = calloc((size_t)1 << (bits - 6), sizeof *b->may);
    if (b->may == NULL)
        return false;
    b->may_shift = 64 - bits;
    for (uint64_t i = 0; i <= b->mask; i++) {
        const sheaf__merge *m = &b->slot[i];
        const uint64_t bit = sheaf__pair_hash(m->left, m->right) >> b->may_shift;
        if (m->left != UINT32_MAX)
            b->may[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    return true;
}

/* ---- reading merges ---- */

typedef struct reading {
    sheaf__bpe_model *b;
    char *text;   /* space for "left right", then for the merged token */
    int64_t rank; /* by the place in the file */
} reading;

static sheaf_status *fail_merge(const reading *r, const char *token, size_t size,
                                const char *expected)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "merge %" PRId64, r->rank + 1);
    return sheaf_found(sheaf_expected(st, "%s", expected), "'%.*s'", size > 80 ? 80 : (int)size,
                       token);
}

static sheaf_status *find_token(uint32_t *id, const reading *r, const char *token, size_t size)
{
    const int32_t found = sheaf__vocab_find(r->b->vocab, token, size);
    *id = (uint32_t)found;
    return found >= 0 ? NULL : fail_merge(r, token, size, "tokens of the vocabulary");
}

static void mark_joint(sheaf__bpe_model *b, const char *left, size_t left_size, const char *right,
                       size_t right_size)
{
    size_t last = left_size - 1;
    while (last > 0 && ((unsigned char)left[last] & 0xc0) == 0x80)
        last--;
    const uint32_t before = sheaf__unicode_take(left + last, left_size - last, NULL),
                   after = sheaf__unicode_take(right, right_size, NULL);
    const uint32_t row = sheaf__bpe_row(before), column = sheaf__bpe_row(after);
    const uint64_t bit = sheaf__joint(before, after);
    b->joined[bit / 64] |= UINT64_C(1) << bit % 64;
    if (row <= SHEAF__BPE_BAR && column <= SHEAF__BPE_BAR)
        b->apart[row][column / 64] |= UINT64_C(1) << column % 64;
}

/* `left` and `right` lie in r->text, with space behind them. */
static sheaf_status *take_merge(reading *r, const char *left, size_t left_size, const char *right,
                                size_t right_size)
{
    sheaf__merge merge = { .rank = (uint32_t)r->rank };
    char *joined = (char *)right + right_size; /* both are in the space */
    memcpy(joined, left, left_size);
    memcpy(joined + left_size, right, right_size);
    const size_t joined_size = left_size + right_size;
    /* The table exceeds the processor's cache: prefetch all three. */
    sheaf__vocab_prefetch(r->b->vocab, left, left_size);
    sheaf__vocab_prefetch(r->b->vocab, right, right_size);
    sheaf__vocab_prefetch(r->b->vocab, joined, joined_size);
    sheaf_status *st = find_token(&merge.left, r, left, left_size);
    TRY(st, find_token(&merge.right, r, right, right_size));
    if (st != NULL)
        return st;
    if (left_size > 0 && right_size > 0)
        mark_joint(r->b, left, left_size, right, right_size);
    st = find_token(&merge.id, r, joined, joined_size);
    if (st == NULL && !add_merge(r->b, merge))
        st = sheaf__no_memory(memory_for);
    r->rank++;
    return st;
}

/* "left right": one blank. */
static sheaf_status *read_string(reading *r, sheaf_json_scan *scan)
{
    size_t size;
    sheaf_status *st = sheaf__scan_string_to(scan, r->text, &size);
    if (st != NULL)
        return st;
    if (size >= 8 && memcmp(r->text, "#version", 8) == 0) /* a line of merges.txt */
        return NULL;
    const char *blank = memchr(r->text, ' ', size);
    if (blank == NULL || memchr(blank + 1, ' ', size - (size_t)(blank + 1 - r->text)) != NULL)
        return fail_merge(r, r->text, size, "two tokens with one blank between them");
    const size_t left = (size_t)(blank - r->text);
    return take_merge(r, r->text, left, blank + 1, size - left - 1);
}

/* ["left", "right"] */
static sheaf_status *read_pair(reading *r, sheaf_json_scan *scan)
{
    size_t left = 0, right = 0;
    if (!sheaf__scan_take(scan, '['))
        return sheaf__scan_fail(scan, "a merge: a string, or a list of two");
    sheaf_status *st = sheaf__scan_string_to(scan, r->text, &left);
    if (st == NULL && !sheaf__scan_take(scan, ','))
        st = sheaf__scan_fail(scan, "the second token of a merge");
    TRY(st, sheaf__scan_string_to(scan, r->text + left, &right));
    if (st == NULL && !sheaf__scan_take(scan, ']'))
        st = sheaf__scan_fail(scan, "the end of a merge of two tokens");
    return st != NULL ? st : take_merge(r, r->text, left, r->text + left, right);
}

static sheaf_status *read_merges(sheaf__bpe_model *b, const sheaf__tokenizer_file *file)
{
    sheaf_json_scan scan = file->merges;
    reading r = { .b = b };
    bool more = true;
    /* A merge and its result are each no longer than the rest of the file. */
    r.text = malloc((size_t)(scan.end - scan.at) * 2 + 4);
    sheaf_status *st = r.text == NULL ? sheaf__no_memory(memory_for) : NULL;
    if (st == NULL && !sheaf__scan_take(&scan, '['))
        st = sheaf__scan_fail(&scan, "a list of merges");
    for (bool first = true; st == NULL && more; first = false) {
        st = sheaf__scan_next_item(&scan, first, &more);
        if (st != NULL || !more)
            break;
        st = sheaf__scan_peek(&scan) == '"' ? read_string(&r, &scan) : read_pair(&r, &scan);
        if (st == NULL && r.rank >= UINT32_MAX)
            st = sheaf__scan_fail(&scan, "fewer merges");
    }
    free(r.text);
    return st;
}

/* Two tokens whose join is a token: sheaf__tokenizer_file.made. */
static sheaf_status *make_merge(sheaf__bpe_model *b, const sheaf__tokenizer_file *file,
                                const char *token, size_t size, size_t at, uint32_t id)
{
    const uint32_t *rank = file->rank;
    const int32_t left = sheaf__vocab_find(b->vocab, token, at),
                  right = left < 0 ? -1 : sheaf__vocab_find(b->vocab, token + at, size - at);
    if (right < 0 || (rank != NULL && (rank[left] == UINT32_MAX || rank[right] == UINT32_MAX)))
        return NULL;
    const sheaf__merge merge = { (uint32_t)left, (uint32_t)right,
                                 rank != NULL  ? rank[id]
                                 : file->by_id ? id
                                               : (uint32_t)b->merges,
                                 id };
    mark_joint(b, token, at, token + at, size - at);
    return add_merge(b, merge) ? NULL : sheaf__no_memory(memory_for);
}

static sheaf_status *make_merges(sheaf__bpe_model *b, const sheaf__tokenizer_file *file)
{
    sheaf_status *st = NULL;
    for (int64_t id = 0; id < b->vocab->ids; id++) {
        size_t size = 0, n;
        const char *token = sheaf__vocab_token(b->vocab, id, &size);
        if (token == NULL || (file->rank != NULL && file->rank[id] == UINT32_MAX))
            continue;
        for (size_t at = 0; at < size && st == NULL; at += n) {
            sheaf__unicode_take(token + at, size - at, &n);
            if (at > 0)
                st = make_merge(b, file, token, size, at, (uint32_t)id);
        }
    }
    return st;
}

/* ---- the options ---- */

static void read_options(sheaf__bpe_model *b, sheaf_json_reader *r)
{
    sheaf__only_keys(r, "dropout unk_token fuse_unk continuing_subword_prefix byte_fallback "
                        "end_of_word_suffix ignore_merges");
    if (sheaf__json_real(r, "dropout", 0, 1, 0) > 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "dropout", "null: the same ids every time");
    const char *unk = sheaf__json_string(r, "unk_token");
    b->unk = unk == NULL ? NULL : strdup(unk);
    if (unk != NULL && b->unk == NULL)
        sheaf__json_fail(r, SHEAF_E_MEMORY, "unk_token", "memory for it");
    for (int i = 0; i < 2; i++) { /* GPT-1's and BERT's */
        static const char *const marks[] = { "continuing_subword_prefix", "end_of_word_suffix" };
        const char *mark = sheaf__json_string(r, marks[i]);
        if (mark != NULL && mark[0] != '\0')
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, marks[i], "null or an empty string");
    }
    b->fuse_unk = sheaf__json_bool(r, "fuse_unk", false);
    b->byte_fallback = sheaf__json_bool(r, "byte_fallback", false);
    b->ignore_merges = sheaf__json_bool(r, "ignore_merges", false);
}

static void find_bytes(sheaf__bpe_model *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        const size_t n = sheaf__unicode_put(text, sheaf__byte_char((unsigned char)byte));
        b->byte_id[byte] = sheaf__vocab_find(b->vocab, text, n);
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        b->fallback_id[byte] = sheaf__vocab_find(b->vocab, text, 6);
    }
    for (int64_t id = 0; id < b->vocab->ids; id++) {
        size_t size, length;
        const char *token = sheaf__vocab_token(b->vocab, id, &size);
        if (token == NULL || size == 0)
            continue;
        const uint32_t code = size <= 4 ? sheaf__unicode_take(token, size, &length) : 0;
        if (size <= 4 && length == size && code < 0x110000)
            b->character[code] = (uint32_t)id + 1;
    }
    b->unk_id = b->unk == NULL ? -1 : sheaf__vocab_find(b->vocab, b->unk, strlen(b->unk));
}

static bool is_fallback(const sheaf__bpe_model *b, uint32_t id)
{
    size_t size;
    const char *token = sheaf__vocab_token(b->vocab, id, &size);
    if (size != 6 || memcmp(token, "<0x", 3) != 0)
        return false;
    for (int byte = 0; byte < 256; byte++)
        if (b->fallback_id[byte] == (int32_t)id)
            return true;
    return false;
}

static bool has_lone_bytes(const sheaf__bpe_model *b)
{
    for (int byte = 0; byte < 256; byte++)
        if (b->fallback_id[byte] < 0)
            return false;
    for (uint64_t i = 0; i <= b->mask; i++)
        if (b->slot[i].left != UINT32_MAX &&
            (is_fallback(b, b->slot[i].left) || is_fallback(b, b->slot[i].right)))
            return false;
    return b->byte_fallback;
}

/* The pairs looked up most often, in a small table. */
static void find_ascii(sheaf__bpe_model *b)
{
    for (uint32_t left = 0; left <= SHEAF__BPE_BAR; left++) {
        const bool known = b->character[left < SHEAF__BPE_BAR ? left : 0x2581] != 0;
        for (uint32_t right = 0; right <= SHEAF__BPE_BAR; right++) {
            const uint64_t bit = UINT64_C(1) << right % 64;
            uint64_t *bits = &b->apart[left][right / 64];
            const bool both = known && b->character[right < SHEAF__BPE_BAR ? right : 0x2581] != 0;
            const bool apart = both ? (*bits & bit) == 0 : b->lone_bytes;
            *bits = apart ? *bits | bit : *bits & ~bit;
        }
    }
}

sheaf_status *sheaf__bpe_open(sheaf__bpe_model **out, sheaf__vocab *vocab, sheaf_json_reader *r,
                              const sheaf__tokenizer_file *file)
{
    sheaf__bpe_model *b = calloc(1, sizeof *b);
    if (b == NULL)
        return sheaf__no_memory(memory_for);
    *out = b;
    b->vocab = vocab;
    b->character = calloc(0x110000, sizeof *b->character);
    if (b->character == NULL)
        return sheaf__no_memory(memory_for);
    read_options(b, r);
    if (r->st != NULL)
        return NULL; /* the caller checks r->st */
    sheaf_json_scan tokens = file->vocab;
    if (tokens.begin == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'vocab'"), "an object of tokens");
    if (file->merges.begin == NULL && !file->made)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'merges'"), "a list of merges");
    sheaf_status *st = sheaf__vocab_read(vocab, &tokens);
    uint64_t slots = 64; /* a merge takes some 20 bytes of a file */
    while (!file->made && slots < (uint64_t)(file->merges.end - file->merges.at) / 10)
        slots *= 2;
    if (st == NULL && !resize(b, slots))
        st = sheaf__no_memory(memory_for);
    TRY(st, file->made ? make_merges(b, file) : read_merges(b, file));
    if (st == NULL && !finish_merges(b))
        st = sheaf__no_memory(memory_for);
    if (st == NULL) {
        find_bytes(b);
        b->lone_bytes = has_lone_bytes(b);
        find_ascii(b);
    }
    return st;
}
