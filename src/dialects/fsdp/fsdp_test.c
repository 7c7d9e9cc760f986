/* fsdp_test.c - files of ranks whose tensors are DTensors give the model back; what is wrong is
 * named. */
#include "tests/made_llama.h"
#include "tests/pickle_text.h"

#include "dialects/common/dialects.h"

/* ---- a file as torch.save() writes it without a zip: pickles one after the other ---- */

static void local_tensor(sheaf_text *to, const char *key, int ndim, const int64_t size[2])
{
    const int64_t strides[2] = { ndim > 1 ? size[1] : 1, 1 };
    sheaf__text_add(to, "ctorch._utils\n_rebuild_tensor_v2\n((");
    p_string(to, "storage");
    sheaf__text_add(to, "ctorch\nFloatStorage\n");
    p_string(to, key);
    p_string(to, "cpu");
    p_int(to, size[0] * size[1]);
    sheaf__text_add(to, "tQ");
    p_int(to, 0);
    p_tuple(to, ndim, size);
    p_tuple(to, ndim, strides);
    p_bytes(to, "\x89", 1);
    sheaf__text_add(to, "ccollections\nOrderedDict\n)RtR");
}

static void placement_of(sheaf_text *to, const char *name)
{
    p_object(to, "torch.distributed.tensor.placement_types", name);
    if (strcmp(name, "Replicate") != 0) {
        p_string(to, "dim");
        p_int(to, 0);
    }
    p_end(to);
}

/* Placements of axis 0, of a mesh of two axes where `copies` is more than 1. */
static void spec(sheaf_text *to, int copies, int ways, const char *outer, const char *placement)
{
    const int64_t sizes[2] = { copies, ways };
    p_object(to, "torch.distributed.tensor._dtensor_spec", "DTensorSpec");
    p_string(to, "mesh");
    p_object(to, "torch.distributed.device_mesh", "DeviceMesh");
    p_string(to, "_layout");
    p_object(to, "torch.distributed._mesh_layout", "_MeshLayout");
    p_string(to, "axes");
    p_bytes(to, "(", 1);
    for (int i = copies > 1 ? 0 : 1; i < 2; i++) {
        p_object(to, "torch.distributed._mesh_layout", "_FlatLayout");
        p_string(to, "shape");
        p_tuple(to, 1, &sizes[i]);
        p_end(to);
    }
    p_bytes(to, "t", 1);
    p_end(to);
    p_end(to);
    p_string(to, "placements");
    p_bytes(to, "(", 1);
    if (copies > 1)
        placement_of(to, outer != NULL ? outer : "Replicate");
    placement_of(to, placement);
    p_bytes(to, "t", 1);
    p_end(to);
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
    p_bytes(&f, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    p_bytes(&f, "\x80\x02M\xe9\x03.\x80\x02}", 9);
    p_string(&f, "little_endian");
    p_bytes(&f, "\x88s.\x80\x02}(", 7);
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
        const char *key = textf("%03d", i);
        p_string(&f, t->name);
        if (!plain) {
            sheaf__text_add(&f, "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
                                "_rebuild_wrapper_subclass\nctorch.distributed.tensor\nDTensor\n"
                                "(ctorch.distributed.tensor\nDTensor\nctorch\nfloat32\n");
            p_tuple(&f, t->ndim, t->shape);
            p_tuple(&f, t->ndim, (int64_t[]){ cols, 1 });
            p_int(&f, 0);
            sheaf__text_add(&f, "t(N}(");
            p_string(&f, "_local_tensor");
        }
        local_tensor(&f, key, t->ndim, size);
        if (!plain) {
            p_string(&f, "_spec");
            spec(&f, h->copies, h->ways, h->outer, h->placement);
            sheaf__text_add(&f, "uttR");
        }
        const int64_t count = size[0] * size[1];
        float *values = made_slice(t, begin, size, 0);
        p_bytes(&data, (const char *)&count, 8);
        p_bytes(&data, (const char *)values, (size_t)count * 4);
        free(values);
    }
    p_string(&f, "_extra_state"); /* no tensor */
    p_int(&f, rank);
    p_bytes(&f, "u.\x80\x02](", 6);
    for (int i = 0; i < m->count; i++)
        p_string(&f, textf("%03d", i));
    p_bytes(&f, "e.", 2);
    p_bytes(&f, data.at, data.size);
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
    for (int r = 0; r < h->copies * h->ways; r++)
        put_rank(textf("%s/model_world_size_%d_rank_%d.pt", dir, h->copies * h->ways, r), m, h, r);
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
        const char *dir = made_folder(m, &ways[i]);
        const char *file =
            textf("%s/model_world_size_%d_rank_0.pt", dir, ways[i].copies * ways[i].ways);
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
    const char *dir = made_folder(m, &h);
    const char *a = textf("%s/model_world_size_3_rank_2.pt", dir);
    const char *b = textf("%s/model_world_size_2_rank_0.pt", dir);
    put_rank(b, m, &(how){ 1, 2, "Shard" }, 0);
    check_found(read_made(&sheaf__dialect_fsdp, dir, NULL), SHEAF_DEFECT, "stale",
                "one of 2 ranks, beside others of 3");
    assert_int_equal(unlink(b), 0);

    put_rank(a, m, &h, 1); /* another rank's rows under its name: 13 in the place of 11 */
    check_found(read_made(&sheaf__dialect_fsdp, dir, NULL), SHEAF_DEFECT, "conflict",
                "other sizes");
    assert_int_equal(unlink(a), 0);
    sheaf_catalog *c = read_made(&sheaf__dialect_fsdp, dir, NULL);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "model_world_size_3_rank_2.pt");
    check_found(c, SHEAF_DEFECT, "missing", "rows 26..36 of 37");

    h.placement = "Partial";
    check_found(read_made(&sheaf__dialect_fsdp, made_folder(m, &h), NULL), SHEAF_DEFECT,
                "unsupported", "other placements");
    made_free(m);
}

FIXTURE(make_scratch, remove_scratch);
