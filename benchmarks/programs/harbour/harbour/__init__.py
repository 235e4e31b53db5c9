"""A library for a port: it calls services, keeps books, learns. In some thirty places it keeps what it should let go.

Each such line ends with ``# LEAK`` and the name of the test that calls it. What looks alike and keeps nothing has no
mark. Nothing here knows of leaklab.
"""
