"""Valid settings are accepted, invalid settings are rejected with a one-line error, and no secret is ever shown."""

import copy
import os
import pickle
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from ldpstream.runtime.redis_url import RedisUrl, parse_redis_url
from ldpstream.runtime.settings import Settings, SettingsError, load_settings
from tests.services.certificates import Authority

SECRET = "s3cr3t-Wort"
SASL = {"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_USER": "agent", "KAFKA_PASSWORD": SECRET}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("LDPSTREAM_"):
            monkeypatch.delenv(name)


def load(monkeypatch: pytest.MonkeyPatch, **environment: object) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(f"LDPSTREAM_{name}", str(value))
    return load_settings()


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: object) -> str:
    """The one-line error for this environment. Neither the error nor the traceback contains the secret."""
    with pytest.raises(SettingsError) as caught:
        load(monkeypatch, **environment)
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- URLs of Redis


@pytest.mark.parametrize(
    ("url", "means"),
    [
        ("redis://one", RedisUrl("one")),
        ("redis://one:7/3", RedisUrl("one", 7, db=3)),
        ("rediss://a:b@one.two-three:7/", RedisUrl("one.two-three", 7, tls=True, user="a", password=SecretStr("b"))),
        ("redis://:b%40%3A%2F@my_redis", RedisUrl("my_redis", password=SecretStr("b@:/"))),
        ("redis://[::1]:7", RedisUrl("::1", 7)),
        ("redis://agent@one", RedisUrl("one", user="agent")),
    ],
)
def test_redis_urls_are_parsed(url: str, means: RedisUrl) -> None:
    assert parse_redis_url(url) == means


@pytest.mark.parametrize(
    "url",
    [
        "", "one", "http://one", "redis:/one", "redis://", "redis:///0", "redis://one:port", "redis://one:0", "redis://one:65536",
        "redis://one/zero", "redis://one/-1", "redis://one,two", "redis://one/0?ssl_cert_reqs=none", "redis://one/0#x",
        "redis://one two", "redis://a..b", "unix:///run/redis.sock", "redis+sentinel://one/x",
        f"redis://user:{SECRET}/@one", f"redis://user:{SECRET}@one:port", f"redis://user:{SECRET}@one@two:x",
    ],
)  # fmt: skip
def test_other_urls_are_rejected_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, REDIS=url).startswith("LDPSTREAM_REDIS: ")
    with pytest.raises(ValidationError) as caught:
        Settings(redis=url)
    assert SECRET not in str(caught.value) + repr(caught.value)


# ---- settings that depend on each other


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL"}, "LDPSTREAM_KAFKA_SECURITY_PROTOCOL: Input should be 'PLAINTEXT', 'SSL', "),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "LDPSTREAM_KAFKA_SECURITY_PROTOCOL=SASL_SSL needs LDPSTREAM_KAFKA_USER and "),
        (SASL | {"KAFKA_USER": ""}, "LDPSTREAM_KAFKA_USER: String should have at least 1 character"),
        (SASL | {"KAFKA_PASSWORD": ""}, "LDPSTREAM_KAFKA_PASSWORD: Value should have at least 1 item"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_PASSWORD": SECRET},
            "LDPSTREAM_KAFKA_SECURITY_PROTOCOL=SASL_SSL needs ",
        ),
        ({"KAFKA_PASSWORD": SECRET}, "LDPSTREAM_KAFKA_PASSWORD has no effect with LDPSTREAM_KAFKA_SECURITY_PROTOCOL=PLAINTEXT"),
        ({"KAFKA_USER": "me"}, "LDPSTREAM_KAFKA_USER has no effect with "),
        (SASL | {"KAFKA_SASL_MECHANISM": "GSSAPI"}, "LDPSTREAM_KAFKA_SASL_MECHANISM: Input should be 'SCRAM-SHA-512', "),
        ({"KAFKA_CA_FILE": "/nowhere/ca.pem"}, "LDPSTREAM_KAFKA_CA_FILE: the file cannot be read: No such file"),
        ({"KAFKA_CA_FILE": __file__}, "LDPSTREAM_KAFKA_CA_FILE has no effect with LDPSTREAM_KAFKA_SECURITY_PROTOCOL=PLAINTEXT"),
        (SASL | {"KAFKA_CA_FILE": __file__}, "LDPSTREAM_KAFKA_CA_FILE has no effect with "),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_CA_FILE": __file__},
            f"LDPSTREAM_KAFKA_*_FILE: must be certificates and their key (PEM, not encrypted), got {__file__}",
        ),
        (
            {"REDIS_CA_FILE": __file__},
            "LDPSTREAM_REDIS_CA_FILE has no effect with a URL in LDPSTREAM_REDIS that does not begin",
        ),
        ({"KAFKA_PASSWORD_FILE": "/nowhere/password"}, "LDPSTREAM_KAFKA_PASSWORD_FILE: the file cannot be read: No such file"),
        (SASL | {"KAFKA_PASSWORD_FILE": __file__}, "LDPSTREAM_KAFKA_PASSWORD and LDPSTREAM_KAFKA_PASSWORD_FILE are both set"),
        ({"REDIS_PASSWORD_FILE": __file__}, "LDPSTREAM_REDIS_PASSWORD_FILE: the file must hold the secret in one line"),
        ({"REDIS_PASSWORD": f"{SECRET}\udcff"}, "LDPSTREAM_REDIS_PASSWORD: is not text in UTF-8"),
        ({"REDIS": f"redis://:{SECRET}\udcff@one"}, "LDPSTREAM_REDIS: is not text in UTF-8"),
        ({"PARTITIONS": 0}, "LDPSTREAM_PARTITIONS: Input should be greater than or equal to 1, got '0'"),
    ],
)
def test_wrong_settings_give_one_line(environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, **environment).startswith(said)


