"""Constants: spec 01 §1."""

from __future__ import annotations

import pytest

from nodefeature import labels
from nodefeature.destinations import is_qualified_name


def test_every_constant_is_a_legal_key_or_a_prefix_of_one() -> None:
    for name, value in vars(labels).items():
        if name.isupper() and isinstance(value, str) and "/" in value:
            assert is_qualified_name(value if not value.endswith(("/", ".", "-")) else value + "x"), name
            assert value.startswith(
                ("kubernetes.io/", "app.kubernetes.io/", "feature.node.", "nfd.node.", "kueue.x-k8s.io/")
            ) or (value.partition("/")[0] + "/").endswith(labels.DOMAIN), name


@pytest.mark.parametrize(("value", "want"), [("true", True), ("True", False), ("false", False), ("", False)])
def test_managed_means_exactly_true(value: str, want: bool) -> None:
    assert labels.is_managed({labels.MANAGED: value}) is want
    assert not labels.is_managed({})


def test_pci_classes_and_marker() -> None:
    assert labels.PCI_CLASS_PREFIXES == ("02", "03", "0b", "12")
    assert labels.pci_present("10de") == "feature.node.kubernetes.io/pci-10de.present"
