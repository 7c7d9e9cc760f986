/* fsdp_test.c - files of ranks whose tensors are DTensors give the model back; what is wrong is
 * named. */
#include "tests/made_llama.h"

#include "base/text.h"
#include "dialects/common/dialects.h"

/* ---- a file as torch.save() writes it without a zip: pickles one after the other ---- */

static void text(sheaf_text *to, const char *word)
{
    const uint32_t n = (uint32_t)strlen(word);
    sheaf__text_bytes(to, "X", 1);
    sheaf__text_bytes(to, (const char *)&n, 4);
    sheaf__text_bytes(to, word, n);
}

static void number(sheaf_text *to, int64_t n)
{
    const int32_t value = (int32_t)n;
    sheaf__text_bytes(to, "J", 1);
    sheaf__text_bytes(to, (const char *)&value, 4);
}

static void pair(sheaf_text *to, int ndim, int64_t a, int64_t b)
{
    sheaf__text_bytes(to, "(", 1);
    number(to, a);
    if (ndim > 1)
        number(to, b);
    sheaf__text_bytes(to, "t", 1);
}

static void local_tensor(sheaf_text *to, const char *key, int ndim, const int64_t size[2])
{
    sheaf__text_add(to, "ctorch._utils\n_rebuild_tensor_v2\n((");
    text(to, "storage");
    sheaf__text_add(to, "ctorch\nFloatStorage\n");
    text(to, key);
    text(to, "cpu");
    number(to, size[0] * size[1]);
    sheaf__text_add(to, "tQ");
    number(to, 0);
    pair(to, ndim, size[0], size[1]);
    pair(to, ndim, ndim > 1 ? size[1] : 1, 1);
    sheaf__text_bytes(to, "\x89", 1);
    sheaf__text_add(to, "ccollections\nOrderedDict\n)RtR");
}

static void placement_of(sheaf_text *to, const char *name)
{
    sheaf__text_add(to, "ctorch.distributed.tensor.placement_types\n%s\n)\x81", name);
    if (strcmp(name, "Replicate") == 0)
        return;
    sheaf__text_add(to, "}");
    text(to, "dim");
    number(to, 0);
    sheaf__text_add(to, "sb");
}

/* Placements of axis 0, of a mesh of two axes where `copies` is more than 1. */
static void spec(sheaf_text *to, int copies, int ways, const char *outer, const char *placement)
{
    static const char object[] = ")\x81}";
    sheaf__text_add(to, "ctorch.distributed.tensor._dtensor_spec\nDTensorSpec\n%s(", object);
    text(to, "mesh");
    sheaf__text_add(to, "ctorch.distributed.device_mesh\nDeviceMesh\n%s", object);
    text(to, "_layout");
    sheaf__text_add(to, "ctorch.distributed._mesh_layout\n_MeshLayout\n%s", object);
    text(to, "axes");
    sheaf__text_add(to, "(");
    for (int i = copies > 1 ? 0 : 1; i < 2; i++) {
        sheaf__text_add(to, "ctorch.distributed._mesh_layout\n_FlatLayout\n%s", object);
        text(to, "shape");
        pair(to, 1, i == 0 ? copies : ways, 0);
        sheaf__text_add(to, "sb");
    }
    sheaf__text_add(to, "tsbsb");
    text(to, "placements");
    sheaf__text_add(to, "(");
    if (copies > 1)
        placement_of(to, outer != NULL ? outer : "Replicate");
    placement_of(to, placement);
    sheaf__text_add(to, "tub");
}

/* A test's change of one file. */
typedef struct how {
    int copies, ways;
    const char *placement;
    bool plain;        /* norms are tensors, whole in each */
    const char *outer; /* placement along the first axis of the mesh; NULL: Replicate */
} how;

static void take_part(int64_t *begin, int64_t *size, int ways, int at)
{
    const int64_t each = (*size + ways - 1) / ways, from = at * each < *size ? at * each : *size;
    *begin += from;
    *size = *size - from < each ? *size - from : each;
}

