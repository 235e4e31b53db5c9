"""The alert rules and the dashboard that come with leaklab, as text."""

from __future__ import annotations

from pathlib import Path

_FILES = Path(__file__).parent / "files"


def alert_rules() -> str:
    """Return the alert rules for Prometheus, YAML: write them to a file and name it under ``rule_files``."""
    return (_FILES / "alerts.yml").read_text("utf-8")


def dashboard() -> str:
    """Return the dashboard for Grafana, JSON: import it; the first use asks which Prometheus to read."""
    return (_FILES / "dashboard.json").read_text("utf-8")
