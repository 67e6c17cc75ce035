SELECT min(run_at) FROM jobs WHERE state = 'scheduled'
