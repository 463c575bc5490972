#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run a Thresher command again while its exit code indicates that a retry may help. For cron, systemd timers and the like.
#   deploy/run-until-done.sh thresher run recipe.yaml input_path=/shared/raw output_path=/shared/clean --quiet
# ATTEMPTS (default 5) and WAIT_S (default 60) may be set in the environment.
set -uo pipefail

if [ $# -eq 0 ]; then
    echo "usage: $0 COMMAND [ARGUMENT …]" >&2
    exit 2
fi

attempts=${ATTEMPTS:-5}
for ((attempt = 1; ; attempt++)); do
    code=0
    "$@" || code=$?
    case $code in
        1) ;; # failed, and not because of a record: the same command goes on with what is left
        *) exit "$code" ;; # done (0), or nothing that another attempt would mend (2, 3, 4, 5), or ended by a signal
    esac
    if [ "$attempt" -ge "$attempts" ]; then
        echo "$0: attempt $attempt of $attempts failed, giving up" >&2
        exit "$code"
    fi
    echo "$0: attempt $attempt of $attempts failed, next one in ${WAIT_S:-60} s" >&2
    sleep "${WAIT_S:-60}"
done
