"""Chats on one model over one store, with the storeless reference beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.events import Phase, PhaseChanged
from inference.kvcache.block import folder_name
from inference.kvcache.block_store import BlockStore
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.model_digest import ModelDigests
from inference.llama.context import ContextParams
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.prompt import Prompt
from inference.reply_run import ReplyRun
from inference.request import GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.lone_run import LoneRun
from tests.inference.storeless_reference import StorelessReference


def let_restoring_pay(folder: Path, fingerprint: Fingerprint) -> None:
    """What this machine really takes would make the choice between restoring and prefilling a matter of luck."""
    let_restoring_pay_in(folder, folder_name(fingerprint))


def let_restoring_pay_in(folder: Path, name: str) -> None:
    """name: of the fingerprint's folder in the store."""
    (folder / "rates.json").write_text(json.dumps({name: [[99.0, 50.0], [-99.0, 50.0]]}))


def request(
    asked: str | Sequence[Message],
    *,
    owner: str | None = None,
    is_private: bool = False,
    max_tokens: int = 8,
    sampling: SamplingParams | None = None,
    template: str | None = None,
) -> GenerationRequest:
    """Raw text, or a chat's messages. sampling: greedy by default, and max_tokens long."""
    return GenerationRequest(
        ModelConfig("unused"),
        prompt=asked if isinstance(asked, str) else None,
        messages=None if isinstance(asked, str) else tuple(asked),
        sampling=sampling or SamplingParams(temperature=0.0, max_tokens=max_tokens),
        chat_template=template,
        owner=owner,
        is_private=is_private,
    )


class StoredChats:
    """Every reply's logits are compared with those of a model without a store."""

    def __init__(self, model: Path, folder: Path, *, n_ctx: int = 1024, n_ubatch: int = 64) -> None:
        self.folder = folder
        self._model = model
        self._params = ContextParams(n_ctx=n_ctx, n_ubatch=n_ubatch)
        self._digests = ModelDigests(folder.parent / "model-digests.json")
        self._storeless = self._load(None)
        self.reference = StorelessReference(self._storeless.context.sequences[0])
        self._open()

    def _load(self, digests: ModelDigests | None) -> LoadedModel:
        config = ModelConfig(str(self._model), n_threads=1)
        return LoadedModel(config, digests, lambda _fraction: True, self._params)

    def _open(self) -> None:
        self.store = BlockStore(self.folder, 10**9, on_notice=pytest.fail)
        self.loaded = self._load(self._digests)
        self.reference.watch(self.loaded.context.sequences[0])
        fingerprint = self.loaded.fingerprint()
        assert fingerprint is not None
        self.fingerprint = fingerprint

    def restart(self) -> None:
        self._close()
        self._open()

    def _close(self) -> None:
        self.store.close(30)
        self.loaded.close()

    def close(self) -> None:
        self._close()
        self._storeless.close()

    def prompt(self, asked: str | Sequence[Message]) -> Prompt:
        return self.loaded.prompt_builder.build(request(asked))

    def ask(
        self,
        asked: str | Sequence[Message],
        *,
        owner: str | None = None,
        is_private: bool = False,
        max_tokens: int = 8,
        sampling: SamplingParams | None = None,
        template: str | None = None,
    ) -> ReplyRun:
        """The run, once all of it is on disk."""
        let_restoring_pay(self.folder, self.fingerprint)
        self.reference.begin_request()
        compared = self.reference.num_compared
        asking = request(
            asked,
            owner=owner,
            is_private=is_private,
            max_tokens=max_tokens,
            sampling=sampling,
            template=template,
        )
        lone = LoneRun(asking, self.loaded, self.store)
        run = lone.run()
        phases = [event.phase for event in lone.events if isinstance(event, PhaseChanged)]
        assert phases[-1] == Phase.DECODE
        assert self.reference.num_compared > compared
        assert self.store.flush(30)
        return run
