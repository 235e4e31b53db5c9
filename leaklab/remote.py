"""The function that workers of other engines (ipyparallel, Ray, Dask) run: check here, send the record home."""
