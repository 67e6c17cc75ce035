-- Before any step: whoever has a flow may lock its blocked steps in any order.
SELECT seq FROM flows WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE
