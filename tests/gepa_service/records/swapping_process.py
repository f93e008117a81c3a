"""Add to one record's number so many times by compare-and-swap: `python -m ... URL TENANT ID TIMES`."""

import sys

from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordChanged
from tests.gepa_service.records.sample import Sample

if __name__ == "__main__":
    url, tenant, id_, times = sys.argv[1:]
    records = open_records(url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done = conflicts = 0
    while done < int(times):
        found = records.get(Sample, tenant, id_)
        assert found is not None
        try:
            records.replace(found.model_copy(update={"number": found.number + 1}))
        except RecordChanged:
            conflicts += 1
            continue
        done += 1
    sys.stdout.write(f"{conflicts}\n")
    records.close()
