"""``python -m lightning_dr``."""

from lightning_dr.cli import main

main()
