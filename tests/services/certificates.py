"""Creates certificates for the tests: for an authority, for servers on loopback, and for clients."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, as files."""

    cert: Path
    key: Path

    @property
    def both(self) -> Path:
        """One file with the key and the certificate, the form that Kafka requires."""
        return self.key.with_suffix(".both.pem")


class Authority:
    """A new certificate authority, with its files in a folder.

    Args:
        folder: folder for the files.
        name: stem of the file names, unique in the folder.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name = folder, name
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, *hosts: str, common_name: str) -> Identity:
        """Issues a certificate for these host names or addresses. A client's certificate may have any name."""
        made = self._ca.issue_cert(*hosts, common_name=common_name)
        stem = self._folder / f"{self._name}-{common_name}"
        identity = Identity(stem.with_suffix(".cert.pem"), stem.with_suffix(".key.pem"))
        identity.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the only form that Kafka reads
        identity.key.write_bytes(pem)
        identity.both.write_bytes(pem + identity.cert.read_bytes())
        return identity
