SELECT seq FROM batches WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE
