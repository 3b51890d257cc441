"""A flight recorder and crash lab around a JIT-compiled kernel library."""
