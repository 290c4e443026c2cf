"""Shared by all tabs: errors are shown on the page as messages."""

import os
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

#: Events that read uploads or compute for seconds run one at a time, across all sessions.
SLOW: dict[str, Any] = {"concurrency_id": "slow", "concurrency_limit": 1}


def sentence(error: Exception) -> str:
    """The message of an error on one line, without the directories of uploads.

    >>> os.environ["GRADIO_TEMP_DIR"] = "/tmp/page"
    >>> sentence(ValueError("/tmp/page/5f1a/cat.tif is damaged"))
    'cat.tif is damaged'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    folder = os.environ.get("GRADIO_TEMP_DIR", "")
    return re.sub(rf"{re.escape(folder)}/(?:[^/\s]+/)*", "", text) if folder else text


def guarded(function: Function) -> Function:
    """Wrap a function so that user errors are shown on the page."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        import gradio as gr

        try:
            return function(*arguments, **options)
        except (ValueError, OSError, OverflowError, MemoryError) as error:
            raise gr.Error(sentence(error), title="Error", print_exception=False) from error

    return cast(Function, call)
