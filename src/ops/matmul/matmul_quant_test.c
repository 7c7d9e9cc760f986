/* matmul_quant_test.c - weights in codes: their values are those of the formats' rules, and
 * products have the bytes of those with plain panels of these values; of codes in groups, those of
 * the reference, which is held to their rule. */

#include "ops/quant/quantise.h"

#include "tests/matmul_twin.h"

/* ---- what codes stand for, once more ---- */

static const uint32_t nf4[16] = { 0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0,
                                  0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0,
                                  0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a,
                                  0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000 };

static float number_of(sheaf__codes codes, int code, int zero)
{
    static const float fp4[8] = { 0, 1.0f / 192, 2.0f / 3, 1, 1.0f / 3, 0.5f, 1.0f / 6, 0.25f };
    static const float e2m1[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    const int e = code >> 3 & 15, m = code & 7;
    switch (codes) {
    case SHEAF__NF4: return sheaf__float(nf4[code]);
    case SHEAF__FP4: return code > 8 ? -fp4[code - 8] : fp4[code & 7];
    case SHEAF__E2M1: return code & 8 ? -e2m1[code & 7] : e2m1[code];
    case SHEAF__INT4: return (float)(code - zero);
    case SHEAF__UINT4: return (float)code;
    case SHEAF__INT8: return (float)(int8_t)code;
    default: break;
    }
    const float size = (code & 127) == 127 ? NAN
                       : e == 0            ? ldexpf((float)m, -9)
                                           : ldexpf((float)(8 + m), e - 10);
    return code & 128 ? -size : size;
}

/* ---- twins ---- */

typedef struct form {
    sheaf__quant q;
    int64_t out, in;
} form;

/* Codes of a box and the same in plain panels, as x W^T and dy W have them; all of a larger one. */
typedef struct twins {
    form form;
    sheaf__quant_box box;
    float *value; /* [rows][cols] */
    sheaf__packed codes, ahead, back;
    /* [rows][cols]: as bfloat16, and of each element the number of its group, the scale and what is
     * added */
    float *number, *scale, *added;
    int64_t *group;
} twins;

static float random_scale(kind kind)
{
    const uint32_t u = random_u32();
    if (kind == SPECIAL && u % 32 == 0) {
        static const uint32_t special[] = { 0x7f800000, 0x7fc01234, 0,
                                            0x7f7fffff, 0xbf000000, 0x00000001 };
        return sheaf__float(special[random_u32() % ARRAY_LEN(special)]);
    }
    if (kind == TINY) /* values around the smallest normal number */
        return sheaf__float((u & 0x7fffff) | (u >> 24) % 8 << 23);
    return (float)(1 + u % 1000000) * 1e-6f;
}

static form random_form(void)
{
    static const int64_t blocks[] = { 64, 64, 64, 128, 32, 16, 256, 512, 100, 7, 4096 };
    static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F16, SHEAF_F32 };
    form f = { .q = { .codes = (sheaf__codes)below(SHEAF__CODES),
                      .grouping = (sheaf__groups)below(3),
                      .block = blocks[below(ARRAY_LEN(blocks))],
                      .dtype = types[below(3)] },
               .out = 1 + below(600),
               .in = below(3) ? 64 * (1 + below(12)) : 1 + below(700) };
    f.q.zeros = f.q.codes == SHEAF__INT4 && below(2);
    f.q.doubled = f.q.grouping == SHEAF__GROUPS_FLAT && below(2);
    f.q.blocks = !f.q.zeros && !f.q.doubled && below(3) == 0;
    f.q.added = f.q.blocks && f.q.grouping != SHEAF__GROUPS_INDEXED &&
                (f.q.codes == SHEAF__UINT4 || f.q.codes == SHEAF__INT8) && below(4) > 0;
    if (f.q.grouping == SHEAF__GROUPS_OF_ROW && below(4) == 0)
        f.q.block = 0;
    if (f.q.grouping == SHEAF__GROUPS_INDEXED) {
        f.q.block = 0;
        f.q.groups = 1 + below(9);
    }
    return f;
}

