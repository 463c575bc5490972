# SPDX-License-Identifier: Apache-2.0
"""An Airflow DAG that runs a recipe once a day. Temporary failures are retried, permanent ones fail at once."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException

COMMAND = [
    "thresher",
    "run",
    "/shared/recipe.yaml",
    "input_path=s3://BUCKET/raw/{day}",
    "output_path=s3://BUCKET/clean/{day}",
    "--executor",
    "ray",
    "--address",
    "auto",
    "--quiet",
]
TRY_AGAIN = {1, 130, 143}
"""Exit codes of temporary failures and signals: the same command continues with what is left."""


@task(retries=3, retry_delay=timedelta(minutes=5))
def curate(day: str) -> None:
    """Run the command; its exit code decides whether Airflow retries."""
    code = subprocess.run([part.format(day=day) for part in COMMAND], check=False).returncode
    if code < 0:  # ended by a signal before it could exit with a code of its own
        code = 128 - code
    if code in TRY_AGAIN:
        raise AirflowException(f"thresher ended with {code}; the next attempt goes on with what is left")
    if code:
        raise AirflowFailException(f"thresher ended with {code}: another attempt would end in the same way")


@dag(schedule="@daily", start_date=datetime(2025, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def thresher_daily() -> None:
    """Run each day's folder as a separate run."""
    curate("{{ ds }}")


thresher_daily()
