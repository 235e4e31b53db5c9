"""Containers and objects of C code: a table has the memory of its objects, unless the figures say otherwise."""

from __future__ import annotations

import ctypes
import itertools
import lzma
import xml.etree.ElementTree as ET
import zlib

import pytest

import leaklab

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


@pytest.mark.untraced
@pytest.mark.parametrize("make", [zlib.compressobj, lambda: lzma.LZMACompressor(preset=0)])
def test_a_table_of_names_that_the_collector_does_not_list_has_the_memory_of_its_objects(make):
    streams: dict[str, object] = {}
    names = map("peer {}".format, itertools.count())

    def connect() -> None:
        streams[next(names)] = make()

    report = leaklab.leakcheck(connect, runs=24, cure=False, namespace={"streams": streams})
    (leak,) = report.leaks
    assert leak.holder == "streams"
    assert leak.bytes_per_run > 100_000


@pytest.mark.untraced
def test_memory_that_leaks_more_often_than_a_table_gets_longer_is_not_that_tables():
    streams: dict[str, list[object]] = {}
    numbers = itertools.count()

    def connect() -> None:
        number = next(numbers)
        libc.malloc(30_000)
        if number % 3 == 0:
            streams[f"peer {number}"] = [zlib.decompressobj()]

    report = leaklab.leakcheck(connect, runs=60, cure=False, namespace={"streams": streams})
    assert sorted(leak.what for leak in report.leaks) == ["list", "native memory (malloc)"]


def test_an_element_that_keeps_its_children_in_c_is_a_container_that_grows():
    root = ET.Element("feed")
    report = leaklab.leakcheck(
        lambda: ET.SubElement(root, "item"), runs=8, sites=False, cure=False, namespace={"root": root}
    )
    (leak,) = report.leaks
    assert (leak.holder, leak.cause) == ("root", "container-growth")
    assert "`root.clear()`" in leak.advice
