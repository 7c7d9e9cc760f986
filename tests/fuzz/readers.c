/* readers.c - see readers.h. */
#include "tests/fuzz/readers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/text.h"
#include "checkpoint/store/probe.h"
#include "cli/lib/cli.h"
#include "library/train_settings.h"
#include "dialects/hf/hf.h"
#include "tests/opened.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch.h"
#include "formats/zip.h"
#include "infer/prompts.h"
#include "inputs/chat/jinja.h"
#include "inputs/image.h"
#include "data/records.h"
#include "inputs/tokenizer/tokenizer.h"
#include "inputs/tokenizer/unicode.h"
#include "lora/adapter.h"
#include "schema/schema.h"
#include "data/data.h"
#include "serve/request.h"

/* "FOLDER/sheaf-fuzz-PID.suffix" in memory, or where $SHEAF_FUZZ_DIR says. */
static const char *own_path(const char *suffix)
{
    static char path[512];
    const char *dir = getenv("SHEAF_FUZZ_DIR");
    snprintf(path, sizeof path, "%s/sheaf-fuzz-%d.%s", dir == NULL ? "/dev/shm" : dir,
             (int)getpid(), suffix);
    return path;
}

/* A new file each time: some file systems flush one that is cut and written again. */
static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || (size > 0 && write(fd, bytes, size) != (ssize_t)size))
        abort();
    close(fd);
}

/* Puts the bytes into this process's own file, whose name ends as the reader expects. */
static const char *as_file(const uint8_t *bytes, size_t size, const char *suffix)
{
    const char *path = own_path(suffix);
    write_file(path, bytes, size);
    return path;
}

static void read_tensors(const uint8_t *bytes, size_t size)
{
    sheaf_safetensors *file = NULL;
    sheaf_status *st = sheaf__safetensors_open(&file, as_file(bytes, size, "safetensors"));
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

/* A sound model: a box in the middle of each tensor is that part of the whole. */
static void read_gguf_model(const char *path)
{
    static char whole[1 << 20], box[1 << 20];
    sheaf_source *source = NULL;
    sheaf_status *st = sheaf__open_source(&source, path, NULL);
    for (int64_t i = 0; st == NULL && i < source->count(source); i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const size_t each = sheaf_dtype_bytes(e->dtype);
        int64_t rows, cols;
        sheaf__entry_view(&rows, &cols, e);
        if (cols > 0 && rows > (int64_t)(sizeof whole / each) / cols)
            abort(); /* the largest blocks hold some 12 times their bytes */
        const int64_t r = rows / 3, c = cols / 3, n = cols - c;
        st = source->read(source, e->name, 0, rows, 0, cols, whole);
        TRY(st, source->read(source, e->name, r, rows - r, c, n, box));
        for (int64_t row = r; st == NULL && row < rows; row++)
            if (memcmp(box + (size_t)((row - r) * n) * each,
                       whole + (size_t)(row * cols + c) * each, (size_t)n * each) != 0)
                abort();
    }
    sheaf_status_free(st);
    if (source != NULL)
        source->close(source);
}

/* What a file says lies in it: each text, number and tensor. */
static void read_gguf(const uint8_t *bytes, size_t size)
{
    sheaf__gguf *file = NULL;
    const char *path = as_file(bytes, size, "gguf");
    sheaf_status *st = sheaf__gguf_open(&file, path);
    const bool opened = st == NULL;
    for (int64_t i = 0; st == NULL && i < file->nkeys; i++) {
        const sheaf__gguf_key *key = &file->key[i];
        bool ok = true;
        for (int64_t k = 0; k < key->count; k++)
            if (key->texts == NULL)
                sheaf__gguf_number(key, k, &ok);
            else
                sheaf__utf8_valid(key->texts[k].at, (size_t)key->texts[k].size);
        free(sheaf__gguf_string(key));
    }
    for (int64_t i = 0; st == NULL && i < file->ntensors; i++)
        if (file->tensor[i].bytes > (int64_t)size - file->tensor[i].offset)
            abort();
    sheaf_status_free(st);
    sheaf__gguf_close(file);
    if (opened)
        read_gguf_model(path);
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
    sheaf_status *st = sheaf_lora_options_read(&options, as_file(bytes, size, "json"), NULL);
    if (st == NULL)
        sheaf_lora_options_release(&options);
    sheaf_status_free(st);
}

/* The config of a model whose vocabulary is bytes. */
static sheaf_config byte_config(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"sheaf_tokenizer\": \"bytes\", \"vocab_size\": 259, "
        "\"bos_token_id\": 256, \"eos_token_id\": 257, \"pad_token_id\": 258, \"hidden_size\": 16, "
        "\"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 64}";
    sheaf_config config = { 0 };
    if (sheaf_config_parse(&config, text, sizeof text - 1) != NULL)
        abort();
    return config;
}

static void read_data(const char *path)
{
    sheaf_config config = byte_config();
    sheaf_data *data = NULL;
    const sheaf_data_options options = { .config = &config,
                                         .prompt_template = "plain",
                                         .on_long = SHEAF_LONG_CUT };
    sheaf_status_free(sheaf_data_open(&data, path, &options));
    sheaf_data_close(data);
    sheaf_config_release(&config);
}

static void read_lines(const uint8_t *bytes, size_t size)
{
    read_data(as_file(bytes, size, "jsonl"));
}
static void read_tokens(const uint8_t *bytes, size_t size)
{
    read_data(as_file(bytes, size, "safetensors"));
}

static void read_prompts(const uint8_t *bytes, size_t size)
{
    sheaf_config config = byte_config();
    sheaf__prompts prompts;
    sheaf__codec codec;
    sheaf_status_free(sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ 0 }));
    sheaf_status_free(sheaf__prompts_read(
        &prompts, &codec, &(sheaf_prompts_options){ .data = as_file(bytes, size, "jsonl") }));
    sheaf__prompts_release(&prompts);
    sheaf__codec_close(&codec);
    sheaf_config_release(&config);
}

