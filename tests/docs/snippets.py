"""What runs each block of code in the pages, or why nothing can."""

RUN = {
    "tests/protocol/test_protocol_page.py": "docs/protocol.md: *",
    "tests/examples/test_demo.py": [
        "README.md: make demo     # optimize a small program; needs no key; half a minute the first time",
        "examples/tickets/README.md: $ make demo",
    ],
    "tests/examples/test_tickets_agree.py": [
        "examples/tickets/README.md: $ export GEPA_TOKEN=$(openssl rand -hex 16)",
        "examples/tickets/README.md: $ gepa-server --port 8002 --command node dist/serve.js --stdio",
    ],
    "tests/examples/test_tickets_learn.py": [
        "examples/tickets/README.md: $ gepa-client optimize http://127.0.0.1:8001 --config examples/tickets/run.toml --name python",
    ],
    "tests/docs/test_programs.py": [
        "README.md: # program.py",
        "README.md: // program.ts",
        "docs/quickstart.md: # with_openai.py",
        "docs/quickstart.md: # with_anthropic.py",
        "docs/guides/typescript.md: // program.ts",
        "docs/guides/typescript.md: // rules.ts",
        'docs/guides/typescript.md: import { loadCandidate } from "evolverpc";',
        "docs/guides/python.md: import evolverpc",
        "docs/guides/python.md: # rules.py",
        "docs/guides/python.md: import gepa",
        "docs/guides/python.md: def evaluator(candidate, example):",
        "docs/guides/sandboxes.md: import asyncio",
    ],
    "tests/docs/test_store_queries.py": [
        "docs/guides/long-runs.md: SELECT id, started, json_extract(best, '$.score') AS score, json_extract(best, '$.texts.\"qa.prompt\"') AS prompt",
        "docs/guides/long-runs.md: from pymongo import MongoClient",
    ],
    "tests/docs/test_commands.py": [
        "README.md: gepa-server --program program.py --port 8000 --token-file token --threads 16",
        "README.md: export OPENAI_API_KEY=...",
        "docs/quickstart.md: export OPENAI_API_KEY=...",
        "docs/quickstart.md: gepa-client check http://127.0.0.1:8000 --token-file token --trainset train.jsonl --reflection-lm openai/gpt-5",
        "docs/quickstart.md: gepa-client demo-model",
        "docs/quickstart.md: gepa-client optimize http://127.0.0.1:8000 --token-file token --trainset train.jsonl --valset val.jsonl \\",
        "docs/guides/long-runs.md: gepa-client runs",
        "docs/guides/long-runs.md: gepa-client show last                              # the candidates as a tree, their changes, outcomes and costs",
        "docs/guides/fleet.md: gepa-client optimize http://127.0.0.1:8000 http://127.0.0.1:8001 --trainset rows.jsonl --proposals 4x5 \\",
    ],
}
"""Test file -> the blocks that it runs; `*` stands for all of a page."""

