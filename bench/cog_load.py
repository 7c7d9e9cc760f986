"""cog_load.py FOLDER [MP] - how long PyTorch takes to load an SAT checkpoint; prints one JSON object.

As SAT: one process for each part, torch.load() of the part, then load_state_dict() into a model whose storage is there
but not initialised. All start together when all have imported PyTorch and built their model; what SAT does besides
(building and initialising on the CPU, broadcasts) is left out.
"""
import json
import multiprocessing
import os
import resource
import sys
import time


def part(folder, rank, barrier, results):
    import torch

    import cog_torch

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // barrier.parties))
    path = os.path.join(folder, open(os.path.join(folder, "latest")).read().strip(), "mp_rank_%02d_model_states.pt" % rank)
    # A model of just these shapes: cog_torch knows MP 1 alone. Untouched storage costs nothing until it is written.
    like = torch.load(path, map_location="cpu", weights_only=False, mmap=True)["module"]
    model = torch.nn.Module()
    for name, value in like.items():
        model.register_buffer(name.replace(".", "/"), torch.empty_like(value))
    del like
    barrier.wait()
    begin = time.perf_counter()
    state = torch.load(path, map_location="cpu", weights_only=False, mmap=False)["module"]
    loaded = time.perf_counter()
    model.load_state_dict({name.replace(".", "/"): value for name, value in state.items()})
    end = time.perf_counter()
    results.put((begin, loaded, end, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def main():
    folder, ranks = sys.argv[1], int(sys.argv[2])
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(ranks), context.Queue()
    children = [context.Process(target=part, args=(folder, rank, barrier, results)) for rank in range(ranks)]
    for child in children:
        child.start()
    got = [results.get() for _ in children]
    for child in children:
        child.join()
    begin = min(g[0] for g in got)
    print(json.dumps({"torch_load": max(g[1] for g in got) - begin, "seconds": max(g[2] for g in got) - begin,
                      "peak": sum(g[3] for g in got)}))


if __name__ == "__main__":
    main()
