"""Tracing was set up for a test: the exporter in memory keeps every finished span."""

SOURCE = "open-telemetry/opentelemetry-python#5281"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "ReadableSpan",
    "holder": "_finished_spans",
    "holders_ok": ["exporter", "finished"],
    "bytes_per_run": 5420,
    "count_per_run": 2,
    "fix": "exporter.clear(), or an exporter that sends",
}
SETUP = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer('training')
"""
CELL = """
with tracer.start_as_current_span('epoch') as span:
    span.set_attribute('batch', 32)
    with tracer.start_as_current_span('forward'):
        value = sum(range(10))
"""
FIXED_CELL = """
with tracer.start_as_current_span('epoch') as span:
    span.set_attribute('batch', 32)
    with tracer.start_as_current_span('forward'):
        value = sum(range(10))
exporter.clear()
"""
