/* zip_test.c - directories of zip files, whole and hostile, and the checksum. */
#include "tests/files.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "formats/zip.h"

/* ---- files by hand ---- */

typedef struct made {
    const char *name, *bytes;
    int method, flags; /* of the central record */
    int local_method;
    int descriptor;         /* with a data descriptor: the local header has neither sum nor sizes */
    const char *local_name; /* NULL = name */
    int wide;               /* zip64 fields in the central record */
    int64_t shift;          /* added to the place of the local header */
    uint32_t wrong;         /* exclusive or to the sum */
} made;

typedef struct making {
    int64_t count_shift, at_shift, bytes_shift; /* added to what the end record says */
    int64_t here_shift;                         /* and to its number of entries on this disk */
    int64_t end64_shift;                        /* and to what the locator says */
    bool end64;
    const char *comment, *before; /* before: bytes between directory and end record */
} making;

static void put_central(sheaf_text *dir, const made *m, uint64_t header)
{
    const uint64_t size = strlen(m->bytes), full = 0xffffffff;
    header += (uint64_t)m->shift;
    sheaf__text_bytes(dir, "PK\1\2\0\0\0\0", 8);
    sheaf__text_little(dir, (uint64_t)m->flags | (m->descriptor ? 8 : 0), 2);
    sheaf__text_little(dir, (uint64_t)m->method, 2);
    sheaf__text_little(dir, 0, 4);
    sheaf__text_little(dir, sheaf__crc32(0, m->bytes, size) ^ m->wrong, 4);
    sheaf__text_little(dir, m->wide ? full : size, 4);
    sheaf__text_little(dir, m->wide ? full : size, 4);
    sheaf__text_little(dir, strlen(m->name), 2);
    sheaf__text_little(dir, m->wide ? 8 + 28 : 0, 2);
    sheaf__text_bytes(dir, "\0\0\0\0\0\0\0\0\0\0", 10);
    sheaf__text_little(dir, m->wide ? full : header, 4);
    sheaf__text_add(dir, "%s", m->name);
    if (m->wide) {
        sheaf__text_bytes(dir, "XX\4\0abcd\1\0\x18\0", 12); /* another field before */
        sheaf__text_little(dir, size, 8);
        sheaf__text_little(dir, size, 8);
        sheaf__text_little(dir, header, 8);
    }
}

