/* byte_config.h - for tests: the config of a model whose tokens are bytes. */
#pragma once

#include "schema/config.h"

enum { BOS = 256, EOS = 257, PAD = 258 };

static const sheaf_config byte_config = {
    .vocab = 259, .bos = BOS, .pad = PAD, .eos = { EOS }, .neos = 1, .byte_vocab = true
};
