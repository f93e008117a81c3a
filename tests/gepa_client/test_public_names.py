import subprocess
import sys

import gepa_client


def test_every_public_name_is_there_and_none_is_missing():
    for name in gepa_client.__all__:
        assert getattr(gepa_client, name).__name__ == name
    assert set(gepa_client.__all__) <= set(dir(gepa_client))
    assert sorted(gepa_client.__all__) == gepa_client.__all__


def test_the_adapter_and_its_reflection_import_no_model_library():
    code = (
        "import sys; from gepa_client import RemoteAdapter, ConcurrentReflection, ProgramReflection, LiteLLMModel; "
        "LiteLLMModel('openai/x'); print([*{'litellm', 'openai', 'modal', 'claude_agent_sdk'} & sys.modules.keys()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
