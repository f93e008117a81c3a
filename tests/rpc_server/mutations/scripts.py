"""Shell scripts of agents, good and hostile, each with its expected outcome."""
# ruff: noqa: E501  # a case is a line

from tests.rpc_server.mutations.patches import APPLIED, Case

_EDIT = "echo four >> notes/dos.txt"
_PWNED = 'echo pwned >> "$BESIDE/canary.txt"'

_WITH_ITS_REPOSITORY = (
    ("removes it", "rm -rf .git"),
    ("makes it a file", "rm -rf .git; echo x > .git"),
    ("makes it a file that names another", 'rm -rf .git; echo "gitdir: $PROJECT/.git" > .git'),
    ("makes it a link to the user's", 'rm -rf .git; ln -s "$PROJECT/.git" .git'),
    ("makes it a pipe", "rm -rf .git; mkfifo .git"),
    ("makes it unreadable", "chmod -R 000 .git"),
    ("commits", "git add --all; git commit --quiet -m mine"),
    ("loses its index", "rm .git/index"),
    ("hides a file from its index", "git update-index --assume-unchanged notes/dos.txt"),
    ("excludes everything", "mkdir -p .git/info; echo '*' > .git/info/exclude"),
    ("excludes everything by its configuration", "echo '*' > .git/all; git config core.excludesFile .git/all"),
    ("has a monitor", f"git config core.fsmonitor '{_PWNED}; echo'"),
    ("has a hook", f"mkdir -p .git/hooks; echo '{_PWNED}' > .git/hooks/post-index-change; chmod +x .git/hooks/*"),
    ("has hooks elsewhere", f"mkdir .git/h; echo '{_PWNED}' > .git/h/pre-commit; git config core.hooksPath .git/h"),
    ("has a filter", f"git config filter.evil.clean '{_PWNED}; cat'; echo '* filter=evil' > notes/.gitattributes"),
    ("has a process filter", f"git config filter.evil.process '{_PWNED}'; echo '* filter=evil' > .git/info-attributes"),
    ("has an external diff", f"git config diff.external '{_PWNED}'; git config diff.evil.textconv '{_PWNED}'"),
    ("works elsewhere", 'git config core.worktree "$BESIDE"'),
    ("is configured as bare", "git config core.bare true"),
    ("includes what is beside", 'git config include.path "$BESIDE/canary.txt"'),
    ("is sparse", "git config core.sparseCheckout true; mkdir -p .git/info; echo '!*' > .git/info/sparse-checkout"),
    ("replaces a commit", "git replace --graft HEAD HEAD || :"),
    ("borrows from elsewhere", 'echo "$BESIDE" > .git/objects/info/alternates'),
    ("has another working tree", "git worktree add --quiet ../other"),
    ("configures what it takes for the user's", f"git config --global core.fsmonitor '{_PWNED}'"),
    ("locks itself", "touch .git/index.lock .git/HEAD.lock"),
)

_ENDS_WELL = (
    ("edits a file", _EDIT),
    ("deletes a folder", "rm -r notes; rm inner"),
    ("makes a file executable", "chmod +x notes/dos.txt"),
    ("turns a file into a folder", "rm notes/dos.txt; mkdir notes/dos.txt; echo x > notes/dos.txt/x"),
    ("turns a file into a link", "rm notes/dos.txt; ln -s one.txt notes/dos.txt"),
    ("writes through a link", "echo more >> inner/one.txt"),
    ("adds a link to nowhere in it", "ln -s not/there notes/dangling"),
    (
        "adds a hard link",
        'ln "$BESIDE/canary.txt" notes/hard.txt 2>/dev/null || cp "$BESIDE/canary.txt" notes/hard.txt',
    ),
    ("keeps size and time of a file", "touch -r texts.py r; sed -i s/hello/howdy/ texts.py; touch -r r texts.py; rm r"),
    ("leaves logs and caches", f"{_EDIT}; echo x > x.log; mkdir -p cache __pycache__; echo x > cache/x"),
    ("leaves a pipe", f"{_EDIT}; mkfifo notes/pipe"),
    ("leaves a process", f"{_EDIT}; sleep 300 & setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 &"),
    ("leaves folders without permissions", f"{_EDIT}; mkdir -p a/b; chmod 000 a/b"),
    ("leaves what looks like a repository", "mkdir -p bare/objects bare/refs; echo 'ref: refs/heads/x' > bare/HEAD"),
    ("leaves a repository that is ignored", f"{_EDIT}; git init --quiet cache/other; echo x > cache/other/x"),
    (
        "nests a repository in a folder there was",
        "git init --quiet notes; git -C notes $WHO commit --quiet --allow-empty -m x; echo x > notes/x",
    ),
    (
        "has odd names",
        "echo x > '-rf'; echo x > '$(touch y)'; echo x > 'a b'; echo x > 'quo\"te'; echo x > 'back\\slash'",
    ),
    ("makes nothing of what is linked", f"{_EDIT}; test -e shared/file && rm shared"),
    ("finds no other repository", f'{_EDIT}; ! git -C .. rev-parse && test -z "$GIT_DIR$GIT_INDEX_FILE$GEPA_TOKEN"'),
    ("has the user's interpreter first", f'{_EDIT}; test "$(command -v python)" = "$PYTHON"'),
)

