"""Cures: the changes that would end a leak (`candidates`), tried in memory and measured before they are told."""
