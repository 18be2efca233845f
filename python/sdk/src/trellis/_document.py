"""Federation documents as callers have them: a dict, YAML or JSON text, or a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from .errors import ConfigurationError

Document = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def text_of(document: Document) -> tuple[str, Optional[str]]:
    """The text to send, and the name of the federation where no YAML must be read for it."""
    if isinstance(document, Mapping):
        return json.dumps(document), _name(document)
    text = document if isinstance(document, str) and _is_text(document) else _read(Path(document))
    try:
        return text, _name(json.loads(text))
    except ValueError:
        return text, None


def _is_text(text: str) -> bool:
    """A document has several lines, or is an object of JSON or YAML; a file name is neither."""
    return "\n" in text or text.lstrip().startswith("{")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the document {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the document {path} is not text in UTF-8") from None


def _name(document: Any) -> Optional[str]:
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else None
