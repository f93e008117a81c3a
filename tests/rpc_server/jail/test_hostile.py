"""A hostile program in a jail gets no files, processes or privileges of others."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from rpc_server.jail.jail import NICENESS, PROCESSES, TMP, TMP_BYTES, TMP_INODES, create_jails
from tests.rpc_server.jail.conftest import Server, is_there
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.worktrees.worktree_project import second

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def other(project: Project) -> str:
    """Another commit."""
    return second(project, {"other.txt": "x\n"})


async def test_it_sees_and_signals_no_process_but_its_own(server: Server) -> None:
    found = await server.found(
        "import os\n"
        "found = [open('/proc/%s/cmdline' % pid, 'rb').read().replace(b'\\0', b' ').decode()\n"
        "         for pid in os.listdir('/proc') if pid.isdigit()]\n"
        "for pid in range(2, 5000):\n"
        "    if not os.path.exists('/proc/%d' % pid):\n"
        "        try: os.kill(pid, 9)\n"
        "        except OSError: pass\n"
        f"try: os.kill({server.pid}, 9)\n"
        "except OSError: pass\n"
    )
    assert not [line for line in found if "--allow-mutations" in line]
    assert len(found) <= 5
    assert (await server.call("discover"))["program"]["name"] == "app"


@pytest.mark.parametrize("what", ["environ", "mem", "fd", "root"])
async def test_it_reads_nothing_of_the_servers_memory_descriptors_or_environment(server: Server, what: str) -> None:
    code = (
        "import os\n"
        f"path = '/proc/{server.pid}/{what}'\n"
        "try: found = os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)\n"
        "except OSError as error: found = error.errno\n"
    )
    assert await server.found(code) in (2, 3, 13)
    environment = await server.found("import os\nfound = dict(os.environ)")
    assert not {"GEPA_TOKEN", "GEPA_LISTEN"} & environment.keys()


async def test_it_does_not_read_the_servers_token(server: Server, project: Project) -> None:
    assert server.token
    code = f"try: found = open({str(project.folder / 'token')!r}).read()\nexcept OSError: found = ''"
    assert await server.found(code) == ""


async def test_no_process_without_privileges_reads_a_server_that_jails(server: Server) -> None:
    powerless = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--cap-drop", "ALL")  # root might read it
    script = f"head -c 1 /proc/self/environ >&2; head -c 1 /proc/{server.pid}/environ"
    process = await asyncio.create_subprocess_exec(*powerless, "sh", "-c", script, stdout=PIPE, stderr=PIPE)
    read, reported = await process.communicate()
    assert read == b""
    assert b"Permission denied" in reported


async def test_it_sees_no_other_commits_files_and_writes_to_none(server: Server, project: Project, other: str) -> None:
    there = "import os\nopen('mine', 'w').close()\nfound = os.getcwd()"
    theirs = Path(await server.found(there, git_branch=f"x@{other}"))
    own = Path(await server.found(there))
    assert (theirs / "mine").exists()
    assert own.parents[1] == theirs.parents[1]
    assert await server.found(f"import os\nfound = os.listdir({str(own.parents[1])!r})") == [own.parent.name]
    state = own.parents[3]
    assert state == project.folder.parent / "state" / "servers"
    assert await server.found(f"import os\nfound = os.listdir({str(own.parents[2])!r})") == ["trees"]


WRITES = [
    str(ROOT / "rpc_server" / "worker" / "main.py"),
    "/usr/hostile",
    "/dev/hostile",
    "/sys/kernel/hostile",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
]


@pytest.mark.parametrize("path", WRITES)
async def test_it_writes_to_nothing_of_the_machine(server: Server, path: str) -> None:
    there = is_there(path)
    code = f"try:\n    open({path!r}, 'a').write('x')\nexcept OSError as error: found = error.errno"
    assert await server.found(code) in (1, 2, 13, 30)
    assert is_there(path) == there


async def test_it_writes_nothing_to_the_repository_or_beside(server: Server, project: Project) -> None:
    before = project.digest()
    [lock] = (project.folder.parent / "state" / "servers").glob("*.lock")
    paths = [project.folder / ".git" / "hooks" / "post-commit", project.folder / ".git" / "config"]
    paths += [project.folder / "app.py", project.beside / "canary.txt", lock]
    code = (
        "found = []\n"
        f"for path in {[str(path) for path in paths]}:\n"
        "    try:\n        open(path, 'a').write('x')\n"
        "    except OSError: pass\n"
        "import os, shutil\n"
        "for way in (lambda: os.rename('..', '../../moved'), lambda: os.symlink('/', '../../link'),\n"
        f"            lambda: os.chmod('../..', 0o777), lambda: os.unlink({str(lock)!r})):\n"
        "    try:\n        way(); found.append(str(way))\n"
        "    except OSError: pass\n"
    )
    assert await server.found(code) == []
    assert project.digest() == before
    assert lock.read_bytes() == b""


async def test_its_tmp_is_its_own_and_bounded(server: Server, other: str, tmp_path: Path) -> None:
    code = (
        "import os, tempfile\n"
        "with tempfile.NamedTemporaryFile(delete=False) as file:\n"
        "    try: os.posix_fallocate(file.fileno(), 0, %d)\n"
        "    except OSError as error: full = error.errno\n"
        "shm = os.statvfs('/dev/shm')\n"
        "found = [file.name, full, shm.f_blocks * shm.f_frsize]"
    )
    name, full, shared = await server.found(code % (TMP_BYTES + 4096))
    assert (Path(name).parent, full) == (TMP, 28)  # no space left
    assert shared <= TMP_BYTES
    assert not is_there(name)
    assert await server.found(f"import os\nfound = os.path.exists({name!r})", git_branch=f"x@{other}") is False
    assert await server.found(f"import os\nfound = os.path.exists({str(tmp_path)!r})") is False


async def test_it_gets_no_privilege_and_no_namespace(server: Server) -> None:
    code = (
        "import ctypes, os, resource\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"tries = dict(ptrace=lambda: libc.ptrace(16, {server.pid}, 0, 0),\n"
        "    user=lambda: libc.unshare(0x10000000), mount=lambda: libc.unshare(0x20000),\n"
        "    remount=lambda: libc.mount(None, b'/', None, 32 | 4096, None), umount=lambda: libc.umount2(b'/tmp', 2),\n"
        "    tmpfs=lambda: libc.mount(b'x', os.getcwd().encode(), b'tmpfs', 0, None),\n"
        "    chroot=lambda: libc.chroot(b'.'), setuid=lambda: libc.setresuid(1, 1, 1),\n"
        "    uname=lambda: libc.sethostname(b'x', 1))\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "found = dict({name: one() for name, one in tries.items()}, caps=int(status['CapEff'], 16),\n"
        "    bounding=int(status['CapBnd'], 16), new=int(status['NoNewPrivs']))"
    )
    refused = ("ptrace", "user", "mount", "remount", "umount", "tmpfs", "chroot", "setuid", "uname")
    expected = {**dict.fromkeys(refused, -1), "caps": 0, "bounding": 0, "new": 1}
    assert await server.found(code) == expected


async def test_its_processes_and_files_are_bounded_and_it_is_killed_first_if_memory_is_short(server: Server) -> None:
    code = (
        "import os, resource\n"
        "found = [resource.getrlimit(resource.RLIMIT_NPROC), resource.getrlimit(resource.RLIMIT_CORE),\n"
        "         open('/proc/self/oom_score_adj').read().strip(), os.nice(0),\n"
        "         [os.statvfs(place).f_files for place in ('/tmp', '/dev/shm')]]"
    )
    processes, core, badness, niceness, files = await server.found(code)
    assert processes == [PROCESSES, PROCESSES]
    assert core == [0, 0]
    assert badness == "1000"
    assert niceness == min(19, os.nice(0) + NICENESS)
    assert files == [TMP_INODES, TMP_INODES]


async def test_a_jail_is_made_even_if_only_bubblewrap_may_create_namespaces() -> None:
    asked = ("/bin/echo", "--size", "1", "--tmpfs", "/tmp")  # noqa: S108
    alone = ("bwrap", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    launch = (sys.executable, "-I", "-S", str(ROOT / "rpc_server" / "jail" / "jail_tmp.py"), "50", "--", *asked)
    reported = []
    for command in ((*alone, *launch), launch):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        reported.append((await process.communicate())[0])
    assert reported == [b"--size 1 --tmpfs /tmp\n", b"--bind /dev/shm/tmp /tmp\n"]


async def test_no_descriptor_of_the_server_is_open_in_the_jail(server: Server) -> None:
    code = (
        "import os\n"
        "found = []\n"
        "for number in os.listdir('/proc/self/fd'):\n"
        "    try: found.append(os.readlink('/proc/self/fd/' + number).split(':')[0])\n"
        "    except OSError: pass\n"
    )
    found = await server.found(code)
    assert not [name for name in found if name not in ("pipe", "/dev/null") and not name.startswith("/proc/")]


async def test_a_hidden_folder_within_a_writable_one_stays_hidden(tmp_path: Path) -> None:
    (tmp_path / "hidden" / "secret").mkdir(parents=True)
    jail = create_jails().extend(hidden=[tmp_path / "hidden"]).jail(tmp_path)
    command = jail.wrap(("ls", str(tmp_path), str(tmp_path / "hidden")), folder=tmp_path, environment=os.environ)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    listed, _ = await process.communicate()
    assert listed.decode().split() == [f"{tmp_path}:", "hidden", f"{tmp_path}/hidden:"]
