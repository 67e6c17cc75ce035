"""Response models of usage and quotes."""

from backburner.http.schemas.models import model_of, page_of
from backburner.shapes import usage

UsageReport = model_of(usage.UsageReport)
CostView = model_of(usage.Costs)
ModelCallPage = page_of(
    usage.ModelCall, "ModelCallPage", "Model calls, in the order of their recording."
)
QuoteView = model_of(usage.Quote)