static void *room(size_t bytes, int filled)
{
    void *p = aligned_alloc(64, bytes / 64 * 64 + 64);
    assert_non_null(p);
    kept[nkept++] = p;
    return memset(p, filled, bytes);
}

/* Of the tensor, as the rules say: its scales by their numbers, and of each element its group. */
typedef struct tensor {
    int64_t groups; /* of a row, where they are of rows */
    float *scale, *added;
    uint8_t *zero, *code; /* of a group; of a doubled scale */
    uint16_t *index;
    float *nested, offset, map[256];
} tensor;

static int64_t number_of_group(const form *f, const tensor *t, int64_t row, int64_t col)
{
    if (f->q.grouping == SHEAF__GROUPS_FLAT)
        return (row * f->in + col) / f->q.block;
    return row * t->groups + (f->q.grouping == SHEAF__GROUPS_INDEXED ? t->index[col]
                              : f->q.block == 0                      ? 0
                                                                     : col / f->q.block);
}

static tensor random_tensor(const form *f, kind kind)
{
    const sheaf__quant *q = &f->q;
    tensor t = { .groups = q->groups };
    if (q->grouping == SHEAF__GROUPS_OF_ROW)
        t.groups = q->block == 0 ? 1 : (f->in + q->block - 1) / q->block;
    const int64_t n = q->grouping == SHEAF__GROUPS_FLAT ? (f->out * f->in + q->block - 1) / q->block
                                                        : f->out * t.groups;
    t.scale = keep((size_t)n * 4);
    t.added = keep((size_t)n * 4);
    t.zero = keep((size_t)n);
    t.code = keep((size_t)n);
    t.index = keep((size_t)f->in * 2);
    t.nested = keep((size_t)(n / 256 + 1) * 4);
    t.offset = kind == TINY ? 0 : random_scale(ORDINARY);
    sheaf__dynamic_map(t.map, true);
    for (int64_t c = 0; c < f->in; c++)
        t.index[c] = (uint16_t)below(q->groups > 0 ? q->groups : 1);
    for (int64_t i = 0; i < n / 256 + 1; i++)
        t.nested[i] = random_scale(kind);
    for (int64_t i = 0; i < n; i++) {
        t.zero[i] = (uint8_t)below(17);
        t.code[i] = (uint8_t)below(256);
        t.scale[i] = random_scale(kind);
        if (q->added) /* of 17 bits, as ggml's are */
            t.scale[i] = sheaf__float(sheaf__bits(t.scale[i]) & 0xffffff80);
        t.added[i] = below(5) ? -random_scale(kind) : 0;
        if (q->doubled) {
            const float product = t.map[t.code[i]] * t.nested[i / 256];
            t.scale[i] = product + t.offset;
        }
    }
    return t;
}

static sheaf__quant_box random_box(const form *f, int64_t rows)
{
    sheaf__quant_box b = { .in = f->in, .rows = rows };
    b.row0 = below(f->out - rows + 1);
    if (below(2) == 0)
        b.col0 = below(2) ? below(f->in) : f->in / 2 / 64 * 64;
    b.cols = below(2) ? f->in - b.col0 : 1 + below(f->in - b.col0);
    return b;
}

/* Into `w`, a part of the larger one or all of it: rows of the box, in two calls, the later first.
 */
