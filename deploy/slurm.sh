#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One Ray cluster on the nodes of a Slurm job, and one run on it. No job array: Thresher's scheduler distributes the work.
#   sbatch --nodes=16 deploy/slurm.sh recipe.yaml input_path=/shared/raw output_path=/shared/clean
# All arguments of the script are passed to `thresher run`. The exit code is that of Thresher.
#SBATCH --job-name=thresher
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
# Ten minutes before the end the run gets SIGTERM: committed output stays, and the same command resumes the run.
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
set -euo pipefail

# Activate your environment here: module load …, source …/bin/activate.

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
head_ip=$(getent ahostsv4 "$head" | awk 'NR == 1 { print $1 }')
port=$((20000 + SLURM_JOB_ID % 10000))
cpus=${SLURM_CPUS_ON_NODE:-$(nproc)}

# Only this job can talk to its cluster. The token travels in the environment, where other users cannot read it.
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0

parts=()
driver=

end_cluster() {
    local pid
    for pid in "${parts[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    wait "${parts[@]}" 2>/dev/null || true
}
trap end_cluster EXIT
trap '[ -z "$driver" ] || kill -TERM "$driver"' TERM

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$head_ip" --port="$port" --num-cpus="$cpus" --include-dashboard=false --block &
parts+=($!)

for _ in $(seq 60); do
    if ray health-check --address "$head_ip:$port" >/dev/null 2>&1; then
        break
    fi
    sleep 2
done

if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    # Nodes that join later than the run begins are used from then on.
    srun --overlap --nodes="$((SLURM_JOB_NUM_NODES - 1))" --ntasks="$((SLURM_JOB_NUM_NODES - 1))" --exclude="$head" \
        ray start --address="$head_ip:$port" --num-cpus="$cpus" --block &
    parts+=($!)
fi

thresher run "$@" --executor ray --address "$head_ip:$port" &
driver=$!
code=0
wait "$driver" || code=$?
if kill -0 "$driver" 2>/dev/null; then # a signal ended the wait; the run is ending
    code=0
    wait "$driver" || code=$?
fi

# 1: failed for a reason that may be temporary; 143: SIGTERM. The same command continues with what is left.
if [ "${THRESHER_REQUEUE:-0}" = 1 ] && { [ "$code" = 1 ] || [ "$code" = 143 ]; }; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
