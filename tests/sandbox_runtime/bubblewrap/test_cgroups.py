from pathlib import Path

from sandbox_runtime import ResourceLimits
from sandbox_runtime.backends.bubblewrap.cgroups import find_control_groups, process_limits, server_variables

LIMITS = ResourceLimits(cpu=1.5, memory_mb=256, workspace_mb=64, processes=50, lifetime_s=100.0)


def machine(root: Path, mounts: str, own: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    return root


def delegated(folder: Path, controllers: str, enabled: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("")
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(enabled)


def test_in_version_1_each_controller_has_its_own_hierarchy(tmp_path: Path) -> None:
    mounts = "".join(f"cgroup /cg/{name} cgroup rw,{name} 0 0\n" for name in ("memory", "pids", "cpu,cpuacct"))
    root = machine(tmp_path, mounts, "3:memory:/own\n2:pids:/\n1:cpu,cpuacct:/elsewhere\n")
    for folder in ("memory/own", "pids", "cpu,cpuacct"):
        (root / "cg" / folder).mkdir(parents=True)
    groups = find_control_groups(root)
    assert groups.version == 1
    assert groups.missing_controllers == []
    group = groups.make("one", LIMITS)
    assert group.folders == tuple(root / "cg" / name / "one" for name in ("memory/own", "pids", "cpu,cpuacct"))
    assert (root / "cg/memory/own/one/memory.limit_in_bytes").read_text() == str(256 * 2**20)
    assert (root / "cg/pids/one/pids.max").read_text() == "117"
    assert (root / "cg/cpu,cpuacct/one/cpu.cfs_quota_us").read_text() == "150000"


def test_in_version_2_the_nearest_group_that_may_be_divided_is_taken(tmp_path: Path) -> None:
    root = machine(tmp_path, "cgroup2 /cg cgroup2 rw 0 0\n", "0::/user/app/own\n")
    delegated(root / "cg/user/app", "memory pids", "memory pids")
    delegated(root / "cg/user/app/own", "", "")
    delegated(root / "cg", "memory pids cpu", "memory pids cpu")
    groups = find_control_groups(root)
    assert (groups.version, groups.missing_controllers) == (2, ["cpu"])
    group = groups.make("one", LIMITS)
    assert group.folders == (root / "cg/user/app/one",)
    assert (group.folders[0] / "memory.max").read_text() == str(256 * 2**20)
    assert (group.folders[0] / "pids.max").read_text() == "117"
    assert not (group.folders[0] / "cpu.max").exists()


def test_without_a_writable_group_every_controller_is_missing(tmp_path: Path) -> None:
    root = machine(tmp_path, "proc /proc proc rw 0 0\n", "0::/\n")
    assert find_control_groups(root).missing_controllers == ["memory", "pids", "cpu"]
    assert process_limits(LIMITS, find_control_groups(root).missing_controllers, server=True)["CPU"] == 150
    assert "CPU" not in process_limits(LIMITS, [], server=False)


def test_without_a_memory_group_commands_and_jails_have_a_limit_and_the_server_has_none() -> None:
    assert process_limits(LIMITS, ["memory"], server=False)["DATA"] == 256 * 2**20
    assert "DATA" not in process_limits(LIMITS, ["memory"], server=True)
    assert server_variables(LIMITS, ["memory"]) == {"GEPA_PROCESS_MEMORY_MB": "256"}
    assert "DATA" not in process_limits(LIMITS, [], server=False)
    assert server_variables(LIMITS, []) == {}
