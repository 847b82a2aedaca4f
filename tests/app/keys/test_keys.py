"""API keys: what is kept of them, who finds them, and the command that makes and withdraws them."""

import json
import logging
import stat
import threading
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.keys.key_file import Keys
from app.keys.opening import Opening, is_local
from app.keys.visits import MINUTE, SESSION_SECONDS, Limits, Sessions, TooManyRequests
from app.settings import Settings


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.json")


def everything(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class TestLaws:
    def test_only_the_key_itself_is_found(self, keys: Keys) -> None:
        made = keys.add("anna")
        assert keys.find(made).name == "anna"
        digest = keys.all()[0].digest
        for wrong in ("", made[:-1], f"{made} ", made.upper(), digest, "anna", "é", "\udcff", "\0"):
            assert keys.find(wrong) is None

    def test_nothing_that_is_kept_or_shown_has_a_key(self, keys: Keys, tmp_path: Path) -> None:
        made = [keys.add(name) for name in ("anna", "ben")]
        keys.remove("ben")
        shown = everything(tmp_path) + repr(keys.all()).encode()
        assert [key for key in made if key.encode() in shown] == []
        assert keys.all()[0].digest not in repr(keys.all())

    def test_the_file_is_the_owners_alone_also_after_a_change(self, tmp_path: Path) -> None:
        file = tmp_path / "keys.json"
        file.write_text("[]")  # by a careless hand
        file.chmod(0o666)
        file.with_name("keys.json.new").touch(0o666)  # of a command that was killed
        for change in (lambda: Keys(file).add("anna"), lambda: Keys(file).remove("anna")):
            change()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "keys.json.lock"]

    def test_a_server_sees_what_a_command_did(self, keys: Keys, tmp_path: Path) -> None:
        other = Keys(tmp_path / "keys.json")
        for _ in range(20):  # also within one tick of the clock
            made = other.add("anna")
            key = keys.find(made)
            assert keys.holds(key)
            other.remove("anna")
            assert not keys.holds(key)
            assert keys.find(made) is None

    def test_a_new_key_of_the_same_name_is_another(self, keys: Keys) -> None:
        old = keys.find(keys.add("anna"))
        keys.remove("anna")
        new = keys.find(keys.add("anna"))
        assert not keys.holds(old)
        assert keys.holds(new)

    def test_commands_at_the_same_time_lose_no_key(self, tmp_path: Path) -> None:
        names = [f"key-{number}" for number in range(12)]
        threads = [
            threading.Thread(target=lambda name=name: Keys(tmp_path / "keys.json").add(name))
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(key.name for key in Keys(tmp_path / "keys.json").all()) == sorted(names)

    @pytest.mark.parametrize("text", ["", "{", '[{"name": "anna"}]', '"x"', "\0"])
    def test_a_damaged_file_lets_nobody_in(
        self, keys: Keys, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = keys.add("anna")
        key = keys.find(made)
        (tmp_path / "keys.json").write_text(text)
        with caplog.at_level(logging.ERROR):
            assert keys.find(made) is None
            assert not keys.holds(key)
        assert caplog.text.count("no key is accepted") == 1  # not at every request
        with pytest.raises(SettingsError, match=r"keys\.json"):
            Keys(tmp_path / "keys.json").all()
        with pytest.raises(SettingsError, match=r"keys\.json"):
            Keys(tmp_path / "keys.json").add("ben")
        assert (tmp_path / "keys.json").read_text() == text


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestVisits:
    def test_sessions_are_known_by_their_token_until_they_end(self, keys: Keys) -> None:
        clock = Clock()
        sessions, key = Sessions(clock), keys.find(keys.add("anna"))
        one, other = sessions.begin(key), sessions.begin(key)
        assert one != other
        assert sessions.key(one) is sessions.key(other) is key
        assert sessions.key("") is sessions.key(one[:-1]) is None
        sessions.end(one)
        assert (sessions.key(one), sessions.key(other)) == (None, key)
        clock.now += SESSION_SECONDS - 1
        assert sessions.key(other) is key
        clock.now += SESSION_SECONDS - 1  # it was used meanwhile
        assert sessions.key(other) is key
        clock.now += SESSION_SECONDS + 1
        assert sessions.key(other) is None

    def test_limits_are_each_keys_own_and_say_when_to_come_again(self, keys: Keys) -> None:
        clock = Clock()
        limits = Limits(clock)
        anna = keys.find(keys.add("anna", at_a_time=2, per_minute=3))
        ben = keys.find(keys.add("ben"))
        with limits.request(anna), limits.request(anna):
            with pytest.raises(TooManyRequests, match="2 requests at a time") as refused:
                limits.request(anna).__enter__()
            assert refused.value.seconds == 1
            for _ in range(50):
                limits.request(ben).__enter__()
        clock.now += 20
        with limits.request(anna):
            pass
        with pytest.raises(TooManyRequests, match="3 requests per minute") as refused:
            limits.request(anna).__enter__()
        assert refused.value.seconds == MINUTE - 20
        clock.now += refused.value.seconds
        for _ in range(2):
            with limits.request(anna):
                pass


class TestOpening:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "::1", "localhost"])
    def test_addresses_of_this_machine_ask_for_no_key(self, host: str, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path)
        assert is_local(host)
        assert Opening.of(host, settings) == Opening(local=True, keys=None, tls=None)
        Keys(settings.keys_file).add("anna")  # that there is one changes nothing
        assert Opening.of(host, settings).keys is None

    @pytest.mark.parametrize(
        "host", ["0.0.0.0", "::", "192.168.0.5", "example.com", "", "::ffff:1.2.3.4"]
    )
    def test_addresses_that_others_reach_need_one(self, host: str, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path)
        with pytest.raises(SettingsError, match="slipstream keys add NAME"):
            Opening.of(host, settings)
        made = Keys(settings.keys_file).add("anna")
        opening = Opening.of(host, settings)
        assert opening.keys.find(made).name == "anna"
        assert "--tls-cert" in opening.warning

    def test_a_setting_asks_for_one_here_too(self, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path, require_key=True)
        with pytest.raises(SettingsError, match="require_key is set"):
            Opening.of("127.0.0.1", settings)
        made = Keys(settings.keys_file).add("anna")
        opening = Opening.of("127.0.0.1", settings)
        assert opening.keys.find(made)
        assert opening.warning == ""


