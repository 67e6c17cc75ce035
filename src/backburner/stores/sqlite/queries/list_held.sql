SELECT seq, token FROM jobs WHERE worker = ? AND state = 'running'
