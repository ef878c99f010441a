"""Functions inside settings: written to a file by import path, `module:qualname`, and imported back from it.

Reading such a path imports and later calls the code it names, so a file that holds one deserves the trust of code.
"""

import importlib
from collections.abc import Callable
from functools import reduce
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from torch import Tensor

from portfolio_sdpo.errors import SettingsError


def import_function(path: str) -> Any:
    """The object behind `module:qualname`; a ValueError says why there is none."""
    module, colon, qualname = path.partition(":")
    if not (module and colon and qualname):
        raise ValueError("give the function itself or its import path 'module:name'")
    try:
        return reduce(getattr, qualname.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot be imported, {error}") from None


def import_path(function: Callable[..., Tensor]) -> str:
    """`module:qualname` of a function that another process can import; a SettingsError for a lambda or closure."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    path = f"{module}:{qualname}"
    # A function of a script or notebook lives in __main__, which is another module in the process that reads the file.
    if module not in (None, "__main__") and qualname is not None:
        try:
            if import_function(path) is function:
                return path
        except ValueError:
            pass
    raise SettingsError(
        f"function {qualname or function!r} cannot be written to a file because no import path leads to it, "
        "so define it with def at the top level of a module."
    )


def _import_if_named(value: Any) -> Any:
    return import_function(value) if isinstance(value, str) else value


ImportableFunction = Annotated[
    Callable[..., Tensor],
    BeforeValidator(_import_if_named),
    PlainSerializer(import_path, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "import path, module:name"}),
]
"""A function of tensors as a field of a settings object; only JSON needs it to have an import path."""
