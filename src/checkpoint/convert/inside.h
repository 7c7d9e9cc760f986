/* inside.h - the LoRA of PEFT that lies in a checkpoint of the whole model. */
#pragma once

#include "checkpoint/convert/copy.h"
#include "checkpoint/convert/inner.h"

/* sheaf__convert_inside - k->source: the adapter's tensors as PEFT names them; k->config: its
 * adapter_config.json, found beside the checkpoint or made of --lora-alpha, names and shapes. */
sheaf_status *sheaf__convert_inside(sheaf__converter *k);
