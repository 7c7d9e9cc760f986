/* module_test.c - the module sheaf-cuda.so of this build: machine code of every kernel for every
 * kind of GPU that it was built for.
 *
 *   module_test SHEAF-CUDA.SO KIND... */
#include "tests/check.h"

#include <elf.h>
#include <glob.h>

#include "ops/devices/gpu/cuda/cubins.h"
#include "tests/gpu/emulation.h"

enum { MACHINE = 190 }; /* EM_CUDA */

static const sheaf__cubin *table;
static char **kinds; /* up to NULL */

/* ---- the files ---- */

static int count_of(const char *kind, const char *file)
{
    int n = 0;
    for (const sheaf__cubin *c = table; c->kind != NULL; c++)
        n += strcmp(c->kind, kind) == 0 && (file == NULL || strcmp(c->file, file) == 0);
    return n;
}

/* hopper.h is for this kind alone. */
static bool has_hopper(const char *kind)
{
    return strcmp(kind, "sm_90a") == 0;
}

static bool is_of_hopper(const char *path)
{
    char line[200];
    bool is = false;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (!is && fgets(line, sizeof line, file) != NULL)
        is = strstr(line, "#include \"ops/devices/gpu/cuda/hopper.h\"") != NULL;
    fclose(file);
    return is;
}

static void test_module__each_kind_has_each_file_once(void **state)
{
    glob_t files;
    char pattern[4096];
    int known = 0, all = 0;
    snprintf(pattern, sizeof pattern, "%s/src/ops/devices/gpu/{,cuda/}kernels/*.c",
             getenv("SHEAF_SOURCE_ROOT"));
    assert_int_equal(glob(pattern, GLOB_BRACE, NULL, &files), 0);
    assert_true(files.gl_pathc >= 20);
    for (char **kind = kinds; *kind != NULL; kind++)
        for (size_t i = 0; i < files.gl_pathc; i++) {
            char name[64];
            const int want = has_hopper(*kind) || !is_of_hopper(files.gl_pathv[i]);
            assert_int_equal(sscanf(strrchr(files.gl_pathv[i], '/') + 1, "%63[^.].c", name), 1);
            if (count_of(*kind, name) != want)
                fail_msg("%s for %s is there %d times", name, *kind, count_of(*kind, name));
            known += want;
        }
    for (const sheaf__cubin *c = table; c->kind != NULL; c++)
        all++;
    assert_int_equal(all, known); /* and no other */
    globfree(&files);
}

static void test_module__a_gpu_gets_the_code_of_its_kind(void **state)
{
    for (char **kind = kinds; *kind != NULL; kind++) {
        int number = 0;
        assert_int_equal(sscanf(*kind, "sm_%d", &number), 1);
        assert_string_equal(sheaf__cubin_kind(table, number / 10, number % 10), *kind);
    }
    assert_null(sheaf__cubin_kind(table, 7, 5));
}

/* ---- the machine code ---- */

/* The capability that it is for, as 90; older compilers write it lower. */
static unsigned capability_of(const Elf64_Ehdr *elf)
{
    return elf->e_ident[EI_ABIVERSION] >= 8 ? elf->e_flags >> 8 & 0xff : elf->e_flags & 0xff;
}

/* Does it define a function of this name? */
static bool defines(const char *image, const char *name)
{
    const Elf64_Ehdr *elf = (const void *)image;
    const Elf64_Shdr *section = (const void *)(image + elf->e_shoff);
    for (int i = 0; i < elf->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbol = (const void *)(image + section[i].sh_offset);
        const char *names = image + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++)
            if (ELF64_ST_TYPE(symbol[k].st_info) == STT_FUNC && symbol[k].st_shndx != SHN_UNDEF &&
                symbol[k].st_size > 0 && strcmp(names + symbol[k].st_name, name) == 0)
                return true;
    }
    return false;
}

static void check_elf(const sheaf__cubin *cubin, const char *image)
{
    const Elf64_Ehdr *elf = (const void *)image;
    unsigned number = 0;
    assert_int_equal(sscanf(cubin->kind, "sm_%u", &number), 1);
    assert_true(cubin->bytes > sizeof *elf);
    assert_memory_equal(elf->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(elf->e_machine, MACHINE);
    assert_int_equal(capability_of(elf), number);
    assert_true(elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize <= cubin->bytes);
}

/* Operations find their kernels by name; tests of operations run those that the emulation has. */
static void test_module__each_kind_has_each_kernel_once(void **state)
{
    enum { FILES = 100 };
    for (char **kind = kinds; *kind != NULL; kind++) {
        char *image[FILES];
        int files = 0;
        int64_t kernels = 0;
        for (const sheaf__cubin *c = table; c->kind != NULL; c++)
            if (strcmp(c->kind, *kind) == 0 && files < FILES) {
                CHECK_OK(sheaf__cubin_unpack(&image[files], c));
                check_elf(c, image[files++]);
            }
        for (const sheaf__emu_kernel *k; (k = sheaf__emu_at(kernels)) != NULL; kernels++) {
            int n = 0;
            for (int i = 0; i < files; i++)
                n += defines(image[i], k->name);
            if (n != 1)
                fail_msg("%s for %s is there %d times", k->name, *kind, n);
        }
        assert_true(kernels >= 100);
        for (int i = 0; i < files; i++)
            free(image[i]);
    }
}

static void test_module__what_is_damaged_is_refused(void **state)
{
    sheaf__cubin cut = *table;
    char *image;
    cut.packed /= 2;
    CHECK_FAILS(sheaf__cubin_unpack(&image, &cut), SHEAF_E_FORMAT, "is damaged");
    assert_null(image);
}

/* ---- finding it ---- */

static void test_module__one_that_is_missing_says_what_to_do(void **state)
{
    const sheaf__cubin *none;
    char *path;
    setenv("SHEAF_PLUGINS", "/nowhere", 1);
    CHECK_FAILS(sheaf__cubins_open(&none, &path), SHEAF_E_UNSUPPORTED, "nvcc");
    assert_null(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module__each_kind_has_each_file_once),
        cmocka_unit_test(test_module__a_gpu_gets_the_code_of_its_kind),
        cmocka_unit_test(test_module__each_kind_has_each_kernel_once),
        cmocka_unit_test(test_module__what_is_damaged_is_refused),
        cmocka_unit_test(test_module__one_that_is_missing_says_what_to_do),
    };
    char *path = NULL;
    if (argc < 3)
        return 2;
    *strrchr(argv[1], '/') = '\0';
    setenv("SHEAF_PLUGINS", argv[1], 1);
    kinds = argv + 2;
    sheaf_status *st = sheaf__cubins_open(&table, &path);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        return 1;
    }
    free(path);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
