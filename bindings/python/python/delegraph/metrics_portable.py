"""Counters of LiteRT, under its name. Nothing is counted or sent."""

from __future__ import annotations

from typing import Any, Optional


class TFLiteMetrics:
    """Counts nothing."""

    def __init__(self, model_hash: Optional[str] = None, model_path: Optional[str] = None) -> None:
        del model_hash, model_path

    def increase_counter_interpreter_creation(self) -> None:
        """Called once per interpreter."""

    def increase_counter_debugger_creation(self) -> None: ...

    def increase_counter_converter_attempt(self) -> None: ...

    def increase_counter_converter_success(self) -> None: ...

    def set_converter_param(self, name: str, value: Any) -> None: ...

    def set_converter_error(self, error_data: Any) -> None: ...

    def set_converter_latency(self, value: Any) -> None: ...
