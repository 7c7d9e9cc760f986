/* cmd_eval.c - `sheaf eval`: loss and accuracy of a model on data. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "formats/safetensors.h"
#include "models/crew.h"
#include "train/evaluate.h"

const char cmd_eval_usage[] =
    "usage: sheaf eval --model DIR [--adapter DIR] --data FILE [--tp T] [--save-logits FILE]\n"
    "Mean loss per label token and the share of label tokens that are the model's first\n"
    "choice. With --save-logits also every logit, float32 [rows, length, vocabulary].\n";

typedef struct settings {
    const char *model, *config, *adapter, *data, *save_logits, *isa;
    int tp, threads, slices;
    sheaf_dtype dtype;
    int64_t micro_batch, seq;
} settings;

typedef struct work {
    const settings *s;
    const sheaf_data *data;
    const sheaf_events *events;
    sheaf_safetensors_writer *writer;
    int64_t seq, vocab;
    sheaf__evaluation result; /* written by rank 0 */
} work;

static sheaf_status *write_logits(void *self, int64_t row, int64_t position, const float *logits)
{
    const work *w = self;
    return sheaf__safetensors_write(w->writer, 0, (row * w->seq + position) * w->vocab * 4, logits, w->vocab * 4);
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    work *w = self;
    const bool first = model->context->rank == 0;
    const sheaf__evaluate_options options = { .micro_batch = w->s->micro_batch, .take = first && w->writer != NULL ? write_logits : NULL,
                                              .self = w, .events = first ? w->events : NULL };
    sheaf__evaluation result;
    sheaf_status *st = sheaf__evaluate(&result, model, w->data, &options);
    if (st == NULL && first)
        w->result = result;
    return st;
}

static sheaf_status *begin_logits(work *w)
{
    if (w->s->save_logits == NULL)
        return NULL;
    if (sheaf__path_kind(w->s->save_logits) != SHEAF_PATH_NONE)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--save-logits %s", w->s->save_logits), "a file that does not exist"),
                           "something there already");
    const sheaf_safetensors_spec spec = { .name = "logits", .dtype = SHEAF_F32, .ndim = 3,
                                          .shape = { sheaf_data_rows(w->data), w->seq, w->vocab } };
    return sheaf__safetensors_begin(&w->writer, w->s->save_logits, &spec, 1, NULL, 0, NULL);
}

static void print_result(const cli *cli, const sheaf__evaluation *e)
{
    const double accuracy = e->tokens == 0 ? 0 : (double)e->correct / (double)e->tokens;
    if (cli->json) {
        json_t *object = json_pack("{s:f, s:I, s:f}", "loss", e->loss, "tokens", (json_int_t)e->tokens, "accuracy", accuracy);
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
    } else {
        fprintf(cli->out, "loss %.6f, accuracy %.4f over %lld label tokens\n", e->loss, accuracy, (long long)e->tokens);
    }
}

int cmd_eval(cli *cli, int argc, char **argv)
{
    static const cli_choice dtypes[] = { { "float32", SHEAF_F32 }, { "bfloat16", SHEAF_BF16 }, { 0 } };
    settings s = { .tp = 1, .slices = 8, .dtype = SHEAF_F32, .micro_batch = 4 };
    const cli_option table[] = {
        { "model", CLI_PATH | CLI_REQUIRED, &s.model, "folder of the model (Hugging Face form)", "DIR" },
        { "config", CLI_PATH, &s.config, "its config.json, where the folder has none", "FILE" },
        { "adapter", CLI_PATH, &s.adapter, "PEFT adapter to use with it", "DIR" },
        { "data", CLI_PATH | CLI_REQUIRED, &s.data, "JSON Lines, or .safetensors with input_ids and labels", "FILE" },
        { "tp", CLI_INT, &s.tp, "ranks that share the model", "T", 1, SHEAF_MAX_SLICES },
        { "threads", CLI_INT, &s.threads, "compute threads in all; 0 = every core at hand", .max = 4096 },
        { "slices", CLI_INT, &s.slices, "parts every tensor falls into, a power of two", "S", 1, SHEAF_MAX_SLICES },
        { "dtype", CLI_CHOICE, &s.dtype, "type of activations and products", .choices = dtypes },
        { "micro-batch", CLI_COUNT, &s.micro_batch, "rows of one forward", .min = 1, .max = 1e6 },
        { "seq", CLI_COUNT, &s.seq, "longest row in tokens; 0 = as long as the data", .max = 1e8 },
        { "save-logits", CLI_PATH, &s.save_logits, "write every logit to this .safetensors file", "FILE" },
        { "isa", CLI_TEXT | CLI_HIDDEN, &s.isa, "ref, avx2 or avx512" },
        { 0 },
    };
    sheaf__opened opened = { 0 };
    sheaf_data *data = NULL;
    work w = { .s = &s, .events = &cli->events };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL)
        st = sheaf__open_model(&opened, &(sheaf__open_options){ .model = s.model, .config = s.config, .slices = s.slices, .adapter = s.adapter,
                                                                        .events = &cli->events });
    if (st == NULL)
        st = sheaf_data_open(&data, s.data, &(sheaf_data_options){ .config = &opened.config, .seq = s.seq, .events = &cli->events });
    if (st == NULL) {
        w.data = data;
        w.seq = sheaf_data_seq(data);
        w.vocab = opened.config.vocab;
        st = begin_logits(&w);
    }
    if (st == NULL)
        st = sheaf__crew_run(&opened, &(sheaf__crew_options){ .ranks = s.tp, .threads = s.threads, .dtype = s.dtype, .isa = s.isa,
                                                              .positions = w.seq }, on_rank, &w);
    if (st == NULL && w.writer != NULL)
        st = sheaf__safetensors_finish(w.writer);
    else
        sheaf__safetensors_abandon(w.writer);
    if (st == NULL)
        print_result(cli, &w.result);
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
    return cli_report(cli, st);
}
