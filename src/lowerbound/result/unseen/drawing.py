"""Draws from the laws of a program, and the name of a site whose law has none."""

from __future__ import annotations

import sys

from numpyro.primitives import Messenger, default_process_message

from lowerbound.errors import NoDrawsError
from lowerbound.errors.wording import first_line
from lowerbound.model.density import strip
from lowerbound.model.program import WITHOUT_DRAWS, Message
from lowerbound.model.user_lines import user_line


class Named(Messenger):  # type: ignore[misc]
    """Draws what nobody has given a value; around all other handlers, so that it comes last."""

    def process_message(self, msg: Message) -> None:
        """Draw a site, or say which one cannot be drawn."""
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        try:
            default_process_message(msg)
        except WITHOUT_DRAWS as error:
            said = "" if isinstance(error, NotImplementedError) else first_line(error)
            law, line = type(strip(msg["fn"]).base).__name__, user_line(sys._getframe(1))
            raise NoDrawsError(msg["name"], law, line, said) from error
