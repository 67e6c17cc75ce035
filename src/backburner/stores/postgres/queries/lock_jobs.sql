SELECT seq FROM jobs WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE
