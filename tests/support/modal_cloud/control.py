"""The control plane: apps, images, and sandboxes from their creation to their end."""

import asyncio
import base64
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Mapping

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from tests.support.modal_cloud.box import Box
from tests.support.modal_cloud.calls import Calls
from tests.support.modal_cloud.faults import Faults
from tests.support.modal_cloud.front import Front

PAGE = 10
"""Sandboxes in one answer of a listing."""

Metadata = Mapping[str, str]


def jwt() -> str:
    """An unsigned token with an expiry time."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 1200}).encode()).decode().rstrip("=")
    return f"e30.{claims}.loopback"


class Control(Calls):
    """What the cloud holds, and the methods of `ModalClient` on it.

    `has_every_image`: every image that is looked up by name is found, as if it had been published.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.apps: dict[str, str] = {}
        self.images: defaultdict[str, api_pb2.Image] = defaultdict(api_pb2.Image)
        self.published: dict[str, str] = {}
        self.mounted: dict[str, list[api_pb2.MountFile]] = {}
        self.boxes: dict[str, Box] = {}
        self.fronts: dict[str, Front] = {}
        self.has_every_image = False
        self.url = ""
        self._faults = faults
        self._by_key: dict[str, Box] = {}

    async def auth_token_get(self, _: api_pb2.AuthTokenGetRequest, __: Metadata) -> api_pb2.AuthTokenGetResponse:
        return api_pb2.AuthTokenGetResponse(token=jwt())

    async def app_get_or_create(
        self, asked: api_pb2.AppGetOrCreateRequest, _: Metadata
    ) -> api_pb2.AppGetOrCreateResponse:
        if asked.app_name not in self.apps:
            if asked.object_creation_type != api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
                raise GRPCError(Status.NOT_FOUND, f"no app {asked.app_name}")
            self.apps[asked.app_name] = f"ap-{len(self.apps):022}"
        return api_pb2.AppGetOrCreateResponse(app_id=self.apps[asked.app_name])

    async def mount_get_or_create(
        self, asked: api_pb2.MountGetOrCreateRequest, _: Metadata
    ) -> api_pb2.MountGetOrCreateResponse:
        mount_id = f"mo-{len(self.mounted):022}"
        self.mounted[mount_id] = list(asked.files)
        return api_pb2.MountGetOrCreateResponse(mount_id=mount_id)

    async def image_get_or_create(
        self, asked: api_pb2.ImageGetOrCreateRequest, _: Metadata
    ) -> api_pb2.ImageGetOrCreateResponse:
        image_id = f"im-{hashlib.sha256(asked.image.SerializeToString(deterministic=True)).hexdigest()[:22]}"
        self.images[image_id] = asked.image
        done = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
        return api_pb2.ImageGetOrCreateResponse(image_id=image_id, result=done)

    async def image_from_id(self, asked: api_pb2.ImageFromIdRequest, _: Metadata) -> api_pb2.ImageFromIdResponse:
        if asked.image_id not in self.images:
            raise GRPCError(Status.NOT_FOUND, f"no image {asked.image_id}")
        return api_pb2.ImageFromIdResponse(image_id=asked.image_id)

    async def image_publish(self, asked: api_pb2.ImagePublishRequest, _: Metadata) -> api_pb2.ImagePublishResponse:
        self.published[asked.tag] = asked.image_id
        return api_pb2.ImagePublishResponse()

    async def image_get_by_tag(self, asked: api_pb2.ImageGetByTagRequest, _: Metadata) -> api_pb2.ImageGetByTagResponse:
        if self.has_every_image:
            self.published.setdefault(asked.tag, f"im-{hashlib.sha256(asked.tag.encode()).hexdigest()[:22]}")
            self.images[self.published[asked.tag]].SetInParent()
        if asked.tag not in self.published:
            raise GRPCError(Status.NOT_FOUND, f"no image is published as {asked.tag}")
        return api_pb2.ImageGetByTagResponse(image_id=self.published[asked.tag])

    async def sandbox_create_v2(
        self, asked: api_pb2.SandboxCreateV2Request, metadata: Metadata
    ) -> api_pb2.SandboxCreateV2Response:
        if asked.definition.image_id not in self.images:
            raise GRPCError(Status.NOT_FOUND, f"no image {asked.definition.image_id}")
        box = self._by_key.get(metadata["x-idempotency-key"])
        if box is None:
            box = self._by_key[metadata["x-idempotency-key"]] = Box(asked)
            self.boxes[box.id] = box
            front = self.fronts[box.id] = Front(box)
            await front.open(f"127.9.{len(self.boxes) // 250}.{1 + len(self.boxes) % 250}")
            await box.begin(self.reachable)
        self._faults.created.set()
        if self._faults.create_hangs:
            await asyncio.Event().wait()
        return api_pb2.SandboxCreateV2Response(
            sandbox_id=box.id,
            task_id=box.task_id,
            metadata=api_pb2.SandboxHandleMetadata(app_id=asked.app_id),
            command_router_access=api_pb2.CommandRouterAccess(url=self.url, jwt=jwt()),
        )

    async def sandbox_get_command_router_access(
        self, asked: api_pb2.SandboxGetCommandRouterAccessRequest, _: Metadata
    ) -> api_pb2.SandboxGetCommandRouterAccessResponse:
        self.box(asked.sandbox_id).check_runs()
        return api_pb2.SandboxGetCommandRouterAccessResponse(url=self.url, jwt=jwt())

    async def sandbox_wait_v2(self, asked: api_pb2.SandboxWaitRequest, _: Metadata) -> api_pb2.SandboxWaitResponse:
        box = self.box(asked.sandbox_id)
        await asyncio.wait([box.ended], timeout=asked.timeout)
        return api_pb2.SandboxWaitResponse(result=box.ended.result() if box.ended.done() else None)

    async def sandbox_terminate_v2(
        self, asked: api_pb2.SandboxTerminateRequest, _: Metadata
    ) -> api_pb2.SandboxTerminateResponse:
        await self.box(asked.sandbox_id).end(api_pb2.GenericResult.GENERIC_STATUS_TERMINATED)
        return api_pb2.SandboxTerminateResponse()

    async def sandbox_tags_get_v2(
        self, asked: api_pb2.SandboxTagsGetRequest, _: Metadata
    ) -> api_pb2.SandboxTagsGetResponse:
        tags = self.box(asked.sandbox_id).tags
        return api_pb2.SandboxTagsGetResponse(
            tags=[api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in tags.items()]
        )

    async def sandbox_list_v2(self, asked: api_pb2.SandboxListRequest, _: Metadata) -> api_pb2.SandboxListResponse:
        wanted = {tag.tag_name: tag.tag_value for tag in asked.tags}
        listed = [
            api_pb2.SandboxInfo(id=box.id, app_id=box.asked.app_id, created_at=box.created)
            for box in reversed(self.boxes.values())
            if box.asked.app_id == asked.app_id
            and not box.ended.done()
            and wanted.items() <= box.tags.items()
            and not 0 < asked.before_timestamp <= box.created
        ]
        return api_pb2.SandboxListResponse(sandboxes=listed[:PAGE])

    async def sandbox_create_connect_token_v2(
        self, asked: api_pb2.SandboxCreateConnectTokenRequest, _: Metadata
    ) -> api_pb2.SandboxCreateConnectTokenResponse:
        self.box(asked.sandbox_id).check_runs()
        front = self.fronts[asked.sandbox_id]
        return api_pb2.SandboxCreateConnectTokenResponse(url=front.url, token=front.token(asked.port))

    def box(self, sandbox_id: str) -> Box:
        """One that was made."""
        try:
            return self.boxes[sandbox_id]
        except KeyError:
            raise GRPCError(Status.NOT_FOUND, f"no sandbox {sandbox_id}") from None
