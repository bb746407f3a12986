"""Where the built-in images of Instances come from (spec 05 §8.1, spec 07 image rule).

For: `instance_pod`. In: an image reference, and the settings `container-registry` and `container-namespace`.
Out: the reference to pull. Promises: pure; the first path segment is a registry when it has a `.` or a `:`, or is
`localhost`; tag and digest stay.
"""

from __future__ import annotations


def image_reference(image: str, *, registry: str, namespace: str) -> str:
    """Return `image` with its registry and its namespace (the first path segment) replaced where given."""
    head, slash, rest = image.partition("/")
    own_registry, path = (head, rest) if slash and _is_registry(head) else ("", image)
    if namespace:
        first, nested, last = path.partition("/")
        path = f"{namespace}/{last if nested else first}"
    host = registry.rstrip("/") or own_registry
    return f"{host}/{path}" if host else path


def _is_registry(segment: str) -> bool:
    return "." in segment or ":" in segment or segment == "localhost"