_NOT_KEPT = (
    ("links out by a relative path", "ln -s ../../../beside notes/out"),
    ("links into .git", "ln -s .git/config config"),
    ("links out through a link", "ln -s notes one; mkdir two; ln -s ../one/../../x two/three"),
    ("makes an old link lead out", "rm inner; mkdir inner; rm -r notes; ln -s ../.. notes"),
    ("nests a repository", "git init --quiet sub; cd sub; echo x > x; git add x; git $WHO commit --quiet -m x"),
    ("nests a repository with files, none committed", "git init --quiet sub; echo x > sub/x"),
    ("names the user's repository from a nested file", 'mkdir sub; echo "gitdir: $PROJECT/.git" > sub/.git; echo x > sub/x'),
    ("adds a submodule", "git -c protocol.file.allow=always submodule --quiet add ./ sub"),
    ("writes .gitmodules", "echo '[submodule \"x\"]' > .gitmodules"),
    ("changes what may not change", "echo x >> secrets/key.txt"),
    ("deletes what may not change", "rm -r secrets"),
    ("makes what may not change executable", "chmod +x secrets/key.txt"),
    ("adds a lock", "echo x > notes/deep.lock"),
    ("replaces what is linked", "rm shared; mkdir shared; echo x > shared/mine.txt"),
    ("has a name that is not UTF-8", "echo x > \"$(printf 'notes/\\377\\376.txt')\""),
    ("has a name of two lines", "echo x > \"$(printf 'notes/two\\nlines.txt')\""),
    ("has a path that is too long", "d=$(printf 'd%.0s' $(seq 200)); p=$d; for i in $(seq 12); do p=$p/$d; done; mkdir -p $p; echo x > $p/x"),
    ("leaves folders too deep for a path", f"{_EDIT}; python -c 'import os; [(os.mkdir(\"deeper\"), os.chdir(\"deeper\")) for _ in range(1200)]'"),
    ("makes a file a pipe", "rm notes/dos.txt; mkfifo notes/dos.txt"),
    ("makes a file a socket", "rm notes/dos.txt; python -c \"import socket; socket.socket(socket.AF_UNIX).bind('notes/dos.txt')\""),
    ("makes nonsense of the encoding", "echo '*.txt working-tree-encoding=UTF-16' > .gitattributes; echo odd >> notes/one.txt; printf a >> notes/dos.txt"),
    ("removes its folder", 'cd ..; rm -rf files'),
    ("makes its folder a link", 'cd ..; rm -rf files; ln -s "$PROJECT" files'),
)  # fmt: skip

_OTHERWISE = (
    Case("does nothing", ":", "empty"),
    Case("makes folders only", "for i in $(seq 300); do mkdir -p many/$i; done", "empty"),
    Case("writes ignored files only", "echo x > x.log; mkdir cache; echo x > cache/x", "empty"),
    Case("writes .GIT", "mkdir .GIT; echo x > .GIT/config", "empty"),
    Case("writes git~1", "mkdir git~1; echo x > git~1/config", "empty"),
    Case("writes .git with what is not seen", "mkdir \"$(printf '.g\\342\\200\\214it')\"; echo x > \"$(printf '.g\\342\\200\\214it')/config\"", "empty"),
    Case("commits nothing", "git commit --quiet --allow-empty -m x", "empty"),
    Case("fails", f"{_EDIT}; exit 1", "agent"),
    Case("breaks the program", "echo 'TEXTS = {' > texts.py", "start"),
    Case("removes everything", "rm -rf ./*", "paths"),
    Case("writes a huge file", "truncate -s 100G notes/huge.bin", "size"),
    Case("writes many files", "mkdir many; cd many; seq 1500 | xargs touch", "size"),
    Case("makes copies of a large file", "for i in 1 2 3 4; do cp notes/big.txt notes/big$i.txt; done", "size"),
    Case("hides a large change by attributes", "echo 'big.txt -diff' > notes/.gitattributes; cat notes/big.txt notes/big.txt notes/big.txt > b; cp b notes/big.txt; rm b", "size"),
)  # fmt: skip

SHORT_SCRIPTS = frozenset(
    (
        *("its .git: removes it", "its .git: makes it a link to the user's", "its .git: commits"),
        *("its .git: has a hook", "its .git: has a monitor", "its .git: has a filter", "its .git: works elsewhere"),
        *("its .git: hides a file from its index", "its .git: borrows from elsewhere", "leaves a process"),
        *("has odd names", "finds no other repository", "links out by a relative path", "links into .git"),
        *("nests a repository", "adds a submodule", "changes what may not change", "replaces what is linked"),
        *("makes a file a pipe", "makes its folder a link", "does nothing", "writes .GIT", "writes a huge file"),
        *("hides a large change by attributes", "turns a file into a folder"),
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
