"""Services that combine the domain's decisions with the ports."""
