#!/usr/bin/env bash
# The tests of comm, on ranks that are processes. Programs whose ranks fail in every way take long with many.
#
#   comm.sh MPI NUMBERS PROGRAM...
. "$(dirname "$0")/lib.sh"
shift
while [ $# -gt 0 ]; do
    for n in $1; do
        check "$mpi, $n processes: $(basename "$2" _test)" ranks "$n" "$2"
    done
    shift 2
done
finish