static void load(sheaf__packed *w, const twins *t, const tensor *from, const uint8_t *codes)
{
    const sheaf__quant *q = &t->form.q;
    const int64_t groups = sheaf__quant_groups(q, &t->box), floats = sheaf__quant_floats(q),
                  cut = w->n / 2 / MM_PANEL * MM_PANEL;
    const int64_t first[] = { cut, 0 }, count[] = { w->n - cut, cut };
    sheaf__quant_whole whole = { from->index, from->nested, from->offset };
    sheaf__weight_load_whole(&machines[0], w, &whole);
    for (int i = 0; i < 2; i++) {
        sheaf__quant_parts p = { .codes = (uint8_t *)codes + (w->row0 + first[i]) * t->box.cols,
                                 .scales = keep((size_t)(count[i] * groups * floats) * 4),
                                 .scale_codes = keep((size_t)(count[i] * groups)),
                                 .zeros = keep((size_t)(count[i] * groups)) };
        memset(p.scales, 0xff, (size_t)(count[i] * groups * floats) * 4);
        for (int64_t r = 0; r < count[i]; r++) {
            const int64_t row = w->row0 + first[i] + r, phase = sheaf__quant_phase(q, &t->box, row);
            const bool by_row = q->grouping != SHEAF__GROUPS_FLAT;
            for (int64_t g = 0; g < groups; g++) {
                int64_t at = by_row ? (t->box.row0 + row) * from->groups + g
                                    : sheaf__quant_first_group(q, &t->box, row) + g;
                if (q->grouping == SHEAF__GROUPS_OF_ROW && q->block > 0)
                    at += t->box.col0 / q->block;
                if (q->block > 0 && g > (phase + t->box.cols - 1) / q->block)
                    continue;
                p.scales[(r * groups + g) * floats] = from->scale[at];
                if (q->added)
                    p.scales[(r * groups + g) * 2 + 1] = from->added[at];
                p.scale_codes[r * groups + g] = from->code[at];
                p.zeros[r * groups + g] = from->zero[at];
            }
        }
        sheaf__weight_load_codes(&machines[0], w, &p, first[i], count[i]);
    }
}

static sheaf__packed plain_room(sheaf_dtype dtype, int64_t n, int64_t k)
{
    sheaf__packed w = { .dtype = dtype, .n = n, .k = k };
    w.ahead = room(sheaf__packed_size(&w), 0xff);
    return w;
}

static twins make_twins(sheaf_dtype dtype, const form *f, const sheaf__quant_box *box, kind kind)
{
    twins t = { .form = *f, .box = *box };
    const tensor from = random_tensor(f, kind);
    const int64_t n = box->rows, k = box->cols;
    uint8_t *codes = keep((size_t)(n * k));
    float *back = keep((size_t)(n * k) * 4);
    t.value = keep((size_t)(n * k) * 4);
    t.number = keep((size_t)(n * k) * 4);
    t.scale = keep((size_t)(n * k) * 4);
    t.added = keep((size_t)(n * k) * 4);
    t.group = keep((size_t)(n * k) * sizeof *t.group);
    for (int64_t i = 0; i < n * k; i++) {
        const int64_t g = number_of_group(f, &from, box->row0 + i / k, box->col0 + i % k);
        const bool int8 = sheaf__quant_of_rows(&f->q); /* bitsandbytes' */
        codes[i] = (uint8_t)below(sheaf__code_bits(f->q.codes) == 4 ? 16 : 256);
        const float number = number_of(f->q.codes, codes[i], f->q.zeros ? from.zero[g] : 8);
        const float product = number * from.scale[g];
        t.value[i] = f->q.added ? product + from.added[g] : product;
        t.number[i] = sheaf__rounded(number, SHEAF_BF16);
        t.scale[i] = from.scale[g];
        t.added[i] = from.added[g];
        t.group[i] = g;
        back[i] = int8 ? t.value[i] : sheaf__rounded(t.value[i], f->q.dtype);
    }
    t.ahead = plain_room(dtype, n, k);
    t.back = plain_room(dtype, n, k);
    sheaf__pack(&t.ahead, t.value, SHEAF_F32, k, 0, n);
    sheaf__pack(&t.back, back, SHEAF_F32, k, 0, n);
    t.codes = sheaf__packed_quantised(&machines[0], dtype, &f->q, box);
    t.codes.ahead = room(sheaf__packed_size(&t.codes), 0xff);
    if (below(2)) { /* all at once */
        load(&t.codes, &t, &from, codes);
        return t;
    }
    const int64_t cut = n / 3;
    sheaf__packed part = sheaf__packed_part(&t.codes, cut, n - cut);
    load(&part, &t, &from, codes);
    part = sheaf__packed_part(&t.codes, 0, cut);
    load(&part, &t, &from, codes);
    t.codes.offset = part.offset;
    return t;
}

