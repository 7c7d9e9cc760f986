"""rival_server.py - llama.cpp's server (xllamacpp) on a GGUF file; prints its address and waits for a signal."""
import argparse
import signal

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("--gguf", required=True)
parser.add_argument("--places", type=int, required=True, help="answers side by side")
parser.add_argument("--length", type=int, required=True, help="positions of each")
parser.add_argument("--threads", type=int, required=True)
args = parser.parse_args()
p = xllamacpp.CommonParams()
p.model.path = args.gguf
p.n_ctx = args.places * args.length
p.n_parallel = args.places
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
p.n_gpu_layers = 0
p.port = 0
p.fit_params = False
p.verbosity = 0
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
signal.sigwait([signal.SIGINT, signal.SIGTERM])
