"""STAGE 4: text, tables, plots, graphs, one HTML file. Reads records only."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "alive_text": "render_alive told",
        "answer_html": "AutogradGraph render_alive_html",
        "autograd_text": "details headline",
        "back_graph": "MAX_BOXES graph_of_alive graph_of_leak objgraph_dot",
        "base": "Displayed check_target",
        "check_html": "render_html render_page",
        "check_text": "render_text",
        "cuda_html": "tree_markup",
        "cuda_plots": "plot_icicle",
        "cuda_text": "tree_lines",
        "dot": "BackReferenceGraph PathGraph back_graph_dot lines path_graph",
        "drawing": "draw_svg",
        "heap_snapshot_file": "load_heap_snapshot save_heap_snapshot",
        "json": "embedded find_embedded from_json read_record redacted to_json",
        "notebook_export": "SCRIPT render_collection render_markdown with_classes without_tooltips",
        "pdf": "print_pdf require_browser",
        "plots": "plot_alt plot_growth plot_png",
        "sparkline": "draw_levels",
        "tables": "container_table leak_table leaks_csv object_table run_table tensor_table",
        "templates": "page",
        "words": "CAUSES SECOND_CAUSES amount_words numbers_words render_path retained_words suspect_references",
    },
)