static void check_rows(const twins *t)
{
    const sheaf__packed *w = &t->codes;
    char *got = keep((size_t)w->k * 4), *want = keep((size_t)w->k * 4);
    for (int64_t r = 0; r < w->n; r++) {
        sheaf__packed_row(got, w, r);
        sheaf__packed_row(want, &t->ahead, r);
        for (int64_t c = 0; c < w->k; c++) {
            const float a = sheaf__load(got, c, w->dtype), b = sheaf__load(want, c, w->dtype);
            if (sheaf__bits(a) != sheaf__bits(b) && (a == a || b == b))
                fail_msg("row %d column %d: %08x, wanted %08x", (int)r, (int)c, sheaf__bits(a),
                         sheaf__bits(b));
        }
    }
}

static const char *text_of(const form *f)
{
    static char text[200];
    static const char *const groups[] = { "of a row", "flat", "indexed" };
    snprintf(text, sizeof text, "%s, %s, block %d, %d x %d%s%s, %s", sheaf__codes_name(f->q.codes),
             groups[f->q.grouping], (int)f->q.block, (int)f->out, (int)f->in,
             f->q.zeros ? ", zeros" : "",
             f->q.doubled ? ", doubled"
             : f->q.added ? ", added"
                          : "",
             sheaf_dtype_name(f->q.dtype));
    return text;
}

TEST(test_quant__rows_have_the_values)
{
    for (int i = 0; i < in_soak(300, 120); i++) {
        form f = random_form();
        f.out = 1 + f.out % 100;
        const sheaf__quant_box box = random_box(&f, 1 + below(f.out));
        const twins t = make_twins(random_type(), &f, &box,
                                   i % 3 == 0   ? SPECIAL
                                   : i % 3 == 1 ? TINY
                                                : ORDINARY);
        check_rows(&t);
        drop_all();
    }
}

/* ---- products ---- */

/* A term on codes, and the same on plain panels; n of its columns. */
static void make_terms(sheaf__term *codes, sheaf__term *plain, sheaf_dtype dtype, int64_t m,
                       int64_t n, kind kind, form *f)
{
    const bool back = below(2);
    const sheaf_dtype stored = dtype == SHEAF_BF16 ? dtype : random_type();
    static const int64_t apart[] = { 1, 2, 8, 16, 32 };
    const int64_t unit = back ? apart[below(ARRAY_LEN(apart))] : MM_PANEL,
                  before = below(2) ? unit * below(128 / unit) : 0,
                  after = below(2) ? below(70) : 0;
    int64_t rows = n;
    *f = random_form();
    if (back) { /* W [rows, n] */
        rows = 1 + below(below(3) ? 300 : 600);
        f->in = n + (below(2) ? below(200) : 0);
    }
    f->out = before + rows + after + below(40);
    sheaf__quant_box box = random_box(f, before + rows + after);
    if (back) {
        box.cols = n;
        box.col0 = f->in - n;
    }
    const twins t = make_twins(stored, f, &box, kind);
    sheaf__packed *w = keep(2 * sizeof *w);
    w[0] = sheaf__packed_part(&t.codes, before, rows);
    w[1] = sheaf__packed_part(back ? &t.back : &t.ahead, before, rows);
    if (before + after == 0 && below(2)) {
        w[0] = t.codes;
        w[1] = back ? t.back : t.ahead;
    }
    *codes = random_term(dtype, SHEAF__B_NK, false, m, 1, back ? rows : box.cols, kind);
    codes->form = back ? SHEAF__B_BACK : SHEAF__B_AHEAD;
    codes->apart = below(4) == 0;
    *plain = *codes;
    codes->w = &w[0];
    plain->w = &w[1];
}

