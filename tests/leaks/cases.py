"""All cases by name."""

from __future__ import annotations

from clean_cases import CLEAN_CASES
from container_cases import CONTAINER_CASES
from holder_cases import HOLDER_CASES
from immortal_cases import IMMORTAL_CASES
from leak_case import Case
from life_cases import LIFE_CASES
from tensor_cases import TENSOR_CASES

CASES: dict[str, Case] = {
    case.name: case
    for case in (*TENSOR_CASES, *CONTAINER_CASES, *HOLDER_CASES, *LIFE_CASES, *IMMORTAL_CASES, *CLEAN_CASES)
}
