"""The papers, reproduced: `python -m lab.papers`."""