def test_an_encrypted_or_foreign_key_is_rejected(authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    one, other = (authority.issue("client.example", common_name=name) for name in ("one", "other"))
    key, encrypted = load_pem_private_key(one.key.read_bytes(), None), tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())))
    for wrong in (encrypted, other.key):
        given = {"KAFKA_CA_FILE": authority.file, "KAFKA_CERT_FILE": one.cert, "KAFKA_KEY_FILE": wrong}
        said = refusal(monkeypatch, KAFKA_SECURITY_PROTOCOL="SSL", **given)
        files = f"{authority.file}, {one.cert}, {wrong}"
        assert said == f"LDPSTREAM_KAFKA_*_FILE: must be certificates and their key (PEM, not encrypted), got {files}"


# ---- options for clients


def test_kafka_options_follow_the_settings(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Settings(kafka="one:1,two:2").kafka_options()
    assert plain == {"bootstrap_servers": ["one:1", "two:2"], "security_protocol": "PLAINTEXT"}
    options = load(
        monkeypatch, **SASL | {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_CA_FILE": authority.file}
    ).kafka_options()
    context = options.pop("ssl_context")
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert len(context.get_ca_certs()) == 1
    assert options == {
        "bootstrap_servers": ["127.0.0.1:9092"], "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "agent", "sasl_plain_password": SECRET,
    }  # fmt: skip


def test_redis_credentials_come_from_the_settings_or_the_url() -> None:
    for url, named, found in (
        ("redis://one", {}, (None, None)), ("redis://me:x@one", {}, ("me", "x")),
        ("redis://a:b@one", {"password": "x"}, ("a", "x")), ("redis://one", {"user": "me", "password": "x"}, ("me", "x")),
    ):  # fmt: skip
        given = Settings.model_validate({"redis": url} | {f"redis_{name}": value for name, value in named.items()}).redis_url()
        assert (given.user, given.password and given.password.get_secret_value()) == found


def test_secrets_are_read_from_mounted_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mounted Kubernetes Secret may end with any line end."""
    for end in ("", "\n", "\r\n"):
        (tmp_path / "password").write_bytes(f" {SECRET}ß ".encode() + end.encode())
        settings = load(monkeypatch, KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT", KAFKA_USER="me",
                        KAFKA_PASSWORD_FILE=tmp_path / "password")  # fmt: skip
        assert settings.kafka_options()["sasl_plain_password"] == f" {SECRET}ß "
    (tmp_path / "url").write_text(f"redis://me:{SECRET}@one\n")
    assert load(monkeypatch, REDIS_FILE=tmp_path / "url").redis_url().password == SecretStr(SECRET)
    refused = refusal(monkeypatch, PARTITIONS_FILE="/nowhere")  # partitions are not a secret
    assert refused == "LDPSTREAM_PARTITIONS_FILE: unknown setting; did you mean LDPSTREAM_PARTITIONS?"
    monkeypatch.delenv("LDPSTREAM_PARTITIONS_FILE")
    (tmp_path / "url").write_bytes(b"\xff")
    assert refusal(monkeypatch, REDIS_FILE=tmp_path / "url").startswith("LDPSTREAM_REDIS_FILE: the file is not text")
    (tmp_path / "url").write_bytes(b"\n")
    assert "in one line" in refusal(monkeypatch, REDIS_FILE=tmp_path / "url")


def test_a_misspelt_setting_is_refused_and_other_variables_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, meant in (("KAFAK", "KAFKA"), ("GATEWAY_TOKEN_FILE", "GATEWAY_TOKENS_FILE"), ("PAGEPORT", "PAGE_PORT")):
        assert refusal(monkeypatch, **{name: "x"}) == f"LDPSTREAM_{name}: unknown setting; did you mean LDPSTREAM_{meant}?"
        monkeypatch.delenv(f"LDPSTREAM_{name}")
    load(monkeypatch, CACHE="x", DATA="x", FIGURES="x", REAL_FAULT_LISTS="1")  # read by other parts
    load(monkeypatch, GATEWAY_SERVICE_PORT="8081", GATEWAY_PORT_8081_TCP="tcp://10.0.0.1:8081")  # set by Kubernetes


def test_settings_never_show_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, **SASL | {"REDIS": f"redis://me:{SECRET}@one"})
    assert settings.secrets() == [SECRET] * 2
    for shown in (str(settings), repr(settings), settings.model_dump_json(), str(settings.model_dump()),
                  str(settings.redis_url()), repr(settings.redis_url())):  # fmt: skip
        assert SECRET not in shown
    assert copy.copy(settings) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings  # the control: the secret is still there
