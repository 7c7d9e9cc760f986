/* readers.c - hostile bytes against one reader: -DREADER=1 .. 6, linked with libFuzzer.
 *
 * A reader must return a status or a result; a crash, a leak, a hang or an
 * allocation out of proportion to the file is a fault. tests/fuzz.sh builds and runs it. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dialects/hf.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "sheaf/schema.h"
#include "train/data.h"

enum { SAFETENSORS = 1, CONFIG, ADAPTER_CONFIG, JSON_LINES, TOKENS, INDEX };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Puts the bytes into this process's own file, whose name ends as the reader expects. */
static const char *as_file(const uint8_t *bytes, size_t size)
{
    static char path[64];
    snprintf(path, sizeof path, "/dev/shm/sheaf-fuzz-%d.%s", (int)getpid(),
             READER == JSON_LINES ? "jsonl" : READER == ADAPTER_CONFIG ? "json" : "safetensors");
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    close(fd);
    return path;
}

static void read_tensors(const uint8_t *bytes, size_t size)
{
    sheaf_safetensors *file = NULL;
    sheaf_status *st = sheaf__safetensors_open(&file, as_file(bytes, size));
    for (int64_t i = 0; st == NULL && i < file->header.count; i++) {
        const sheaf_safetensors_entry *entry = &file->header.entry[i];
        void *data = malloc((size_t)entry->bytes + 1);
        if (data == NULL)
            abort(); /* larger than the file allows */
        st = sheaf__safetensors_read(file, entry, 0, data, entry->bytes);
        free(data);
    }
    sheaf_status_free(st);
    sheaf__safetensors_close(file);
}

static void read_config(const uint8_t *bytes, size_t size)
{
    sheaf_config config = { 0 };
    sheaf_status *st = sheaf_config_parse(&config, (const char *)bytes, size);
    if (st == NULL) {
        sheaf_schema *schema = NULL;
        if (config.layers < 1000)
            sheaf_status_free(sheaf_schema_new(&schema, &config, 8));
        sheaf_schema_free(schema);
        sheaf_config_release(&config);
    }
    sheaf_status_free(st);
}

static void read_adapter_config(const uint8_t *bytes, size_t size)
{
    sheaf_lora_options options = { 0 };
    sheaf_status *st = sheaf_lora_options_read(&options, as_file(bytes, size));
    if (st == NULL)
        sheaf_lora_options_release(&options);
    sheaf_status_free(st);
}

static void read_data(const uint8_t *bytes, size_t size)
{
    static const char text[] = "{\"model_type\": \"llama\", \"sheaf_tokenizer\": \"bytes\", \"vocab_size\": 259, "
        "\"bos_token_id\": 256, \"eos_token_id\": 257, \"pad_token_id\": 258, \"hidden_size\": 16, "
        "\"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 64}";
    sheaf_config config = { 0 };
    sheaf_status *st = sheaf_config_parse(&config, text, sizeof text - 1);
    if (st != NULL)
        abort();
    sheaf_data *data = NULL;
    const sheaf_data_options options = { .config = &config };
    sheaf_status_free(sheaf_data_open(&data, as_file(bytes, size), &options));
    sheaf_data_close(data);
    sheaf_config_release(&config);
}

/* The bytes are the index of a folder with one shard of one tensor, "x" in "a.safetensors". */
static void read_index(const uint8_t *bytes, size_t size)
{
    static const sheaf_safetensors_spec spec = { "x", SHEAF_U8, 1, { 1 } };
    char dir[64], path[128];
    snprintf(dir, sizeof dir, "/dev/shm/sheaf-fuzz-%d.d", (int)getpid());
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    if (mkdir(dir, 0700) == 0) {
        sheaf_safetensors_writer *writer = NULL;
        if (sheaf__safetensors_begin(&writer, path, &spec, 1, NULL, 0, NULL) != NULL ||
            sheaf__safetensors_write(writer, 0, 0, "1", 1) != NULL || sheaf__safetensors_finish(writer) != NULL)
            abort();
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    close(fd);
    sheaf_source *source = NULL;
    sheaf_status *st = sheaf_hf_open(&source, dir);
    if (st == NULL) {
        if (source->count(source) != 1) /* an index that is accepted tells of exactly this tensor */
            abort();
        source->close(source);
    }
    sheaf_status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    switch (READER) {
    case SAFETENSORS: read_tensors(bytes, size); break;
    case CONFIG: read_config(bytes, size); break;
    case ADAPTER_CONFIG: read_adapter_config(bytes, size); break;
    case INDEX: read_index(bytes, size); break;
    default: read_data(bytes, size); break;
    }
    return 0;
}
