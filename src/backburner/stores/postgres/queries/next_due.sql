SELECT least((SELECT min(run_at) FROM jobs WHERE state = 'scheduled'),
             (SELECT min(run_at) FROM jobs WHERE state = 'waiting'))
