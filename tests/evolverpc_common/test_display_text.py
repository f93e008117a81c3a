"""Text that others wrote is safe to show."""

import json

from evolverpc_common.display_text import one_line, plain, plain_json


def test_plain_text_keeps_letters_of_every_script_and_shows_what_a_terminal_would_obey() -> None:
    assert plain("Grüße 你好\n\tx") == "Grüße 你好\n\tx"
    assert plain("\x1b]0;x\x07\r\u2028") == "\\u001b]0;x\\u0007\\u000d\\u2028"
    assert json.loads(f'"{plain(chr(0x9B))}"') == "\x9b"
    assert one_line("a\n  b " + "c" * 100, 10) == "a b ccccc…"


def test_json_text_shows_the_same_characters_as_escapes_and_parses_to_the_same_value() -> None:
    value = "Grüße \x7f\x85\x9b\u202e\U000e0041 \ud800"
    text = plain_json(json.dumps({value: value}, ensure_ascii=False, indent=2))
    assert json.loads(text) == {value: value}
    assert "Grüße" in text
    assert not any(character in text for character in "\x7f\x85\x9b\u202e\U000e0041\ud800")