/* Whether some term is of codes in groups. */
static bool has_groups(const sheaf__product *job, sheaf_sums sums)
{
    bool some = false;
    for (int t = 0; t < job->nterms; t++)
        some |= mm_in_groups(&job->term[t]);
    return some && mm_sums_groups(job, sums);
}

static void check_same(const form *f, const sheaf__product *job, const sheaf__product *plain,
                       sheaf_sums sums, int turn)
{
    const size_t bytes = (size_t)extent(job->m, job->n, job->ldy) * (job->out == SHEAF_F32 ? 4 : 2);
    const void *before = memcpy(keep(bytes), job->y, bytes);
    run_ref(has_groups(job, sums) ? job : plain, sums);
    const void *want = memcpy(keep(bytes), job->y, bytes);
    for (int isa = 0; isa < nisas; isa++)
        for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
            if (!takes_job(isa, d, turn))
                continue;
            memcpy(job->y, before, bytes);
            machines[d].sums = sums;
            for (int q = 0; q < machines[d].threads; q++) /* NaN, should what lies there count */
                memset(machines[d].scratch[q], 0xff, 1 << 19);
            sheaf__mm_products_with(isas[isa], &machines[d], job, 1);
            if (memcmp(job->y, want, bytes) != 0)
                print_error("%s, %s, %d threads, m %d n %d k %d %s%s: %s\n", isas[isa]->name,
                            sheaf__sums_text(sums), machines[d].threads, (int)job->m, (int)job->n,
                            (int)job->term[0].k,
                            job->term[0].form == SHEAF__B_BACK ? "back" : "ahead",
                            job->nterms > 1 ? " and more" : "", text_of(f));
            CHECK_BYTES("product", job->y, want, (int64_t)bytes);
        }
}

/* Any job of any form, and the same with plain panels by the reference. */
TEST(test_quant__products_are_the_same)
{
    static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_BF16, SHEAF_F32, SHEAF_F16 };
    for (int i = 0; i < in_soak(300, 126 / every(9)); i++) {
        const sheaf_dtype dtype = types[i % 4];
        const int64_t m = i % 3 == 0 ? 1 + below(40) : 1 + below(5),
                      n = below(3) ? 1 + below(300) : 16 * (1 + below(20));
        sheaf__term plain[3], codes[3];
        int slice_of[3], first[4] = { 0 };
        sheaf_tree tree;
        form f;
        sheaf__product job = plain_job(dtype, m, n, codes, 1 + (int)below(3));
        for (int t = 0; t < job.nterms; t++) {
            slice_of[t] = t;
            first[t + 1] = t + 1;
            if (t > 0 && below(4) == 0)
                plain[t] = codes[t] = random_term(dtype, SHEAF__B_NK, false, m, n, 16, ORDINARY);
            else
                make_terms(&codes[t], &plain[t], dtype, m, n,
                           below(8)   ? ORDINARY
                           : below(2) ? SPECIAL
                                      : TINY,
                           &f);
        }
        if (job.nterms < 3 && below(2)) {
            sheaf_tree_init(&tree, job.nterms, 1, NULL);
            job.nslices = job.nterms;
            job.slice_of = slice_of;
            job.first = first;
            job.tree = &tree;
        }
        if (below(2))
            random_ending(&job, ORDINARY);
        sheaf__product same = job;
        same.term = plain;
        check_same(&f, &job, &same, (sheaf_sums)(i / 4 % 7), i);
        drop_all();
    }
}

