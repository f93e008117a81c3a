"""The public names of the package are those it lists."""

import rpc_server


def test_every_listed_name_can_be_imported() -> None:
    for name in rpc_server.__all__:
        assert getattr(rpc_server, name).__name__ == name


def test_every_listed_name_has_one_home() -> None:
    assert sorted(rpc_server._HOMES) == sorted(rpc_server.__all__)
