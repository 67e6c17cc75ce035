SELECT e.dependent, p.step, p.id, p.state, p.output, p.error
  FROM edges AS e JOIN jobs AS p ON p.seq = e.prerequisite
 WHERE e.dependent = ANY ($1::bigint[]) ORDER BY e.dependent, p.seq
