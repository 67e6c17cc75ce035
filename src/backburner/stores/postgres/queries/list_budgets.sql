SELECT scope, unit, ceiling, per, nullif(value, ''), overrun FROM budgets
