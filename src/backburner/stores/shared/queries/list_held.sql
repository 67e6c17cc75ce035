SELECT seq, token FROM jobs WHERE worker = ?1 AND state = 'running'