/* The flags of `sheaf train` after `path` was read as a recipe, or `stored` as the settings of a
 * run; NULL when they were refused. */
static char *settings_after(const char *path, const char *stored)
{
    static const cli_command command = { .name = "train", .usage = "" };
    cli cli = { .out = stdout, .err = stderr, .command = &command };
    cli_option table[CLI_MAX_OPTIONS];
    sheaf_train_options options;
    char *text = NULL;
    sheaf_train_options_default(&options);
    sheaf__train_settings(table, &options, true);
    sheaf_status *st = path != NULL
                           ? cli_recipe_read(&cli, table, path)
                           : sheaf__settings_resume(&cli.settings, table, stored, "stored");
    if (st == NULL)
        st = sheaf__settings_text(&text, table, false);
    sheaf_status_free(st);
    driver_release(&cli);
    return text;
}

/* What a recipe sets is written down as settings that set the same. */
static void read_recipe(const uint8_t *bytes, size_t size)
{
    char *first = settings_after(as_file(bytes, size, "recipe"), NULL);
    char *second = first == NULL ? NULL : settings_after(NULL, first);
    if (first != NULL && (second == NULL || strcmp(first, second) != 0))
        abort();
    free(first);
    free(second);
}

/* The bytes are the index of a folder with one shard of one tensor, "x" in "a.safetensors". */
static void read_index(const uint8_t *bytes, size_t size)
{
    static const sheaf_safetensors_spec spec = { "x", SHEAF_U8, 1, { 1 } };
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s", own_path("d"));
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    if (mkdir(dir, 0700) == 0) {
        sheaf_safetensors_writer *writer = NULL;
        if (sheaf__safetensors_begin(&writer, path, &spec, 1, NULL, 0) != NULL ||
            sheaf__safetensors_write(writer, 0, 0, "1", 1) != NULL ||
            sheaf__safetensors_finish(writer) != NULL)
            abort();
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    write_file(path, bytes, size);
    sheaf_source *source = NULL;
    sheaf_status *st = open_stored(&source, dir);
    if (st == NULL) {
        if (source->count(source) != 1) /* an index that is accepted tells of exactly this tensor */
            abort();
        source->close(source);
    }
    sheaf_status_free(st);
}

/* Every element of a tensor lies in its storage: its last one does. */
static void check_tensor(const sheaf_pickle_doc *doc, const sheaf_pickle_tensor *t)
{
    __extension__ typedef __int128 wide;
    wide last = t->offset, each = (wide)sheaf_dtype_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] < 0 || t->stride[d] < 0)
            abort();
        if (t->shape[d] == 0)
            return;
        last += (wide)(t->shape[d] - 1) * t->stride[d];
    }
    if (t->offset < 0 || each == 0 || (last + 1) * each > doc->storage[t->storage].bytes)
        abort();
}

/* Asks everything of a value and of what it holds, at most `steps` values. */
static void look_at(const sheaf_pickle *value, int depth, int *steps)
{
    int64_t number, shape[SHEAF_PICKLE_MAX_DIMS];
    double real;
    int ndim;
    if (value == NULL || (*steps)-- <= 0)
        return;
    if (depth > SHEAF_PICKLE_MAX_DEPTH + 1)
        abort();
    sheaf__pickle_int(&number, value);
    sheaf__pickle_float(&real, value);
    sheaf__pickle_shape(&ndim, shape, value);
    sheaf__pickle_get(value, "module");
    for (int64_t i = 0; i < sheaf__pickle_count(value) && *steps > 0; i++) {
        look_at(sheaf__pickle_item(value, i), depth + 1, steps);
        look_at(sheaf__pickle_key(value, i), depth + 1, steps);
        look_at(sheaf__pickle_value(value, i), depth + 1, steps);
    }
    if (value->kind == SHEAF_PICKLE_OBJECT) {
        look_at(value->as.object->args, depth + 1, steps);
        look_at(value->as.object->state, depth + 1, steps);
        look_at(value->as.object->list, depth + 1, steps);
    }
}

static void read_pickle(const uint8_t *bytes, size_t size)
{
    sheaf_pickle_doc *doc = NULL;
    char *again = NULL;
    size_t again_size = 0;
    int steps = 10000;
    sheaf_status *st = sheaf__pickle_parse(&doc, NULL, bytes, size);
    if (st == NULL) {
        for (int64_t i = 0; i < doc->ntensors; i++)
            check_tensor(doc, &doc->tensor[i]);
        look_at(doc->root, 1, &steps);
        if (steps > 0) /* what was reached many times is written as often */
            st = sheaf__pickle_encode(&again, &again_size, doc);
    }
    sheaf_status_free(st);
    sheaf__pickle_free(doc);
    free(again);
}

static void read_zip(const uint8_t *bytes, size_t size)
{
    const char *path = as_file(bytes, size, "zip");
    int fd = -1;
    int64_t length = 0;
    sheaf_zip zip = { 0 };
    if (sheaf__file_open_read(&fd, &length, path) != NULL)
        abort();
    sheaf_status *st = sheaf__zip_open(&zip, fd, 0, length, path);
    for (int64_t i = 0; st == NULL && i < zip.count; i++) {
        const sheaf_zip_entry *entry = &zip.entry[i];
        char *data = NULL;
        size_t n = 0;
        if (sheaf__zip_find(&zip, entry->name) != entry || entry->offset < 0 ||
            entry->bytes > length - entry->offset)
            abort();
        st = sheaf__zip_read(&data, &n, &zip, entry, fd, SIZE_MAX, path);
        free(data);
    }
    sheaf_status_free(st);
    sheaf__zip_release(&zip);
    close(fd);
}

static void read_torch(const uint8_t *bytes, size_t size)
{
    static char dense[1 << 14];
    sheaf_torch *file = NULL;
    sheaf_status *st = sheaf__torch_open(&file, as_file(bytes, size, "pt"));
    for (int64_t i = 0; st == NULL && i < file->doc->ntensors; i++) {
        const sheaf_pickle_tensor *t = &file->doc->tensor[i];
        const sheaf_torch_storage *storage = &file->storage[t->storage];
        int64_t whole = (int64_t)sheaf_dtype_bytes(t->dtype);
        check_tensor(file->doc, t);
        if (storage->offset < 0 || storage->bytes > file->size - storage->offset ||
            file->doc->storage[t->storage].bytes > storage->bytes)
            abort();
        for (int d = 0; d < t->ndim; d++)
            whole = t->shape[d] > (int64_t)sizeof dense || whole > (int64_t)sizeof dense
                        ? (int64_t)sizeof dense + 1
                        : whole * t->shape[d];
        if (whole <= (int64_t)sizeof dense &&
            sheaf__torch_read(file, t, dense, (size_t)whole) != NULL)
            abort();
    }
    if (st == NULL)
        st = sheaf__torch_check_data(file);
    sheaf_status_free(st);
    sheaf__torch_close(file);
}

/* A picture that is read is as large as it says, and can be made a model's input. */
static void read_image_as(const uint8_t *bytes, size_t size, bool on_white)
{
    enum { MOST_PIXELS = 1 << 18 };
    float *pixels = malloc(3 * 16 * 16 * sizeof *pixels);
    sheaf_image image = { 0 };
    if (pixels == NULL)
        abort();
    sheaf_status *st = sheaf_image_decode(
        &image, bytes, size,
        &(sheaf_image_decoding){ .max_pixels = MOST_PIXELS, .on_white = on_white });
    if (st == NULL) {
        if (image.width < 1 || image.height < 1 || image.width * image.height > MOST_PIXELS)
            abort();
        st = sheaf_image_prepare(pixels, &image, 16, 16, &sheaf_image_clip_scale);
    }
    sheaf_status_free(st);
    sheaf_image_release(&image);
    free(pixels);
}

static void read_image(const uint8_t *bytes, size_t size)
{
    read_image_as(bytes, size, false);
    read_image_as(bytes, size, true);
}

/* Ids name tokens, what they stand for lies in the text, and a stream gives what decode gives. */
static void check_tokenizer(const sheaf__tokenizer *t, const char *text, size_t size)
{
    const sheaf__encode_options around = { .add_special = true };
    sheaf__text_range *where = NULL;
    sheaf__token_stream *stream = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    char *back = NULL;
    size_t length = 0, streamed = 0, more;
    const char *piece;
    sheaf_status *st = sheaf__tokenizer_encode(&ids, &where, &n, t, text, size, &around);
    for (int64_t i = 0; st == NULL && i < n; i++)
        if (ids[i] < 0 || ids[i] >= sheaf__tokenizer_size(t) || where[i].begin > where[i].end ||
            where[i].end > size)
            abort();
    if (st == NULL)
        st = sheaf__tokenizer_decode(&back, &length, t, ids, n, size % 2 == 0);
    if (st == NULL)
        st = sheaf__token_stream_new(&stream, t, size % 2 == 0);
    for (int64_t i = 0; st == NULL && i <= n; i++) {
        st = i < n ? sheaf__token_stream_push(&piece, &more, stream, ids[i])
                   : sheaf__token_stream_rest(&piece, &more, stream);
        if (st == NULL && (streamed + more > length || memcmp(back + streamed, piece, more) != 0))
            abort();
        if (st == NULL)
            streamed += more;
    }
    if (st == NULL && streamed != length)
        abort();
    sheaf_status_free(st);
    sheaf__token_stream_free(stream);
    free(back);
    free(ids);
    free(where);
}

static void read_sentencepiece(const uint8_t *bytes, size_t size)
{
    static const char text[] = "Question: a b<s></s> \xc3\xa9\n  CAPTCHA:";
    sheaf__tokenizer *t = NULL;
    sheaf_status *st = sheaf__tokenizer_open_pieces(&t, as_file(bytes, size, "model"));
    if (st == NULL)
        check_tokenizer(t, text, sizeof text - 1);
    sheaf_status_free(st);
    sheaf__tokenizer_close(t);
}

static void read_tokenizer(const uint8_t *bytes, size_t size)
{
    static const char *const texts[] = {
        "Don't  a  b<s></s> [SEP]\r\n\t12345 \xc3\xa9\x65\xcc\x81\xef\xac\x81 ``q'' ,.!?",
        " \xe2\x96\x81\xe4\xb8\x80\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xea\xb0\x81\xe1\x86\xa8 the of\xd7\x90",
        "",
    };
    sheaf__tokenizer *t = NULL;
    sheaf_status *st = sheaf__tokenizer_open(&t, as_file(bytes, size, "tokenizer"));
    for (size_t i = 0; st == NULL && i < sizeof texts / sizeof *texts; i++)
        check_tokenizer(t, texts[i], strlen(texts[i]));
    sheaf_status_free(st);
    sheaf__tokenizer_close(t);
}

