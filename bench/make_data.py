"""make_data.py FILE ROWS LENGTH VOCABULARY - a pre-tokenised data set of random tokens.

Both programs of the comparison read this file. Every position carries a label.
"""
import sys

import torch
from safetensors.torch import save_file

path, rows, length, vocabulary = sys.argv[1], *map(int, sys.argv[2:5])
generator = torch.Generator().manual_seed(20261121)
ids = torch.randint(3, vocabulary, (rows, length), dtype=torch.int32, generator=generator)
save_file({"input_ids": ids, "labels": ids.clone()}, path)
