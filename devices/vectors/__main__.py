"""Renews `devices/vectors/*.json`."""

from devices.vectors.vectors import VECTORS, files

if __name__ == "__main__":
    for name, text in files().items():
        (VECTORS / name).write_text(text, encoding="utf-8")
