"""The offline embedding models: how they are made, and how they are run."""
