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
