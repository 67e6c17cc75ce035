"""
Ends succeeded steps and updates their flows in one round trip.

A function in the session consists of the statements that a transaction would send one
after the other. Each of them sees what others committed before, as in a transaction.
"""

import re
from collections.abc import Iterable
from typing import Final

from backburner.domain.jobs.job import Need
from backburner.stores.postgres.queries import Queries

ADVANCE = """
SELECT done, calling, heirs, sources FROM pg_temp.advance_flows($1, $2, $3, $4, $5)
"""
"""
Ends steps like `finish_jobs`, and updates their flows.

Returns the ended steps, the ended flows that have a callback, and the steps released by
one prerequisite alone, with that prerequisite.
"""
MOST: Final = 4096
LONGEST: Final = 4096


def advance_flows(queries: Queries) -> str:
    """Return the statement that creates the function in its session."""
    lock = _given(queries.lock_flows, "$5")
    release = _given(queries.release_jobs, "done", "'{}'", "$4")
    count_down = _given(queries.count_down_flows, "counting", "fewer", "calm", "$4")
    conclude = _given(queries.conclude_flows, "doubtful", "$4")
    tell = _given(queries.insert_flow_ends, "doubtful")
    return f"""
CREATE OR REPLACE FUNCTION pg_temp.advance_flows(
  bigint[], text[], text[], bigint, bigint[],
  OUT done bigint[], OUT calling bigint[], OUT heirs text[], OUT sources bigint[]
) LANGUAGE plpgsql AS $body$
DECLARE
  ended bigint[] := '{{}}';
  freed bigint[] := '{{}}';
  doubtful bigint[] := '{{}}';
  counting bigint[];
  fewer int[];
  calm boolean[];
  one record;
BEGIN
  done := '{{}}';
  calling := '{{}}';
  heirs := '{{}}';
  sources := '{{}}';
  FOR one IN {lock} LOOP
  END LOOP;
  FOR one IN {queries.finish_jobs} LOOP
    done := done || one.seq;
    ended := ended || one.flow;
  END LOOP;
  FOR one IN {release} LOOP
    freed := freed || one.flow;
    IF one.source IS NOT NULL THEN
      heirs := heirs || one.id;
      sources := sources || one.source;
    END IF;
  END LOOP;
  SELECT array_agg(flow), array_agg(n), array_agg(false) INTO counting, fewer, calm
    FROM (SELECT flow, sum(n)::int AS n
            FROM (SELECT unnest(ended) AS flow, 1 AS n
                   UNION ALL
                  SELECT unnest(freed), -1) AS each
           GROUP BY flow HAVING sum(n) <> 0) AS net;
  FOR one IN {count_down} LOOP
    IF one.callback IS NOT NULL THEN
      calling := calling || one.seq;
    END IF;
    IF one.troubled THEN
      doubtful := doubtful || one.seq;
    END IF;
  END LOOP;
  IF doubtful <> '{{}}' THEN
    FOR one IN {conclude} LOOP
    END LOOP;
    {tell};
  END IF;
END
$body$
"""  # noqa: S608 - built from constants


def _given(statement: str, *values: str) -> str:
    """Replace a statement's parameters by expressions."""
    return re.sub(r"\$(\d+)", lambda found: values[int(found[1]) - 1], statement)


class OutputCache:
    """
    Results of prerequisites that ended here, for steps with a single prerequisite.

    A succeeded step does not change any more, so its result need not be read again.
    Steps are identified by their ids, which are never reused.
    """

    def __init__(self) -> None:
        self._given: dict[str, Need] = {}
        self._session: object = None

    def serve(self, session: object) -> None:
        """Discard everything if the session is new, as a commit may have been lost."""
        if session is not self._session:
            self._given.clear()
            self._session = session

    def keep(self, given: Iterable[tuple[str, Need]]) -> None:
        """Store the results for some steps; discard old ones that were not taken."""
        for heir, need in given:
            if len(need.output or "") <= LONGEST:
                self._given[heir] = need
        while len(self._given) > MOST:
            del self._given[next(iter(self._given))]

    def take(self, heir: str) -> Need | None:
        """Return the result for a step and remove it; `None` if it is unknown."""
        return self._given.pop(heir, None)
