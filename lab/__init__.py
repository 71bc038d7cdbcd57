"""The laboratory: benchmarks, the papers reproduced, and other libraries. Not installed; run from a checkout."""