static void read_records(const uint8_t *bytes, size_t size)
{
    const sheaf__records_options options = { .answers_optional = size % 2 == 1 };
    sheaf__records records;
    sheaf_status_free(sheaf__records_read(&records, as_file(bytes, size, "jsonl"), &options, NULL));
    for (int64_t i = 0; i < records.count; i++)
        if (records.record[i].turns < 1 || records.record[i].turn[0].query == NULL)
            abort();
    sheaf__records_release(&records);
}

/* A chat template runs on a conversation, and ends in bounded time and memory. */
static void read_template(const uint8_t *bytes, size_t size)
{
    sheaf__jinja *program = NULL;
    sheaf__jinja_text text = { 0 };
    json_t *variables = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s, s:[]}], s:s, s:s, s:n, s:i, s:f, s:b}", "messages",
        "role", "system", "content", "S", "role", "user", "content", " \xc3\xa9 \n", "role",
        "assistant", "content", "<think>a</think>b", "tool_calls", "bos_token", "<s>", "eos_token",
        "</s>", "tools", "n", 7, "x", 2.5, "add_generation_prompt", size % 2 == 1);
    sheaf_status *st = sheaf__jinja_parse(&program, (const char *)bytes, size);
    if (st == NULL)
        st = sheaf__jinja_render(&text, program, variables, &(sheaf__date){ 2024, 2, 29 });
    if (st == NULL && (text.text == NULL || text.text[text.size] != '\0'))
        abort();
    for (int64_t i = 0; i < text.pieces; i++)
        if (text.piece[i].begin > text.piece[i].end || text.piece[i].end > text.size ||
            (i > 0 && text.piece[i].begin < text.piece[i - 1].end))
            abort();
    sheaf__jinja_text_release(&text);
    sheaf_status_free(st);
    sheaf__jinja_free(program);
    json_decref(variables);
}

/* A request of each kind, and the messages of one. */
static void read_request(const uint8_t *bytes, size_t size)
{
    static const sheaf__picture_form form = { .video.fps = 2 };
    for (int kind = SHEAF__ASKS_TEXT; kind <= SHEAF__ASKS_RESPONSE; kind++) {
        sheaf__request r;
        sheaf_status *st =
            sheaf__request_read(&r, (const char *)bytes, size, (sheaf__request_kind)kind);
        if (st == NULL && (r.each < 1 || r.nstop < 0 || r.how.max_new < 0))
            abort();
        if (st == NULL && kind != SHEAF__ASKS_TEXT)
            st = sheaf__request_take_messages(&r, kind == SHEAF__ASKS_CHAT ? &form : NULL,
                                              kind == SHEAF__ASKS_RESPONSE);
        if (st == NULL && kind != SHEAF__ASKS_TEXT && r.messages == NULL)
            abort();
        sheaf_status_free(st);
        sheaf__request_release(&r);
    }
}

const fuzz_reader fuzz_readers[] = {
    { "safetensors", read_tensors },
    { "gguf", read_gguf },
    { "config", read_config },
    { "index", read_index },
    { "adapter-config", read_adapter_config },
    { "json-lines", read_lines },
    { "tokens", read_tokens },
    { "prompts", read_prompts },
    { "recipe", read_recipe },
    { "image", read_image },
    { "sentencepiece", read_sentencepiece },
    { "tokenizer", read_tokenizer },
    { "records", read_records },
    { "pickle", read_pickle },
    { "zip", read_zip },
    { "torch", read_torch },
    { "template", read_template },
    { "request", read_request },
    { NULL, NULL },
};

const fuzz_reader *fuzz_reader_named(const char *name)
{
    const fuzz_reader *r = fuzz_readers;
    while (r->name != NULL && strcmp(r->name, name) != 0)
        r++;
    return r->name == NULL ? NULL : r;
}
