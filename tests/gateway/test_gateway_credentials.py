"""Tests that tokens and the certificate change without a restart."""

import asyncio
import errno
import ssl
from pathlib import Path

import pytest
import structlog
import trustme

from ldpstream.gateway.credentials import Credentials, load_certificate
from ldpstream.runtime.settings import Settings, SettingsError

from .gateway_rig import TOKEN, Rig

OTHER = "another-token-for-the-tests"


def issue(ca: trustme.CA, folder: Path, name: str, kind: trustme.KeyType = trustme.KeyType.ECDSA) -> None:
    issued = ca.issue_cert(name, key_type=kind)
    (folder / "cert.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())


async def status(rig: Rig, token: str) -> int:
    return (await rig.ask("GET", "/v1/surveys", headers={"Authorization": f"Bearer {token}"})).status_code


async def test_tokens_change_without_a_restart_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    credentials = Credentials(Settings(gateway_tokens_file=path))
    rig = Rig(tokens=credentials.tokens)

    def look() -> None:
        for _ in range(2):
            credentials.look(rig.intake, None)

    assert [await status(rig, token) for token in (TOKEN, OTHER)] == [200, 401]
    path.write_text(f"{TOKEN}\n{OTHER}\n")
    credentials.look(rig.intake, None)
    assert await status(rig, OTHER) == 401  # the first look that finds the change does not read
    look()
    assert [await status(rig, token) for token in (TOKEN, OTHER)] == [200, 200]
    path.write_text(OTHER)
    look()
    assert [await status(rig, token) for token in (TOKEN, OTHER)] == [401, 200]
    for broken in ("", "short", f"{OTHER}\ncollector {OTHER}", None):
        path.unlink() if broken is None else path.write_text(broken)
        with structlog.testing.capture_logs() as logged:
            look()
            look()
        assert [line["event"] for line in logged] == ["credentials not changed"]
        assert "short" not in str(logged)
        assert OTHER not in str(logged)
        assert [await status(rig, token) for token in (TOKEN, OTHER)] == [401, 200]
    path.write_text(TOKEN)
    look()
    assert [await status(rig, token) for token in (TOKEN, OTHER)] == [200, 401]


async def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    credentials = Credentials(Settings(gateway_tokens_file=path))
    rig = Rig(tokens=credentials.tokens)
    path.write_text(OTHER)

    def refuses(self: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logged:
        patched.setattr(Path, "read_bytes", refuses)
        for _ in range(4):
            credentials.look(rig.intake, None)
    assert [line["event"] for line in logged] == ["credentials not changed"]
    credentials.look(rig.intake, None)  # the file has not changed since
    assert [await status(rig, token) for token in (TOKEN, OTHER)] == [401, 200]


@pytest.mark.parametrize(("earlier_kind", "later_kind"), [("ECDSA", "RSA"), ("RSA", "ECDSA"), ("ECDSA", "ECDSA")])
async def test_new_connections_get_the_new_certificate_and_a_key_of_another_changes_nothing(
    earlier_kind: str, later_kind: str, tmp_path: Path
) -> None:
    ca = trustme.CA()
    issue(ca, tmp_path, "old.example", trustme.KeyType[earlier_kind])
    (tokens := tmp_path / "tokens").write_text(TOKEN)
    settings = Settings(
        gateway_tokens_file=tokens, gateway_tls_cert=tmp_path / "cert.pem", gateway_tls_key=tmp_path / "key.pem"
    )
    credentials, rig = Credentials(settings), Rig()
    tokens.write_text("short")  # a broken file keeps no other from use
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    load_certificate(settings, context)
    ca.configure_trust(trusting)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def connect(name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)

    def look() -> None:
        for _ in range(2):
            credentials.look(rig.intake, context)

    async with server:
        earlier = await connect("old.example")
        (tmp_path / "key.pem").write_bytes(ca.issue_cert("new.example").private_key_pem.bytes())
        look()
        (await connect("old.example"))[1].close()  # the certificate and the key do not belong together
        issue(ca, tmp_path, "new.example", trustme.KeyType[later_kind])
        look()
        (await connect("new.example"))[1].close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect("old.example")
        earlier[1].write(b"still open\n")
        assert await earlier[0].readline() == b"still open\n"
        earlier[1].close()


def test_bad_credentials_at_the_start_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="LDPSTREAM_GATEWAY_TOKENS_FILE"):
        Credentials(Settings(gateway_tokens_file=tmp_path / "none"))