/* Of n <= 256 elements, what is missing of the last 32 being zero. */
static float block_by_rule(const float *a, const float *b, int64_t n, bool tiles)
{
    float sum = 0;
    for (int64_t c = 0; c < n && !tiles; c += 2)
        sum = fmaf(a[c], b[c], fmaf(a[c + 1], b[c + 1], sum));
    for (int64_t c = 0; c < n && tiles; c += 32) {
        float even = 0, odd = 0;
        for (int64_t e = c; e < c + 32; e += 2) {
            even = fmaf(a[e], b[e], even);
            odd = fmaf(a[e + 1], b[e + 1], odd);
        }
        sum = sum + (even + odd);
    }
    return sum;
}

static float lanes_by_rule(const float *a, int64_t n)
{
    float lane[16] = { 0 };
    for (int64_t c = 0; c < (n + 15) / 16 * 16; c++)
        lane[c % 16] += a[c];
    for (int apart = 8; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    return lane[0];
}

/* One result as docs/contract.md, 1.9, has it. */
static float by_rule(const twins *t, const sheaf__term *term, int64_t i, int64_t j, bool tiles)
{
    const int64_t k = t->box.cols;
    float sum = 0;
    for (int64_t at = 0, end; at < k; at = end) {
        float a[256] = { 0 }, b[256] = { 0 };
        const int64_t first = j * k + at;
        for (end = at;
             end < k && (end == at || end % 256 != 0) && t->group[j * k + end] == t->group[first];
             end++) {
            a[end - at] = sheaf__load(term->a, i * term->lda + end, SHEAF_BF16);
            b[end - at] = t->number[j * k + end];
        }
        const float block = block_by_rule(a, b, end - at, tiles);
        sum = at == 0 ? t->scale[first] * block : fmaf(t->scale[first], block, sum);
        if (t->form.q.added)
            sum = fmaf(t->added[first], lanes_by_rule(a, end - at), sum);
    }
    return sum;
}

/* Sums of codes in groups, of slices that begin within one, by the rule. */
TEST(test_quant__groups_are_summed_by_the_rule)
{
    static const sheaf__codes codes[] = { SHEAF__INT4, SHEAF__NF4, SHEAF__FP4, SHEAF__E2M1,
                                          SHEAF__UINT4 };
    static const int64_t blocks[] = { 0, 16, 32, 48, 64, 128, 256, 320, 4096 };
    const unsigned before = sheaf__mode();
    for (int i = 0; i < 120; i += every(11)) {
        const sheaf_sums sums = below(2) ? SHEAF_SUMS_GROUPS : SHEAF_SUMS_TILES_GROUPS;
        form f = { .q = { .codes = codes[i % 5],
                          .grouping = i % 2 ? SHEAF__GROUPS_OF_ROW : SHEAF__GROUPS_FLAT,
                          .block = blocks[i / 4 % 9],
                          .dtype = SHEAF_BF16 },
                   .out = 40,
                   .in = 1 + below(900) };
        if (f.q.grouping == SHEAF__GROUPS_FLAT && f.q.block == 0)
            f.q.block = 64;
        if (f.q.grouping == SHEAF__GROUPS_FLAT)
            f.in = f.q.block * (1 + below(6));
        f.q.added = f.q.codes == SHEAF__UINT4 && below(4) > 0;
        f.q.doubled = f.q.grouping == SHEAF__GROUPS_FLAT && !f.q.added && below(2);
        const int64_t col0 = below(2) ? 0 : (f.in - 1) / 16 / 2 * 16;
        const sheaf__quant_box box = { f.in, 0, f.out, col0, f.in - col0 };
        const twins t = make_twins(SHEAF_BF16, &f, &box, ORDINARY);
        const int64_t m = 1 + below(i % 3 ? 5 : 30);
        sheaf__term term = random_term(SHEAF_BF16, SHEAF__B_NK, false, m, 1, box.cols, ORDINARY);
        term.form = SHEAF__B_AHEAD;
        term.w = &t.codes;
        assert_true(mm_in_groups(&term));
        const sheaf__product job = plain_job(SHEAF_BF16, m, f.out, &term, 1);
        check_same(&f, &job, &job, sums, i);
        run_ref(&job, sums);
        sheaf__mode_set(SHEAF__COMPUTE_MODE);
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < f.out; j++) {
                const float want = by_rule(&t, &term, r, j, sums == SHEAF_SUMS_TILES_GROUPS),
                            got = ((const float *)job.y)[r * job.ldy + j];
                if (memcmp(&got, &want, sizeof got) != 0)
                    fail_msg("row %d column %d: %a, wanted %a: %s", (int)r, (int)j, (double)got,
                             (double)want, text_of(&f));
            }
        sheaf__compute_mode_leave(before);
        drop_all();
    }
}

