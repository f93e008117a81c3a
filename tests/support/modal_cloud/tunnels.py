"""Tunnels of the loopback Modal: TLS in front of a port of a container, by a certificate of an authority of its own."""

import asyncio
import contextlib
import ipaddress
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from modal_proto import api_pb2

from tests.support.modal_cloud.box import both_ways

Metadata = Mapping[str, str]


class Tunnels:
    """`authority`: the file of the certificate that containers and sandboxes trust."""

    reachable: set[int]

    def __init__(self) -> None:
        self._tunnels: dict[int, asyncio.Server] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._certificates: Path | None = None

    @property
    def authority(self) -> Path:
        return self._certificates_folder() / "authority.pem"

    async def tunnel_start(self, asked: api_pb2.TunnelStartRequest, _: Metadata) -> api_pb2.TunnelStartResponse:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificates_folder() / "server.pem")

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            with contextlib.suppress(asyncio.CancelledError):
                await both_ways(reader, writer, asked.port)

        server = self._tunnels[asked.port] = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        self.reachable.add(port)
        return api_pb2.TunnelStartResponse(host="127.0.0.1", port=port)

    async def tunnel_stop(self, asked: api_pb2.TunnelStopRequest, _: Metadata) -> api_pb2.TunnelStopResponse:
        server = self._tunnels.pop(asked.port, None)
        if server is not None:
            self.reachable.discard(server.sockets[0].getsockname()[1])
            server.close()
        return api_pb2.TunnelStopResponse(exists=server is not None)

    async def close_tunnels(self) -> None:
        for server in self._tunnels.values():
            server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._certificates is not None:
            shutil.rmtree(self._certificates)

    def _certificates_folder(self) -> Path:
        if self._certificates is None:
            # Not in /tmp, where a sandbox has files of its own.
            self._certificates = Path(tempfile.mkdtemp(prefix="modal-certificates-", dir="/var/tmp"))
            self._certificates.chmod(0o755)
            _make_certificates(self._certificates)
        return self._certificates


def _make_certificates(folder: Path) -> None:
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback Modal")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.now(UTC) - timedelta(hours=1)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey, is_authority: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )

    authority = builder(authority_name, authority_key.public_key(), True).sign(authority_key, hashes.SHA256())
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = builder(name, key.public_key(), False).add_extension(alternative, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    (folder / "server.pem").write_bytes(private + server.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    (folder / "authority.pem").write_bytes(authority.public_bytes(pem))
