"""Runs recorded calls again and says what happened."""