NOT_RUN = {
    "README.md: npm init --yes && npm pkg set type=module && npm install PATH_TO_CLONE/clients/typescript openai && npm install --save-dev tsx": "downloads packages; `npm run pack-check` installs the package, and test_programs.py compiles and runs the program",
    "CONTRIBUTING.md: make setup": "the gates themselves run in what it makes",
    "CONTRIBUTING.md: make test                 # all gates; CI runs the same": "it runs this test",
    "docs/quickstart.md: make demo                                      # sets up .venv, and shows a run that needs no model": "tests/examples/test_demo.py runs the demo; the rest downloads packages",
    "clients/typescript/README.md: npm install PATH_TO_CLONE/clients/typescript": "`npm run pack-check` installs the package",
    'clients/typescript/README.md: import { serve } from "evolverpc";': "the same calls as the README's program, which runs",
    "clients/typescript/README.md: gepa-client optimize http://127.0.0.1:PORT --token-file FILE --trainset rows.jsonl --max-metric-calls 500 --reflection-lm openai/gpt-5": "the README's command, which runs",
    'clients/typescript/README.md: import { handler } from "evolverpc/web";': "one line for each of five runtimes; tests/handler.test.ts calls the handler",
    'clients/typescript/README.md: import { serveStdio } from "evolverpc";': "tests/stdio.test.ts serves a program so",
    "clients/typescript/README.md: gepa-server --command node program.js": "tests/examples/test_tickets_agree.py runs a Node program so",
    'clients/typescript/README.md: import { Overloaded, RpcClient } from "evolverpc";': "tests/client.test.ts makes the same calls",
    "examples/tickets/README.md: $ gepa-client optimize URL --trainset train.jsonl --valset val.jsonl --testset test.jsonl \\": "rows of the reader's own; run.toml has the same settings",
    "examples/repeats/README.md: $ export ANTHROPIC_API_KEY=...": "a paid model; tests/evolution runs the script with a scripted one",
    "docs/guides/dspy.md: gepa-server --kind dspy --program my_package.Program --metric my_package.metric --trainset-path train.jsonl --valset-path val.jsonl \\": "a package of the reader's own; tests/rpc_server/dspy serves such programs",
    "docs/guides/evolve-code.md: pip install '.[server,client,agent]'       # in the clone; [agent]: Claude, and uv for changed requirements": "a paid model; tests/evolution runs the server with the real agent and a scripted model",
    "docs/guides/evolve-code.md: gepa-client optimize http://127.0.0.1:8000 --token-file token --trainset rows.jsonl --evolve both \\": "a paid model; tests/evolution runs the commands with a scripted one",
    "docs/guides/evolve-code.md: export GEPA_TOKEN=$(cat token)": "a paid model; tests/evolution and tests/gepa_client make these mutations with a scripted one",
    "docs/guides/evolve-code.md: python examples/repeats/evolve.py python --reflection-lm anthropic/claude-sonnet-4-5": "a paid model; tests/evolution runs the script with a scripted one",
    "docs/guides/fleet.md: gepa-server --program program.py --host 0.0.0.0 --port 8000 --token-file token": "tests open no port to other machines; tests/rpc_server/cli/test_token.py holds the rule",
    "docs/guides/other-languages.md: gepa-server --command ./my-program --port 8000 --token-file token": "a program of the reader's own; tests/conformance serves one over stdio",
    "docs/guides/other-languages.md: gepa-client conformance http://127.0.0.1:8000 --token-file token": "tests/conformance runs the suite against four servers",
    "docs/guides/python.md: gepa-server --program program.py --port 8000 --token-file token": "the first line runs in test_commands.py; the second has a package of the reader's own",
    "docs/guides/python.md: gepa-server --adapter package.module:Class --port 8000 --token-file token": "a class of the reader's own; tests/rpc_server/program/test_adapters.py serves such classes",
    "docs/guides/python.md: gepa-client optimize http://127.0.0.1:8000 --score-with http://127.0.0.1:8001 --trainset rows.jsonl --max-metric-calls 500 \\": "tests/gepa_client holds scoring by another server",
    "docs/guides/sandboxes.md: pip install '.[server,client,sandbox]'     # in the clone; [agent] too if code evolves; and bubblewrap: apt install bubblewrap": "a repository of the reader's own and a paid model; `make demo-sandbox` and tests/sandbox_runtime run such sandboxes",
    "docs/guides/sandboxes.md: gepa-client sandboxes --publish --sandbox modal --repo https://github.com/you/program": "needs an account at Modal; tests/support/modal_cloud runs it if there is one",
    "docs/guides/typescript.md: npm init --yes && npm pkg set type=module && npm install PATH_TO_CLONE/clients/typescript openai && npm install --save-dev tsx": "downloads packages; `npm run pack-check` installs the package",
    "docs/guides/typescript.md: npx tsx program.ts": "test_programs.py compiles and runs the program",
    "docs/guides/typescript.md: gepa-client optimize http://127.0.0.1:PORT --token-file FILE --trainset rows.jsonl --max-metric-calls 300 --reflection-lm openai/gpt-5": "the README's command, which runs",
}
"""Block -> why no test runs it, and what holds its content."""
