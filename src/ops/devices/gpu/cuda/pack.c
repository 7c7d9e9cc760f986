/* pack.c - a program of the build: `pack OUT.c FILE.sm_90a.cubin...` writes the C source of the
 * module sheaf-cuda.so (cubins.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static void stop(const char *path, const char *why)
{
    fprintf(stderr, "pack: %s: %s\n", path, why);
    exit(1);
}

static unsigned char *read_all(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        stop(path, "cannot be read");
    const long size = ftell(file);
    unsigned char *data = malloc((size_t)size + 1);
    rewind(file);
    if (size < 0 || data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size)
        stop(path, "cannot be read");
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

/* Its data as an array; returns the packed size. */
static size_t write_data(FILE *out, const char *path, int number, size_t *bytes)
{
    unsigned char *data = read_all(path, bytes);
    const size_t room = ZSTD_compressBound(*bytes);
    unsigned char *packed = malloc(room);
    const size_t size = packed == NULL ? 0 : ZSTD_compress(packed, room, data, *bytes, 19);
    if (packed == NULL || ZSTD_isError(size))
        stop(path, "cannot be packed");
    fprintf(out, "static const unsigned char data_%d[] = {", number);
    for (size_t i = 0; i < size; i++)
        fprintf(out, "%s%u,", i % 24 == 0 ? "\n" : "", packed[i]);
    fprintf(out, "\n};\n");
    free(packed);
    free(data);
    return size;
}

/* "a/norm.sm_80.cubin": "norm" and "sm_80". */
static void name_parts(const char *path, char file[64], char kind[16])
{
    const char *name = strrchr(path, '/');
    if (sscanf(name == NULL ? path : name + 1, "%63[^.].%15[^.].cubin", file, kind) != 2)
        stop(path, "is not named FILE.KIND.cubin");
}

int main(int argc, char **argv)
{
    FILE *out = argc < 2 ? NULL : fopen(argv[1], "w");
    size_t *packed = calloc((size_t)argc + 1, sizeof *packed), *bytes = calloc((size_t)argc + 1, 8);
    if (out == NULL || packed == NULL || bytes == NULL)
        stop("OUT.c", "cannot be written");
    fprintf(out, "/* Written by pack.c. */\n#include \"ops/devices/gpu/cuda/cubins.h\"\n");
    for (int i = 2; i < argc; i++)
        packed[i] = write_data(out, argv[i], i, &bytes[i]);
    fprintf(out, "#define SHOWN __attribute__((visibility(\"default\")))\n"
                 "SHOWN const char sheaf_cubins_build[] = SHEAF_VERSION;\n"
                 "SHOWN const sheaf__cubin sheaf_cubins[] = {\n");
    for (int i = 2; i < argc; i++) {
        char file[64], kind[16];
        name_parts(argv[i], file, kind);
        fprintf(out, "    { \"%s\", \"%s\", data_%d, %zu, %zu },\n", kind, file, i, packed[i],
                bytes[i]);
    }
    fprintf(out, "    { 0 }\n};\n");
    free(packed);
    free(bytes);
    if (fclose(out) != 0)
        stop(argv[1], "cannot be written");
    return 0;
}
