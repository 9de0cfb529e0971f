"""From a method to what runs it: programs that are rewritten first, sites summed out first."""
