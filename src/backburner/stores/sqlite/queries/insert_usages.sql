-- A call that is already stored is not stored again. With a token, it is late unless its
-- run still holds the job.
INSERT INTO usages (job, generation, epoch, n, at, tenant, "user", capability, tags,
                    model, provider, input_tokens, output_tokens, cached_tokens, cost,
                    price_version, duration_ms, late)
SELECT jobs.seq, coalesce(value ->> 2, jobs.generation), value ->> 3, value ->> 4,
       value ->> 5, jobs.tenant, jobs."user", jobs.capability, jobs.tags,
       value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11,
       value ->> 12, value ->> 13,
       value ->> 1 IS NOT NULL AND jobs.token IS NOT (value ->> 1)
  FROM json_each(?1) JOIN jobs ON jobs.seq = value ->> 0
 WHERE TRUE
ON CONFLICT (job, epoch, n) DO NOTHING
RETURNING job, late
