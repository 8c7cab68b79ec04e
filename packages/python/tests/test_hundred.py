"""A hundred tests, each with a server of its own and a definition in it."""

from typing import Any, Dict

import pytest

GROUP = "example.com"
DEFINITION: Dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}
                        },
                    }
                },
            }
        ],
    },
}
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"


@pytest.mark.parametrize("size", range(100))
def test_a_fresh_server_has_the_objects_of_one_test_only(keelson_server: Any, size: int) -> None:
    keelson_server.create_definition(DEFINITION)
    widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "one"}}
    keelson_server.request("POST", WIDGETS, {**widget, "spec": {"size": size}})
    found = keelson_server.request("GET", WIDGETS)["items"]
    assert [item["spec"]["size"] for item in found] == [size]
