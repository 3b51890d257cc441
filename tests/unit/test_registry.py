"""The registry resolves names it was given, and explains those it was not."""

import pytest

from kernlib._registry import Api, Registry
from kernlib._registry import registry as global_registry
from kernlib._runtime import kernel_api
from kernlib.errors import RegistryError


def norm(x):
    return x


class Box:
    def run(self):
        return self


def test_an_api_is_found_by_package_and_name():
    registry = Registry()
    api = Api("norm", norm)
    registry.add(api)
    assert registry.get(norm.__module__.partition(".")[0], "norm") is api
    assert list(registry) == [api]


def test_an_unknown_name_of_a_known_package_lists_close_ones():
    registry = Registry()
    registry.add(Api("rms_norm", norm))
    package = norm.__module__.partition(".")[0]
    with pytest.raises(RegistryError, match="close: rms_norm"):
        registry.get(package, "rms_nrm")


def test_an_unknown_package_says_how_to_bring_it_in():
    with pytest.raises(RegistryError, match="--import os"):
        Registry().get("os", "system")


def test_two_modules_of_a_package_cannot_claim_one_name():
    registry = Registry()

    def twin(x):
        return x

    twin.__module__ = norm.__module__ + ".other"
    norm_api = Api("norm", norm)
    registry.add(norm_api)
    registry.add(norm_api)  # a module imported again
    if twin.__module__.partition(".")[0] == norm.__module__:
        with pytest.raises(RegistryError, match="another name"):
            registry.add(Api("norm", twin))


def test_the_class_of_a_method_is_found_in_its_own_module():
    api = Api("Box.run", Box.run, kind="method")
    assert api.owner == "Box"
    assert api.owner_class() is Box
    with pytest.raises(RegistryError, match="no class Missing"):
        Api("Missing.run", Box.run, kind="method").owner_class()


@pytest.mark.parametrize("field", ["outputs", "workspaces"])
def test_an_output_or_workspace_that_is_no_argument_is_refused(field):
    registry = Registry()
    with pytest.raises(RegistryError, match=f"{field} names 'y', but the function takes x"):
        registry.add(Api("norm", norm, **{field: ("x", "y")}))
    assert list(registry) == []
    with pytest.raises(RegistryError, match=r"names 'self\.pages'"):  # a function has no receiver
        registry.add(Api("norm", norm, **{field: ("self.pages",)}))


@pytest.mark.parametrize("field", ["outputs", "workspaces"])
def test_arguments_attributes_and_open_signatures_are_accepted(field):
    registry = Registry()
    registry.add(Api("norm", norm, **{field: ("x",)}))
    registry.add(Api("Box.run", Box.run, kind="method", **{field: ("self.scratch",)}))
    registry.add(Api("anything", lambda **named: named, **{field: ("scratch",)}))


@pytest.mark.parametrize("field", ["outputs", "workspaces"])
def test_the_decorator_refuses_a_name_that_the_function_does_not_have(field):
    with pytest.raises(RegistryError, match=f"{field} names 'scratch'"):
        kernel_api(**{field: ("scratch",)})(norm)


def test_the_decorator_hands_outputs_and_workspaces_to_the_registry():
    @kernel_api(outputs=("out",), workspaces=("scratch",))
    def scan(x, *, out=None, scratch=None):
        return x, out, scratch

    api = global_registry.get(scan.__module__.partition(".")[0], "scan")
    assert (api.outputs, api.workspaces) == (("out",), ("scratch",))