/* Few rows, which read codes as they lie in memory: scales from which vectors would make zeros, and
 * a last odd column beside which, with the largest scale, what fills up the pair is infinite. */
TEST(test_quant__few_rows_heed_the_edges)
{
    static const sheaf__codes codes[] = { SHEAF__INT4, SHEAF__NF4, SHEAF__FP4, SHEAF__E2M1 };
    static const sheaf_sums orders[] = { SHEAF_SUMS_GROUPS, SHEAF_SUMS_PAIRS,
                                         SHEAF_SUMS_TILES_GROUPS };
    for (int i = 0; i < 36; i += every(5)) {
        const form f = { .q = { .codes = codes[i / 2 % 4],
                                .grouping = SHEAF__GROUPS_OF_ROW,
                                .block = 64,
                                .dtype = SHEAF_F32 },
                         .out = 200 + below(200),
                         .in = 64 * below(6) + 1 + 2 * below(2) };
        const sheaf__quant_box box = { f.in, 0, f.out, 0, f.in };
        const twins t = make_twins(SHEAF_BF16, &f, &box, i % 2 == 0 ? TINY : SPECIAL);
        const int64_t m = 1 + below(8);
        sheaf__term term[2];
        term[0] = random_term(SHEAF_BF16, SHEAF__B_NK, false, m, 1, f.in, ORDINARY);
        term[0].form = SHEAF__B_AHEAD;
        term[1] = term[0];
        term[0].w = &t.codes;
        term[1].w = &t.ahead;
        sheaf__product job = plain_job(SHEAF_BF16, m, f.out, &term[0], 1), plain = job;
        plain.term = &term[1];
        check_same(&f, &job, &plain, orders[i / 2 % 3], i);
        drop_all();
    }
}

/* What a kernel computed, by the reference: some columns, which `want` gets from the first kernel
 * of these sums. */
static void check_groups(sheaf__product *want, const sheaf__product *job, const form *f,
                         const char *name, sheaf_sums sums)
{
    const bool first_one = want->y == job->y;
    const int64_t first[] = { 0, job->n / 2, job->n - 9 };
    if (first_one)
        want->y = keep((size_t)extent(job->m, job->n, job->ldy) * 4);
    for (size_t i = 0; i < ARRAY_LEN(first); i++) {
        const unsigned before = sheaf__compute_mode_enter();
        if (first_one)
            sheaf__product_ref_part(want, sums, 0, job->m, first[i], first[i] + 9);
        sheaf__compute_mode_leave(before);
        for (int64_t r = 0; r < job->m; r++)
            if (memcmp((float *)job->y + r * job->ldy + first[i],
                       (float *)want->y + r * job->ldy + first[i], 9 * 4) != 0)
                fail_msg("%s, m %d, row %d, columns %d on: %s", name, (int)job->m, (int)r,
                         (int)first[i], text_of(f));
    }
}

/* Production sizes, every form: against plain panels by the kernels, which are held to the
 * reference elsewhere. */