/* A zip file of these entries, as text. */
static sheaf_text zip_of(const made *m, size_t n, const making *how)
{
    sheaf_text out = { 0 }, dir = { 0 };
    for (size_t i = 0; i < n; i++) {
        const char *local = m[i].local_name == NULL ? m[i].name : m[i].local_name;
        const uint64_t header = out.size, size = strlen(m[i].bytes);
        const bool late = m[i].descriptor;
        sheaf__text_bytes(&out, "PK\3\4\0\0\0\0", 8);
        sheaf__text_little(&out, (uint64_t)m[i].local_method, 2);
        sheaf__text_little(&out, 0, 4);
        sheaf__text_little(&out, late ? 0 : sheaf__crc32(0, m[i].bytes, size), 4);
        sheaf__text_little(&out, late ? 0 : size, 4);
        sheaf__text_little(&out, late ? 0 : size, 4);
        sheaf__text_little(&out, strlen(local), 2);
        sheaf__text_little(&out, i % 3, 2); /* an extra field that makes no sense */
        sheaf__text_add(&out, "%s%.*s%s", local, (int)(i % 3), "zz", m[i].bytes);
        if (late)
            sheaf__text_bytes(&out, "PK\7\10............", 16);
        put_central(&dir, &m[i], header);
    }
    const uint64_t at = out.size;
    sheaf__text_bytes(&out, dir.at, dir.size);
    sheaf__text_add(&out, "%s", how->before == NULL ? "" : how->before);
    if (how->end64) {
        const uint64_t end64 = out.size;
        sheaf__text_bytes(&out, "PK\6\6\x2c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
        sheaf__text_little(&out, n + (uint64_t)(how->count_shift + how->here_shift), 8);
        sheaf__text_little(&out, n + (uint64_t)how->count_shift, 8);
        sheaf__text_little(&out, dir.size + (uint64_t)how->bytes_shift, 8);
        sheaf__text_little(&out, at + (uint64_t)how->at_shift, 8);
        sheaf__text_bytes(&out, "PK\6\7\0\0\0\0", 8);
        sheaf__text_little(&out, end64 + (uint64_t)how->end64_shift, 8);
        sheaf__text_little(&out, 1, 4);
    }
    sheaf__text_bytes(&out, "PK\5\6\0\0\0\0", 8);
    for (int i = 0; i < 2; i++)
        sheaf__text_little(
            &out,
            how->end64 ? 0xffff : n + (uint64_t)(how->count_shift + (i == 0 ? how->here_shift : 0)),
            2);
    sheaf__text_little(&out, how->end64 ? 0xffffffff : dir.size + (uint64_t)how->bytes_shift, 4);
    sheaf__text_little(&out, how->end64 ? 0xffffffff : at + (uint64_t)how->at_shift, 4);
    sheaf__text_little(&out, how->comment == NULL ? 0 : strlen(how->comment), 2);
    sheaf__text_add(&out, "%s", how->comment == NULL ? "" : how->comment);
    sheaf__text_release(&dir);
    return out;
}

/* Opens these bytes as a zip file, reads and checks every entry. */
static sheaf_status *open_all(const char *bytes, size_t size, int64_t base, int64_t *count)
{
    const int fd = memfd_create("zip", MFD_CLOEXEC);
    sheaf_zip zip = { 0 };
    assert_int_equal(write(fd, bytes, size), size);
    sheaf_status *st = sheaf__zip_open(&zip, fd, base, (int64_t)size - base, "x.zip");
    for (int64_t i = 0; st == NULL && i < zip.count; i++) {
        char *entry = NULL;
        size_t n = 0;
        assert_ptr_equal(sheaf__zip_find(&zip, zip.entry[i].name), &zip.entry[i]);
        st = sheaf__zip_read(&entry, &n, &zip, &zip.entry[i], fd, 1 << 20, "x.zip");
        if (st == NULL && zip.has_crc)
            CHECK_OK(sheaf__zip_check(fd, "x.zip", zip.entry[i].name, zip.entry[i].offset,
                                      zip.entry[i].bytes, zip.entry[i].crc));
        free(entry);
    }
    if (count != NULL)
        *count = zip.count;
    sheaf__zip_release(&zip);
    close(fd);
    return st;
}

static sheaf_status *open_made(const made *m, size_t n, const making *how)
{
    sheaf_text text = zip_of(m, n, how);
    sheaf_status *st = open_all(text.at, text.size, 0, NULL);
    sheaf__text_release(&text);
    return st;
}

/* ---- good ones ---- */

TEST(test_open__accepts_what_writers_write)
{
    static const making ways[] = { { 0 },
                                   { .end64 = true },
                                   { .comment = "a comment PK\5\6 with a mark" },
                                   { .end64 = true, .comment = "c" } };
    for (size_t w = 0; w < ARRAY_LEN(ways); w++)
        for (int wide = 0; wide < 2; wide++)
            for (int late = 0; late < 2; late++) {
                const made m[] = { { "a/data.pkl", "hello", .wide = wide, .descriptor = late },
                                   { "a/0", "", .wide = wide },
                                   { "b", "world", .descriptor = late },
                                   { "c\xc3\xa9", "x", .flags = 0x800 } };
                CHECK_OK(open_made(m, ARRAY_LEN(m), &ways[w]));
                CHECK_OK(open_made(m, 1, &ways[w]));
                CHECK_OK(open_made(m, 0, &ways[w]));
            }
}

TEST(test_open__inside_a_larger_file)
{
    const made m[] = { { "a", "hello" }, { "b", "world" } };
    sheaf_text text = zip_of(m, 2, &(making){ .end64 = true }), larger = { 0 };
    int64_t count = 0;
    sheaf__text_add(&larger, "something else PK\5\6 before");
    const int64_t base = (int64_t)larger.size;
    sheaf__text_bytes(&larger, text.at, text.size);
    CHECK_OK(open_all(larger.at, larger.size, base, &count));
    assert_int_equal(count, 2);
    CHECK_FAILS(open_all(larger.at, larger.size, 0, NULL), SHEAF_E_FORMAT, "zip64 end record");
    sheaf__text_release(&text);
    sheaf__text_release(&larger);
}

TEST(test_open__sums_that_nobody_computed_are_not_checked)
{
    const char *bytes = "hello";
    const uint32_t crc = sheaf__crc32(0, bytes, 5);
    const made none[] = { { "a", bytes, .wrong = crc }, { "b", bytes, .wrong = crc } },
               one[] = { { "a", bytes, .wrong = crc }, { "b", bytes } };
    CHECK_OK(open_made(none, 2, &(making){ 0 }));
    CHECK_FAILS(open_made(one, 2, &(making){ 0 }), SHEAF_E_FORMAT, "CRC-32 00000000");
}

/* ---- bad ones ---- */

TEST(test_open__refuses_by_name)
{
    static const struct {
        made second;
        making how;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { LIST("b", "2", .method = 8), LIST(0), SHEAF_E_UNSUPPORTED, "'b': compressed" },
        { LIST("b", "2", .local_method = 8), LIST(0), SHEAF_E_UNSUPPORTED, "'b': compressed" },
        { LIST("b", "2", .flags = 1), LIST(0), SHEAF_E_UNSUPPORTED, "'b': encrypted" },
        { LIST("a", "2"), LIST(0), SHEAF_E_FORMAT, "'a': the name occurs twice" },
        { LIST("b", "2", .local_name = "c"), LIST(0), SHEAF_E_FORMAT,
          "'b': its header has another name" },
        { LIST("b", "2", .local_name = "cc"), LIST(0), SHEAF_E_FORMAT,
          "'b': no header of its own" },
        { LIST("b", "2", .shift = 1), LIST(0), SHEAF_E_FORMAT, "'b'" },
        { LIST("b", "2", .shift = -32), LIST(0), SHEAF_E_FORMAT,
          "'b': its header has another name" },
        { LIST("b", "2", .shift = 1000), LIST(0), SHEAF_E_FORMAT, "'b': its place" },
        { LIST("b", "2", .wide = 1, .shift = INT64_MIN), LIST(0), SHEAF_E_FORMAT,
          "'b': its place" },
        { LIST("b", "2", .wrong = 1), LIST(0), SHEAF_E_FORMAT, "'b': its bytes are damaged" },
        { LIST("b\x1b[31m", "2", .method = 8), LIST(0), SHEAF_E_UNSUPPORTED, "[31m'" },
        { LIST("b", "2"), LIST(.count_shift = 1), SHEAF_E_FORMAT, "as many records" },
        { LIST("b", "2"), LIST(.count_shift = -1), SHEAF_E_FORMAT, "as many records" },
        { LIST("b", "2"), LIST(.count_shift = 1000), SHEAF_E_FORMAT, "as many records" },
        { LIST("b", "2"), LIST(.end64 = true, .count_shift = INT64_MAX), SHEAF_E_FORMAT,
          "as many records" },
        { LIST("b", "2"), LIST(.at_shift = 100), SHEAF_E_FORMAT,
          "zip directory | 259 bytes of entries" },
        { LIST("b", "2"), LIST(.end64 = true, .at_shift = INT64_MAX), SHEAF_E_FORMAT,
          "9223372036854775807 bytes of entries" },
        { LIST("b", "2"), LIST(.end64 = true, .end64_shift = INT64_MAX - 230), SHEAF_E_FORMAT,
          "bytes of entries" },
        { LIST("b", "2"), LIST(.end64 = true, .end64_shift = -1), SHEAF_E_FORMAT,
          "zip64 end record" },
        { LIST("b", "2"), LIST(.end64 = true, .end64_shift = 1), SHEAF_E_FORMAT,
          "bytes of entries" },
        { LIST("b", "2"), LIST(.bytes_shift = 100), SHEAF_E_FORMAT,
          "bytes of entries and directory" },
        { LIST("b", "2"), LIST(.end64 = true, .bytes_shift = (int64_t)1 << 40), SHEAF_E_FORMAT,
          "at most 268435456" },
        { LIST("b", "2"), LIST(.end64 = true, .here_shift = -1), SHEAF_E_UNSUPPORTED,
          "several disks" },
        { LIST("b", "2"), LIST(.end64 = true, .here_shift = 1), SHEAF_E_UNSUPPORTED,
          "several disks" },
        { LIST("b", "2"), LIST(.here_shift = -1), SHEAF_E_UNSUPPORTED, "several disks" },
        { LIST("b", "2"), LIST(.before = "more"), SHEAF_E_FORMAT,
          "bytes of entries and directory" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const made both[] = { { "a", "1" }, rows[i].second };
        CHECK_FAILS(open_made(both, 2, &rows[i].how), rows[i].code, rows[i].part);
    }
}

/* Two records for one place, and an entry whose bytes reach into the next one's header. */
TEST(test_open__refuses_overlaps)
{
    const made m[] = { { "a", "hello" }, { "b", "x" } };
    sheaf_text text = zip_of(m, 2, &(making){ 0 });
    for (char *p = text.at; p < text.at + text.size - 30; p++)
        if (memcmp(p, "PK\1\2", 4) == 0 &&
            p[46] == 'a') /* six bytes of five: packed and plain size */
            p[20]++, p[24]++;
    CHECK_FAILS(open_all(text.at, text.size, 0, NULL), SHEAF_E_FORMAT,
                "'b': it overlaps another entry | ");
    sheaf__text_release(&text);
}

TEST(test_open__every_cut_is_refused)
{
    for (int end64 = 0; end64 < 2; end64++) {
        const made m[] = { { "a", "hello" },
                           { "b", "", .descriptor = 1 },
                           { "c", "world", .wide = 1 } };
        sheaf_text text = zip_of(m, 3, &(making){ .end64 = end64 });
        for (size_t n = 0; n < text.size; n++)
            CHECK_FAILS(open_all(text.at, n, 0, NULL), SHEAF_E_FORMAT, "cut short");
        for (size_t n = 1; n < text.size - 100; n++) { /* bytes missing in the middle */
            sheaf_status *st = open_all(text.at + n, text.size - n, 0, NULL);
            if (st == NULL)
                fail_msg("without the first %zu bytes it was accepted", n);
            sheaf_status_free(st);
        }
        sheaf__text_release(&text);
    }
}

TEST(test_open__every_flipped_bit_is_survived)
{
    const made m[] = { { "a", "hello" },
                       { "b", "", .descriptor = 1 },
                       { "c", "world", .wide = 1 } };
    sheaf_text text = zip_of(m, 3, &(making){ .end64 = true });
    int accepted = 0;
    for (size_t bit = 0; bit < text.size * 8; bit++) {
        text.at[bit / 8] ^= (char)(1 << bit % 8);
        sheaf_status *st = open_all(text.at, text.size, 0, NULL);
        accepted += st == NULL;
        sheaf_status_free(st);
        text.at[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_in_range(accepted, 1, text.size * 8 / 2); /* versions, dates and the like are ignored */
    sheaf__text_release(&text);
}

/* ---- records of our own ---- */

/* Whatever the length of a name: the padding behind it has a field of its own, of four bytes and
 * more. */
TEST(test_write__places_bytes_on_boundaries)
{
    char name[200] = "";
    for (int length = 1; length < 150; length++) {
        sheaf_zip_entry e = { name, 64 * 3 + 7, 0, 0, 0 };
        char *header = NULL;
        size_t size = 0;
        name[length - 1] = 'n';
        CHECK_OK(sheaf__zip_place(&e));
        CHECK_OK(sheaf__zip_local(&header, &size, &e));
        assert_int_equal(e.offset % 64, 0);
        assert_int_equal(size, e.offset - e.header);
        const size_t padding = size - 30 - (size_t)length;
        assert_in_range(padding, 4, 67);
        assert_int_equal((unsigned char)header[28], padding);
        free(header);
    }
}

/* Entries beyond 4 GiB and at its edge, where the number itself is the mark of a wider one, in a
 * file that has holes where their bytes are. */
TEST(test_write__beyond_32_bits)
{
    sheaf_zip_entry e[] = { { "t/small", 0, 0, 5, 1 },
                            { "t/large", 0, 0, ((int64_t)5 << 30) + 1, 2 },
                            { "t/behind", 0, 0, 7, 3 },
                            { "t/edge", 0, 0, UINT32_MAX, 4 },
                            { "t/below", 0, 0, UINT32_MAX - 1, 5 } };
    const char *path = at("large.zip");
    sheaf_file file = { 0 };
    char *piece = NULL;
    size_t size = 0;
    int64_t next = 0, length = 0;
    int fd = -1;
    CHECK_OK(sheaf__file_create(&file, path));
    for (int i = 0; i < 5; i++) {
        e[i].header = next;
        CHECK_OK(sheaf__zip_place(&e[i]));
        CHECK_OK(sheaf__zip_local(&piece, &size, &e[i]));
        CHECK_OK(sheaf__file_write_at(&file, piece, size, next));
        free(piece);
        next = e[i].offset + e[i].bytes;
    }
    CHECK_OK(sheaf__zip_tail(&piece, &size, e, 5, next));
    CHECK_OK(sheaf__file_write_at(&file, piece, size, next));
    free(piece);
    CHECK_OK(sheaf__file_close(&file));
    CHECK_OK(sheaf__file_open_read(&fd, &length, path));
    sheaf_zip zip = { 0 };
    CHECK_OK(sheaf__zip_open(&zip, fd, 0, length, path));
    for (int i = 0; i < 5; i++) {
        const sheaf_zip_entry *got = sheaf__zip_find(&zip, e[i].name);
        assert_non_null(got);
        assert_int_equal(got->offset, e[i].offset);
        assert_int_equal(got->bytes, e[i].bytes);
    }
    sheaf__zip_release(&zip);
    close(fd);
}

/* ---- the checksum ---- */

TEST(test_crc32__parts_join_in_any_order)
{
    enum { SIZE = 10007, PARTS = 13 };
    unsigned char bytes[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * i >> 3);
    uint32_t joined = 0;
    assert_int_equal(sheaf__crc32(0, "123456789", 9),
                     0xcbf43926); /* the polynomial's published check value */
    for (int k = 0; k < PARTS; k++) {
        const size_t i = (size_t)(k * 5 % PARTS), from = SIZE * i / PARTS,
                     to = SIZE * (i + 1) / PARTS;
        joined ^= sheaf__crc32_part(bytes + from, to - from, SIZE - to);
    }
    assert_int_equal(sheaf__crc32_whole(joined, SIZE), sheaf__crc32(0, bytes, SIZE));
    assert_int_equal(sheaf__crc32_whole(0, 0), 0);
    /* Five GiB of zeros: the sum that zlib gives. */
    assert_int_equal(sheaf__crc32_whole(0, (int64_t)5 << 30), 0x193838c3);
}

FIXTURE(make_scratch, remove_scratch);
