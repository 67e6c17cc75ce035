"""What Backburner does in a second, measured beside its peers in one run."""
