-- Before any step: with a flow's lock, its blocked steps may be locked in any order.
SELECT seq FROM flows WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE
