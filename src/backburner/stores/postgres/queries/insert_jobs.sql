-- Rows come as one array per column; numbers are assigned in the order of submission. If
-- an idempotency key exists, nothing is inserted: the unique index decides. Keys are
-- inserted in order, so that two transactions with the same keys cannot deadlock.
WITH asked AS (
  SELECT nextval('jobs_seq_seq') AS seq, sorted.* FROM (
    SELECT * FROM unnest(
      $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
      $7::int[], $8::int[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
      $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[],
      $18::text[], $19::text[], $20::bigint[], $21::text[], $22::int[], $23::int[],
      $24::bigint[], $25::text[], $26::text[], $27::bigint[], $28::text[],
      $29::text[], $30::int[], $31::smallint[], $32::text[], $33::bigint[]
    ) WITH ORDINALITY AS a (
      id, tenant, "user", capability, queue, state, priority, max_attempts, run_at,
      start_by, deadline, expires_at, created_at, ready_at, input, tags, request_id,
      idempotency_key, body_hash, flow, step, needs, open, batch, callback,
      traceparent, tokens, model, share, holds, kept, metadata, rank,
      place
    ) ORDER BY place
  ) AS sorted
), stored AS (
  INSERT INTO jobs (
    seq, rank, id, tenant, "user", capability, queue, state, priority, max_attempts,
    run_at, start_by, deadline, expires_at, created_at, ready_at, input, tags,
    request_id, idempotency_key, body_hash, flow, step, needs, open, batch, callback,
    traceparent, tokens, model, share, holds, kept, metadata
  )
  SELECT seq, rank, id, tenant, "user", capability, queue, state, priority,
         max_attempts, run_at, start_by, deadline, expires_at, created_at, ready_at,
         input, tags, request_id, idempotency_key, body_hash, flow, step, needs, open,
         batch, callback, traceparent, tokens, model, share, holds, kept, metadata
    FROM asked ORDER BY tenant, "user", idempotency_key, seq
  ON CONFLICT (tenant, "user", idempotency_key)
    WHERE idempotency_key IS NOT NULL DO NOTHING
  RETURNING seq, id, tenant, "user", state, created_at
), told AS (
  INSERT INTO events (job, n, type, at, tenant, "user")
  SELECT seq, 1, 'job.' || state, created_at, tenant, "user" FROM stored ORDER BY seq
)
SELECT id, seq FROM stored
