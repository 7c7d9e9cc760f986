/* rank.h - everything one rank of a training run holds: device, model, step. Made the
 * same way for training (cpu) and for planning (dry). */
#ifndef SHEAF_TRAIN_RANK_H
#define SHEAF_TRAIN_RANK_H

#include "train/options.h"
#include "train/select.h"
#include "train/step.h"

/* What all ranks share; everything borrowed. */
typedef struct sheaf__job {
    const sheaf_train_options *options;
    const sheaf_schema *schema;
    const sheaf_lora *lora; /* NULL unless method lora */
    const sheaf__selection *selection;
    const sheaf_data *data;       /* when planning only asked what it holds; NULL: unknown */
    sheaf_source *base, *adapter; /* NULL when planning; adapter NULL: fresh factors */
    int64_t seq;                  /* the most positions of a row */
} sheaf__job;

typedef struct sheaf__rank {
    sheaf__device *device;
    sheaf__context context;
    sheaf__model *model;
    sheaf__stepper *stepper;
} sheaf__rank;

/* sheaf__rank_open - comm NULL with one rank or on dry. Release with sheaf__rank_close also
 * after a failure. */
sheaf_status *sheaf__rank_open(sheaf__rank *out, sheaf_device_kind kind, sheaf_comm *comm, int rank,
                               const sheaf__job *job);
void sheaf__rank_close(sheaf__rank *rank);

/* sheaf__job_seq - that of these data, by the rule of padding that was asked for. */
int64_t sheaf__job_seq(const sheaf_train_options *options, const sheaf_data *data);
/* sheaf__job_padding - sheaf_data_padding() of them. */
double sheaf__job_padding(const sheaf_train_options *options, const sheaf_data *data);
/* sheaf__parameters - elements of a whole model, without buffers. */
int64_t sheaf__parameters(const sheaf_schema *schema);
/* sheaf__count_trained - elements that are trained, and those among them that the base does not
 * have (LoRA's factors). */
void sheaf__count_trained(int64_t *trained, int64_t *added, const sheaf__model *model);
/* Gradient accumulators, G: 1 for method full, else 4 (docs/contract.md, section 1.6). */
int sheaf__accumulators_of(sheaf_method method);

#endif
