"""
Steps that succeed, and all that follows for their flows, in one round trip.

A function of the session is made of the statements that a transaction would send one
after the other. Each of them sees what others committed before it, as it would there.
"""

import re

from backburner.stores.postgres.queries import Queries

ADVANCE = "SELECT done, calling FROM pg_temp.advance_flows($1, $2, $3, $4)"
"""Ends steps, as `finish_jobs` does; tells of those, and of flows with a callback."""


def advance_flows(queries: Queries) -> str:
    """Return the statement that makes the function, in the session that calls it."""
    release = _given(queries.release_jobs, "done", "'{}'", "$4")
    count_down = _given(queries.count_down_flows, "counting", "fewer", "calm", "$4")
    conclude = _given(queries.conclude_flows, "doubtful", "$4")
    tell = _given(queries.insert_flow_ends, "doubtful")
    return f"""
CREATE FUNCTION pg_temp.advance_flows(
  bigint[], text[], text[], bigint, OUT done bigint[], OUT calling bigint[]
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
  FOR one IN {queries.finish_jobs} LOOP
    done := done || one.seq;
    ended := ended || one.flow;
  END LOOP;
  FOR one IN {release} LOOP
    freed := freed || one.flow;
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
"""  # noqa: S608 - all of it is ours


def _given(statement: str, *values: str) -> str:
    """Put what a statement is given where it asks for it."""
    return re.sub(r"\$(\d+)", lambda found: values[int(found[1]) - 1], statement)
