"""A clock that counts work in place of time: every call of one method takes a second."""

from typing import Any


class WorkClock:
    """Seconds are calls of the function ``name`` of the class or module ``owner``, which works as
    before.
    """

    def __init__(self, monkeypatch: Any, owner: Any, name: str) -> None:
        self.seconds = 0
        worked = getattr(owner, name)

        def counted(*arguments: Any, **settings: Any) -> Any:
            self.seconds += 1
            return worked(*arguments, **settings)

        monkeypatch.setattr(owner, name, counted)

    def __call__(self) -> float:
        """The seconds so far."""
        return float(self.seconds)
