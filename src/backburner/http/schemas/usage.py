"""Response models of usage and quotes."""

from backburner.http.schemas.models import model_of
from backburner.shapes import usage

UsageReport = model_of(usage.UsageReport)
CostView = model_of(usage.Costs)
QuoteView = model_of(usage.Quote)
