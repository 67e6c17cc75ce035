SELECT scope, unit, ceiling, per, nullif(value, '') FROM budgets
