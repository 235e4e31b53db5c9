"""STAGE 4: text, tables, plots, graphs, one HTML file. Reads records only."""
