"""The offline embedding models: their preparation and their use."""
