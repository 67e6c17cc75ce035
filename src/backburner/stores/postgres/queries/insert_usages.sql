-- A call that is already stored is not stored again. With a token, it is late unless its
-- run still holds the job. The lock keeps others from ending the job without seeing this,
-- and the second of two late calls sees the first.
INSERT INTO usages (job, generation, epoch, n, at, tenant, "user", capability, tags,
                    model, provider, input_tokens, output_tokens, cached_tokens, cost,
                    price_version, duration_ms, late)
SELECT jobs.seq, coalesce(s.generation, jobs.generation), s.epoch, s.n, s.at,
       jobs.tenant, jobs."user", jobs.capability, jobs.tags, s.model, s.provider,
       s.input_tokens, s.output_tokens, s.cached_tokens, s.cost, s.price_version,
       s.duration_ms, s.token IS NOT NULL AND jobs.token IS DISTINCT FROM s.token
  FROM unnest(
         $1::bigint[], $2::text[], $3::int[], $4::int[], $5::int[], $6::bigint[],
         $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[],
         $12::bigint[], $13::text[], $14::bigint[]
       ) AS s (job, token, generation, epoch, n, at, model, provider, input_tokens,
               output_tokens, cached_tokens, cost, price_version, duration_ms)
  JOIN jobs ON jobs.seq = s.job
 ORDER BY s.job, s.epoch, s.n
   FOR NO KEY UPDATE OF jobs
ON CONFLICT (job, epoch, n) DO NOTHING
RETURNING job, late
