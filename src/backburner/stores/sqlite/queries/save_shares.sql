INSERT INTO shares (queue, priority, tenant, name, finish, taken)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, priority, tenant, name)
DO UPDATE SET finish = excluded.finish, taken = excluded.taken
