"""Applications that ship with Backburner. They import its public modules only."""
