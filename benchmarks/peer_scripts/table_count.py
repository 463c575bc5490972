# SPDX-License-Identifier: Apache-2.0
"""DuckDB or Polars counts JSON lines by source, on two threads. Usage: table_count.py duckdb|polars INPUT OUTPUT"""

import os
import sys
from pathlib import Path


def main() -> None:
    tool, source, output = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    output.mkdir(parents=True, exist_ok=True)
    files = [str(path) for path in sorted(Path(source).iterdir())]
    if tool == "duckdb":
        import duckdb

        duckdb.execute("SET threads = 2")
        rows = duckdb.read_json(files, format="newline_delimited", columns={"source": "VARCHAR"})
        found = duckdb.sql("SELECT source, count(*) AS documents FROM rows GROUP BY source ORDER BY source").fetchall()
    else:
        os.environ["POLARS_MAX_THREADS"] = "2"
        import polars as pl

        rows = pl.scan_ndjson(files, schema={"source": pl.String})
        found = rows.group_by("source").agg(documents=pl.len()).sort("source").collect(engine="streaming").rows()
    (output / "counts.txt").write_text("\n".join(f"{name}\t{n}" for name, n in found) + "\n")


if __name__ == "__main__":
    main()