class TestCommand:
    def test_a_key_is_printed_once_alone_and_never_again(self, slipstream, home: Path) -> None:
        code, made, told = slipstream(
            "keys", "add", "anna", "--at-a-time", "2", "--per-minute", "60"
        )
        assert code == 0
        assert len(made.splitlines()) == 1
        assert made.startswith("sk-")
        assert "not shown again" in told
        code, listed, _ = slipstream("keys", "list")
        assert code == 0
        assert listed.split()[:2] == ["anna", "made"]
        assert listed.strip().endswith(", 2 at a time, 60 per minute")
        [row] = json.loads(slipstream("keys", "list", "--json")[1])
        assert (row["name"], row["at_a_time"], row["per_minute"]) == ("anna", 2, 60)
        assert "digest" not in row
        assert Keys(home / "keys.json").find(made.strip()).name == "anna"
        assert made.strip().encode() not in everything(home)

    def test_removal_says_what_becomes_of_the_conversations(self, slipstream, refused) -> None:
        slipstream("keys", "add", "anna")
        assert "did you mean 'anna'" in refused("keys", "remove", "ana")
        code, out, _ = slipstream("keys", "remove", "anna")
        assert (code, "conversations are kept" in out) == (0, True)
        code, out, told = slipstream("keys", "list")
        assert (code, out) == (0, "")
        assert "slipstream keys add NAME" in told

    def test_names_are_names_and_are_taken_once(self, slipstream, refused) -> None:
        slipstream("keys", "add", "anna")
        assert "already" in refused("keys", "add", "anna")
        for name in ("", "a b", "a" * 65, "a\nb", "<b>"):
            assert "no name for a key" in refused("keys", "add", name)
