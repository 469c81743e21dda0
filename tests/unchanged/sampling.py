"""The part of a golden table that the default tests compute."""

import hashlib


def is_sampled(key: tuple[str, ...], every: int) -> bool:
    """Whether the row of a key is in the sample of one row of ``every``.

    The hash of the key decides, so that a row which comes or goes leaves the sample of all others
    as it was.
    """
    digest = hashlib.sha256("\n".join(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") % every == 0
