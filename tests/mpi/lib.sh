# lib.sh - for tests of the transport mpi: cli/lib.sh, and ranks started by the MPI named in $1.
mpi=$1
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"
# The switches that a test needs and a user does not: as root, and with more processes than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
       OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none \
       SHEAF_PLUGINS="$SHEAF_BUILD_ROOT/src/cli"
mpirun=$(command -v "mpirun.$mpi" || command -v mpirun)

# ranks N COMMAND...: the command as N processes, for two minutes at most.
ranks() { local n=$1; shift; timeout 120 "$mpirun" -n "$n" "$@"; }

# process_of RANK WORD: the process of that rank whose command has WORD; with Hydra it is the child of one that waits for it and
# hears no signal.
process_of() {
    grep -lszxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" /proc/[0-9]*/environ | grep -oE '[0-9]+' |
        while read -r p; do grep -qszxF "$2" "/proc/$p/cmdline" && echo "$p"; done | sort -n | tail -n 1
}
