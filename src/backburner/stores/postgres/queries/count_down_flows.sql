-- Whoever counts the last one down ends the flow: by then it sees what those did who
-- held the row before. Locked by key, as steps are.
WITH locked AS MATERIALIZED (
  SELECT flows.seq, d.n
    FROM unnest($1::bigint[], $2::int[]) AS d (seq, n)
    JOIN flows ON flows.seq = d.seq
   ORDER BY flows.seq FOR UPDATE OF flows
)
UPDATE flows SET active = flows.active - locked.n
  FROM locked WHERE flows.seq = locked.seq
RETURNING flows.seq, flows.active