TEST(test_quant__large_ones_too)
{
    static const form forms[] = {
        { { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_BF16 }, 1408, 2048 },
        { { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, true, SHEAF_F16 }, 2048, 704 },
        { { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_BF16 }, 640, 1104 },
        { { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_BF16 }, 4096, 1376 },
        { { SHEAF__FP4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_F32 }, 1000, 1024 },
        { { SHEAF__INT4, SHEAF__GROUPS_OF_ROW, 128, 0, true, false, SHEAF_F16 }, 1024, 2048 },
        { { SHEAF__INT4, SHEAF__GROUPS_OF_ROW, 32, 0, false, false, SHEAF_F16 }, 1024, 2048 },
        { { SHEAF__INT4, SHEAF__GROUPS_INDEXED, 0, 16, true, false, SHEAF_F16 }, 1024, 2048 },
        { { SHEAF__INT8, SHEAF__GROUPS_OF_ROW, 0, 0, false, false, SHEAF_F16 }, 1024, 2048 },
        { { SHEAF__F8_E4M3, SHEAF__GROUPS_OF_ROW, 128, 0, false, false, SHEAF_BF16 }, 1024, 2000 },
        { { SHEAF__UINT4, SHEAF__GROUPS_OF_ROW, 32, 0, false, false, SHEAF_F32, true },
          1024,
          1600 },
    };
    static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F32, SHEAF_F16 };
    for (size_t i = 0; i < ARRAY_LEN(forms) * (every(2) > 1 ? 1 : 3); i += (size_t)every(2)) {
        if (i >= ARRAY_LEN(forms) && i % 2 == 0 && !in_soak(1, 0))
            continue; /* of float32 and float16 one for each */
        const form *f = &forms[i % ARRAY_LEN(forms)];
        const sheaf_dtype dtype = types[i / ARRAY_LEN(forms)];
        const sheaf__quant_box box = { f->in, 0, f->out, 0, f->in };
        const twins t = make_twins(dtype, f, &box, ORDINARY);
        for (int back = 0; back < 2; back++) {
            static const int64_t rows[] = { 1, 4, 150 };
            const int64_t n = back ? f->in : f->out, k = back ? f->out : f->in,
                          m = rows[(i + (size_t)back) % ARRAY_LEN(rows)];
            sheaf__term term[2];
            term[0] = random_term(dtype, SHEAF__B_NK, false, m, 1, k, ORDINARY);
            term[0].form = back ? SHEAF__B_BACK : SHEAF__B_AHEAD;
            term[1] = term[0];
            term[0].w = &t.codes;
            term[1].w = back ? &t.back : &t.ahead;
            sheaf__product job = plain_job(dtype, m, n, &term[0], 1), plain = job;
            plain.term = &term[1];
            plain.y = random_matrix(SHEAF_F32, m, n, job.ldy, ORDINARY);
            for (int s = (int)(i + back) % every(5); s < (dtype == SHEAF_BF16 ? 5 : 1);
                 s += every(5)) {
                sheaf__product want = job;
                for (int isa = 1; isa < nisas; isa++) {
                    const sheaf_sums sums =
                        s < 3 ? (sheaf_sums)s : sheaf__sums_in_groups((sheaf_sums)(s - 2));
                    sheaf__device *d = &machines[(i + (size_t)isa) % ARRAY_LEN(machines)];
                    d->sums = sums;
                    sheaf__mm_products_with(isas[isa], d, &job, 1);
                    sheaf__mm_products_with(isas[isa], d, &plain, 1);
                    if (has_groups(&job, d->sums)) {
                        check_groups(&want, &job, f, isas[isa]->name, sums);
                        continue;
                    }
                    for (int64_t r = 0; r < m; r++)
                        if (memcmp((float *)job.y + r * job.ldy, (float *)plain.y + r * job.ldy,
                                   (size_t)n * 4) != 0)
                            fail_msg("%s, %s, m %d, row %d, %s: %s", isas[isa]->name,
                                     sheaf__sums_text(d->sums), (int)m, (int)r,
                                     back ? "back" : "ahead", text_of(f));
                }
            }
        }
        drop_all();
    }
}

FIXTURE(make_machines, free_machines);
