"""Models that ship with the package."""
