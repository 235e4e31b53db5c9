"""Say which extra brings a package that is not there."""

from __future__ import annotations

import importlib

from leaklab.errors import MissingExtraError


def require_prometheus() -> None:
    """Raise `MissingExtraError` unless ``prometheus_client`` is installed."""
    _require("prometheus_client", "prometheus_client", "metrics")


def require_opentelemetry() -> None:
    """Raise `MissingExtraError` unless the API of OpenTelemetry is installed."""
    _require("opentelemetry.metrics", "opentelemetry-api", "otel")


def _require(module: str, package: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        msg = f"these metrics need {package}, which is not installed: pip install 'leaklab[{extra}]'"
        raise MissingExtraError(msg) from error