static void put_rank(const char *path, const made_model *m, const how *h, int rank)
{
    sheaf_text f = { 0 }, data = { 0 };
    sheaf__text_bytes(&f, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    sheaf__text_bytes(&f, "\x80\x02M\xe9\x03.\x80\x02}", 9);
    text(&f, "little_endian");
    sheaf__text_bytes(&f, "\x88s.\x80\x02}(", 7);
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensor[i];
        const bool plain = h->plain && t->ndim == 1;
        const int64_t cols = t->ndim > 1 ? t->shape[1] : 1;
        int64_t begin[2] = { 0 }, size[2] = { t->shape[0], cols };
        if (!plain && h->outer != NULL && strcmp(h->outer, "Shard") == 0)
            take_part(begin, size, h->copies, rank / h->ways);
        if (!plain)
            take_part(begin, size, h->ways, rank % h->ways);
        if (!plain && h->outer != NULL && strcmp(h->outer, "_StridedShard") == 0)
            take_part(begin, size, h->copies, rank / h->ways);
        char key[16];
        snprintf(key, sizeof key, "%03d", i);
        text(&f, t->name);
        if (!plain) {
            sheaf__text_add(&f, "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
                                "_rebuild_wrapper_subclass\nctorch.distributed.tensor\nDTensor\n"
                                "(ctorch.distributed.tensor\nDTensor\nctorch\nfloat32\n");
            pair(&f, t->ndim, t->shape[0], cols);
            pair(&f, t->ndim, cols, 1);
            number(&f, 0);
            sheaf__text_add(&f, "t(N}(");
            text(&f, "_local_tensor");
        }
        local_tensor(&f, key, t->ndim, size);
        if (!plain) {
            text(&f, "_spec");
            spec(&f, h->copies, h->ways, h->outer, h->placement);
            sheaf__text_add(&f, "uttR");
        }
        const int64_t count = size[0] * size[1];
        float *values = made_slice(t, begin, size, 0);
        sheaf__text_bytes(&data, (const char *)&count, 8);
        sheaf__text_bytes(&data, (const char *)values, (size_t)count * 4);
        free(values);
    }
    sheaf__text_bytes(&f, "u.\x80\x02](", 6);
    for (int i = 0; i < m->count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%03d", i);
        text(&f, key);
    }
    sheaf__text_bytes(&f, "e.", 2);
    sheaf__text_bytes(&f, data.at, data.size);
    assert_true(!f.failed && !data.failed);
    CHECK_OK(sheaf__file_write_whole(path, f.at, f.size));
    sheaf__text_release(&f);
    sheaf__text_release(&data);
}

static const char *made_folder(const made_model *m, const how *h)
{
    static char dir[400];
    static int number;
    snprintf(dir, sizeof dir, "%s/%d/global_step_7/actor", scratch.dir, number++);
    CHECK_OK(sheaf__make_dirs(dir));
    for (int r = 0; r < h->copies * h->ways; r++) {
        char path[500];
        snprintf(path, sizeof path, "%s/model_world_size_%d_rank_%d.pt", dir, h->copies * h->ways,
                 r);
        put_rank(path, m, h, r);
    }
    return dir;
}

/* 37 rows over 5 ranks are 8, 8, 8, 8, 5; 4 rows are 1, 1, 1, 1, 0. */
TEST(test_made__every_mesh_gives_the_model_back)
{
    static const how ways[] = { { 1, 1, "Shard" },
                                { 1, 3, "Shard", true },
                                { 1, 5, "Shard" },
                                { 2, 2, "Shard" },
                                { 3, 1, "Shard" },
                                { 2, 5, "Shard", true },
                                { 2, 3, "Shard", false, "Shard" },
                                { 3, 2, "Shard", true, "_StridedShard" } };
    made_model *m = made_llama(37, 12, 23, 2, 6, 2, 2, false);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        char file[500];
        const char *dir = made_folder(m, &ways[i]);
        snprintf(file, sizeof file, "%s/model_world_size_%d_rank_0.pt", dir,
                 ways[i].copies * ways[i].ways);
        for (int k = 0; k < 2; k++) { /* the folder, or one of the files */
            const char *path = k == 0 ? dir : file;
            assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_fsdp);
            sheaf_catalog *c = read_made(&sheaf__dialect_fsdp, path, NULL);
            CHECK_SOUND(c);
            CHECK_OK(sheaf__catalog_compare(c));
            CHECK_SOUND(c);
            assert_true(c->step == 7 && c->vocab == 37 && c->count == m->count);
            assert_int_equal(c->dp, ways[i].copies * ways[i].ways);
            check_made(c, m, "", 0);
            sheaf__catalog_free(c);
        }
    }
    made_free(m);
}

TEST(test_harm__is_named)
{
    made_model *m = made_llama(37, 12, 23, 2, 6, 2, 2, false);
    how h = { 1, 3, "Shard" };
    char a[500], b[500];
    const char *dir = made_folder(m, &h);
    snprintf(a, sizeof a, "%s/model_world_size_3_rank_2.pt", dir);
    snprintf(b, sizeof b, "%s/model_world_size_2_rank_0.pt", dir);
    put_rank(b, m, &(how){ 1, 2, "Shard" }, 0);
    sheaf_catalog *c = read_made(&sheaf__dialect_fsdp, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "stale", "one of 2 ranks, beside others of 3");
    check_no_source(c);
    assert_int_equal(unlink(b), 0);

    put_rank(a, m, &h, 1); /* another rank's rows under its name: 13 in the place of 11 */
    c = read_made(&sheaf__dialect_fsdp, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "other sizes");
    check_no_source(c);
    assert_int_equal(unlink(a), 0);
    c = read_made(&sheaf__dialect_fsdp, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "model_world_size_3_rank_2.pt");
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "rows 26..36 of 37");
    check_no_source(c);

    h.placement = "Partial";
    c = read_made(&sheaf__dialect_fsdp, made_folder(m, &h), NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "unsupported", "other placements");
    check_no_source(c);
    made_free(m);
}

FIXTURE(make_scratch, remove_scratch);
