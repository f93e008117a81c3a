"""Shell scripts of agents, good and hostile, each with its expected outcome."""
# ruff: noqa: E501  # a case is a line

from tests.rpc_server.mutations.patches import APPLIED, Case

_EDIT = "echo four >> notes/dos.txt"
_PWNED = 'echo pwned >> "$BESIDE/canary.txt"'

_WITH_ITS_REPOSITORY = (
    ("removes it", "rm -rf .git"),
    ("makes it a file that names another", 'rm -rf .git; echo "gitdir: $PROJECT/.git" > .git'),
    ("makes it a link to the user's", 'rm -rf .git; ln -s "$PROJECT/.git" .git'),
    ("commits", "git add --all; git commit --quiet -m mine"),
    ("loses its index", "rm .git/index"),
    ("hides a file from its index", "git update-index --assume-unchanged notes/dos.txt"),
    ("has a monitor", f"git config core.fsmonitor '{_PWNED}; echo'"),
    ("has a hook", f"mkdir -p .git/hooks; echo '{_PWNED}' > .git/hooks/post-index-change; chmod +x .git/hooks/*"),
    ("has a filter", f"git config filter.evil.clean '{_PWNED}; cat'; echo '* filter=evil' > notes/.gitattributes"),
    ("works elsewhere", 'git config core.worktree "$BESIDE"'),
    ("borrows from elsewhere", 'echo "$BESIDE" > .git/objects/info/alternates'),
    ("configures what it takes for the user's", f"git config --global core.fsmonitor '{_PWNED}'"),
)

_ENDS_WELL = (
    ("edits a file", _EDIT),
    ("deletes a folder", "rm -r notes; rm inner"),
    ("turns a file into a link", "rm notes/dos.txt; ln -s one.txt notes/dos.txt"),
    ("leaves logs and caches", f"{_EDIT}; echo x > x.log; mkdir -p cache __pycache__; echo x > cache/x"),
    ("leaves a process", f"{_EDIT}; sleep 300 & setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 &"),
    (
        "has odd names",
        "echo x > '-rf'; echo x > '$(touch y)'; echo x > 'a b'; echo x > 'quo\"te'; echo x > 'back\\slash'",
    ),
    ("finds no other repository", f'{_EDIT}; ! git -C .. rev-parse && test -z "$GIT_DIR$GIT_INDEX_FILE$GEPA_TOKEN"'),
)

_NOT_KEPT = (
    ("links out by a relative path", "ln -s ../../../beside notes/out"),
    ("links into .git", "ln -s .git/config config"),
    ("links out through a link", "ln -s notes one; mkdir two; ln -s ../one/../../x two/three"),
    ("nests a repository", "git init --quiet sub; cd sub; echo x > x; git add x; git $WHO commit --quiet -m x"),
    ("adds a submodule", "git -c protocol.file.allow=always submodule --quiet add ./ sub"),
    ("changes what may not change", "echo x >> secrets/key.txt"),
    ("replaces what is linked", "rm shared; mkdir shared; echo x > shared/mine.txt"),
    ("has a name of two lines", "echo x > \"$(printf 'notes/two\\nlines.txt')\""),
    ("makes a file a pipe", "rm notes/dos.txt; mkfifo notes/dos.txt"),
    ("makes its folder a link", 'cd ..; rm -rf files; ln -s "$PROJECT" files'),
)  # fmt: skip

_OTHERWISE = (
    Case("does nothing", ":", "empty"),
    Case("writes .GIT", "mkdir .GIT; echo x > .GIT/config", "empty"),
    Case("fails", f"{_EDIT}; exit 1", "agent"),
    Case("breaks the program", "echo 'TEXTS = {' > texts.py", "start"),
    Case("removes everything", "rm -rf ./*", "paths"),
    Case("writes a huge file", "truncate -s 100G notes/huge.bin", "size"),
    Case("hides a large change by attributes", "echo 'big.txt -diff' > notes/.gitattributes; cat notes/big.txt notes/big.txt notes/big.txt > b; cp b notes/big.txt; rm b", "size"),
)  # fmt: skip

SHORT_SCRIPTS = frozenset(
    (
        *(
            "its .git: removes it",
            "its .git: makes it a link to the user's",
            "its .git: commits",
            "its .git: has a hook",
        ),
        *(
            "its .git: has a monitor",
            "its .git: has a filter",
            "its .git: works elsewhere",
            "its .git: loses its index",
        ),
        *("its .git: hides a file from its index", "its .git: borrows from elsewhere"),
        *("edits a file", "deletes a folder", "turns a file into a link", "leaves a process", "has odd names"),
        *("finds no other repository", "links out by a relative path", "links out through a link", "links into .git"),
        *("nests a repository", "adds a submodule", "changes what may not change", "replaces what is linked"),
        *("has a name of two lines", "makes a file a pipe", "makes its folder a link", "does nothing", "writes .GIT"),
        *("fails", "breaks the program", "removes everything", "writes a huge file"),
        "hides a large change by attributes",
    )
)
"""What is run by `make test`."""

SCRIPTS = (
    *(Case(f"its .git: {about}", f"{_EDIT}; {script}", APPLIED) for about, script in _WITH_ITS_REPOSITORY),
    *(Case(about, script, APPLIED) for about, script in _ENDS_WELL),
    *(Case(about, script, "paths") for about, script in _NOT_KEPT),
    *_OTHERWISE,
)
"""For the same project as the patches. `$PROJECT` is the user's repository, `$BESIDE` the folder beside it."""
