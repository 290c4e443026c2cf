"""What all tabs share: mistakes become sentences on the page."""

import os
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

#: Events that read uploads or compute for seconds wait for each other, whoever started them.
SLOW: dict[str, Any] = {"concurrency_id": "slow", "concurrency_limit": 1}


def sentence(error: Exception) -> str:
    """What is wrong, on one line, without the directories in which uploads are kept.

    >>> os.environ["GRADIO_TEMP_DIR"] = "/tmp/page"
    >>> sentence(ValueError("/tmp/page/5f1a/cat.tif is damaged"))
    'cat.tif is damaged'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    folder = os.environ.get("GRADIO_TEMP_DIR", "")
    return re.sub(rf"{re.escape(folder)}/(?:[^/\s]+/)*", "", text) if folder else text


def guarded(function: Function) -> Function:
    """The function, but what its user did wrong is shown on the page."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        import gradio as gr

        try:
            return function(*arguments, **options)
        except (ValueError, OSError, OverflowError, MemoryError) as error:
            raise gr.Error(sentence(error), title="That did not work", print_exception=False) from error

    return cast(Function, call)
